"""Checks for a credit rule of your own: `check_rule(MyRule)` in a test of yours tells in one line what does not hold.

It needs no data and takes about a second. All rules that are built in pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.credit.adamw import AdamW
from creditscope.credit.base import CreditBatch, CreditRule, credit_of
from creditscope.credit.registry import make_rule
from creditscope.credit.round_trip import check_round_trip, one_batch
from creditscope.errors import CreditscopeError
from creditscope.models import ResMLP
from creditscope.protocol.diagnosis import diagnose
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.untouched import untouched
from creditscope.training.objective import Objective, freeze_first

INPUTS, CLASSES, BATCH, STEPS = 12, 4, 16, 4
EXACT = 1e-4
"""Largest relative difference of a credit that is exact by construction."""


class Passed(tuple[str, ...]):
    """Names of the checks that a rule passed; shown as one line."""

    def __repr__(self) -> str:
        return f"{len(self)} checks passed: {', '.join(name.replace('_', ' ') for name in self)}"


def check_rule(
    rule: CreditRule | type[CreditRule] | str,
    model: nn.Module | None = None,
    batch: tuple[Tensor, Tensor] | None = None,
) -> Passed:
    """Refuse a rule that does not keep what creditscope relies on; the names of the checks that were made.

    rule: the class, an instance (its options are taken), or the name of a registered rule. model, batch: a network with embed,
    blocks and readout and (x, y) for it; a small residual MLP and noise by default. The model is not changed.
    """
    kit = _Kit(_maker(rule), model, batch)
    done = []
    for check in CHECKS:
        with _own_numbers(kit.name):
            check(kit)
        done.append(check.__name__.strip("_"))
    return Passed(done)


def _maker(rule: CreditRule | type[CreditRule] | str) -> Callable[[], CreditRule]:
    if isinstance(rule, str):
        return lambda: make_rule(rule)
    if isinstance(rule, CreditRule):
        return lambda: type(rule)(**rule.options.model_dump())
    return rule


@contextmanager
def _own_numbers(name: str) -> Iterator[None]:
    """The global generator is nobody's to draw from: a rule has the generator that `setup` is given."""
    before = torch.get_rng_state()
    yield
    if not torch.equal(before, torch.get_rng_state()):
        raise CreditscopeError(
            f"credit rule {name!r} draws from torch's global generator; use the one that setup() is given"
        )


class _Kit:
    """A network, a batch, and rules for them that are set up alike."""

    def __init__(
        self, make: Callable[[], CreditRule], model: nn.Module | None, batch: tuple[Tensor, Tensor] | None
    ) -> None:
        self.make = make
        self.name = make().name
        rng = torch.Generator().manual_seed(0)
        given = torch.randn(BATCH, INPUTS, generator=rng), torch.randint(0, CLASSES, (BATCH,), generator=rng)
        self.x, self.y = batch or given
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.model: Any = model or ResMLP(INPUTS, CLASSES, width=10, depth=3)
        self.start = {name: t.clone() for name, t in self.model.state_dict().items()}
        with untouched(self.model):
            self.stream = InterfaceStream(self.model, self.x[:3])
            self.classes = self.stream.readout(self._top()).shape[-1]

    def _top(self) -> Tensor:
        with torch.no_grad():
            h = self.stream.embed(self.x)
            for layer in range(self.stream.depth):
                h = self.stream.advance(layer, h)
        return h

    def restore(self) -> None:
        """The weights with which the model came."""
        with torch.no_grad():
            for name, t in self.model.state_dict().items():
                t.copy_(self.start[name])

    def rule(self, seed: int = 7) -> CreditRule:
        rule = self.make()
        rule.setup(self.stream, self.classes, torch.Generator().manual_seed(seed))
        rule.attach(self.stream)
        return rule

    def batch(self) -> CreditBatch:
        return one_batch(self.stream, self.x, self.y)

    def credit(self, rule: CreditRule) -> list[Tensor]:
        with untouched(self.model):
            return [self.stream.read_grad(a) for a in credit_of(rule, self.batch())]

    def fail(self, says: str) -> CreditscopeError:
        return CreditscopeError(f"credit rule {self.name!r} {says}")

    def trained(
        self, rule: CreditRule, steps: range, moments: dict[str, Tensor] | None = None, last: int | None = None
    ) -> Any:
        """(weights, state of the rule, state of the optimiser) after these steps from the weights that the model has."""
        first = freeze_first(self.stream, last)
        rule.credit_site, rule.first_trained = rule.site or ("input" if rule.uses_norm else None), first
        norm = "none" if rule.uses_norm else None
        objective = Objective(self.stream, rule, norm, rule.credit_site, 0.0, first)
        optimizer = AdamW({n: p for n, p in self.model.named_parameters() if p.requires_grad}, 1e-2, 0.01)
        optimizer.load(moments or {})
        self.model.train()
        for step in steps:
            if step == steps.start:
                rule.begin_epoch(1, 1)
            optimizer.zero_grad()
            order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(step))
            objective.backward(self.x[order], self.y[order])
            optimizer.step()
            rule.after_step(self.stream, optimizer)
        return (_copy(self.model.state_dict()), _copy(rule.state()), _copy(optimizer.state()))


