"""docs/field.md, docs/field.csv and docs/images/field.svg from results/ (`make audit-docs`): every rule on the same network.

The runs are those of the studies `field` and `learning-rates`; cost.csv holds what a training step costs (`make bench`). The
page is right for any part of the runs: what is not there is listed with its cost.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2

from creditscope.files import write_atomic
from creditscope.measure.binomial import newcombe
from creditscope.protocol import DiagnosticThresholds, get_policy
from creditscope.quantities import Quantity, get_quantity
from creditscope.render.draw import draw
from creditscope.render.markdown import escape
from creditscope.render.markdown import table as pipe_table
from creditscope.render.svg import standalone
from creditscope.render.tables import table_csv, texts
from creditscope.render.words import verdict_text
from creditscope.runs.archive import Archive
from creditscope.runs.groups import Group, Outcome, audit
from creditscope.runs.record import Record
from creditscope.studies import field, learning_rates
from creditscope.studies.study import method_and_norm
from creditscope.tables import Cell, Column, Row, Table
from creditscope.training.spec import RunSpec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PRESET = "paper"
CONTROLS = ("bp", "random")
"""The exact gradient and a random credit: beside the rules, not of them."""
LIKE_BP = 1.1
"""Cost of a step over that of BP up to which the two are the same as far as the timing tells."""
MEASURED = ("growth", "reference_norm_128", "margin_bp", "profile_margin", "certificate")

COST = Quantity(
    "cost", "cost", "cost / BP", "", "processor time of a training step over that of plain backpropagation", digits=3
)


@dataclass(frozen=True)
class Entry:
    """One line of the study: a rule with its norm, and the runs that are planned for it."""

    method: dict[str, Any]
    networks: tuple[RunSpec, ...]
    nulls: tuple[RunSpec, ...]
    """Those that no entry before it needs as well."""

    @property
    def label(self) -> str:
        return self.networks[0].label


class Page:
    """What the template asks for."""

    def __init__(self, archive: Archive, cost: dict[str, float], preset: str = PRESET) -> None:
        self.preset, self.cost = preset, cost
        self.entries = planned(preset)
        self.records, self.problems = archive.runs_of(field.specs(preset))
        self.searched, problems = archive.runs_of(learning_rates.specs(preset))
        self.problems += problems
        self.here = {r.spec.hash for r in self.records}
        self.groups = audit(self.records)
        self.rules = [g for g in self.groups if g.spec.method not in CONTROLS]

    # ---- the result ---------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """The table of the study, with the cost of a step and the outcome."""
        made = field.STUDY.grouped(self.groups)
        rules = {g.hashes: g for g in self.groups}
        rows = [
            replace(
                row,
                cells={
                    **row.cells,
                    "cost": Cell(self.cost.get(rules[row.runs].spec.method)),
                    "outcome": Cell(rules[row.runs].outcome),
                },
            )
            for row in made.rows
        ]
        columns = (*made.columns, COST.column(), Column("outcome"))
        return replace(made, columns=columns, rows=tuple(rows))

    def result(self) -> str:
        """Accuracy, Γ, margin and verdict."""
        made = self.table()
        rules = {g.hashes: g for g in self.groups}
        rows = []
        for row in made.rows:
            margin = row["margin_matched"]
            if not margin.known:
                margin = replace(row["margin_bp"], note="bp null" if row["margin_bp"].known else "")
            verdict = Cell(verdict_text(rules[row.runs]))
            rows.append(replace(row, cells={**row.cells, "margin_matched": margin, "verdict": verdict}))
        columns = [made.by_name[name] for name in ("method", "seeds", "accuracy", "gamma")]
        columns += [replace(made.by_name["margin_matched"], title="over null (pp)"), Column("verdict")]
        return pipe(replace(made, columns=tuple(columns), rows=tuple(rows)))

    def measured(self) -> str:
        """What else was measured on the same networks."""
        made = self.table()
        return pipe(replace(made, columns=tuple(made.by_name[name] for name in ("method", "lr", *MEASURED, "cost"))))

    def figure(self) -> bytes | None:
        """Margin to the matched null of every entry; None where no entry has one."""
        made = self.table().where(lambda row: row["margin_matched"].number is not None)
        if not made.rows:
            return None
        title = "accuracy minus that of frozen random blocks trained by the same rule (pp, 95 % interval)"
        return standalone(draw(made, "method", "margin_matched", "outcome", title=title)).encode()

    # ---- what no rule did ---------------------------------------------------------------------------------------------

    def deeds(self) -> list[tuple[str, list[str], list[str]]]:
        """(what a rule may do, the rules that did it, the rules of which it is not known)."""
        exact = next((g for g in self.groups if g.spec.method == "bp"), None)
        pp = DiagnosticThresholds().frozen_acc_margin_pp

        def margin(null: str, more: float) -> Callable[[Group], bool | None]:
            def above(g: Group) -> bool | None:
                low = get_quantity(f"margin_{null}").over(g).low
                return None if low is None else low > more

            return above

        def read_out(g: Group) -> bool | None:
            lows = [get_quantity("profile_margin").of(r).low for r in g.records]
            return None if None in lows else all(low > 0 for low in lows if low is not None)

        def is_local(g: Group) -> bool | None:
            labels = [r.certificate.label for r in g.records if r.certificate is not None]
            return None if not labels else set(labels) == {"local"}

        def cheap(g: Group) -> bool | None:
            cost = self.cost.get(g.spec.method)
            return None if cost is None else cost <= LIKE_BP

        def both(*parts: Callable[[Group], bool | None]) -> Callable[[Group], bool | None]:
            def all_of(g: Group) -> bool | None:
                found = [part(g) for part in parts]
                return False if False in found else None if None in found else True

            return all_of

        matched, trained_by_bp = margin("matched", pp), margin("bp", pp)

        def helped(g: Group) -> bool | None:
            """By the null that the verdict rests on: the matched one, else that of BP."""
            return trained_by_bp(g) if (found := matched(g)) is None else found

        asked: dict[str, Callable[[Group], bool | None]] = {
            "reaches the accuracy of bp (its mean at least the lowest seed of bp)": lambda g: (
                None if exact is None else field.reaches(g, exact)
            ),
            f"has a margin to the matched null whose interval lies above {pp:g} pp": matched,
            "has a margin to the bp null whose interval lies above 0 pp": margin("bp", 0.0),
            "passes the protocol in every seed": lambda g: g.outcome is Outcome.PASS,
            "has a readout margin whose interval lies above 0 pp in every seed": read_out,
            "has Γ above 0 in every seed": lambda g: len(g.gammas) == g.count and min(g.gammas) > 0,
            f"is certified local and has a margin above {pp:g} pp (matched null, else bp)": both(is_local, helped),
            f"costs at most {LIKE_BP:g} times BP per step and has a margin above {pp:g} pp (matched null, else bp)": both(
                cheap, helped
            ),
        }
        found = []
        for name, did in asked.items():
            answers = {g.label: did(g) for g in self.rules}
            unknown = [label for label, answer in answers.items() if answer is None]
            found.append((name, [label for label, answer in answers.items() if answer], unknown))
        return found

    def did(self) -> str:
        rows = [
            Row({
                "what": Cell(name), "rules": Cell(f"{len(who)} of {len(self.rules) - len(unknown)}"),
                "which": Cell(", ".join(who) or None), "unknown": Cell(", ".join(unknown) or None),
            })
            for name, who, unknown in self.deeds()
        ]  # fmt: skip
        columns = (
            Column("what", "a rule that ..."), Column("rules", "rules that did (of those measured)"), Column("which"),
            Column("unknown", "not known"),
        )  # fmt: skip
        return pipe(Table("did", "", columns, tuple(rows)))

    def none_did(self) -> list[str]:
        """What none of the rules that were run did; nothing of which a rule is not known."""
        return [name for name, who, unknown in self.deeds() if not unknown and not who]

    # ---- learning rates, planned and run ------------------------------------------------------------------------------

    def search(self) -> list[tuple[Entry, dict[float, Cell], float | None]]:
        """(entry, accuracy by factor of the recipe's learning rate, the best factor where all three are run)."""
        by_hash = {r.spec.hash: r for r in self.searched}
        specs = iter(learning_rates.specs(self.preset))
        found = []
        for entry in self.entries:
            cells = {}
            for factor in learning_rates.FACTORS:
                run: Record | None = by_hash.get(next(specs).hash)
                cells[factor] = Cell(note="not run") if run is None else get_quantity("accuracy").of(run)
            best = max(cells, key=lambda f: cells[f].value) if all(c.known for c in cells.values()) else None
            found.append((entry, cells, best))
        return found

    def rates(self) -> str:
        accuracy = get_quantity("accuracy")
        rows = []
        for entry, cells, best in self.search():
            named = {f"x{factor:g}": cell for factor, cell in cells.items()}
            used = Cell(field.FACTORS.get(method_and_norm(entry.networks[0]), 1.0))
            rows.append(Row({"method": Cell(entry.label), **named, "best": Cell(best), "used": used}))
        factors = [
            accuracy.column(name=f"x{factor:g}", title=f"lr × {factor:g}") for factor in sorted(learning_rates.FACTORS)
        ]
        columns = (Column("method"), *factors, Column("best", "best factor"), Column("used", "factor in the field"))
        return pipe(Table("rates", "", columns, tuple(rows)))

    def other_rate(self, decided: bool) -> list[str]:
        """Entries whose runs of the field do not have the best of the three learning rates; `decided`: the 95 % interval of
        the gain over the rate they have lies above 0 (Newcombe, both on the same number of test samples)."""
        found = []
        for entry, cells, best in self.search():
            used = field.FACTORS.get(method_and_norm(entry.networks[0]), 1.0)
            if best is not None and best != used:
                low, _ = newcombe(cells[best].value, cells[used].value, self.searched[0].n_test or 0)
                found += [entry.label] * ((low > 0) == decided)
        return found

    def left(self, entries: Sequence[Entry]) -> int | None:
        """What the runs that are not there cost at most, in epochs of BP: a null as much as its rule. None: cost unknown."""
        missing = [s for e in entries for s in (*e.networks, *e.nulls) if s.hash not in self.here]
        if any(s.method not in self.cost for s in missing):
            return None
        return round(sum(self.cost[s.method] * (s.epochs or 0) for s in missing))

    def runs(self) -> str:
        def count(specs: Sequence[RunSpec]) -> Cell:
            return Cell(f"{sum(s.hash in self.here for s in specs)} of {len(specs)}")

        rows = []
        for entry in self.entries:
            cells = {"networks": count(entry.networks), "nulls": count(entry.nulls), "left": Cell(self.left([entry]))}
            rows.append(Row({"method": Cell(entry.label), **cells}))
        columns = (
            Column("method"), Column("networks", "networks run"), Column("nulls", "nulls run"),
            Column("left", "cost of missing runs (BP epochs)"),
        )  # fmt: skip
        return pipe(Table("runs", "", columns, tuple(rows)))

    # ---- the page -----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        template = jinja2.Environment(
            undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, keep_trailing_newline=True
        )
        planned_runs = [s for e in self.entries for s in (*e.networks, *e.nulls)]
        first = self.entries[0].networks[0]
        return template.from_string((HERE / "page.md").read_text(encoding="utf-8")).render(
            entries=len(self.entries),
            have=len(self.groups),
            matched=sum(get_quantity("margin_matched").over(g).known for g in self.groups),
            slower=[name for name, factor in field.FACTORS.items() if factor == 0.25],
            methods=len({e.method["method"] for e in self.entries} - set(CONTROLS)),
            planned=len(planned_runs), run=len(self.here), rules=len(self.rules),
            searched=len(self.searched), search=len(learning_rates.specs(self.preset)),
            network=f"one network ({first.arch}, width {first.width}, {first.depth} blocks; {first.dataset}, "
            f"{first.epochs} epochs)",
            lacking=[e.label for e in self.entries if not any(s.hash in self.here for s in e.networks)],
            left=self.left(self.entries), whole=sum(best is not None for _, _, best in self.search()),
            costly=", ".join(field.COSTLY), result=self.result(), measured=self.measured(),
            did=self.did(), none_did=self.none_did(), rates=self.rates(),
            better_rate=self.other_rate(True), other_rate=self.other_rate(False),
            runs=self.runs(), problems=self.problems,
            figure=self.figure() is not None, protocol=get_policy("three-check").version,
        )  # fmt: skip


