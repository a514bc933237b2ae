"""The command line: public API only; heavy libraries are loaded when a command needs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "demo": ("creditscope.cli.demo", "train and audit BP, FA and DFA with their nulls on the embedded dataset"),
    "train": ("creditscope.cli.train", "train one network by one credit rule into a bundle"),
    "diagnose": ("creditscope.cli.diagnose", "measure and judge the network of a bundle, or the arrays of a record"),
    "diff": ("creditscope.cli.diff", "compare two reports or bundles: what changed, and is it outside the intervals"),
    "certify": (
        "creditscope.cli.certify",
        "what the updates of a bundle's network depend on: a certificate of locality",
    ),
    "rules": ("creditscope.cli.rules", "list the credit rules that can be trained and measured"),
    "smoke": ("creditscope.cli.smoke", "check the papers' expectation on four small networks"),
    "report": ("creditscope.cli.report", "one table over many bundles: claimed next to audited"),
    "template": (
        "creditscope.cli.template",
        "a paper's reporting section, filled from runs: every number with its run",
    ),
    "checklist": ("creditscope.cli.checklist", "the known pitfalls as questions, answered where the files can"),
    "study": ("creditscope.cli.study", "plan, run and show the studies of the papers on a store of runs"),
    "runs": ("creditscope.cli.runs", "list, show, remove, export and verify the runs of a store"),
    "pitfalls": (
        "creditscope.cli.pitfalls",
        "the known ways to mismeasure credit: shown, and found in code and bundles",
    ),
}

USAGE = """\
creditscope: has a local-credit method really trained the network, or does it only look so?

usage: creditscope COMMAND [options]      creditscope COMMAND --help shows defaults and an example

{commands}

  --version   print the version
  --help      show this text

Quick start: creditscope demo
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A user's mistake is one line on standard error and code 2."""
    args = list(sys.argv[1:] if argv is None else argv)
    width = max(map(len, COMMANDS))
    usage = USAGE.format(commands="\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()))
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage, end="")
        return 0
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"creditscope {version('creditscope')}")
        return 0
    if args[0] not in COMMANDS:
        from creditscope.errors import meant

        near = meant(args[0], COMMANDS)
        print(f"creditscope: unknown command {args[0]!r}; {near}commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    from importlib import import_module

    from creditscope.errors import CreditscopeError

    try:
        code: int = import_module(COMMANDS[args[0]][0]).run(args[1:])
        sys.stdout.flush()
        return code
    except CreditscopeError as error:
        print(f"creditscope: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("creditscope: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has gone: nothing left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a path that this user may not read or write, a full disk
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or str(error) or type(error).__name__
        advice = "; check the path and its permissions" if isinstance(error, PermissionError) else ""
        print(f"creditscope: {' '.join(f'{where}{reason}{advice}'.split())}", file=sys.stderr)
        return 2
