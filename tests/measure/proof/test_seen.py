"""What is wrong only in samples, batches or calls that a proof on the first samples does not see: refused, and a sound neighbour
is measured. Each on a float64 copy of a small network, and on the network itself where it counts as large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.trust.odd_parts import LoudFunction
from torch import Tensor, nn

from creditscope import CreditscopeError, diagnose
from creditscope.measure import loss
from creditscope.measure.loss import cross_entropy, loss_change
from creditscope.measure.proof import gradient, native, seen, steps

C, D, D_IN, DEPTH = 4, 16, 6, 3
NO_GRADIENT = "is not the gradient"


@pytest.fixture(params=["small", "large"])
def path(request, monkeypatch) -> str:
    """large: every network counts as one, so that nothing is copied."""
    if request.param == "large":
        monkeypatch.setattr(native, "LARGEST_COPY", 10)
    return str(request.param)


class Block(nn.Module):
    """h + f(h); `cut` says in which samples, and what share of it, the branch has no gradient."""

    def __init__(self, width: int, cut: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.map, self.cut = nn.Linear(width, width), cut

    def forward(self, h: Tensor) -> Tensor:
        f = torch.tanh(self.map(h))
        if self.cut is not None:
            share = self.cut(h).to(h).view(-1, 1)
            f = share * f.detach() + (1 - share) * f
        return h + f


class Net(nn.Module):
    def __init__(self, cut: Callable[[Tensor], Tensor] | None = None, width: int = D, at: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem: nn.Module = nn.Linear(D_IN, width)
        self.head = nn.Linear(width, C)
        self.layers = nn.ModuleList(Block(width, cut if at in (None, k) else None) for k in range(DEPTH))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        out: Tensor = self.head(h)
        return out


def batches(*sizes: int) -> list[tuple[Tensor, Tensor]]:
    gen = torch.Generator().manual_seed(7)
    return [(torch.randn(n, D_IN, generator=gen), torch.randint(C, (n,), generator=gen)) for n in sizes]


def told(model: nn.Module, given: list[tuple[Tensor, Tensor]]) -> Any:
    return diagnose(model, given, blocks="layers.*")


def behind(h: Tensor) -> Tensor:
    """Samples behind the third."""
    return torch.arange(len(h)) > 2


@pytest.mark.parametrize("sizes", [(8,), (8, 8), (3, 8), (12, 5, 7)])
def test_a_gradient_that_is_wrong_behind_the_first_samples_is_refused(path, sizes):
    with pytest.raises(CreditscopeError, match=NO_GRADIENT):
        told(Net(behind), batches(*sizes))


@pytest.mark.parametrize("at", range(DEPTH))
def test_it_is_seen_at_every_block(path, at):
    with pytest.raises(CreditscopeError, match=NO_GRADIENT):
        told(Net(behind, at=at), batches(8, 8))


@pytest.mark.parametrize(("first", "later"), [(3, 3), (2, 2), (3, 8)])
def test_a_gradient_that_is_wrong_in_later_batches_is_refused(path, first, later):
    given = batches(first, later)
    given = [given[0], (given[1][0] + 4, given[1][1])]  # another range of inputs
    model = Net(lambda h: h.detach().norm(dim=1) > limit)
    with torch.no_grad():
        near, far = (model.stem(x).norm(dim=1) for x, _ in given)
    assert float(far.min()) > float(near.max())
    limit = (float(near.max()) + float(far.min())) / 2
    model.layers[1], model.layers[2] = Block(D, None), Block(D, None)
    with pytest.raises(CreditscopeError, match=NO_GRADIENT):
        told(model, given)


@pytest.mark.parametrize("sizes", [(8,), (8, 8), (3, 8), (2, 2), (1, 1), (12, 5, 7), (4,) * 12])
def test_a_sound_neighbour_is_measured_and_later_samples_are_counted(path, sizes):
    proof = told(Net(), batches(*sizes)).facts.proof
    assert max(proof.gradient) < 1e-3
    quick = path == "large" and sizes[0] > 1
    others = min(len(sizes) - 1, seen.LATER)
    assert proof.later == others + (sizes[0] > 3 and not quick)
    assert proof.n_samples == min(3, sizes[0])


def test_samples_that_influence_each_other_are_marked_and_not_refused(path):
    class Centred(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - 0.5 * x.mean(0))

    class Mixed(Block):
        def forward(self, h: Tensor) -> Tensor:
            return super().forward(h - 0.5 * h.mean(0))

    model = Net()
    model.layers = nn.ModuleList(Mixed(D, None) for _ in range(DEPTH))
    for one in (Centred(), model):
        proof = told(one, batches(8, 8)).facts.proof
        assert proof.independent is False
        assert proof.later == 0


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("width", [32, 256])
def test_a_small_part_of_a_branch_without_gradient_is_refused(path, share, width):
    def cut(h: Tensor) -> Tensor:
        return torch.full((len(h),), share)

    with pytest.raises(CreditscopeError, match=NO_GRADIENT):
        told(Net(cut, width), batches(8, 8))
    assert max(told(Net(width=width), batches(8, 8)).facts.proof.gradient) < 1e-3


@pytest.mark.parametrize("sizes", [(1,), (2, 2), (8,)])
def test_a_state_with_zeros_lies_on_no_kink_where_the_loss_is_straight(path, sizes):
    """h_0 has zeros and the first block takes it by a linear map: what is missing there is refused as anywhere else."""
    for share in (0.1, 0.0):

        def cut(h: Tensor, share: float = share) -> Tensor:
            return torch.full((len(h),), share)

        model = Net(cut, at=0, width=32)
        model.stem = nn.Sequential(model.stem, nn.ReLU())
        if share:
            with pytest.raises(CreditscopeError, match=NO_GRADIENT):
                told(model, batches(*sizes))
        else:
            proof = told(model, batches(*sizes)).facts.proof
            assert (max(proof.gradient) < 1e-3, proof.kinks) == (True, ())


def test_kinks_in_a_large_network_are_no_contradiction(monkeypatch):
    """ReLU: a finite difference in float32 meets kinks; it comes closer to the gradient with shorter steps."""
    monkeypatch.setattr(native, "LARGEST_COPY", 10)
    for seed in range(8):
        torch.manual_seed(seed)
        layers = nn.Sequential(*(Kinked() for _ in range(8)))
        model = nn.Sequential(nn.Linear(D_IN, D), layers, nn.Linear(D, C))
        proof = diagnose(model, batches(4, 4), blocks=list(layers)).facts.proof
        assert proof is not None
        assert max(e or 0.0 for e in proof.gradient) < 5e-2


class Kinked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(D, 4 * D), nn.ReLU(), nn.Linear(4 * D, D))

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.branch(h)
        return out


@pytest.mark.parametrize(("error", "words"), [(2e-3, "0.002"), (9e-4, "")])
def test_what_a_coarse_proof_leaves_open_is_told(monkeypatch, error, words):
    monkeypatch.setattr(native, "LARGEST_COPY", 10)
    monkeypatch.setattr(gradient.GradientCheck, "errors", lambda *_: [None, error, 1e-5, 1e-5])
    monkeypatch.setattr(steps.Slope, "errors", lambda _: None)
    said = [w for w in told(Net(), batches(3)).verdict.warnings if "agrees with the gradient" in w]
    assert len(said) == bool(words)
    assert all("g_1 agrees" in w and words in w and "float32" in w for w in said)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_that_float32_rounds_away_is_told(dtype):
    """Closed form: of two classes with the margin m, the gradient at the logits is p - onehot(y) = (-1, 1) / (1 + exp(m)), of
    which float32 has p_y - 1 to a step of 6e-8 only. In float64 there is nothing to tell."""
    layers = nn.ModuleList(Block(2, None) for _ in range(DEPTH))
    for p in layers.parameters():
        nn.init.zeros_(p)
    model = Sure(layers).to(dtype)
    margins = torch.tensor([1.0, 1.0, 1.0, 15.8], dtype=dtype)
    x, y = torch.stack((margins, torch.zeros_like(margins)), 1), torch.zeros(4, dtype=torch.int64)
    report = told(model, [(x, y)])
    error = torch.softmax(x, 1)[3].double() - torch.tensor([1.0, 0.0])
    exact = torch.tensor([-1.0, 1.0]).double() / (1 + margins[3].double().exp())
    off = float((error - exact).norm() / exact.norm())
    assert (off > gradient.MISSING) == (dtype == torch.float32)
    proof = report.facts.proof
    assert proof.later == 1
    assert proof.gradient[0] == pytest.approx(off, rel=1e-3, abs=1e-6)
    said = [w for w in report.verdict.warnings if "g_0 agrees with the gradient to a relative" in w]
    assert len(said) == (dtype == torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_float32_is_too_sure_of_are_counted(dtype):
    """1 - p = 1 / (1 + exp(m)), in steps of 6e-8: a margin of 12 leaves 6e-6 (1 %), one of 14.5 leaves 5e-7 (12 %)."""
    model = Sure(nn.ModuleList(Block(2, None) for _ in range(DEPTH))).to(dtype)
    for p in model.parameters():
        nn.init.zeros_(p)
    margins = torch.tensor([1.0, -20.0, 12.0, 14.5, 30.0, 2.0], dtype=dtype)
    x, y = torch.stack((margins, torch.zeros_like(margins)), 1), torch.zeros(6, dtype=torch.int64)
    report = diagnose(model, [(x, y)], blocks="layers.*", credit=lambda hiddens, logits, y: [*hiddens])
    wanted = 2 if dtype == torch.float32 else 0
    assert report.facts.reference.rounded_samples == wanted
    said = [w for w in report.verdict.warnings if "the loss of 2 of 6 samples is under 1.19e-06" in w]
    assert len(said) == bool(wanted)


def test_a_sequence_without_a_scored_token_is_not_sure_of_anything():
    model = nn.Sequential(nn.Embedding(C, D), Block(D, None), Block(D, None), nn.Linear(D, C))
    x = torch.arange(12).view(3, 4) % C
    y = x.clone()
    y[1] = -100
    assert diagnose(model, [(x, y)], blocks=["1", "2"]).facts.reference.rounded_samples == 0


class Sure(nn.Module):
    """Its logits are its inputs; the blocks add nothing."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("chunk", [1, 2 * C, 1000])
