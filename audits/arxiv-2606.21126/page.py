"""docs/audit.md, docs/planned.md, docs/audit.csv, docs/images/audit.svg, the README's table and the archived verdicts of
docs/protocol.md, from results/ (`make audit-docs`).

The published values, settings and readings are data beside this file; the comparison is `creditscope.studies.compare`. Here are
the five findings of the page, each computed from the runs.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import plan

from creditscope.files import write_atomic
from creditscope.measure.depth import depth_margin
from creditscope.protocol import DiagnosticThresholds, get_policy
from creditscope.quantities import Compare, Quantity, Scale, get_quantity
from creditscope.render.draw import draw
from creditscope.render.markdown import escape
from creditscope.render.markdown import table as pipe_table
from creditscope.render.numbers import num, signed
from creditscope.render.svg import standalone
from creditscope.render.tables import table_csv, texts
from creditscope.render.words import verdict_text
from creditscope.runs.archive import Archive
from creditscope.runs.groups import ORDER, Group, audit
from creditscope.runs.record import Record
from creditscope.studies import compare
from creditscope.studies.compare import Audit
from creditscope.studies.grid import unique
from creditscope.studies.published import Decision, Number, Outcome
from creditscope.studies.seeds import TEN, selections
from creditscope.studies.thresholds import separation
from creditscope.tables import Cell, Column, Row, Table, mean

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
START, END = "<!-- primary audit, from results/ -->", "<!-- end of the primary audit -->"
ARCHIVED = "<!-- archived verdicts, from results/ (make audit-docs) -->", "<!-- end of the archived verdicts -->"
WHY = {
    ("incomplete", "not measured"): "no null was trained for their recipe",
    ("incomplete", "not measurable"): "backpropagation itself does not beat its null",
}
"""Why a verdict is another one under three-check/1.1, by its status and the answer of D3."""
WRITTEN, RMS, CLIPPED = "as written", "rms", "rms, clip 1"


class Page:
    """What the template asks for."""

    def __init__(self, records: Sequence[Record], paper: Audit) -> None:
        self.records, self.paper = records, paper
        self.here = {r.spec.hash for r in records}
        with (HERE / "tables.csv").open(encoding="utf-8", newline="") as file:
            self.tables = {row["table"]: row for row in csv.DictReader(file)}
        self.lines = paper.compare(records)
        self.distances = compare.readings_table(self.lines, "how far each reading lies from the published numbers")

    def among(self, reading: str, **wanted: Any) -> list[Record]:
        """Records of the primary audit's network under a reading, with these changes."""
        fields = {**self.paper.paper.common, **self.paper.paper.readings[reading], **wanted}
        fields.pop("options")
        return [r for r in self.records if compare.about(r.spec, fields)]

    # ---- counts -------------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        made = {
            "runs": len({key for line in self.lines for key in line.runs}),
            "behind": len({key for line in self.lines if line.compared for key in line.runs}),
        }
        for kind, name in ((Number, ""), (Decision, "_decisions")):
            claims = compare.by_claim(line for line in self.lines if isinstance(line.claim, kind))
            outcomes = Counter(compare.whole(c) for c in claims)
            made |= {f"{o.name.lower()}{name}": outcomes[o] for o in Outcome}
            made[name.strip("_") or "numbers"] = len(claims)
            made[f"compared{name}"] = sum(k for o, k in outcomes.items() if o not in compare.APART)
            made[f"written{name}"] = sum(
                any(x.reading == WRITTEN and x.outcome is Outcome.AGREES for x in c) for c in claims
            )
        return made

    # ---- the five findings --------------------------------------------------------------------------------------------

    def sound(self) -> dict[str, Any]:
        """Accuracies of what the text states completely: BP, BP with the penalty, frozen blocks."""
        found = [
            line for line in self.lines
            if isinstance(c := line.claim, Number) and line.compared and c.quantity == "accuracy"
            and c.table in ("Primary audit", "Penalty")
            and (c.method == "bp" or (c.setting, line.reading) == ("frozen blocks", RMS))
        ]  # fmt: skip
        worst = max(abs(line.ours.value - line.published.value) for line in found)
        return {"worst": f"{worst:.3f}", "lines": len(found), "networks": len({k for x in found for k in x.runs})}

    def recipe(self) -> dict[str, str]:
        def factor(reading: str, name: str) -> str:
            return num(10 ** self.distances.row(method="dfa", reading=reading).value(name), 2)

        return {
            "written": factor(WRITTEN, "chosen_log"), "fitted": factor(CLIPPED, "chosen_log"),
            "held": factor(CLIPPED, "held_log"), "held_written": factor(WRITTEN, "held_log"),
            "networks": str(self.distances.row(method="dfa", reading=CLIPPED).value("networks")),
            "networks_written": str(self.distances.row(method="dfa", reading=WRITTEN).value("networks")),
        }  # fmt: skip

    def course(self) -> dict[str, str]:
        """DFA's ‖g_L‖ over its first epochs against the published one, which is of one seed: our network of that seed alone."""
        read, seed = get_quantity("reference_norm_128"), 42
        published = {
            c.epoch: (c.published.value, c.batch_size or 128)
            for c in self.paper.claims
            if isinstance(c, Number) and c.table == "Course of DFA" and c.quantity == read.name and c.epoch in range(4)
        }
        (start, batch), made = published[0], {}
        for name, reading in (("written", WRITTEN), ("fitted", CLIPPED)):
            (run,) = self.among(reading, method="dfa", seed=seed)
            logs = [math.log10(read.of(run, e).value * 128 / b / v) for e, (v, b) in published.items() if e]
            made[name] = num(10 ** math.sqrt(mean([x * x for x in logs])), 2)
            at_start = read.of(run, 0).value
        sizes = {
            "start": num(at_start * 128 / batch, 2),
            "start_128": num(at_start, 2),
            "published_start": num(start, 2),
        }
        return made | sizes

    def contrast(self) -> dict[str, Any]:
        """FA minus DFA, published and with the same norm, over the seeds that both have."""
        published = {line.claim.method: line.published.value for line in self._accuracies()}
        made: dict[str, Any] = {"published": f"{100 * (published['fa'] - published['dfa']):.1f}"}
        behind: set[str] = set()
        for reading, name in ((WRITTEN, "none"), (RMS, "rms")):
            by = {m: {r.spec.seed: r for r in self.among(reading, method=m)} for m in ("fa", "dfa")}
            shared = sorted(by["fa"].keys() & by["dfa"].keys())
            gap = depth_margin(*([by[m][s].accuracy for s in shared] for m in ("fa", "dfa")), null_kind="dfa")
            made |= {name: f"{gap.margin_pp:.1f}", f"{name}_interval": f"{gap.low_pp:+.1f} to {gap.high_pp:+.1f}"}
            behind |= {by[m][s].spec.hash for m in by for s in shared}
        return made | {"networks": len(behind)}

    def nulls(self) -> dict[str, Any]:
        """Mean accuracy of every kind of frozen blocks after 100 epochs, over the seeds that all have."""
        by: dict[str, dict[int, float]] = {}
        for r in {r.spec.hash: r for name in (WRITTEN, RMS) for r in self.among(name, train_last=0)}.values():
            by.setdefault(r.spec.label, {})[r.spec.seed] = r.accuracy
        shared = set.intersection(*map(set, by.values()))
        means = [mean([of[s] for s in sorted(shared)]) for of in by.values()]
        low, high = min(means), max(means)
        extent = {"spread": f"{100 * (high - low):.1f}", "low": f"{low:.3f}", "high": f"{high:.3f}"}
        return extent | {"kinds": len(by), "networks": len(by) * len(shared)}

    def seeds(self) -> dict[str, Any]:
        wide = [r for r in self.records if (r.spec.dataset, r.spec.width, r.spec.depth) == ("cifar10", 512, 2)]
        wide = [r for r in wide if r.spec.seed in TEN and (r.spec.method in ("fa", "dfa") or r.spec.frozen)]
        ((epochs, _),) = Counter(r.spec.epochs for r in wide).most_common(1)
        found = selections([r for r in wide if r.spec.epochs == epochs])
        assert found is not None, "the ten seeds of d = 512 are not in results/"
        below = {s.fields["label"]: s.fields["k"] for s in found.fields["below"]}
        (fa,) = (k for label, k in below.items() if label.startswith("fa(none)"))
        (fail,) = (s.fields["k"] for s in found.fields["fail"] if s.fields["label"].startswith("fa(none)"))
        return {"epochs": epochs, "choices": found.fields["choices"], "below": fa, "fail": fail}

    # ---- further findings ---------------------------------------------------------------------------------------------

    def batch(self) -> dict[str, Any]:
        """Networks of the audit table whose ‖g_L‖ is above the floor at B = 128 and under it at 1024."""
        read, floor = get_quantity("reference_norm_128"), DiagnosticThresholds().g_norm_floor
        found = [(g, r, read.of(r).value) for g in self.primary() for r in g.records]
        moved = [(f"{g.label} seed {r.spec.seed}", v) for g, r, v in found if v * 128 / 1024 < floor <= v]
        names = "; ".join(f"{name} ({num(v, 2)} and {num(v * 128 / 1024, 2)})" for name, v in moved)
        return {"networks": len(found), "moved": names or "none"}

    def exact(self) -> str:
        """FA's deep cosine with layer L, which is exact by construction, and without it."""
        parts = []
        for g in (g for g in self.primary() if g.spec.method == "fa"):
            with_, without = (get_quantity(name).over(g) for name in ("deep_cosine_all_layers", "deep_cosine"))
            parts.append(f"{g.label} {signed(with_.value)} and {signed(without.value)} (n={without.n})")
        return "; ".join(parts)

    def pairing(self) -> dict[str, str]:
        """FA's published deep cosines times the number of blocks below the last, by depth."""
        settings = self.paper.paper.settings
        deep = [c for c in self.paper.claims if isinstance(c, Number) and c.quantity == "deep_cosine_all_layers"]
        row = {settings[c.setting]["depth"]: c.published.value for c in deep if c.table.startswith("Depth of FA")}
        *first, last = row
        return {
            "products": ", ".join(num((depth - 1) * v, 2) for depth, v in row.items()),
            "depths": f"{', '.join(map(str, first))} and {last}",
        }

    def nudging(self) -> str:
        """Loss changes divided by η‖g_L‖ of the same table, the most that a step of η = .01 does to first order."""
        eta, setting, parts = 0.01, "30 epochs; λ = 0.01", []
        by_hash = {r.spec.hash: r for r in self.records}
        numbers = [c for c in self.paper.claims if isinstance(c, Number)]
        g_of = {c.method: c for c in numbers if (c.setting, c.quantity) == (setting, "reference_norm_128")}
        for lines in compare.by_claim(
            x for x in self.lines if getattr(x.claim, "quantity", "") == "nudging_all_layers"
        ):
            g = g_of[lines[0].claim.method]
            published = abs(lines[0].published.value) / (eta * (g.batch_size or 128) * g.published.value)
            ours = []
            for x in (x for x in lines if x.ours.known):
                norms = [get_quantity("reference_norm").of(by_hash[key]).value for key in x.runs]
                ours.append(f"{num(abs(mean(x.ours.values)) / (eta * mean(norms)), 2)} ({x.reading}, n={x.ours.n})")
            parts.append(f"{g.method.upper()} {num(published, 2)}, ours {' and '.join(ours)}")
        return "; ".join(parts)

    # ---- tables and figure --------------------------------------------------------------------------------------------

    def _accuracies(self) -> list[Any]:
        """The published accuracies of the primary audit."""
        return [
            line for line in self.lines
            if isinstance(line.claim, Number) and line.claim.table == "Primary audit" and not line.claim.setting
            and line.claim.quantity == "accuracy"
        ]  # fmt: skip

    def primary(self) -> list[Group]:
        """The methods of the primary audit under every reading; of several lengths of training the longest of the method."""
        fields = {k: v for k, v in self.paper.paper.common.items() if k not in ("epochs", "train_last", "options")}
        pool: dict[str, Record] = {}
        for reading in self.paper.paper.readings.values():
            wanted = {**fields, **{k: v for k, v in reading.items() if k != "options"}}
            pool |= {r.spec.hash: r for r in self.records if r.spec.method in ORDER and compare.about(r.spec, wanted)}
        groups = audit(list(pool.values()))
        longest = {
            m: max(g.spec.epochs or 0 for g in groups if g.spec.method == m) for m in {g.spec.method for g in groups}
        }
        kept = [g for g in groups if g.spec.epochs == longest[g.spec.method]]
        return sorted(kept, key=lambda g: (ORDER.index(g.spec.method), str(g.spec.credit_norm), g.label))

    def headline(self) -> str:
        """The README's table, with the published accuracy beside ours."""
        published = {line.claim.method: line.claim for line in self._accuracies()}
        length = self.paper.paper.common["epochs"]
        stated = []
        for g in self.primary():
            p = published[g.spec.method]
            at = f" (at {length} epochs)" if g.spec.epochs != length else ""
            stated.append({"published": Cell(f"{float(p.value):.3f} ± {p.std:.3f}{at}")})
        return self.front((Column("published", "published accuracy"),), stated, "our accuracy")

    def front(self, more: Sequence[Column] = (), cells: Sequence[dict[str, Cell]] = (), ours: str = "accuracy") -> str:
        """Accuracy, Γ, margin and verdict of every method; `cells` of the columns `more` stand before them."""
        titles = {"accuracy": ours, "gamma": "Γ", "margin_matched": "over null (pp)"}
        rows = []
        for k, g in enumerate(self.primary()):
            found = {name: get_quantity(name).over(g) for name in titles}
            if not found["margin_matched"].known:
                found["margin_matched"] = get_quantity("margin_bp").over(g)
            own = cells[k] if cells else {}
            rows.append(Row({"method": Cell(g.label), **own, **found, "verdict": Cell(verdict_text(g))}))
        columns = [get_quantity(name).column(title=title) for name, title in titles.items()]
        return pipe(Table("front", "", (Column("method"), *more, *columns, Column("verdict")), tuple(rows)))

    def measured(self) -> str:
        """What the verdicts rest on beside the margin."""
        names = ("growth", "reference_norm_128", "gamma_all_layers")
        rows = [Row({"method": Cell(g.label), **{n: get_quantity(n).over(g) for n in names}}) for g in self.primary()]
        columns = [get_quantity(name).column() for name in names]
        return pipe(Table("measured", "", (Column("method"), *columns), tuple(rows)))

    def summary(self) -> str:
        """The tables of the paper, with the sum of each column, their studies, and the places that hold their values."""
        made = compare.summary_table(self.lines, "the tables of the paper")
        history = {line.claim.table for line in self.lines if "history" in line.claim.source}
        rows = []
        for row in made.rows:
            of = self.tables[row.value("table")]
            places = [*filter(None, of["places"].split(", ")), *(["history"] if row.value("table") in history else [])]
            cells = {
                "table": Cell(f"[{row.value('table')}](studies/{of['study']}.md)"),
                "where": Cell(", ".join(places)),
            }
            rows.append(replace(row, cells={**row.cells, **cells}))
        total = {c.name: Cell(sum(row.value(c.name) for row in made.rows)) for c in made.columns[1:-1]}
        networks = Cell(len({key for row in made.rows for key in row.runs}))
        rows.append(Row({"table": Cell("all"), **total, "networks": networks}))
        return pipe(
            replace(made, columns=(*made.columns, Column("where", "published in")), rows=tuple(rows)), links=True
        )

    def far(self) -> str:
        made = self.distances
        rows = [
            replace(row, cells={k: Cell(f"{c.value:.2f} (n={c.n})") if c.n else c for k, c in row.cells.items()})
            for row in made.rows
            if row.value("method") != "bp"
        ]
        return pipe(replace(made, rows=tuple(rows)))

    def missing(self) -> dict[str, Any]:
        """Values that no run of ours can test, and what those cost that a run could."""
        found = plan.open_claims(self.paper, self.lines)
        runnable = [runs for _, runs, reason in found if reason != plan.UNMEASURED]
        left = unique(s for runs in runnable for s in runs if s.hash not in self.here)
        apart = sum(compare.whole(c) in compare.APART for c in compare.by_claim(self.lines))
        return {
            "all": apart, "count": len(found), "runnable": len(runnable), "hours": f"{plan.hours(left, plan.read_seconds()):.0f}"
        }  # fmt: skip

    def gap(self) -> dict[str, Any]:
        """How far the networks with Mode 1 lie from the others, published and ours."""
        records = [r for g in self.primary() for r in g.records]
        made: dict[str, Any] = {"networks": len(records)}
        for name, large in (("growth", True), ("reference_norm_128", False)):
            ends = {c.kind: c.published.value for c in self.paper.claims
                    if isinstance(c, Number) and (c.table, c.quantity) == ("Threshold separation", name)}  # fmt: skip
            ours = separation(records, name, large)
            made[name] = f"{num(ends['at least'] / ends['at most'], 2)}, ours {'–' if ours is None else num(ours, 2)}"
        return made

    def figure(self) -> bytes:
        """‖g_L‖ of DFA over its first epochs, ours / published, in three readings."""
        ratio = Quantity(
            "ratio", "ours / published", "ours / published", scale=Scale.LOG, compare=Compare.LOG_RATIO,
            convention="1: as published; geometric mean, smallest to largest over seeds",
        )  # fmt: skip
        rows = []
        for line in self.lines:
            c = line.claim
            if not isinstance(c, Number) or line.reading not in (WRITTEN, RMS, CLIPPED):
                continue
            if (c.table, c.quantity, c.kind) == ("Course of DFA", "reference_norm_128", "value"):
                p, ours = line.published.value, line.ours
                cell = Cell(ours.value / p, min(ours.values) / p, max(ours.values) / p, ours.n)
                rows.append(Row({"epoch": Cell(c.epoch), "ratio": cell, "reading": Cell(line.reading)}, line.runs))
        drawn = Table("dfa", "", (Column("epoch"), ratio.column(), Column("reading")), tuple(rows))
        title = "‖g_L‖ of DFA, ours / published, in three readings of the recipe"
        return standalone(draw(drawn, "epoch", "ratio", "reading", title=title)).encode()

    def text(self) -> str:
        template = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
        used = list(dict.fromkeys(line.reading for line in self.lines if line.reading and line.compared))
        return template.from_string((HERE / "page.md").read_text(encoding="utf-8")).render(
            n=self.counts(), sound=self.sound(), recipe=self.recipe(), course=self.course(),
            contrast=self.contrast(), nulls=self.nulls(),
            seeds=self.seeds(), batch=self.batch(), exact=self.exact(), nudging=self.nudging(),
            headline=self.headline(), measured=self.measured(), summary=self.summary(),
            distances=self.far(), missing=self.missing(), gap=self.gap(), pairing=self.pairing(), readings="; ".join(used),
            empty=" and ".join(self.tables["no result"]["places"].split(", ")),
            protocol=f"protocol {get_policy('three-check').version}",
        )  # fmt: skip

    def versions(self) -> str:
        """docs/protocol.md: the archived networks under three-check/1.0 and 1.1, and what 1.1 cannot know of them."""
        old, new = (
            [r for g in audit(self.records, protocol=f"three-check/{v}") for r in g.reports] for v in ("1.0", "1.1")
        )
        answers = ([[c.answer for c in r.verdict.checks] for r in reports] for reports in (old, new))
        moved = sum(before != now for before, now in zip(*answers, strict=True))
        pairs = zip(old, new, strict=True)
        changed = Counter((a.status, b.status, b.checks["D3"].answer) for a, b in pairs if _changed(a.status, b.status))
        rows = [
            [_concluded("1.0", before, d3), _concluded("1.1", now, d3), str(n), WHY[now, d3]]
            for (before, now, d3), n in changed.most_common()
        ]
        classes = sum(r.facts.evaluation is not None and r.facts.evaluation.largest_class is None for r in new)
        gammas = sum(r.facts.aggregate is not None and r.facts.aggregate.concat is None for r in new)
        lost = [
            ["share of the largest class", str(classes), "chance is 1/C"],
            ["Γ concatenated, flattened and clamped, over the layers that count", str(gammas),
             "`null` in JSON; the mean of the layer means is available"],
        ]  # fmt: skip
        return "\n".join([
            f"The {len(new)} archived networks (`results/`, nulls left out) judged under both versions. "
            f"{f'The checks of {moved} change' if moved else 'No check changes its answer'}; {changed.total()} verdicts "
            "change (a D1 or D2 that failed alone, which 1.1 names behind the verdict, is not counted):",
            "", *pipe_table(["1.0", "1.1", "networks", "why"], rows), "",
            "Records from before 1.1 do not hold the samples, so some values of 1.1 cannot be computed for them:",
            "", *pipe_table(["not available under 1.1", "networks", "instead"], lost),
        ])  # fmt: skip

    def planned(self) -> str:
        """The other page: what was planned, what was run, what the rest costs."""
        seconds, further = plan.read_seconds(), plan.further()
        template = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True)
        return template.from_string((HERE / "planned.md").read_text(encoding="utf-8")).render(
            planned=pipe(plan.table(self.here, seconds)),
            tables=pipe(plan.by_table(self.paper, self.lines, self.here, seconds)),
            further={"runs": len(further), "hours": f"{plan.hours(further, seconds):.1f}"},
        )

    def csv(self) -> bytes:
        return table_csv(compare.lines_table(self.lines, "every published value next to ours")).encode()


