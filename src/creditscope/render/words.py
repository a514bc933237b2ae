"""The English of tables, in one place: a template for every statement, and the words of outcomes.

In a template `{x}` prints a field; what follows a colon says how: `num2` (two digits), `+1` (signed, one decimal), `%`, `names`
(a, b and c), `count`, `list`, `seeds`, `span`, `cell+1` (value with its interval), `after=WORDS` (the words and the names,
nothing where there are none). A field of statements prints them one after the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from string import Formatter
from typing import Any

from creditscope.protocol.policies import get_policy
from creditscope.protocol.wording import null_name
from creditscope.render.numbers import interval_of, num, percent, signed
from creditscope.runs.groups import Finding, Group, Outcome
from creditscope.tables import Cell, Statement, Value

SENTENCES = {
    "no runs": "The finished runs do not answer this yet.",
    # what is said of audited groups
    "reported": "Protocol {protocols}. {seeds:given}{settings}"
    "Accuracy: mean ± sample standard deviation over seeds, final checkpoint. Γ: per-sample cosine ({cosine}), averaged "
    "over samples, over the layers whose credit trains something, and over seeds. S1 accepts where accuracy is above "
    "chance and Γ > 0, however small. Growth and ‖g_L‖: smallest to largest over seeds. ‖g_L‖ is the mean per-sample norm "
    "divided by 128 (batch-mean convention). {samples:,} evaluation samples, {dtype}. Margins: percentage points with 95 % "
    "interval ({intervals:or=no null}).",
    "settings": "In brackets: credit_norm; credit_site is input where no site is named. ",
    "judged by": "{policy}",
    "judged by another": "{policy} ({labels:list}, as it was given)",
    "seeds of": "{label}: {seeds:list}",
    "network": "{network}, {seeds:seeds}{others:in=()}",
    "audited": "Protocol {protocol}. Networks: {networks}; final checkpoint. Mean ± sample standard deviation over seeds. "
    "Growth and ‖g_L‖: smallest to largest seed; ‖g_L‖ is the mean per-sample norm / 128. Margins: 95 % interval (paired t "
    "over seeds; for one seed binomial, this network only).",
    "D3 not measurable": "D3 is not measurable where BP itself does not beat its null by the threshold.",
    "in some": "{label} in {k} of {n}",
    "partly": "; in some seeds only: {groups:names}",
    "cells missing": "{cells} of the 4 cells have runs. The comparison needs all four, with a seed in common.",
    # the studies
    "audit": "{failed:count} of {groups} methods fail the protocol ({failed:names}{partly}). S1, which looks at accuracy "
    "and Γ alone, accepts {accepted:count} of them ({accepted:names}).",
    "ablation": "Of {groups} methods, S1 (accuracy and Γ) accepts {caught:count} that the whole protocol (S3) rejects "
    "({caught:names}), {late:count} of them only by D3{late:in=()}. All four strategies accept "
    "{healthy:names}{open:after=. Not decidable: }.",
    "strategies": "S0 accepts if accuracy is above chance; S1 if also Γ > 0; S2 if also D1 and D2 do not both fail; S3 if "
    "also D3 does not fail. +(a) to +(d): S1, and this diagnostic does not fail (scale, reference, stability, depth). "
    "Full: S1, and none of (a), (b), (d) fails, so D1 or D2 alone rejects. Not decidable: what would decide is "
    "inconclusive or not measured.",
    "at epochs": "{label} {span:span}",
    "temporal": "Mode 1 (D1 and D2) fires in {fired} of {runs} runs, at a median epoch of {median:g} ({by_method:list}). "
    "Stopping there would save {saved:%} of a run's epochs on average (false stops: {wrong}).",
    "temporal, none": "Mode 1 (D1 and D2 together) fires in none of {runs} runs; one of the two fires in {one} of them. "
    "Stopping at Mode 1 would have saved nothing.",
    "temporal convention": "The checks see the evaluation samples after every epoch. A check fires if the whole interval "
    "of its fact (t over the evaluation batches) is beyond the threshold. A stop is false if Mode 1 is gone at the end, or "
    "if accuracy still rises by more than {gain:g} pp.",
    "early": "Mode 2 (one layer has more than {limit:g} of Γ) appears in {with_mode2} of {runs} runs, in {before} of them "
    "before Mode 1 or without it{exact}.",
    "early, exact": "; in {n} of them the layer is one whose credit is exact by construction (FA: L)",
    "early convention": "Epochs 1 to {epochs}. Share: |cos_l| / Σ|cos| over the layers that count.",
    "cosine and rho": "{state} {c:+3} / {r:+3}",
    "best state": ". The credit predicts loss changes best in the {state} state",
    "triangulation": "Deep cosine / ρ of {label:names}: {states:list}{best}.",
    "triangulation convention": "Early: after epoch {early}. Penalised: λ = {penalty:g}. Layers of 1..L that count, mean "
    "over seeds. The controls of ρ are taken on the same networks, over all layers 1..L.",
    "interventions": "‖h_L‖: geometric mean over seeds. "
    "Deep: layers of 1..L that count, without exact ones (of bp all are exact, so all count). ρ: 32 directions, ε = 1e-3, "
    "256 samples, float64. Nudging: η = .01. Δ train loss: last minus first epoch.",
    "gain under a penalty": "{method} {gain:+1} pp at λ={penalty:g} (n={n}, ‖h_L‖ {before:num2} → {after:num2})",
    "penalty": "Largest gain in mean accuracy by a penalty, over the same n seeds: {gains:or=not measured}. Only penalties "
    "with the most seeds are compared, and differences between them are not tested. The point estimate of the margin lies "
    "between 1 and 2 pp in {fragile} of {rows} rows.",
    "capacity": "λ={penalty:g} changes BP by {bp:+1} pp and {label} by {dfa:+1} pp. The gap between them goes from "
    "{before:+1} to {after:+1} pp, over {seeds:shared}.",
    "rank": "{quantity} {value:+2}",
    "functional": "Rank correlation of the deep cosine over {points} methods ({labels:list}; {seeds:means}) with "
    "{ranks:list}. {by_cosine} has the highest cosine, {winner} the highest accuracy.{chance}",
    "same winner": "also",
    "other winner": "while {label} has",
    "chance of order": " With {points} points, a rank correlation of +1 or -1 arises by chance with p = {p:num2}.",
    "freshb": "In {specific:count} of {measured} runs the trained matrices lie more than {z:g} standard deviations from "
    "redrawn ones ({specific:names}). There, the network is aligned with its own matrices, not with random matrices in "
    "general.",
    "freshb convention": "Deep mean cosine without exact layers, λ = {penalty:g}, the same {samples:either} samples for "
    "both. z: (trained - mean of the redrawn) / their standard deviation. Each row is one network.",
    "failing at": "{name}: {failed:names}",
    "architectures": "{failed} of {groups} pairs of architecture and method fail in every seed. Failing, by architecture: "
    "{by}{partly}. With one seed: {single:names}. D3 not measured or not measurable: {open:names}.",
    "cifar100": "{failed:count} of {groups} methods fail on {dataset} ({failed:names}{partly}). Highest accuracy: {best}.",
    "bp over depth": "{method} {gain:+1} pp from L={shallow} to L={deep}",
    "over depth": "{method} {gain:+1} pp from L={shallow} to L={deep}, deep cosine {before:+2} → {after:+2}",
    "field": "{passed:count} of {groups} settings of rules pass the protocol ({passed:names}). Failing: {failed:count} "
    "({failed:names}).",
    "field against bp": "{reached:count} of {others} reach the accuracy of BP{reached:in=()}: a mean of at least its "
    "lowest seed. BP and the random credit are not counted.",
    "best rate": "{lr:g} for {methods:names}",
    "best rates": "Best learning rate of those tried: {best}.",
    "of rungs": "of {rungs:list} tried",
    "over the lowest": "{gain:cell+1 pp} over {lowest}",
    "best rung": "{method} is best with {best} trained blocks{about:in=()}.",
    "ladder convention": "Networks: {networks:list}. 0 trained blocks: the null (random-blocks baseline), trained by the "
    "same rule. Mean ± sample standard deviation over seeds. A gain is over the seeds that both rungs have (in brackets: paired "
    "95 % t-interval). Best: the largest mean.",
    "takes away": "; the first block that lowers the readout: {blocks:list}",
    "profile of": "{method}: the readout of h_L minus that of the twin is {margin:+1} pp (networks: {networks}){loss}.",
    "profile convention": "Networks: {networks:list}. Closed-form ridge readouts fitted on the training data; accuracy on "
    "the test data. Twin: blocks re-initialised, embedding kept. Networks without a profile: {missing} (`runs measure` "
    "adds it).",
    "random-target": "Without any signal, ‖h_L‖ grows more than {factor:g}-fold under {grew:count} of {rules} rules "
    "({grew:names}).",
    "random-target convention": "Labels are redrawn for every batch. Mean over samples, geometric mean over seeds.",
    "thresholds": "{stable:count} of {groups} verdicts are the same at all {settings} settings ({stable:names}). Networks "
    "with and without Mode 1 lie apart by a factor of {growth:num2} in growth and {reference:num2} in ‖g_L‖ (below 1 they "
    "overlap; – means that one side is empty).",
    "thresholds convention": "Settings: growth {growths:list}; floor {floors:list}; margin {margins:list} pp.",
    "not judged": "; {n} more without a measured D3",
    "fails in": "{label} fails in {k} of {share.n} seeds (95 % interval {share.low:.2f} to {share.high:.2f}; {undecided} "
    "inconclusive{open}).",
    "chosen": "{label} in {k}",
    "all at once": ", all of them at once in {k}",
    "selections": "There are {choices} choices of {size} of the {seeds} seeds that have their nulls. The mean margin is "
    "below the threshold of D3 for {below:list}{every_below}. Its whole paired 95 % interval is below it for "
    "{fail:list}{every_fail}.",
    "seeds convention": "Networks: {networks:or=none finished}. Every seed that was run, none selected; each judged alone "
    "(binomial interval, this network only). Share: Clopper-Pearson.",
    "weighed by one seed": "The method's factor is {ratio:.2g} times the norm's; one seed does not decide which is larger.",
    **{
        f"weighed: {key}": "The method's factor is {ratio:.2g} times the norm's (95 % interval {low:.2g} to {high:.2g}, paired t "
        f"of the logarithms): {text}."
        for key, text in {
            "method": "the method's is larger",
            "norm": "the norm's is larger",
            "open": "which is larger is not decided",
        }.items()
    },
    "credit-norm": "Over {seeds:shared}, rms instead of none multiplies growth by {by_norm[0]:.2g} (FA) and "
    "{by_norm[1]:.2g} (DFA). DFA instead of FA multiplies it by {by_method[0]:.2g} (none) and {by_method[1]:.2g} (rms). "
    "{weighed}",
    "recipes": "{failed:count} of {groups} recipes of {method} fail ({failed:names}{partly}).",
    "of method": "{k} of {n} with {method}",
    "rescue": "On {dataset}, {passing} of {tried} recipes pass all three checks ({counts:names}).",
    "rescue convention": "Every recipe that was tried, the best first (by verdict, failed checks, lower end of the margin, "
    "accuracy).",
    "relaxed": "Γ ≥ {limit:g} in {same} of {pairs} relaxations.",
    "relaxed within": "All of these end within {distance:num2} of the fixed point.",
    "relaxed elsewhere": "Of the others, the nearest ends at {nearest[0]:num2} (Γ {nearest[1]:num2}), the farthest at "
    "{farthest[0]:num2} (Γ {farthest[1]:num2}).",
    "relaxation convention": "Plain gradient descent on the states; a step that raises the energy is halved. Credit is "
    "read as the prediction error. Distance: ‖dE/dh‖ at the end of the relaxation over that at its start, mean over "
    "samples of the last batch.",
}
"""By the name of the statement; a name that is not here is its own template."""


LOCALITY = {
    "no weight transport between blocks, global error": "global error, no transport",
    "no weight transport between blocks, later states": "later states, no transport",
}
"""Labels of certificates that are too long for a column of the board."""
REACHES = {
    "above": "above what was audited",
    "undecided": "above the audited mean, not decided by {networks}",
    "within": "within what was audited",
    "below": "below what was audited",
}
"""A claimed number against the audited ones."""
STATUSES = {
    "pass": "no audited failure found",
    "fail": "claim not supported (needs walk-back)",
    "inconsistent": "inconsistent: the stated accuracy is not the network's",
    "inconclusive": "inconclusive",
    "mixed": "seeds disagree",
    "incomplete": "incomplete: a check was not measured or not measurable",
}
"""Verdicts, as the head of a page counts them."""


def names(labels: Iterable[Any]) -> str:
    """ "a, b and c", "none"."""
    found = list(dict.fromkeys(map(words, labels)))
    if len(found) < 2:
        return found[0] if found else "none"
    return f"{', '.join(found[:-1])} and {found[-1]}"


def span_text(ends: tuple[float, float] | None, digits: int = 2) -> str:
    """ "3 to 6", or one number where both print alike."""
    if ends is None:
        return "–"
    low, high = (num(v, digits) for v in ends)
    return low if low == high else f"{low} to {high}"


def finding_text(found: Finding) -> str:
    """The verdict over seeds in one cell."""
    return found.summary("seeds") + (f" (D3 by the {null_name(found.null)})" if found.null else "")


def verdict_text(group: Group) -> str:
    """The verdict over seeds in a few words: the field's, and the checks behind it."""

    def checks(answer: str) -> str:
        return ", ".join(c for c in ("D1", "D2", "D3") if group.answer(c) == answer)

    if group.outcome is Outcome.FAIL:
        failing = [set(get_policy(report.protocol).find(report.checks).deciding) for report in group.reports]
        found = set.intersection(*failing) or set.union(*failing)
        return f"not supported: {', '.join(sorted(found))}"
    if group.outcome is Outcome.INCONCLUSIVE:
        return f"inconclusive: {checks('inconclusive')}"
    if group.outcome is Outcome.MIXED:
        counts = Counter("not supported" if r.status == "fail" else r.status for r in group.reports)
        (first, most), *others = counts.most_common()
        return ", ".join(
            [f"{most} of {len(group.reports)} seeds {first}", *(f"{k} {outcome}" for outcome, k in others)]
        )
    return "trustworthy" if group.outcome is Outcome.PASS else group.status


