"""Formulas as MathML, made when the pages are built: no script, no font and no request is needed to read them."""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils.utils.math.latex2mathml import tex2mathml

_BLOCK = "as_block" in inspect.signature(tex2mathml).parameters  # docutils 0.20 said it the other way round


BARS = re.compile(r"<mo>([‖∥])</mo>")


def to_mathml(tex: str, block: bool) -> str:
    """Norm bars keep the height of a letter: stretched ones take that of the whole line."""
    made = tex2mathml(tex, as_block=block) if _BLOCK else tex2mathml(tex, inline=not block)
    return BARS.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', made)


def visit_inline(self: Any, node: Any) -> None:
    self.body.append(to_mathml(node.astext(), block=False))


def visit_block(self: Any, node: Any) -> None:
    self.body.append(f'<div class="math-block">{to_mathml(node.astext(), block=True)}</div>')


def skip(visit: Any) -> Any:
    """The visitor, without a visit to the children (the source of the formula)."""
    from docutils.nodes import SkipNode

    def visitor(self: Any, node: Any) -> None:
        visit(self, node)
        raise SkipNode

    return visitor


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (skip(visit_inline), None), (skip(visit_block), None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
