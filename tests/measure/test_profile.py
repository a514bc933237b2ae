"""Depth profile: the ridge against another route, hand-made networks against what follows by hand, left as found."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.known import known
from tests.trust.oracle import left_as_found
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import creditscope
from creditscope import CreditscopeError, depth_profile
from creditscope.measure.binomial import paired
from creditscope.measure.facts import DepthProfile
from creditscope.measure.profile import STRENGTHS, Ridge, normalised
from creditscope.models import ResMLP, SmallCNN

# ---- the ridge, by a singular value decomposition of all rows at once ----------------------------------------------


def by_svd(x: np.ndarray, y: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray, float]:
    """(weights, offset, strength): every strength is tried on the residuals themselves."""
    n = len(x)
    targets = np.eye(n_classes)[y]
    centred, wanted = x - x.mean(0), targets - targets.mean(0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    found = []
    for strength in STRENGTHS:
        shrink = s / (s**2 + strength * s[0] ** 2)
        weights = vt.T @ (shrink[:, None] * (u.T @ wanted))
        free = n - 1 - np.sum(s * shrink)
        found.append((np.sum((wanted - centred @ weights) ** 2) / free**2, strength, weights))
    _, strength, weights = min(found, key=lambda entry: entry[0])
    return weights, targets.mean(0) - x.mean(0) @ weights, strength


@pytest.mark.parametrize(("n", "d", "scale"), [(300, 20, 1.0), (40, 60, 1.0), (300, 20, 1e-3), (500, 300, 1.0)])
def test_the_ridge_is_that_of_an_svd(n, d, scale):
    """Also with fewer rows than columns, and with rows that are alike but for a thousandth."""
    rng = np.random.default_rng(n + d)
    y = rng.integers(0, 4, n)
    x = 3 + scale * (rng.normal(size=(n, d)) * np.linspace(0.05, 2, d) + rng.normal(size=(4, d))[y])
    ridge = Ridge()
    for part in np.array_split(np.arange(n), 7):
        ridge.add(torch.from_numpy(x[part]), torch.from_numpy(y[part]))
    got = ridge.solve(torch.from_numpy(np.bincount(y, minlength=4).astype(float)))
    weights, offset, strength = by_svd(x, y, 4)
    assert got.strength == pytest.approx(strength, rel=1e-12)
    assert np.abs(got.weights.numpy() - weights).max() < 1e-8 * np.abs(weights).max()
    assert np.abs(x @ got.weights.numpy() + got.offset.numpy() - x @ weights - offset).max() < 1e-8


def test_a_state_that_never_changes_gives_the_most_frequent_label():
    ridge = Ridge()
    ridge.add(torch.ones(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 1, 0]))
    got = ridge.solve(torch.tensor([2.0, 3.0]))
    assert got.strength is None
    assert not got.weights.any()
    assert got.offset.tolist() == [0.4, 0.6]


def test_layer_norm_without_gain():
    sizes = torch.tensor([1e-200, 1e-6, 1, 50, 1e30, 1e200], dtype=torch.float64)
    h = torch.randn(6, 10, dtype=torch.float64) * sizes.unsqueeze(1)
    x = normalised(h)
    wanted = torch.nn.functional.layer_norm(h[2:4], (10,), eps=0)
    assert torch.allclose(x[2:4], wanted, rtol=1e-12)
    assert torch.allclose(x.square().mean(1), torch.ones(6).double())
    assert torch.allclose(normalised(7 * h + 1)[2:5], x[2:5], atol=1e-9)


def test_a_constant_state_is_zero_after_the_norm():
    assert not normalised(torch.full((2, 3), 0.1)).any()
    assert not normalised(torch.zeros(2, 3)).any()
    rounded = torch.full((2, 3), 1000.0)
    rounded[1, 2] = torch.nextafter(rounded[1, 2], torch.tensor(2000.0))  # one step of float32: no signal
    assert not normalised(rounded).any()
    assert not normalised(rounded[1:]).any()  # also where no row is constant to the bit
    assert normalised(torch.tensor([[math.inf, 1.0, 2.0]])).isnan().all()


# ---- hand-made networks --------------------------------------------------------------------------------------------
# Samples are (s, -s, a, -a, b, -b) with signs s, a, b, all eight equally often: every row has mean 0 and mean square 1, and
# the norm leaves it as it is. Blocks are multiplied by a gain that starts at 0, so the twin is the embedding all the way.


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.gain)

    def forward(self, h):
        return self.gain * self.value(h)

    def value(self, h):
        return torch.zeros_like(h)


class Identity(Branch):
    pass


class Project(Branch):
    """Takes s away."""

    def value(self, h):
        return torch.cat([-h[:, :2], torch.zeros_like(h[:, 2:])], 1)


class Copy(Branch):
    """Puts the product a·b, which no linear readout of the embedding has, where s is."""

    def value(self, h):
        product = h[:, 2:3] * h[:, 4:5]
        return torch.cat([product, -product, torch.zeros_like(h[:, 2:])], 1)


class Flip(Branch):
    """Turns s around where it is one half; leaves signs alone."""

    def value(self, h):
        small = h[:, :2].abs() < 0.75
        return torch.cat([torch.where(small, -2 * h[:, :2], 0), torch.zeros_like(h[:, 2:])], 1)


class Net(nn.Module):
    def __init__(self, *blocks: Branch) -> None:
        super().__init__()
        self.embed = nn.Identity()
        self.blocks = nn.ModuleList(blocks)
        self.out_ln = nn.Identity()
        self.out_head = nn.Linear(6, 2)

    def forward(self, x, return_hidden=False):
        hiddens = [x]
        for block in self.blocks:
            hiddens.append(hiddens[-1] + block(hiddens[-1]))
        logits = self.out_head(hiddens[-1])
        return (logits, hiddens) if return_hidden else logits


def trained(*blocks: Branch) -> Net:
    model = Net(*blocks)
    for block in blocks:
        nn.init.ones_(block.gain)
    return model


def cube(times: int, without_s: bool = False, label: str = "s") -> list[tuple[torch.Tensor, torch.Tensor]]:
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)) * times)
    s, a, b = (signs[:, k : k + 1] for k in range(3))
    y = (s if label == "s" else a * b).squeeze(1) > 0
    first = torch.zeros_like(s) if without_s else s
    return list(zip(torch.cat([first, -first, a, -a, b, -b], 1).split(8), y.long().split(8), strict=True))


def products(times: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return cube(times, without_s=True, label="product")


def accuracies(readouts):
    return [r.accuracy for r in readouts]


def test_a_block_that_is_the_identity_changes_nothing():
    profile = depth_profile(trained(Identity(), Identity()), cube(4), cube(3))
    assert accuracies(profile.curve) == accuracies(profile.twin) == [1.0, 1.0, 1.0]
    assert known(profile.raw).accuracy == 1.0
    # 24 samples, none of which the two answer differently: ±1.96 · sqrt(½ + ½) / 26
    assert profile.margin is not None
    assert profile.margin.pp == 0
    assert profile.margin.high_pp == pytest.approx(100 * 1.959964 / 26, rel=1e-6)
    assert profile.margin.low_pp == -profile.margin.high_pp
    assert profile.first_loss is None


def test_a_block_that_projects_the_signal_away_takes_all_of_it():
    """The label is then independent of what is left: one half is right, whatever the readout makes of it."""
    profile = depth_profile(trained(Identity(), Project(), Identity()), cube(4), cube(3))
    assert accuracies(profile.curve) == [1.0, 1.0, 0.5, 0.5]
    assert accuracies(profile.twin) == [1.0] * 4
    assert profile.margin is not None
    assert profile.margin.pp == -50
    # 12 of 24 lost, none gained: centre -12 / 26, half width 1.96 · sqrt(13 - 12² / 26) / 26
    assert profile.margin.high_pp == pytest.approx(100 * (-12 + 1.959964 * math.sqrt(13 - 144 / 26)) / 26, rel=1e-6)
    assert profile.first_loss == 1
    assert [step is not None and step.pp for step in profile.steps] == [0, -50, 0]


def test_a_block_that_copies_the_signal_from_the_input_gives_all_of_it():
    profile = depth_profile(trained(Copy(), Identity(), Project()), products(4), products(3))
    assert accuracies(profile.curve) == [0.5, 1.0, 1.0, 0.5]
    assert accuracies(profile.twin) == [0.5] * 4
    assert known(profile.margin).pp == 0
    assert profile.first_loss == 2
    last = depth_profile(trained(Copy()), products(4), products(3)).margin
    assert known(last).pp == 50


def test_steps_hold_together():
    """Over L blocks each interval is at 1 - .05 / L, and the first one below zero is named."""
    profile = depth_profile(trained(*(Identity() for _ in range(5))), cube(4), cube(3))
    assert profile.steps[0] is not None
    assert profile.steps[0].high_pp == pytest.approx(100 * 2.575829 / 26, rel=1e-6)  # the normal quantile at .995


def test_a_loss_within_its_interval_is_none():
    """One sample of 25 is lost, none gained: (-1 ± 1.96 · sqrt(2 - 1 / 27)) / 27 has both signs."""
    odd = torch.tensor([[0.5, -0.5, 1.0, -1.0, 1.0, -1.0]])
    lost = [(odd, torch.tensor([1]))]
    model = trained(Flip())
    profile = depth_profile(model, cube(4), [*cube(3), *lost])
    assert [r.accuracy for r in profile.curve] == [1.0, 0.96]
    step = profile.steps[0]
    assert step is not None
    assert (step.pp, step.high_pp > 0) == (-4, True)
    assert profile.first_loss is None


def test_the_intervals_of_the_curve_are_wilsons():
    profile = depth_profile(trained(Project()), cube(4), cube(3))
    z2 = 1.959964**2
    assert profile.curve[0].low == pytest.approx(24 / (24 + z2), rel=1e-6)  # of 24 right ones out of 24
    assert profile.curve[0].high == 1.0
    half = math.sqrt(z2) * math.sqrt(0.25 / 24 + z2 / (4 * 24**2)) / (1 + z2 / 24)
    assert profile.curve[1].high == pytest.approx(0.5 + half, rel=1e-6)


def test_paired_interval_by_hand():
    """10 gained, 4 lost of 98: (6 ± 1.96 · sqrt(15 - .36)) / 100."""
    low, high = paired(10 / 98, 4 / 98, 98)
    assert (low + high) / 2 == pytest.approx(0.06)
    assert (high - low) / 2 == pytest.approx(1.959964 * math.sqrt(15 - 0.36) / 100, rel=1e-6)
    assert paired(1.0, 0.0, 1)[1] == 1.0
    assert paired(0.0, 1.0, 1)[0] == -1.0


# ---- any network ---------------------------------------------------------------------------------------------------


def data(n: int, shape: tuple[int, ...] = (12,), seed: int = 0, batch: int = 32):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=g)
    y = (x.flatten(1)[:, :3]).argmax(1)
    return list(zip(x.split(batch), y.split(batch), strict=True))


def test_the_curve_is_that_of_states_taken_by_hand():
    """A second computation: hidden states of the model's own forward pass, all at once, and the SVD."""
    torch.manual_seed(1)
    model = ResMLP(12, 3, 16, 3).eval()
    fit, test = data(400), data(160, seed=9)
    profile = depth_profile(model, fit, test)
    with torch.no_grad():
        (x, y), (xt, yt) = ([torch.cat(part) for part in zip(*batches, strict=True)] for batches in (fit, test))
        states, unseen = model(x, return_hidden=True)[1], model(xt, return_hidden=True)[1]
    for layer, (h, ht) in enumerate(zip(states, unseen, strict=True)):
        rows, others = (torch.nn.functional.layer_norm(t.double(), (16,), eps=0).numpy() for t in (h, ht))
        weights, offset, strength = by_svd(rows, y.numpy(), 3)
        right = (others @ weights + offset).argmax(1) == yt.numpy()
        assert profile.curve[layer].accuracy == right.mean()
        assert profile.curve[layer].strength == pytest.approx(strength)


