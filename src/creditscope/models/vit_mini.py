"""ViT-Mini: a small vision transformer whose head reads the cls token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.models.parts import StreamModel, small_output

HEADS = 4


class PatchEmbed(nn.Module):
    """[B, 3, S, S] -> [B, 1 + (S/patch)^2, d]: patches, a cls token in front, learned positions."""

    def __init__(self, in_channels: int, size: int, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(in_channels, width, patch, stride=patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.pos = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, width) * 0.02)

    resets_as_constructed = True

    def reset_parameters(self) -> None:
        self.proj.reset_parameters()
        nn.init.normal_(self.cls, std=0.02)
        nn.init.normal_(self.pos, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.proj(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls.expand(len(x), -1, -1), tokens], dim=1) + self.pos


class TransformerBranch(nn.Module):
    """f_l(h) = u + mlp(LN(h + u)) with u = attention(LN(h)); [B, T, d] -> [B, T, d]."""

    def __init__(self, width: int, ratio: int = 2) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, width * ratio)
        self.act = nn.GELU()
        self.linear2 = nn.Linear(width * ratio, width)
        small_output(self.proj)
        small_output(self.linear2)

    resets_as_constructed = True

    def reset_parameters(self) -> None:
        for module in (self.norm1, self.qkv, self.norm2, self.linear1):
            module.reset_parameters()
        small_output(self.proj)
        small_output(self.linear2)

    def attention(self, h: Tensor) -> Tensor:
        b, t, d = h.shape
        q, k, v = self.qkv(h).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        out: Tensor = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return out

    def forward(self, h: Tensor) -> Tensor:
        u = self.attention(self.norm1(h))
        out: Tensor = u + self.linear2(self.act(self.linear1(self.norm2(h + u))))
        return out


class ViTMini(StreamModel):
    """Patch 4, cls token, L transformer branches, terminal LayerNorm, head on the cls token."""

    def __init__(
        self,
        n_classes: int,
        width: int = 128,
        depth: int = 4,
        ratio: int = 2,
        patch: int = 4,
        size: int = 32,
        in_channels: int = 3,
        terminal_norm: bool = True,
    ) -> None:
        super().__init__()
        self.embed = PatchEmbed(in_channels, size, patch, width)
        self.blocks = nn.ModuleList(TransformerBranch(width, ratio) for _ in range(depth))
        self.out_ln = nn.LayerNorm(width) if terminal_norm else nn.Identity()
        self.out_head = nn.Linear(width, n_classes)
