"""Credit rules: one file each, all with the same base. A name is loaded when it is first used: torch is slow to import."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from creditscope.credit.registry import BUILT_IN

if TYPE_CHECKING:
    from creditscope.credit.base import CreditBatch, CreditRule
    from creditscope.credit.bp import BP
    from creditscope.credit.credit_bridge import CreditBridge
    from creditscope.credit.dfa import DFA
    from creditscope.credit.ep import EP
    from creditscope.credit.fa import FA
    from creditscope.credit.registry import make_rule
    from creditscope.credit.state_bridge import StateBridge

__all__ = ["BP", "DFA", "EP", "FA", "CreditBatch", "CreditBridge", "CreditRule", "StateBridge", "make_rule"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'creditscope.credit' has no attribute {name!r}")
    homes = {"CreditBatch": "base", "CreditRule": "base", "make_rule": "registry"}
    homes |= {kind: module for module, _, kind in (place.partition(".") for place in BUILT_IN.values())}
    return getattr(import_module(f"creditscope.credit.{homes[name]}"), name)
