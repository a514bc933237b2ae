"""The depth profile in rows and lines."""

from __future__ import annotations

from creditscope.measure.facts import DepthProfile, Readout
from creditscope.protocol.estimate import CALIBRATION
from creditscope.protocol.wording import signed_pp

HEADER = ["state", "readout", "95 % interval", "twin's readout", "95 % interval"]
TITLE = "Depth profile (accuracy of a linear readout; twin: random blocks)"


def profile_rows(profile: DepthProfile) -> list[list[str]]:
    """One row for the raw input, where it was read, and one per state."""
    rows = [] if profile.raw is None else [["input", *_cells(profile.raw), "", ""]]
    pairs = enumerate(zip(profile.curve, profile.twin, strict=True))
    return rows + [[f"h_{k}", *_cells(own), *_cells(twin)] for k, (own, twin) in pairs]


def profile_lines(profile: DepthProfile) -> list[str]:
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


def _cells(readout: Readout) -> list[str]:
    if readout.accuracy is None or readout.low is None or readout.high is None:
        return ["not finite", "–"]
    return [f"{readout.accuracy:.3f}", f"[{readout.low:.3f}, {readout.high:.3f}]"]
