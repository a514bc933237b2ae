"""StudentNet: a residual network without any LayerNorm, for the synthetic teacher task."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from creditscope.models.parts import FlatLinear, StreamModel, small_output


class TanhBranch(nn.Module):
    """f_l: Linear, tanh, Linear; [B, d] -> [B, d]."""

    def __init__(self, width: int, ratio: int = 1) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, width * ratio)
        self.linear2 = nn.Linear(width * ratio, width)
        small_output(self.linear2)

    resets_as_constructed = True

    def reset_parameters(self) -> None:
        self.linear1.reset_parameters()
        small_output(self.linear2)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.linear2(torch.tanh(self.linear1(h)))
        return out


class StudentNet(StreamModel):
    """embed Linear n_in -> d; L tanh branches; head Linear d -> C; no normalisation anywhere (unless asked for)."""

    def __init__(
        self, n_in: int, n_classes: int, width: int = 128, depth: int = 4, ratio: int = 1, terminal_norm: bool = False
    ) -> None:
        super().__init__()
        self.embed = FlatLinear(n_in, width)
        self.blocks = nn.ModuleList(TanhBranch(width, ratio) for _ in range(depth))
        self.out_ln = nn.LayerNorm(width) if terminal_norm else nn.Identity()
        self.out_head = nn.Linear(width, n_classes)
