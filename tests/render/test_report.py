"""A report as text, Markdown and JSON: the verdict is there, nothing from outside becomes markup, nothing is lost."""

from __future__ import annotations

import html
import json
import math
import re
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
from markdown_it import MarkdownIt
from tests.refusals import refusal

from creditscope import CreditscopeError, DiagnosticReport, diagnose
from creditscope.credit import BP, DFA
from creditscope.measure.binomial import evaluation
from creditscope.measure.facts import Depth, Facts
from creditscope.models import ResMLP
from creditscope.protocol import DiagnosticThresholds, judge
from creditscope.protocol.report import make_report
from creditscope.protocol.wording import in_percent
from creditscope.render.html.network import Network
from creditscope.render.html.page import network_html
from creditscope.render.markdown import escape
from creditscope.render.numbers import accuracy, interval_of, mark, num, percent, share, signed, span_of
from creditscope.render.report import renderable
from creditscope.render.text import to_text
from creditscope.stream.interface import InterfaceStream

from ..protocol.factory import make_aggregate, make_facts, margin
from ..stream.nets import D_IN, C, D, batch, shaken

ESC = "\x1b"


def report(spoil: bool = False, **options: Any) -> DiagnosticReport:
    model = ResMLP(D_IN, C, width=D, depth=2)
    shaken(model)
    if spoil:
        with torch.no_grad():
            model.out_head.weight[0, 0] = math.nan  # type: ignore[operator]
    given = [batch((D_IN,), n=128, seed=k) for k in range(2)]
    rule = DFA()
    rule.setup(InterfaceStream(model.eval(), given[0][0][:3]), C, torch.Generator().manual_seed(0))
    options = {
        "credit": rule,
        "headline_acc": [0.5, 0.52],
        "headline_on": "other data",
        "frozen_baseline_acc": {"matched": [0.3, 0.31]},
        **options,
    }
    return diagnose(model, given, **options)


CASES: dict[str, dict[str, Any]] = {
    "pass": {},
    "fail": {"frozen_baseline_acc": {"matched": [0.5, 0.52], "bp": [0.55, 0.56]}},
    "no null": {"frozen_baseline_acc": None},
    "nothing given": {"frozen_baseline_acc": None, "headline_acc": None, "credit": None},
    "other policy": {"protocol": "four-diagnostic"},
    "diverged": {"spoil": True},
    "exact": {"credit": BP()},
    "full": {"level": "full"},
}


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_text_begins_and_ends_with_the_verdict_line_and_is_plain_when_piped(name, long, capsys):
    made = report(**CASES[name])
    print(made.to_text(long=True) if long else made)
    printed = capsys.readouterr().out
    lines = printed.rstrip("\n").splitlines()
    assert (lines[0], lines[-1]) == (made.verdict.line, made.verdict.line)
    assert re.fullmatch(
        r"VERDICT: (trustworthy|needs walk-back|inconsistent|inconclusive|incomplete).*", made.verdict.line
    )
    assert ESC not in printed
    assert made.protocol in printed


MODE_1: dict[str, Any] = {
    "growth": 2043.0,
    "g_128": 4.2e-9,
    "cosines": (0.42, 0.006, -0.015, -0.004, -0.004),
    "depth": Depth(margins=(margin(-4.3, interval=(-6.0, -3.0)),)),
}


def short(made: DiagnosticReport, width: int = 100) -> list[str]:
    return to_text(renderable(made), width).splitlines()


@pytest.mark.parametrize("facts", [{}, {"cosines": (0.3,) * 5}, MODE_1, {**MODE_1, "growth": 2.0}, {"stability": None}])
def test_the_short_report_of_four_blocks_is_25_lines_at_width_100_a_line_per_check_and_per_layer(facts):
    made = judged(make_facts(**facts))
    lines = short(made)
    assert len(lines) <= 25
    assert max(map(len, lines[1:-1])) <= 100
    for check in made.verdict.checks:
        (line,) = [line for line in lines if line.startswith(f"{check.id} ")]
        assert f"{check.name}: " in line
        assert mark(check.answer, check.id) in line
    assert [line.split()[0] for line in lines if line[:1].isdigit()] == ["0", "1", "2", "3", "4"]
    between = [line for line in lines[1:-1] if line]
    assert len(between) == len(set(between))
    words = [f"{a} {b} {c} {d}" for line in between if not line[0].isdigit() for a, b, c, d in fours(line.split())]
    assert len(words) == len(set(words)), [w for w in words if words.count(w) > 1]  # nothing is said twice


def fours(words: list[str]) -> list[tuple[str, ...]]:
    return list(zip(words, words[1:], words[2:], words[3:], strict=False))


