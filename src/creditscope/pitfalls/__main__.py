"""`python -m creditscope.pitfalls PATH ...`: the scan where nothing but Python and this source is installed.

The same findings and exit codes as `creditscope pitfalls scan`: 1 on findings, 0 if there are none, 2 where nothing was scanned.
"""

from __future__ import annotations

import argparse
import sys

from creditscope.errors import CreditscopeError
from creditscope.pitfalls.scan import annotation, lines, plain, scan


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="creditscope-pitfalls", description="Find pitfalls in Python files; nothing is run."
    )
    parser.add_argument("paths", nargs="+", help="Python files, or directories to search for them")
    parser.add_argument(
        "--format", choices=("text", "github"), default="text", help="github: annotations of a workflow"
    )
    given = parser.parse_args(argv)
    try:
        result = scan(given.paths)
    except CreditscopeError as error:
        print(f"creditscope: {error}", file=sys.stderr)
        return 2
    for path, reason in result.skipped:
        print(f"creditscope: skipped {plain(path)}: {plain(reason)}", file=sys.stderr)
    if not result.files:
        print(f"creditscope: nothing was scanned in {plain(', '.join(given.paths))}", file=sys.stderr)
        return 2
    print("\n".join(map(annotation, result.findings) if given.format == "github" else lines(result)))
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
