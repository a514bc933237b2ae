"""FF: the Forward-Forward algorithm (Hinton 2022) on a stream."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from creditscope.credit.adamw import AdamW
from creditscope.credit.base import CreditBatch, CreditRule, Options, as_interface
from creditscope.credit.bp import parts_of, states_of
from creditscope.credit.bridge_net import draw_seed, same_buffers
from creditscope.credit.pepita import input_size
from creditscope.errors import CreditscopeError
from creditscope.stream.devices import moved
from creditscope.stream.interface import InterfaceStream, Stream


class FFOptions(Options):
    threshold: float = Field(1.0, gt=0, le=1e6)
    """θ of the goodness."""
    scale: float = Field(5.0, gt=0, le=1e6)
    """Size of the label that is written into the input (inputs have a standard deviation of about 1)."""


class ForwardForward(CreditRule):
    """Goodness G: the mean square of what a part of the network makes, h_0 for the embedding and f_l(h_l) for block l (not
    h_{l+1}, which holds the goodness of all blocks before). Each part lowers softplus(θ - G) on positive and softplus(G - θ) on
    negative inputs, its own input detached. Positive: x with scale (onehot(y) - 1/C) added to its first C numbers; negative: the
    same with a wrong label, drawn anew for each sample; neutral: x as it is. Terminal norm and head learn from the exact gradient
    on neutral input, and the network's accuracy is the head's there; `predicted` gives the label of the largest goodness.

    The credit is the gradient of softplus(θ - G) at the states of the batch. Backpropagation's gradient is not what FF follows.
    """

    name = "ff"
    summary = "Forward-Forward: goodness per layer raised on inputs with their label, lowered with a wrong one"
    uses_norm = False
    objective = "own"
    runs_parts = True
    numbers = ("seed", "steps")
    Options = FFOptions
    options: FFOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.last: Tensor | None = None
        """Mean goodness over the parts on the last batch's positive and negative inputs, [2]; read when it is asked for."""

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        if (n := input_size(stream, self.name)) < n_classes:
            raise CreditscopeError(
                f"credit rule 'ff' writes the label into {n_classes} numbers of the input, which has {n}"
            )
        self.seed = draw_seed(generator)

    def written(self, x: Tensor, y: Tensor, n_classes: int) -> Tensor:
        """x with the label y in its first numbers."""
        flat = x.flatten(1).clone()
        flat[:, :n_classes] += self.options.scale * (F.one_hot(y, n_classes).to(x) - 1 / n_classes)
        return flat.view_as(x)

    def negatives(self, y: Tensor, n_classes: int) -> Tensor:
        """A wrong label for each sample, uniform; drawn from this training step's own numbers."""
        return (y + moved(torch.randint(1, n_classes, y.shape, generator=self.step_generator()), y)) % n_classes

    def backward(self, stream: InterfaceStream, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        with torch.no_grad():
            top = states_of(stream, x)[-1]
        logits = stream.readout(top)
        loss = F.cross_entropy(logits, y)
        c, theta = logits.shape[1], self.options.threshold
        with same_buffers(stream.model):  # running statistics are those of neutral inputs
            both = torch.cat([self.written(x, y, c), self.written(x, self.negatives(y, c), c)])
            made, _ = parts_of(stream, both)
        goods = [goodness(part) for part in made]
        total = loss
        for layer, good in enumerate(goods):
            total = total + F.softplus(theta - good[: len(y)]).mean() + F.softplus(good[len(y) :] - theta).mean()
            if penalty and layer:
                total = total + penalty * made[layer].flatten(1).square().sum(1).mean()
        total.backward()
        self.last = torch.stack([g.detach().view(2, -1).mean(1) for g in goods]).mean(0)
        return loss.detach()

    @torch.no_grad()
    def predicted(self, stream: InterfaceStream, x: Tensor, n_classes: int) -> Tensor:
        """The label under which the goodness of the blocks is largest, [B]; one pass per class."""
        scores = []
        for label in range(n_classes):
            y = torch.full((len(x),), label, device=x.device)
            made, _ = parts_of(stream, self.written(x, y, n_classes))
            scores.append(torch.stack([goodness(part) for part in made[1:]]).sum(0))
        return torch.stack(scores, 1).argmax(1)

    @torch.no_grad()
    def credit(self, batch: CreditBatch) -> list[Tensor]:
        stream, theta = as_interface(batch.stream, self.name), self.options.threshold
        with same_buffers(stream.model):
            made = [batch.hiddens[0], *(stream.branch(k, batch.hiddens[k]) for k in range(stream.depth))]
        credits = []
        for part in made:
            slope = -torch.sigmoid(theta - goodness(part)) * 2 / part[0].numel()
            credits.append(stream.read_grad(part * slope.view(-1, *[1] * (part.dim() - 1))))
        return credits

    def after_step(self, stream: InterfaceStream, optimizer: AdamW) -> None:
        self.steps += 1

    def diagnostics(self) -> dict[str, float]:
        """Mean goodness over the parts on the last batch's positive and negative inputs."""
        if self.last is None:
            return {}
        return dict(zip(("goodness_positive", "goodness_negative"), self.last.tolist(), strict=True))

    def counting_note(self, depth: int, kind: str) -> str:
        return "Forward-Forward follows a goodness of each layer: Γ is not what it optimises; read D3, the profile and the scale"


def goodness(part: Tensor) -> Tensor:
    """Mean square per sample; [B, ...] -> [B]."""
    return part.flatten(1).square().mean(1)
