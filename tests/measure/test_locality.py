"""Certificates of updates whose dependence is known by construction."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.known import known
from tests.refusals import refusal
from tests.trust.oracle import left_as_found
from torch import Tensor, nn

from creditscope.credit.base import CreditRule
from creditscope.credit.registry import make_rule
from creditscope.measure.certificate import (
    BACKPROPAGATION,
    GLOBAL,
    LABELS,
    LATER,
    LOCAL,
    SIGNS,
    TRANSPORT,
    UNDETERMINED,
)
from creditscope.measure.null_space import Use, null_space
from creditscope.models import ResMLP, SmallCNN, ViTMini
from creditscope.protocol.report import DiagnosticReport, make_report
from creditscope.render.certificate import certificate_matrix
from creditscope.stream.interface import InterfaceStream
from creditscope.training.certify import certify

from ..protocol.factory import make_facts
from . import update_rules as rules
from .update_rules import CLASSES, DEPTH, SAMPLES, WIDTH, Net
from .update_styles import STYLES

LAYERS = "layers.*"


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def shared_feedback() -> nn.Module:
    """FA layers; the feedback of layer 1 is the very weight of layer 2 (planted)."""
    model: Any = Net(rules.of_kind("fa"))
    model.layers[1].linear.weight_backward = model.layers[2].linear.weight
    return model


NO, YES, NONE = "no", "yes", "not applicable"
CASES: dict[str, tuple[Callable[[], nn.Module], Any, str, dict[str, str]]] = {
    # name: network, update, label, answers
    "backpropagation": (Net, rules.backward, BACKPROPAGATION, {"between": YES, "readout": YES, "later_states": YES,
        "teaching": "the output error", "backpropagation": "yes, to round-off", "head": YES, "samples": YES,
        "feedback": "tied to the forward weights"}),
    "dfa by hand": (Net, rules.dfa(), GLOBAL, {"between": NO, "readout": NO, "inside": NONE, "later_states": NO,
        "teaching": "the output error", "backpropagation": NO, "head": YES, "feedback": "fixed"}),
    "planted: W of another block": (Net, rules.dfa(wrong=(0, 2)), TRANSPORT, {"between": YES, "readout": NO}),
    "greedy": (Net, rules.greedy(), LOCAL, {"between": NO, "readout": NO, "later_states": NO, "teaching": "labels alone",
        "head": YES}),
    "planted: a peek at a later block": (Net, rules.greedy(peek=(0, 2)), LATER, {"between": NO, "later_states": YES,
        "teaching": "labels alone"}),
    "planted: detach in the wrong place": (Net, rules.greedy(detach=False), TRANSPORT, {"between": YES, "readout": NO}),
    "hebbian": (Net, rules.hebbian, LOCAL, {"between": NO, "teaching": "no teaching signal", "head": NONE}),
    "layers fa": (lambda: Net(rules.of_kind("fa")), rules.backward, GLOBAL, {"between": NO, "readout": YES, "head": YES}),
    "layers usf": (lambda: Net(rules.of_kind("usf")), rules.backward, SIGNS, {"between": YES}),
    "layers frsf": (lambda: Net(rules.of_kind("frsf")), rules.backward, SIGNS, {"between": YES}),
    "planted: autograd.Function with the weight": (lambda: Net(rules.of_kind("tied")), rules.backward, BACKPROPAGATION,
        {"between": YES}),
    "layers dfa by module hooks": (rules.direct_net, rules.direct, GLOBAL, {"between": NO, "readout": NO,
        "later_states": NO}),
    "planted: module hook": (lambda: rules.direct_net(wrong=(1, 2)), rules.direct, TRANSPORT, {"between": YES}),
    "dfa by tensor hooks": (Net, rules.tensor_hooks(), GLOBAL, {"between": NO, "readout": NO, "later_states": NO}),
    "planted: tensor hook": (Net, rules.tensor_hooks(through=1), TRANSPORT, {"between": YES}),
    "planted: shared parameter": (shared_feedback, rules.backward, TRANSPORT, {"between": YES}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_update_is_labelled_by_what_it_depends_on(name: str) -> None:
    make, update, label, answers = CASES[name]
    found = certify(update, seeded(make), rules.batch(), LAYERS)
    assert found.label == label, str(found)
    assert {k: found.answers[k].answer for k in answers} == answers, str(found)
    assert found.conditions["dtype"] == "float64"


@pytest.mark.parametrize("name", STYLES)
def test_programs_in_other_styles(name: str) -> None:
    update, label, make, batch, options, answers = STYLES[name]
    found = certify(update, seeded(make), batch(), **{"blocks": "body.*", **options})
    assert found.label == label, str(found)
    assert {k: found.answers[k].answer for k in answers} == answers, str(found)


def rule_on(model: nn.Module, name: str, x: Tensor) -> CreditRule:
    rule = make_rule(name, {})
    rule.setup(InterfaceStream(model, x[:3]), CLASSES, torch.Generator().manual_seed(1))
    return rule


@pytest.mark.parametrize(
    ("name", "label", "readout", "teaching"),
    [
        ("bp", BACKPROPAGATION, YES, "the output error"),
        ("fa", GLOBAL, YES, "the output error"),  # a_L is exact, and comes through the head
        ("dfa", GLOBAL, NO, "the output error"),
        ("ep", TRANSPORT, YES, "the output error"),
        ("sb", GLOBAL, YES, "the output error"),  # its credit is taken through the readout
        ("cb", GLOBAL, YES, "the output error"),  # it learns from the exact gradient at h_L
    ],
)
def test_the_rules_of_the_library(name: str, label: str, readout: str, teaching: str) -> None:
    model = seeded(lambda: ResMLP(WIDTH, CLASSES, 32, DEPTH))
    x, y = rules.batch()
    rule = rule_on(model, name, x)
    if name == "cb":
        rule.begin_epoch(10, 10)  # behind its warm-up, in which its credit is that of DFA
    found = certify(rule, model, (x, y))
    told = {k: found.answers[k].answer for k in ("readout", "teaching", "inside", "head")}
    assert found.label == label, str(found)
    assert told == {"readout": readout, "teaching": teaching, "inside": YES, "head": YES}
    learns = name in ("sb", "cb")
    assert (found.answers["feedback"].answer == "learned") == learns


def test_the_numbers_are_those_of_a_computation_by_hand() -> None:
    """Backpropagation by matrices: what a change N of the last layer's weight does to the update of the layer in front."""
    model: Any = seeded(Net).double()
    x, y = (t.double() if t.is_floating_point() else t for t in rules.batch())
    found = certify(rules.backward, model, (x, y), LAYERS)
    with torch.no_grad():
        h = model.states(x)
        e = rules.error(model.head(h[-1]), y)
        w2 = model.layers[2].linear.weight
        upper = (e @ model.head.weight) * (1 - h[3] ** 2)

        def update(w: Tensor) -> Tensor:
            delta = (upper @ w) * (1 - h[2] ** 2)
            return torch.cat([(delta.t() @ h[1]).flatten(), delta.sum(0)])

        # a random change of the size of W2, with rows orthogonal to the eight states h_2, has 2/3 of its directions free
        q = torch.linalg.qr(h[2].t())[0]
        changes = []
        for seed in range(40):
            n = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            n = n - n @ q @ q.t()
            n = n * w2.norm() / n.norm()
            assert torch.allclose(h[2] @ (w2 + n).t(), h[2] @ w2.t(), atol=1e-12)
            changes.append(float((update(w2 + n) - update(w2)).norm() / update(w2).norm()))
    value = found.matrix[2][1]
    assert min(changes) * 0.8 < known(value) < max(changes) * 1.25
    first = found.matrix[0]
    assert first[0] is None
    assert first[1:] == pytest.approx((0, 0), abs=1e-12)


