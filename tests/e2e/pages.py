"""The pages of the documentation as the tests read them: their blocks, what stands around them, their headings and links."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md",
    *sorted(p for p in DOCS.glob("**/*.md") if "_build" not in p.parts)]  # fmt: skip
BLOCK = re.compile(r"(?:^<!-- (?P<note>[^\n]+?) -->\n)?^```(?P<kind>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


NUMBER = re.compile(r"(?<![A-Z\d])[-+\\]*\d+(?:\\?\.\d+)?(?:e[-+\\]*\d+)?")
"""A number as it is printed or escaped in a pattern; not the 3 of D3."""


@dataclass(frozen=True)
class Block:
    kind: str
    """python, sh, text, ... as the fence says."""
    note: str
    """The comment on the line above the fence: `not run: why`, `printed above`, `exit code N`, or nothing."""
    text: str


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def generator() -> Callable[[str], str]:
    """`expand` of docs/_ext: a page with its generated parts filled in."""
    place = str(DOCS / "_ext")
    if place not in sys.path:
        sys.path.insert(0, place)
    expand: Callable[[str], str] = importlib.import_module("generated_pages").expand
    return expand


@cache
def full_text(page: Path) -> str:
    """A page with its generated parts; what changes it is a change of the code, so it is made once."""
    text = page.read_text()
    return generator()(text) if "<!-- generated:" in text else text


def blocks(page: Path) -> list[Block]:
    return [Block(m["kind"], m["note"] or "", m["text"]) for m in BLOCK.finditer(full_text(page))]


def commands(block: Block) -> list[str]:
    """The command lines of a shell block, without comments."""
    lines = (line.split("  #")[0].strip() for line in block.text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]+`", "", BLOCK.sub("", text))


def anchors(page: Path) -> set[str]:
    """What `page.md#...` may name: headings as they become links, and explicit targets."""
    text = BLOCK.sub("", full_text(page))
    headings = [
        re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.M)
    ]
    return {*headings, *re.findall(r"^\(([\w-]+)\)=$", text, re.M)}


def matches(expected: str, printed: str, any_numbers: bool = False) -> bool:
    """Whether the output is the documented one; a line `...` stands for any number of lines, a number for any number."""
    lines = [re.escape(line.rstrip()) for line in expected.strip("\n").splitlines()]
    if any_numbers:
        lines = [
            re.sub(r"(?:\\ )+", lambda _: r"\s+", NUMBER.sub(lambda _: r"[-+]?\d[\d.]*(?:e[-+]?\d+)?", line))
            for line in lines
        ]
    pattern = "\n".join(lines).replace(re.escape("...") + "\n", "(?:.*\n)*?")
    actual = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, actual) is not None