def _equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def _copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in tensors.items()}


@contextmanager
def _restored(kit: _Kit) -> Iterator[None]:
    """The model as it was found, also its weights."""
    with untouched(kit.model):
        try:
            yield
        finally:
            kit.restore()


# ---- the checks ---------------------------------------------------------------------------------------------------


def _options(kit: _Kit) -> None:
    rule = kit.make()
    if not rule.name or not rule.summary:
        raise kit.fail("needs a name and a summary of one line")
    if type(rule)(**rule.options.model_dump()).options != rule.options:
        raise kit.fail("does not accept its own options")


def _setup(kit: _Kit) -> None:
    """Everything random comes from the generator."""
    if not _equal(kit.rule(1).state(), kit.rule(1).state()):
        raise kit.fail("is set up differently by the same generator; draw from the generator that setup() is given")


def _round_trip(kit: _Kit) -> None:
    """What is saved is enough, and can be saved."""
    check_round_trip(kit.rule(), kit.make(), kit.model, kit.stream, kit.x, kit.y)
    safetensors.torch.save({name: t.contiguous() for name, t in kit.rule().state().items()})


def _credit(kit: _Kit) -> None:
    """Shapes, finite, no graph (`credit_of`); the same twice; what it is given is left alone."""
    rule = kit.rule()
    with untouched(kit.model):
        batch = kit.batch()
        given = [*batch.hiddens, batch.logits, batch.y, kit.x]
        versions = [t._version for t in given]
        first, second = credit_of(rule, batch), credit_of(rule, batch)
        if [t._version for t in given] != versions:
            raise kit.fail("writes into the tensors that it is given; let it work on a copy (clone())")
    if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
        raise kit.fail(
            "gives different credit when asked again: a measurement would change training; draw in setup(), or let credit() "
            "seed a new torch.Generator from whole numbers that the rule keeps (numbers = ('seed', 'steps'))"
        )


def _exact(kit: _Kit) -> None:
    """Layers that are said to be exact are."""
    rule, depth = kit.rule(), kit.stream.depth
    exact = rule.exact_layers(depth)
    if any(not 0 <= layer <= depth for layer in exact):
        raise kit.fail(f"says that layers {exact} are exact; layers go from 0 to {depth}")
    with untouched(kit.model):
        reference = kit.credit(make_rule("bp"))
    for layer in exact:
        a, g = kit.credit(rule)[layer], reference[layer]
        if float((a - g).norm()) > EXACT * float(g.norm()):
            raise kit.fail(f"says that a_{layer} is the exact gradient, and it is not")


def _redraw(kit: _Kit) -> None:
    """Fresh feedback gives other credit and leaves the rule alone."""
    rule = kit.rule()
    before, state = kit.credit(rule), _copy(rule.state())
    fresh = rule.redraw(kit.stream, kit.classes, torch.Generator().manual_seed(99))
    if fresh is None:
        return
    if type(fresh) is not type(rule) or fresh.options != rule.options:
        raise kit.fail("is redrawn as another rule or with other options")
    fresh.attach(kit.stream)
    other = kit.credit(fresh)
    exact = rule.exact_layers(kit.stream.depth)
    if all(torch.equal(a, b) for k, (a, b) in enumerate(zip(before, other, strict=True)) if k not in exact):
        raise kit.fail("gives the same credit after redraw(); redraw everything or return None")
    if not _equal(rule.state(), state):
        raise kit.fail("is changed by its own redraw()")