def test_a_feedback_that_is_a_view_of_the_weights_is_seen() -> None:
    """The tie is by memory, not by a parameter: a copy in float64 would lose it."""
    model: Any = seeded(lambda: Net(rules.of_kind("fa")))
    for layer in model.layers:
        layer.linear.weight_backward = nn.Parameter(layer.linear.weight.data, requires_grad=False)
    found = certify(rules.backward, model, rules.batch(), LAYERS)
    assert (found.label, found.conditions["dtype"]) == (BACKPROPAGATION, "float32")
    assert any("shares the memory" in note for note in found.notes)
    tied: list[Tensor] = []

    def reads(model: Any, batch: Any) -> None:
        rules.dfa()(model, batch)
        weight = model.layers[0].linear.weight
        weight.grad += tied[0].to(weight) * 1e-2

    model = seeded(Net)
    tied.append(model.layers[2].linear.weight.data)
    assert certify(reads, model, rules.batch(), LAYERS).label == TRANSPORT


def test_an_update_that_runs_in_float32_only_is_tested_in_float32() -> None:
    matrix = rules.drawn(CLASSES, WIDTH)  # no cast: float64 is refused by torch
    found = certify(rules.through(lambda: matrix), seeded(Net), rules.batch(), LAYERS)
    assert (found.label, found.conditions["dtype"]) == (GLOBAL, "float32")
    assert any(note.startswith("in float32: in float64 the update raised RuntimeError") for note in found.notes)


