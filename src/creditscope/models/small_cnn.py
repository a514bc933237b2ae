"""SmallCNN: a plain (not residual) convolutional network; h_{l+1} = f_l(h_l)."""

from __future__ import annotations

from torch import Tensor, nn

from creditscope.models.parts import StreamModel


class ConvStage(nn.Module):
    """3x3 convolution, BatchNorm, ReLU and, if `pool`, 2x2 max-pooling; [B, c_in, H, W] -> [B, c_out, H', W']."""

    def __init__(self, c_in: int, c_out: int, pool: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.bn = nn.BatchNorm2d(c_out)
        self.act = nn.ReLU()
        self.pool: nn.Module = nn.MaxPool2d(2) if pool else nn.Identity()

    def linear_twin(self) -> nn.Module:
        """A linear stage of the same shapes (random feedback goes through its transpose): convolution, mean-pooling."""
        conv = nn.Conv2d(self.conv.in_channels, self.conv.out_channels, 3, padding=1, bias=False)
        return nn.Sequential(conv, nn.AvgPool2d(2)) if isinstance(self.pool, nn.MaxPool2d) else conv

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.pool(self.act(self.bn(self.conv(h))))
        return out


class DenseStage(nn.Module):
    """Linear and ReLU on the flattened map; [B, ...] -> [B, width]."""

    def __init__(self, n_in: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_in, width)
        self.act = nn.ReLU()

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.act(self.linear(h.flatten(1)))
        return out


class SmallCNN(StreamModel):
    """conv 3->32 (the embedding), 32->64 + pool, 64->128 + pool, FC 8192->256, head FC 256->C; BatchNorm, no LayerNorm."""

    stream_kind = "plain"

    def __init__(self, n_classes: int, width: int = 256, in_channels: int = 3, size: int = 32) -> None:
        super().__init__()
        self.embed = ConvStage(in_channels, 32, pool=False)
        self.blocks = nn.ModuleList(
            [ConvStage(32, 64, pool=True), ConvStage(64, 128, pool=True), DenseStage(128 * (size // 4) ** 2, width)]
        )
        self.out_ln = nn.Identity()
        self.out_head = nn.Linear(width, n_classes)
