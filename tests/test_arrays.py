"""`diagnose_arrays` against `diagnose`, by a network that is written a second time in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refusal

from creditscope import DiagnosticReport, DiagnosticThresholds, diagnose, diagnose_arrays

from .resmlp import DEPTH, WIDTH, NumpyResMLP, direct_feedback, network, same, samples, torch_rule, twin_of, weights

SIZES = (100, 128, 77, 95)
CLAIMS: dict[str, Any] = {"headline_acc": 0.5, "headline_on": "other data", "frozen_baseline_acc": 0.4, "n_test": 4000}


def by_torch(dtype: torch.dtype, **options: Any) -> DiagnosticReport:
    return diagnose(network(dtype), samples(SIZES, 1, dtype), credit=torch_rule, level="full", **CLAIMS, **options)


def batches(
    dtype: torch.dtype, sizes: tuple[int, ...] = SIZES, seed: int = 1, credit: bool = True
) -> list[dict[str, Any]]:
    net = NumpyResMLP(weights(network(dtype)))
    found = [net.batch(x.numpy(), y.numpy()) for x, y in samples(sizes, seed, dtype)]
    return [{**b, "a": direct_feedback(b["logits"], b["labels"])} if credit else b for b in found]


def loss_from(layer: int, h: Any, y: Any) -> Any:
    return NumpyResMLP(weights(network(torch.float32), np.float64)).loss_from(layer, h, y)


def exact_loss_from(layer: int, h: Any, y: Any) -> Any:
    return NumpyResMLP(weights(network(torch.float64))).loss_from(layer, h, y)


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol", "run"),
    [(torch.float64, 1e-10, 1e-12, exact_loss_from), (torch.float32, 1e-5, 1e-6, loss_from)],
)
def test_the_same_network_in_numpy_gives_the_same_report(dtype, rtol, atol, run):
    theirs = by_torch(dtype)
    ours: Any = diagnose_arrays(batches(dtype), reduction="sum", loss_from=run, level="full", **CLAIMS)
    same(ours, theirs, rtol, atol, but=("proof", "fresh_b"))
    assert max(e for e in ours.facts.proof.gradient if e is not None) < 1e-4
    assert "not measured" in ours.facts.fresh_b.reason


def profiled(dtype: torch.dtype, **options: Any) -> DiagnosticReport:
    """Credit, states to fit on, and those of the twin, all by numpy."""
    net, twin = (NumpyResMLP(weights(m)) for m in (network(dtype), twin_of(network(dtype))))

    def states(sizes: tuple[int, ...], seed: int) -> Any:
        for x, y in samples(sizes, seed, dtype):
            batch = net.batch(x.numpy(), y.numpy())
            yield {**batch, "twin": twin.states(x.numpy()), "a": direct_feedback(batch["logits"], batch["labels"])}

    fit = ({k: v for k, v in b.items() if k in ("h", "twin", "x", "labels")} for b in states((400, 300), 7))
    return diagnose_arrays(states(SIZES, 1), reduction="sum", fit_batches=fit, **options)


def test_the_profile_of_recorded_states_is_that_of_the_network():
    dtype = torch.float64
    fit, test = samples((400, 300), 7, dtype), samples(SIZES, 1, dtype)
    theirs: Any = diagnose(network(dtype), test, credit=torch_rule, fit_batches=fit)
    same(profiled(dtype), theirs, 1e-10, 1e-12, but=("proof",))
    net = NumpyResMLP(weights(network(dtype)))
    without: Any = diagnose_arrays(
        [net.batch(x.numpy(), y.numpy()) for x, y in test],
        reduction="sum",
        fit_batches=[{"h": net.states(x.numpy()), "labels": y, "x": x} for x, y in fit],
    )
    assert without.facts.profile.curve == pytest.approx(theirs.facts.profile.curve)
    assert without.facts.profile.margin is None
    assert "the states of the twin were not given" in without.to_text(long=True)


class Foreign:
    """An array of a library that nobody knows."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._data, dtype=dtype)


class Dlpack:
    def __init__(self, data: Any) -> None:
        self._data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self._data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()


def sparse(array: Any) -> Any:
    return torch.from_numpy(array).to_sparse()


@pytest.mark.parametrize(
    "wrap", [torch.from_numpy, Foreign, Dlpack, lambda t: torch.from_numpy(t).requires_grad_(), sparse]
)
def test_any_array_type_is_read(wrap):
    given = batches(torch.float32)[:1]
    wrapped = [
        {k: [wrap(t) for t in v] if isinstance(v, list) else torch.from_numpy(v) for k, v in b.items()} for b in given
    ]
    assert diagnose_arrays(wrapped, reduction="sum").to_dict() == diagnose_arrays(given, reduction="sum").to_dict()


