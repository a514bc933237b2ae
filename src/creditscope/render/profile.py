"""The depth profile: as text, Markdown, a figure, a notebook card and a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from creditscope.measure.facts import DepthProfile, Readout
from creditscope.protocol.estimate import CALIBRATION
from creditscope.protocol.wording import signed_pp
from creditscope.render.card import card
from creditscope.render.document import Section, to_markdown
from creditscope.render.markdown import LONGEST
from creditscope.render.numbers import share
from creditscope.render.text import shown, to_text
from creditscope.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from creditscope.render.plots import Drawing

HEADER = ["state", "readout", "95 % interval", "twin's readout", "95 % interval"]
TITLE = "Depth profile (accuracy of a linear readout; twin: random blocks)"


def text(profile: DepthProfile) -> str:
    return to_text(shown(profile_section(profile)))


def markdown(profile: DepthProfile) -> str:
    return to_markdown([profile_section(profile)], LONGEST)


def html(profile: DepthProfile) -> str:
    section = profile_section(profile)
    return card("Depth profile", "", section.lines[:2], section, plot(profile))


def plot(profile: DepthProfile) -> Drawing:
    from creditscope.render.figures import profile_figure

    return profile_figure([profile])


def frame(profile: DepthProfile) -> Any:
    """One row per state, the raw input first where it was read."""
    rows = tuple(
        Row({"state": Cell(name), "readout": _cell(own), "twin": _cell(twin)}) for name, own, twin in _states(profile)
    )
    return Table("profile", TITLE, tuple(map(Column, ("state", "readout", "twin"))), rows).to_frame()


def _states(profile: DepthProfile) -> list[tuple[str, Readout, Readout | None]]:
    """(name, readout, that of the twin) of the raw input, where it was read, and of every state."""
    raw: list[tuple[str, Readout, Readout | None]] = [] if profile.raw is None else [("input", profile.raw, None)]
    return raw + [(f"h_{k}", own, profile.twin[k]) for k, own in enumerate(profile.curve)]


def _cell(readout: Readout | None) -> Cell:
    return Cell() if readout is None else Cell(readout.accuracy, readout.low, readout.high)


def profile_section(profile: DepthProfile) -> Section:
    """One row for the raw input, where it was read, and one per state; then the margin and how it was measured."""
    rows = [[name, *_words(own), *_words(twin)] for name, own, twin in _states(profile)]
    return Section(TITLE, HEADER, rows, _lines(profile), numbers=True, empty="the twin gets the same input")


def _lines(profile: DepthProfile) -> list[str]:
    """The margin, the first block that takes accuracy away, how it was measured."""
    lines = []
    if (m := profile.margin) is not None:
        lines.append(
            f"profile margin (readout of h_L minus the twin's) {signed_pp(m.pp)} pp [{signed_pp(m.low_pp)}, "
            f"{signed_pp(m.high_pp)}], paired over {profile.n_test:,} test samples: estimates the depth margin ({CALIBRATION})"
        )
    elif not profile.twin[-1].width:
        lines.append("profile margin not measured: the states of the twin were not given")
    else:
        lines.append("profile margin not measurable: a state is not finite")
    lost = profile.first_loss
    if lost is not None and (step := profile.steps[lost]) is not None:
        lines.append(
            f"block {lost} is the first that takes accuracy away: {signed_pp(step.pp)} pp from h_{lost} to h_{lost + 1} "
            f"[{signed_pp(step.low_pp)}, {signed_pp(step.high_pp)}]"
        )
    elif all(step is not None for step in profile.steps):
        lines.append("no block takes accuracy away (95 % for all blocks together)")
    read = f"fitted on {profile.fit_rows:,}, tested on {profile.test_rows:,} "
    read += "samples" if profile.fit_rows == profile.n_fit else f"tokens of {profile.n_test:,} sequences"
    twin = f"twin: seed {profile.seed}, embedding {'kept' if profile.rest == 'keep' else 'fresh'}"
    lines.append("; ".join([read, *([] if profile.rest == "given" else [twin]), *profile.notes]))
    if profile.raw is None:
        lines.append(f"raw input not read: {profile.raw_reason}")
    return lines


def _words(readout: Readout | None) -> list[str]:
    if readout is None:
        return ["", ""]
    if readout.accuracy is None or readout.low is None or readout.high is None:
        return ["not finite", "–"]
    return [share(readout.accuracy), f"[{share(readout.low)}, {share(readout.high)}]"]
