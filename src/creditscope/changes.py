"""`diff`: what changed from one report to another, by how much, and whether it lies outside the intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.errors import CreditscopeError, with_article
from creditscope.measure.binomial import wilson
from creditscope.measure.facts import Facts, LayerMeans, Readout
from creditscope.measure.student_t import t_975
from creditscope.protocol.intervals import t_interval
from creditscope.protocol.report import DiagnosticReport
from creditscope.quantities import deep_mean
from creditscope.record import SUFFIXES, read_record
from creditscope.tables import Cell, Column, Row, Spread, Table, state

if TYPE_CHECKING:
    from creditscope.training.bundle import Bundle

COLUMNS = (
    Column("quantity"),
    Column("layer"),
    Column("a", spread=Spread.INTERVAL),
    Column("b", spread=Spread.INTERVAL),
    Column("change", about="b minus a; yes where words differ"),
    Column("outside", "outside the intervals", about="True where the 95 % intervals of a and b do not meet"),
)
CONVENTION = (
    "change: b minus a; outside the intervals: the 95 % intervals of a and b do not meet, or the one that is known does not hold "
    "the other value. The samples are not paired: a small change may be real and stay inside."
)
Key = tuple[str, int | None]


def diff(a: DiagnosticReport | Bundle | str | Path, b: DiagnosticReport | Bundle | str | Path) -> Table:
    """Compare two reports: reports, bundles, or paths of either or of a record (measured on the spot).

    One row per quantity (and layer): its value in `a` and in `b` with their 95 % intervals, the change b - a, and whether it is
    outside the intervals (None where neither has one). What only one of the two has is a row with the other side not measured.
    """
    first, second = as_report(a, "a"), as_report(b, "b")
    ours, theirs = (dict(_quantities(report)) for report in (first, second))
    rows = [_row(key, ours.get(key, Cell()), theirs.get(key, Cell())) for key in {**ours, **theirs}]
    notes = list(_notes(first, second))
    changed = [row for row in rows if row.value("change") not in (None, 0, 0.0, False)]
    conclusion = state(
        "{changed} of {compared} quantities changed, {outside} outside the intervals",
        changed=len(changed),
        compared=len(rows),
        outside=sum(row.value("outside") is True for row in rows),
    )
    title = f"{first.method_name or 'a'} → {second.method_name or 'b'}"
    return Table("diff", title, COLUMNS, tuple(rows), (conclusion,), (state(CONVENTION),), tuple(notes))


def as_report(given: Any, name: str = "it") -> DiagnosticReport:
    """A report, the report of a bundle or of a record, or what stands at a path; `name`: of the argument, for an error."""
    if isinstance(given, DiagnosticReport):
        return given
    from creditscope.training.bundle import Bundle, load_bundle

    if isinstance(given, str | Path):
        path = Path(given)
        if not path.exists():
            raise CreditscopeError(
                f"{path} does not exist; give a report (JSON), a record or the directory of a bundle"
            )
        if path.suffix in SUFFIXES:
            return read_record(path).diagnose()
        if path.is_file():
            return DiagnosticReport.from_json(path)
        given = load_bundle(path)
    if isinstance(given, Bundle):
        return DiagnosticReport.from_dict(given.report, str(given.path))
    raise CreditscopeError(f"{name} is {with_article(given)}; give a report, a bundle, or the path of one")


def _notes(a: DiagnosticReport, b: DiagnosticReport) -> Iterator[str]:
    """What makes two reports hard to compare."""
    one, two = a.facts.convention, b.facts.convention
    if one.samples != two.samples:
        yield f"the evaluation samples differ ({one.n_samples:,} and {two.n_samples:,})"
    for name in ("loss", "reduction", "dtype", "mode", "checkpoint"):
        if getattr(one, name) != getattr(two, name):
            yield f"{name}: {getattr(one, name)} in a, {getattr(two, name)} in b"
    if (left := a.facts.stream.depth) != (right := b.facts.stream.depth):
        yield f"a has {left} blocks and b has {right}: layer l of one is not layer l of the other"
    if a.protocol != b.protocol:
        yield f"judged by {a.protocol} and by {b.protocol}"


def _row(key: Key, a: Cell, b: Cell) -> Row:
    name, layer = key
    change: Any = None
    if a.number is not None and b.number is not None:
        change = b.number - a.number
    elif a.known and b.known:
        change = str(a.value) != str(b.value)
    cells = {"quantity": Cell(name), "layer": Cell(layer), "a": a, "b": b, "change": Cell(change)}
    return Row({**cells, "outside": Cell(_outside(a, b))})


def _outside(a: Cell, b: Cell) -> bool | None:
    if a.number is None or b.number is None:
        return None
    if a.ends is None and b.ends is None:
        return None
    (low, high), (other_low, other_high) = a.ends or (a.number, a.number), b.ends or (b.number, b.number)
    return other_low > high or other_high < low


# ---- quantities with their intervals -------------------------------------------------------------------------------


def _quantities(report: DiagnosticReport) -> Iterator[tuple[Key, Cell]]:
    facts = report.facts
    yield ("status", None), Cell(report.status)
    for check in report.verdict.checks:
        yield (check.id, None), Cell(check.answer)
    yield from (((name, None), cell) for name, cell in _of_network(facts) if cell.known)
    for name, cells in layers(facts):
        yield from (((name, layer), cell) for layer, cell in enumerate(cells) if cell.known)


def _of_network(facts: Facts) -> Iterator[tuple[str, Cell]]:
    if (claim := facts.claim) is not None:
        spread = (claim.low, claim.high) if claim.low < claim.high else (None, None)
        yield "accuracy", Cell(claim.accuracy, *spread)
    if (found := facts.evaluation) is not None:
        yield "accuracy on the evaluation samples", Cell(found.accuracy, *wilson(found.accuracy, found.n))
    yield "loss", Cell(facts.loss)
    for margin in facts.depth.margins if facts.depth else ():
        yield f"margin_{margin.null.removeprefix('kind ')}", Cell(margin.margin_pp, margin.low_pp, margin.high_pp)
    if facts.profile is not None and (m := facts.profile.margin) is not None:
        yield "profile_margin", Cell(m.pp, m.low_pp, m.high_pp)
    if facts.aggregate is not None:
        yield "gamma", Cell(facts.aggregate.headline)
    if facts.concentration is not None:
        yield "deep_cosine", Cell(deep_mean(facts.concentration))
        yield "top_share", Cell(facts.concentration.top_share)
    yield "growth", Cell(facts.scale.growth, *_over(facts.scale.growth_by_group))
    groups = facts.reference.deepest_by_group
    yield "reference_norm", Cell(facts.reference.per_sample[-1], *_over(groups))
    yield "stability", Cell(facts.stability.deepest)
    if facts.fresh_b is not None:
        yield "fresh_b_z", Cell(facts.fresh_b.z)


def layers(facts: Facts) -> Iterator[tuple[str, list[Cell]]]:
    """Every fact that has a value per layer, l = 0..L, with its 95 % interval where there is one."""
    yield "h", [Cell(value) for value in facts.scale.mean]
    yield "g", [Cell(value) for value in facts.reference.per_sample]
    if (aligned := facts.alignment) is not None:
        yield "cosine", _means(aligned.mean, aligned.std, aligned.measurable)
    for name, fact in (("rho", facts.perturbation), ("nudging", facts.nudging)):
        means: LayerMeans | None = None if fact is None else fact.credit
        if means is not None:
            yield name, _means(means.mean, means.std, means.measurable)
    if facts.profile is not None:
        yield "readout", [_read(r) for r in facts.profile.curve]
        yield "twin_readout", [_read(r) for r in facts.profile.twin]


def _over(groups: tuple[float, ...]) -> tuple[float, float] | tuple[None, None]:
    """Student's t over groups of 128 samples."""
    return t_interval(groups) or (None, None)


def _means(mean: Any, std: Any, n: Any) -> list[Cell]:
    """Student's t over samples."""
    return [_mean(*each) for each in zip(mean, std, n, strict=True)]


def _mean(mean: float | None, std: float | None, n: int) -> Cell:
    if mean is None or std is None or n < 2 or not math.isfinite(std):
        return Cell(mean)
    half = t_975(n - 1) * std / math.sqrt(n)
    return Cell(mean, mean - half, mean + half)


def _read(readout: Readout) -> Cell:
    return Cell(readout.accuracy, readout.low, readout.high)
