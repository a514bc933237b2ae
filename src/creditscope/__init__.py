"""creditscope: did a local learning rule really train your network, or does it only look that way?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from creditscope.display import wire

if TYPE_CHECKING:
    from creditscope.arrays import diagnose_arrays
    from creditscope.changes import diff
    from creditscope.credit.base import CreditBatch, CreditRule, Options
    from creditscope.credit.foreign import credit_from_grads
    from creditscope.credit.registry import credit_rule, register
    from creditscope.credit.weight_feedback import WeightFeedback
    from creditscope.errors import CreditscopeError
    from creditscope.measure.certificate import Certificate
    from creditscope.measure.facts import DepthProfile
    from creditscope.measure.null_run import NullRun, run_null
    from creditscope.measure.profile import depth_profile
    from creditscope.monitor import Monitor
    from creditscope.protocol.diagnosis import diagnose
    from creditscope.protocol.report import DiagnosticReport
    from creditscope.protocol.thresholds import DiagnosticThresholds
    from creditscope.stream.find import find_blocks
    from creditscope.stream.interface import InterfaceStream, Stream
    from creditscope.stream.twins import frozen_blocks
    from creditscope.training.bundle import Bundle, load_bundle
    from creditscope.training.certify import certify
    from creditscope.training.loop import train
    from creditscope.training.spec import RunSpec

__all__ = [
    "diagnose",
    "diagnose_arrays",
    "diff",
    "DiagnosticReport",
    "DiagnosticThresholds",
    "certify",
    "Certificate",
    "depth_profile",
    "DepthProfile",
    "frozen_blocks",
    "run_null",
    "NullRun",
    "find_blocks",
    "Monitor",
    "credit_from_grads",
    "CreditRule",
    "CreditBatch",
    "Options",
    "WeightFeedback",
    "Stream",
    "InterfaceStream",
    "register",
    "credit_rule",
    "train",
    "RunSpec",
    "Bundle",
    "load_bundle",
    "CreditscopeError",
]

_HOME = {
    "diagnose": "creditscope.protocol.diagnosis",
    "diagnose_arrays": "creditscope.arrays",
    "diff": "creditscope.changes",
    "DiagnosticReport": "creditscope.protocol.report",
    "DiagnosticThresholds": "creditscope.protocol.thresholds",
    "certify": "creditscope.training.certify",
    "Certificate": "creditscope.measure.certificate",
    "depth_profile": "creditscope.measure.profile",
    "DepthProfile": "creditscope.measure.facts",
    "frozen_blocks": "creditscope.stream.twins",
    "run_null": "creditscope.measure.null_run",
    "NullRun": "creditscope.measure.null_run",
    "find_blocks": "creditscope.stream.find",
    "Monitor": "creditscope.monitor",
    "credit_from_grads": "creditscope.credit.foreign",
    "CreditRule": "creditscope.credit.base",
    "CreditBatch": "creditscope.credit.base",
    "Options": "creditscope.credit.base",
    "WeightFeedback": "creditscope.credit.weight_feedback",
    "Stream": "creditscope.stream.interface",
    "InterfaceStream": "creditscope.stream.interface",
    "register": "creditscope.credit.registry",
    "credit_rule": "creditscope.credit.registry",
    "train": "creditscope.training.loop",
    "RunSpec": "creditscope.training.spec",
    "Bundle": "creditscope.training.bundle",
    "load_bundle": "creditscope.training.bundle",
    "CreditscopeError": "creditscope.errors",
}

wire(
    DiagnosticReport="creditscope.render.report",
    DepthProfile="creditscope.render.profile",
    Certificate="creditscope.render.certificate",
    Table="creditscope.render.tables",
)


def __getattr__(name: str) -> Any:
    """Public names are loaded when they are first used: `import creditscope` stays fast."""
    if name == "__version__":
        from importlib.metadata import version

        return version("creditscope")
    if name not in _HOME:
        raise AttributeError(f"module 'creditscope' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
