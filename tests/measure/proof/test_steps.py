"""The proof one step at a time says yes where the proof layer by layer does, and never where something goes around a state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from creditscope import CreditscopeError, diagnose
from creditscope.measure.proof import differences, gradient, native, seen, steps, swaps

C, D, D_IN, DEPTH = 4, 8, 6, 5


class Block(nn.Module):
    def __init__(self, store: dict[str, Tensor] | None = None, does: str = "") -> None:
        super().__init__()
        self.map, self.store, self.does = nn.Linear(D, D), store, does

    def forward(self, h: Tensor) -> Tensor:
        out = h + torch.tanh(self.map(h))
        if self.does == "keeps" and self.store is not None:
            self.store["state"] = h
        if self.does == "takes" and self.store is not None:
            out = out + 0.3 * self.store["state"]
        if self.does == "copies" and self.store is not None:
            out = out + 0.3 * self.store["state"].detach()
        if self.does == "mixes":
            out = out + 0.3 * out.mean(0)
        if self.does == "first":
            out = out + 0.3 * h[:1]
        if self.does == "last":
            out = out + 0.3 * h[-1:]
        if self.does == "first sees last":
            out = torch.cat([out[:1] + 0.3 * h[-1:], out[1:]])
        if self.does == "last sees first":
            out = torch.cat([out[:-1], out[-1:] + 0.3 * h[:1]])
        return out


class Net(nn.Module):
    """`side`: what reaches a block or the readout beside the stream."""

    def __init__(self, side: str = "") -> None:
        super().__init__()
        torch.manual_seed(2)
        store: dict[str, Tensor] = {}
        kept = {"kept": {1: "keeps", 3: "takes"}, "copied": {3: "keeps", 4: "copies"}}
        does = {**kept, "batch": {2: "mixes"}, "first": {0: "first"}}.get(side, {})
        does = dict.fromkeys(range(DEPTH), "last") if side == "last" else does
        does = {0: side} if " sees " in side else does
        self.side = side
        self.stem, self.head = nn.Linear(D_IN, D), nn.Linear(D, C)
        self.layers = nn.ModuleList(Block(store, does.get(k, "")) for k in range(DEPTH))
        self.across, self.beside = nn.Linear(D, C), nn.Linear(D_IN, C)

    def forward(self, x: Tensor) -> Tensor:
        h = early = self.stem(x)
        for k, layer in enumerate(self.layers):
            h = layer(h)
            early = h if k == 1 else early
        out: Tensor = self.head(h)
        if self.side == "input":
            out = out + self.beside(x)
        return out + self.across(early) if self.side == "early" else out


def few(n: int = 2, batches: int = 1) -> list[tuple[Tensor, Tensor]]:
    """So few samples that the proof layer by layer would be larger than the batch."""
    gen = torch.Generator().manual_seed(4)
    return [(torch.randn(n, D_IN, generator=gen), torch.randint(C, (n,), generator=gen)) for _ in range(batches)]


def told(model: nn.Module, n: int = 2, batches: int = 1, **options: Any) -> Any:
    proof = diagnose(model, few(n, batches), blocks="layers.*", **options).facts.proof
    assert proof is not None
    return proof


@pytest.fixture
def runs(monkeypatch):
    """Counts the runs of the proof layer by layer."""
    count: list[int] = []
    real = native.variant_logits

    def counted(*args: Any) -> Any:
        count.append(1)
        return real(*args)

    for module in (differences, gradient, swaps):
        monkeypatch.setattr(module, "variant_logits", counted)
    return count


@pytest.mark.parametrize("n", [2, 3])
def test_a_plain_stream_is_proved_without_a_run_for_every_layer(runs, n):
    proof = told(Net(), n)
    assert not runs
    assert proof.independent is True
    assert max(proof.swap) <= 1e-6
    assert len(proof.gradient) == DEPTH + 1
    assert max(proof.gradient) < 1e-6
    assert proof.gradient_dtype == "float64"


def test_the_same_in_float32(runs, monkeypatch):
    monkeypatch.setattr(native, "LARGEST_COPY", 10)
    proof = told(Net())
    assert not runs
    assert proof.gradient_dtype == "float32"
    assert max(proof.gradient) < 1e-3


@pytest.fixture
def large(monkeypatch):
    """Every network counts as large: the proof takes what the measurement has seen."""
    monkeypatch.setattr(native, "LARGEST_COPY", 10)


@pytest.fixture(params=["small", "large"])
def path(request):
    if request.param == "large":
        request.getfixturevalue("large")


@pytest.mark.parametrize("n", [2, 3, 7])
def test_a_large_network_is_proved_by_the_runs_of_the_measurement(large, n):
    model, rows = Net(), []
    model.stem.register_forward_hook(lambda module, given, out: rows.append(len(out)))
    proof = told(model, n)
    few, pair = min(n, 3), (DEPTH + 2).bit_length()
    watched = few if n > 3 else 0  # else the watched run is that of the measurement
    assert sum(rows) == few + watched + n + few + (few - 1) * pair
    assert (proof.n_samples, proof.independent, proof.beside) == (few, True, ())
    assert max(proof.logits, *proof.swap) <= 1e-5
    assert max(proof.gradient) < 1e-3
    assert proof.gradient_dtype == "float32"
    assert "a float64 copy is made up to 10" in proof.gradient_reason


@pytest.mark.parametrize("n", [2, 3, 7])
def test_a_later_batch_saves_the_runs_of_single_samples(large, n):
    """One sample is run by itself, the first; one behind it is by itself in the check of the last batch."""
    model, rows = Net(), []
    model.stem.register_forward_hook(lambda module, given, out: rows.append(len(out)))
    proof = told(model, n, 2)
    few, pair = min(n, 3), (DEPTH + 2).bit_length()
    watched = few if n > 3 else 0
    before_and_after, alone, later = 2, 1, 1
    assert sum(rows) == few + watched + 2 * n + before_and_after + alone + (few - 1) * pair + later
    assert (proof.n_samples, proof.independent, proof.later) == (few, True, 1)
    assert max(proof.logits, *proof.swap) <= 1e-5


SIDES = ["early", "kept", "input", "batch", "first", "last", "first sees last", "last sees first"]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("side", SIDES)
def test_a_large_network_is_marked_as_a_small_one_is(side, n, batches, monkeypatch):
    small = told(Net(side), n, batches)
    monkeypatch.setattr(native, "LARGEST_COPY", 10)
    proof = told(Net(side), n, batches)
    assert proof.independent == small.independent
    assert [e and e > 1e-3 for e in proof.swap] == [e and e > 1e-3 for e in small.swap]


def test_a_copy_of_a_kept_state_is_refused_in_a_large_network_too(large):
    """Its path has no gradient, and both blocks get the last sample where block 4 is moved: only the other rows tell."""
    with pytest.raises(CreditscopeError, match="is not the gradient of the loss"):
        told(Net("copied"))


@pytest.mark.parametrize("length", [1e-3, 1e-9])
def test_a_slope_that_is_too_coarse_to_one_side_is_taken_from_both(large, runs, length, monkeypatch):
    most = seen.IN_PASSING[torch.float32]
    monkeypatch.setattr(seen, "IN_PASSING", {torch.float32: (length, *most[1:])})
    asked: list[int] = []

    def counted(*args: Any) -> Any:
        asked.append(1)
        return steps.slope_errors(*args)

    monkeypatch.setattr(gradient, "slope_errors", counted)
    assert max(told(Net()).gradient) < 1e-3
    assert (len(asked), len(runs)) == (int(length < 1e-3), 0)


def test_coarse_numbers_have_no_slope(large):
    x, y = few()[0]
    proof = diagnose(Net().bfloat16(), [(x.bfloat16(), y)], blocks="layers.*").facts.proof
    assert proof is not None
    assert proof.independent is True
    assert proof.gradient == (None,) * (DEPTH + 1)
    assert "too coarse" in proof.gradient_reason


class Reading(Net):
    """The readout (or what is in front of the blocks) lets samples see each other where `sees` says so."""

    def __init__(self, sees: str) -> None:
        super().__init__()
        self.sees = sees
        self.layers = self.layers[:2]

    def forward(self, x: Tensor) -> Tensor:
        if self.sees == "others see first, in front of the blocks" and x.mean() > 2:
            x = torch.cat([x[:1], x[1:] + 0.3 * x[:1]])
        z = super().forward(x)
        if self.sees == "last sees first" and len(z) > 1:
            return torch.cat([z[:-1], z[-1:] + 0.3 * z[:1]])
        if self.sees == "three" and len(z) == 3:
            return z + 0.3 * z.flip(0)
        if self.sees == "first sees last" and len(z) > 1 and x.mean() > 2:
            return torch.cat([z[:1] + 0.3 * z[-1:], z[1:]])
        if self.sees in ("others see first", "others see first, without gradient") and x.mean() > 2:
            first = z[:1].detach() if "without gradient" in self.sees else z[:1]
            return torch.cat([z[:1], z[1:] + 0.3 * first])
        return torch.cat([z[:-1] + 0.3 * z[1:], z[-1:]]) if self.sees == "next" else z


@pytest.mark.parametrize(
    ("sees", "sizes"),
    [("last sees first", (2, 7)), ("three", (7, 1, 3)), ("three", (7, 3, 2)), ("next", (1, 2)), ("next", (1, 7, 7))],
)
def test_samples_that_influence_each_other_are_marked_whatever_the_sizes_of_the_batches(large, sees, sizes):
    """What a sample of a later batch shows is told, though the first batch does not show it."""
    gen = torch.Generator().manual_seed(4)
    data = [(torch.randn(n, D_IN, generator=gen), torch.randint(C, (n,), generator=gen)) for n in sizes]
    report = diagnose(Reading(sees), data, blocks="layers.*")
    assert report.facts.proof is not None
    assert report.facts.proof.independent is False
    assert any("influence each other" in line for line in report.verdict.warnings)
    proof = diagnose(Reading(""), data, blocks="layers.*").facts.proof
    assert proof is not None
    assert proof.independent is (None if sizes[0] == 1 else True)


@pytest.mark.parametrize(
    ("sees", "n"),
    [("first sees last", 2), *((f"others see first{how}", n) for how in ("", ", without gradient") for n in (2, 3, 7))],
)
def test_samples_that_influence_each_other_in_a_later_batch_alone_are_marked(path, sees, n):
    assert told_of_large_inputs(sees, n).independent is False


def test_in_a_large_network_also_where_they_do_so_in_front_of_the_blocks(large):
    """No gradient that is measured, nor its check, depends on it."""
    assert told_of_large_inputs("others see first, in front of the blocks", 2).independent is False


def told_of_large_inputs(sees: str, n: int) -> Any:
    """Of two batches, the inputs of the second are large."""
    (first, y), (later, _) = few(n, 2)
    proof = diagnose(Reading(sees), [(first, y), (later + 4, y)], blocks="layers.*").facts.proof
    assert proof is not None
    return proof


def test_a_last_batch_of_another_size_stands_in_for_no_sample_of_the_first(path):
    """Inputs are divided by the largest of their batch: it is the first sample in one batch and the one that is looked at in the
    other, so that neither has other logits by itself."""

    class Scaled(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x / x.abs().max())

    (x, y), (z, w) = few(3)[0], few(2)[0]
    x[0, 0] = z[1, 0] = 20.0
    proof = diagnose(Scaled(), [(x, y), (z, w)], blocks="layers.*").facts.proof
    assert proof is not None
    assert proof.independent is False


class Masking(Net):
    """Puts what it makes of its input into memory of its own, at every call: a later run writes over it."""

    def __init__(self, counted: bool) -> None:
        super().__init__()
        self.counted = counted
        self.register_buffer("memory", torch.ones(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        memory = self.get_buffer("memory")
        with torch.no_grad():
            (memory if self.counted else memory.data)[: len(x)] = len(x) + x.mean(1, keepdim=True)
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        out: Tensor = self.head(h) * memory[: len(x)]
        return out


@pytest.mark.parametrize("counted", [True, False])
def test_memory_of_the_network_that_a_later_run_writes_to_belongs_to_its_own_run(large, counted):
    """The run in which the blocks were recognised serves for the measurement only while what it has read is still there."""
    model, data = Masking(counted), few(2, 2)
    found = diagnose(model, data, blocks="layers.*").facts.reference.per_sample
    wanted = []
    for x, y in data:
        h = model.stem(x).detach().requires_grad_()
        out = h
        for layer in model.layers:
            out = layer(out)
        logits = model.head(out) * (len(x) + x.mean(1, keepdim=True))
        wanted.append(torch.autograd.grad(nn.functional.cross_entropy(logits, y, reduction="sum"), h)[0].norm(dim=1))
    assert found[0] == pytest.approx(float(torch.cat(wanted).mean()), rel=1e-5)


@pytest.mark.parametrize(("side", "layers"), [("early", (3, 4, 5)), ("kept", (2, 3))])
def test_what_goes_around_is_left_to_the_proof_layer_by_layer(runs, side, layers):
    """`early`: h_2 reaches the readout past h_3 to h_5. `kept`: block 3 takes h_1, which block 1 kept, past h_2 and h_3."""
    proof = told(Net(side))
    assert runs
    assert tuple(k for k, error in enumerate(proof.swap) if error > 1e-3) == layers
    assert max(proof.gradient) < 1e-6


@pytest.mark.parametrize("side", ["early", "kept"])
def test_it_is_seen_where_the_first_and_the_last_sample_are_the_same(side):
    ((x, y),) = few(3)
    proof = diagnose(Net(side), [(x[[0, 1, 0]], y)], blocks="layers.*").facts.proof
    assert proof is not None
    assert max(error or 0.0 for error in proof.swap) > 1e-3


@pytest.mark.parametrize("side", ["batch", "first", "last"])
@pytest.mark.parametrize("n", [2, 3])
def test_samples_that_influence_each_other_are_still_marked(runs, n, side):
    """`first`, `last`: blocks look at the sample that stands there in the batch."""
    proof = told(Net(side), n)
    assert runs
    assert proof.independent is False


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] / 2


@pytest.mark.parametrize("largest", [native.LARGEST_COPY, 10])
@pytest.mark.parametrize("where", [0, 3, DEPTH])
def test_a_gradient_that_is_no_gradient_is_refused(where, largest, monkeypatch):
    monkeypatch.setattr(native, "LARGEST_COPY", largest)
    model = Net()
    part = model.head if where == DEPTH else model.layers[where]
    real = part.forward
    monkeypatch.setattr(part, "forward", lambda h: real(Halved.apply(h)))
    with pytest.raises(CreditscopeError, match="is not the gradient of the loss"):
        told(model)


@pytest.mark.parametrize("layers", [2, 3, 13, 14, 15, 25, 64])
def test_the_codes_tell_any_two_layers_apart(layers):
    found = steps.codes(layers)
    columns = [tuple(column) for column in found.T.tolist()]
    assert len(set(columns)) == layers
    assert all(any(column) and not all(column) for column in columns)
    assert found.shape[0] == (layers + 1).bit_length()
    for k, column in enumerate(columns):  # one False may be another state: the others tell it from what came before
        for row in (row for row, other in enumerate(column) if not other):
            assert (*column[:row], True, *column[row + 1 :]) not in columns[:k]


class Cut(nn.Module):
    """h + f(h) whose backward pass knows of h alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.normal_(self.linear.weight, std=width**-0.5)

    def forward(self, h: Tensor) -> Tensor:
        return h + 0.3 * torch.tanh(self.linear(h.detach()))


@pytest.mark.parametrize("width", [64, 512])
@pytest.mark.parametrize("largest", [native.LARGEST_COPY, 10])
def test_a_cut_branch_is_seen_in_states_of_any_width(monkeypatch, width, largest):
    monkeypatch.setattr(native, "LARGEST_COPY", largest)
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Cut(width) for _ in range(12)))
    model = nn.Sequential(nn.Linear(6, width), blocks, nn.Linear(width, 5))
    with pytest.raises(CreditscopeError, match="is not the gradient"):
        diagnose(model, [(torch.randn(4, 6), torch.arange(4))], blocks=list(blocks))