def test_the_change_of_a_cross_entropy_is_the_difference_of_two(chunk, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK", chunk)
    gen = torch.Generator().manual_seed(3)
    behind, y = torch.randn(1, 5, C, generator=gen).double(), torch.tensor([[0, 3, -100, 1, 2]])
    for size in (1.0, 1e-3):
        ahead = behind + size * torch.randn(behind.shape, generator=gen).double()
        wanted = float(cross_entropy(ahead, y) - cross_entropy(behind, y))
        assert float(loss_change(cross_entropy, ahead, behind, y)[0]) == pytest.approx(wanted, rel=1e-9)
        assert float(loss_change(cross_entropy, ahead[:, 0], behind[:, 0], y[:, 0])[0]) == pytest.approx(
            float(cross_entropy(ahead[:, 0], y[:, 0]) - cross_entropy(behind[:, 0], y[:, 0])), rel=1e-9
        )
        other = loss_change(lambda z, y: z.square().sum((1, 2)), ahead, behind, y)[0]
        assert float(other) == pytest.approx(float(ahead.square().sum() - behind.square().sum()), rel=1e-9)


class Writes(Net):
    """Writes to its input, which no version tells."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "data":
            x.data.mul_(0.5)
        elif self.how == "numpy":
            x.detach().numpy()[...] *= 0.5
        else:
            x.mul_(0.5)
        return super().forward(x)


class Halves(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(0.5 * x)


@pytest.mark.parametrize("sizes", [(2, 2), (8, 8)])
@pytest.mark.parametrize("how", ["data", "numpy", "in place"])
def test_a_model_that_writes_to_its_input_is_measured_as_one_that_does_not(path, how, sizes):
    given, clean = batches(*sizes), batches(*sizes)
    facts, wanted = told(Writes(how), given).facts, told(Halves(), clean).facts
    assert facts.scale.mean == pytest.approx(wanted.scale.mean, rel=1e-6)
    assert facts.reference.per_sample == pytest.approx(wanted.reference.per_sample, rel=1e-5)
    assert facts.loss == pytest.approx(wanted.loss, rel=1e-6)
    assert all(torch.equal(x, u) for (x, _), (u, _) in zip(given, clean, strict=True))


class Tired(Net):
    """Another network from so many samples on."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.left = samples

    def forward(self, x: Tensor) -> Tensor:
        self.left -= len(x)
        return super().forward(x if self.left >= 0 else 2 * x)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3, 3), (8, 8)])