def test_layers_may_be_one_array_and_batches_one_mapping():
    (given,) = batches(torch.float32, (64,))
    stacked = {k: np.stack(v) if isinstance(v, list) else v for k, v in given.items()}
    assert diagnose_arrays(stacked, reduction="sum").to_dict() == diagnose_arrays([given], reduction="sum").to_dict()


def test_bfloat16_of_numpy_and_of_torch_are_the_same_numbers():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="extra dev-jax is missing: bfloat16 of numpy is NOT tested")
    (given,) = batches(torch.float32, (64,), credit=False)
    by_numpy = {k: [t.astype(ml_dtypes.bfloat16) for t in v] if isinstance(v, list) else v for k, v in given.items()}
    by_torch = {k: [torch.from_numpy(t).bfloat16() for t in v] if isinstance(v, list) else v for k, v in given.items()}
    ours, theirs = (diagnose_arrays(b, reduction="sum") for b in (by_numpy, by_torch))
    assert ours.to_dict() == theirs.to_dict()
    assert ours.facts.convention.dtype == "bfloat16"


@pytest.mark.parametrize("size", ["each", 128])
def test_a_gradient_of_a_mean_is_taken_back_to_one_sample(size):
    given = batches(torch.float64)
    reference = diagnose_arrays(given, reduction="sum")
    divided = [
        {**b, **{k: [t / (len(b["labels"]) if size == "each" else size) for t in b[k]] for k in ("g", "a")}}
        for b in given
    ]
    report = diagnose_arrays(divided, reduction="mean", batch_size=size)
    same(report, reference, 1e-12, 0, but=("convention.reduction",))
    assert "mean over" in report.facts.convention.reduction
    only_g = [{**b, "a": g["a"]} for b, g in zip(divided, given, strict=True)]
    report = diagnose_arrays(only_g, reduction="mean", batch_size=size, credit_reduction="sum")
    same(report, reference, 1e-12, 0, but=("convention.reduction",))
    only_a = [{**b, "g": g["g"]} for b, g in zip(divided, given, strict=True)]
    same(diagnose_arrays(only_a, reduction="sum", batch_size=size, credit_reduction="mean"), reference, 1e-12, 0)


def test_a_wrong_convention_is_found_by_loss_from():
    given = batches(torch.float64)
    divided = [{**b, "g": [t / 128 for t in b["g"]]} for b in given]
    said = refusal(lambda: diagnose_arrays(divided, reduction="sum", loss_from=exact_loss_from))
    assert "reduction='sum' was stated" in said


def test_layers_that_train_and_layers_that_are_exact():
    given = batches(torch.float64)
    for b in given:
        b["a"] = [None, *b["a"][1:-1], b["g"][-1]]
    facts: Any = diagnose_arrays(given, reduction="sum", exact_layers=[DEPTH]).facts
    assert facts.alignment.counting == tuple(range(1, DEPTH + 1))
    assert facts.alignment.mean[0] is None
    assert facts.alignment.mean[-1] == pytest.approx(1)
    inner = [facts.alignment.mean[k] for k in range(1, DEPTH)]
    assert facts.concentration.deep_mean_without_exact == pytest.approx(np.mean(inner))
    facts = diagnose_arrays(given, reduction="sum", trained_layers=[1]).facts
    assert facts.alignment.counting == (1,)
    assert facts.aggregate.headline == facts.alignment.mean[1]


def test_what_arrays_do_not_show_is_not_measured_and_says_why():
    (given,) = batches(torch.float64, (64,), credit=False)
    report = diagnose_arrays({k: given[k] for k in ("h", "g")}, reduction="sum", level="full")
    facts: Any = report.facts
    assert (facts.accuracy, facts.loss, facts.alignment) == (None, None, None)
    assert "without loss_from" in facts.proof.gradient_reason
    assert "needs loss_from" in facts.perturbation.reason
    assert "needs loss_from" in facts.nudging.reason
    assert report.status == "incomplete"
    assert "loss_from" in str(report)


