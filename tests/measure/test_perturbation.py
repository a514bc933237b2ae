import copy

import numpy as np
import pytest
import torch
from tests.known import known
from tests.measure.functional_nets import Net, constant_loss, linear_loss, probe_of, samples, tanh_net, weights
from torch import nn

from creditscope.credit.dfa import DFA
from creditscope.credit.fa import FA
from creditscope.measure import functional
from creditscope.measure.functional import displaced, double_stream, first_samples, resolution
from creditscope.measure.loss import cross_entropy
from creditscope.measure.perturbation import SEED, pearson, perturbation
from creditscope.models import ResMLP, ViTMini
from creditscope.protocol.diagnosis import diagnose
from creditscope.stream.interface import make_stream
from creditscope.stream.untouched import untouched


def test_a_loss_that_is_linear_in_h_gives_exactly_one_for_the_gradient():
    stream, probe = probe_of(Net(), samples(), loss_fn=linear_loss)
    rho = perturbation(stream, [probe], linear_loss)
    assert rho.reference is not None
    assert rho.reference.mean == pytest.approx((1, 1, 1), abs=1e-9)
    assert rho.reference.measurable == (6, 6, 6)
    assert rho.credit is None


def test_minus_the_gradient_gives_minus_one_and_scale_does_not_matter():
    x, y = samples()
    g = weights(x, y)
    stream, probe = probe_of(Net(), (x, y), credit=[-1e-30 * g] * 3, loss_fn=linear_loss)
    rho = perturbation(stream, [probe], linear_loss)
    assert known(rho.credit).mean == pytest.approx((-1, -1, -1), abs=1e-9)