def _step(kit: _Kit) -> None:
    """One step: finite gradients; terminal norm and head exact; with frozen blocks these stay as they are."""
    with _restored(kit):
        kit.model.train()
        kit.model.zero_grad()
        top = kit._top()
        F.cross_entropy(kit.stream.readout(top), kit.y).backward()
        readout = {n: p.grad.clone() for n, p in kit.model.named_parameters() if p.grad is not None}
        kit.trained(kit.rule(), range(1))
        for name, p in kit.model.named_parameters():
            if p.grad is not None and not bool(p.grad.isfinite().all()):
                raise kit.fail(f"leaves a gradient of {name} that is not finite")
            if name in readout and not torch.allclose(p.grad, readout[name], rtol=1e-3, atol=1e-6):
                raise kit.fail(f"gives {name} another gradient than that of the loss: terminal norm and head are exact")
    with _restored(kit):
        kit.trained(kit.rule(), range(2), last=0)
        for name, p in kit.stream.model.get_submodule("blocks").named_parameters(prefix="blocks"):
            if not torch.equal(p, kit.start[name]):
                raise kit.fail(f"moves {name} although the blocks are frozen")


def _counting(kit: _Kit) -> None:
    """A layer counts if its credit trains something: found by changing the credit of one layer at a time."""
    rule = kit.rule()
    if rule.objective != "local":
        return
    found = []
    with _restored(kit):
        fixed = kit.credit(rule)
        rule.learn = lambda batch: None  # type: ignore[method-assign]
        gradients = []
        for layer in [None, *range(kit.stream.depth + 1)]:
            moved = [a + 1 if k == layer else a for k, a in enumerate(fixed)]
            rule.credit = lambda batch, moved=moved: moved  # type: ignore[method-assign, misc]
            kit.trained(rule, range(1))
            gradients.append([None if p.grad is None else p.grad.clone() for p in kit.model.parameters()])
            kit.restore()
        for layer, other in enumerate(gradients[1:]):
            pairs = zip(gradients[0], other, strict=True)
            if not all(
                torch.equal(p, q) if isinstance(p, Tensor) and isinstance(q, Tensor) else p is q for p, q in pairs
            ):
                found.append(layer)
    if (stated := rule.trained_layers(kit.stream.depth, kit.stream.kind)) != tuple(found):
        raise kit.fail(f"says that the credit of layers {stated} trains something; that of {tuple(found)} does")


def _resume(kit: _Kit) -> None:
    """Stopped, saved and resumed, training gives the same bits."""
    with _restored(kit):
        whole = kit.trained(kit.rule(), range(STEPS))
    with _restored(kit):
        weights, state, moments = kit.trained(kit.rule(), range(STEPS // 2))
    with _restored(kit):
        kit.model.load_state_dict(weights)
        resumed = kit.make()
        resumed.load(state)
        resumed.attach(kit.stream)
        again = kit.trained(resumed, range(STEPS // 2, STEPS), moments)
    for what, one, two in zip(("weights", "state()", "optimiser"), whole, again, strict=True):
        for name in one:
            if not torch.equal(one[name], two[name]):
                raise kit.fail(f"does not resume to the same bits: {name} of its {what} differs after load(state())")


def _measurement(kit: _Kit) -> None:
    rule = kit.rule()
    state = _copy(rule.state())
    diagnose(kit.model, [(kit.x, kit.y)], credit=rule)
    if not _equal(rule.state(), state):
        raise kit.fail("is changed by a measurement")


CHECKS: Sequence[Callable[[_Kit], None]] = (
    _options,
    _setup,
    _round_trip,
    _credit,
    _exact,
    _redraw,
    _step,
    _counting,
    _resume,
    _measurement,
)