def test_token_states_are_read_as_stated():
    rng = np.random.default_rng(0)
    h, g = ([rng.standard_normal((9, 4, 6)) for _ in range(3)] for _ in range(2))
    facts = diagnose_arrays({"h": h, "g": g}, reduction="sum", read="mean").facts
    assert facts.stream.widths == (6, 6, 6)
    assert facts.scale.mean[1] == pytest.approx(np.linalg.norm(h[1].mean(1), axis=1).mean())
    assert facts.reference.per_sample[1] == pytest.approx(np.linalg.norm(g[1].sum(1), axis=1).mean())
    of_all = [np.linalg.norm(each.reshape(9, -1), axis=1).mean() for each in h]
    growth = max(of_all[1] / of_all[0], of_all[2] / of_all[1])
    assert facts.scale.growth_all_tokens == pytest.approx(growth)
    limits = DiagnosticThresholds(h_norm_explosion_ratio=(facts.scale.growth + growth) / 2)
    parted = diagnose_arrays({"h": h, "g": g}, reduction="sum", read="mean", thresholds=limits)
    assert any(w.startswith("D1 depends on the reading") for w in parted.verdict.warnings)
    flat = diagnose_arrays({"h": h, "g": g}, reduction="sum", read="flatten").facts
    assert flat.scale.growth_all_tokens is None
    assert "say what the head reads" in refusal(lambda: diagnose_arrays({"h": h, "g": g}, reduction="sum"))


def test_nan_is_a_finding_of_the_network_and_a_mistake_of_the_credit():
    (given,) = batches(torch.float64, (64,))
    given["h"][1][3, 2] = np.nan
    report = diagnose_arrays(given, reduction="sum", **CLAIMS)
    assert report.status == "fail"
    assert "h_1" in report.facts.non_finite
    (given,) = batches(torch.float64, (64,))
    given["a"][1][3, 2] = np.nan
    assert "NaN or Inf at layer 1" in refusal(lambda: diagnose_arrays(given, reduction="sum"))


def test_losses_that_are_not_finite_are_a_finding():
    (given,) = batches(torch.float64, (64,))
    losses = np.where(np.arange(64) == 3, np.inf, 1.0)
    report = diagnose_arrays({**given, "losses": losses}, reduction="sum", loss="hinge", **CLAIMS)
    assert report.facts.non_finite == ("loss",)
    assert report.status == "fail"


def test_labels_of_another_loss_that_are_no_classes_give_no_accuracy():
    given = [{**b, "losses": np.ones(len(b["labels"]))} for b in batches(torch.float64, (64, 32))]
    assert diagnose_arrays(given, reduction="sum", loss="hinge").facts.accuracy is not None
    for label in (-1, 10**12):
        labels = given[1]["labels"].copy()
        labels[7] = label
        facts = diagnose_arrays([given[0], {**given[1], "labels": labels}], reduction="sum", loss="hinge").facts
        assert (facts.accuracy, facts.evaluation, facts.loss) == (None, None, 1)


def test_a_sample_that_is_not_scored_is_not_counted():
    (given,) = batches(torch.float64, (64,))
    right = given["logits"].argmax(1) == given["labels"]
    labels = np.where(np.arange(64) == 3, -100, given["labels"])
    told = {**given, "labels": labels, "losses": np.ones(64)}
    facts: Any = diagnose_arrays(told, reduction="sum", loss="masked").facts
    assert facts.accuracy == pytest.approx((right.sum() - right[3]) / 63)
    assert facts.evaluation.n == 63


def test_layers_and_sizes_may_be_integers_of_numpy():
    (given,) = batches(torch.float64, (64,))
    told: list[tuple[Any, Any]] = [(64, [1, 2]), (np.int64(64), np.array([1, 2]))]
    ours, theirs = (
        diagnose_arrays(given, reduction="mean", batch_size=n, trained_layers=layers, exact_layers=layers)
        for n, layers in told
    )
    assert ours.to_dict() == theirs.to_dict()


