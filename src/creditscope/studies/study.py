"""A study: a grid of runs, the axes along which they are compared, and the quantities of its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from creditscope.quantities import Quantity, get_quantity, standard
from creditscope.runs.groups import Group, Outcome, audit, network
from creditscope.runs.record import Record, records_of
from creditscope.tables import Cell, Column, Plot, Row, Statement, Table, Value, grouped_by, state
from creditscope.training.spec import RunSpec

if TYPE_CHECKING:
    from creditscope.runs.archive import Archive
    from creditscope.runs.store import Store


@dataclass(frozen=True)
class Axis:
    """A column that says which runs a row is of."""

    name: str
    about: str
    read: Callable[[RunSpec], Value]
    title: str = ""

    @property
    def column(self) -> Column:
        return Column(self.name, self.title, about=self.about)


def by_label(spec: RunSpec) -> str:
    return spec.label


def method_and_norm(spec: RunSpec) -> str:
    """`dfa(rms)`, whatever the penalty, the clipping and the trained blocks."""
    return f"{spec.method}({spec.credit_norm})" if spec.credit_norm else spec.method


METHOD = Axis("method", "credit rule and credit_norm; λ and the number of trained blocks where they vary", by_label)
METHOD_AND_NORM = Axis("method", "credit rule and credit_norm", method_and_norm)
RULE = Axis("method", "credit rule", lambda s: s.method)
SEED = Axis("seed", "seed of the run", lambda s: s.seed)
INTERVENTIONS = (
    Axis("run", "credit rule, credit_norm and penalty λ", by_label),
    METHOD_AND_NORM,
    Axis("penalty", "penalty", lambda s: s.penalty, "λ"),
)
EPOCH = Column("epoch", about="epoch of the row; 0 is the untrained network")
FIRED = Column("fired", "checks that fire", about="D1, D2 or C at that epoch")
AUDITED = tuple(Plot("method", y) for y in ("accuracy", "gamma", "margin_matched", "growth", "reference_norm_128"))
"""What is drawn of a table of audited methods."""
STATES = Callable[[Table, Sequence[Group]], Iterable[Statement]]


@dataclass(frozen=True)
class Study:
    """`specs(preset)` gives the runs, `table(records)` what they say; a study takes any subset of its runs, the empty one too.

    Without `build` the trained networks are grouped over seeds, judged with their nulls, and every group is a row.
    """

    name: str
    question: str
    specs: Callable[[str], list[RunSpec]]
    axes: tuple[Axis, ...] = (METHOD,)
    quantities: tuple[str | Quantity, ...] = ()
    """Names, or quantities of its own; the standard ones where none is named."""
    order: Callable[[Group], Any] | None = None
    conclude: STATES | None = None
    """The statements that follow from the table."""
    convention: Statement | None = None
    """What is special to the numbers of this study."""
    plots: tuple[Plot, ...] = AUDITED
    build: Callable[[Study, Sequence[Record]], Table] | None = field(default=None, repr=False)
    then: Callable[[str, Sequence[Record]], list[RunSpec]] | None = field(default=None, repr=False)
    """Further runs of a preset, chosen from the finished ones; none while a run is missing that the choice needs."""

    @property
    def full(self) -> bool:
        """True if it needs the facts of level full."""
        return any(get_quantity(name).full for name in self.quantities)

    def runs(self, preset: str, *sources: Store | Archive) -> list[RunSpec]:
        """The grid, and what the finished runs of these stores and archives have chosen so far."""
        specs = {spec.hash: spec for spec in self.specs(preset)}
        while self.then:
            found = {r.spec.hash: r for source in sources for r in records_of(source, specs.values())[0]}
            more = {spec.hash: spec for spec in self.then(preset, list(found.values()))}
            if more.keys() <= specs.keys():
                break
            specs |= more
        return list(specs.values())

    def table(self, records: Sequence[Record]) -> Table:
        return self.build(self, records) if self.build else self.grouped(audit(records))

    def grouped(self, groups: Sequence[Group]) -> Table:
        """A row per group of seeds, what follows from them, and how they were judged."""
        groups = sorted(groups, key=self.order) if self.order else list(groups)
        made = self.of_groups(groups)
        conclusion = tuple(self.conclude(made, groups)) if self.conclude and groups else ()
        return replace(made, conclusion=conclusion or made.conclusion, convention=(*made.convention, *judged(groups)))

    def of_groups(self, groups: Sequence[Group], *conclusion: Statement, **more: Any) -> Table:
        """A row per group: its place along the axes, and the quantities."""
        found = [get_quantity(q) for q in self.quantities or standard()]
        rows = [
            Row({**{a.name: Cell(_at(a, g)) for a in self.axes}, **{q.name: q.over(g) for q in found}}, g.hashes)
            for g in groups
        ]
        columns = [*(a.column for a in self.axes), *(q.column() for q in found)]
        return self.made(columns, rows, *conclusion, **more)

    def made(self, columns: Iterable[Column], rows: Iterable[Row], *conclusion: Statement, **more: Any) -> Table:
        """The table with what the study says of itself, and a note for every reason why a cell is empty."""
        rows, columns = tuple(rows), tuple(columns)
        conclusion = conclusion or (() if rows else (state("no runs"),))
        convention = (self.convention,) if self.convention else ()
        named = {"conclusion": conclusion, "convention": convention, "plots": self.plots, "notes": gaps(columns, rows)}
        return Table(self.name, self.question, columns, rows, **{**named, **more})


def _at(axis: Axis, group: Group) -> Value:
    return group.label if axis.read is by_label else axis.read(group.spec)


def gaps(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[str, ...]:
    """One line for every quantity of level full that some rows lack, with the reason of the first."""
    found = []
    for column in columns:
        missing = [row[column.name].note for row in rows if not row[column.name].known and row[column.name].note]
        if missing and column.quantity is not None and column.quantity.full:
            found.append(f"{column.heading}: not there in {len(missing)} of {len(rows)} rows ({missing[0]})")
    return tuple(found)


def judged(groups: Sequence[Group]) -> tuple[Statement, ...]:
    """The convention of audited groups: protocol, networks with their seeds, intervals."""
    if not groups:
        return (state("no runs"),)
    networks = []
    for name, same in grouped_by(groups, lambda g: network(g.spec)).items():
        usual = Counter(g.seeds for g in same).most_common(1)[0][0]
        others = tuple(state("seeds of", label=g.label, seeds=g.seeds) for g in same if g.seeds != usual)
        networks.append(state("network", network=name, seeds=usual, others=others))
    open_ = any(r.checks["D3"].answer == "not measurable" and r.facts.depth for g in groups for r in g.reports)
    audited = state("audited", protocol=groups[0].reports[0].protocol, networks=tuple(networks))
    return (audited, *([state("D3 not measurable")] if open_ else []))


# ---- what several studies ask of their groups -------------------------------------------------------------------------


def failing(groups: Iterable[Group]) -> list[Group]:
    """Groups of which every seed fails."""
    return [g for g in groups if g.outcome is Outcome.FAIL]


def partly(groups: Iterable[Group]) -> tuple[Statement, ...]:
    """Groups of which some seeds fail and others do not; empty where there are none."""
    counts = [(g, sum(r.status == "fail" for r in g.reports)) for g in groups if g.outcome is Outcome.MIXED]
    some = tuple(state("in some", label=g.label, k=k, n=len(g.reports)) for g, k in counts if k)
    return (state("partly", groups=some),) if some else ()


def labels(groups: Iterable[Group]) -> tuple[str, ...]:
    return tuple(g.label for g in groups)


def shared_seeds(*seeds: Iterable[int]) -> tuple[int, ...]:
    """The seeds that all have."""
    return tuple(sorted(set.intersection(*map(set, seeds)))) if seeds else ()


def of_seeds(group: Group, quantity: str, seeds: Sequence[int]) -> list[float]:
    """A quantity of the networks with these seeds, in their order."""
    by_seed = dict(zip(group.seeds, group.records, strict=True))
    return [get_quantity(quantity).of(by_seed[seed]).value for seed in seeds]


def mean_over(group: Group, quantity: str, seeds: Sequence[int]) -> float:
    """Mean (geometric on a log scale) over the networks with these seeds."""
    value: float = get_quantity(quantity).mean(map(Cell, of_seeds(group, quantity, seeds))).value
    return value


def record_row(axes: Iterable[Axis], quantities: Iterable[str], record: Record, epoch: int | None = None) -> Row:
    """A row of one network, at the end or at an epoch."""
    cells = {a.name: Cell(a.read(record.spec)) for a in axes}
    return Row({**cells, **{q: get_quantity(q).of(record, epoch) for q in quantities}}, (record.spec.hash,))


def course(records: Sequence[Record], quantities: Iterable[str], last: int | None = None) -> Table:
    """The course of training: a row per method and epoch, each the mean over the seeds that have it."""
    found = [get_quantity(q) for q in quantities]
    rows = []
    for label, mine in grouped_by(records, lambda r: r.spec.label).items():
        longest = max(len(r.trajectory) for r in mine) - 1
        for epoch in range((longest if last is None else min(last, longest)) + 1):
            there = [r for r in mine if r.line(epoch)]
            cells = {q.name: q.mean(q.of(r, epoch) for r in there) for q in found}
            rows.append(Row({"method": Cell(label), "epoch": Cell(epoch), **cells}, tuple(r.spec.hash for r in there)))
    columns = (METHOD.column, Column("epoch"), *(q.column() for q in found))
    return Table("course", "the course of training", columns, tuple(rows))
