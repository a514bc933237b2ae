"""The protocol: thresholds, checks, verdict policies. It judges facts and knows nothing of networks."""

from creditscope.protocol.chain import ChainStep, walk_back_chain
from creditscope.protocol.checks import (
    Answer,
    Check,
    check_depth,
    check_reference,
    check_scale,
    check_stability,
    run_checks,
)
from creditscope.protocol.intervals import AccuracyInterval, accuracy_interval, t_interval
from creditscope.protocol.policies import POLICIES, Policy, Status, Verdict, get_policy, judge
from creditscope.protocol.strategies import (
    STRATEGIES,
    V1_COLUMNS,
    Case,
    Decision,
    decide,
)
from creditscope.protocol.thresholds import DiagnosticThresholds

__all__ = [
    "DiagnosticThresholds",
    "Answer",
    "Check",
    "check_scale",
    "check_reference",
    "check_depth",
    "check_stability",
    "run_checks",
    "t_interval",
    "POLICIES",
    "Policy",
    "Status",
    "Verdict",
    "get_policy",
    "judge",
    "ChainStep",
    "walk_back_chain",
    "STRATEGIES",
    "V1_COLUMNS",
    "AccuracyInterval",
    "Case",
    "Decision",
    "accuracy_interval",
    "decide",
]
