"""The commands as data. Their lists of commands are printed from here before tyro is imported (.28 s), and tyro's
subcommands are made from here too: a new command is one line and one class with a method `execute() -> exit code`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Group(NamedTuple):
    """Commands under one word."""

    summary: str
    """One line in the list of commands that the group stands in."""
    title: str
    commands: dict[str, str | Group]
    """By name; a command is its line in the list (`parse` finds its class by its name)."""
    last: str
    """The end of its help: an example."""
    usage: str = "COMMAND [options]"


STUDY = Group(
    "plan, run and show the studies of the papers on a store of runs",
    "the studies of the papers: each a grid of runs, a table and a conclusion computed from it",
    {
        "list": "the studies and what each asks",
        "plan": "number of runs, how many are done, hours on this machine, disk space",
        "run": "train what is missing (run it again to resume)",
        "status": "what is done, running or failed on a store, and the time left",
        "show": "table and conclusion of a study, from the runs that are finished",
    },
    "Example: creditscope study run audit ablation temporal --preset smoke --store runs/store",
)
RUNS = Group(
    "list, show, remove, export and verify the runs of a store",
    "the runs of a store, or of an archive without weights (such as results/)",
    {
        "list": "one line per run",
        "show": "the report of one run, or why it failed",
        "rm": "remove runs",
        "export": "all runs as csv, json or parquet, or as an archive without weights",
        "measure": "add the facts that this version measures to finished runs, from their weights",
        "verify": "train a run again from its spec and compare its trajectory and report with the record",
    },
    "Example: creditscope runs list --store runs/store",
    "COMMAND --store DIR [options]",
)
PITFALLS = Group(
    "the known ways to mismeasure credit: see them, and find them in code and bundles",
    "fifteen ways to mismeasure credit",
    {
        "list": "the catalogue, one line each",
        "show": "why a pitfall misleads, and what to do instead",
        "run": "the pitfalls at work on small examples: wrong value, right value, factor",
        "scan": "find them in Python files (the files are parsed, never run)",
        "audit": "find them in the files of a bundle",
    },
    "Example: creditscope pitfalls scan my_experiment/",
)
CLAIM = Group(
    "make, check and seal a claim for the board, and draw its badge",
    "a claim about a method, with the reports that audit it",
    {
        "new": "make an entry from a bundle or a report (asks for what it cannot find there)",
        "add": "add an external evaluation, or a newer audit, to an entry",
        "check": "schema, seal, hashes, and that every verdict follows from the facts",
        "seal": "seal a claim again after editing its file by hand",
        "badge": "an SVG with the verdict and the protocol version",
    },
    "Example: creditscope claim check board/entries/embedded-dfa-rms",
)
BOARD = Group(
    "list a board of claims, and build its page",
    "published claims next to what their audits show",
    {
        "list": "one line per entry: claimed, audited, margin, verdict",
        "build": "a static page from a directory of entries",
    },
    "Example: creditscope board build board --out site",
)
ROOT = Group(
    "",
    "did a local learning rule really train your network, or does it only look that way?",
    {
        "demo": "train and audit BP, FA and DFA with their baselines on the embedded dataset",
        "train": "train one network by one credit rule into a bundle",
        "diagnose": "measure and judge the network of a bundle, or the arrays of a record",
        "diff": "compare two reports, bundles or records: what changed, and is it outside the intervals",
        "certify": "what the updates of a bundle's network depend on: a certificate of locality",
        "rules": "list the credit rules that can be trained and measured",
        "smoke": "check on four small networks that the papers' examples come out",
        "report": "one table over many bundles: accuracy and Γ next to what the protocol finds",
        "template": "a paper's reporting section, filled from runs: every number with its run",
        "checklist": "the known pitfalls as questions, answered from the files",
        "audit": "a paper's published numbers next to the runs of a store",
        "study": STUDY,
        "runs": RUNS,
        "pitfalls": PITFALLS,
        "claim": CLAIM,
        "board": BOARD,
    },
    "  --version   print the version\n  --help      show this text\n\n"
    "A bundle is the directory of one trained network, a store holds many bundles, a record is one file of arrays.\n"
    "Quick start: creditscope demo",
    "COMMAND [options]      creditscope COMMAND --help shows defaults and an example",
)


def named(args: Sequence[str]) -> tuple[list[str], str | Group]:
    """The words at the beginning of a call that name a command or a group of them, and what they name."""
    node: str | Group = ROOT
    words: list[str] = []
    while isinstance(node, Group) and len(words) < len(args) and args[len(words)] in node.commands:
        words.append(args[len(words)])
        node = node.commands[words[-1]]
    return words, node


def summary(node: str | Group) -> str:
    """The line of a command or of a group in the list that it stands in."""
    return node.summary if isinstance(node, Group) else node


def list_of(group: Group, words: Sequence[str]) -> str:
    """The help of a group: its commands with a line each."""
    name = " ".join(["creditscope", *words])
    width = max(map(len, group.commands))
    lines = "\n".join(f"  {command:<{width}}  {summary(node)}" for command, node in group.commands.items())
    return f"{name}: {group.title}\n\nusage: {name} {group.usage}\n\n{lines}\n\n{group.last}\n"