def test_the_twin_is_the_network_with_frozen_blocks():
    torch.manual_seed(1)
    model = ResMLP(12, 3, 16, 3)
    nn.init.normal_(model.get_parameter("blocks.0.linear2.weight"))
    twin = creditscope.frozen_blocks(model, rest="keep", seed=5)
    profile = depth_profile(model, data(400), data(160, seed=9), seed=5)
    other = depth_profile(twin, data(400), data(160, seed=9))
    assert profile.twin == other.curve
    assert profile.curve != other.curve
    assert profile.curve[0] == profile.twin[0]
    last, random, first = profile.curve[-1].accuracy, profile.twin[-1].accuracy, profile.curve[0].accuracy
    assert random is not None
    assert random != first
    assert known(profile.margin).pp == pytest.approx(100 * (known(last) - random))


def test_a_fresh_embedding():
    torch.manual_seed(1)
    model = ResMLP(12, 3, 16, 2)
    twin = creditscope.frozen_blocks(model, rest="fresh", seed=5)
    profile = depth_profile(model, data(400), data(160, seed=9), seed=5, rest="fresh")
    assert profile.twin == depth_profile(twin, data(400), data(160, seed=9)).curve
    assert profile.twin[0] != profile.curve[0]


def test_how_samples_are_batched_and_read_does_not_matter():
    model = ResMLP(12, 3, 16, 2)
    x, y = (torch.cat([b[k] for b in data(400)]) for k in (0, 1))
    test = data(160, seed=9)
    profile = depth_profile(model, data(400), test)
    loader = DataLoader(TensorDataset(x, y), batch_size=7)
    assert depth_profile(model, loader, test) == profile
    assert depth_profile(model, iter(data(400, batch=1)), iter(test)) == profile
    assert profile.n_fit == profile.fit_rows == 400
    assert profile.n_test == profile.test_rows == 160


