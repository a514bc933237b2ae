"""The whole grid next to what was run: the seeds of both, for every network, method and length of training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from creditscope.studies.audit import length, place, shape
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import unique
from creditscope.studies.reproduction import NOT_RUN
from creditscope.training.spec import RunSpec

AS_PLANNED, FEWER, OTHER_LENGTH = "as planned", "fewer seeds", "another length only"


@dataclass(frozen=True)
class Cell:
    """One method on one network, trained for one number of epochs."""

    network: str
    method: str
    length: str
    planned: tuple[int, ...]
    """Seeds."""
    there: dict[str, tuple[int, ...]]
    """Seeds that were run, by length of training."""
    hashes: tuple[str, ...]
    """The runs that are there: of this length, else of any other."""

    @property
    def run(self) -> tuple[int, ...]:
        """Planned seeds that were run for the whole length."""
        return tuple(s for s in self.planned if s in self.there.get(self.length, ()))

    @property
    def statement(self) -> str:
        if self.run:
            return AS_PLANNED if self.run == self.planned else FEWER
        return OTHER_LENGTH if self.there else NOT_RUN

    @property
    def words(self) -> list[str]:
        """Network, method, epochs and seeds that were planned, seeds that were run, and how the two compare."""
        others = "; ".join(f"{_seeds(seeds)} ({name})" for name, seeds in self.there.items())
        run = _seeds(self.run) if self.run else others
        return [self.network, self.method, self.length, _seeds(self.planned), run or "–", self.statement]


def coverage(there: Iterable[RunSpec], studies: Iterable[str] = NAMES, preset: str = "paper") -> list[Cell]:
    """A cell for everything that the grids of `studies` ask for at this preset, nulls included."""
    planned: dict[tuple[str, str, str], list[RunSpec]] = {}
    found: dict[tuple[str, str], dict[str, list[RunSpec]]] = {}
    for spec in _sorted(unique(spec for name in studies for spec in get_study(name).specs(preset))):
        planned.setdefault((shape(spec), spec.label, length(spec)), []).append(spec)
    for spec in _sorted(there):
        found.setdefault((shape(spec), spec.label), {}).setdefault(length(spec), []).append(spec)
    cells = []
    for (network, method, epochs), specs in planned.items():
        mine = found.get((network, method), {})
        seeds = {name: _seeds_of(those) for name, those in mine.items()}
        chosen = mine.get(epochs) or [spec for those in mine.values() for spec in those]
        cells.append(Cell(network, method, epochs, _seeds_of(specs), seeds, tuple(s.hash for s in chosen)))
    return cells


def _sorted(specs: Iterable[RunSpec]) -> list[RunSpec]:
    return sorted(specs, key=lambda s: (place(s)[:7], s.frozen, place(s), s.seed))


def _seeds_of(specs: Sequence[RunSpec]) -> tuple[int, ...]:
    return tuple(sorted({spec.seed for spec in specs}))


def _seeds(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
