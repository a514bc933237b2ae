"""The whole grid next to what was run: epochs and seeds of both, for every network and method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from creditscope.studies.audit import length, place, shape
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import unique
from creditscope.studies.reproduction import NOT_RUN
from creditscope.training.spec import RunSpec

AS_PLANNED, IN_PART = "as planned", "in part"
Seeds = dict[str, list[int]]
"""Seeds by length of training."""


@dataclass(frozen=True)
class Cell:
    """One method on one network."""

    network: str
    method: str
    planned: Seeds
    run: Seeds
    hashes: tuple[str, ...]
    """The runs that are there."""

    @property
    def statement(self) -> str:
        if not self.run:
            return NOT_RUN
        whole = all(set(seeds) <= set(self.run.get(epochs, ())) for epochs, seeds in self.planned.items())
        return AS_PLANNED if whole else IN_PART

    @property
    def words(self) -> list[str]:
        """Network, method, what was planned, what was run, and how the two compare."""
        return [self.network, self.method, _told(self.planned), _told(self.run) or "–", self.statement]


def coverage(there: Iterable[RunSpec], studies: Iterable[str] = NAMES, preset: str = "paper") -> list[Cell]:
    """A cell for every network and method that the grids of `studies` ask for at this preset, nulls included."""
    wanted = _by_cell(unique(spec for name in studies for spec in get_study(name).specs(preset)))
    found = _by_cell(there)
    cells = []
    for key, specs in wanted.items():
        mine = found.get(key, [])
        cells.append(Cell(*key, _seeds(specs), _seeds(mine), tuple(s.hash for s in mine)))
    return cells


def _told(seeds: Seeds) -> str:
    """`30 epochs: seeds 42, 123; 100 epochs: seed 42`."""
    return "; ".join(f"{k}: {'seed' if len(v) == 1 else 'seeds'} {', '.join(map(str, v))}" for k, v in seeds.items())


def _by_cell(specs: Iterable[RunSpec]) -> dict[tuple[str, str], list[RunSpec]]:
    cells: dict[tuple[str, str], list[RunSpec]] = {}
    for spec in sorted(specs, key=lambda s: (place(s)[:7], s.frozen, place(s), s.seed)):
        cells.setdefault((shape(spec), spec.label), []).append(spec)
    return cells


def _seeds(specs: Sequence[RunSpec]) -> Seeds:
    found: dict[str, set[int]] = {}
    for spec in specs:
        found.setdefault(length(spec), set()).add(spec.seed)
    return {name: sorted(seeds) for name, seeds in found.items()}
