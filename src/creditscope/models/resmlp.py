"""ResMLP, the network of the primary audit; StudentNet, its kin without any LayerNorm for the synthetic teacher task."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from creditscope.models.local import LocalBlock, Pull, norm_mlp, unchanged
from creditscope.models.parts import FlatLinear, StreamModel, small_output


class MLPBranch(LocalBlock):
    """f_l: LayerNorm, Linear d -> d*ratio, GELU, Linear back; [B, d] -> [B, d]."""

    def __init__(self, width: int, ratio: int = 1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, width * ratio)
        self.act = nn.GELU()
        self.linear2 = nn.Linear(width * ratio, width)
        small_output(self.linear2)

    resets_as_constructed = True

    def reset_parameters(self) -> None:
        self.norm.reset_parameters()
        self.linear1.reset_parameters()
        small_output(self.linear2)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.linear2(self.act(self.linear1(self.norm(h))))
        return out

    def local(self, h: Tensor) -> tuple[Tensor, Pull] | None:
        norm, linear1, act, linear2 = self.norm, self.linear1, self.act, self.linear2
        parts = [
            (self, MLPBranch),
            (norm, nn.LayerNorm),
            (linear1, nn.Linear),
            (act, nn.GELU),
            (linear2, nn.Linear),
        ]
        if h.dim() != 2 or not unchanged(parts) or act.approximate != "none":
            return None
        return norm_mlp(h, norm, linear1, linear2)


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


class ResMLP(StreamModel):
    """embed Linear n_in -> d; L branches; terminal LayerNorm (optional); head Linear d -> C."""

    branch: Callable[[int, int], nn.Module] = MLPBranch

    def __init__(
        self, n_in: int, n_classes: int, width: int = 256, depth: int = 4, ratio: int = 1, terminal_norm: bool = True
    ) -> None:
        super().__init__()
        self.embed = FlatLinear(n_in, width)
        self.blocks = nn.ModuleList(self.branch(width, ratio) for _ in range(depth))
        self.out_ln = nn.LayerNorm(width) if terminal_norm else nn.Identity()
        self.out_head = nn.Linear(width, n_classes)


class StudentNet(ResMLP):
    """ResMLP of tanh branches; no normalisation anywhere (unless asked for)."""

    branch = TanhBranch

    def __init__(
        self, n_in: int, n_classes: int, width: int = 128, depth: int = 4, ratio: int = 1, terminal_norm: bool = False
    ) -> None:
        super().__init__(n_in, n_classes, width, depth, ratio, terminal_norm)
