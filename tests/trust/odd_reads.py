"""What the head reads, and what of it a sample owns (7); which blocks a network has (8)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.trust.odd_grammar import IN, C, D, T
from tests.trust.odd_parts import Plain, Residual, Tokens, Zoo, plain_net, token_net, tokens, vectors
from tests.trust.oracle import (
    EITHER,
    MARK,
    MEASURE,
    Batch,
    Network,
    Tape,
    WrongError,
    left_as_found,
)
from torch import Tensor, nn

from creditscope import find_blocks

ZOO = Zoo()
add, run = ZOO.add, ZOO.run


# ---- 7: what is read ----------------------------------------------------------------------------------------------

POOLS: dict[str, tuple[Callable[[Tensor], Tensor], str, int]] = {
    "the third token": (lambda h: h[:, 2], "flatten", D),
    "first and last token": (lambda h: torch.cat([h[:, 0], h[:, -1]], 1), "flatten", 2 * D),
    "cls plus the mean": (lambda h: h[:, 0] + h.mean(1), "flatten", D),
    "mean without the cls token": (lambda h: h[:, 1:].mean(1), "flatten", D),
    "median": (lambda h: h.median(1).values, "flatten", D),
    "logsumexp": (lambda h: h.logsumexp(1), "flatten", D),
    "the largest token": (lambda h: h[torch.arange(len(h)), h[..., 0].argmax(1)], "flatten", D),
    "mean times T": (lambda h: h.mean(1) * T, "mean", D),
    "mean by einsum": (lambda h: torch.einsum("btd,t->bd", h, h.new_full((T,), 1 / T)), "mean", D),
    "cls by index_select": (lambda h: h.index_select(1, torch.tensor([0])).squeeze(1), "cls", D),
    "last by unbind": (lambda h: h.unbind(1)[-1], "last", D),
    "a convolution over tokens": (lambda h: (h[:, :-1] - h[:, 1:]).relu().sum(1), "flatten", D),
}
for _name, (_pool, _read, _width) in POOLS.items():
    add(
        f"read: {_name}",
        lambda pool=_pool, read=_read, width=_width: token_net(lambda: Tokens(pool, width=width), read),  # type: ignore[misc]
        EITHER if _name == "mean times T" else MEASURE,
        7,
    )


class ChannelsFirst(Plain):
    """[B, d, T]: the second dimension is no token."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(D, D, 3, padding=1)

        def forward(self, h: Tensor) -> Tensor:
            return h + torch.tanh(self.conv(h))

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(3)])
        self.norm = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x).transpose(1, 2))
        for layer in self.layers:
            h = self.tape(layer(h))
        return self.head(h.mean(2))


add("tokens last: [B, d, T]", lambda: token_net(ChannelsFirst, "flatten"), MEASURE, 7)
add("as many samples as tokens", lambda: token_net(batches=tokens((T, T))), MEASURE, 7)
add("as many samples as features", lambda: plain_net(batches=vectors((D, D))), MEASURE, 7)
add("one sample in a batch", lambda: plain_net(batches=vectors((1, 1, 1))), MEASURE, 7)
add("a last batch of one sample", lambda: token_net(batches=tokens((9, 1))), MEASURE, 7)


def two_lengths() -> list[Batch]:
    """Batches padded to their own length, as a collator gives them."""
    short, long = vectors((9,), (T - 2, IN)), tokens((8,), seed=1)
    return [*short, *long]


add("batches of two lengths, cls", lambda: token_net(batches=two_lengths()), MEASURE, 7)
add("batches of two lengths, mean", lambda: token_net(lambda: Tokens(lambda h: h.mean(1)), "mean",
    batches=two_lengths()), MEASURE, 7)  # fmt: skip
add("batches of two lengths, max", lambda: token_net(lambda: Tokens(lambda h: h.amax(1)), "flatten",
    batches=two_lengths()), EITHER, 7)  # fmt: skip


class Padded(Tokens):
    """Reads the last real token; token 0 of the vocabulary is padding."""

    def __init__(self, left: bool = False) -> None:
        super().__init__()
        self.stem, self.left = nn.Embedding(9, D), left

    def forward(self, ids: Tensor) -> Tensor:
        h = self.tape(self.stem(ids))
        for layer in self.layers:
            h = self.tape(layer(h))
        at = torch.full((len(ids),), T - 1) if self.left else (ids != 0).sum(1) - 1
        return self.head(self.norm(h)[torch.arange(len(ids)), at])