def planned(preset: str) -> list[Entry]:
    """Every rule of the study with its runs, each run once."""
    specs = field.specs(preset)
    taken: set[str] = set()
    entries = []
    for method in field.RULES:
        own = [s for s in specs if not s.frozen and all(getattr(s, k) == v for k, v in method.items())]
        nulls = {n.hash: n for s in own for kind in ("matched", "bp") for n in [s.null(kind)] if n.hash not in taken}
        taken |= nulls.keys()
        entries.append(Entry(method, tuple(own), tuple(nulls.values())))
    return entries


def read_cost(path: Path) -> dict[str, float]:
    """rule -> processor time of a training step over that of plain backpropagation."""
    with path.open(encoding="utf-8") as file:
        return {row["rule"]: float(row["per_step"]) for row in csv.DictReader(file)}


def pipe(table: Table) -> str:
    header, rows = texts(table)
    return "\n".join(pipe_table([escape(h) for h in header], [[escape(cell) for cell in row] for row in rows]))


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="where docs/ is written")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="archive of runs")
    parser.add_argument("--preset", default=PRESET, help="of the two studies")
    options = parser.parse_args(None if arguments is None else list(arguments))
    page = Page(Archive(options.results), read_cost(HERE / "cost.csv"), options.preset)
    drawn = options.root / "docs/images/field.svg"
    made = {
        options.root / "docs/field.md": page.text().encode(),
        options.root / "docs/field.csv": table_csv(page.table()).encode(),
    }
    if (figure := page.figure()) is not None:
        made[drawn] = figure
    else:
        drawn.unlink(missing_ok=True)
    for path, content in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


if __name__ == "__main__":
    main()
