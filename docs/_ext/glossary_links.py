"""The first use of each word of the glossary on a page becomes a link to it.

A word is a heading of the third level in glossary.md; a line "Also: a, b." below it gives its other forms.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes

PAGE = "glossary"
ENTRY = re.compile(r"^### (?P<name>.+)\n(?:\nAlso: (?P<also>[^\n]+)\.\n)?", re.MULTILINE)
CLOSED = (
    nodes.title, nodes.reference, nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.target,
    nodes.image, nodes.option_string,
)  # fmt: skip
"""Inside these no word becomes a link."""


class Word(NamedTuple):
    anchor: str
    forms: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        forms = "|".join(re.escape(form) for form in sorted(self.forms, key=len, reverse=True))
        return re.compile(rf"(?<![\w-])(?:{forms})(?:s\b|(?![\w-]))", re.IGNORECASE)


@cache
def words() -> tuple[Word, ...]:
    text = (Path(__file__).parents[1] / f"{PAGE}.md").read_text(encoding="utf-8")
    return tuple(
        Word(
            re.sub(r"[^\w\- ]", "", m["name"].lower()).replace(" ", "-"),
            (m["name"].strip("`"), *(m["also"] or "").split(", ")) if m["also"] else (m["name"].strip("`"),),
        )
        for m in ENTRY.finditer(text)
    )


def link(tree: nodes.document, address: str) -> int:
    """Link the first use of every word; the number of links."""
    missing = {word.anchor: word for word in words()}
    made = 0
    for leaf in list(tree.findall(nodes.Text)):
        code = isinstance(leaf.parent, nodes.literal) and not _inside(leaf.parent)
        if not code and _inside(leaf):
            continue
        rest: nodes.Text | None = leaf
        while rest is not None and (found := _first(str(rest), missing, whole=code)):
            word, match = found
            del missing[word.anchor]
            made += 1
            reference = nodes.reference("", "", refuri=f"{address}#{word.anchor}", internal=True, classes=["glossary"])
            if code:
                leaf.parent.replace_self(reference)
                reference += leaf.parent
                break
            before, inside, after = str(rest)[: match.start()], match[0], str(rest)[match.end() :]
            reference += nodes.Text(inside)
            tail = nodes.Text(after)
            rest.parent.replace(rest, [n for n in (nodes.Text(before), reference, tail) if n.astext()])
            rest = tail if after else None
    return made


def _first(text: str, missing: dict[str, Word], whole: bool) -> tuple[Word, re.Match[str]] | None:
    """The word that stands first in the text; of two at one place the longer."""
    found = []
    for word in missing.values():
        match = word.pattern.fullmatch(text) if whole else word.pattern.search(text)
        if match:
            found.append((match.start(), -len(match[0]), word.anchor, match))
    return (missing[min(found)[2]], min(found)[3]) if found else None


def _inside(node: Any) -> bool:
    parent = node.parent
    while parent is not None:
        if isinstance(parent, CLOSED) or "sig" in parent.get("classes", ()) or parent.tagname.startswith("desc_sig"):
            return True
        parent = parent.parent
    return False


def setup(app: Any) -> dict[str, bool]:
    def on_resolved(app: Any, tree: nodes.document, docname: str) -> None:
        if docname != PAGE and app.builder.format == "html":
            link(tree, app.builder.get_relative_uri(docname, PAGE))

    app.connect("doctree-resolved", on_resolved)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
