"""Credit rules by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from creditscope.credit.base import CreditRule
from creditscope.credit.bp import BP
from creditscope.credit.dfa import DFA
from creditscope.credit.fa import FA
from creditscope.errors import CreditscopeError

RULES: dict[str, type[CreditRule]] = {rule.name: rule for rule in (BP, FA, DFA)}


def rule_class(name: str) -> type[CreditRule]:
    if name not in RULES:
        raise CreditscopeError(f"method {name!r} is unknown; choose one of {', '.join(RULES)}")
    return RULES[name]


def make_rule(name: str, options: Mapping[str, Any] | None = None) -> CreditRule:
    """A new rule; it owns nothing until `setup` or `load`."""
    return rule_class(name)(**(options or {}))
