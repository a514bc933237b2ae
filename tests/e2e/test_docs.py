"""What the README and the documentation show is executed; links resolve; generated parts fit the code; the site builds."""

import importlib
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.pages import (
    DOCS,
    PAGES,
    ROOT,
    anchors,
    blocks,
    commands,
    full_text,
    generator,
    matches,
    name_of,
    without_code,
)

import creditscope
from creditscope import DiagnosticReport, quantities
from creditscope.cli import main
from creditscope.cli import parse as parser
from creditscope.cli.commands import ROOT as COMMANDS
from creditscope.cli.commands import Group
from creditscope.cli.train import Train
from creditscope.credit import registry
from creditscope.credit.registry import all_rules
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import PRESETS

NOTES = ("not run: ", "printed above", "exit code ")
ALLOWED = ("python", "sh", "text", "output", "toml", "{toctree}", "{eval-rst}")


@pytest.fixture(autouse=True)
def _registries(monkeypatch):
    """What a page adds (a quantity, a rule) stays in its own test."""
    monkeypatch.setattr(quantities, "QUANTITIES", dict(quantities.QUANTITIES))
    monkeypatch.setattr(registry, "_rules", dict(registry._rules))
    monkeypatch.setattr(registry, "_origin", dict(registry._origin))
    yield
    registry._load_others.cache_clear()


class ParsedError(Exception):
    """A command got as far as to be understood."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_run(page, tmp_path, monkeypatch, capsys):
    """Python blocks in one scope, shell blocks in the same directory, output compared where the page shows it."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.kind == "python":
            capsys.readouterr()
            exec(compile(block.text, str(page), "exec"), scope)
        elif block.note.startswith("printed above"):
            printed = capsys.readouterr().out
            assert matches(block.text, printed, "numbers depend" in block.note), (
                f"{name_of(page)} shows\n{block.text}\nand it prints\n{printed}"
            )
        elif block.kind == "sh" and not block.note.startswith("not run: "):
            wanted = int(block.note.removeprefix("exit code ") or 0)
            for command in commands(block):
                program, *arguments = shlex.split(command)
                assert program == "creditscope", f"{name_of(page)}: say why `{command}` is not run"
                assert main(arguments) == wanted, f"{name_of(page)}: {command}\n{capsys.readouterr()}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_known_kind(page):
    text = full_text(page)
    assert text.count("\n```") == 2 * len(blocks(page)), f"{name_of(page)} has a fence that is not read"
    for block in blocks(page):
        assert block.kind in ALLOWED, f"{name_of(page)}: a block of kind {block.kind!r}"
        if block.kind in ("python", "sh") and block.note:
            assert block.note.startswith(NOTES), f"{name_of(page)}: {block.note!r} is not understood"
        assert block.kind != "python" or not block.note, f"{name_of(page)}: Python is always run"