# ---- steps with an optimiser -------------------------------------------------------------------------------------


def step(update: Any, clip: float | None = None) -> Any:
    def run(model: nn.Module, batch: Any, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        update(model, batch)
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()

    return run


def test_a_global_clip_is_a_common_scale_and_no_transport() -> None:
    model = seeded(lambda: ResMLP(WIDTH, CLASSES, 32, DEPTH))
    x, y = rules.batch()
    rule = rule_on(model, "dfa", x)
    found = certify(rule, model, (x, y), objective={"grad_clip": 1e-3, "clip_over": "global"})
    # weights inside a block are transported by DFA: their gradients change, and with them the norm of all
    assert found.answers["inside"].answer == YES
    assert (found.label, found.answers["common_scale"].answer) == (GLOBAL, YES)
    assert "common_scale" not in certify(rule, model, (x, y)).answers


@pytest.mark.parametrize("given", ["instance", "factory"])
def test_a_step_gives_the_label_of_its_gradients(given: str) -> None:
    model = seeded(Net)
    make = lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.3)  # noqa: E731
    optimizer = make(model) if given == "instance" else make
    for update, label in ((rules.dfa(), GLOBAL), (rules.backward, BACKPROPAGATION), (rules.greedy(), LOCAL)):
        found = certify(step(update, clip=0.1), model, rules.batch(), LAYERS, optimizer=optimizer)
        assert found.label == label, str(found)
    if isinstance(optimizer, torch.optim.Optimizer):
        assert not optimizer.state
        assert optimizer.param_groups[0]["weight_decay"] == 0.3


def test_adam_turns_gradients_into_signs_and_keeps_the_dependence() -> None:
    model = seeded(Net)
    for update, label in ((rules.dfa(), GLOBAL), (rules.dfa(wrong=(0, 2)), TRANSPORT), (rules.greedy(), LOCAL)):
        found = certify(
            step(update), model, rules.batch(), LAYERS, optimizer=lambda m: torch.optim.Adam(m.parameters())
        )
        assert found.label == label, str(found)


# ---- samples, time, state ----------------------------------------------------------------------------------------


def test_batch_norm_and_batch_wise_credit_are_not_sample_local() -> None:
    class Normed(nn.Linear):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b)
            self.norm = nn.BatchNorm1d(b)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(super().forward(x))

    assert certify(rules.backward, seeded(lambda: Net(Normed)), rules.batch(), LAYERS).answers["samples"].answer == NO
    still = seeded(lambda: Net(Normed)).eval()
    assert certify(rules.backward, still, rules.batch(), LAYERS).answers["samples"].answer == YES

    def summed(model: Any, batch: Any) -> None:
        F.cross_entropy(model(batch[0]), batch[1], reduction="sum").backward()

    found = certify(summed, seeded(Net), rules.batch(), LAYERS)
    assert (found.label, found.answers["samples"].detail) == (BACKPROPAGATION, "a sum over samples")


def test_feedback_over_time() -> None:
    anew = rules.through(lambda: torch.randn(CLASSES, WIDTH).double())
    learned = [rules.drawn(CLASSES, WIDTH)]

    def learns(model: Any, batch: Any) -> None:
        rules.through(lambda: learned[0].to(batch[0]))(model, batch)
        learned[0] = learned[0].roll(1, 1)

    before = learned[0].clone()
    answers = [certify(u, seeded(Net), rules.batch(), LAYERS) for u in (anew, learns, rules.dfa())]
    assert [a.answers["feedback"].answer for a in answers] == ["drawn anew", "learned", "fixed"]
    assert {a.label for a in answers} == {GLOBAL}
    assert torch.equal(learned[0], before)


