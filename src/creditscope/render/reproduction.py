"""The page of a real audit: published claims next to our runs, what was learned, and the studies behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from creditscope.credit.registry import make_rule
from creditscope.protocol import get_policy
from creditscope.render.markdown import escape, table
from creditscope.render.study import study_markdown
from creditscope.studies.audit import ORDER, Group, audit, margin_text, network, place
from creditscope.studies.claims import PRIMARY, matches
from creditscope.studies.coverage import AS_PLANNED, FEWER, OTHER_LENGTH, Cell, coverage
from creditscope.studies.learned import lessons
from creditscope.studies.published import UNSTATED, audit_accuracy
from creditscope.studies.published_verdicts import STRATEGIES, WHOLE
from creditscope.studies.rejudged import CHANGE_HEADER, GAMMA_HEADER, GAP_HEADER, NEW, OLD, rejudged
from creditscope.studies.reproduction import (
    KINDS,
    NOT_COMPARABLE,
    NOT_ONE_RUN,
    NOT_REPRODUCED,
    NOT_RUN,
    ONE_NORM,
    ONE_RUN,
    PARTLY,
    REPRODUCED,
    TOLERANCE,
    Ours,
    Outcome,
    close,
    difference_text,
    ours_text,
    outcomes,
    published_text,
)
from creditscope.studies.result import Run, StudyResult, beside, mean, pm, span
from creditscope.studies.verdicts import INCONCLUSIVE, NOT_ONE_OPEN, ONE_OPEN, Judged, VerdictOutcome, verdict_outcomes

VERDICT_HEADER = ["verdict on", "published", "ours", "statement", "runs"]
POLICY_HEADER = [
    "method",
    "network",
    "n",
    "margin to matched null (pp)",
    "to bp null (pp)",
    "three-check",
    "four-diagnostic without (d)",
    "four-diagnostic",
]
HEADER = ["quantity", "published", "ours", "difference", "statement", "runs"]
OVERVIEW = {
    "claims-accuracy": "Published accuracies and ours",
    "claims-order": "Norms and growth, ours divided by the published",
    "claims-cosine": "Published cosines and ours",
    "audit": "Accuracy of every method next to its nulls",
    "layers": "Cosine to the gradient, layer by layer",
    "temporal": "Growth and reference gradient over the epochs, with the thresholds",
}
BOTH = "Verdicts by both policies and both nulls"
POLICIES = (
    "Policy three-check fails a network on D1 and D2 together or on D3; four-diagnostic on any of (a) scale, (b) reference, (d) "
    "depth. D3 uses the matched null where it is there, else the bp null; a null counts only where every seed of the method has "
    "it (–: it is not there for all); an interval that straddles 2 pp is inconclusive; with one seed the interval is binomial "
    "and speaks of this network only."
)
VERDICTS = {
    WHOLE: "A published verdict is passes or fails, of the whole protocol (ours: three-check) or of one check; inconclusive: our "
    "seeds disagree, or the interval of a margin straddles its threshold.",
    STRATEGIES: "What a reader concludes who looks at less than the whole protocol: S0 accuracy, S1 also Γ, +(a) to +(d) S1 and "
    "one diagnostic (scale, reference, stability, depth). Over all seeds; inconclusive: not decidable, because they disagree "
    "or an interval straddles its threshold.",
}
"""How to read each table of verdicts."""
PLANNED = (
    "The grid of preset `reduced`, nulls included, and what of it was run; runs that studies share are counted in each."
)
COVERAGE_HEADER = ["network", "method", "epochs", "planned seeds", "run seeds", "statement"]


def audit_page(
    runs: Sequence[Run],
    results: Iterable[StudyResult],
    missing: Sequence[str],
    source: str,
    plan: Mapping[str, Sequence[str]] | None = None,
    figures: Mapping[str, str] | None = None,
) -> str:
    """Markdown; every number comes from the runs or from the published table it stands next to.

    plan: for every study the hashes of the runs that belong to it. figures: name -> address, as `report --figures` names them.
    """
    plan, figures = plan or {}, figures or {}
    held, verdicts = outcomes(runs), verdict_outcomes(runs)
    parts = [
        "# The real audit: published claims next to our own runs",
        _intro(runs, source),
        "## Summary",
        _summary(held),
        "**{}** {}".format(*claims_lines(held)),
        verdicts_line(verdicts),
        *(f"![{told}]({figures[name]})" for name, told in OVERVIEW.items() if name in figures),
        "## What we learned",
        *(f"**{escape(title)}.** {escape(text, None)}" for title, text in lessons(runs)),
        "## Published tables, line by line",
        how_to_read(),
    ]
    for name in dict.fromkeys(o.claim.table for o in held):
        parts += [f"### {name}", _table([o for o in held if o.claim.table == name])]
    for name, told in VERDICTS.items():
        parts += [f"### {name}", told, _published_verdicts([o for o in verdicts if o.said.table == name])]
    parts += [f"## {BOTH}", POLICIES, _verdicts(runs)]
    parts += _rejudged(runs)
    parts += ["## The studies behind it"]
    for r in results:
        parts.append(study_markdown(r).replace("## ", "### ", 1))
        if address := figures.get(f"study-{r.name}"):
            parts.append(f"![Figure of the study {escape(r.name)}]({address})")
    parts += [
        "## Planned and run",
        PLANNED,
        "\n".join(table(["study", "planned", "run", "missing"], _planned(plan, runs))),
    ]
    cells = coverage(r.spec for r in runs)
    rows = [list(map(escape, cell.words)) for cell in cells]
    parts += [coverage_line(cells), "\n".join(table(COVERAGE_HEADER, rows))]
    if missing:
        parts += ["Not here yet:", "\n".join(f"- {escape(m)}" for m in missing)]
    parts += [
        "## Every run",
        "\n".join(table(["run", "method", "network", "epochs", "seed", "accuracy"], _every(runs))),
    ]
    return "\n\n".join(p.strip("\n") for p in parts) + "\n"


def _rejudged(runs: Sequence[Run]) -> list[str]:
    """What three-check/1.1 changes, as tables."""
    found = rejudged(runs)
    told = ", ".join(f"{n} {status}" for status, n in found.statuses.most_common())
    parts = [
        f"## What {NEW} changes",
        f"All {found.judged} trained networks were judged by {OLD} and by {NEW} ({told}). Under 1.1 `trustworthy` needs D1, D2 "
        "and D3 measured, an accuracy that the evaluation batches confirm and that is above chance; Γ is over the layers whose "
        f"credit trains something. The verdict line changes in {len(found.changes)} of the methods:",
    ]
    for header, rows in ((CHANGE_HEADER, found.changes), (GAP_HEADER, found.gaps), (GAMMA_HEADER, found.gammas)):
        if rows:
            parts.append("\n".join(table(header, [list(map(escape, row)) for row in rows])))
    return parts


def _published_verdicts(held: Sequence[VerdictOutcome]) -> str:
    rows = [[*map(escape, verdict_cells(o)), _hashes(o.ours)] for o in held]
    return "\n".join(table(VERDICT_HEADER, rows))


def verdict_cells(o: VerdictOutcome) -> list[str]:
    """What, published, ours, statement."""
    ours = "; ".join(f"{j.norm}: {j.text}" if j.norm else j.text for j in o.ours)
    return [o.said.what, o.said.text, ours or "–", o.statement]


def verdicts_line(held: Sequence[VerdictOutcome]) -> str:
    return " ".join(_counted(name, [o for o in held if o.said.table == name]) for name in VERDICTS)


def _counted(name: str, held: Sequence[VerdictOutcome]) -> str:
    counts = Counter(o.kind for o in held if o.kind not in (NOT_RUN, NOT_COMPARABLE))
    told = ", ".join(
        f"{counts[kind]} {kind}" for kind in (*KINDS, ONE_OPEN, NOT_ONE_OPEN, INCONCLUSIVE) if counts[kind]
    )
    return f"Of {sum(counts.values())} {name[0].lower()}{name[1:]} that our runs can test: {told or 'none'}."


def policies(runs: Sequence[Run]) -> list[tuple[list[str], Group, Group]]:
    """Every group of seeds under three-check and four-diagnostic, with the margins to both nulls: (cells, and both groups)."""
    three, four = (audit(runs, protocol=name) for name in ("three-check", "four-diagnostic"))
    return [
        (
            [
                g.label,
                network(g.spec),
                str(len(g.seeds)),
                margin_text(g, "matched"),
                margin_text(g, "bp"),
                g.finding,
                _without_depth(h),
                h.finding,
            ],
            g,
            h,
        )
        for g, h in sorted(zip(three, four, strict=True), key=lambda pair: place(pair[0].spec))
    ]


def _without_depth(group: Group) -> str:
    """What four-diagnostic says without (d): of every seed, or counted where they differ."""
    lines = Counter((r.verdict.alternative or "").removeprefix("without (d): ") for r in group.reports)
    return "; ".join(line if len(lines) == 1 else f"{k} of {lines.total()} seeds: {line}" for line, k in lines.items())


def _verdicts(runs: Sequence[Run]) -> str:
    return "\n".join(table(POLICY_HEADER, [list(map(escape, cells)) for cells, _, _ in policies(runs)]))


def _planned(plan: Mapping[str, Sequence[str]], runs: Sequence[Run]) -> list[list[str]]:
    there = {r.spec.hash for r in runs}
    return [
        [escape(name), str(len(hashes)), str(sum(h in there for h in hashes)), str(sum(h not in there for h in hashes))]
        for name, hashes in plan.items()
    ]


def coverage_line(cells: Sequence[Cell]) -> str:
    counts = Counter(c.statement for c in cells)
    return (
        "The whole plan is the grid of preset paper (the published recipe, where one is stated; FA and DFA "
        "under both norms in the primary audit and under penalties, with their nulls): "
        f"{sum(len(c.planned) for c in cells)} runs of {len(cells)} kinds (method, network and epochs). "
        f"{sum(len(c.run) for c in cells)} of them are here. Kinds: {counts[AS_PLANNED]} as planned, {counts[FEWER]} with fewer "
        f"seeds, {counts[OTHER_LENGTH]} with another number of epochs only (in brackets), {counts[NOT_RUN]} not run."
    )


def _every(runs: Sequence[Run]) -> list[list[str]]:
    ordered = sorted(runs, key=lambda r: (network(r.spec), r.spec.frozen, r.spec.label, r.spec.seed))
    return [
        [
            f"`{r.spec.hash[:10]}`",
            escape(r.spec.label),
            escape(network(r.spec)),
            str(r.spec.epochs),
            str(r.spec.seed),
            f"{r.accuracy:.4f}",
        ]
        for r in ordered
    ]


def primary_groups(runs: Sequence[Run]) -> list[Group]:
    """The methods of the primary audit; of two lengths of training, the longer."""
    primary = {**PRIMARY, "epochs": (100, 30)}
    del primary["train_last"]
    pool = [r for r in runs if all(matches(getattr(r.spec, k), v) for k, v in primary.items())]
    groups = sorted(
        audit(pool), key=lambda g: (ORDER.index(g.spec.method), str(g.spec.credit_norm), -(g.spec.epochs or 0))
    )
    shown: dict[tuple[str, str | None], Group] = {}
    for g in groups:
        shown.setdefault((g.spec.method, g.spec.credit_norm), g)
    return list(shown.values())


def headline(runs: Sequence[Run]) -> str:
    """The primary audit in one small table, for a README."""
    rows = [
        [
            escape(g.label),
            beside(audit_accuracy(g.spec), None)[0],
            pm(g.accuracies),
            g.gamma,
            span(g.values("growth")),
            span(g.values("reference")),
            margin_text(g, "matched") if margin_text(g, "matched") != "–" else f"{margin_text(g, 'bp')} (bp null)",
            escape(g.finding),
        ]
        for g in primary_groups(runs)
    ]
    header = [
        "method",
        "published",
        "ours",
        "Γ",
        "growth",
        "‖g_L‖/128",
        "margin to null (pp)",
        "the protocol finds",
    ]
    return "\n".join(table(header, rows))


def _intro(runs: Sequence[Run], source: str) -> str:
    protocol = get_policy("three-check").version
    datasets = Counter(str(r.spec.dataset) for r in runs)
    told = ", ".join(f"{n} on {name}" for name, n in sorted(datasets.items()))
    return (
        f"Made by `creditscope study page` from `{source}`: {len(runs)} runs ({told}), protocol {protocol}, one thread each. "
        "Every run is named by the hash of its spec; an archive holds it as a JSON file with the command that trains it and the "
        "checksums of its weights. `creditscope runs show HASH --store results` shows its report, `creditscope runs verify HASH "
        "--store results` trains it again and compares trajectory and report.\n\n"
        f"{where_from()} The papers state no normalisation of the credit, so ours is shown for each setting of `credit_norm` "
        "that was run. The checks, the two nulls and every other definition: [protocol](protocol.md), [checks](checks/index.md), "
        "[credit rules](credit-rules.md)."
    )


def where_from() -> str:
    """What is compared with what, for both pages."""
    return (
        "The published values are those of arXiv 2606.21126, its drafts and its public change history. In brackets behind a "
        "value: where it stands, and what another version or another place has instead (in the tables of the studies an "
        "exclamation mark says that there is another). BP: backpropagation; FA: feedback alignment; DFA: direct feedback "
        "alignment; EP: equilibrium propagation; SB: State Bridge; CB: Credit Bridge; frozen: a network whose residual blocks "
        "stay as they were drawn (the null of check D3)."
    )


def _summary(held: Sequence[Outcome]) -> str:
    counts = Counter(o.kind for o in held)
    rows = [[kind, str(counts[kind])] for kind in KINDS if counts[kind]]
    return "\n".join(table(["statement", "claims"], rows))


def claims_lines(held: Sequence[Outcome]) -> tuple[str, str]:
    """What came out, in two sentences."""
    tested = [o for o in held if o.kind not in (NOT_COMPARABLE, NOT_RUN)]
    counts = Counter(o.kind for o in tested)
    norm = Counter(o.statement.partition("credit_norm=")[2] for o in tested if o.kind == ONE_NORM)
    told = f", {counts[ONE_RUN]} with the one credit_norm that was run" if counts[ONE_RUN] else ""
    told += "".join(f", {n} only with credit_norm={name}" for name, n in norm.most_common())
    unstated = sum(UNSTATED in f"{o.claim.published.source} {o.claim.published.note}" for o in tested)
    met = [o for o in tested if o.kind in (REPRODUCED, ONE_RUN, ONE_NORM)]
    single = sum(any(len(mine.values) == 1 for mine in o.ours) for o in tested)
    return (
        f"Of {len(tested)} claims that our runs can test, {counts[REPRODUCED]} are reproduced{told}, and "
        f"{counts[NOT_REPRODUCED] + counts[NOT_ONE_RUN]} are not"
        + (f" ({counts[NOT_ONE_RUN]} of these with the one credit_norm that was run)." if counts[NOT_ONE_RUN] else "."),
        f"In {single} of them a value of ours is from a single seed; of {unstated} the text does not state the epochs. Of those "
        f"reproduced with any norm, {sum(map(_by_construction, met))} are cosines of BP with itself, and "
        f"{sum(map(_zero_meets, met))} are published cosines or correlations that 0 would meet, too. "
        f"{sum(o.claim.runs.get('method') in PARTLY for o in tested)} of the {len(tested)} are of EP, CB or SB, whose settings "
        "the text gives in part.",
    )


def _by_construction(o: Outcome) -> bool:
    return o.claim.closeness == "cosine" and o.claim.published.value == 1.0


def _zero_meets(o: Outcome) -> bool:
    """Would seeds around 0 with the spread of ours count as reproduced?"""
    if o.claim.closeness != "cosine":
        return False
    around = (replace(mine, values=tuple(v - mean(mine.values) for v in mine.values)) for mine in o.ours if mine.values)
    return any(close(o.claim, mine) for mine in around)


def how_to_read() -> str:
    rules = "; ".join(f"{kind}: {rule}" for kind, rule in TOLERANCE.items())
    return (
        f"Reproduced means, by kind of quantity: {rules}; where a range was published, from its nearer end. A published cosine "
        "smaller than .10 is therefore also met by 0. Ours: mean ± sample standard deviation over n seeds (orders of magnitude: "
        "geometric mean, smallest to largest), final checkpoint unless an epoch is named; ‖g_L‖ is the mean per-sample norm "
        "divided by 128; × is ours divided by the published value; a difference is from the middle of a published range (of "
        "orders of magnitude the geometric one). The "
        f"papers give the settings of EP, CB and SB in part; ours are the default options: {_options()}. A fully relaxed EP is "
        "BP, so its numbers depend on the steps of its relaxation, whatever the epochs; the published value of CB reads h_l and "
        "t_l, ours by default the label, too. The tolerance widens with the spread over seeds, so it is narrower for a single "
        "seed than for three."
    )


def _options() -> str:
    chosen = {name: make_rule(name, {}).options.recorded() for name in PARTLY}
    return "; ".join(
        f"{name.upper()} {', '.join(f'{k} = {v}' for k, v in own.items())}" for name, own in chosen.items()
    )


def _hashes(ours: Iterable[Ours | Judged]) -> str:
    return " ".join(f"`{key[:6]}`" for mine in ours for key in mine.hashes) or "–"


def _table(held: Sequence[Outcome]) -> str:
    rows = [[*map(escape, claim_cells(o)), _hashes(o.ours)] for o in held]
    return "\n".join(table(HEADER, rows))


def claim_cells(o: Outcome) -> list[str]:
    """What, published, ours, difference, statement."""
    return [o.claim.what, published_text(o.claim), ours_text(o), difference_text(o), o.statement]
