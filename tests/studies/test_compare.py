"""Claims made by hand, where the outcome is known, held against records made by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.refusals import refusal

from creditscope.runs.record import Record
from creditscope.studies import compare
from creditscope.studies.compare import Line, Reason, by_claim, read_audit, whole
from creditscope.studies.published import Outcome
from creditscope.training.spec import RunSpec

COMMON = {"dataset": "cifar10", "arch": "resmlp", "penalty": 0.0, "train_last": None, "epochs": 100}
READINGS = {"as written": {"credit_norm": ["none", None]}, "rms": {"credit_norm": "rms"}}
SETTINGS = {"penalty": {"penalty": 0.01}, "short": {"epochs": 30}}
NULLS = {"frozen": {"method": "dfa", "credit_norm": "rms", "credit_site": "input"}}


def record(accuracy: float, method: str = "dfa", norm: str | None = "rms", seed: int = 42, **fields: Any) -> Record:
    """A record whose lines all hold the same numbers but the epoch's own."""
    own = {k: fields.pop(k) for k in ("h", "g", "cosine", "fired") if k in fields}
    spec = RunSpec(dataset="cifar10", method=method, credit_norm=norm, seed=seed, **{"epochs": 100, **fields})
    lines = [
        {
            "epoch": epoch, "accuracy": accuracy, "train_loss": 2.0 - epoch / 100, "h": own.get("h", [1.0, 1.0]),
            "g_per_sample": [own["g"](epoch) if "g" in own else 1.0], "cosine": own.get("cosine"), "growth": 1.0,
            "stability": 0.0, "fired": ["D1"] if epoch >= own.get("fired", 1000) else [],
        }
        for epoch in range(101)
    ]  # fmt: skip
    return Record(spec, lines, {})


def seeds(*accuracies: float, **how: Any) -> list[Record]:
    return [record(a, seed=s, **how) for s, a in zip((42, 123, 456), accuracies, strict=False)]


def lines(tmp_path: Path, row: dict[str, Any], records: list[Record], table: str = "published.csv") -> list[Line]:
    write(tmp_path, row, table)
    return read_audit(tmp_path).compare(records)


def write(folder: Path, row: dict[str, Any], table: str = "published.csv", **more: Any) -> None:
    paper = {"paper": "p", "common": COMMON, "settings": SETTINGS, "readings": READINGS, "nulls": NULLS, **more}
    (folder / "audit.json").write_text(json.dumps(paper))
    (folder / "published.csv").write_text("table,method,quantity,value\n")
    row = {"table": "T", "method": "dfa", **row}
    (folder / table).write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")


PUBLISHED = {"quantity": "accuracy", "value": 0.306, "std": 0.008, "n": 3}
"""± 4.303 · .008 / √3 = .0199, so the tolerance of .02 counts: .286 to .326."""


@pytest.mark.parametrize(
    ("ours", "outcome"),
    [
        ((0.300,), Outcome.AGREES),
        ((0.325, 0.325, 0.325), Outcome.AGREES),
        ((0.327, 0.329, 0.331), Outcome.UNDECIDED),  # .329 ± 4.303 · .002 / √3 = .005: reaches .326
        ((0.339, 0.340, 0.341), Outcome.DIFFERS),  # ± .0025
        ((0.320, 0.340, 0.360), Outcome.UNDECIDED),  # a wide spread is no agreement
        ((0.327,), Outcome.DIFFERS),
    ],
)
def test_ours_must_lie_in_the_published_interval(tmp_path, ours, outcome):
    (line,) = lines(tmp_path, PUBLISHED, seeds(*ours))
    assert (line.outcome, line.reading, line.ours.n) == (outcome, "rms", len(ours))


