"""How often does D3 decide wrongly? Simulated seeds with a known true margin, judged by the protocol's own code.

By hand: python tests/trust/d3_simulation.py [REPETITIONS]: writes the tables of docs/trust.md.

The accuracy of a seed is normal around the method's mean (spread 0.9 pp, that of the null 0.5 pp: the upper end of what is
published), and is measured on 10,000 test samples, which adds a binomial error of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from tests.protocol.factory import make_facts

from creditscope.measure.depth import depth_margin
from creditscope.measure.facts import Depth
from creditscope.protocol import DiagnosticThresholds, check_depth

MARGINS = (0.0, 1.0, 2.0, 3.0, 5.0)
SEEDS = (1, 3, 5, 10)
N_TEST = 10_000
TRAINED_PP, NULL_PP = 0.9, 0.5
NULL_ACCURACY = 0.35
NEEDED = DiagnosticThresholds().frozen_acc_margin_pp


@dataclass(frozen=True)
class Cell:
    """Shares over the repetitions."""

    wrong: float
    """Raised although the true margin is 2 pp or more, or passed although it is less."""
    undecided: float
    covered: float
    """The 95 % interval holds the true margin of the method."""
    covered_network: float
    """It holds the margin of these very networks (on all possible test samples)."""
    label: str


def simulate(true_pp: float, n: int, repetitions: int, rng: np.random.Generator, n_test: int | None = N_TEST) -> Cell:
    wrong = undecided = covered = covered_network = 0
    label = ""
    should_fail = true_pp < NEEDED
    facts = make_facts()
    for _ in range(repetitions):
        trained = NULL_ACCURACY + (true_pp + TRAINED_PP * rng.standard_normal(n)) / 100
        null = NULL_ACCURACY + NULL_PP * rng.standard_normal(n) / 100
        measured = [rng.binomial(N_TEST, p) / N_TEST for p in (trained, null)]
        fact = depth_margin(list(measured[0]), list(measured[1]), null_kind="matched", n_test=n_test)
        check = check_depth(facts.model_copy(update={"depth": Depth(margins=(fact,))}), DiagnosticThresholds())
        undecided += check.answer == "inconclusive"
        wrong += check.answer == ("pass" if should_fail else "fail")
        if fact.low_pp is not None and fact.high_pp is not None:
            covered += fact.low_pp <= true_pp <= fact.high_pp
            covered_network += fact.low_pp <= 100 * float(np.mean(trained - null)) <= fact.high_pp
        label = fact.interval
    n = repetitions
    return Cell(wrong / n, undecided / n, covered / n, covered_network / n, label)


def simulate_all(repetitions: int, seed: int = 0) -> dict[tuple[float, int, int | None], Cell]:
    """Keys: true margin, number of seeds, n_test (None at n = 1: a point comparison)."""
    rng = np.random.default_rng(seed)
    cases: list[tuple[int, int | None]] = [(1, None), *((n, N_TEST) for n in SEEDS)]
    return {(pp, n, size): simulate(pp, n, repetitions, rng, size) for n, size in cases for pp in MARGINS}


def tables(cells: dict[tuple[float, int, int | None], Cell], repetitions: int) -> str:
    rows = list(dict.fromkeys((n, size) for _, n, size in cells))
    line = "|" + "---|" * (len(MARGINS) + 1)

    def name(n: int, size: int | None) -> str:
        return f"{n}, test set not given" if size is None else str(n)

    def row(*parts: str) -> str:
        return f"| {' | '.join(parts)} |"

    decided, covering = [], []
    for n, size in rows:
        found = [cells[pp, n, size] for pp in MARGINS]
        decided.append(row(name(n, size), *(f"{100 * c.wrong:.1f} ({100 * c.undecided:.0f})" for c in found)))
        if size is not None:
            covering.append(row(str(n), *(f"{100 * c.covered:.1f}" for c in found), found[0].label))
    head = row("seeds", *(f"{pp:g} pp" for pp in MARGINS))
    alone = ", ".join(f"{100 * cells[pp, 1, N_TEST].covered_network:.1f}" for pp in MARGINS)
    return f"""\
{repetitions:,} repetitions of every cell; spread {TRAINED_PP} pp (trained) and {NULL_PP} pp (null); {N_TEST:,} test samples.

Wrong decisions of D3 in per cent, by true margin (in brackets: inconclusive). Wrong is a pass below {NEEDED:g} pp, or a
failure at {NEEDED:g} pp and above:

{head}
{line}
{chr(10).join(decided)}

How often the nominal 95 % interval holds the true margin of the method, per cent:

{head} interval |
{line}---|
{chr(10).join(covering)}

At n = 1 the interval speaks of this network only: it holds the margin of the very network that was measured in
{alone} per cent of the cases, and knows nothing of other seeds.
"""


def main(args: list[str]) -> int:
    from tests.trust.record import put

    repetitions = int(args[0]) if args else 4000
    text = tables(simulate_all(repetitions), repetitions)
    put("trust.md", "d3-simulation", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
