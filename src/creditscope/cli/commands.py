"""The commands as data. Their lists of commands are printed from here before tyro is imported (.28 s), and tyro is given the
class that is named here: a new command is one line and one class with a method `execute() -> exit code`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """One command: a dataclass whose fields are its options and whose docstring is its help."""

    place: str
    """module.Class under creditscope.cli"""
    summary: str


class Group(NamedTuple):
    """Commands under one word."""

    summary: str
    """One line in the list of commands that the group stands in."""
    title: str
    commands: dict[str, Command | Group]
    last: str
    """The end of its help: an example."""
    usage: str = "COMMAND [options]"


STUDY = Group(
    "plan, run and show the studies of the papers on a store of runs",
    "the studies of the papers: each a grid of runs, a table and a conclusion computed from it",
    {
        "list": Command("study.List", "the studies and what each asks"),
        "plan": Command("study.Plan", "number of runs, how many are done, hours on this machine, disk space"),
        "run": Command("study.Run", "train what is missing (run it again to resume)"),
        "status": Command("study.Status", "what is done, running or failed on a store, and the time left"),
        "show": Command("study.Show", "table and conclusion of a study, from the runs that are finished"),
    },
    "Example: creditscope study run audit ablation temporal --preset smoke --store runs/store",
)
RUNS = Group(
    "list, show, remove, export and verify the runs of a store",
    "the runs of a store, or of an archive without weights (such as results/)",
    {
        "list": Command("runs.List", "one line per run"),
        "show": Command("runs.Show", "the report of one run, or why it failed"),
        "rm": Command("runs.Remove", "remove runs"),
        "export": Command("runs.Export", "all runs as csv, json or parquet, or as an archive without weights"),
        "measure": Command(
            "runs.Measure", "add the facts that this version measures to finished runs, from their weights"
        ),
        "verify": Command(
            "runs.Verify", "train a run again from its spec and compare its trajectory and report with the record"
        ),
    },
    "Example: creditscope runs list --store runs/store",
    "COMMAND --store DIR [options]",
)
PITFALLS = Group(
    "the known ways to mismeasure credit: see them, and find them in code and bundles",
    "fifteen ways to mismeasure credit",
    {
        "list": Command("pitfalls.List", "the catalogue, one line each"),
        "show": Command("pitfalls.Show", "why a pitfall misleads, and what to do instead"),
        "run": Command("pitfalls.Run", "the pitfalls at work on small examples: wrong value, right value, factor"),
        "scan": Command("pitfalls.Scan", "find them in Python files (the files are parsed, never run)"),
        "audit": Command("pitfalls.Audit", "find them in the files of a bundle"),
    },
    "Example: creditscope pitfalls scan my_experiment/",
)
CLAIM = Group(
    "make, check and seal a claim for the board, and draw its badge",
    "a claim about a method, with the reports that audit it",
    {
        "new": Command("claim.New", "make an entry from a bundle or a report (asks for what it cannot find there)"),
        "add": Command("claim.Add", "add an external evaluation, or a newer audit, to an entry"),
        "check": Command("claim.Check", "schema, seal, hashes, and that every verdict follows from the facts"),
        "seal": Command("claim.Seal", "seal a claim again after editing its file by hand"),
        "badge": Command("claim.Badge", "an SVG with the verdict and the protocol version"),
    },
    "Example: creditscope claim check board/entries/embedded-dfa-rms",
)
BOARD = Group(
    "list a board of claims, and build its page",
    "published claims next to what their audits show",
    {
        "list": Command("board.List", "one line per entry: claimed, audited, margin, verdict"),
        "build": Command("board.Build", "a static page from a directory of entries"),
    },
    "Example: creditscope board build board --out site",
)
ROOT = Group(
    "",
    "did a local learning rule really train your network, or does it only look that way?",
    {
        "demo": Command("demo.Demo", "train and audit BP, FA and DFA with their baselines on the embedded dataset"),
        "train": Command("train.Train", "train one network by one credit rule into a bundle"),
        "diagnose": Command(
            "diagnose.Diagnose", "measure and judge the network of a bundle, or the arrays of a record"
        ),
        "diff": Command(
            "diff.Diff", "compare two reports, bundles or records: what changed, and is it outside the intervals"
        ),
        "certify": Command(
            "certify.Certify", "what the updates of a bundle's network depend on: a certificate of locality"
        ),
        "rules": Command("rules.Rules", "list the credit rules that can be trained and measured"),
        "smoke": Command("smoke.Smoke", "check on four small networks that the papers' examples come out"),
        "report": Command(
            "report.Report", "one table over many bundles: accuracy and Γ next to what the protocol finds"
        ),
        "template": Command(
            "template.Template", "a paper's reporting section, filled from runs: every number with its run"
        ),
        "checklist": Command("checklist.Checklist", "the known pitfalls as questions, answered from the files"),
        "audit": Command("audit.Audit", "a paper's published numbers next to the runs of a store"),
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


def named(args: Sequence[str]) -> tuple[list[str], Command | Group]:
    """The words at the beginning of a call that name a command or a group of them, and what they name."""
    node: Command | Group = ROOT
    words: list[str] = []
    while isinstance(node, Group) and len(words) < len(args) and args[len(words)] in node.commands:
        words.append(args[len(words)])
        node = node.commands[words[-1]]
    return words, node


def list_of(group: Group, words: Sequence[str]) -> str:
    """The help of a group: its commands with a line each."""
    name = " ".join(["creditscope", *words])
    width = max(map(len, group.commands))
    lines = "\n".join(f"  {command:<{width}}  {node.summary}" for command, node in group.commands.items())
    return f"{name}: {group.title}\n\nusage: {name} {group.usage}\n\n{lines}\n\n{group.last}\n"
