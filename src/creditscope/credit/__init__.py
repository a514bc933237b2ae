"""Credit rules: one file each, all with the same base."""

from creditscope.credit.base import CreditBatch, CreditRule
from creditscope.credit.bp import BP
from creditscope.credit.credit_bridge import CreditBridge
from creditscope.credit.dfa import DFA
from creditscope.credit.ep import EP
from creditscope.credit.fa import FA
from creditscope.credit.registry import make_rule
from creditscope.credit.state_bridge import StateBridge

__all__ = ["BP", "DFA", "EP", "FA", "CreditBatch", "CreditBridge", "CreditRule", "StateBridge", "make_rule"]