@contextmanager
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands stop as soon as their arguments are understood; `train` only after the spec of the run is made."""
    import creditscope.training.loop

    def stop(*args: object, **kwargs: object) -> None:
        raise ParsedError

    parse = parser.parse
    assert creditscope.train is creditscope.training.loop.train  # found now: a name is kept when it is first asked for

    def understood(args):
        command = parse(args)
        return command if isinstance(command, Train) else stop()

    with monkeypatch.context() as patch:
        patch.setattr(creditscope.training.loop, "train", stop)
        patch.setattr(parser, "parse", understood)
        yield


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_are_not_run_are_understood(page, monkeypatch):
    monkeypatch.setenv("CREDITSCOPE_RULES", str(ROOT / "examples" / "sign_symmetric.py"))
    registry._load_others.cache_clear()
    with only_parsed(monkeypatch):
        for block in blocks(page):
            for command in commands(block) if block.kind == "sh" and block.note.startswith("not run: ") else ():
                program, *arguments = shlex.split(command)
                if program == "creditscope":
                    with pytest.raises(ParsedError):
                        main(arguments)
                else:
                    assert program in ("make", "export", "python", "pip"), f"{name_of(page)}: {command}"


def test_a_wrong_command_is_not_understood(monkeypatch, capsys):
    with only_parsed(monkeypatch):
        assert main(["train", "--method", "dfa"]) == 2  # credit_norm is missing
        assert main(["study", "run", "audit", "--stoer", "x"]) == 2


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"^\s*(?:    )?make ([a-z]+)", page.read_text(), re.M):
            assert re.search(rf"^{target}:", makefile, re.M), f"{name_of(page)}: make {target}"


def test_the_readme_example_ends_with_a_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = next(b for b in blocks(ROOT / "README.md") if b.kind == "python")
    exec(compile(first.text, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip().splitlines()[-1].startswith("VERDICT: needs walk-back")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page):
    for target, anchor in re.findall(
        r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", without_code(full_text(page))
    ):
        file = page.parent / target if target else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{name_of(page)} links to {target}#{anchor}"


def test_the_documented_schema_is_that_of_the_reports():
    assert json.loads((DOCS / "report.schema.json").read_text()) == DiagnosticReport.model_json_schema()


def test_every_public_name_is_on_the_api_page():
    named = re.findall(r"^\.\. auto\w+:: creditscope\.(\w+)$", (DOCS / "api.md").read_text(), re.M)
    assert sorted(named) == sorted(creditscope.__all__)


def test_every_rule_study_check_and_pitfall_has_its_page():
    rules = {p.stem for p in (DOCS / "rules").glob("*.md")}
    assert rules == ({n for n, r in all_rules().items() if r.__module__.startswith("creditscope.")} - {"random"}) | {
        "frozen"
    }
    assert {p.stem for p in (DOCS / "studies").glob("*.md")} == set(NAMES)
    assert {p.stem for p in (DOCS / "checks").glob("*.md")} == {"index", "d1", "d2", "d3", "c"}
    assert re.findall(r"^\((pf\d\d)\)=$", full_text(DOCS / "pitfalls.md"), re.M) == [f"pf{n:02d}" for n in range(1, 16)]


def test_the_studies_page_lists_every_study_with_its_size():
    text = full_text(DOCS / "studies.md")
    for name in NAMES:
        assert re.search(rf"^\| \[`{name}`\]\(studies/{name}\.md\) \|", text, re.M), name
        assert f"\nstudies/{name}\n" in text, f"{name} is not in the toctree"
    sizes = " | ".join(str(len(get_study("audit").specs(preset))) for preset in PRESETS)
    assert f"| `audit` | {sizes} |" in text


def test_a_study_page_holds_what_the_code_says():
    text = full_text(DOCS / "studies" / "penalty.md")
    assert re.search(rf"^\| runs \| {len(get_study('penalty').specs('smoke'))} \|", text, re.M)
    assert "0, 0.0001, 0.001, 0.01, 0.1" in text
    assert "| accuracy | dfa | 30 epochs; λ = 0.01 | 0.36 ± 0.002 |" in text


def test_the_options_of_a_rule_are_those_of_the_code():
    text = full_text(DOCS / "rules" / "ep.md")
    for key, field in all_rules()["ep"].Options.model_fields.items():
        assert f"| `{key}` | `{field.default}` |" in text


def test_every_command_is_on_its_page():
    headings = re.findall(r"^#{2,3} (.+)$", full_text(DOCS / "cli.md"), re.M)
    for name, node in COMMANDS.commands.items():
        assert {name, *(f"{name} {below}" for below in (node.commands if isinstance(node, Group) else ()))} <= set(
            headings
        )


@pytest.mark.parametrize("page", [p for p in PAGES if "<!-- generated:" in p.read_text()], ids=name_of)
def test_what_a_page_holds_of_the_code_is_that_of_the_code(page):
    """A reader of the repository sees it too; `make generated` writes it anew."""
    generator()
    refresh = importlib.import_module("generated_pages").refresh
    text = page.read_text()
    assert refresh(text) == text, f"{name_of(page)} is not what the code says: make generated"
    held = re.findall(r"^<!-- generated: [^\n]+ -->\n\n(?=\S)", text, re.M)
    marks = [m for m in re.findall(r"^<!-- generated: ([^;\n]+?)(?:;[^\n]*)? -->$", text, re.M) if m != "pitfall-list"]
    assert len(held) >= len(marks), f"{name_of(page)} is empty in the repository"


def test_an_unknown_mark_stops_the_build():
    with pytest.raises(KeyError, match="no-such"):
        generator()("<!-- generated: no-such thing -->")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\nz\n", "a\nz\n", True),
        ("a\n...\nz\n", "a\nb\n", False),
        ("1.5\n", "105\n", False),
    ],
)
def test_output_is_compared_line_by_line(expected, printed, same):
    assert matches(expected, printed) is same


@pytest.mark.parametrize(
    ("printed", "same"),
    [("D3 fail: -12.5 pp [+1e-07]\n", True), ("D2 fail: -12.5 pp [2]\n", False), ("D3 pass: 1 pp [2]\n", False)],
)
def test_numbers_that_depend_on_the_machine_may_differ_and_nothing_else(printed, same):
    assert matches("D3  fail: 1.5 pp [3.2]\n", printed, any_numbers=True) is same


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("furo") is None, reason="pip install 'creditscope[docs]' builds the site")
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path: Path, capsys):
    from sphinx.cmd.build import build_main

    out = tmp_path / "html"
    code = build_main(
        ["-q", "-W", "--keep-going", "-E", "-b", "html", "-d", str(tmp_path / "trees"), str(DOCS), str(out)]
    )
    assert code == 0, capsys.readouterr().err
    pages = [p for p in out.rglob("*.html") if "_static" not in p.parts]
    assert len(pages) > len(PAGES) - 2
    for page in pages:
        html = page.read_text()
        loaded = re.findall(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(https?:)?//[^\"]+\"", html)
        assert not loaded, f"{page.name} loads from elsewhere"
        assert "<!-- generated:" not in html
    assert "<math" in (out / "protocol.html").read_text()
    assert "credit_from_grads" in (out / "api.html").read_text()
    for name in ("quickstart", "checks/d3", "review"):
        address = f'href="{"../" * name.count("/")}glossary.html#null"'
        assert (out / f"{name}.html").read_text().count(address) == 1, f"{name}: the first null is a link, and no other"
    found = (out / "searchindex.js").read_text()
    for word in ("null", "seed", "cosin"):  # as the index stems them
        assert re.search(rf'\b{word}"?:', found), f"search does not find {word}"


def test_the_table_of_rooms_is_that_of_the_contract():
    """Every directory and module of the package stands in it, once."""
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", full_text(DOCS / "design.md"), re.M)
    home = ROOT / "src" / "creditscope"
    there = {p.stem for p in home.glob("*.py")} | {p.parent.name for p in home.glob("*/__init__.py")}
    assert sorted(listed) == sorted(there - {"__init__", "__main__"})
    assert listed.index("cli") < listed.index("render") < listed.index("studies") < listed.index("runs")
    assert listed.index("training") < listed.index("protocol") < listed.index("measure") < listed.index("stream")
