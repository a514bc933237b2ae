"""Networks drawn from the grammar (hypothesis) for some minutes: none may be measured wrongly.

    python tests/trust/odd_property.py [MINUTES]          (10 if not said)

What fails is shrunk to the simplest sentence that fails.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.trust.odd_grammar import CHOICES, Spec, case, sense
from tests.trust.odd_networks import judged

ODD = st.one_of(*(st.tuples(st.just(name), st.sampled_from(values)) for name, values in CHOICES.items()))
SPECS = st.lists(ODD, max_size=6, unique_by=lambda pair: pair[0]).map(lambda pairs: sense(Spec(**dict(pairs))))
"""Up to six oddities at a time: with more, hardly a network is left that can be measured."""
ROUND = 250
"""Networks of one round; each round has a seed of its own."""


def right_or_refused(spec: Spec) -> str:
    """The outcome; a wrong one raises."""
    found = judged(case(spec))
    assert found.outcome != "wrong", f"{spec.name}: {found.line}"
    return "gap" if found.gap else found.outcome


def main(arguments: Sequence[str]) -> int:
    minutes = float(arguments[0]) if arguments else 10.0
    start, count, seen, number = time.monotonic(), Counter[str](), set[Spec](), 0
    while time.monotonic() < start + 60 * minutes:
        number += 1

        @seed(number)
        @settings(max_examples=ROUND, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(SPECS)
        def one_round(spec: Spec) -> None:
            if spec not in seen and time.monotonic() < start + 60 * minutes:
                count[right_or_refused(spec)] += 1
                seen.add(spec)

        try:
            one_round()
        except AssertionError as error:
            print(f"after {len(seen)} networks: wrong: {error}")
            return 1
    print(
        f"{len(seen)} networks in {minutes:g} minutes: 0 wrong, {count['exact']} exact, {count['refused']} refused, "
        f"{count['gap']} gaps"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
