"""What was planned, what was run, and what the rest would cost, by study and by published table, from results/ and cost.csv.

cost.csv holds seconds per epoch of every kind of run that is missing; `python plan.py --data-dir DIR` measures them again, each
on a few training steps, a test pass and a measurement, as `creditscope study plan` does.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from creditscope.files import write_atomic
from creditscope.runs.archive import Archive
from creditscope.runs.plan import calibrate
from creditscope.studies import rescue
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.compare import Audit, Line, Reason, about, by_claim, matches, read_audit
from creditscope.studies.grid import BP, CB, DFA, EP, FA, PAPER_SEEDS, SB, seeds_of, unique, with_nulls
from creditscope.studies.published import Decision, Number, Outcome
from creditscope.tables import Cell, Column, Row, Table
from creditscope.training.spec import RunSpec, make_spec

HERE = Path(__file__).parent
COST, RESULTS = HERE / "cost.csv", HERE.parents[1] / "results"
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


def hours(missing: Sequence[RunSpec], seconds: Mapping[Kind, float]) -> float:
    """Of one core."""
    return sum(seconds[kind(s)] * (s.epochs or 0) for s in missing) / 3600


def table(here: Collection[str], seconds: dict[Kind, float]) -> Table:
    """A line for each study, and their sum. here: hashes of the runs that are there."""
    rows, total = [], [0, 0, 0.0]
    for name, specs in planned().items():
        missing = [s for s in specs if s.hash not in here]
        counts = [len(specs), len(specs) - len(missing), hours(missing, seconds)]
        total = [a + b for a, b in zip(total, counts, strict=True)]
        rows.append(_row(name, len(get_study(name).specs(PRESET)), counts))
    columns = (
        Column("study"),
        Column("grid", "its grid"),
        Column("planned", "counted here"),
        Column("run"),
        Column("hours", "core hours left"),
    )
    return Table("planned", "", columns, (*rows, _row("all", None, total)))


def _row(name: str, grid: int | None, counts: Sequence[float]) -> Row:
    runs, done, cost = counts
    cells = {"study": name, "grid": grid, "planned": int(runs), "run": int(done), "hours": round(cost, 1) or None}
    return Row({key: Cell(value) for key, value in cells.items()})


def further() -> list[RunSpec]:
    """The most that `rescue` may choose from its search: six recipes that share no matched null, on CIFAR-10, with every seed."""
    recipes = rescue.search()
    chosen = map(make_spec, recipes[:: len(recipes) // (rescue.BEST[PRESET] * len(rescue.METHODS))])
    return with_nulls(rescue.on_cifar(spec, PRESET, seed) for spec in chosen for seed in seeds_of(PRESET))


# ---- by published table -----------------------------------------------------------------------------------------------

MACHINE, SHORTER = "machine time", "machine time; ours trained for another number of epochs"
UNMEASURED = "our records do not hold it; it can be measured where the weights are kept"
USUAL: dict[str, dict[str, Any]] = {str(m["method"]): {"credit_norm": None, **m} for m in (BP, EP, FA, DFA, SB, CB)}
"""Norm with which a run is counted that no study plans."""
UNPLANNED = "machine time; no study plans it"
REASONS = {Reason.LENGTH: SHORTER, Reason.UNMEASURED: UNMEASURED}


def needed(audit: Audit, claim: Number | Decision, specs: Collection[RunSpec]) -> tuple[list[RunSpec], bool]:
    """The runs that would stand beside a claim, under its first reading that a study plans, and whether one does."""
    readings = (r for r in audit.paper.readings.values() if matches(claim.method, r.get("method", claim.method)))
    for reading in readings:
        if found := [s for s in specs if about(s, audit.wanted(claim, reading))]:
            return _beside(audit, claim, found), True
    usual = USUAL[claim.method]
    which = 0 if usual["credit_norm"] else -1  # of any of these: a site, or none for a rule without one
    fields = {k: v[which] if isinstance(v, list) else v for k, v in audit.wanted(claim, usual).items()}
    return _beside(audit, claim, [make_spec({**fields, "seed": seed}) for seed in PAPER_SEEDS]), False


def _beside(audit: Audit, claim: Number | Decision, specs: Sequence[RunSpec]) -> list[RunSpec]:
    """The runs with the nulls that the claim is about."""
    if isinstance(claim, Decision):
        return with_nulls(specs)
    change = audit.paper.nulls.get(claim.minus)
    return [*specs, *(s.null("bp").changed(**change) for s in specs if change is not None)]


def open_claims(audit: Audit, lines: Iterable[Line]) -> list[tuple[Line, list[RunSpec], str]]:
    """Claims beside which no value of ours stands that can be compared: a line of each, its runs, and the reason."""
    specs = unique(s for found in planned().values() for s in found)
    made = []
    for same in by_claim(lines):
        line = same[0]
        if any(x.compared for x in same) or (line.runs and line.claim.incomparable):
            continue
        runs, is_planned = needed(audit, line.claim, specs)
        never = MACHINE if is_planned else UNPLANNED
        made.append((line, runs, never if line.outcome is Outcome.NOT_RUN else REASONS[line.reason]))
    return made


def by_table(audit: Audit, lines: Sequence[Line], here: Collection[str], seconds: Mapping[Kind, float]) -> Table:
    """What was not run, by published table and reason: settings, methods, runs that are missing and their cost."""
    found: dict[tuple[str, str], list[tuple[Line, list[RunSpec]]]] = {}
    for line, runs, reason in open_claims(audit, lines):
        found.setdefault((line.claim.table, reason), []).append((line, runs))
    rows = []
    for (name, reason), claims in found.items():
        methods = Counter(line.claim.method.upper() for line, _ in claims)
        missing = [s for s in unique(s for _, runs in claims for s in runs) if s.hash not in here]
        rows.append(
            Row(
                {
                    "table": Cell(name),
                    "settings": Cell(
                        " · ".join(dict.fromkeys(line.claim.setting for line, _ in claims if line.claim.setting))
                        or None
                    ),
                    "methods": Cell(", ".join(f"{m} ({k})" for m, k in methods.items())),
                    "reason": Cell(reason),
                    "runs": Cell(len(missing)),
                    "hours": Cell(round(hours(missing, seconds), 1) or None),
                }
            )
        )
    titles = {"methods": "methods (values)", "runs": "runs missing", "hours": "core hours"}
    names = ("table", "settings", "methods", "reason", "runs", "hours")
    return Table("open", "", tuple(Column(n, titles.get(n, "")) for n in names), tuple(rows))


def read_seconds() -> dict[Kind, float]:
    """Kind of run -> seconds per epoch."""
    with COST.open(encoding="utf-8", newline="") as file:
        return {tuple(row[c] for c in COLUMNS): float(row["seconds"]) for row in csv.DictReader(file)}


def measure(data_dir: Path, here: Collection[str]) -> bytes:
    """cost.csv anew."""
    audit = read_audit(HERE)
    beside = (s for _, runs, _ in open_claims(audit, audit.compare(Archive(RESULTS).runs())) for s in runs)
    specs = [*(s for found in planned().values() for s in found), *further(), *beside]
    missing = {kind(s): s for s in specs if s.hash not in here}
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
    write_atomic(COST, measure(options.data_dir, {r.spec.hash for r in Archive(RESULTS).runs()}))
