"""Updates whose dependence is known by construction, written as other people write them. tanh layers: plain, one weight each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, CLASSES, SAMPLES, DEPTH = 24, 5, 8, 3
Update = Callable[[nn.Module, Any], Any]


class Layer(nn.Module):
    """h -> tanh(linear(h))"""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, h: Tensor) -> Tensor:
        return torch.tanh(self.linear(h))


class Net(nn.Module):
    """stem, `depth` layers, head; no interface: blocks are named by the caller."""

    def __init__(self, linear: Callable[[int, int], nn.Module] = nn.Linear, detached: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(Layer(linear(WIDTH, WIDTH)) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.detached = detached

    def states(self, x: Tensor) -> list[Tensor]:
        found = [torch.tanh(self.stem(x))]
        for layer in self.layers:
            found.append(layer(found[-1].detach() if self.detached else found[-1]))
        return found

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.states(x)[-1])


def batch(n: int = SAMPLES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(n, WIDTH, generator=generator), torch.randint(CLASSES, (n,), generator=generator)


def backward(model: nn.Module, batch: Any) -> None:
    """Whatever the layers' own backward pass is."""
    x, y = batch
    F.cross_entropy(model(x), y).backward()


def error(logits: Tensor, y: Tensor) -> Tensor:
    return (torch.softmax(logits, -1) - F.one_hot(y, CLASSES)).detach() / len(y)


def drawn(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * shape[-1] ** -0.5


def add_grads(layer: nn.Module, h: Tensor, credit: Tensor) -> None:
    """Gradients of <layer(h), credit> with h as it is."""
    torch.autograd.backward(layer(h.detach()), credit)


def through(matrix: Callable[[], Tensor]) -> Update:
    """Every layer gets the error through this matrix, as it is when it is asked for."""

    def update(model: Any, batch: Any) -> None:
        x, y = batch
        h = model.states(x)
        e = error(model.head(h[-1]), y)
        for k, layer in enumerate(model.layers):
            add_grads(layer, h[k], e @ matrix())

    return update


def dfa(wrong: tuple[int, int] | None = None) -> Update:
    """Direct feedback alignment by hand. wrong = (l, k): layer l takes B_k W_k in place of its own matrix (planted)."""
    feedback = [drawn(CLASSES, WIDTH, seed=k) for k in range(DEPTH + 1)]

    def update(model: Any, batch: Any) -> None:
        x, y = batch
        with torch.no_grad():
            states = model.states(x)
        logits = model.head(states[-1].detach())
        F.cross_entropy(logits, y).backward()
        e = error(logits, y)
        add_grads(model.stem, x, e @ feedback[DEPTH].to(e))
        for k, layer in enumerate(model.layers):
            credit = e @ feedback[k].to(e)
            if wrong is not None and k == wrong[0]:
                credit = credit @ model.layers[wrong[1]].linear.weight.detach()
            add_grads(layer, states[k], credit)

    return update


def greedy(peek: tuple[int, int] | None = None, detach: bool = True, logits: bool = False) -> Update:
    """Each layer has a fixed readout and a loss of its own. peek = (l, k): layer l's loss is weighted by the activity behind
    layer k (planted). detach=False: a loss reaches the layer in front as well."""
    readouts = [drawn(WIDTH, CLASSES, seed=20 + k) for k in range(DEPTH)]

    def update(model: Any, batch: Any) -> None:
        x, y = batch
        h = torch.tanh(model.stem(x)).detach()
        with torch.no_grad():
            later = model.states(x)
        for k, layer in enumerate(model.layers):
            h = layer(h.detach() if detach else h)
            losses = F.cross_entropy(h @ readouts[k].to(h), y, reduction="none")
            if peek is not None and k == peek[0]:
                losses = losses * later[peek[1] + 1].square().mean(1)
            losses.mean().backward(retain_graph=not detach)
        F.cross_entropy(model.head(h.detach()), y).backward()

    return update


def hebbian(model: Any, batch: Any) -> None:
    """Oja's rule: no teacher."""
    x, _ = batch
    with torch.no_grad():
        states = model.states(x)
    for k, layer in enumerate(model.layers):
        z, w = states[k + 1], layer.linear.weight
        w.grad = -(z.t() @ states[k] - (z.t() @ z) @ w.detach()) / len(x)


class Feedback(torch.autograd.Function):
    """A linear map whose backward pass uses another matrix (as in BioTorch)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, back: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, back)
        out = x.mm(weight.t())
        out += bias.unsqueeze(0).expand_as(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, back = ctx.saved_tensors
        return grad.mm(back), grad.t().mm(x), None, grad.sum(0)


class FeedbackLinear(nn.Linear):
    """fa: a fixed matrix; usf: the signs of the weights; frsf: these with fixed sizes; tied: the weights (planted)."""

    kind = "fa"

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.weight_backward = nn.Parameter(drawn(d_out, d_in, seed=d_in), requires_grad=False)

    def back(self) -> Tensor:
        if self.kind == "usf":  # a new parameter at every call, as in BioTorch
            self.weight_backward = nn.Parameter(0.2 * torch.sign(self.weight.detach()), requires_grad=False)
        if self.kind == "frsf":
            return self.weight_backward.abs() * torch.sign(self.weight.detach())
        return self.weight.detach() if self.kind == "tied" else self.weight_backward

    def forward(self, x: Tensor) -> Tensor:
        return Feedback.apply(x, self.weight, self.back(), self.bias)


def of_kind(kind: str) -> type[FeedbackLinear]:
    return type(f"{kind}Linear", (FeedbackLinear,), {"kind": kind})


class DirectLinear(nn.Linear):
    """The gradient that leaves towards the input is replaced by the global error through a fixed matrix, by a hook."""

    error: Tensor | None = None
    wrong: list[nn.Linear]
    """One layer whose weights are multiplied in (planted); a list, so that it is no submodule."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.register_buffer("fixed", drawn(CLASSES, d_in, seed=d_out))
        self.wrong = []
        self.register_full_backward_hook(DirectLinear.direct)

    @staticmethod
    def direct(module: Any, given: Any, _: Any) -> Any:
        if given[0] is None:
            return None
        credit = module.error @ module.fixed
        return (credit @ module.wrong[0].weight.detach() if module.wrong else credit,)


def direct(model: Any, batch: Any) -> None:
    """DFA by module hooks: the error is handed to the layers before the backward pass."""
    x, y = batch
    logits = model(x)
    for layer in model.layers:
        layer.linear.error = error(logits, y)
    model.head.error = error(logits, y)
    F.cross_entropy(logits, y).backward()


def direct_net(wrong: tuple[int, int] | None = None) -> nn.Module:
    model: Any = Net(DirectLinear)
    model.head = DirectLinear(WIDTH, CLASSES)
    if wrong is not None:
        model.layers[wrong[0]].linear.wrong.append(model.layers[wrong[1]].linear)
    return model


def tensor_hooks(through: int | None = None) -> Update:
    """FA by hooks on the states: the gradient is replaced; `through`: by one that still goes through that layer's weights."""
    feedback = [drawn(CLASSES, WIDTH, seed=40 + k) for k in range(DEPTH + 1)]

    def update(model: Any, batch: Any) -> None:
        x, y = batch
        states = model.states(x)
        logits = model.head(states[-1])
        e = error(logits, y)

        def replace(k: int) -> Callable[[Tensor], Tensor]:
            credit = e @ feedback[k].to(e)
            return lambda g: g if k == through else credit

        for k, h in enumerate(states):
            h.register_hook(replace(k))
        F.cross_entropy(logits, y).backward()

    return update