def test_hooked_and_interface_streams_agree():
    torch.manual_seed(0)
    model = ResMLP(12, 3, 16, 2)
    fit, test = data(400), data(160, seed=9)
    assert depth_profile(model, fit, test, blocks="blocks.*").curve == depth_profile(model, fit, test).curve


def test_images_are_averaged_over_space_where_they_are_too_wide():
    """States [32, 32, 32], [64, 16, 16], [128, 8, 8] and [8]: the most windows of an even grid that fit into 256 numbers."""
    fit, test = data(128, (3, 32, 32)), data(64, (3, 32, 32), seed=9)
    model = SmallCNN(3, 8)
    profile = depth_profile(model, fit, test, max_width=256)
    assert [readout.width for readout in profile.curve] == [32 * 4, 64 * 4, 128, 8]
    assert profile.raw is not None
    assert profile.raw.width == 3 * 8 * 8
    assert profile.notes == (
        "the raw input averaged over space: 32 x 32 to 8 x 8",
        "h_0 averaged over space: 32 x 32 to 2 x 2",
        "h_1 averaged over space: 16 x 16 to 2 x 2",
        "h_2 averaged over space: 8 x 8 to 1 x 1",
    )
    # the raw input by hand: means of windows of 4 x 4
    small = [(x.reshape(-1, 3, 8, 4, 8, 4).mean((3, 5)).flatten(1), y) for x, y in (*fit, *test)]
    by_hand = depth_profile(ResMLP(192, 3, 8, 1), small[: len(fit)], small[len(fit) :]).raw
    assert by_hand == profile.raw


