"""Credit rules: one file each, all with the same base."""

from creditscope.credit.base import CreditBatch, CreditRule
from creditscope.credit.bp import BP
from creditscope.credit.dfa import DFA
from creditscope.credit.ep import EP
from creditscope.credit.fa import FA
from creditscope.credit.registry import make_rule

__all__ = ["BP", "DFA", "EP", "FA", "CreditBatch", "CreditRule", "make_rule"]
