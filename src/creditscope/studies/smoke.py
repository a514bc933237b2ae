"""The papers' expectation on four small networks: who is trustworthy, and who is walked back, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.training.bundle import Bundle
from creditscope.training.spec import RunSpec, make_spec

CHANCE = 0.1
TRUSTWORTHY = "VERDICT: trustworthy (D3 not measured)"


@dataclass(frozen=True)
class Expectation:
    """One network of the smoke test and what the four-diagnostic policy must say of it."""

    name: str
    spec: RunSpec
    failed: frozenset[str] = frozenset()
    """Checks that must have failed, and no other of D1 and D2."""

    @property
    def line(self) -> str:
        """Start of the verdict line."""
        return "VERDICT: needs walk-back: " if self.failed else TRUSTWORTHY


def expectations() -> tuple[Expectation, ...]:
    def spec(**settings: Any) -> RunSpec:
        return make_spec({"dataset": "quadratic", "seed": 42, **settings})

    dfa = spec(method="dfa", credit_norm="rms", epochs=8, schedule_epochs=16, lr=4e-3)
    return (
        Expectation("BP", spec(method="bp", epochs=4)),
        Expectation("DFA (rms)", dfa, frozenset({"D1", "D2"})),
        Expectation("EP", spec(method="ep", epochs=1, schedule_epochs=2)),
        Expectation("BP stopped early", spec(method="bp", epochs=1, schedule_epochs=4, lr=2e-4)),
    )


@dataclass(frozen=True)
class Outcome:
    expectation: Expectation
    accuracy: float
    report: DiagnosticReport
    holds: bool
    why: str


def judge_all(bundles: list[Bundle]) -> list[Outcome]:
    """Judge the bundles (in the order of `expectations`) by four-diagnostic, without a null."""
    outcomes = []
    bp = bundles[0].accuracy
    for expected, bundle in zip(expectations(), bundles, strict=True):
        facts = DiagnosticReport.from_dict(bundle.report, str(bundle.path)).facts
        claimed: dict[str, Any] = {"headline_acc": bundle.accuracy, "n_test": bundle.n_test, "run": bundle.spec.hash}
        report = make_report(facts, method_name=expected.name, protocol="four-diagnostic", **claimed)
        failed = {check.id for check in report.verdict.checks if check.answer == "fail" and check.id in ("D1", "D2")}
        holds = report.verdict.line.startswith(expected.line) and failed == expected.failed
        why = ""
        if expected.name == "BP stopped early" and not bundle.accuracy - CHANCE < (bp - CHANCE) / 2:
            holds, why = False, f"its accuracy {bundle.accuracy:.3f} is not under half of BP's gain over chance"
        outcomes.append(Outcome(expected, bundle.accuracy, report, holds, why))
    return outcomes