def padded(left: bool, full: int = 3, n: int = 40) -> list[Batch]:
    """`full` samples without padding, then samples of 2 or 3 tokens."""
    gen = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 9, (n, T), generator=gen)
    for k in range(full, n):
        ids[k, : T - 2 - k % 2] = 0 if left else ids[k, : T - 2 - k % 2]
        ids[k, 2 + k % 2 :] = ids[k, 2 + k % 2 :] if left else 0
    return [(ids, torch.randint(C, (n,), generator=gen))]


add("padding on the right, three samples without", lambda: token_net(Padded, "flatten", batches=padded(False)),
    MEASURE, 7)  # fmt: skip
add("padding on the right, six samples without", lambda: token_net(Padded, "flatten", batches=padded(False, 6)),
    MEASURE, 7)  # fmt: skip
add("padding on the left", lambda: token_net(lambda: Padded(True), "last", batches=padded(True)), MEASURE, 7)
add("padding in the second batch only", lambda: token_net(Padded, "flatten", batches=[*padded(False, 40),
    *padded(False, 3)]), MEASURE, 7)  # fmt: skip


class Deaf(Plain):
    """The head hears nothing of samples whose first feature is negative."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h))
        return self.head(self.norm(h)) * (x[:, :1] > 0)


add("samples with g = 0", lambda: plain_net(Deaf, marks=("zero",), false_alarms="none"), MARK, 7)


class Two(Plain):
    """A stream of two tensors: both come in and go out of each block."""

    class Block(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(D, D)

        def forward(self, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return h + self.branch(h) + 0.5 * c, c + torch.tanh(self.other(h))

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(4)])
        self.cell = nn.Linear(IN, D)

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.tape(self.stem(x)), self.cell(x)
        for layer in self.layers:
            h, c = layer(h, c)
            h = self.tape(h)
        return self.head(self.norm(h + c))


add("a stream of two tensors", lambda: plain_net(Two, marks=("beside",)), MARK, 7, 3)


class Coupled(Residual):
    """Samples are centred by the batch, in eval mode too."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h - h.mean(0, keepdim=True))


class AcrossBatch(Residual):
    """Attention over the batch."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(torch.softmax(h @ h.t(), 1) @ h)


def stateless_batch_norm() -> nn.Module:
    model = Plain(depth=3)
    for layer in model.layers:
        layer.norm = nn.BatchNorm1d(D, track_running_stats=False)
    return model


add("samples centred by the batch", lambda: plain_net(lambda: Plain([Coupled() for _ in range(3)]),
    marks=("dependent",)), MARK, 7)  # fmt: skip
add("attention over the batch", lambda: plain_net(lambda: Plain([AcrossBatch() for _ in range(3)]),
    marks=("dependent",)), MARK, 7)  # fmt: skip
add("BatchNorm without running statistics", lambda: plain_net(stateless_batch_norm, marks=("dependent",)), MARK, 7)


class CoupledHead(Plain):
    def read(self, h: Tensor) -> Tensor:
        return h - h.mean(0, keepdim=True)


add("samples centred by the batch in the head", lambda: plain_net(CoupledHead, marks=("dependent",)), MARK, 7)


class LookingAt(Residual):
    """Every sample sees the one that stands at a place of the batch."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h + h[self.place])


class StemLooking(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - 0.5 * x[-1:])


class Conditioned(Plain):
    """Blocks are given a code of the sample's kind."""

    class Block(Residual):
        def forward(self, h: Tensor, code: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(h + code)

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(12)])
        self.codes = nn.Embedding(2, D)

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:  # type: ignore[override]
        h, code = self.tape(self.stem(x)), self.codes(kind)
        for layer in self.layers:
            h = self.tape(layer(h, code))
        return self.head(self.norm(h))


def deep_net(make: Callable[[], nn.Module], *marks: str) -> Network:
    """So deep, in batches so small, that it is proved one step at a time."""
    return plain_net(make, batches=vectors((3, 3)), marks=marks)


