"""The command line: public API only; heavy libraries are loaded when a command needs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from creditscope.cli.commands import Group, list_of, named


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A user's mistake is one line on standard error and code 2."""
    args = list(sys.argv[1:] if argv is None else argv)
    words, node = named(args)
    after = args[len(words) : len(words) + 1]
    if isinstance(node, Group) and (not after or after[0] in ("-h", "--help", "help")):
        print(list_of(node, words), end="")
        return 0
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"creditscope {version('creditscope')}")
        return 0
    from creditscope.cli.output import remark
    from creditscope.cli.parse import parse
    from creditscope.errors import CreditscopeError

    try:
        code = parse(args).execute()
        sys.stdout.flush()
        return code
    except CreditscopeError as error:
        remark(error)
        return 2
    except KeyboardInterrupt:
        remark("stopped")
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has gone: nothing left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a path that this user may not read or write, a full disk
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error) or type(error).__name__
        advice = "; check the path and its permissions" if isinstance(error, PermissionError) else ""
        remark(" ".join(f"{where}{reason}{advice}".split()))
        return 2
