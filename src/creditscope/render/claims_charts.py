"""Published values and ours in one look: a figure for each kind of quantity that has a common axis."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.render.charts import Dots, Level, Row
from creditscope.studies.reproduction import ABSOLUTE, FACTOR, NOT_COMPARABLE, Ours, Outcome, close

KINDS = {
    "accuracy": ("Accuracy", f"{100 * ABSOLUTE['accuracy']:g} pp or twice the seeds' spread"),
    "order": ("Ours / published", f"a factor {FACTOR:g}"),
    "cosine": ("Cosine and ρ", f"{ABSOLUTE['cosine']:g} or twice the seeds' spread"),
}
"""Kind of claim: what it is called, and its tolerance."""
IMPLIED = (": accuracy", " (ours at B = 128)", " (all layers)")
"""Words of a claim that the figure does without."""
OURS, PUBLISHED = "ours, one per seed", "published"


def claims_charts(held: Sequence[Outcome]) -> dict[str, Sequence[Dots]]:
    """File name -> its panel; a kind without a claim that our runs can test is left out."""
    made = {f"claims-{kind}": _dots(held, kind) for kind in KINDS}
    return {name: [dots] for name, dots in made.items() if dots.rows}


def _dots(held: Sequence[Outcome], kind: str) -> Dots:
    title, tolerance = KINDS[kind]
    ratio = kind == "order"
    rows = [
        _row(outcome, ours, ratio)
        for outcome in held
        if outcome.claim.closeness == kind and outcome.kind != NOT_COMPARABLE
        for ours in outcome.ours
        if ours.values and ours.trained == outcome.claim.epochs
    ]
    return Dots(
        f"claims-{kind}",
        f"{title}; ✗: outside {tolerance}",
        "one dot per seed",
        "ours / published" if ratio else "cosine or ρ" if kind == "cosine" else kind,
        rows,
        [Level(1 / FACTOR, f"1/{FACTOR:g}"), Level(FACTOR, f"{FACTOR:g}")] if ratio else [],
        zero=kind == "cosine",
        row_name="claim",
        log=ratio,
        marks=OURS,
        hollow="" if ratio else PUBLISHED,
    )


def _row(outcome: Outcome, ours: Ours, ratio: bool) -> Row:
    claim, said = outcome.claim, outcome.claim.published.value
    name = claim.what
    for words in IMPLIED:
        name = name.replace(words, "")
    about, colon, quantity = name.partition(": ")
    if (penalty := claim.runs.get("penalty")) and "λ" not in about:
        about += f" λ = {penalty:g}"
    name = f"{about} ({ours.norm}){colon}{quantity}" if ours.norm else f"{about}{colon}{quantity}"
    if not close(claim, ours):
        name = f"✗ {name}"
    values = [v / said for v in ours.values] if ratio else ours.values
    marks = [(f"seed {seed}", value) for seed, value in zip(ours.seeds, values, strict=True)]
    ends = claim.published.span or (said,)
    return Row(name, marks, hollow=[] if ratio else [(PUBLISHED, end) for end in ends])