def test_a_feedback_that_follows_the_weights_by_one_call_is_learned() -> None:
    """Copied behind each update: the copy that it begins with is that of the present weights, and looks fixed."""
    model: Any = seeded(Net)
    copies = [layer.linear.weight.detach().double() for layer in model.layers]

    def follows(model: Any, batch: Any) -> None:
        with torch.no_grad():
            h = model.states(batch[0])
        e = rules.error(model.head(h[-1]), batch[1])
        credit = e @ rules.drawn(CLASSES, WIDTH).to(e)
        for k in reversed(range(DEPTH)):
            rules.add_grads(model.layers[k], h[k], credit)
            credit = (credit * (1 - h[k + 1] ** 2)) @ copies[k].to(e)
        copies[:] = [layer.linear.weight.detach().clone() for layer in model.layers]

    found = certify(follows, model, rules.batch(), LAYERS)
    assert (found.label, found.answers["feedback"].answer) == (GLOBAL, "learned")


class Slots:
    """A state without __dict__."""

    __slots__ = ("back",)

    def __init__(self) -> None:
        self.back: Any = [rules.drawn(CLASSES, WIDTH)]


@pytest.mark.parametrize("kind", ["slots", "deque"])
def test_a_state_in_slots_or_in_a_deque_is_restored(kind: str) -> None:
    """Each call leaves another matrix behind: every call after the first would differ."""
    held = Slots()
    held.back = deque(held.back) if kind == "deque" else held.back
    before = held.back[0]

    def learns(model: Any, batch: Any) -> None:
        rules.through(lambda: held.back[0].to(batch[0]))(model, batch)
        if kind == "deque":
            held.back.appendleft(held.back.pop().roll(1, 1))
        else:
            held.back = [held.back[0].roll(1, 1)]

    found = certify(learns, seeded(Net), rules.batch(), LAYERS)
    assert (found.label, found.answers["feedback"].answer) == (GLOBAL, "learned")
    assert held.back[0] is before


def test_the_readout_may_learn_at_states_of_its_own() -> None:
    """Forward-forward: two passes with a label written into the input, goodness per layer; the head learns behind one of them."""

    def goodness(model: Any, batch: Any) -> None:
        x, y = batch
        right, wrong = (torch.cat([F.one_hot(k, CLASSES).to(x), x[:, CLASSES:]], 1) for k in (y, (y + 1) % CLASSES))
        right, wrong = torch.tanh(model.stem(right)).detach(), torch.tanh(model.stem(wrong)).detach()
        for layer in model.layers:
            right, wrong = layer(F.normalize(right.detach())), layer(F.normalize(wrong.detach()))
            (F.softplus(1 - right.square().sum(1)) + F.softplus(wrong.square().sum(1) - 1)).mean().backward()
        F.cross_entropy(model.head(right.detach()), y).backward()

    found = certify(goodness, seeded(Net), rules.batch(), LAYERS)
    assert (found.label, found.answers["later_states"].answer) == (LOCAL, NO)


@pytest.mark.parametrize("fails", [False, True])
def test_what_an_update_closes_over_is_left_as_found_also_after_an_error(fails: bool) -> None:
    """The model itself, whenever the update raises: tests/trust/raised.py."""
    model: Any = seeded(lambda: ResMLP(WIDTH, CLASSES, 32, DEPTH))
    x, y = rules.batch()
    F.cross_entropy(model(x), y).backward()
    model.blocks[1].eval()
    aux, calls = nn.Linear(3, 3), [0]

    def update(model: Any, batch: Any) -> None:
        torch.rand(3)
        with torch.no_grad():
            aux.weight.add_(1)
            model.out_head.weight.add_(1)
            model.out_head.weight.sub_(1)
        calls[0] += 1
        if fails:
            raise KeyError("no more")
        rules.backward(model, batch)

    with left_as_found(model), left_as_found(aux):
        if fails:
            assert "the update raised KeyError: 'no more'" in refusal(lambda: certify(update, model, (x, y)))
        else:
            certify(update, model, (x, y))
    assert calls == [0]


# ---- architectures, refusals -------------------------------------------------------------------------------------