def judged(facts: Facts, **options: Any) -> DiagnosticReport:
    """Judged as it is, with ten classes and the accuracy of its margin."""
    seen = facts.model_copy(update={"evaluation": evaluation(0.3, 1024, 10, None)})
    verdict = judge(seen, DiagnosticThresholds())
    return DiagnosticReport(headline_acc=(0.30, 0.31), facts=seen, verdict=verdict, method_name="dfa", **options)


def test_an_interval_beyond_what_is_possible_is_printed_cut():
    assert interval_of(47.0, 112.0) == "[+47.0, +100.0], cut at the possible range"
    assert interval_of(-130.0, 30.0) == "[-100.0, +30.0], cut at the possible range"
    assert interval_of(-100.0, 100.0) == "[-100.0, +100.0]"
    assert interval_of(None, None) == ""
    assert span_of(0.531, 1.176) == "0.531 to 1.000, cut at the possible range"
    assert span_of(-0.2, 0.4) == "0.000 to 0.400, cut at the possible range"
    assert span_of(-0.2, 0.4, least=-1.0) == "-0.200 to 0.400"
    wide = judged(make_facts(depth=Depth(margins=(margin(79.5, interval=(47.0, 112.0)),))))
    for told in (wide.to_text(), wide.to_text(long=True), wide.to_markdown()):
        assert "[+47.0, +100.0], cut at the possible range" in " ".join(told.replace("\\", "").split())
        assert "112" not in told
    assert wide.checks["D3"].interval == (47.0, 112.0)  # stored as it is


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (num(0.9986, 2), "0.999"),
        (num(0.9949, 2), "0.99"),
        (num(-0.9996), "-0.9996"),
        (num(0.99996), "0.99996"),
        (num(1 - 1e-12, 2), "1"),  # rounding
        (num(1.0, 2), "1"),
        (num(1.004, 2), "1"),  # no share
        (signed(0.9999), "+0.9999"),
        (signed(-1.0), "-1.000"),
        (signed(0.998, 2), "+0.998"),
        (in_percent(0.99997), "99.997 %"),
        (in_percent(1.0), "100.00 %"),
        (signed(0.98, 1), "+1.0"),  # percentage points
        (share(0.99972), "0.9997"),
        (share(1.0), "1.000"),
        (share(0.25), "0.250"),
        (accuracy((0.9998,)), "0.9998"),
        (percent(0.9969), "99.7%"),
        (percent(0.994), "99%"),
        (percent(1.0), "100%"),
        (num(None), "–"),
        (num(math.nan), "NaN"),
        (num(math.inf), "inf"),
        (num(-math.inf), "-inf"),
        (num(0.0), "0"),
        (num(4.2e-9), "4.20e-09"),
        (num(0.0123456), "0.0123"),
        (num(104.4), "104"),
        (num(1234.5), "1234"),
        (num(18000.0), "1.80e+04"),
        (num(-0.5), "-0.5"),
        (signed(0.25), "+0.250"),  # the sign is always there
        (signed(-0.25), "-0.250"),
        (signed(None), "–"),
        (signed(math.nan), "NaN"),
        (accuracy((0.306,)), "0.306"),
        (accuracy((0.30, 0.32, 0.34)), "0.320 ± 0.020 (n=3)"),
        (accuracy(()), "–"),
    ],
)
def test_numbers_look_the_same_everywhere_and_what_is_below_one_does_not_read_one(told, text):
    assert told == text


def test_the_terms_of_a_margin_give_the_margin():
    """27.65 % - 28.20 % is -0.55 pp; 27.7 % - 28.2 % is not."""
    made = make_report(make_facts(), headline_acc=0.2765, frozen_baseline_acc={"matched": 0.282}, n_test=4000)
    assert "to matched null: 27.65 % - 28.20 % = -0.6 pp" in " ".join(made.to_text(long=True).split())
    assert "accuracy 27.65 % - null 28.20 % = -0.55 pp < 2 pp" in made.checks["D3"].sentence


def test_the_short_report_tells_numbers_thresholds_and_what_s1_decides():
    lines = short(judged(make_facts(**MODE_1)))
    assert "accuracy 0.305 ± 0.007 (n=2), Γ +0.081 (this network): S1 (above chance, Γ > 0) accepts" in lines
    assert "D1  ✗ fail  scale stability: growth 2,040 > 50; the stream explodes within one block" in lines
    assert "D2  ✗ fail  reference validity: ‖g_L‖/128 4.2e-09 < 1e-07; at the numerical floor" in lines
    assert "D3  ✗ fail  depth utility: -4.3 [-6.0, -3.0] pp over random blocks (matched null, n=3), 2 needed" in lines
    assert "Γ does not count (D2): clamped or not, it is an angle to a gradient that has all but vanished" in lines
    assert (
        short(judged(make_facts()))[2]
        == "accuracy 0.305 ± 0.007 (n=2), Γ not measured: S1 (above chance, Γ > 0) cannot decide"
    )
    undecided = short(judged(make_facts(growth=49.0, growth_by_group=(40.0, 58.0))))
    assert any(line.startswith("D1  ? inconclusive  scale stability: growth 49 [") for line in undecided)


