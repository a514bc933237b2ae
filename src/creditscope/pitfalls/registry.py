"""All pitfalls by number."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.pitfalls.base import Pitfall

CATALOGUE = Path(__file__).with_name("catalogue.json")
"""PF01, PF02, ...: the words of each, and its module."""


def _pitfall(number: int, module: str, **words: str) -> Pitfall:
    """A module has the functions reproduce, audit, tensors and, where source code can show the mistake, code."""
    m = import_module(f"creditscope.pitfalls.{module}")
    code = getattr(m, "code", None)
    return Pitfall(number, **words, numbers=m.reproduce, audit=m.audit, code=code, tensors=m.tensors)


PITFALLS = tuple(_pitfall(k, **entry) for k, entry in enumerate(json.loads(CATALOGUE.read_text("utf-8")), 1))


def get_pitfall(name: str | int) -> Pitfall:
    """A pitfall by its number or id: 2, "2", "02", "PF02", "pf2"."""
    text = str(name).strip().upper().removeprefix("PF")
    if text.isascii() and text.isdigit():
        for pitfall in PITFALLS:
            if pitfall.number == int(text):
                return pitfall
    raise CreditscopeError(
        f"pitfall {name!r} is unknown; give a number from 1 to {len(PITFALLS)} or an id such as PF02"
    )