def image_batch(n: int, side: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(n, 3, side, side, generator=generator), torch.arange(n) % CLASSES


@pytest.mark.parametrize(("name", "label"), [("bp", BACKPROPAGATION), ("fa", GLOBAL), ("dfa", GLOBAL)])
def test_convolutions_and_attention(name: str, label: str) -> None:
    for make, data in (
        (lambda: SmallCNN(CLASSES, 16), image_batch(4, 32)),
        (lambda: ViTMini(CLASSES, 128, 2), image_batch(4, 32)),
    ):
        model = seeded(make)
        found = certify(rule_on(model, name, data[0]), model, data)
        assert found.label == label, str(found)


def test_a_batch_that_fills_the_space_is_cut_or_refused() -> None:
    found = certify(rules.backward, seeded(Net), rules.batch(4 * WIDTH), LAYERS)
    assert found.conditions["samples"] == int(0.75 * WIDTH)
    assert any(f"on the first {int(0.75 * WIDTH)} of {4 * WIDTH} samples" in note for note in found.notes)

    class Tokens(Net):
        """Every sample has more tokens than the width has dimensions: one sample fills the space."""

        def states(self, x: Tensor) -> list[Tensor]:
            return super().states(torch.stack([x.roll(k, 1) * (k % 7) for k in range(3 * WIDTH)], 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.states(x)[-1].mean(1))

    def other(model: Any, batch: Any) -> None:
        x, y = batch
        h = [t.detach() for t in model.states(x)]
        e = rules.error(model.head(h[-1].mean(1)), y)
        for k, layer in enumerate(model.layers):
            rules.add_grads(layer, h[k], (e @ rules.drawn(CLASSES, WIDTH).to(e)).unsqueeze(1).expand_as(h[k + 1]))

    found = certify(other, seeded(Tokens), rules.batch(2), LAYERS)
    assert found.label == UNDETERMINED
    assert found.reason.startswith("because no null space in layers.")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"update": 3}, "update is an int; give a CreditRule or a callable update"),
        ({"update": lambda model: None}, "does not take 2 arguments; give a callable update"),
        ({"update": lambda model, batch: None}, "the update left no gradient in any block"),
        ({"model": 3}, "model is an int; give a torch.nn.Module"),
        ({"batch": 3}, "batch is an int; certify takes one batch"),
        ({"batch": [(torch.zeros(2), torch.zeros(2))] * 3}, "batch is a list; certify takes one batch"),
        ({"blocks": "nothing.*"}, "no module is named 'nothing.*'"),
        (
            {"optimizer": lambda m: torch.optim.SGD(m.parameters(), lr=1)},
            "does not take 3 arguments; give a callable step",
        ),
        ({"objective": {"penalty": 1}}, "objective= belongs to a CreditRule"),
    ],
)
def test_wrong_use_is_one_line(given: dict[str, Any], words: str) -> None:
    right: dict[str, Any] = {"update": rules.backward, "model": Net(), "batch": rules.batch(), "blocks": LAYERS}
    assert words in refusal(lambda: certify(**{**right, **given}))


def test_a_certificate_is_plain_data_and_text(tmp_path: Path) -> None:
    found = certify(rules.dfa(), seeded(Net), rules.batch(), LAYERS)
    content = json.loads(json.dumps(found.to_dict()))
    assert content["label"] in LABELS
    assert len(content["matrix"]) == len(content["matrix"][0]) == DEPTH
    text = str(found)
    assert text.splitlines()[:2] == [f"LOCALITY: {GLOBAL}", f"  why: {found.reason}"]
    between, equal, head = (found.answers[name] for name in ("between", "backpropagation", "head"))
    assert between.floor is not None
    bound = max(30 * between.floor, 1e-5)  # a float64 test, beside feedback that is float32
    assert f"weight transport between blocks: no [change {between.change:.2g}, counts from {bound:.2g}]" in text
    assert f"equal to backpropagation: no [relative difference {equal.change:.2g}, equal up to 1e-08]" in text
    assert f"exact gradient: yes [1 - cosine {head.change:.2g}, equal up to 1e-08] (the largest over its para" in text
    stored = replace(found, answers={name: replace(answer, bound=None) for name, answer in found.answers.items()})
    assert f"blocks: no [{between.change:.2g}, floor {between.floor:.2g}]" in str(stored)  # of which 30 count
    wide = certify(rules.backward, seeded(Net), rules.batch(), LAYERS).answers["between"]
    assert wide.bound == pytest.approx(max(30 * known(wide.floor), 1e-9))
    assert found.conditions["samples"] == SAMPLES
    plain = make_report(make_facts())
    assert "certificate" not in plain.to_dict()
    held = plain.with_certificate(found)
    held.to_json(tmp_path / "report.json")
    again = DiagnosticReport.from_json(tmp_path / "report.json")
    assert again.certificate == found
    assert text.splitlines()[2] in again.to_text(long=True)
    matrix = certificate_matrix(found)
    assert [len(cells) for _, cells in matrix.rows] == [DEPTH] * DEPTH
    assert [cells[k].words for k, (_, cells) in enumerate(matrix.rows)] == ["not tested"] * DEPTH
    found.plot().savefig(tmp_path / "matrix.svg")
    assert (tmp_path / "matrix.svg").read_bytes().startswith(b"<?xml")
    assert f"LOCALITY: {GLOBAL}" in held.to_markdown()
    damaged = held.to_dict()
    damaged["certificate"]["matrix"] = [[0.0]]
    assert "the matrix is not 3 x 3" in refusal(lambda: DiagnosticReport.from_dict(damaged))


