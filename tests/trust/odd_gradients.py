"""Networks whose backward pass is no gradient, and methods that are such a pass (5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from tests.trust.odd_grammar import C, D
from tests.trust.odd_parts import LoudFunction, Plain, Residual, Zoo, plain_net, seeded, vectors
from tests.trust.oracle import (
    MEASURE,
    REFUSE,
    by_tape,
    expected,
    left_as_found,
    same,
)
from torch import Tensor, nn

from creditscope import credit_from_grads, diagnose

ZOO = Zoo()
add, run = ZOO.add, ZOO.run
NO_GRADIENT = r"gradient|backward|finite difference"
"""What the line says of a backward pass that is something else."""


class FeedbackFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
        ctx.save_for_backward(x, feedback)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, feedback = ctx.saved_tensors
        return grad @ feedback, grad.t() @ x, grad.sum(0), None


class FeedbackLinear(nn.Linear):
    """Feedback alignment: the backward pass uses a matrix of its own."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__(n, m)
        self.register_buffer("feedback", torch.randn(m, n))

    def forward(self, x: Tensor) -> Tensor:
        return FeedbackFunction.apply(x, self.weight, self.bias, self.feedback)


class OtherFeedbackLinear(FeedbackLinear):
    """A second class of such layers, easily forgotten."""


class Feedback(Residual):
    def __init__(self, kind: type[nn.Linear] = FeedbackLinear) -> None:
        super().__init__()
        self.linear = kind(D, D)


class Hooked(Residual):
    """A hook on a tensor turns the gradient around."""

    def forward(self, h: Tensor) -> Tensor:
        f = self.branch(h)
        if f.requires_grad:
            f.register_hook(lambda g: -2.0 * g.flip(-1))
        return h + f


class HookedStates(Plain):
    """Hooks on the states themselves, as direct feedback is often written."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h))
            if h.requires_grad:
                h.register_hook(lambda g: g.flip(-1) - 0.5 * g)
        return self.head(self.norm(h))


class Logging(Residual):
    """A hook that only looks."""

    def forward(self, h: Tensor) -> Tensor:
        f = self.branch(h)
        if f.requires_grad:
            f.register_hook(lambda g: None)
        return h + f


class Rounded(Residual):
    """A straight-through estimator: rounded forward, identity backward."""

    def forward(self, h: Tensor) -> Tensor:
        f = self.branch(h)
        return h + f + ((f * 4).round() / 4 - f).detach()


class RoundedInSingle(Residual):
    """The same in steps of `step`, by an operation that exists in float32 only: the gradient is held against finite differences
    of float32, of which long ones pass over many stairs."""

    def __init__(self, step: float, straight: bool = True) -> None:
        super().__init__()
        self.width, self.straight = step, straight

    def forward(self, h: Tensor) -> Tensor:
        f = self.branch(h).float()
        if self.straight:
            f = f + ((f / self.width).round() * self.width - f).detach()
        return h + f.to(h)


class InHalf(Residual):
    """Computes in bfloat16 whatever its dtype: rounded, and yet an ordinary network."""

    def branch(self, h: Tensor) -> Tensor:
        return super().branch(h).to(torch.bfloat16).to(h)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return -grad


class Reversal(Residual):
    def forward(self, h: Tensor) -> Tensor:
        return h + Reversed.apply(self.branch(h))


def head_with_feedback() -> nn.Module:
    model = Plain()
    model.head = FeedbackLinear(D, C)
    return model


def backward_hooked() -> nn.Module:
    def halved(_: Any, entering: Any, leaving: Any) -> Any:
        return (entering[0] * 0.5,)

    model: Any = Plain()
    for layer in model.layers:
        layer.linear.register_full_backward_hook(halved)
    return model


class Rectified(nn.Module):
    """relu(h + f(h)), f zero at the start (`zero_init_residual`, Fixup): h >= 0 comes back, its zeros at the bend."""

    def __init__(self, kind: type[nn.Linear] = nn.Linear) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(D, D), kind(D, D)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, h: Tensor) -> Tensor:
        return torch.relu(h + self.last(torch.relu(self.first(h))))


class NoneAtZero(Residual):
    """Smooth, and the branch has no gradient in features that are exactly zero."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(torch.where(h == 0, h.detach(), h))