def test_a_raw_input_that_cannot_be_averaged_is_left_out():
    profile = depth_profile(ResMLP(12, 3, 16, 2), data(100), data(50, seed=9), max_width=11)
    assert profile.raw is None
    assert profile.raw_reason == "it has 12 numbers per sample, more than max_width = 11"
    assert profile.curve[0].width == 16  # a state that is a vector is read as it is


def test_a_diverged_network_has_no_readout():
    model = ResMLP(12, 3, 16, 2)
    nn.init.constant_(model.get_parameter("blocks.1.linear2.weight"), math.inf)
    profile = depth_profile(model, data(100), data(50, seed=9))
    assert profile.curve[1].accuracy is not None
    assert profile.curve[2].accuracy is None
    assert profile.margin is None
    assert profile.steps[1] is None


def test_one_sample_that_is_not_finite_is_enough():
    """Among those that are fitted, or among those that are tested."""
    for where in (0, 1):
        fit, test = [(x.clone(), y) for x, y in data(100)], [(x.clone(), y) for x, y in data(50, seed=9)]
        (fit, test)[where][-1][0][3, 0] = math.inf
        profile = depth_profile(ResMLP(12, 3, 16, 2), fit, test)
        assert [r.accuracy for r in (known(profile.raw), *profile.curve, *profile.twin)] == [None] * 7