@pytest.mark.parametrize(("stability", "words"), [(0.9, "• high"), (0.1, "• low")])
def test_c_decides_nothing_and_never_reads_as_a_failure_or_a_success(stability, words):
    made = judged(make_facts(stability=stability))
    page = network_html(Network(made))
    (row,) = re.findall(r'<tr><th scope="row">C direction.*?</tr>', page)
    (line,) = [line for line in short(made) if line.startswith("C ")]
    (told,) = [line for line in made.to_markdown().splitlines() if line.startswith("| C |")]
    for text in (row, line, told):
        assert words in text
        assert not re.search(r"\b(pass|fail)\b|[✓✗]", text)
    assert made.checks["C"].answer == ("fail" if stability > 0.3 else "pass")  # as it is stored


def test_d2_says_why_gamma_is_withheld_where_clamp_and_no_clamp_agree():
    made = judged(make_facts(**MODE_1))
    assert made.facts.aggregate is not None
    assert made.facts.aggregate.clamped_128 == made.facts.aggregate.headline
    assert (
        "Γ is withheld even where a clamped and an unclamped cosine print the same number" in made.checks["D2"].sentence
    )


def test_text_is_coloured_in_a_terminal_and_says_the_same(monkeypatch):
    monkeypatch.setenv("COLUMNS", "118")
    made = report()
    plain = str(made)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = str(made)
    assert ESC in coloured
    without = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in without.splitlines()] == plain.splitlines()


@pytest.mark.parametrize("name", CASES)
def test_markdown_holds_the_verdict_every_check_and_every_layer(name):
    made = report(**CASES[name])
    text = made.to_markdown()
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    plain = re.sub(r"<[^>]+>", "", rendered)
    assert f"<strong>{made.verdict.line}</strong>" in rendered
    assert made.protocol in plain
    for check in made.verdict.checks:
        assert f"<td>{check.id}</td>\n<td>{check.name}</td>" in rendered
    for layer in range(made.facts.stream.depth + 1):
        assert f"<td>{layer}</td>" in rendered


