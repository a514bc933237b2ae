"""The depth profile against forward passes of the same data: time, memory, growth with L."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.bench_diagnose import CLASSES, INPUTS, WIDTH, peak_bytes
from benchmarks.harness import Row, interleaved, ratio
from creditscope import depth_profile
from creditscope.models import ResMLP

FIT, TEST, BATCH = 50_000, 10_000, 1000
TOKENS, TOKEN_WIDTH, SEQUENCES = 128, 768, 32
PASSES, MEMORY, LINEAR = 3.0, 1.5, 1.05


def run(rounds: int) -> list[Row]:
    return [*images(rounds), *tokens(max(1, rounds // 3))]


def images(rounds: int) -> list[Row]:
    """As many samples as CIFAR-10; the same few batches in turn, so that the data cost no memory to speak of."""
    torch.manual_seed(0)
    model = ResMLP(INPUTS, CLASSES, width=WIDTH, depth=4)
    few = [(torch.randn(BATCH, 3, 32, 32), torch.randint(0, CLASSES, (BATCH,))) for _ in range(6)]

    def fit() -> Iterator[tuple[Tensor, Tensor]]:
        return (few[k % 4] for k in range(FIT // BATCH))

    def test() -> Iterator[tuple[Tensor, Tensor]]:
        return (few[4 + k % 2] for k in range(TEST // BATCH))

    @torch.no_grad()
    def own() -> None:
        model.eval()
        for data in (fit(), test()):
            for x, _ in data:
                model(x)

    def ours() -> None:
        depth_profile(model, fit(), test())

    def trained() -> None:
        x, y = few[0]
        model.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        model.zero_grad(set_to_none=True)

    against = "one forward pass of the data"
    group = f"depth profile, {FIT:,} + {TEST:,} samples, d=256, L=4"
    times = interleaved({"time": ours, against: own}, rounds)
    held = sum(t.nbytes for t in (*model.parameters(), *(x for x, _ in few)))
    beside = [held + peak_bytes(call) for call in (lambda: depth_profile(model, few[:4], few[4:]), trained)]
    memory = beside[0] / beside[1]
    what = f"forward + backward, batch {BATCH}"
    note = "tensors at the peak, with the weights and six batches"
    return [
        ratio(group, times, "time", against, PASSES),
        Row(group, "memory", what, memory, memory, MEMORY, note=note),
    ]


class Tokens(nn.Module):
    """A language model as far as its states go: embedding, residual layers, logits for every token."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, TOKEN_WIDTH)
        self.layers = nn.ModuleList(nn.Linear(TOKEN_WIDTH, TOKEN_WIDTH) for _ in range(depth))
        self.head = nn.Linear(TOKEN_WIDTH, 64)

    def forward(self, ids: Tensor) -> Tensor:
        h: Tensor = self.embedding(ids)
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        out: Tensor = self.head(h)
        return out


def tokens(rounds: int) -> list[Row]:
    """Both depths in turn, so that a slower minute of the machine meets both."""
    torch.manual_seed(0)
    ids = torch.randint(0, 64, (2 * SEQUENCES, TOKENS))
    data = [(part, (part * 5 + 1) % 64) for part in ids.split(8)]
    half = len(data) // 2
    cases: dict[str, Callable[[], object]] = {
        f"L={depth}": partial(depth_profile, Tokens(depth), data[:half], data[half:], "layers.*") for depth in (12, 48)
    }
    group = "depth profile, tokens, d=768"
    growth = ratio(group, interleaved(cases, rounds), "L=48", "L=12")
    best, median = math.log(growth.best, 4), math.log(growth.median, 4)
    peaks = [peak_bytes(call) for call in cases.values()]
    memory = math.log(peaks[1] / peaks[0], 4)
    note = f"tensors at the peak: {peaks[0] / 2**20:,.0f} MB at L=12, {peaks[1] / 2**20:,.0f} MB at L=48"
    return [
        Row(group, "exponent of the time in L (12 to 48)", "linear", best, median, LINEAR),
        Row(group, "exponent of the memory in L (12 to 48)", "linear", memory, memory, LINEAR, note=note),
    ]
