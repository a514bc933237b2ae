"""State Bridge: credit through a learned prediction of the last hidden state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, Options, as_interface
from creditscope.credit.bridge_net import BridgeNet, Learning, condition_of, made, read_states
from creditscope.stream.interface import InterfaceStream, Stream


class StateBridgeOptions(Options):
    width: int = Field(256, ge=1, le=65536)
    """Hidden features of G."""
    layers: int = Field(2, ge=1, le=16)
    """GELU layers of G."""
    lr: float = Field(1e-3, gt=0, le=10)
    """Step size of G's AdamW."""
    residual: bool = False
    """G = h_l + net where the stream is residual, instead of the net alone."""
    condition: Literal["none", "error"] = "none"
    """What G sees beside h_l and t_l: nothing, or e (which already tells much of h_L)."""
    decay: float = Field(0.99, ge=0, lt=1)
    """Of the running RMS of each h_l."""


class StateBridge(Learning):
    """a_l = gradient over h_l of CE(readout(G(h_l, t_l)), y); G is trained on (h_l -> h_L) while the network trains.

    G(h_l, t_l) = s_L net(h_l / s_l, t_l), s_l = running RMS of h_l: the units of the stream are taken out, since h may grow
    by orders of magnitude. Not LayerNorm: G has to predict the length of h_L too. G's loss is the mean squared error divided
    by the variance of h_L (`normalised_error`), averaged over l = 0..L. h_l and h_L are detached; the readout is used as it
    is and not trained. No layer is exact by construction: at l = L, too, G is the learned predictor.

    With `residual` G starts at the identity. Its cosine is then higher (a_L is almost exact, and where h_l is close to h_L the
    rest follows), also with a network that has learned nothing: its null of re-initialised networks is not near zero.
    """

    name = "sb"
    has_feedback = True
    summary = "State Bridge: gradient of the loss through a learned prediction of h_L from h_l"
    numbers = ("widths", "n_classes", "skip")
    tensors = ("scale",)
    runs_parts = True
    Options = StateBridgeOptions
    options: StateBridgeOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.skip = False
        self.scale = torch.ones(0)

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        super().setup(stream, n_classes, generator)
        self.skip = self.options.residual and stream.kind == "residual" and len(set(self.widths)) == 1

    def network(self, widths: list[int], size: int) -> nn.Module:
        o = self.options
        self.widths, self.n_classes = widths, size
        self.scale = torch.ones(len(widths))
        return BridgeNet(widths, widths[-1], o.width, o.layers, size, o.condition)

    def predict(self, states: Sequence[Tensor], condition: Tensor | None) -> Tensor:
        """[h_0, ..., h_L] (each [B, d_l]) -> predictions of h_L, [L+1, B, d_L]."""
        net = made(self.learner, self.name).net
        xs = [h / s for h, s in zip(states, self.scale, strict=True)]
        out: Tensor = self.scale[-1] * net(xs, range(len(xs)), condition)
        return out + torch.stack(list(states)) if self.skip else out

    def learn(self, batch: CreditBatch) -> None:
        learner, states = made(self.learner, self.name), read_states(batch)
        rms = torch.stack([h.square().mean().sqrt() for h in states]).clamp_min(1e-8)
        first = not learner.optimizer.started()
        self.scale = rms if first else torch.lerp(rms, self.scale, self.options.decay)
        with torch.enable_grad():
            predicted = self.predict(states, condition_of(batch, self.options.condition))
            learner.step(normalised_error(predicted, states[-1]))

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        stream = as_interface(batch.stream, self.name)
        with torch.enable_grad():
            states = [h.requires_grad_() for h in read_states(batch)]
            predicted = self.predict(states, condition_of(batch, self.options.condition))
            logits = readout(stream, predicted.flatten(0, 1).to(batch.logits.dtype))
            loss = F.cross_entropy(logits, batch.y.repeat(len(states)), reduction="sum")
            credits = torch.autograd.grad(loss, states)
        return [a.to(batch.hiddens[0].dtype) for a in credits]

    def redraw(self, stream: Stream, n_classes: int, generator: torch.Generator) -> StateBridge:
        fresh = cast(StateBridge, super().redraw(stream, n_classes, generator))
        fresh.scale = self.scale.clone()  # units of the stream, nothing learned
        return fresh


def normalised_error(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean squared error over the variance of the target (over the batch, mean of the features): 1 is the best constant.

    predicted [L+1, B, d], target [B, d].
    """
    variance = target.var(dim=0, correction=0).mean()
    return (predicted - target).square().mean() / (variance + 1e-12)


def readout(stream: InterfaceStream, read: Tensor) -> Tensor:
    """Logits of vectors as they are read at h_L; [N, d_L] -> [N, C]."""
    tokens = len(stream.shapes[-1]) == 2 and stream.read in ("cls", "last", "mean")
    return stream.readout(read if tokens else read.reshape(len(read), *stream.shapes[-1]))
