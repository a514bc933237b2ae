"""The files that a command has written, named on standard error: standard output stays what it was asked for."""

from __future__ import annotations

import sys
from pathlib import Path


def tell_written(*paths: Path | None) -> None:
    """One line with the paths that were given."""
    given = [str(path) for path in paths if path is not None]
    if given:
        print(f"creditscope: written: {', '.join(given)}", file=sys.stderr)


def put(text: str, out: Path | None) -> None:
    """Write to the file, or to standard output."""
    from creditscope.files import write_atomic

    if out is None:
        sys.stdout.write(text)
    else:
        write_atomic(out, text.encode())
        tell_written(out)
