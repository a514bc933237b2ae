"""The audit: accuracy and Γ alone, next to what the protocol finds, over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from creditscope.quantities import get_quantity
from creditscope.runs.groups import AuditRow, Group
from creditscope.runs.record import mixed_devices
from creditscope.studies.grid import SIX, grid, with_nulls
from creditscope.studies.study import AUDITED, METHOD, Study, failing, labels, partly
from creditscope.tables import Cell, Column, Row, Statement, Table, grouped_by, state
from creditscope.training.spec import RunSpec


def specs(preset: str) -> list[RunSpec]:
    return with_nulls(grid(preset, SIX))


def conclude(table: Table, groups: Sequence[Group]) -> Iterator[Statement]:
    failed = failing(groups)
    yield state(
        "audit",
        groups=len(groups),
        failed=labels(failed),
        partly=partly(groups),
        accepted=labels(g for g in failed if g.s1 == "accept"),
    )


S1 = Column("s1", "by accuracy + Γ alone (S1)", about="what strategy S1 decides: accuracy above chance, and Γ > 0")
REPORTED = (
    *("accuracy", "gamma", "gamma_all_layers", "growth", "reference_norm_128"),
    *("margin_matched", "margin_bp", "margin_unstated", "finding"),
)


def audit_table(rows: Sequence[AuditRow], title: str) -> Table:
    """Groups of seeds and reports that were given: accuracy and Γ, what S1 decides by them, and what the protocol finds.

    Of the margins only those that some row has are shown.
    """
    found = [get_quantity(name) for name in REPORTED]
    made = tuple(
        Row(
            {"method": Cell(row.label), "s1": Cell(row.s1), **{q.name: q.over(row) for q in found}},
            tuple(r.run for r in row.reports if r.run),
        )
        for row in rows
    )
    used = [q for q in found if not q.name.startswith("margin") or any(r[q.name].known for r in made)]
    columns = [METHOD.column, *(q.column() for q in used)]
    columns.insert(1 + [c.name for c in columns].index("gamma_all_layers"), S1)
    mixed = mixed_devices(run for row in rows for run in getattr(row, "records", ()))
    notes = (mixed,) if mixed else ()
    return Table("audit", title, tuple(columns), made, convention=_convention(rows), plots=AUDITED, notes=notes)


def _convention(rows: Sequence[AuditRow]) -> tuple[Statement, ...]:
    if not rows:
        return (state("no runs"),)
    by = grouped_by(rows, lambda row: row.reports[0].protocol)
    first, *others = by
    groups = [row for row in rows if isinstance(row, Group)]
    convention = rows[0].reports[0].facts.convention
    another = (state("judged by another", policy=p, labels=[row.label for row in by[p]]) for p in others)
    reported = state(
        "reported",
        protocols=(state("judged by", policy=first), *another),
        settings=(state("settings"),) if groups else (),
        seeds=sorted({seed for group in groups for seed in group.seeds}),
        cosine=convention.cosine_dtype,
        samples=convention.n_samples,
        dtype=convention.dtype,
        intervals=list(dict.fromkeys(m.interval for row in rows for m in row.margins)),
    )
    return (reported,)


STUDY = Study("audit", "accuracy and Γ alone, next to what the protocol finds", specs, conclude=conclude)