def test_formula_against_a_loop_in_numpy():
    model, (x, y) = tanh_net(), samples(4)
    credit = [torch.randn(4, 5, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    stream, probe = probe_of(model, (x, y), credit)
    got = perturbation(stream, [probe], cross_entropy, directions=7, epsilon=0.05, seed=3)
    twin = copy.deepcopy(model).double()
    rng = torch.Generator().manual_seed(3)
    v = torch.randn(4, 7, 5, generator=rng).double().numpy()
    for layer in range(3):
        expected = []
        for i in range(4):
            h = x[i].double()
            for block in twin.blocks[:layer]:
                h = h + block(h)
            foretold, change = [], []
            for m in range(7):
                step = 0.05 * v[i, m] / np.linalg.norm(v[i, m])
                losses = []
                for state in (h, h + torch.from_numpy(step)):
                    for block in twin.blocks[layer:]:
                        state = state + block(state)
                    logits = twin.out_head(state).detach().numpy()
                    losses.append(np.log(np.exp(logits).sum()) - logits[int(y[i])])
                foretold.append(float(credit[layer][i].double().numpy() @ step))
                change.append(losses[1] - losses[0])
            expected.append(np.corrcoef(foretold, change)[0, 1])
        assert got.credit is not None
        assert got.credit.mean[layer] == pytest.approx(np.mean(expected), abs=1e-9)
        assert got.credit.std[layer] == pytest.approx(np.std(expected, ddof=1), abs=1e-9)


def test_below_the_resolution_is_not_measurable_and_never_zero():
    stream, probe = probe_of(Net(), samples(), loss_fn=constant_loss)
    rho = perturbation(stream, [probe], constant_loss)
    assert rho.reference is not None
    assert rho.reference.mean == (None, None, None)
    assert rho.reference.measurable == (0, 0, 0)
    assert rho.reference.deep_mean is None


def test_zero_credit_is_not_measurable():
    stream, probe = probe_of(Net(), samples(), credit=[torch.zeros(6, 5)] * 3, loss_fn=linear_loss)
    rho = perturbation(stream, [probe], linear_loss)
    assert known(rho.credit).measurable == (0, 0, 0)
    assert known(rho.reference).measurable == (6, 6, 6)


def test_pearson_counts_out_what_it_cannot_measure():
    x = np.array([[1.0, 2, 3], [1, 1, 1], [1, 2, 3], [1, 2, np.inf], [1, 2, 3]])
    y = np.array([[2.0, 4, 6], [1, 2, 3], [5, 5, 5 + 1e-15], [1, 2, 3], [np.nan, 1, 2]])
    got = pearson(x, y, np.full(5, 1e-13))
    assert got[0] == pytest.approx(1.0)
    assert np.isnan(got[1:]).all()


def test_resolution_follows_the_loss_and_the_logits():
    got = resolution(torch.tensor([0.5, 7.0], dtype=torch.float64), torch.tensor([[1e4, -2.0], [0.0, 1.0]]).double())
    eps = np.finfo(np.float64).eps
    assert got == pytest.approx([100 * eps * 1e4, 100 * eps * 7])


def test_chunks_do_not_change_the_result(monkeypatch):
    model, batch = tanh_net(), samples(9)
    stream, probe = probe_of(model, batch)
    whole = perturbation(stream, [probe], cross_entropy)
    monkeypatch.setattr(functional, "CHUNK", 5 * 32 * 2)
    parts = perturbation(stream, [probe], cross_entropy)
    assert known(parts.reference).mean == pytest.approx(known(whole.reference).mean, abs=1e-6)
    assert whole.seed == SEED


def test_first_samples_cut_the_last_batch():
    batches = [samples(100, seed=k) for k in range(3)]
    kept = first_samples(batches, 256)
    assert [len(y) for _, y in kept] == [100, 100, 56]
    assert torch.equal(kept[2][0], batches[2][0][:56])


class Pooled(nn.Module):
    """Tokens [B, T, d], mean-pooled; seen through hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


@pytest.mark.parametrize("credit", [None, DFA, FA])
def test_mean_pooled_tokens_through_hooks(credit):
    torch.manual_seed(0)
    model = Pooled()
    batches = [(torch.randn(5, 4, 8), torch.randint(3, (5,))) for _ in range(2)]
    rule = None
    if credit is not None:
        rule = credit()
        with untouched(model):
            rule.setup(make_stream(model, batches[0][0], 5, "layers.*"), 3, torch.Generator().manual_seed(0))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    facts = diagnose(model, batches, credit=rule, blocks="layers.*", level="full").facts
    assert facts.stream.read == "mean"
    assert facts.perturbation is not None
    assert min(m for m in known(facts.perturbation.reference).mean if m is not None) > 0.999
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in before.items())
    assert next(model.parameters()).dtype == torch.float32
    if credit is FA:
        assert facts.perturbation.credit is not None
        assert facts.perturbation.credit.mean[-1] == pytest.approx(1.0, abs=1e-3)
        assert facts.perturbation.credit.deep_mean_without_exact != facts.perturbation.credit.deep_mean


def test_displacement_of_a_cls_token_moves_that_token_only():
    torch.manual_seed(0)
    model, x = ViTMini(10, 16, 2), torch.randn(3, 3, 32, 32)
    with untouched(model):
        stream = make_stream(model, x, 3)
    h = torch.randn(2, 65, 16)
    delta = torch.randn(2, 4, 16)
    moved = displaced(stream, 1, h, delta).view(2, 4, 65, 16)
    assert torch.allclose(moved[:, :, 0], h[:, None, 0] + delta)
    assert torch.equal(moved[:, :, 1:], h[:, None, 1:].expand(-1, 4, -1, -1))


def test_controls_alone_without_credit():
    report = diagnose(tanh_net(), [samples(64)], level="full")
    assert known(report.facts.perturbation).credit is None
    assert report.facts.fresh_b is None
    assert "ρ(g)" in report.to_text(long=True)
    assert "ρ(g)" in report.to_markdown()
    assert type(report).from_dict(report.to_dict()) == report


def test_a_diverged_network_is_not_measurable_and_no_crash():
    model = tanh_net()
    with torch.no_grad():
        model.get_parameter("blocks.0.linear1.weight").fill_(float("nan"))
    report = diagnose(model, [samples()], credit=lambda hiddens, logits, y: list(hiddens), level="full")
    assert report.status == "fail"
    assert known(known(report.facts.perturbation).reference).measurable == (0, 0, 0)


def test_a_network_that_cannot_run_in_float64_says_so():
    class Head(nn.Linear):
        def forward(self, x):
            return super().forward(x.to(torch.float32))

    model = tanh_net()
    model.out_head = Head(5, 3)
    report = diagnose(model, [samples()], level="full")
    assert "does not run as a float64 copy" in known(report.facts.perturbation).reason
    assert "not measured: the network does not run as a float64 copy" in " ".join(report.to_text(long=True).split())


def test_samples_that_influence_each_other_are_not_moved_one_by_one():
    """A graph: each of n nodes takes from the one before it, so that n copies of a node are another graph."""

    class Ring(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(5, 5)

        def forward(self, h: torch.Tensor) -> torch.Tensor:
            return h + torch.tanh(self.map(h + h.roll(1, 0)))

    torch.manual_seed(0)
    layers = nn.ModuleList(Ring() for _ in range(2))
    model = nn.Sequential(nn.Linear(5, 5), *layers, nn.Linear(5, 3))
    x, y = torch.randn(16, 5), torch.randint(3, (16,))
    facts = diagnose(model, [(x, y)], blocks=list(layers), level="full").facts
    assert known(facts.proof).independent is False
    for fact in (facts.perturbation, facts.nudging):
        assert fact is not None
        assert (fact.reference, fact.n_samples) == (None, 0)
        assert "samples influence each other" in fact.reason


@pytest.mark.slow
def test_controls_on_a_network_trained_by_backpropagation(tmp_path):
    from creditscope.data import load_dataset
    from creditscope.data.dataset import eval_batches
    from creditscope.training.loop import train
    from creditscope.training.spec import make_spec

    bundle = train(make_spec({"method": "bp", "epochs": 2}), tmp_path / "bp")
    dataset = load_dataset("quadratic")
    facts = diagnose(bundle.model(dataset), eval_batches(dataset), credit=bundle.rule(), level="full").facts
    rho = facts.perturbation
    assert rho is not None
    assert rho.reference is not None
    assert all(m is not None and m > 0.99 for m in rho.reference.mean)
    assert all(m is not None and abs(m) < 0.05 for m in known(rho.random).mean)
    assert known(rho.credit).mean == pytest.approx(rho.reference.mean, abs=1e-12)


def test_the_network_that_is_probed_is_a_float64_copy():
    model = ResMLP(3, 2, width=4, depth=1)
    stream = double_stream(model, (torch.randn(5, 3), torch.zeros(5, dtype=torch.long)), None, None)
    assert {p.dtype for p in stream.model.parameters()} == {torch.float64}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