add("deep: the first block looks at the first sample", lambda: deep_net(
    lambda: Plain([LookingAt(0), *(Residual() for _ in range(11))]), "dependent"), MARK, 7)  # fmt: skip
add("deep: all blocks look at the last sample", lambda: deep_net(lambda: Plain([LookingAt(-1) for _ in range(12)]),
    "dependent"), MARK, 7)  # fmt: skip
add("deep: the stem looks at the last sample", lambda: deep_net(lambda: StemLooking(depth=12), "dependent"), MARK, 7)
add("deep: the first and the last sample are of one kind", lambda: plain_net(Conditioned, marks=("beside",),
    batches=[((x, torch.tensor([1, 0, 1])), y) for x, y in vectors((3, 3))]), MARK, 7)  # fmt: skip


# ---- 8: find_blocks -----------------------------------------------------------------------------------------------


class ConvBlock(nn.Module):
    def __init__(self, n: int, m: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.conv2, self.bn2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        self.short: nn.Module = nn.Identity() if (n, stride) == (m, 1) else nn.Conv2d(n, m, 1, stride)

    def forward(self, h: Tensor) -> Tensor:
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(h)))))
        out += self.short(h)
        return torch.relu(out)


class Stages(nn.Module):
    """A hierarchical convolutional network; `between`: the resolution changes between the stages, not in a block."""

    def __init__(self, between: bool) -> None:
        super().__init__()
        self.tape, self.stem, self.between = Tape(), nn.Conv2d(3, 4, 3, padding=1), between
        widths = (4, 4) if between else (4, 8)
        self.stages = nn.ModuleList(
            nn.Sequential(
                ConvBlock(4 if k == 0 or between else widths[k - 1], w, 1 if k == 0 or between else 2), ConvBlock(w, w)
            )
            for k, w in enumerate(widths)
        )
        self.down = nn.Conv2d(4, 4, 2, 2)
        self.head = nn.Linear(widths[-1], C)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for k, stage in enumerate(self.stages):
            if k and self.between:
                h = self.down(h)
            for block in stage.children():
                h = block(self.tape(h))
        return self.head(self.tape(h).mean((2, 3)))


STAGES = tuple(f"stages.{k}.{j}" for k in range(2) for j in range(2))
IMAGE = (3, 6, 6)
for _between in (False, True):
    add(
        f"convolutional stages, blocks named, resolution changes {'between' if _between else 'in a block'}",
        lambda between=_between: plain_net(  # type: ignore[misc]
            lambda: Stages(between), blocks=list(STAGES), batches=vectors(shape=IMAGE), read="flatten"
        ),
        MEASURE,
        8,
    )
    add(
        f"convolutional stages, blocks not named, resolution changes {'between' if _between else 'in a block'}",
        lambda between=_between: plain_net(  # type: ignore[misc]
            lambda: Stages(between), blocks=None, batches=vectors(shape=IMAGE), read="flatten", names=STAGES
        ),
        EITHER,
        8,
    )


class Sublayers(nn.Module):
    """A decoder block as T5 has it: residual sublayers in a ModuleList, behind one another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList([Residual(mixes=True), Residual(mixes=True), Residual()])

    def forward(self, h: Tensor) -> Tensor:
        for part in self.layer:
            h = part(h)
        return h


class OfSublayers(Tokens):
    def __init__(self, depth: int) -> None:
        super().__init__(lambda h: h.mean(1))
        self.layers = nn.ModuleList([Sublayers() for _ in range(depth)])


for _depth in (2, 3):
    add(
        f"blocks of three residual sublayers, L={_depth}, not named",
        lambda depth=_depth: token_net(  # type: ignore[misc]
            lambda: OfSublayers(depth), "mean", blocks=None, names=tuple(f"layers.{k}" for k in range(depth))
        ),
        MEASURE,
        8,
    )


@run("find_blocks and diagnose name the same blocks", MEASURE, 8)
def _() -> None:
    net = token_net(lambda: OfSublayers(3), "mean", blocks=None)
    with left_as_found(net.model, net.batches):
        found = find_blocks(net.model, net.batches[0])
    if found != ["layers.0", "layers.1", "layers.2"]:
        raise WrongError(f"found {found}")
