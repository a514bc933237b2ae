"""creditscope smoke"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Smoke:
    """Train (or load) BP, DFA (rms), EP and an early-stopped BP on the embedded dataset, judge them by the
    four-diagnostic policy without a null, and check the papers' expectation. Exit code 0 if all four hold, else 1.

    Example: creditscope smoke --out runs/smoke
    """

    out: Path = Path("runs/smoke")
    """Directory for the four networks; they are trained only once."""
    workers: int | None = None
    """Networks to train at the same time (default: one per core)."""

    def execute(self) -> int:
        from creditscope.render.numbers import num, share
        from creditscope.runs.execute import run_specs
        from creditscope.runs.executors.local import LocalExecutor
        from creditscope.studies.smoke import expectations, judge_all

        executor = LocalExecutor(self.workers)
        bundles = run_specs([e.spec for e in expectations()], self.out, executor)
        executor.shutdown()
        outcomes = judge_all(bundles)
        print(f"protocol {outcomes[0].report.protocol}, no null given")
        for o in outcomes:
            facts = o.report.facts
            print(
                f"{'holds' if o.holds else 'FAILS':<6} {o.expectation.name:<17} accuracy {share(o.accuracy)}"
                f"  ‖h_L‖ {num(facts.scale.mean[-1])}"
                f"  growth {num(facts.scale.growth)}"
                f"  ‖g_L‖/128 {num(facts.reference.batch_mean_128[-1])}  {o.report.verdict.line}"
                + (f"  ({o.why})" if o.why else "")
            )
        return 0 if all(o.holds for o in outcomes) else 1