class LoudAtZero(Rectified):
    """At the bend, and a backward pass of its own puts a value there."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(LoudFunction.apply(h, self.value))


class Clamped(Rectified):
    """torch takes the slope ahead of the bend of a clamp (that of a ReLU: the one behind it)."""

    def forward(self, h: Tensor) -> Tensor:
        return (h + self.last(torch.relu(self.first(h)))).clamp(min=0)


class Maximum(Rectified):
    """torch takes the mean of both slopes."""

    def forward(self, h: Tensor) -> Tensor:
        f = h + self.last(torch.relu(self.first(h)))
        return torch.maximum(f, torch.zeros_like(f))


class Energy(Residual):
    """Goes down an energy, by a gradient of its own in the forward pass."""

    def forward(self, h: Tensor) -> Tensor:
        with torch.enable_grad():
            at = h if h.requires_grad else h.detach().requires_grad_()
            (down,) = torch.autograd.grad(torch.tanh(self.linear(at)).square().sum(), at, create_graph=True)
        return h - 0.1 * down


def rectified(layers: list[nn.Module]) -> nn.Module:
    """h_0 >= 0, with zeros."""
    model = Plain(layers)
    model.stem = nn.Sequential(model.stem, nn.ReLU())
    return model


def at_bend(make: Callable[[], nn.Module]) -> Callable[[], Any]:
    return lambda: plain_net(lambda: rectified([make() for _ in range(3)]))


add("feedback layers diagnosed directly", lambda: plain_net(lambda: Plain([Feedback() for _ in range(3)])), REFUSE, 5,
    says=NO_GRADIENT)  # fmt: skip
add("one feedback layer among ordinary ones", lambda: plain_net(lambda: Plain([Residual(), Feedback(), Residual()])),
    REFUSE, 5, says=NO_GRADIENT)  # fmt: skip
add("feedback in the head", lambda: plain_net(head_with_feedback), REFUSE, 5, says=NO_GRADIENT)
add("hooks on tensors", lambda: plain_net(lambda: Plain([Hooked() for _ in range(3)])), REFUSE, 5, says=NO_GRADIENT)
add("hooks on the states", lambda: plain_net(HookedStates), REFUSE, 5, says=NO_GRADIENT)
add("hooks that only look", lambda: plain_net(lambda: Plain([Logging() for _ in range(3)])), MEASURE, 5)
add("backward hooks on modules", lambda: plain_net(backward_hooked), REFUSE, 5, says=NO_GRADIENT)
add("straight-through rounding", lambda: plain_net(lambda: Plain([Rounded() for _ in range(3)])), REFUSE, 5,
    says=NO_GRADIENT)  # fmt: skip
for _width in (2.0**-4, 2.0**-6, 2.0**-8):
    add(f"straight-through rounding in steps of 1/{1 / _width:g}, float32 only",
        lambda width=_width: plain_net(lambda: Plain([RoundedInSingle(width) for _ in range(3)]), batches=vectors((16, 16))),  # type: ignore[misc]
        REFUSE, 5, says="straight-through" if _width < 0.05 else NO_GRADIENT)  # fmt: skip
add("float32 inside, not rounded", lambda: plain_net(lambda: Plain([RoundedInSingle(1.0, False) for _ in range(3)])),
    MEASURE, 5)  # fmt: skip
add("bfloat16 inside",
    lambda: plain_net(lambda: Plain([InHalf() for _ in range(3)]), dtype=torch.bfloat16), MEASURE, 5)  # fmt: skip
add("gradient reversal", lambda: plain_net(lambda: Plain([Reversal() for _ in range(3)])), REFUSE, 5, says=NO_GRADIENT)
add("states at the bend of a ReLU", lambda: plain_net(lambda: rectified([Rectified() for _ in range(3)])), MEASURE, 5)
add(
    "feedback layers, states at the bend of a ReLU",
    lambda: plain_net(lambda: rectified([Rectified(FeedbackLinear) for _ in range(3)])),
    REFUSE,
    5,
    says=NO_GRADIENT,
)
for name, kind in (("clamp", Clamped), ("maximum", Maximum)):
    add(f"states at the bend of a {name}", at_bend(kind), MEASURE, 5)
for value in (1000.0, 10.0, -0.1):
    add(f"a gradient of {value:g} where a state is zero and at the bend of a ReLU", at_bend(partial(LoudAtZero, value)),
        REFUSE, 5, says=NO_GRADIENT)  # fmt: skip
add(
    "no gradient where a state is zero",
    lambda: plain_net(lambda: rectified([NoneAtZero() for _ in range(3)])),
    REFUSE,
    5,
    says=NO_GRADIENT,
)
add("a gradient taken in the forward pass", lambda: plain_net(lambda: Plain([Energy() for _ in range(3)])), MEASURE, 5)


def foreign(method: nn.Module, twin: nn.Module | None, to_exact: Any, blocks: str = "layers.*") -> None:
    """credit_from_grads: a_l is what the method's backward pass brings, g_l the gradient of the ordinary network."""
    batches = vectors()
    ordinary = seeded(lambda: Plain(depth=len(method.layers)))  # type: ignore[arg-type]
    ordinary.load_state_dict({k: v for k, v in method.state_dict().items() if k in ordinary.state_dict()})
    brought, exact = by_tape(method, batches), by_tape(ordinary, batches)

    def credit(states: Sequence[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        at = next(k for k, one in enumerate(exact) if one.logits is logits)
        return brought[at].grads

    wanted = expected(exact, "vector", 0, credit)
    rule = credit_from_grads(method, twin, to_exact=to_exact, blocks=blocks)
    with left_as_found(method, batches):
        report = diagnose(rule.twin, batches, credit=rule, blocks=blocks)
    same("h", report.facts.scale.mean, wanted["h"], 1e-4)
    same("g", report.facts.reference.per_sample, wanted["g"], 1e-4)
    assert report.facts.alignment is not None
    same("cosine", report.facts.alignment.mean, wanted["cosine"], 1e-4, absolute=1e-4)


TO_EXACT: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    FeedbackLinear: lambda m: nn.Linear(m.in_features, m.out_features)
}


@run("twin: every feedback layer replaced", MEASURE, 5)
def _() -> None:
    foreign(seeded(lambda: Plain([Feedback() for _ in range(3)])), None, TO_EXACT)


@run("twin: one feedback layer forgotten", REFUSE, 5, says=NO_GRADIENT)
def _() -> None:
    method = seeded(lambda: Plain([Feedback(), Feedback(OtherFeedbackLinear), Feedback()]))
    rule = credit_from_grads(method, to_exact=TO_EXACT, blocks="layers.*")
    if any(isinstance(m, OtherFeedbackLinear) for m in rule.twin.modules()):
        diagnose(rule.twin, vectors(), credit=rule, blocks="layers.*")
    else:
        foreign(method, None, TO_EXACT)


@run("twin: made without drawing from the global generator", MEASURE, 6)
def _() -> None:
    method = seeded(lambda: Plain([Feedback() for _ in range(3)]))
    with left_as_found(method):
        credit_from_grads(method, to_exact=TO_EXACT, blocks="layers.*")


@run("twin given, with a feedback layer forgotten", REFUSE, 5, says=NO_GRADIENT)
def _() -> None:
    method = seeded(lambda: Plain([Feedback() for _ in range(3)]))
    twin = seeded(lambda: Plain([Residual(), Residual(), Feedback()]))
    rule = credit_from_grads(method, twin, blocks="layers.*")
    diagnose(rule.twin, vectors(), credit=rule, blocks="layers.*")


@run("twin: the method is a hook on a tensor", MEASURE, 5)
def _() -> None:
    foreign(seeded(lambda: Plain([Hooked() for _ in range(3)])), seeded(lambda: Plain(depth=3)), None)


@run("twin: the method is a hook on the states", MEASURE, 5)
def _() -> None:
    foreign(seeded(HookedStates), seeded(Plain), None)


@run("twin: the method is a backward hook on a module", MEASURE, 5)
def _() -> None:
    foreign(seeded(backward_hooked), seeded(Plain), None)


@run("twin: the method is gradient reversal in the model, after the blocks", MEASURE, 5)
def _() -> None:
    class Turned(Plain):
        def read(self, h: Tensor) -> Tensor:
            return Reversed.apply(h)

    foreign(seeded(Turned), seeded(Plain), None)