def test_a_wide_published_spread_counts_and_a_wide_spread_of_ours_does_not(tmp_path):
    """± 4.303 · .037 / √3 = .0919."""
    wide = {**PUBLISHED, "std": 0.037}
    assert lines(tmp_path, wide, seeds(0.39))[0].outcome is Outcome.AGREES
    assert lines(tmp_path, wide, seeds(0.40))[0].outcome is Outcome.DIFFERS
    assert lines(tmp_path, PUBLISHED, seeds(0.2, 0.39, 0.58))[0].outcome is Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("row", "h", "outcome"),
    [
        ({"value": 1000}, 2990.0, Outcome.AGREES),
        ({"value": 1000}, 3010.0, Outcome.DIFFERS),
        ({"value": 1000}, 340.0, Outcome.AGREES),
        ({"value": "500; 1000; 2000"}, 5500.0, Outcome.AGREES),  # 1000 · exp(4.303 · ln 2 / √3) = 5597
        ({"value": "500; 1000; 2000"}, 5700.0, Outcome.DIFFERS),
        ({"low": 400, "high": 900, "kind": "range"}, 2690.0, Outcome.AGREES),
        ({"low": 400, "high": 900, "kind": "range"}, 2710.0, Outcome.DIFFERS),
        ({"value": 1000, "kind": "at most"}, 1001.0, Outcome.DIFFERS),
        ({"value": 1000, "kind": "at least"}, 1001.0, Outcome.AGREES),
    ],
)
def test_orders_of_magnitude(tmp_path, row, h, outcome):
    assert lines(tmp_path, {"quantity": "last_h", **row}, [record(0.3, h=[1.0, h])])[0].outcome is outcome


def test_the_sign_counts_and_orders_are_averaged_by_their_exponents(tmp_path):
    """train_loss falls by .99 from the first to the last epoch."""
    assert lines(tmp_path, {"quantity": "loss_change", "value": -0.5}, [record(0.3)])[0].outcome is Outcome.AGREES
    assert lines(tmp_path, {"quantity": "loss_change", "value": 0.5}, [record(0.3)])[0].outcome is Outcome.DIFFERS
    runs = [record(0.3, seed=s, h=[1.0, h]) for s, h in ((1, 10.0), (2, 100.0), (3, 1000.0))]
    (line,) = lines(tmp_path, {"quantity": "last_h", "value": 100}, runs)
    assert line.ours.value == pytest.approx(100.0)
    assert line.ours.high == pytest.approx(100 * math.exp(4.302653 * math.log(10) / math.sqrt(3)), rel=1e-5)


def test_a_gradient_norm_is_compared_at_the_batch_of_the_paper(tmp_path):
    """Per sample 1.28e-4: 1e-6 at B = 128 and 1.25e-7 at 1024."""
    runs = [record(0.3, g=lambda epoch: 1.28e-4)]
    row = {"quantity": "reference_norm_128", "epoch": 3, "value": 1.25e-7, "batch_size": 1024}
    (line,) = lines(tmp_path, row, runs)
    assert (line.outcome, line.ours.value) == (Outcome.AGREES, pytest.approx(1.25e-7))
    assert lines(tmp_path, {**row, "batch_size": 128}, runs)[0].outcome is Outcome.DIFFERS


@pytest.mark.parametrize(
    ("epochs", "outcome", "reason"),
    [
        ((8, 11, 13), Outcome.AGREES, Reason.NONE),  # 8 to 11, and two more
        ((8, 11, 14), Outcome.UNDECIDED, Reason.NONE),
        ((8, 11, 500), Outcome.UNDECIDED, Reason.NONE),  # not in every seed
        ((20, 30, 40), Outcome.DIFFERS, Reason.NONE),
        ((500,), Outcome.DIFFERS, Reason.NEVER),
    ],
)
def test_an_event_must_happen_in_every_seed(tmp_path, epochs, outcome, reason):
    runs = [record(0.3, seed=s, fired=e) for s, e in enumerate(epochs)]
    (line,) = lines(tmp_path, {"quantity": "d1_epoch", "low": 8, "high": 11, "kind": "range"}, runs)
    assert (line.outcome, line.reason) == (outcome, reason)


def test_the_floor_is_reached_earlier_at_a_larger_batch(tmp_path):
    """1e-4 · 2^-epoch: under 1.28e-5 at epoch 3, under 1.024e-4 at epoch 1."""
    runs = [record(0.3, g=lambda epoch: 1e-4 * 0.5**epoch)]
    found = lines(tmp_path, {"quantity": "floor_epoch[128]", "value": 3}, runs)
    assert found[0].ours.values == (3.0,)
    assert lines(tmp_path, {"quantity": "floor_epoch[1024]", "value": 3}, runs)[0].ours.values == (1.0,)
    last = len(runs[0].trajectory) - 1  # to stop there saves what is left
    assert lines(tmp_path, {"quantity": "saved[1024]", "value": 0.9}, runs)[0].ours.values == (1 - 1 / last,)
    never = [record(0.3, g=lambda epoch: 1.0)]
    assert lines(tmp_path, {"quantity": "saved[1024]", "value": 0.9}, never)[0].reason is Reason.UNMEASURED


