"""The description of an artifact for its reviewers: what is claimed, how to run it, how long it takes, what to expect.

About two pages, from the files of the runs; what only the author knows is marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from creditscope.protocol.checks import chosen_margin
from creditscope.render.document import Section
from creditscope.render.numbers import accuracy, clip, interval_of, num, share, signed
from creditscope.render.template import Entry
from creditscope.render.words import span_text
from creditscope.runs.archive import command
from creditscope.runs.groups import network
from creditscope.training.spec import RunSpec

AUTHOR = "to be answered by the author"
DATA = {
    "quadratic": "embedded in creditscope; no download",
    "student": "drawn from a seeded teacher; no download",
    "cifar10": "CIFAR-10, read from local files (`--data-dir`) or downloaded with its checksum (about 170 MB)",
    "cifar100": "CIFAR-100, read from local files (`--data-dir`) or downloaded with its checksum (about 170 MB)",
}
NULLS = {"matched": "matched null", "bp": "bp null", "bp_trained": "BP itself"}


Part = partial(Section, level=3)


def artifact_description(
    entries: Sequence[Entry], versions: Mapping[str, Sequence[str]], hours: Sequence[float | None] = ()
) -> list[Section]:
    """The document. `versions`: of each package those that the runs were made with. `hours` on one core, one per entry."""
    return [
        Section(
            "Artifact description",
            level=2,
            text="Filled by creditscope from the files of the runs. It answers what reviewers of artifacts ask (NeurIPS "
            f"reproducibility checklist, ACM artifact review); what the files do not hold is marked “{AUTHOR}”.",
        ),
        _claims(entries),
        _needs(entries, versions),
        _run(entries),
        _time(entries, hours),
        _expect(entries),
        _questions(entries),
    ]


def _claims(entries: Sequence[Entry]) -> Section:
    rows = [[f"C{k}", _name(e), _found(e)] for k, e in enumerate(entries, 1)]
    lines = [f"Which table or figure of the paper each claim supports: {AUTHOR}."]
    return Part("What is claimed", ["claim", "network", "what the runs show"], rows, lines, widths=(6, 34, 60))


def _name(entry: Entry) -> str:
    notes = network(entry.spec) if entry.spec else entry.reports[0].notes
    return clip(f"{entry.label or 'network'} on {notes}" if notes else entry.label or "network", 120)


def _found(entry: Entry) -> str:
    verdicts = list(dict.fromkeys(r.verdict.conclusion for r in entry.reports))
    return clip(f"accuracy {_accuracy(entry)}; {'; or '.join(verdicts)} ({entry.reports[0].protocol})")


def _accuracy(entry: Entry) -> str:
    this = "" if entry.alone is None else f" (this network: {share(entry.alone)})"
    return f"{accuracy(entry.stated)}{this}" if entry.stated else "not stated"


def _needs(entries: Sequence[Entry], versions: Mapping[str, Sequence[str]]) -> Section:
    sets = dict.fromkeys(e.spec.dataset for e in entries if e.spec is not None)
    made = "; ".join(f"{name} {' and '.join(found)}" for name, found in versions.items())
    lines = [
        f"Software: Python 3.10 or newer, creditscope and what it installs. The runs were made with: {made or AUTHOR}.",
        "Hardware: a CPU; each network trains on one core." if sets else f"Hardware: {AUTHOR}.",
        *(f"Data set {name}: {DATA[name]}." for name in sets),
    ]
    if any(e.spec is None for e in entries):
        lines.append(f"Data of the networks that come as reports: {AUTHOR}.")
    return Part("What you need", lines=lines)


def _run(entries: Sequence[Entry]) -> Section:
    rows = []
    for k, entry in enumerate(entries, 1):
        if entry.spec is None:
            rows.append([f"C{k}", f"command: {AUTHOR} (a report does not hold it)"])
            continue
        others = [str(s) for s in entry.seeds if s not in (None, entry.spec.seed)]
        rows += [[f"C{k}, {what}", f"{command(spec)} --out runs/{spec.slug}"] for what, spec in _networks(entry)]
        if others:
            seeds = f"each command again with --seed {', then '.join(others)}, into directories of their own"
            rows.append([f"C{k}, other seeds", seeds])
    lines = [
        "Judge: creditscope report runs --html report.html --strict (exit code 0: every verdict passes, 3: one fails).",
        "Without training: creditscope report on the files of this artifact judges the stored facts again; "
        "creditscope diagnose BUNDLE measures a network again from its weights.",
    ]
    caption = "Train every network, then judge all of them."
    return Part("How to run it", ["step", "command"], rows, lines, caption=caption, widths=(20, 80))


def _networks(entry: Entry) -> list[tuple[str, RunSpec]]:
    """The first seed of the method, and of what it is compared with."""
    assert entry.spec is not None
    made = {entry.spec.hash: ("trained", entry.spec)}
    kinds = {n.kind for n in entry.nulls}
    bp = entry.spec.null("bp")
    wanted = {"matched": entry.spec.null("matched"), "bp": bp, "bp_trained": bp.changed(train_last=None)}
    for kind, spec in wanted.items():
        if kind in kinds:
            made.setdefault(spec.hash, (NULLS[kind], spec))
    return list(made.values())


def _time(entries: Sequence[Entry], hours: Sequence[float | None]) -> Section:
    rows = []
    for k, entry in enumerate(entries, 1):
        taken = hours[k - 1] if k <= len(hours) else None
        networks = len(entry.reports) + len({n.run for n in entry.nulls})
        epochs = str(entry.spec.epochs) if entry.spec else AUTHOR
        rows.append([f"C{k}", str(networks), epochs, AUTHOR if taken is None else _duration(taken)])
    caption = "Time of all networks of a claim on one core"
    caption += (
        ", from a few training steps of each kind that were timed here."
        if any(h is not None for h in hours)
        else "; the files do not hold it (creditscope template --artifact --time measures it)."
    )
    return Part("How long it takes", ["claim", "networks", "epochs each", "time"], rows, caption=caption)


def _duration(hours: float) -> str:
    return f"{num(hours, 2)} hours" if hours >= 1 else f"{max(1, round(60 * hours))} min"


def _expect(entries: Sequence[Entry]) -> Section:
    rows = []
    for k, e in enumerate(entries, 1):
        margin = chosen_margin(e.reports[0].facts)
        margin_text = "not measured (no null)"
        if margin is not None:
            margin_text = f"{signed(margin.margin_pp, 1)} to the {margin.null} null"
            if margin.low_pp is not None:
                margin_text += f" {interval_of(margin.low_pp, margin.high_pp)}, {clip(margin.interval, 60)}"
        growth = [r.facts.scale.growth for r in e.reports]
        reference = [r.facts.reference.batch_mean_128[-1] for r in e.reports]
        rows.append([f"C{k}", _accuracy(e), margin_text, _span(growth), _span(reference), e.runs])
    header = ["claim", "accuracy", "margin (pp), 95 % interval", "growth", "‖g_L‖/128", "runs"]
    lines = [
        "The same versions on the same kind of CPU give the same bits: creditscope runs verify HASH --store STORE "
        "trains a run again and compares every epoch.",
        "Elsewhere rounding differs and the numbers move with it: a claim is reproduced where its verdict is the same.",
    ]
    caption = "What a run of these commands should show; smallest to largest over seeds."
    return Part("What to expect", header, rows, lines, caption=caption)


def _span(values: Sequence[float]) -> str:
    return span_text((min(values), max(values)), 3)


def _questions(entries: Sequence[Entry]) -> Section:
    counts = sorted({max(len(e.reports), len(e.stated)) for e in entries})
    seeds = " to ".join(dict.fromkeys((str(counts[0]), str(counts[-1]))))
    rows = {
        "Do the main claims match what was measured? (NeurIPS: claims; ACM: results reproduced)": "What is claimed",
        "Are data and code there, with instructions? (NeurIPS: open access; ACM: available, documented)": "What you need",
        "Are all settings stated? (NeurIPS: setting)": "How to run it; creditscope template has every option of every run",
        "Are there error bars, over what? (NeurIPS: significance)": f"What to expect; networks per claim: {seeds}",
        "What resources does it need? (NeurIPS: compute; ACM: exercisable)": "How long it takes",
        "Where is it archived, under which licence? (ACM: available, reusable)": AUTHOR,
    }
    title = "Where the reviewers' questions are answered"
    return Part(title, ["question", "answer"], [*rows.items()], widths=(60, 40))
