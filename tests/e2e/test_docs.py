"""What the README and the documentation show is executed; links resolve."""

import json
import re
from pathlib import Path

import pytest

from creditscope import DiagnosticReport

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    for code in blocks(page):
        exec(compile(code, str(page), "exec"), scope)


def test_the_readme_example_ends_with_a_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(ROOT / "README.md")[0], "README.md", "exec"), {})
    assert capsys.readouterr().out.strip().splitlines()[-1].startswith("VERDICT: needs walk-back")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_resolve(page):
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_documented_schema_is_that_of_the_reports():
    assert json.loads((ROOT / "docs" / "report.schema.json").read_text()) == DiagnosticReport.model_json_schema()