def structure(text: str) -> list[str]:
    """What a Markdown reader makes of the text: every element, without the words in it."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    kinds = []
    for token in tokens:
        kinds.append(token.type)
        kinds += [child.type for child in token.children or [] if child.type not in ("text", "text_special")]
    return kinds


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "**bold** _it_ ~~gone~~ `code`",
    "[click](javascript:alert(1)) ![i](http://x/y.png)",
    "<http://evil.example>",
    "a | b | c",
    "first\n\n# second\n\n- third",
    "x\n---\ny",
    "---",
    "- item",
    "+ item",
    "1. item",
    "2) item",
    "# heading",
    "> quoted",
    "    indented",
    "\\",
    "\\*not escaped twice\\*",
    "&lt;b&gt; &#60;b&#62;",
    "```\ncode\n```",
    "[x]: http://evil.example",
    "~~~",
    "===",
    "***",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_strings_stay_words_in_markdown(text):
    benign = report(method_name="m", notes="n", checkpoint="c", evidence={"temporal": "e"}).to_markdown()
    hostile = report(method_name=text, notes=text, checkpoint=text, evidence={"temporal": text}).to_markdown()
    assert structure(hostile) == structure(benign)
    assert "<" not in hostile  # some readers are laxer than CommonMark about what opens a tag


@pytest.mark.parametrize("text", ["a<b>&c", "x*y_z", "50 % of [B]", "#1 | #2", "back\\slash", "1. one", "- dash"])
def test_escaped_words_read_as_they_were(text):
    shown = re.sub(r"</?p>", "", MarkdownIt("commonmark").render(escape(text))).strip()
    assert html.unescape(shown) == text


def test_hostile_strings_bring_no_control_codes_or_markup_into_the_text():
    text = f"{ESC}[31mred{ESC}[0m\r\b\x07 [bold]x[/bold] {ESC}]0;title\x07"
    printed = str(report(method_name=text, notes=text, checkpoint=text, evidence={"temporal": text}))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\x9b]", printed)
    assert "[bold]x[/bold]" in printed


def test_a_verdict_smuggled_in_by_a_name_is_never_a_line_of_its_own():
    made = report(method_name="good\nVERDICT: trustworthy", notes="n\nVERDICT: trustworthy", frozen_baseline_acc=0.5)
    for text in (str(made), made.to_text(long=True)):
        verdicts = [line for line in text.splitlines() if line.startswith("VERDICT:")]
        assert verdicts == [made.verdict.line] * 2  # the first line and the last


@pytest.mark.parametrize("name", CASES)
def test_json_round_trip_keeps_everything(name, tmp_path):
    made = report(**CASES[name], method_name="Γ ≥ 0 \u2028 \x00", notes='"quoted"')
    text = made.to_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text() == text
    read = DiagnosticReport.from_json(tmp_path / "report.json")
    assert read.to_json() == text
    assert str(read) == str(made)
    assert read.status == made.status
    if name != "diverged":  # NaN is not equal to itself
        assert read == made

    def no_constant(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    assert json.loads(text, parse_constant=no_constant) == made.to_dict()


def test_non_finite_numbers_come_back_as_numbers(tmp_path):
    made = report(spoil=True)
    made.to_json(tmp_path / "report.json")
    read = DiagnosticReport.from_json(tmp_path / "report.json")
    assert math.isnan(read.facts.reference.per_sample[-1])
    assert made.to_dict()["facts"]["reference"]["per_sample"][-1] == "NaN"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"schema_version": 99}', "upgrade creditscope"),
        ("{}", "not a creditscope report"),
        ("[]", "not a creditscope report"),
        ("", "not valid JSON"),
        ('{"schema_version": 1, "a\\nb": 2}', "not a creditscope report"),
    ],
)
def test_files_that_are_no_report_are_one_line(tmp_path, content, says):
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(CreditscopeError, match=says) as caught:
        DiagnosticReport.from_json(tmp_path / "report.json")
    assert "\n" not in str(caught.value)


def test_report_is_immutable():
    with pytest.raises(Exception, match="frozen"):
        report().notes = "changed"


def test_gamma_over_fewer_layers_says_so_everywhere():
    made = make_facts(cosines=(1.0,) * 5, aggregate=make_aggregate(1.0))
    assert made.alignment is not None
    half = made.alignment.model_copy(
        update={"mean": (None, None, 1.0, 1.0, 1.0), "measurable": (0, 0, 9, 9, 9), "std": (None, None, 0.0, 0.0, 0.0)}
    )
    whole, part = (make_report(f, headline_acc=[0.5]) for f in (made, made.model_copy(update={"alignment": half})))
    page, other = (network_html(Network(r)) for r in (part, whole))
    for text in (str(part), part.to_text(long=True), part.to_markdown().replace("\\", ""), page):
        lines = [line for line in text.splitlines() if "+1.000" in line and ("Γ" in line or "headline" in line)]
        assert lines
        assert all("+1.000 (3 of 5 layers)" in line for line in lines)
    for text in (str(whole), whole.to_markdown(), other):
        assert "of 5 layers" not in text
    withheld = make_report(make_facts(cosines=(1.0,) * 5, g_128=1e-12).model_copy(update={"alignment": half}))
    assert "(raw +1.000 (3 of 5 layers))" in " ".join(withheld.to_text(long=True).split())


def test_a_report_shows_itself_in_a_notebook_as_a_figure_and_as_a_frame():
    made = report(method_name="mine", level="full")
    card = made._repr_html_()
    for words in (made.verdict.line, *(c.sentence for c in made.verdict.checks), "<svg", 'role="img"'):
        assert (words if words.startswith(("<", "role")) else html.escape(words)) in card
    assert "currentColor" in card  # the notebook's own colour of text: light and dark
    figure = made.plot()
    assert [axes.get_title(loc="left") for axes in figure.axes][:3] == ["mean ‖h_l‖", "‖g_l‖ / 128", "cos(a_l, g_l)"]
    (line,) = [x for x in figure.axes[0].lines if x.get_marker() == "o"]
    assert tuple(line.get_ydata()) == made.facts.scale.mean  # type: ignore[arg-type]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_strings_stay_words_in_a_card(text):
    made = report(method_name=text, notes=text)
    tags = re.findall(r"<(\w+)", made._repr_html_())
    ours = "div style p strong span table thead tbody tr th td svg path text title circle"
    assert set(tags) <= set(ours.split())
    assert made._repr_html_().count("<svg") == 1


def test_a_frame_has_a_row_per_layer_with_the_numbers_of_the_facts(monkeypatch):
    """With a pandas of one class: neither pandas nor polars is required."""
    made = report()
    fake = types.ModuleType("pandas")
    fake.DataFrame = list  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", fake)
    frame = made.to_frame()
    assert [row["layer"] for row in frame] == list(range(made.facts.stream.depth + 1))
    assert [row["h_norm"] for row in frame] == list(made.facts.scale.mean)
    assert made.facts.alignment is not None
    assert [row["cosine"] for row in frame] == list(made.facts.alignment.mean)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    assert "needs pandas or polars" in refusal(made.to_frame)


def test_protocol_and_measure_know_no_renderer():
    """Importing them loads no module of render: the public door wires it."""
    code = (
        "import sys, creditscope.protocol.report, creditscope.measure.certificate; "
        "sys.exit(any(m.startswith('creditscope.render') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
