"""Pieces that several architectures share."""

from __future__ import annotations

from torch import Tensor, nn

from creditscope.models.local import LocalBlock, Pull, linear_behind, unchanged


class FlatLinear(LocalBlock):
    """Linear map of the flattened input: [B, ...] -> [B, width]."""

    def __init__(self, n_in: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.flatten(1))
        return out

    def local(self, x: Tensor) -> tuple[Tensor, Pull] | None:
        linear = self.linear
        return linear_behind(x.flatten(1), (), linear) if unchanged([(self, FlatLinear), (linear, nn.Linear)]) else None


def small_output(linear: nn.Linear, std: float = 0.01) -> None:
    """The recipe's initialisation of a branch's last map: weight N(0, std^2), bias 0, so that h starts almost unchanged."""
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)


class StreamModel(nn.Module):
    """A network written as embed -> blocks -> readout: the duck-typed interface that the instrument reads.

    `blocks[l](h)` returns the branch f_l(h_l) (residual) or the next state (plain, `stream_kind = "plain"`).
    """

    stream_kind = "residual"
    embed: nn.Module
    blocks: nn.ModuleList
    out_ln: nn.Module
    out_head: nn.Module

    def readout(self, h: Tensor) -> Tensor:
        """h_L -> logits [B, C]; a token stream [B, T, d] is read at its first (cls) token."""
        out: Tensor = self.out_head(self.out_ln(h[:, 0] if h.dim() == 3 else h))
        return out

    def hidden_states(self, x: Tensor) -> list[Tensor]:
        """[h_0, ..., h_L]."""
        hiddens: list[Tensor] = [self.embed(x)]
        for block in self.blocks:
            h = hiddens[-1]
            hiddens.append(h + block(h) if self.stream_kind == "residual" else block(h))
        return hiddens

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        hiddens = self.hidden_states(x)
        logits = self.readout(hiddens[-1])
        return (logits, hiddens) if return_hidden else logits
