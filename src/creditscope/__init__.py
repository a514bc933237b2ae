"""creditscope: did a local learning rule really train your network, or does it only look that way?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from creditscope.display import wire

if TYPE_CHECKING:
    from creditscope.arrays import diagnose_arrays as diagnose_arrays
    from creditscope.changes import diff as diff
    from creditscope.credit.base import CreditBatch as CreditBatch
    from creditscope.credit.base import CreditRule as CreditRule
    from creditscope.credit.base import Options as Options
    from creditscope.credit.foreign import credit_from_grads as credit_from_grads
    from creditscope.credit.registry import credit_rule as credit_rule
    from creditscope.credit.registry import register as register
    from creditscope.credit.weight_feedback import WeightFeedback as WeightFeedback
    from creditscope.errors import CreditscopeError as CreditscopeError
    from creditscope.measure.certificate import Certificate as Certificate
    from creditscope.measure.facts import DepthProfile as DepthProfile
    from creditscope.measure.null_run import NullRun as NullRun
    from creditscope.measure.null_run import run_null as run_null
    from creditscope.measure.profile import depth_profile as depth_profile
    from creditscope.monitor import Monitor as Monitor
    from creditscope.protocol.diagnosis import diagnose as diagnose
    from creditscope.protocol.report import DiagnosticReport as DiagnosticReport
    from creditscope.protocol.thresholds import DiagnosticThresholds as DiagnosticThresholds
    from creditscope.stream.find import find_blocks as find_blocks
    from creditscope.stream.interface import InterfaceStream as InterfaceStream
    from creditscope.stream.interface import Stream as Stream
    from creditscope.stream.twins import frozen_blocks as frozen_blocks
    from creditscope.training.bundle import Bundle as Bundle
    from creditscope.training.bundle import load_bundle as load_bundle
    from creditscope.training.certify import certify as certify
    from creditscope.training.loop import train as train
    from creditscope.training.spec import RunSpec as RunSpec

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

__all__ = list(_HOME)

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
