"""The odd networks: every one measured and held against the oracle. As a command: name | outcome | line.

python tests/trust/odd_networks.py [PART OF A NAME]
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.trust import (
    odd_blocks,
    odd_finds,
    odd_gradients,
    odd_grammar,
    odd_hugging_face,
    odd_inputs,
    odd_reads,
    odd_runs,
    odd_side_effects,
    odd_steps,
)
from tests.trust.oracle import Case, Outcome, outcome

BY_HAND = (odd_steps, odd_gradients, odd_side_effects, odd_reads, odd_runs, odd_blocks, odd_finds, odd_inputs)
CASES: list[Case] = [
    *odd_grammar.CASES,
    *(case for module in BY_HAND for case in module.ZOO.cases),
    *odd_hugging_face.CASES,
]


def judged(case: Case) -> Outcome:
    """Without what creditscope and the networks print."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        return outcome(case)


def main(arguments: Sequence[str]) -> int:
    chosen = [case for case in CASES if all(part in case.name for part in arguments)]
    found = []
    for case in chosen:
        one = judged(case)
        found.append(one)
        print(f"{one.name} | {one.outcome}{' (gap)' if one.gap else ''} | {one.line}", flush=True)
    count = Counter(one.outcome for one in found)
    gaps = sum(one.gap for one in found)
    print(
        f"{len(found)} networks: {count['exact']} exact, {count['refused']} refused, {count['wrong']} wrong; {gaps} gaps"
    )
    return int(count["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
