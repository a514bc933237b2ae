"""The pitfalls as questions to an author: answered where the files can answer, marked where only the author can."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.pitfalls.base import Answer, Pitfall
from creditscope.pitfalls.registry import PITFALLS
from creditscope.render.document import Section
from creditscope.render.numbers import clip

QUESTIONS = {
    1: "Was every norm taken per sample over its features, not over a whole tensor or along a wrong axis?",
    2: "Was the reference gradient large enough that the eps of the cosine did not clamp it?",
    3: "Was the reference gradient computed in a dtype that can hold it (float32, bfloat16), not in float16?",
    4: "Was Γ compared with the same rule under redrawn feedback (fresh-B null)?",
    5: "Does the paper say how Γ was averaged over layers and samples, and would another average agree?",
    6: "Are the cosines shown layer by layer, so that one layer cannot carry the average?",
    7: "Were feedback matrices and auxiliary networks saved, and was Γ measured with the trained ones?",
    8: "Were credit and reference taken on the same samples?",
    9: "Does every comparison use a baseline of the same recipe and seed, trained by the same rule?",
    10: "Were credit and reference taken in the same mode (eval), not one in train and one in eval mode?",
    11: "Were the norms of the hidden states taken before any normalisation?",
    12: "Is there a null control: the same network with blocks that stay at their random start?",
    13: "Does the paper say whether the loss is a sum or a mean over the batch?",
    14: "Were zero gradients left out, not scored as 0 or 1?",
    15: "Are all seeds that were run reported, with none selected?",
}
"""`docs/review.md` asks the same, with a reason for each."""
SHOWN = 4
"""Runs named in an answer; the others are counted."""


@dataclass(frozen=True)
class Audited:
    """The answers about one network."""

    run: str
    """Short hash of the run, or the name of the report."""
    label: str
    answers: Sequence[tuple[Pitfall, Answer]]


@dataclass(frozen=True)
class Line:
    """One question with its answer over all networks. `found` outweighs; one network that cannot be told needs the author."""

    pitfall: Pitfall
    found: Sequence[tuple[str, str]]
    """(run, sentence) of every network where the pitfall was met."""
    clear: Sequence[tuple[str, str]]
    unknown: Sequence[tuple[str, str]]

    @property
    def question(self) -> str:
        return QUESTIONS[self.pitfall.number]

    @property
    def state(self) -> str:
        return "found" if self.found else "author" if self.unknown else "answered"

    @property
    def answer(self) -> str:
        found, clear, unknown = self.found, self.clear, self.unknown
        n = len(found) + len(clear) + len(unknown)
        if found:
            text = f"Pitfall met{f' in {len(found)} of {n} networks' if n > 1 else ''}: {_told(found, n)}"
            text += f"; to be answered by the author for {len(unknown)}: {_told(unknown, n)}" if unknown else ""
        elif unknown:
            which = f" for {len(unknown)} of {n} networks" if n > 1 else ""
            text = f"To be answered by the author: the files cannot tell{which} ({_told(unknown, n)})"
            text += f"; clear in {len(clear)}" if clear else ""
        else:
            text = f"Clear{f' in all {n}' if n > 1 else ''}: {_told(clear, n)}"
        return text + "."

    def to_dict(self) -> dict[str, Any]:
        answers = {"found": self.found, "clear": self.clear, "cannot_be_told": self.unknown}
        return {
            "id": self.pitfall.id,
            "title": self.pitfall.title,
            "question": self.question,
            "state": self.state,
            "answer": self.answer,
            **{name: [{"run": r, "sentence": s} for r, s in pairs] for name, pairs in answers.items()},
            "fix": self.pitfall.fix if self.found else "",
        }


def checklist(audited: Sequence[Audited]) -> list[Line]:
    """One line per pitfall of the catalogue."""
    lines = []
    for k, (pitfall, _) in enumerate(audited[0].answers):
        answers = [(network.run, network.answers[k][1]) for network in audited]
        by = {s: [(r, a.sentence) for r, a in answers if a.status == s] for s in ("found", "clear", "cannot be told")}
        lines.append(Line(pitfall, *by.values()))
    return lines


def _told(pairs: Sequence[tuple[str, str]], n: int) -> str:
    """Each sentence once, with the runs it holds for; without them where it holds for all n networks."""
    by: dict[str, list[str]] = {}
    for run, sentence in pairs:
        by.setdefault(clip(sentence, 200), []).append(run)
    parts = []
    for sentence, runs in list(by.items())[:SHOWN]:
        more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
        parts.append(sentence if len(runs) == n else f"{sentence} ({_called(runs[:SHOWN])}{more})")
    left = sum(len(runs) for runs in list(by.values())[SHOWN:])
    return "; ".join(parts) + (f"; likewise in {left} more" if left else "")


def _called(runs: Sequence[str]) -> str:
    """ "run 0a8579a4c7, 412a4af29b"; a report of no run is its file."""
    word = "run " if all(re.fullmatch("[0-9a-f]{10}", run) for run in runs) else ""
    return word + ", ".join(runs)


def questions() -> list[dict[str, str]]:
    """Every question with its pitfall."""
    return [{"pitfall": p.id, "question": QUESTIONS[p.number], "why": p.why} for p in PITFALLS]


def blank_form() -> list[Section]:
    """The questions without answers, to be filled in by hand."""
    rows = [[q["pitfall"], q["question"], q["why"], ""] for q in questions()]
    return [Section(TITLE, ["", "question", "why it matters", "answer"], rows, level=2, widths=(7, 40, 45, 14))]


TITLE = "Checklist of the known ways to mismeasure credit"
NAMES = {"answered": "✓ answered", "found": "✗ pitfall met", "author": "? author"}


def checklist_document(lines: Sequence[Line], audited: Sequence[Audited]) -> list[Section]:
    count = {state: sum(line.state == state for line in lines) for state in NAMES}
    rows = []
    for line in lines:
        todo = f" To do: {line.pitfall.fix}" if line.found else ""
        rows.append([line.pitfall.id, line.question, NAMES[line.state], line.answer + todo])
    left = [f"{line.pitfall.id}: {line.question}" for line in lines if line.state != "answered"]
    alone = f"{clip(audited[0].label, 80)} ({_called([audited[0].run])})"
    about = f"{len(audited)} networks" if len(audited) > 1 else alone
    text = (
        f"About {about}. Of {len(lines)} questions the files answer {count['answered']}; pitfalls met: {count['found']}; to "
        f"be answered by the author: {count['author']}."
    )
    form = Section(TITLE, ["", "question", "state", "answer"], rows, level=2, text=text, widths=(7, 30, 14, 55))
    return [form, Section("Left to do", lines=left, level=3)] if left else [form]