def test_a_network_that_changes_between_two_batches_is_refused(path, sizes):
    """Measured are those that change before the first batch or after the last run that the numbers are from."""
    total: list[int] = []
    model = Net()
    model.stem.register_forward_hook(lambda module, given, out: total.append(len(out)))
    before, after = (told(one, batches(*sizes)).facts.scale.mean for one in (model, Tired(0)))
    refused = 0
    for samples in range(sum(total)):
        try:
            found = told(Tired(samples), batches(*sizes)).facts.scale.mean
        except CreditscopeError:
            refused += 1
            continue
        assert found == pytest.approx(before, rel=1e-6) or found == pytest.approx(after, rel=1e-6), samples
    assert refused


class Rectified(nn.Module):
    """relu(h + f(h)) with f zero, as residual networks start."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(D, D)
        nn.init.zeros_(self.map.weight)
        nn.init.zeros_(self.map.bias)

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(h + self.map(h))


@pytest.mark.parametrize("sizes", [(8, 8), (2, 2)])
def test_a_state_on_a_kink_is_proved_beside_it_and_told(path, sizes):
    """h_1 = relu(h_0) and so on: what is zero is at the bend. By torch's choice there, every g_l is that of the head where the
    state is positive, else 0."""
    model = Net()
    model.stem = nn.Sequential(nn.Linear(D_IN, D), nn.ReLU())
    model.layers = nn.ModuleList(Rectified() for _ in range(DEPTH))
    given = batches(*sizes)
    report = told(model, given)
    proof = report.facts.proof
    assert proof.kinks == (0, 1, 2)  # h_3 is not at a bend: the head is linear
    assert max(e or 0.0 for e in proof.gradient) < (1e-6 if path == "small" else 5e-2)
    wanted = []
    with torch.no_grad():
        for x, y in given:
            h = model.stem(x)
            error = torch.softmax(model.head(h), 1) - nn.functional.one_hot(y, C)
            wanted.append(((error @ model.head.weight) * (h > 0)).norm(dim=1))
    assert report.facts.reference.per_sample[:3] == pytest.approx([float(torch.cat(wanted).mean())] * 3, rel=1e-5)
    assert sum("part of h_0, h_1, h_2 is exactly 0, at the bend of a ReLU" in w for w in report.verdict.warnings) == 1


class LoudRectified(Rectified):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(LoudFunction.apply(h, self.value))


@pytest.mark.parametrize("sizes", [(8, 8), (2, 2)])
@pytest.mark.parametrize("value", [1000.0, 10.0, -10.0])
def test_a_gradient_outside_both_slopes_of_a_kink_is_refused(path, sizes, value):
    """The slopes are 0 behind the bend and that of the head ahead of it, below 1 here."""
    model = Net()
    model.stem = nn.Sequential(nn.Linear(D_IN, D), nn.ReLU())
    model.layers = nn.ModuleList(LoudRectified(value) for _ in range(DEPTH))
    assert float(model.head.weight.detach().abs().max()) < 0.5
    with pytest.raises(CreditscopeError, match=r"where h_[0-2] is exactly 0.* outside the slopes on both sides"):
        told(model, batches(*sizes))


def test_a_smooth_network_with_zeros_in_its_states_has_no_kink(path):
    model = Net()
    model.stem = nn.Sequential(nn.Linear(D_IN, D), nn.ReLU())
    assert told(model, batches(8, 8)).facts.proof.kinks == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_that_are_numbers_are_as_fine_as_the_logits(path, dtype):
    """The Huber loss of float64 logits has a backward pass for float64 labels only; the proof is made in float64."""
    given = [(x, torch.randn(len(x), C, generator=torch.Generator().manual_seed(3))) for x, _ in batches(4, 4)]

    def huber(logits: Tensor, y: Tensor) -> Tensor:
        return nn.functional.huber_loss(logits, y, reduction="none").sum(1)

    facts = diagnose(Net().to(dtype), given, blocks="layers.*", loss_fn=huber).facts
    model, norms = Net().double(), []
    for x, y in given:
        h = model.stem(x.double()).detach().requires_grad_()
        out = h
        for layer in model.layers:
            out = layer(out)
        norms.append(torch.autograd.grad(huber(model.head(out), y.double()).sum(), h)[0].norm(dim=1))
    assert facts.reference.per_sample[0] == pytest.approx(float(torch.cat(norms).mean()), rel=1e-5)


def test_a_loss_without_a_backward_pass_is_refused_in_one_line(path):
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, y):
            return logits.gather(1, y.unsqueeze(1)).squeeze(1)

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("no backward pass\nis written")

    def loss_fn(logits: Tensor, y: Tensor) -> Tensor:
        own = nn.functional.cross_entropy(logits, y, reduction="none")
        return own if len(y) < 4 else own + 0 * Broken.apply(logits, y)

    with pytest.raises(
        CreditscopeError, match=r"cannot be differentiated in eval mode \(no backward pass is written\)"
    ):
        diagnose(Net(), batches(4, 4), blocks="layers.*", loss_fn=loss_fn)


def test_a_network_that_takes_no_single_sample_is_measured(path):
    """Statistics of the batch, in eval mode too."""
    model: Any = Net()
    model.stem = nn.Sequential(model.stem, nn.BatchNorm1d(D, track_running_stats=False))
    proof = told(model, batches(5, 5)).facts.proof
    assert proof.independent is False


class Branch(Block):
    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h) - h


@pytest.mark.parametrize("side", [0.0, 0.1])
@pytest.mark.parametrize("share", [0.03, 0.1])
@pytest.mark.parametrize("sizes", [(2,), (1, 2), (8, 8)])
def test_two_lengths_that_agree_refuse_a_small_part_also_layer_by_layer(path, sizes, share, side):
    """The model adds the branches, and h_0 reaches the readout: no step can be proved by itself."""

    class Joined(Net):
        def forward(self, x: Tensor) -> Tensor:
            h = first = self.stem(x)
            for layer in self.layers:
                h = h + layer(h)
            out: Tensor = self.head(h + side * first)
            return out

    def cut(h: Tensor) -> Tensor:
        return torch.full((len(h),), share)

    for part in (cut, None):
        model = Joined(width=256)
        model.layers = nn.ModuleList(Branch(256, part if not k else None) for k in range(DEPTH))
        if part is None:
            assert max(told(model, batches(*sizes)).facts.proof.gradient) < 1e-3
        else:
            with pytest.raises(CreditscopeError, match=NO_GRADIENT):
                told(model, batches(*sizes))


@pytest.mark.parametrize("wrong", [0, 1])
def test_the_first_sample_of_a_batch_takes_its_turn_in_a_large_network(monkeypatch, wrong):
    monkeypatch.setattr(native, "LARGEST_COPY", 10)
    with pytest.raises(CreditscopeError, match=NO_GRADIENT):
        told(Net(lambda h: torch.arange(len(h)) == wrong), batches(2, 2))
