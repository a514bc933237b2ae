"""Nothing is written twice: no passage of more than 12 lines stands in two places of the package."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "creditscope"
LONGEST = 12


def passages(text: str, length: int) -> list[tuple[int, tuple[str, ...]]]:
    """(first line, lines) of every run of lines; blank lines, comments and lone brackets do not count."""
    plain = [(number, " ".join(line.split())) for number, line in enumerate(text.splitlines(), 1)]
    kept = [(number, line) for number, line in plain if line.strip("()[]{}, ") and not line.startswith("#")]
    return [(kept[k][0], tuple(line for _, line in kept[k : k + length])) for k in range(len(kept) - length + 1)]


def test_no_long_passage_stands_twice():
    places = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for number, lines in passages(path.read_text(), LONGEST + 1):
            places[lines].append(f"{path.relative_to(SOURCE)}:{number}")
    assert [found for found in places.values() if len(found) > 1] == []


def test_a_repeated_passage_is_found():
    assert passages("a\n\n# why\n  b\n)\nc", 2) == [(1, ("a", "b")), (4, ("b", "c"))]
