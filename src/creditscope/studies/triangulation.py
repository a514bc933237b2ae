"""Cosine and ρ side by side: with a degenerate reference the two part, with a healthy one they agree."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.quantities import get_quantity
from creditscope.runs.record import Record
from creditscope.studies.grid import DFA, make, seeds_of
from creditscope.studies.study import Study, method_and_norm
from creditscope.tables import Cell, Column, Plot, Row, Table, state
from creditscope.training.spec import RunSpec

PENALTY = 1e-2
EARLY = 1


CONTROLS = {"control a = g": "rho_reference", "control a = random": "rho_random"}


def specs(preset: str) -> list[RunSpec]:
    found = []
    for seed in seeds_of(preset):
        found.append(make(preset, DFA, seed, checkpoint_epochs=(EARLY,), intervention=True))
        found.append(make(preset, DFA, seed, penalty=PENALTY, intervention=True))
    return found


def states(records: Sequence[Record]) -> dict[str, list[tuple[Record, int | None]]]:
    """The networks of every state: a record, and the epoch (None: the end)."""
    plain = [r for r in records if not r.spec.penalty]
    found: dict[str, list[tuple[Record, int | None]]] = {
        "early": [(r, r.spec.checkpoint_epochs[0]) for r in plain if r.spec.checkpoint_epochs],
        "converged": [(r, None) for r in plain],
        "penalised": [(r, None) for r in records if r.spec.penalty],
    }
    return {name: networks for name, networks in found.items() if networks}


def build(study: Study, records: Sequence[Record]) -> Table:
    cosine, rho = get_quantity("deep_cosine"), get_quantity("rho")
    rows = []
    for name, networks in states(records).items():
        cells = {
            "deep_cosine": cosine.mean(cosine.of(*network) for network in networks),
            "rho": rho.mean(rho.of(*network) for network in networks),
        }
        rows.append(Row({"state": Cell(name), **cells}, tuple(r.spec.hash for r, _ in networks)))
    everyone = [network for networks in states(records).values() for network in networks]
    for name, control in CONTROLS.items() if everyone else ():
        quantity = get_quantity(control)
        value = quantity.mean(quantity.of(*network) for network in everyone)
        rows.append(Row({"state": Cell(name), "deep_cosine": Cell(note="a control of ρ"), "rho": value}))
    own = rows[: len(states(records))]
    measured = [r for r in own if r["rho"].known]
    conclusion = state(
        "triangulation",
        label=sorted({method_and_norm(r.spec) for r in records}),
        states=tuple(
            state("cosine and rho", state=r.value("state"), c=r.value("deep_cosine"), r=r.value("rho")) for r in own
        ),
        best=(state("best state", state=max(measured, key=lambda r: r.value("rho")).value("state")),)
        if len(measured) > 1
        else (),
    )
    columns = [Column("state", about="moment of DFA's training, or a control"), cosine.column(), rho.column()]
    return study.made(columns, rows, conclusion)


STUDY = Study(
    "triangulation",
    "do the cosine and the perturbation correlation ρ agree, early, converged and penalised?",
    specs,
    quantities=("deep_cosine", "rho"),
    build=build,
    convention=state("triangulation convention", early=EARLY, penalty=PENALTY),
    plots=(Plot("deep_cosine", "rho", "state"),),
)