def test_margins_are_to_the_null_of_the_same_seed(tmp_path):
    trained = seeds(0.62, 0.61, 0.9, method="bp", norm=None)
    nulls = [record(a, seed=s, train_last=0) for s, a in ((42, 0.35), (123, 0.36))]
    row = {"method": "bp", "quantity": "accuracy", "value": 26.6, "minus": "frozen"}
    (line,) = lines(tmp_path, row, [*trained, *nulls])
    assert list(line.ours.values) == pytest.approx([27.0, 25.0])  # a seed without its null has no margin
    assert (line.outcome, len(line.runs)) == (Outcome.AGREES, 4)


def test_readings_and_the_outcome_of_the_whole_claim(tmp_path):
    both = [record(0.306), record(0.40, norm="none")]
    found = lines(tmp_path, PUBLISHED, both)
    assert {x.reading: x.outcome for x in found} == {"as written": Outcome.DIFFERS, "rms": Outcome.AGREES}
    assert whole(found) is Outcome.DEPENDS
    (row,) = compare.summary_table(found, "").rows
    assert [row.value(k) for k in ("values", "written", "depends", "networks")] == [1, 0, 1, 2]
    assert whole(lines(tmp_path, PUBLISHED, [both[1]])) is Outcome.DIFFERS


def test_what_is_not_compared_says_why(tmp_path):
    (other,) = lines(tmp_path, PUBLISHED, [record(0.306, epochs=30)])
    assert (other.outcome, other.reason, other.within, other.epochs) == (
        Outcome.NOT_COMPARABLE, Reason.LENGTH, Outcome.AGREES, 30,
    )  # fmt: skip
    assert lines(tmp_path, {**PUBLISHED, "setting": "short"}, [record(0.306, epochs=30)])[0].outcome is Outcome.AGREES
    (kind,) = lines(tmp_path, {**PUBLISHED, "incomparable": "of other networks"}, [record(0.306)])
    assert (kind.outcome, kind.reason) == (Outcome.NOT_COMPARABLE, Reason.PUBLISHED)
    (none,) = lines(tmp_path, {"quantity": "cosine[0]", "value": 0.4}, [record(0.306)])
    assert (none.outcome, none.reason) == (Outcome.NOT_COMPARABLE, Reason.UNMEASURED)
    for others in ([], [record(0.306, penalty=0.01)], [record(0.306, width=64)], [record(0.3, method="fa")]):
        found = lines(tmp_path, {**PUBLISHED, "setting": "penalty"} if not others else PUBLISHED, others[:1])
        assert found[0].outcome is (Outcome.AGREES if others and others[0].spec.width == 64 else Outcome.NOT_RUN)


def test_one_run_per_seed_the_longest_of_a_schedule(tmp_path):
    twice = [record(0.306, checkpoint_epochs=c) for c in ((), (1,))]
    assert lines(tmp_path, PUBLISHED, twice)[0].ours.values == (0.306,)
    short = record(0.2, epochs=5, schedule_epochs=100)
    (line,) = lines(tmp_path, {"quantity": "accuracy", "epoch": 5, "value": 0.2}, [short])
    assert (line.outcome, line.epochs) == (Outcome.AGREES, 100)  # its course is comparable, its end is not
    assert lines(tmp_path, {"quantity": "accuracy", "value": 0.2}, [short])[0].reason is Reason.LENGTH


@pytest.mark.parametrize(
    ("answers", "passes", "outcome"),
    [
        (("fail", "fail"), "fail", Outcome.AGREES),
        (("pass", "pass"), "fail", Outcome.DIFFERS),
        (("fail", "inconclusive"), "fail", Outcome.UNDECIDED),
    ],
)
def test_decisions_count_seeds(tmp_path, monkeypatch, answers, passes, outcome):
    spec = record(0.3).spec
    reports = [SimpleNamespace(status=a, checks={d: SimpleNamespace(answer=a) for d in ("D1", "D2")}) for a in answers]
    group = SimpleNamespace(spec=spec, hashes=("a", "b"), reports=reports)
    monkeypatch.setattr(compare, "audit", lambda records: [group])
    for check in ("verdict", "D1", '"D1 + D2"'):
        (line,) = lines(tmp_path, {"check": check, "passes": passes}, [], "verdicts.csv")
        assert (line.outcome, line.ours.n) == (outcome, 2)


