"""The protocol: thresholds, checks, verdict policies. It judges facts and knows nothing of networks."""

from creditscope.protocol.chain import ChainStep as ChainStep
from creditscope.protocol.chain import walk_back_chain as walk_back_chain
from creditscope.protocol.checks import Answer as Answer
from creditscope.protocol.checks import Check as Check
from creditscope.protocol.checks import check_depth as check_depth
from creditscope.protocol.checks import check_reference as check_reference
from creditscope.protocol.checks import check_scale as check_scale
from creditscope.protocol.checks import check_stability as check_stability
from creditscope.protocol.checks import run_checks as run_checks
from creditscope.protocol.intervals import AccuracyInterval as AccuracyInterval
from creditscope.protocol.intervals import accuracy_interval as accuracy_interval
from creditscope.protocol.intervals import t_interval as t_interval
from creditscope.protocol.policies import POLICIES as POLICIES
from creditscope.protocol.policies import Policy as Policy
from creditscope.protocol.policies import Status as Status
from creditscope.protocol.policies import Verdict as Verdict
from creditscope.protocol.policies import get_policy as get_policy
from creditscope.protocol.policies import judge as judge
from creditscope.protocol.strategies import STRATEGIES as STRATEGIES
from creditscope.protocol.strategies import V1_COLUMNS as V1_COLUMNS
from creditscope.protocol.strategies import Case as Case
from creditscope.protocol.strategies import Decision as Decision
from creditscope.protocol.strategies import decide as decide
from creditscope.protocol.thresholds import DiagnosticThresholds as DiagnosticThresholds