class Language(nn.Module):
    """Tokens embedded, mixed by a causal mean, scored one by one."""

    def __init__(self, vocabulary: int = 11, width: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        h = self.tokens(ids)
        for layer in self.layers:
            h = h + layer(h).cumsum(1) / torch.arange(1, h.shape[1] + 1).unsqueeze(1)
        return self.head(h)


def sequences(n: int, seed: int):
    ids = torch.randint(0, 11, (n, 9), generator=torch.Generator().manual_seed(seed))
    y = (ids * 3 + 1) % 11  # a function of the token: linear in its embedding only where that is rich enough
    y[:, :2] = -100
    return list(zip(ids.split(16), y.split(16), strict=True))


def test_language_models_are_read_token_by_token():
    torch.manual_seed(0)
    model = Language(width=24)
    fit, test = sequences(64, 1), sequences(32, 2)
    profile = depth_profile(model, fit, test, blocks="layers.*", tokens=4)
    assert profile.fit_rows == 4 * 64
    assert profile.test_rows == 4 * 32
    assert (profile.n_fit, profile.n_test) == (64, 32)
    assert profile.raw_reason == "labels of tokens"
    assert profile.curve[0].accuracy == 1.0  # 11 embeddings in 24 dimensions: every label has its hyperplane
    z2 = 1.959964**2
    assert profile.curve[0].low == pytest.approx(32 / (32 + z2), rel=1e-6)  # over sequences, not tokens
    everything = depth_profile(model, fit, test, blocks="layers.*", tokens=100)
    assert everything.fit_rows == 7 * 64  # two of nine tokens are not scored


class Shifting(Language):
    """Has a loss of its own, token t against label t + 1, and tells how often it is asked for it."""

    def __init__(self, asked: Callable[[], None]) -> None:
        super().__init__(width=24)
        self.asked = asked  # counts beside the model: what stands in it is put back

    def forward(self, ids, labels=None):
        logits = super().forward(ids)
        if labels is None:
            return {"logits": logits}
        self.asked()
        flat = logits[:, :-1].reshape(-1, 11), labels[:, 1:].reshape(-1)
        return {"logits": logits, "loss": nn.functional.cross_entropy(*flat)}


def test_how_a_model_reads_its_labels_is_asked_once():
    torch.manual_seed(0)
    asked: list[None] = []
    model = Shifting(lambda: asked.append(None))
    fit, test = sequences(64 * 16, 1), sequences(64, 2)  # sixteen times as many batches as are held at once
    profile = depth_profile(model, fit, test, blocks="layers.*", tokens=4)
    assert len(asked) == 1  # a sample that tells
    said = depth_profile(model, fit, test, blocks="layers.*", tokens=4, shift_labels=True)
    assert said == profile
    assert len(asked) == 1
    assert profile.fit_rows == 4 * 1024


def test_a_label_that_was_not_fitted_counts_as_wrong():
    model = ResMLP(12, 4, 16, 2)
    fit = [(x, y) for x, y in data(400)]
    test = data(160, seed=9)
    for _, y in test:
        y[::2] = 3
    accuracy = depth_profile(model, fit, test).curve[0].accuracy
    assert known(accuracy) <= 0.5


# ---- left as found (after errors: tests/trust/raised.py), and refused ------------------------------------------------


def test_the_model_and_a_loader_with_its_own_generator_are_left_as_found():
    model = ResMLP(12, 3, 16, 2)
    model.blocks[0].eval()
    model.get_parameter("embed.linear.weight").requires_grad_(False)
    model(torch.randn(4, 12)).sum().backward()
    x, y = (torch.cat([b[k] for b in data(100)]) for k in (0, 1))
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True, generator=generator)
    with left_as_found(model, generator):
        depth_profile(model, loader, data(50, seed=9))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_batches": data(400)}, "holds the samples that the readouts are tested on"),
        ({"fit_batches": []}, "fit_batches is empty"),
        ({"test_batches": 3}, "test_batches is an int"),
        ({"fit_batches": [(torch.randn(8, 12), torch.randn(8))]}, "needs integer class indices"),
        ({"fit_batches": [(torch.randn(8, 12), torch.full((8,), -1))]}, "label -1 is not a class"),
        ({"fit_batches": [(torch.randn(8, 12), torch.zeros(8, 2, dtype=torch.long))]}, r"labels have shape \[8, 2\]"),
        (
            {"test_batches": [(torch.randn(8, 12), torch.full((8,), 7))]},
            "fit_batches has no label in common with the samples",
        ),
        ({"max_width": 0}, "max_width is 0"),
        ({"tokens": True}, "tokens is True"),
        ({"model": "net"}, "model is a str"),
        ({"rest": "new"}, "rest is 'new'"),
    ],
)
def test_what_makes_no_sense_is_one_line(change, words):
    given = {"model": ResMLP(12, 3, 16, 2), "fit_batches": data(400), "test_batches": data(160, seed=9)} | change
    with pytest.raises(CreditscopeError, match=words) as error:
        depth_profile(**given)
    assert "\n" not in str(error.value)


def test_a_block_that_cannot_start_again_is_refused_by_name():
    class Own(Branch):
        def __init__(self) -> None:
            super().__init__()
            nn.init.normal_(self.gain)

    with pytest.raises(CreditscopeError, match=r"how block 'blocks.0' is initialised.*build="):
        depth_profile(trained(Own()), cube(4), cube(3))
    assert depth_profile(trained(Own()), cube(4), cube(3), build=lambda: Net(Own())).twin[1].accuracy is not None


def test_json_round_trip():
    profile = depth_profile(ResMLP(12, 3, 16, 2), data(100), data(50, seed=9))
    assert DepthProfile.model_validate(profile.to_dict()) == profile