def test_mode_1_fails_only_where_both_checks_do(monkeypatch):
    def group(d1: str, d2: str) -> Any:
        checks = {"D1": SimpleNamespace(answer=d1), "D2": SimpleNamespace(answer=d2)}
        return SimpleNamespace(reports=[SimpleNamespace(checks=checks)])

    assert compare.answered("D1 + D2", group("fail", "pass")) == ("pass",)
    assert compare.answered("D1 + D2", group("fail", "fail")) == ("fail",)
    assert compare.answered("D1 + D2", group("fail", "inconclusive")) == ("inconclusive",)


def test_how_far_each_reading_is(tmp_path):
    """Twice and half the published: log10 2 by root mean square; .04 at a tolerance of .02: two units."""
    write(tmp_path, {})
    rows = ["table,method,quantity,value,chooses", "T,dfa,last_h,100,yes", "T,dfa,h[0],8,yes", "T,dfa,accuracy,.3,"]
    (tmp_path / "published.csv").write_text("\n".join(rows) + "\n")
    found = read_audit(tmp_path).compare([record(0.34, h=[4.0, 200.0])])
    (row,) = compare.readings_table(found, "").rows
    assert row["chosen_log"].value == pytest.approx(math.log10(2))
    assert (row["chosen_log"].n, row["held_z"].value) == (2, pytest.approx(2.0))


def test_a_published_zero_has_a_difference_and_no_ratio(tmp_path):
    row = {"quantity": "cosine[1]", "value": 0.0}
    (flat,) = compare.lines_table(lines(tmp_path, row, seeds(0.3, cosine=[0.4, 0.25])), "").records()
    assert flat["difference"] == 0.25
    assert flat.get("ratio") is None


def test_a_line_for_every_claim_in_one_flat_table(tmp_path):
    found = lines(tmp_path, {"quantity": "last_h", "value": 100}, [record(0.3, h=[1.0, 200.0])])
    (flat,) = compare.lines_table(found, "").records()
    assert (flat["ratio"], flat["outcome"], flat["published"], flat["ours"]) == (2.0, "agrees", 100.0, 200.0)
    assert len(by_claim(found)) == 1


@pytest.mark.parametrize(
    ("row", "more", "message"),
    [
        ({"quantity": "acuracy", "value": 1}, {}, "published.csv:2: quantity 'acuracy' is unknown; did you mean 'accuracy'"),
        ({"quantity": "accuracy", "value": "x"}, {}, "published.csv:2: could not convert string to float: 'x'"),
        ({"quantity": "accuracy", "low": 1, "kind": "range"}, {}, "published.csv:2: a range needs low and high"),
        ({"quantity": "accuracy", "value": 1, "setting": "tall"}, {}, "published.csv:2: setting 'tall' is unknown"),
        ({"quantity": "accuracy", "value": 1, "minus": "x"}, {}, "published.csv:2: null 'x' is unknown"),
        ({"quantity": "accuracy", "value": 1, "batch_size": 8}, {}, "published.csv:2: batch_size belongs to ‖g‖"),
        ({"quantity": "accuracy", "value": 1, "sdt": 1}, {}, "published.csv:2: sdt "),
        ({"quantity": "accuracy", "value": 1, "std": "a"}, {}, "published.csv:2: std must be a number (got 'a')"),
        ({}, {"common": {"widht": 3}}, "audit.json: field 'widht' is unknown; did you mean 'width'"),
        ({}, {"paperr": 3}, "audit.json: paperr "),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_file_and_line(tmp_path, row, more, message):
    write(tmp_path, {"quantity": "accuracy", "value": 1, **row} if more else row, **more)
    assert message in refusal(lambda: read_audit(tmp_path))


def test_a_folder_without_files_is_refused(tmp_path):
    assert "audit.json" in refusal(lambda: read_audit(tmp_path))