Z = np.zeros((4, 3))
OK = {"h": [Z, Z], "g": [Z, Z]}
TOLD = {**OK, "labels": [0, 1, 0, 1]}


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (OK, {"reduction": "average"}, "reduction is 'average'"),
        (OK, {"reduction": "mean"}, "give the number of samples that the loss was averaged over"),
        (OK, {"reduction": "mean", "batch_size": True}, "batch_size is True"),
        (OK, {"batch_size": 4}, "for reduction='mean' only"),
        (OK, {"kind": "dense"}, "kind is 'dense'"),
        (OK, {"level": "all"}, "level is 'all'"),
        (OK, {"protocol": "four"}, "four"),
        (OK, {"read": "cls"}, "leave it out"),
        (OK, {"test_batches": [OK]}, "without fit_batches"),
        (TOLD, {"fit_batches": []}, "fit_batches is empty"),
        (TOLD, {"fit_batches": [OK]}, "no entry 'labels'"),
        (OK, {"fit_batches": [TOLD]}, "batches have no labels"),
        (TOLD, {"fit_batches": [{**TOLD, "x": Z}]}, "'x' is given for the fit data or the test data alone"),
        (TOLD, {"fit_batches": [TOLD]}, "holds the samples that the readouts are tested on"),
        ([], {}, "batches is empty"),
        (3, {}, "batches is an int"),
        ([Z], {}, "batch 0 of batches is a ndarray"),
        ({"h": [Z, Z]}, {}, "no entry 'g'"),
        ({**OK, "hidden": Z}, {}, "an entry 'hidden'"),
        ({**OK, "h": [Z]}, {}, "1 layers"),
        ({**OK, "h": 3.0}, {}, "give a list of arrays"),
        ({**OK, "h": [Z, Z[:2]]}, {}, "with one row per sample"),
        ({**OK, "h": [Z, Z.astype(int)]}, {}, "int64"),
        ({**OK, "h": [Z, np.array(["a"])]}, {}, "not an array of numbers"),
        ({**OK, "h": [Z, Z.astype(object)]}, {}, "not an array of numbers"),
        ({**OK, "h": [Z, Z[:, :2]], "g": [Z, Z[:, :2]]}, {}, "kind='plain'"),
        ({**OK, "g": [Z, Z[:, :2]]}, {}, "they must agree"),
        ({**OK, "g": [Z]}, {}, "give one for each h_l"),
        ({**OK, "g": [Z, 1j * Z]}, {}, "not an array of numbers"),
        ({**OK, "a": [Z]}, {}, "None where there is none"),
        ({**OK, "a": [Z, Z[:, :2]]}, {}, "expected"),
        ({**OK, "a": [Z, Z]}, {"exact_layers": [2]}, "names layer 2"),
        ({**OK, "labels": [0, 1]}, {}, "for 4 samples"),
        ({**OK, "labels": [0, 1, 2, 3], "logits": Z}, {}, "label 3 is out of range"),
        ({**OK, "labels": [0.5, 1, 2, 3], "logits": Z}, {}, "integer class indices"),
        ({**OK, "losses": Z}, {}, "one loss per sample"),
        ({**TOLD, "logits": Z, "losses": np.ones(4)}, {}, "name the loss"),
        ({**TOLD, "logits": Z, "losses": np.full(4, np.nan)}, {}, "name the loss"),
        ({**OK, "labels": [0, 1, -1, 1], "logits": Z, "losses": np.ones(4)}, {}, "label -1 is out of range"),
        ([{**TOLD, "logits": Z}, {**TOLD, "logits": Z[:, :2]}], {}, "3 classes in one batch and 2 in another"),
        ({**OK, "h": [Z, np.ma.masked_array(Z, mask=Z == 0)]}, {}, "masked"),
        ({"h": [Z[:, None]] * 2, "g": [Z[:, None]] * 2}, {"read": "vector"}, "say what the head reads"),
        ({"h": [Z[..., None, None]] * 2, "g": [Z[..., None, None]] * 2}, {"read": "cls"}, "leave it out"),
        ({**OK, "a": [Z, Z]}, {"trained_layers": 1}, "give a list of layers"),
        (OK, {"loss_from": lambda layer, h, y: np.full(len(h), np.nan)}, "return finite losses"),
        ([OK, TOLD], {}, "the same entries"),
        ([OK, {"h": [Z, Z, Z], "g": [Z, Z, Z]}], {}, "batches of one network"),
        (OK, {"loss_from": lambda layer, h, y: 1 / 0}, "loss_from raised ZeroDivisionError"),
        (OK, {"loss_from": lambda layer, h, y: 0.0}, "one loss per sample"),
        (OK, {"loss_from": lambda layer, h, y: np.full(len(h), float(layer))}, "not the same network"),
    ],
)
def test_what_does_not_fit_is_one_line(given, options, said):
    assert said in refusal(lambda: diagnose_arrays(given, **{"reduction": "sum", **options}))


def test_an_unknown_argument_is_said_before_anything_is_measured():
    with pytest.raises(TypeError, match="headline_accuracy"):
        diagnose_arrays(OK, reduction="sum", headline_accuracy=0.5)  # type: ignore[call-arg]


def test_a_network_of_other_widths_is_plain():
    rng = np.random.default_rng(1)
    widths = (5, WIDTH, 3)
    h, g = ([rng.standard_normal((200, d)).astype(np.float32) for d in widths] for _ in range(2))
    facts: Any = diagnose_arrays({"h": h, "g": g, "a": g}, reduction="sum", kind="plain").facts
    assert (facts.stream.kind, facts.stream.widths) == ("plain", widths)
    assert facts.alignment.mean == pytest.approx((1, 1, 1))
