"""Credit rules by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from creditscope.credit.base import CreditRule
from creditscope.credit.bp import BP
from creditscope.credit.credit_bridge import CreditBridge
from creditscope.credit.dfa import DFA
from creditscope.credit.ep import EP
from creditscope.credit.fa import FA
from creditscope.credit.random import RandomCredit
from creditscope.credit.state_bridge import StateBridge
from creditscope.errors import CreditscopeError

RULES: dict[str, type[CreditRule]] = {rule.name: rule for rule in (BP, FA, DFA, EP, StateBridge, CreditBridge, RandomCredit)}


def rule_class(name: str) -> type[CreditRule]:
    if name not in RULES:
        raise CreditscopeError(f"method {name!r} is unknown; choose one of {', '.join(RULES)}")
    return RULES[name]


def make_rule(name: str, options: Mapping[str, Any] | None = None) -> CreditRule:
    """A new rule; it owns nothing until `setup` or `load`."""
    return rule_class(name)(**(options or {}))
