"""What was planned, what was run, and what the rest would cost: a table of the page, from results/ and cost.csv.

cost.csv holds seconds per epoch of every kind of run that is missing; `python plan.py --data-dir DIR` measures them again, each
on a few training steps, a test pass and a measurement, as `creditscope study plan` does.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from creditscope.files import write_atomic
from creditscope.runs.archive import Archive
from creditscope.runs.plan import calibrate
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.tables import Cell, Column, Row, Table
from creditscope.training.spec import RunSpec

HERE = Path(__file__).parent
COST = HERE / "cost.csv"
COLUMNS = ("dataset", "arch", "width", "depth", "method", "frozen", "options")
PRESET = "paper"
ELSEWHERE = ("field", "learning-rates")
"""Studies with a page of their own."""

Kind = tuple[str, ...]


def kind(spec: RunSpec) -> Kind:
    """Runs of one kind cost the same per epoch."""
    width, depth, _, _ = spec.shape
    options = json.dumps(spec.options, sort_keys=True)
    return (spec.dataset, str(spec.arch), str(width), str(depth), spec.method, "yes" if spec.frozen else "no", options)


def planned() -> dict[str, list[RunSpec]]:
    """The runs of every study at the published recipe, each under the first study that needs it."""
    taken: set[str] = set()
    found: dict[str, list[RunSpec]] = {}
    for name in NAMES:
        if name not in ELSEWHERE:
            own = {s.hash: s for s in get_study(name).specs(PRESET) if s.hash not in taken}
            taken |= own.keys()
            if own:
                found[name] = list(own.values())
    return found


def hours(missing: Sequence[RunSpec], seconds: dict[Kind, float]) -> float:
    """Of one core."""
    return sum(seconds[kind(s)] * (s.epochs or 0) for s in missing) / 3600


def table(here: Collection[str], seconds: dict[Kind, float]) -> Table:
    """A line for each study, and their sum. here: hashes of the runs that are there."""
    rows, total = [], [0, 0, 0.0]
    for name, specs in planned().items():
        missing = [s for s in specs if s.hash not in here]
        counts = [len(specs), len(specs) - len(missing), hours(missing, seconds)]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        rows.append(_row(name, counts))
    columns = (Column("study"), Column("planned"), Column("run"), Column("hours", "core hours left"))
    return Table("planned", "", columns, (*rows, _row("all", total)))


def _row(name: str, counts: Sequence[float]) -> Row:
    runs, done, cost = counts
    return Row(
        {"study": Cell(name), "planned": Cell(int(runs)), "run": Cell(int(done)), "hours": Cell(round(cost, 1) or None)}
    )


def read_seconds() -> dict[Kind, float]:
    """Kind of run -> seconds per epoch."""
    with COST.open(encoding="utf-8", newline="") as file:
        return {tuple(row[c] for c in COLUMNS): float(row["seconds"]) for row in csv.DictReader(file)}


def measure(data_dir: Path, here: Collection[str]) -> bytes:
    """cost.csv anew."""
    missing = {kind(s): s for specs in planned().values() for s in specs if s.hash not in here}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, "seconds"])
    for key, spec in sorted(missing.items()):
        writer.writerow([*key, f"{calibrate(spec, data_dir)[0]:.2f}"])
    return out.getvalue().encode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="where the CIFAR files are")
    options = parser.parse_args()
    write_atomic(COST, measure(options.data_dir, {r.spec.hash for r in Archive(HERE.parents[1] / "results").runs()}))
