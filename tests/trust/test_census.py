"""The census in short: some architectures of every kind are equal to plain hooks; and its judge sees what is false."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers", reason="extra hf is missing")

from tests.trust import census, census_page
from tests.trust.census import Line, judged

SHORT = ("albert", "bert", "convnext", "gpt2", "gpt_neox", "llama", "mamba", "mixtral", "t5", "vit", "wav2vec2")
"""Shared layers, encoders, convolutions, decoders, parallel residuals, state space, experts, encoder-decoder, vision, audio."""


@pytest.mark.parametrize("name", SHORT)
def test_an_architecture_is_equal_to_plain_hooks(name):
    line = judged(name, seconds=600)
    assert (line.outcome, line.note) == ("equal", "")
    assert line.blocks >= 2


def test_an_architecture_without_residual_blocks_is_refused_in_one_line():
    line = judged("mobilenet_v1", seconds=600)
    assert line.outcome == "refused"
    assert line.note.startswith("no residual blocks were found")


@pytest.mark.parametrize("what", ["states", "grads"])
def test_the_judge_sees_a_number_that_is_not_so(what, monkeypatch):
    real = census.by_calls

    def other(*args):
        found = real(*args)
        getattr(found, what)[1].mul_(1.001)
        return found

    monkeypatch.setattr(census, "by_calls", other)
    line = judged("llama", seconds=600)
    assert line.outcome == "wrong"
    assert line.note.startswith("h_1" if what == "states" else "g_1")


def test_the_page_counts_what_ran():
    lines = [
        Line("a", "AForCausalLM", "text", "equal", "", 3, "flatten"),
        Line("b", "B", "text", "refused", "no | blocks"),
        Line("c", "C", "vision", "not run", "why"),
    ]
    page = census_page.written("top\n<!-- census -->\nold\n<!-- end of the census -->\nend\n", lines)
    assert page.startswith("top\n<!-- census -->\n2 architectures of transformers")
    assert "1 equal (50 %), 1 refused, 0 wrong. 1 did not run" in page
    assert "| text | 1 | 1 | 0 | 0 |" in page
    assert "| b | no / blocks |" in page
    assert "old" not in page
    assert page.endswith("<!-- end of the census -->\nend\n")


def test_a_state_is_what_the_block_before_gave():
    first, handed = torch.randn(census.SAMPLES, 3), torch.randn(census.SAMPLES, 3)
    assert census.first_state((first, handed), handed) is handed
    assert census.first_state((first, handed)) is first