def words(value: Value) -> str:
    """A value that is no quantity, as a person reads it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else num(value)
    if isinstance(value, Finding):
        return finding_text(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Statement):
        return sentence(value)
    if isinstance(value, tuple | list):
        return " ".join(map(words, value)) or "none"
    return str(value)


def means_over(counts: Sequence[int]) -> str:
    """How many seeds stand behind the numbers of a sentence."""
    if not counts or counts[-1] == 1:
        return "one seed each"
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"means over {several} seeds"


LISTS = {
    "names": names,
    "count": lambda v: str(len(v)),
    "list": lambda v: ", ".join(map(words, v)),
    "either": lambda v: " or ".join(map(words, v)),
    "seeds": lambda v: f"seed{'s' if len(v) > 1 else ''} {', '.join(map(str, v))}",
    "shared": lambda v: f"the seed{'s' if len(v) > 1 else ''} that all have ({', '.join(map(str, v))})",
    "given": lambda v: f"Seed{'s' * (len(v) > 1)} {', '.join(map(str, v))}. " if v else "",
    "means": means_over,
    "span": span_text,
}


class _Template(Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        if spec in LISTS:
            return str(LISTS[spec](value))
        if spec.startswith("after="):
            return spec.removeprefix("after=") + names(value) if value else ""
        if spec.startswith("or="):
            return "; ".join(map(words, value)) or spec.removeprefix("or=")
        if spec == "in=()":
            return f" ({'; '.join(map(words, value))})" if value else ""
        if spec == "%":
            return percent(value).replace("%", " %")
        if spec.startswith("num"):
            return num(value, int(spec[3:]))
        if spec[:1] == "+":
            return signed(value, int(spec[1:]))
        if spec.startswith("cell"):
            return self._with_interval(value, spec.removeprefix("cell"))
        if isinstance(value, tuple | list) and all(isinstance(v, Statement) for v in value):
            return "; ".join(map(sentence, value))
        return format(value, spec) if spec else words(value)

    def _with_interval(self, cell: Cell, spec: str) -> str:
        form, _, unit = spec.partition(" ")
        value = self.format_field(cell.value, form) + (f" {unit}" if unit else "")
        if cell.ends is None:
            return value
        if unit == "pp":
            return f"{value} {interval_of(*cell.ends, int(form[1:]))}"
        low, high = (self.format_field(end, form) for end in cell.ends)
        return f"{value} [{low}, {high}]"


_TEMPLATE = _Template()


def sentence(statement: Statement) -> str:
    return _TEMPLATE.vformat(SENTENCES.get(statement.name, statement.name), (), statement.fields)


def paragraph(statements: Sequence[Statement], stop: str = ".") -> str:
    """The statements in a row; one that ends with a full stop is a sentence of its own."""
    text = ""
    for each in map(sentence, statements):
        text += each if not text else f" {each}" if text.endswith(".") else f"; {each}"
    return text if not text or text.endswith(".") else text + stop
