"""Every number of the documentation comes from somewhere: from a file that a page is made of, from the code, from results/,
from a second computation, or from the record of what was measured one time (docs/data/measured.json).

`test_no_number_stands_alone` blanks all of these in the pages and finds what is left.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tests.credit.test_own_passes import SIGMA
from tests.device import on_hardware
from tests.e2e.pages import BLOCK, DOCS, PAGES, ROOT, blocks
from tests.e2e.test_examples import LONGEST
from tests.trust import census
from tests.trust.odd_networks import CASES

from creditscope import DiagnosticReport, certify
from creditscope.credit.credit_bridge import CreditBridge
from creditscope.measure import certificate, concentration, locality
from creditscope.measure.facts import GROUP
from creditscope.measure.nulls import DRAWS
from creditscope.measure.profile import MAX_WIDTH
from creditscope.measure.proof import differences as proof
from creditscope.measure.proof.kinks import SHORT
from creditscope.measure.proof.steps import ALONG
from creditscope.measure.reference import COSINE_EPS, SURE
from creditscope.protocol import DiagnosticThresholds
from creditscope.protocol.consistency import SLACK
from creditscope.protocol.wording import READINGS_DIFFER
from creditscope.record import MAX_ARRAYS, MAX_BYTES, MAX_HEADER
from creditscope.studies.grid import PAPER_SEEDS
from creditscope.studies.published import FACTOR, TOLERANCE

T = DiagnosticThresholds()
MEASURED = json.loads((DOCS / "data" / "measured.json").read_text())
MADE = {"audit.md", "field.md", "planned.md", "licences.md"}
"""Pages that are written whole, each by a command with tests of its own."""
REGION = re.compile(
    r"^<!-- (?:generated:|primary audit|archived verdicts|calibration|census|table of make bench|profile|scale|d3-simulation)"
    r"[^\n]*-->\n"
    r".*?^<!-- end[^\n]*-->$",
    re.MULTILINE | re.DOTALL,
)
"""Parts of a page that a command writes."""


@cache
def page(name: str) -> str:
    """A page on one line, without what is made and without blocks; `a.md` of docs/, or README.md."""
    path = ROOT / name if name == "README.md" else DOCS / name
    return " ".join(BLOCK.sub(" ", REGION.sub(" ", path.read_text())).split())


def whole(name: str) -> str:
    return (ROOT / name if name == "README.md" else DOCS / name).read_text()


def number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def near(told: str, value: float) -> bool:
    """Whether the value, rounded to the digits that are told, is the number."""
    mantissa, _, exponent = told.replace(",", "").lstrip("+-").partition("e")
    unit = 10 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(number(told) - value) <= 0.5000001 * unit


# ---- where numbers come from ----------------------------------------------------------------------------------------


@cache
def published() -> list[dict[str, str]]:
    with (ROOT / "audits" / "arxiv-2606.21126" / "published.csv").open() as file:
        return list(csv.DictReader(file))


def paper(quantity: str, method: str, setting: str = "", **more: str) -> dict[str, str]:
    wanted = {"quantity": quantity, "method": method, "setting": setting, **more}
    (found,) = (row for row in published() if all(row[k] == v for k, v in wanted.items()))
    return found


def mean_std(row: dict[str, str]) -> list[float]:
    return [float(row["value"]), float(row["std"])]


@cache
def runs() -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in (ROOT / "results" / "runs").glob("*.json")]


def run(prefix: str) -> dict[str, Any]:
    (found,) = (ROOT / "results" / "runs").glob(f"{prefix}*.json")
    made: dict[str, Any] = json.loads(found.read_text())
    return made


def bench(what: str) -> list[float]:
    """Best and median of a row of the table of make bench."""
    (cells,) = re.findall(rf"^\| {re.escape(what)} \|[^|]*\| ([\d.]+) \| ([\d.]+) \|", whole("performance.md"), re.M)
    return [float(cell) for cell in cells]


def of_test(path: str, test: str, *literals: str) -> Callable[[], Sequence[float]]:
    """Numbers that a test has in its code."""

    def found() -> list[float]:
        text = (ROOT / "tests" / path).read_text()
        body = re.search(
            rf"^(?:def {test}\b|@pytest[^\n]*\n(?:(?!^def ).)*?^def {test}\b).*?(?=^(?:def|class|@)|\Z)",
            text,
            re.M | re.S,
        )
        assert body is not None, test
        for literal in literals:
            assert re.search(rf"(?<![\w.]){re.escape(literal)}(?![\w.])", body[0]), f"{test} has no {literal}"
        return [number(literal.replace("_", "")) for literal in literals]

    return found


def printed(name: str, pattern: str) -> list[float]:
    """Numbers of the output that a page shows."""
    text = "\n".join(
        block.text for block in blocks(DOCS / name if name != "README.md" else ROOT / name) if block.kind == "text"
    )
    return [
        number(v) for found in re.findall(pattern, text, re.M) for v in ((found,) if isinstance(found, str) else found)
    ]


def report(name: str) -> Any:
    """What an example found: docs/data/NAME.json."""
    return DiagnosticReport.from_json(DOCS / "data" / f"{name}.json")


def margin(name: str) -> list[float]:
    (m,) = (m for m in report(name).facts.depth.margins if m.null == "matched")
    return [m.accuracy, m.null_accuracy, m.margin_pp, m.low_pp, m.high_pp]


def bp_margin(name: str) -> list[float]:
    m = report(name).facts.depth.bp_margin
    return [m.accuracy, m.margin_pp, m.null_accuracy]


def profile_margin(name: str) -> list[float]:
    m = report(name).facts.profile.margin
    return [m.pp, m.low_pp, m.high_pp]


def ep_course() -> list[float]:
    """EP at its defaults, seed 42: accuracy at epoch 10, largest growth and smallest ‖g_L‖/128 up to there."""
    (r,) = (
        r for r in runs()
        if r["spec"]["method"] == "ep" and r["spec"]["dataset"] == "cifar10" and r["spec"]["seed"] == 42
        and r["spec"]["epochs"] == 30 and r["spec"]["train_last"] is None
    )  # fmt: skip
    lines = r["trajectory"][1:11]
    assert not any({"D1", "D2"} & set(line["fired"]) for line in r["trajectory"])
    return [lines[-1]["accuracy"], max(x["growth"] for x in lines), min(x["g_per_sample"][-1] for x in lines) / 128,
        lines[-1]["rule"]["residual"]]  # fmt: skip


def ep_mean() -> list[float]:
    found = [
        r["trajectory"][-1]["accuracy"] for r in runs()
        if r["spec"]["method"] == "ep" and r["spec"]["dataset"] == "cifar10" and r["spec"]["epochs"] == 30
        and r["spec"]["train_last"] is None and not r["spec"]["penalty"]
    ]  # fmt: skip
    assert len(found) == 3
    return [float(np.mean(found))]


def gap_closed(decay: float) -> float:
    """Per cent of W - B that a decay takes away in 30 epochs of 391 steps whose rate falls from 1e-3 to 0 along a cosine."""
    steps = 30 * math.ceil(50_000 / 128)
    rates = 1e-3 * 0.5 * (1 + np.cos(np.pi * np.arange(steps) / steps))
    return float(100 * (1 - np.prod(1 - rates * decay)))


def jax_of(name: str) -> str:
    text = (ROOT / "examples" / name / "requirements.txt" if name else ROOT / "constraints.txt").read_text()
    (found,) = set(re.findall(r"^jax==(\S+)", text, re.M))
    return found


def certificate_calls(depth: int) -> int:
    """Backward passes of the update; a count that the update itself keeps would be put back."""
    import torch.nn.functional as F

    from creditscope.models import ResMLP

    torch.manual_seed(0)
    model = ResMLP(n_in=20, n_classes=4, width=64, depth=depth)
    calls, backward = [], torch.Tensor.backward

    def counted(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        calls.append(1)
        backward(self, *args, **kwargs)

    def update(net: Any, given: Any) -> None:
        F.cross_entropy(net(given[0]), given[1]).backward()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "backward", counted)
        assert certify(update, model, (torch.randn(16, 20), torch.randint(4, (16,)))).label == "backpropagation"
    return len(calls)


# ---- the guards: page, pattern, what its groups must be -------------------------------------------------------------------


def nudging_factors() -> list[float]:
    """The smallest and the largest ratio of the published nudging to ours, in the table of four rules."""
    rows = re.findall(r"^\| \w+ \|[^\n]*\| (-[\d.e-]+) \((-[\d.e-]+)\) \|[^|\n]*\| `", whole("credit-rules.md"), re.M)
    factors = [float(theirs) / float(ours) for ours, theirs in rows]
    assert len(factors) == 4
    return [min(factors), max(factors)]


def backend(row: str, column: str) -> float:
    with (DOCS / "data" / "backends.csv").open() as file:
        (found,) = (r for r in csv.DictReader(file) if row in r["backend"])
    return float(found[column])


def elsewhere(method: str, setting: str) -> float:
    return float(paper("accuracy", method, setting, table="Other architectures")["value"])


def large_models() -> list[float]:
    """d and L of both, n: from the sizes that the benchmark predicts."""
    found = re.findall(r"Large\(([\d_]+), ([\d_]+), ([\d_]+)\)", (ROOT / "benchmarks" / "scale.py").read_text())
    (n, *one), (same, *seventy) = ([float(v.replace("_", "")) for v in sizes] for sizes in found)
    assert n == same
    return [*one, *seventy, n]


def oldest_python() -> list[float]:
    (found,) = re.findall(r'^requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    return [float(found)]


TWO, OWN = "credit/test_weight_feedback.py", "credit/test_own_passes.py"


def of_draws() -> list[float]:
    """1,000 copies of a sample with 10 draws each."""
    copies, draws = of_test(OWN, "test_the_mean_over_ten_thousand_draws_is_the_gradient", "1000", "10")()
    return [copies * draws]


Guard = tuple[str, str, Callable[[], Sequence[float]]]


def missed(error: float) -> float:
    """Probability that a part of this relative size, missing in g, changes <g, v> by less than the tolerance: v has a part
    ALONG g and one that is drawn, of which a unit normal number falls on the missing part."""
    return 2 * ALONG * proof.GRADIENT / (error * math.sqrt(2 * math.pi))


N = r"([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)"
PRIMARY = {"table": "Primary audit"}
GUARDS: list[Guard] = [
    ("README.md", rf"random blocks do {N} points better",
     lambda: [-v for v in printed("README.md", r"depth utility: (-[\d.]+) \[")]),
    ("README.md", rf"You need Python {N} or newer", oldest_python),
    ("arrays.md", rf"agree to {N} relative in float32 and to {N} in float64",
     lambda: [*of_test("integrations/test_jax.py", "test_float32_gives_the_report_of_torch", "1e-5")(),
              *of_test("integrations/test_jax.py", "test_float64_gives_the_report_of_torch", "1e-10")()]),
    ("audit-a-paper.md", rf"tolerance: {N} \(accuracies, cosines, ρ\), {N} percentage points, {N} epochs, a factor of {N}",
     lambda: [TOLERANCE[""], TOLERANCE["pp"], TOLERANCE["epochs"], FACTOR]),
    ("board.md", rf"with seeds at {N}, {N} and {N} it reaches from {N} to {N}, and a claim of {N} is",
     lambda: [0.81, 0.75, 1.0, 0.53, 1.18, 0.97]),  # test_words has the interval
    ("census.md", rf"every norm of h_l and g_l agree to {N}", lambda: [census.TOLERANCE]),
    ("checks/c.md", rf"with the threshold {N}\]", lambda: [T.stability_drift_ceiling]),
    ("checks/d2.md", rf"In float16 the floor is {N}", lambda: [T.floor_for("float16")]),
    ("checks/d3.md", rf"far above chance \({N}\)", lambda: [1 / 10]),
    ("checks/d3.md", rf"published: frozen {N}, DFA {N}, FA {N}\)",
     lambda: [float(paper("accuracy", *key, **PRIMARY)["value"]) for key in (("dfa", "frozen blocks"), ("dfa",), ("fa",))]),
    ("credit-rules.md",
     rf"schedule\): accuracy {N}, growth at most {N}, ‖g_L‖/128 at least {N} at every epoch.*?mean residual {N} at",
     ep_course),
    ("credit-rules.md", rf"\(\+{N} against \+{N}; it sees the label", lambda: [
        run("b2181fc196")["report"]["facts"]["concentration"]["deep_mean"],
        float(paper("deep_cosine_all_layers", "cb", "30 epochs; λ = 0.01", table="Penalty")["value"])]),
    ("credit-rules.md", rf"\(a_L = g_L\): \+{N} with it, \+{N} without", lambda: [
        run("8bda634d8a")["report"]["facts"]["concentration"][k] for k in ("deep_mean", "deep_mean_without_exact")]),
    ("credit-rules.md", rf"DFA for the first {N} % of the epochs",
     lambda: [100 * CreditBridge.Options.model_fields["warmup"].default]),
    ("credit-rules.md", rf"Nudging is {N} to {N} times smaller", nudging_factors),
    ("credit-rules.md", rf"published EP \({N} ± {N} and ‖h_L‖ {N} to {N}, after", lambda: [
        *mean_std(paper("accuracy", "ep", **PRIMARY)), float(paper("last_h", "ep", **PRIMARY)["low"]),
        float(paper("last_h", "ep", **PRIMARY)["high"])]),
    ("depth-profile.md", rf"50,000 \+ 10,000 samples with d = 256 and L = 4 take about {N} times .*? and {N} times the memory",
     lambda: [bench("depth profile, 50,000 + 10,000 samples, d=256, L=4: time")[1],
              bench("depth profile, 50,000 + 10,000 samples, d=256, L=4: memory")[1]]),
    ("depth-profile.md", rf"`max_width` = {N} numbers", lambda: [MAX_WIDTH]),
    ("devices.md", rf"numbers before training \(within {N}\) and the facts of one network measured on both \(within {N}\)",
     lambda: [on_hardware.INITIAL, on_hardware.FACTS]),
    ("devices.md", rf"agree to {N}\. This cannot show",
     of_test("device/suite.py", "test_images_are_augmented_there_to_the_same_bits", "1e-4")),
    ("devices.md", rf"fp16 holds nothing below {N}", lambda: [torch.finfo(torch.float16).smallest_normal * 2**-10]),
    ("distributed.md", rf"every fact equals that of one process to {N}",
     lambda: [number(*re.findall(r"rel_tol=(\S+),", (ROOT / "tests/stream/test_ranks.py").read_text()))]),
    ("drawing.md", rf"Drawing takes {N} s per network", lambda: [backend("slimmed", "time (s)") / 24]),
    ("drawing.md", rf"under {N} kB and be ready within {N} s, and print on at most {N} sheets",
     lambda: [of_test("e2e/test_browser.py", "test_24_networks_are_small_and_few_pages_on_paper", "400_000")()[0] / 1000,
              of_test("e2e/test_browser.py", "test_200_networks_open_in_under_a_second", "1000")()[0] / 1000,
              *of_test("e2e/test_browser.py", "test_24_networks_are_small_and_few_pages_on_paper", "6")()]),
    ("fabricpc.md", rf"gradient to {N} at the stem and {N} at the last block",
     lambda: [report("fabricpc").facts.alignment.mean[k] for k in (0, -1)]),
    ("fabricpc.md", rf"found, from {N} down to {N};",
     lambda: [report("fabricpc").facts.profile.twin[k].accuracy for k in (0, -1)]),
    ("glossary.md", rf"aggregations of Γ within {N} of zero, and no cosine of {N} or more",
     lambda: [concentration.NEAR_ZERO, concentration.NEAR_ZERO * concentration.LEAST_LAYERS]),
    ("locality.md", rf"A change counts from {N} floors on, and from {N} on in float64 \({N} in float32",
     lambda: [certificate.ABOVE, locality.SMALLEST[torch.float64], locality.SMALLEST_NATIVE]),
    ("locality.md", rf"noise of {N} % behind a later", lambda: [100 * locality.STATE_NOISE]),
    ("locality.md", rf"L: {N} calls for backpropagation in a ResMLP with four blocks, {N} with eight",
     lambda: [certificate_calls(4), certificate_calls(8)]),
    ("pcx.md", rf"Accuracy {N}, matched null {N}: a margin of {N} pp whose interval, \[{N}, {N}\], contains",
     lambda: margin("pcx")),
    ("pcx.md", rf"grow by at most {N} from layer", lambda: [report("pcx").facts.scale.growth]),
    ("pcx.md", rf"profile margin is {N} pp \[{N}, {N}\]", lambda: profile_margin("pcx")),
    ("fabricpc.md", rf"Accuracy {N}, matched null {N}: {N} pp \[{N}, {N}\]\. "
     rf"Backpropagation reaches {N} in the same graph, {N} pp above its own null of {N},",
     lambda: [*margin("fabricpc"), *bp_margin("fabricpc")]),
    ("fabricpc.md", rf"\(C at {N}: drift", lambda: [report("fabricpc").facts.stability.deepest]),
    ("fabricpc.md", rf"profile margin is {N} pp \[{N}, {N}\]", lambda: profile_margin("fabricpc")),
    *[(f"{name}.md", rf"to the verdict the example takes less than {N} s", lambda: [LONGEST]) for name in ("pcx", "fabricpc")],
    ("performance.md", rf"\*\*its {N} steps\*\*", lambda: [math.ceil(50_000 / 128)]),
    ("performance.md", rf"An epoch is one of CIFAR-10, {N} steps", lambda: [50_000 // 128]),
    ("performance.md", rf"That is {N} passes where plain code has {N}, or {N} by counted",
     lambda: [(p := 8 + 1 + 4 + 1 + 3 / 16), 12, p / 12]),
    ("stream.md", rf"wrong by {N} % in one sample only passes with a probability of about {N} %, by {N} % of {N} %",
     lambda: [10, round(100 * missed(0.1)), 30, round(100 * missed(0.3))]),
    ("quickstart.md", rf"layer 0 is near zero and the others are about {N}:",
     lambda: [float(np.mean(printed("quickstart.md", r"^[123] +[\d.]+ +[\d.]+ +([+-][\d.]+) ")))]),
    ("records.md", rf"Limits: {N} GiB in the file and unpacked, {N} arrays, five dimensions, a header of {N} MiB",
     lambda: [MAX_BYTES / 2**30, MAX_ARRAYS, MAX_HEADER / 2**20]),
    ("records.md", rf"fuzz.py 2000 900 record` tries {N} damaged",
     lambda: [number(*re.findall(r"fuzz\.py (\d+) 900 record", whole("records.md")))]),
    ("rules/bp.md", rf"Published: {N} ± {N} on", lambda: mean_std(paper("accuracy", "bp", **PRIMARY))),
    ("rules/fa.md", rf"Published: {N} ± {N} on", lambda: mean_std(paper("accuracy", "fa", **PRIMARY))),
    ("rules/dfa.md", rf"Published: {N} ± {N}, ‖h_L‖ of {N} to {N} \(", lambda: [
        *mean_std(paper("accuracy", "dfa", **PRIMARY)), float(paper("last_h", "dfa", **PRIMARY)["low"]),
        float(paper("last_h", "dfa", **PRIMARY)["high"])]),
    ("rules/ep.md", rf"published EP \({N} ± {N} after", lambda: mean_std(paper("accuracy", "ep", **PRIMARY))),
    ("rules/ep.md", rf"ours \({N} after 30\)", ep_mean),
    ("rules/fgrad.md", rf"mean over {N} draws", of_draws),
    ("rules/nodepert.md", rf"mean over {N} draws at σ = {N} is", lambda: [*of_draws(), SIGMA["nodepert"]["sigma"]]),
    *[(f"rules/{name}.md", rf"BioTorch's [^.]*? to {N}", of_test(TWO, "test_updates_are_those_of_biotorchs_layers", "1e-5"))
      for name in ("brsf", "fa-weights", "frsf", "usf")],
    ("rules/wm.md", rf"is above {N} after {N} phases", of_test(TWO, "test_the_mirror_aligns_with_the_weights", "0.98", "300")),
    ("rules/epc.md", rf"\(test, {N} steps\)", of_test(OWN, "smooth", "250")),
    ("rules/ff.md", rf"after {N} steps, and predicts", of_test(OWN, "test_goodness_separates_and_predicts", "150")),
    ("rules/pc.md", rf"written with autograd, to {N}; at β = {N} the credit", lambda: [
        *of_test(OWN, "test_parameters_learn_from_the_prediction_errors_after_the_stated_steps", "1e-6")(),
        *of_test(OWN, "test_under_a_small_loss_the_energy_gives_backpropagation", "1e-4")()]),
    ("rules/fgrad.md", rf"√\(2/πd\), {N} at d = {N}\.", lambda: [math.sqrt(2 / math.pi / 256), 256]),
    ("rules/frozen.md", rf"ResMLP: about {N} with .*?ViT-Mini {N} by DFA credit and {N} by BP", lambda: [
        float(paper("accuracy", "dfa", "frozen blocks", **PRIMARY)["value"]),
        *(elsewhere(m, "ViT-Mini; frozen blocks") for m in ("dfa", "bp"))]),
    ("rules/frozen.md", rf"frozen blocks reach {N} and BP {N} \(published", lambda: [
        elsewhere("bp", s) for s in ("StudentNet; frozen blocks", "StudentNet")]),
    ("rules/kp.md", rf"λ = 0.01 closes {N} % of it in 30 epochs of CIFAR-10 \(η = 1e-3, cosine schedule\); λ' = 0.5 closes {N} %",
     lambda: [gap_closed(0.01), gap_closed(0.51)]),
    ("scale.md", rf"d = {N} and L = {N}, the 70 B model one with d = {N} and L = {N}\. .*? n = {N} tokens",
     large_models),
    ("stream.md", rf"cross-entropy is so small \({N}\)", lambda: [SURE]),
    ("stream.md", rf"float64 copy of the network \| refused above {N}", lambda: [proof.GRADIENT]),
    ("stream.md", rf"a layer is refused above {N} %, or where two lengths of the step agree with each other and "
     rf"differ from \$g_l\$ by more than {N}\. Between {N} and {N} % a warning",
     lambda: [100 * proof.GRADIENT_FLOAT32, proof.GRADIENT, proof.GRADIENT, 100 * proof.GRADIENT_FLOAT32]),
    ("stream.md", rf"leaves an error above {N}, one of two short steps \({N} and {N} of .*?\) must agree to {N} %",
     lambda: [proof.GRADIENT, *SHORT, 100 * proof.GRADIENT_FLOAT32]),
    ("studies/cifar100.md", rf"Chance is {N}", lambda: [1 / 100]),
    ("studies/early.md", rf"layer 0 has {N} to {N} from the start", lambda: [
        float(paper("cosine[0]", "dfa", table="Course of DFA", epoch="5")[k]) for k in ("low", "high")]),
    ("studies/temporal.md", rf"D1 at epoch {N} to {N} of {N}\.", lambda: [
        *(float(paper("d1_epoch", "dfa", table="Course of DFA")[k]) for k in ("low", "high")), 100]),
    ("trust.md", rf"hold {N} networks that are easy", lambda: [len(CASES)]),
    ("trust.md", rf"float64 beyond {N} \|", lambda: [10.0 ** math.floor(math.log10(math.sqrt(torch.finfo(torch.float64).max)))]),
]  # fmt: skip


@pytest.mark.parametrize("guard", GUARDS, ids=lambda g: f"{g[0]} {g[1][:40]}")
def test_a_number_is_that_of_its_source(guard):
    name, pattern, source = guard
    found = re.search(pattern, page(name))
    assert found is not None, f"{name} no longer says {pattern}"
    expected = source()
    assert len(expected) == len(found.groups())
    for told, value in zip(found.groups(), expected, strict=True):
        assert near(told, value), f"{name} says {told}, its source {value}"


@pytest.mark.parametrize("record", MEASURED, ids=lambda r: f"{r['page']} {r['by'][:30]}")
def test_a_number_of_one_time_is_that_of_the_record(record):
    assert record["by"]
    for words in record["says"]:
        assert words in page(record["page"]), f"{record['page']} no longer says {words!r} of docs/data/measured.json"


def test_the_four_rules_under_a_penalty_are_those_of_the_runs_and_of_the_paper():
    rows = re.findall(
        r"^\| (\w+) \| (\S+) \((\S+) ± (\S+)\) \| (\S+) \((\S+)\) \| (\S+) \|[^|]*\|[^|]*\| (\S+) \((\S+)\) \| `(\w+)` \|$",
        whole("credit-rules.md"), re.M,
    )  # fmt: skip
    assert [row[0] for row in rows] == ["SB", "FA", "CB", "DFA"]
    for rule, acc, p_acc, p_std, deep, p_deep, without, loss, p_loss, key in rows:
        r, setting = run(key), "30 epochs; λ = 0.01"
        found = r["report"]["facts"]["concentration"]
        assert (r["spec"]["method"], r["spec"]["seed"], r["spec"]["epochs"], r["spec"]["penalty"]) == (
            rule.lower(),
            42,
            30,
            0.01,
        )
        assert near(acc, r["trajectory"][-1]["accuracy"])
        assert near(deep, found["deep_mean"])
        assert near(without, found["deep_mean_without_exact"])
        assert near(loss, r["trajectory"][-1]["train_loss"] - r["trajectory"][1]["train_loss"])
        stated = mean_std(paper("accuracy", rule.lower(), setting, table="Penalty"))
        assert [number(p_acc), number(p_std)] == stated
        assert number(p_deep) == float(paper("deep_cosine_all_layers", rule.lower(), setting, table="Penalty")["value"])
        assert number(p_loss) == float(paper("loss_change", rule.lower(), setting)["value"])


@pytest.mark.parametrize("name", ["pcx", "fabricpc"])
def test_what_an_example_prints_is_what_it_found(name):
    text = [" ".join(line.split()) for line in report(name).to_text(long=True).splitlines()]
    shown = [block for block in blocks(DOCS / f"{name}.md") if block.kind == "text"]
    assert len(shown) == 4
    for block in shown:
        for line in block.text.splitlines():
            assert " ".join(line.split()) in text, f"{name}.md shows {line!r}"


def test_versions_of_jax_are_those_of_the_pins():
    sizes = (DOCS / "data" / "install-size.csv").read_text()
    told = dict(re.findall(r"(extra `jax`|of pcx|of FabricPC) \(jax ([\d.]+)\)", sizes))
    assert told == {"extra `jax`": jax_of(""), "of pcx": jax_of("pcx"), "of FabricPC": jax_of("fabricpc")}
    for name, spelled in (("pcx", "pcx"), ("fabricpc", "FabricPC")):
        (version,) = re.findall(rf"^{name}==(\S+)", (ROOT / "examples" / name / "requirements.txt").read_text(), re.M)
        assert f"with {spelled} {version}, jax {jax_of(name)} and creditscope" in page(f"{name}.md")


# ---- nothing is left ----------------------------------------------------------------------------------------------------

CONSTANTS: list[tuple[str, bool]] = [
    (r"(?:/ |/|\b(?:of|size|by|batch|at|averaged over|disjoint and have) )128(?![\w.]|,\d)", GROUP == 128),
    (r"(?:more than |growth > |[\d.] < |pass |below |D1 |sides of )50(?:-fold)?\b", T.h_norm_explosion_ratio == 50),
    (r"\b1e-7\b", T.g_norm_floor == 1e-7),
    (r"\b1e-8\b", COSINE_EPS == 1e-8),
    (
        r"(?:between 1 and |1 or |1 to |at 1 and |-|< |"
        r"(?:than|than the|against the|(?:null|it) by|least|within|above|below|under|contains|of) )"
        r"2 (?:pp|points|percentage points)\b",
        T.frozen_acc_margin_pp == 2,
    ),
    (r"stability > 0\.30", T.stability_drift_ceiling == 0.30),
    (r"(?:more than |above |limit )0\.6\b|(?:more than |above |carries |over )60 %", T.concentration_share == 0.6),
    (r"redrawn,? 20 times", DRAWS == 20),
    (r"by more than 0\.02", READINGS_DIFFER == 0.02),
    (r"\b5 pp of slack", SLACK == 0.05),
    (r"within ±0\.05 of 0", concentration.NEAR_ZERO == 0.05),
    (r"cosine of 0\.15 or more", math.isclose(concentration.NEAR_ZERO * concentration.LEAST_LAYERS, 0.15)),
    (rf"seeds? {', '.join(map(str, PAPER_SEEDS))}", True),
    (r"\b(?:95|99\.9) %", True),  # the intervals; tests/protocol and tests/measure recompute them
    (r"\((?:1\.0|1\.1)\)|[Ff]rom 1\.0 to 1\.1|before 1\.1|under 1\.1|\b1\.1\)", True),  # versions of the protocol
    (r"label -100", torch.nn.CrossEntropyLoss().ignore_index == -100),
    (r"SHA-256|CIFAR-100\b|Apache-2\.0|Apache License 2\.0", True),  # names
    (r"(?:d ?= ?|width )256\b|L ?= ?4\b|batch(?:es)? (?:of )?(?:128|250)|\b(?:100|30|25) epochs", True),
    (r"\b256 (?:evaluation )?samples", True),
]
"""(what may stand anywhere, whether the code still says so). The last four are names and settings, not measurements."""
SETTINGS = (
    "about 1,000 test samples", "1,024 samples of a small network", "8 batches of 128 are best", "at least 128 samples",
    "at 0 % and 100 %",
    "under 40 lines", "20,000 samples", "raised to 20,000", "some on 10,000 of the training samples", "50,000 + 10,000 samples",
    "2 × 256 tokens", "board of 1,000 entries", "states of 256 samples", "for 256 samples", "over 256 samples", "Γ ≥ 0.99",
    "a head of 100,000 classes", "can handle 100,000 of them", "+10 % means", "1e-3 of $g_l$", "relative 1e-4", "width of 64",
    "shows as 0.1 to 1", "about 1e-16", "absence as 1e-16", "at batch 128", "λ = 1e-2", "η = 0.01", "32 CIFAR-10 test images",
    "averaged over 256", "¼, 1 and 4 times", "the loss over 50,257 classes",
    "Python 3.11", "within 3 pp of the threshold", "Blue, about 1e-16", "(beyond ±100 pp, or an accuracy outside 0 to 1)",
)  # fmt: skip
"""Sizes that were chosen, advice, and orders of magnitude: nothing that a change of the code could make wrong."""
LOOKS_MEASURED = re.compile(
    r"(?<![\w./])[-+]?(?:\d[\d,]*\.\d+|\d[\d,]*)(?:e[-+]?\d+)?(?:\s?(?:%|s\b|ms\b|MB|kB|GB|pp\b|times\b|hours\b|lines\b|points\b))?"
)


ELSEWHERE = [
    (
        "depth-profile.md",
        r"by 2\.1 pp on average.*?spread 0\.7\)|In 9 of 196 networks.*?further away|it is 0\.5 pp too low.*?below -2 pp",
    ),
    (
        "depth-profile.md",
        r"In none of the 196 networks|about 1 pp on 4,000 test samples|estimate within 2 pp of it|lies within 2 pp of it",
    ),
    ("credit-rules.md", r"the two differ by up to 13 %"),  # test_words, and the next three
    ("README.md", r"reaches Γ = [\d.]+ on CIFAR-10 and an accuracy of [\d.]+, twice"),
    ("README.md", r"and accuracy is [\d.]+\."),
    ("devices.md", r"CIFAR-10: \d+ MB of bytes, and \d+ MB padded"),
    ("pcx.md", r"with pcx \S+, jax \S+ and"),  # test_versions_of_jax_are_those_of_the_pins
    ("fabricpc.md", r"with FabricPC \S+, jax \S+ and"),
    ("reliability.md", r"\| `make \w+` \|[^|]*\|[^|]*\|[^|]*\|"),  # rows that the commands write
]
"""Guarded by other tests: the first two by tests/trust/test_calibration.py."""


def left(name: str) -> list[str]:
    text = page(name)
    for pattern in (pattern for n, pattern in ELSEWHERE if n == name):
        assert re.search(pattern, text), f"{name} no longer says {pattern}"
        text = re.sub(pattern, " … ", text)
    spans = [m.span() for n, pattern, _ in GUARDS if n == name for m in [re.search(pattern, text)] if m]
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + " … " + text[end:]
    for record in MEASURED:
        for words in record["says"] if record["page"] == name else ():
            text = text.replace(words, " … ")
    for words in SETTINGS:
        text = text.replace(words, " … ")
    text = re.sub(
        r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|<!--.*?-->|<sub>|\barXiv \S+|\b(?:19|20)\d\d\b", " ", text
    )
    for pattern, holds in CONSTANTS:
        assert holds, pattern
        text = re.sub(pattern, " … ", text)
    found = [
        m for m in LOOKS_MEASURED.finditer(text) if re.search(r"\.\d|\d\d\d|\d,\d|e[-+]?\d|%|s$|B$|pp$|points$", m[0])
    ]
    return [" ".join(text[max(0, m.start() - 50) : m.end() + 30].split()) for m in found]


PROSE = sorted({p.name if p.parent == ROOT else str(p.relative_to(DOCS)) for p in PAGES} - MADE - {"CONTRIBUTING.md"})


@pytest.mark.parametrize("name", PROSE)
def test_no_number_stands_alone(name):
    """If this fails, a number has no source: take it from a file, add a guard above, or record it in docs/data/measured.json."""
    assert not left(name)
