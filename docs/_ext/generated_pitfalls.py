"""The catalogue of pitfalls, with the numbers that its reproducers give where the pages are built."""

from __future__ import annotations

import inspect
import math
from functools import cache

from md import plain, table

from creditscope.pitfalls.base import Pitfall, Reproduction
from creditscope.pitfalls.registry import PITFALLS
from creditscope.render.numbers import num


@cache
def reproduced(pitfall: Pitfall) -> Reproduction:
    return pitfall.reproduce()


def _factor(r: Reproduction) -> str:
    return "infinite" if math.isinf(r.factor) else num(r.factor)


def pitfall_table() -> str:
    rows = []
    for p in PITFALLS:
        r = reproduced(p)
        rows.append(
            [
                f"[{p.id}](#{p.id.lower()})",
                plain(p.title),
                plain(r.what),
                f"`{num(r.wrong)}`",
                f"`{num(r.right)}`",
                _factor(r),
            ]
        )
    return table(["", "pitfall", "what is measured", "wrong", "right", "factor"], rows)


def pitfall_lines() -> str:
    """The catalogue without the numbers, which depend on the machine."""
    return table(["", "pitfall", "instead"], [[p.id, plain(p.title), plain(p.fix)] for p in PITFALLS])


def _found_by(p: Pitfall) -> str:
    ways = ["in a bundle: `creditscope pitfalls audit`"]
    if p.code:
        ways.insert(0, "in code: `creditscope pitfalls scan`")
    if p.tensors:
        module = inspect.getmodule(p.numbers)
        assert module is not None
        names = ", ".join(inspect.signature(p.tensors).parameters)
        ways.append(f"in your own values: `{module.__name__}.tensors({names})`")
    return "; ".join(ways)


def pitfall_list() -> str:
    parts = []
    for p in PITFALLS:
        r = reproduced(p)
        parts.append(
            f"({p.id.lower()})=\n### {p.id}: {plain(p.title)}\n\n{plain(p.why)}\n\n"
            f"- **At work**: {plain(r.sentence)}. Factor {_factor(r)}.\n"
            f"- **Instead**: {plain(p.fix)}\n"
            f"- **Found**: {_found_by(p)}.\n"
        )
    return "\n".join(parts)
