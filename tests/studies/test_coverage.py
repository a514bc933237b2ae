"""The whole grid next to what was run: no seed, epoch or method is missing without a word."""

from __future__ import annotations

from creditscope.studies.audit import length, shape
from creditscope.studies.catalogue import get_study
from creditscope.studies.coverage import AS_PLANNED, IN_PART, coverage
from creditscope.studies.grid import CB, make
from creditscope.studies.reproduction import NOT_RUN

SHAPE = "cifar10, resmlp d=256 L=4"


def cells(specs, studies=("audit",)):
    return {(c.network, c.method): c for c in coverage(specs, studies)}


def test_the_whole_grid_leaves_nothing_open():
    wanted = get_study("audit").specs("paper")
    found = cells(wanted)
    assert {c.statement for c in found.values()} == {AS_PLANNED}
    assert {key for c in found.values() for key in c.hashes} == {s.hash for s in wanted}
    assert {(shape(s), s.label) for s in wanted} == set(found)
    assert sum(len(seeds) for c in found.values() for seeds in c.planned.values()) == len(wanted)


def test_one_missing_seed_is_named():
    wanted = get_study("audit").specs("paper")
    gone = next(s for s in wanted if s.method == "cb" and not s.frozen and s.seed == 123)
    found = cells([s for s in wanted if s != gone])
    assert [key for key, c in found.items() if c.statement == IN_PART] == [(SHAPE, "cb(rms)")]
    words = found[SHAPE, "cb(rms)"].words
    assert words[2:] == ["100 epochs: seeds 42, 123, 456", "100 epochs: seeds 42, 456", IN_PART]


def test_a_shorter_training_does_not_count_for_the_longer_and_is_shown():
    short = make("reduced", CB, 42)
    assert length(short) == "30 epochs"
    cell = cells([short])[SHAPE, "cb(rms)"]
    assert cell.words[3:] == ["30 epochs: seed 42", IN_PART]
    assert cells([])[SHAPE, "cb(rms)"].words[3:] == ["–", NOT_RUN]


def test_both_lengths_of_one_method_are_asked_for():
    cell = cells([], ("audit", "penalty"))[SHAPE, "fa(none)"]
    assert cell.planned == {"100 epochs": [42, 123, 456], "30 epochs": [42, 123, 456]}


def test_a_cut_schedule_is_another_length():
    cut = make("quick", CB, 42)
    assert cells([cut])[SHAPE, "cb(rms)"].words[3] == "5 epochs of a schedule of 30: seed 42"
