"""The whole grid next to what was run: no seed, epoch or method is missing without a word."""

from __future__ import annotations

from creditscope.studies.audit import length, shape
from creditscope.studies.catalogue import get_study
from creditscope.studies.coverage import AS_PLANNED, FEWER, OTHER_LENGTH, coverage
from creditscope.studies.grid import CB, make
from creditscope.studies.reproduction import NOT_RUN

SHAPE = "cifar10, resmlp d=256 L=4"


def cells(specs, studies=("audit",)):
    return {(c.network, c.method, c.length): c for c in coverage(specs, studies)}


def test_the_whole_grid_leaves_nothing_open():
    wanted = get_study("audit").specs("paper")
    found = cells(wanted)
    assert {c.statement for c in found.values()} == {AS_PLANNED}
    assert {key for c in found.values() for key in c.hashes} == {s.hash for s in wanted}
    assert {(shape(s), s.label, length(s)) for s in wanted} == set(found)
    assert sum(len(c.planned) for c in found.values()) == sum(len(c.run) for c in found.values()) == len(wanted)


def test_one_missing_seed_is_named():
    wanted = get_study("audit").specs("paper")
    gone = next(s for s in wanted if s.method == "cb" and not s.frozen and s.seed == 123)
    found = cells([s for s in wanted if s != gone])
    key = (SHAPE, "cb(rms)", "100 epochs")
    assert [k for k, c in found.items() if c.statement != AS_PLANNED] == [key]
    assert found[key].words[3:] == ["42, 123, 456", "42, 456", FEWER]


def test_a_shorter_training_does_not_count_for_the_longer_and_is_shown():
    short = make("reduced", CB, 42)
    assert length(short) == "30 epochs"
    cell = cells([short])[SHAPE, "cb(rms)", "100 epochs"]
    assert cell.words[3:] == ["42, 123, 456", "42 (30 epochs)", OTHER_LENGTH]
    assert cell.run == ()
    assert cell.hashes == (short.hash,)
    assert cells([])[SHAPE, "cb(rms)", "100 epochs"].words[4:] == ["–", NOT_RUN]


def test_both_lengths_of_one_method_are_asked_for_apart():
    wanted = get_study("audit").specs("paper")
    found = cells(wanted, ("audit", "penalty"))
    assert found[SHAPE, "fa(none)", "100 epochs"].statement == AS_PLANNED
    assert found[SHAPE, "fa(none)", "30 epochs"].statement == OTHER_LENGTH


def test_a_cut_schedule_is_another_length():
    cut = make("quick", CB, 42)
    assert cells([cut])[SHAPE, "cb(rms)", "100 epochs"].words[4] == "42 (5 epochs of a schedule of 30)"