def test_a_head_without_bias_and_weights_of_other_forms() -> None:
    """x @ W, a weight shared by all layers, an attention whose output projection has no module call."""

    class Turned(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(rules.drawn(a, b))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight

    class Attention(nn.Module):
        def __init__(self, a: int, _: int) -> None:
            super().__init__()
            self.mix = nn.MultiheadAttention(a, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            h = x.unsqueeze(1)
            return x + self.mix(h, h, h, need_weights=False)[0].squeeze(1)

    def turned() -> nn.Module:
        model: Any = Net(Turned)
        model.head = Turned(WIDTH, CLASSES)
        return model

    for make in (turned, lambda: Net(Attention)):
        assert certify(rules.backward, seeded(make), rules.batch(), LAYERS).label == BACKPROPAGATION
        found = certify(rules.dfa(), seeded(make), rules.batch(), LAYERS)
        assert (found.label, found.answers["teaching"].answer) == (GLOBAL, "the output error"), str(found)
    attended = certify(rules.backward, seeded(lambda: Net(Attention)), rules.batch(), LAYERS)
    assert attended.answers["inside"].answer == YES

    def shared() -> nn.Module:
        model: Any = Net()
        for layer in model.layers:
            layer.linear = model.layers[0].linear
        return model

    found = certify(rules.backward, seeded(shared), rules.batch(2), LAYERS)
    assert (found.label, found.matrix[2][0]) == (BACKPROPAGATION, None)  # one parameter: nothing lies in front of it


def test_signs_kept_means_every_sign_and_every_activation() -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(12, 40, generator=generator, dtype=torch.float64)
    x = torch.randn(9, 40, generator=generator, dtype=torch.float64)
    x[:, 5] = 0  # a dead input
    space = null_space(w, Use([x]), 9, 1e-10)
    for keep_signs in (False, True):
        n = space.change(w, generator, keep_signs)
        assert n is not None
        assert float((x @ n.t()).abs().max()) < 1e-12 * float(n.norm())
        assert not n[:, 5].any()
        assert bool(((w + n).sign() == w.sign()).all()) == keep_signs
        assert float(n.norm() / w.norm()) > 0.02
    assert null_space(w, Use([torch.randn(39, 40, dtype=torch.float64)]), 39, 1e-10).refused
    assert null_space(w, Use([torch.randn(100, 40, dtype=torch.float64)]), 100, 1e-10).fitting == 30


class Words(torch.nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 16)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Linear(16, 16)) for _ in range(3)
        )
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        h = self.embed(x)
        for block in self.blocks:
            h = h + torch.tanh(block(h)).cumsum(1)
        return self.norm(h) @ self.embed.weight.T


def test_backpropagation_of_the_next_token_loss_is_backpropagation():
    torch.manual_seed(0)
    model, x = Words(), torch.randint(0, 11, (4, 5))

    def update(model, batch):
        logits = model(batch[0])
        F.cross_entropy(logits[:, :-1].flatten(0, 1), batch[1][:, 1:].flatten()).backward()

    found = certify(update, model, (x, x), blocks="blocks.*")
    assert found.answers["backpropagation"].answer == "yes, to round-off"
    assert found.answers["head"].answer == "yes"
    assert any("label t + 1" in note for note in found.notes)


def test_a_loss_that_was_not_named_is_not_held_against_the_update():
    torch.manual_seed(0)
    model = ResMLP(n_in=6, n_classes=4, width=16, depth=2)
    batch = (torch.randn(8, 6), torch.randint(0, 4, (8,)))

    def hinge(logits, y):
        return F.multi_margin_loss(logits, y, reduction="none")

    def update(model, batch):
        hinge(model(batch[0]), batch[1]).mean().backward()

    unnamed = certify(update, model, batch).answers
    assert unnamed["backpropagation"].answer == unnamed["head"].answer == "undetermined"
    assert "loss_fn=" in unnamed["backpropagation"].detail
    named = certify(update, model, batch, loss_fn=hinge).answers
    assert (named["backpropagation"].answer, named["head"].answer) == ("yes, to round-off", "yes")