def pipe(table: Table, links: bool = False) -> str:
    """`links`: the first column holds Markdown."""
    header, rows = texts(table)
    return "\n".join(
        pipe_table(
            [escape(h) for h in header],
            [[cell if links and k == 0 else escape(cell) for k, cell in enumerate(row)] for row in rows],
        )
    )


def _changed(before: str, now: str) -> bool:
    """Whether a reader is told something else: three-check/1.0 calls a network with a check missing trustworthy."""
    return before != now or now == "incomplete"


def _concluded(version: str, status: str, d3: str) -> str:
    """The verdict as its version words it, without what stands behind it."""
    if status != "incomplete":
        return status
    return f"trustworthy (D3 {d3})" if version == "1.0" else f"incomplete: D3 depth utility {d3}"


def between(text: str, made: str, marks: tuple[str, str] = (START, END)) -> str:
    """The text with what stands between the two marks replaced."""
    before, start, rest = text.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not start or not end:
        raise SystemExit(f"a page lacks the marks {marks[0]} and {marks[1]}")
    return f"{before}{start}\n\n{made}\n\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="where docs/ and README.md are written")
    root = parser.parse_args().root
    page = Page(Archive(ROOT / "results").runs(), compare.read_audit(HERE))
    readme, protocol = root / "README.md", ROOT / "docs/protocol.md"
    made = {
        root / "docs/audit.md": page.text().encode(),
        root / "docs/planned.md": page.planned().encode(),
        root / "docs/audit.csv": page.csv(),
        root / "docs/images/audit.svg": page.figure(),
        root / "docs/protocol.md": between(protocol.read_text(encoding="utf-8"), page.versions(), ARCHIVED).encode(),
        readme: between((ROOT / "README.md").read_text(encoding="utf-8"), page.front()).encode(),
    }
    for path, content in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


if __name__ == "__main__":
    main()
