"""The loss of tokens with its gradient, against autograd; and when one sample tells how a model reads its labels."""

from __future__ import annotations

import pytest
import torch

from creditscope.measure import loss
from creditscope.measure.loss import cross_entropy, token_losses
from creditscope.stream.labels import Losses, is_clear


@pytest.mark.parametrize("few", [1, 10, 10**6])
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 1e-7), (torch.float64, 1e-15), (torch.bfloat16, 1e-2), (torch.float16, 1e-3)]
)
def test_the_losses_of_tokens_and_their_gradient_are_those_of_autograd(dtype, most, few, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK", few)
    rng = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(2, 5, 7, generator=rng)).to(dtype).requires_grad_()
    y = torch.randint(0, 7, (2, 5), generator=rng)
    y[0, 1:3] = -100
    wanted = cross_entropy(logits, y)
    (slope,) = torch.autograd.grad(wanted.sum(), logits)
    losses, found = token_losses(logits.detach(), y)
    assert (losses.dtype, found.dtype) == (wanted.dtype, dtype)
    torch.testing.assert_close(losses, wanted.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(found, slope, rtol=0, atol=most)
    assert not found[0, 1:3].any()


@pytest.mark.parametrize(
    ("own", "as_given", "shifted", "clear"),
    [
        (3.0, 3.0, 3.2, True),
        (3.2, 3.0, 3.2, True),
        (3.0, 3.0, 3.001, False),  # a further sample is asked
        (3.0, 3.1, 3.2, False),
        (float("nan"), 3.0, 3.2, False),
    ],
)
def test_one_sample_tells_where_the_other_way_is_far_from_it(own, as_given, shifted, clear):
    assert is_clear(Losses(*map(torch.tensor, (own, as_given, shifted)))) is clear
