"""A claim on a bundle: measured and certified by `claim new`, trained again by `claim check --retrain`."""

from __future__ import annotations

import pytest
from tests.cli.calls import out
from tests.training.small import DFA_RMS, spec

from creditscope.board.retrain import Again
from creditscope.cli import main
from creditscope.training.loop import train


def test_a_bundle_becomes_a_claim_and_its_networks_are_trained_again(tmp_path, capsys):
    own = spec(width=4, epochs=1, batch_size=5000, **DFA_RMS)
    for run in (own, own.null("matched")):
        train(run, tmp_path / "runs" / run.slug)
    entry = tmp_path / "entries" / "small"
    assert main(["claim", "new", str(tmp_path / "runs" / own.slug), "--out", str(entry), "--by", "me"]) == 0
    printed = out(capsys, "claim", "check", entry, "--retrain")
    assert "2 runs of 1 epochs" in printed
    assert printed.count(": exact") == 2


@pytest.mark.parametrize(
    ("recorded", "here", "status"),
    [
        (0.5, 0.5, "exact"),
        (0.5, 0.519, "within tolerance"),
        (0.5, 0.521, "not reproduced"),
        (0.5, 0.4, "not reproduced"),
    ],
)
def test_an_accuracy_may_differ_by_two_points(recorded, here, status):
    assert Again("a null", recorded, here).status == status
