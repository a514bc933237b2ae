"""Odd networks written by hand, at least one for each kind of defect."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from tests.trust.odd_grammar import IN, C, D, Spec, T, build
from tests.trust.odd_parts import Branch, Plain, Residual, Tokens, plain_net, seeded, token_net, tokens, vectors
from tests.trust.oracle import (
    EITHER,
    MARK,
    MEASURE,
    REFUSE,
    Batch,
    Case,
    Network,
    Pass,
    Tape,
    WrongError,
    by_hooks,
    by_tape,
    check,
    compare,
    credit_by_class,
    expected,
    left_as_found,
    network,
    same,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from creditscope import Monitor, credit_from_grads, diagnose, find_blocks, frozen_blocks

CASES: list[Case] = []


def add(name: str, build: Callable[[], Network], expect: str = MEASURE, *classes: int) -> None:
    CASES.append(network(name, build, expect, classes))


def run(name: str, expect: str, *classes: int) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The function is the case."""

    def put(fn: Callable[[], Any]) -> Callable[[], Any]:
        CASES.append(Case(name, fn, expect, classes))
        return fn

    return put


# ---- 1: recognised from one look ----------------------------------------------------------------------------------


class Interface(nn.Module):
    """The names of the papers' interface: embed, blocks, norm, head; the forward pass may do otherwise."""

    def __init__(self, inside: bool, size: float, depth: int = 6, scale: float = 1.0, terminal: bool = True) -> None:
        super().__init__()
        self.tape, self.inside, self.scale = Tape(), inside, scale
        self.embed = nn.Linear(IN, D)
        self.blocks = nn.ModuleList([Residual() if inside else Branch() for _ in range(depth)])
        self.norm: nn.Module = nn.LayerNorm(D) if terminal else nn.Identity()
        self.head = nn.Linear(D, C)
        with torch.no_grad():
            for block in self.blocks:
                for p in block.linear.parameters():  # type: ignore[union-attr]
                    p.mul_(size)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.embed(x))
        for block in self.blocks:
            h = self.tape(block(h) if self.inside else h + self.scale * block(h))
        return self.head(self.norm(h))


for _inside in (True, False):
    for _size in (0.0, 1e-7, 1.0):
        for _named in (True, False):
            add(
                f"interface: inside={_inside} size={_size:g} named={_named}",
                lambda inside=_inside, size=_size, named=_named: plain_net(  # type: ignore[misc]
                    lambda: Interface(inside, size), blocks="blocks.*" if named else None
                ),
                MEASURE,
                1,
            )
add(
    "interface: forward scales the branch",
    lambda: plain_net(lambda: Interface(False, 1.0, scale=0.5), blocks=None),
    MEASURE,
    4,
)
add(
    "interface: forward scales the branch, starts at zero",
    lambda: plain_net(lambda: Interface(False, 0.0, scale=0.5), blocks=None),
    MEASURE,
    1,
    4,
)
add(
    "interface: no terminal norm",
    lambda: plain_net(lambda: Interface(True, 0.0, terminal=False), blocks=None),
    MEASURE,
    1,
)


def watch(net: Network, steps: int = 4, rate: float = 0.3) -> None:
    """A Monitor made before training, compared with the oracle after every step of SGD."""
    credit = credit_by_class(net.batch_dim)
    with left_as_found(net.model, net.batches):
        monitor = Monitor(net.model, net.batches, credit=credit, blocks=net.blocks)
    optimizer = torch.optim.SGD(net.model.parameters(), lr=rate)
    for step in range(steps + 1):
        if step:
            x, y = net.batches[0]
            net.model.train()
            optimizer.zero_grad()
            out = net.model(*x) if isinstance(x, tuple) else net.model(x)
            nn.functional.cross_entropy(out, y).backward()
            optimizer.step()
        truth = net.passes(net.model, net.batches)
        with left_as_found(net.model, net.batches):
            monitor.step(step)
        line, complaints = monitor.history[-1], []
        for read in dict.fromkeys((net.read, "flatten")):
            try:
                hold(line, expected(truth, read, net.batch_dim, credit), step)
                break
            except WrongError as error:
                complaints.append(str(error))
        else:
            raise WrongError(complaints[0])


def hold(line: dict[str, Any], wanted: dict[str, Any], step: int) -> None:
    for ours, theirs in (("h", "h"), ("g_per_sample", "g"), ("cosine", "cosine")):
        same(f"step {step}: {theirs}", line[ours], wanted[theirs], 1e-4, absolute=1e-4 if ours == "cosine" else 0)
    same(f"step {step}: growth", [line["growth"]], [wanted["growth"]], 1e-4)
    same(f"step {step}: loss", [line["eval_loss"]], [wanted["loss"]], 1e-4)
    same(f"step {step}: accuracy", [line["eval_accuracy"]], [wanted["accuracy"]], 1e-9)


def zero_start(make: Callable[[], nn.Module], *names: str) -> nn.Module:
    """The named parameters start at zero."""
    model = make()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if any(part in name for part in names):
                p.zero_()
    return model


WATCHED: dict[str, Callable[[], Network]] = {
    "branches at zero": lambda: build(Spec(branch="zero")),
    "branches at zero, skip in the model": lambda: build(Spec(branch="zero", residual="model", depth=6)),
    "branches at zero, blocks not named": lambda: build(Spec(branch="zero", named=False)),
    "ReZero": lambda: build(Spec(residual="inside_rezero")),
    "ReZero in the model": lambda: build(Spec(residual="model_rezero_0")),
    "learned linear skip": lambda: build(Spec(residual="inside_linear_skip", branch="zero", depth=6)),
    "interface, blocks add their input": lambda: plain_net(lambda: Interface(True, 0.0), blocks=None),
    "interface, blocks are branches": lambda: plain_net(lambda: Interface(False, 0.0), blocks=None),
    "head at zero": lambda: token_net(lambda: zero_start(lambda: Tokens(lambda h: h[:, -1]), "head"), "last"),
    "head at zero, mean": lambda: token_net(lambda: zero_start(lambda: Tokens(lambda h: h.mean(1)), "head"), "mean"),
    "head at zero, cls": lambda: token_net(lambda: zero_start(Tokens, "head")),
    "mixing at zero": lambda: token_net(lambda: zero_start(Tokens, "linear")),
    "everything at zero but the embedding": lambda: token_net(lambda: zero_start(Tokens, "linear", "head")),
}
for _name, _make in WATCHED.items():
    CASES.append(Case(f"Monitor: {_name}", lambda make=_make: watch(make()), MEASURE, (1,)))  # type: ignore[misc]


# ---- 2: two states that are one tensor ----------------------------------------------------------------------------


class View(Residual):
    def forward(self, h: Tensor) -> Tensor:
        return h.view_as(h)


class Passing(Residual):
    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h) if self.training else h


add(
    "layer drop in eval mode",
    lambda: plain_net(lambda: Plain([Residual(), Passing(), Passing(), Residual()])),
    MEASURE,
    2,
)
add(
    "pruned blocks are nn.Identity",
    lambda: plain_net(lambda: Plain([Residual(), nn.Identity(), nn.Identity(), Residual()])),
    MEASURE,
    2,
)
add(
    "the last two blocks are nn.Identity",
    lambda: plain_net(lambda: Plain([Residual(), Residual(), nn.Identity(), nn.Identity()])),
    MEASURE,
    2,
)
add("a view of the input", lambda: plain_net(lambda: Plain([Residual(), View(), Residual()])), MEASURE, 2)


# ---- 3: paths around ----------------------------------------------------------------------------------------------


class Injected(Plain):
    """Every block is given h_0 again."""

    class Block(Residual):
        def forward(self, h: Tensor, first: Tensor) -> Tensor:  # type: ignore[override]
            return h + self.branch(h + 0.5 * first)

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        first = h = self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h, first))
        return self.head(self.norm(h))


class InputAgain(Injected):
    """Every block is given the input again."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h, torch.cat([x, x[:, : D - IN]], 1)))
        return self.head(self.norm(h))


class UShaped(Plain):
    """The first half hands its states to the second half."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        kept = []
        for k, layer in enumerate(self.layers):
            h = layer(h)
            if k < len(self.layers) // 2:
                kept.append(h)
            else:
                h = h + 0.5 * kept.pop()
            h = self.tape(h)
        return self.head(self.norm(h))


class Gain(Plain):
    """The length of h_0 scales the logits, and h_0 is normalised before the first block."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        size = h.norm(dim=1, keepdim=True)
        for k in range(len(self.layers)):
            h = self.tape(self.step(k, h))
        return self.head(self.norm(h)) * size


add("h_0 goes into every block", lambda: plain_net(Injected, marks=("beside",)), MARK, 3, 7)
add("the input goes into every block", lambda: plain_net(InputAgain, marks=("beside",)), MARK, 3)
add("U-shaped skips", lambda: plain_net(UShaped, marks=("beside",)), MARK, 3)
add("the length of h_0 scales the logits", lambda: plain_net(Gain, marks=("beside",)), MARK, 3)


# ---- 4: the step in the model -------------------------------------------------------------------------------------


class Formula(Plain):
    """h_{l+1} = rule(h_l, block(h_l))."""

    def __init__(self, rule: Callable[[Tensor, Tensor], Tensor], depth: int = 4, terminal: bool = True) -> None:
        super().__init__([Branch() for _ in range(depth)])
        self.rule = rule
        if not terminal:
            self.norm = nn.Identity()

    def step(self, k: int, h: Tensor) -> Tensor:
        return self.rule(h, self.layers[k](h))


FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "average of both": lambda h, f: (h + f) / 2,
    "divided by root 2": lambda h, f: (h + f) / math.sqrt(2),
    "normalised by length": lambda h, f: (h + f) / (h + f).norm(dim=-1, keepdim=True),
    "product": lambda h, f: h * (1 + f),
    "clamped": lambda h, f: (h + f).clamp(-1, 1),
    "ReLU after the sum": lambda h, f: torch.relu(h + f),
    "lerp": lambda h, f: torch.lerp(h, f, 0.25),
    "addcmul": lambda h, f: torch.addcmul(h, h, f),
    "add with alpha": lambda h, f: torch.add(h, f, alpha=0.5),
    "f + h": lambda h, f: f + h,
}
for _name, _rule in FORMULAS.items():
    for _terminal in (True, False):
        add(
            f"step in the model: {_name}{'' if _terminal else ', no terminal norm'}",
            lambda rule=_rule, terminal=_terminal: plain_net(lambda: Formula(rule, terminal=terminal)),  # type: ignore[misc]
            MEASURE,
            4,
        )


class FirstIsAnother(Plain):
    """A block whose first argument is a table of the same shape as the stream."""

    class Block(Residual):
        def forward(self, memory: Tensor, h: Tensor) -> Tensor:  # type: ignore[override]
            return h + self.branch(h) + 0.1 * memory.tanh()

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(3)])
        self.memory = nn.Parameter(torch.randn(D))

    def step(self, k: int, h: Tensor) -> Tensor:
        return self.layers[k](self.memory.expand(len(h), D), h)


class FirstIsData(FirstIsAnother):
    """The first argument comes from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.context = nn.Linear(IN, D)

    def forward(self, x: Tensor) -> Tensor:
        memory, h = self.context(x), self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(memory, h))
        return self.head(self.norm(h))


add("the stream is the second argument", lambda: plain_net(FirstIsAnother), MEASURE, 4)
add("the first argument comes from the input", lambda: plain_net(FirstIsData, marks=("beside",)), MARK, 4, 3)


# ---- 5: the reference is no gradient ------------------------------------------------------------------------------


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


add("feedback layers diagnosed directly", lambda: plain_net(lambda: Plain([Feedback() for _ in range(3)])), REFUSE, 5)
add(
    "one feedback layer among ordinary ones",
    lambda: plain_net(lambda: Plain([Residual(), Feedback(), Residual()])),
    REFUSE,
    5,
)
add("feedback in the head", lambda: plain_net(head_with_feedback), REFUSE, 5)
add("hooks on tensors", lambda: plain_net(lambda: Plain([Hooked() for _ in range(3)])), REFUSE, 5)
add("hooks on the states", lambda: plain_net(HookedStates), REFUSE, 5)
add("hooks that only look", lambda: plain_net(lambda: Plain([Logging() for _ in range(3)])), MEASURE, 5)
add("backward hooks on modules", lambda: plain_net(backward_hooked), REFUSE, 5)
add("straight-through rounding", lambda: plain_net(lambda: Plain([Rounded() for _ in range(3)])), REFUSE, 5)
add("gradient reversal", lambda: plain_net(lambda: Plain([Reversal() for _ in range(3)])), REFUSE, 5)


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


@run("twin: one feedback layer forgotten", REFUSE, 5)
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


@run("twin given, with a feedback layer forgotten", REFUSE, 5)
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


# ---- 6: left as found ---------------------------------------------------------------------------------------------


class LoRA(nn.Linear):
    """Merges its low-rank part into the weight in eval(), and takes it out again in train()."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__(n, m)
        self.down, self.up = nn.Parameter(torch.randn(2, n) * 0.3), nn.Parameter(torch.randn(m, 2) * 0.3)
        self.merged = False

    def train(self, mode: bool = True) -> LoRA:
        if mode == self.merged:
            with torch.no_grad():
                self.weight += (-1.0 if mode else 1.0) * (self.up @ self.down)
            self.merged = not mode
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out if self.merged else out + x @ self.down.t() @ self.up.t()


def lora() -> nn.Module:
    model = Plain(depth=3)
    for layer in model.layers:
        layer.linear = LoRA(D, D)
    return model


class Counting(Residual):
    """Writes buffers in every forward pass, eval mode or not."""

    calls: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(D))

    def forward(self, h: Tensor) -> Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0).to(self.mean)
        return super().forward(h)


add("LoRA that merges in eval()", lambda: plain_net(lora), MEASURE, 6)
add("LoRA, merged already", lambda: plain_net(lambda: lora().eval()), MEASURE, 6)
add("buffers written in eval mode", lambda: plain_net(lambda: Plain([Counting() for _ in range(3)])), MEASURE, 6)


@run("Monitor: LoRA goes on learning", MEASURE, 6)
def _() -> None:
    def learnt(watched: bool) -> nn.Module:
        model, batches = seeded(lora), vectors()
        monitor = Monitor(model, batches, blocks="layers.*") if watched else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.train()
        for step in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
            optimizer.step()
            if monitor is not None:
                monitor.step(step)
        return model

    alone, beside = learnt(False), learnt(True)
    for (name, p), q in zip(alone.named_parameters(), beside.parameters(), strict=True):
        if not torch.equal(p, q):
            raise WrongError(f"the Monitor changes the training: {name}")


def loader(shuffle: bool) -> tuple[DataLoader[Any], torch.Generator, list[Batch]]:
    (x, y), *_ = vectors((23,))
    own = torch.Generator().manual_seed(5)
    made: DataLoader[Any] = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=shuffle, generator=own)
    return made, own, [(x, y)]


for _shuffle in (True, False):

    def _with_loader(shuffle: bool = _shuffle) -> Network:
        made, own, batches = loader(shuffle)
        return plain_net(batches=batches, given=made, watched=(own,))

    add(f"DataLoader with its own generator, shuffle={_shuffle}", _with_loader, MEASURE, 6)


@run("Monitor: DataLoader with its own generator", MEASURE, 6)
def _() -> None:
    made, own, batches = loader(True)
    net = plain_net(batches=batches)
    with left_as_found(net.model, own):
        monitor = Monitor(net.model, made, blocks="layers.*")
        monitor.step(0)
    hold_free = expected(by_tape(net.model, batches), "vector", 0, None)
    same("h", monitor.history[-1]["h"], hold_free["h"], 1e-4)


def spoiling(hiddens: Sequence[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
    """Computes a fixed credit, and writes into all that it was given."""
    found = credit_by_class()(hiddens, logits, y)
    for t in (*hiddens, logits):
        t.mul_(0).add_(1)
    y.fill_(0)
    return found


@run("a credit function that writes into its tensors", MEASURE, 6)
def _() -> None:
    net = plain_net()
    truth = by_tape(net.model, net.batches)
    with left_as_found(net.model, net.batches):
        report = diagnose(net.model, net.batches, blocks=net.blocks, credit=spoiling)
    compare(report, net, truth, credit_by_class())


@run("a credit function that writes into the weights", REFUSE, 6)
def _() -> None:
    net = plain_net()

    def credit(hiddens: Sequence[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        with torch.no_grad():
            next(net.model.parameters()).add_(1.0)
        return credit_by_class()(hiddens, logits, y)

    diagnose(net.model, net.batches, blocks=net.blocks, credit=credit)


def half_frozen() -> nn.Module:
    model = Plain()
    for k, p in enumerate(model.parameters()):
        p.requires_grad_(k % 2 == 0)
        p.grad = torch.ones_like(p) if k % 3 == 0 and p.requires_grad else None
    model.layers[1].eval()
    return model


add("half of it frozen, modes mixed, gradients present", lambda: plain_net(half_frozen), MEASURE, 6)
add("everything frozen", lambda: plain_net(lambda: Plain().requires_grad_(False)), MEASURE, 6)
add(
    "dropout in train mode",
    lambda: plain_net(lambda: Plain([nn.Sequential(Residual(), nn.Dropout(0.5)) for _ in range(3)])),
    MEASURE,
    6,
)


@run("called under no_grad", MEASURE, 6, 10)
def _() -> str:
    with torch.no_grad():
        return _under(plain_net())


def _under(net: Network) -> str:
    with torch.enable_grad():
        truth = by_tape(net.model, net.batches)
    return check(Network(net.model, net.batches, net.blocks, passes=lambda *_: truth))


class Noisy(Residual):
    """Draws in eval mode too."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h) + 0.3 * torch.randn_like(h)


add("noise in eval mode", lambda: plain_net(lambda: Plain([Noisy() for _ in range(3)])), REFUSE, 6)


# ---- 7: what is read ----------------------------------------------------------------------------------------------

POOLS: dict[str, tuple[Callable[[Tensor], Tensor], str, int]] = {
    "the third token": (lambda h: h[:, 2], "flatten", D),
    "first and last token": (lambda h: torch.cat([h[:, 0], h[:, -1]], 1), "flatten", 2 * D),
    "cls plus the mean": (lambda h: h[:, 0] + h.mean(1), "flatten", D),
    "mean without the cls token": (lambda h: h[:, 1:].mean(1), "flatten", D),
    "median": (lambda h: h.median(1).values, "flatten", D),
    "logsumexp": (lambda h: h.logsumexp(1), "flatten", D),
    "the largest token": (lambda h: h[torch.arange(len(h)), h.norm(dim=-1).argmax(1)], "flatten", D),
    "mean times T": (lambda h: h.mean(1) * T, "mean", D),
    "mean by einsum": (lambda h: torch.einsum("btd,t->bd", h, h.new_full((T,), 1 / T)), "mean", D),
    "cls by index_select": (lambda h: h.index_select(1, torch.tensor([0])).squeeze(1), "cls", D),
    "last by unbind": (lambda h: h.unbind(1)[-1], "last", D),
    "a convolution over tokens": (lambda h: (h[:, :-1] - h[:, 1:]).relu().sum(1), "flatten", D),
}
for _name, (_pool, _read, _width) in POOLS.items():
    add(
        f"read: {_name}",
        lambda pool=_pool, read=_read, width=_width: token_net(lambda: Tokens(pool, width=width), read),  # type: ignore[misc]
        EITHER if _name == "mean times T" else MEASURE,
        7,
    )


class ChannelsFirst(Plain):
    """[B, d, T]: the second dimension is no token."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(D, D, 3, padding=1)

        def forward(self, h: Tensor) -> Tensor:
            return h + torch.tanh(self.conv(h))

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(3)])
        self.norm = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x).transpose(1, 2))
        for layer in self.layers:
            h = self.tape(layer(h))
        return self.head(h.mean(2))


add("tokens last: [B, d, T]", lambda: token_net(ChannelsFirst, "flatten"), MEASURE, 7)
add("as many samples as tokens", lambda: token_net(batches=tokens((T, T))), MEASURE, 7)
add("as many samples as features", lambda: plain_net(batches=vectors((D, D))), MEASURE, 7)
add("one sample in a batch", lambda: plain_net(batches=vectors((1, 1, 1))), MEASURE, 7)
add("a last batch of one sample", lambda: token_net(batches=tokens((9, 1))), MEASURE, 7)


class Padded(Tokens):
    """Reads the last real token; token 0 of the vocabulary is padding."""

    def __init__(self, left: bool = False) -> None:
        super().__init__()
        self.stem, self.left = nn.Embedding(9, D), left

    def forward(self, ids: Tensor) -> Tensor:
        h = self.tape(self.stem(ids))
        for layer in self.layers:
            h = self.tape(layer(h))
        at = torch.full((len(ids),), T - 1) if self.left else (ids != 0).sum(1) - 1
        return self.head(self.norm(h)[torch.arange(len(ids)), at])


def padded(left: bool, full: int = 3, n: int = 40) -> list[Batch]:
    """`full` samples without padding, then samples of 2 or 3 tokens."""
    gen = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 9, (n, T), generator=gen)
    for k in range(full, n):
        ids[k, : T - 2 - k % 2] = 0 if left else ids[k, : T - 2 - k % 2]
        ids[k, 2 + k % 2 :] = ids[k, 2 + k % 2 :] if left else 0
    return [(ids, torch.randint(C, (n,), generator=gen))]


add(
    "padding on the right, three samples without",
    lambda: token_net(Padded, "flatten", batches=padded(False)),
    MEASURE,
    7,
)
add(
    "padding on the right, six samples without",
    lambda: token_net(Padded, "flatten", batches=padded(False, 6)),
    MEASURE,
    7,
)
add("padding on the left", lambda: token_net(lambda: Padded(True), "last", batches=padded(True)), MEASURE, 7)
add(
    "padding in the second batch only",
    lambda: token_net(Padded, "flatten", batches=[*padded(False, 40), *padded(False, 3)]),
    MEASURE,
    7,
)


class Deaf(Plain):
    """The head hears nothing of samples whose first feature is negative."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in self.layers:
            h = self.tape(layer(h))
        return self.head(self.norm(h)) * (x[:, :1] > 0)


add("samples with g = 0", lambda: plain_net(Deaf, marks=("zero",), false_alarms="none"), MARK, 7)


class Two(Plain):
    """A stream of two tensors: both come in and go out of each block."""

    class Block(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(D, D)

        def forward(self, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return h + self.branch(h) + 0.5 * c, c + torch.tanh(self.other(h))

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(4)])
        self.cell = nn.Linear(IN, D)

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.tape(self.stem(x)), self.cell(x)
        for layer in self.layers:
            h, c = layer(h, c)
            h = self.tape(h)
        return self.head(self.norm(h + c))


add("a stream of two tensors", lambda: plain_net(Two, marks=("beside",)), MARK, 7, 3)


class Coupled(Residual):
    """Samples are centred by the batch, in eval mode too."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h - h.mean(0, keepdim=True))


class AcrossBatch(Residual):
    """Attention over the batch."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(torch.softmax(h @ h.t(), 1) @ h)


def stateless_batch_norm() -> nn.Module:
    model = Plain(depth=3)
    for layer in model.layers:
        layer.norm = nn.BatchNorm1d(D, track_running_stats=False)
    return model


add(
    "samples centred by the batch",
    lambda: plain_net(lambda: Plain([Coupled() for _ in range(3)]), marks=("dependent",)),
    MARK,
    7,
)
add(
    "attention over the batch",
    lambda: plain_net(lambda: Plain([AcrossBatch() for _ in range(3)]), marks=("dependent",)),
    MARK,
    7,
)
add("BatchNorm without running statistics", lambda: plain_net(stateless_batch_norm, marks=("dependent",)), MARK, 7)


class CoupledHead(Plain):
    def read(self, h: Tensor) -> Tensor:
        return h - h.mean(0, keepdim=True)


add("samples centred by the batch in the head", lambda: plain_net(CoupledHead, marks=("dependent",)), MARK, 7)


# ---- 8: find_blocks -----------------------------------------------------------------------------------------------


class ConvBlock(nn.Module):
    def __init__(self, n: int, m: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
        self.conv2, self.bn2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
        self.short: nn.Module = nn.Identity() if (n, stride) == (m, 1) else nn.Conv2d(n, m, 1, stride)

    def forward(self, h: Tensor) -> Tensor:
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(h)))))
        out += self.short(h)
        return torch.relu(out)


class Stages(nn.Module):
    """A hierarchical convolutional network; `between`: the resolution changes between the stages, not in a block."""

    def __init__(self, between: bool) -> None:
        super().__init__()
        self.tape, self.stem, self.between = Tape(), nn.Conv2d(3, 4, 3, padding=1), between
        widths = (4, 4) if between else (4, 8)
        self.stages = nn.ModuleList(
            nn.Sequential(
                ConvBlock(4 if k == 0 or between else widths[k - 1], w, 1 if k == 0 or between else 2), ConvBlock(w, w)
            )
            for k, w in enumerate(widths)
        )
        self.down = nn.Conv2d(4, 4, 2, 2)
        self.head = nn.Linear(widths[-1], C)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for k, stage in enumerate(self.stages):
            if k and self.between:
                h = self.down(h)
            for block in stage.children():
                h = block(self.tape(h))
        return self.head(self.tape(h).mean((2, 3)))


STAGES = tuple(f"stages.{k}.{j}" for k in range(2) for j in range(2))
IMAGE = (3, 6, 6)
for _between in (False, True):
    add(
        f"convolutional stages, blocks named, resolution changes {'between' if _between else 'in a block'}",
        lambda between=_between: plain_net(  # type: ignore[misc]
            lambda: Stages(between), blocks=list(STAGES), batches=vectors(shape=IMAGE), read="flatten"
        ),
        MEASURE,
        8,
    )
    add(
        f"convolutional stages, blocks not named, resolution changes {'between' if _between else 'in a block'}",
        lambda between=_between: plain_net(  # type: ignore[misc]
            lambda: Stages(between), blocks=None, batches=vectors(shape=IMAGE), read="flatten", names=STAGES
        ),
        EITHER,
        8,
    )


class Sublayers(nn.Module):
    """A decoder block as T5 has it: residual sublayers in a ModuleList, behind one another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList([Residual(mixes=True), Residual(mixes=True), Residual()])

    def forward(self, h: Tensor) -> Tensor:
        for part in self.layer:
            h = part(h)
        return h


class OfSublayers(Tokens):
    def __init__(self, depth: int) -> None:
        super().__init__(lambda h: h.mean(1))
        self.layers = nn.ModuleList([Sublayers() for _ in range(depth)])


for _depth in (2, 3):
    add(
        f"blocks of three residual sublayers, L={_depth}, not named",
        lambda depth=_depth: token_net(  # type: ignore[misc]
            lambda: OfSublayers(depth), "mean", blocks=None, names=tuple(f"layers.{k}" for k in range(depth))
        ),
        MEASURE,
        8,
    )


@run("find_blocks and diagnose name the same blocks", MEASURE, 8)
def _() -> None:
    net = token_net(lambda: OfSublayers(3), "mean", blocks=None)
    with left_as_found(net.model, net.batches):
        found = find_blocks(net.model, net.batches[0])
    if found != ["layers.0", "layers.1", "layers.2"]:
        raise WrongError(f"found {found}")


# ---- 9: bad data --------------------------------------------------------------------------------------------------


def bad_data(value: float) -> None:
    """One bad input is not the network's fault: refused, or measured without a word of divergence."""
    net = plain_net()
    net.batches[0][0][3, 1] = value
    with left_as_found(net.model, net.batches):
        report = diagnose(
            net.model, net.batches, blocks="layers.*", headline_acc=0.5, frozen_baseline_acc=0.3, n_test=1000
        )
    if "diverged" in str(report):
        raise WrongError(f"one input of {value} makes a healthy network diverged")
    if not any("input" in w for w in report.verdict.warnings):
        raise WrongError("nothing is said of the bad input")


for _value in (math.nan, math.inf, -math.inf):
    CASES.append(Case(f"one input is {_value}", lambda value=_value: bad_data(value), EITHER, (9,)))  # type: ignore[misc]


@run("a weight is NaN: the network's fault", MEASURE, 9)
def _() -> None:
    net = plain_net()
    with torch.no_grad():
        net.model.layers[1].linear.weight[0, 0] = math.nan  # type: ignore[index, union-attr]
    report = diagnose(net.model, net.batches, blocks="layers.*")
    if report.checks["D1"].answer != "fail" or "diverged" not in str(report):
        raise WrongError("a network with NaN in its weights is not called diverged")


@run("accuracy 1 on 20 samples decides nothing", MEASURE, 9)
def _() -> None:
    net = plain_net()
    report = diagnose(net.model, net.batches, blocks="layers.*", headline_acc=1.0, frozen_baseline_acc=1.0, n_test=20)
    if report.checks["D3"].answer == "fail":  # Wilson at p = 1, n = 20 reaches down to .84
        raise WrongError(f"D3 is definite with 20 samples: {report.checks['D3'].sentence}")


@run("accuracy 0 on 20 samples decides nothing", MEASURE, 9)
def _() -> None:
    net = plain_net()
    report = diagnose(net.model, net.batches, blocks="layers.*", headline_acc=0.0, frozen_baseline_acc=0.0, n_test=20)
    if report.checks["D3"].answer == "fail":
        raise WrongError(f"D3 is definite with 20 samples: {report.checks['D3'].sentence}")


@run("three equal margins of rounded accuracies decide nothing", MEASURE, 9)
def _() -> None:
    net = plain_net()
    report = diagnose(
        net.model,
        net.batches,
        blocks="layers.*",
        headline_acc=[0.50, 0.51, 0.52],
        frozen_baseline_acc=[0.48, 0.49, 0.50],
    )
    if report.checks["D3"].answer in ("pass", "fail"):  # the margin is 2 pp, known to 1 pp
        raise WrongError(f"a margin of rounded numbers is definite: {report.checks['D3'].sentence}")


# ---- 10: raw exceptions -------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """torch's own encoder with a padding mask."""

    def __init__(self, norm_first: bool, nested: bool, masked_read: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, 2, 16, 0.1, batch_first=True, norm_first=norm_first)
        self.stem = nn.Linear(IN, D)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested)
        self.head, self.masked_read = nn.Linear(D, C), masked_read

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        h = self.encoder(self.stem(x), src_key_padding_mask=padding)
        if self.masked_read:
            real = (~padding).to(h.dtype).unsqueeze(-1)
            return self.head((h * real).sum(1) / real.sum(1))
        return self.head(h[:, 0])


def encoder_net(norm_first: bool, nested: bool, masked_read: bool = False) -> Network:
    batches: list[Batch] = []
    for x, y in tokens():
        lengths = torch.arange(len(x)) % 3 + T - 2
        batches.append(((x, torch.arange(T) >= lengths.unsqueeze(1)), y))
    return Network(
        seeded(lambda: Encoder(norm_first, nested, masked_read)),
        batches,
        "encoder.layers.*",
        passes=lambda model, given: by_hooks(model, given, [f"encoder.layers.{k}" for k in range(3)]),
        read="flatten" if masked_read else "cls",
        false_alarms="none",
    )


for _first in (True, False):
    for _nested in (True, False):
        add(
            f"nn.TransformerEncoder with padding, norm_first={_first} nested={_nested}",
            lambda first=_first, nested=_nested: encoder_net(first, nested),  # type: ignore[misc]
            MEASURE,
            10,
        )
add("nn.TransformerEncoder with padding, masked mean", lambda: encoder_net(False, False, True), MEASURE, 10, 7)


class Local(Plain):
    """Local learning: no gradient crosses the block boundaries."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def step(self, k: int, h: Tensor) -> Tensor:
        if self.how == "detach":
            return self.layers[k](h.detach())
        if self.how == "detach one" and k == 2:
            return self.layers[k](h.detach())
        with self._quiet(k):
            return self.layers[k](h)

    @contextlib.contextmanager
    def _quiet(self, k: int) -> Iterator[None]:
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and not (self.how == "no_grad" or (self.how == "no_grad one" and k == 1))
        ):
            yield


for _how in ("detach", "detach one", "no_grad", "no_grad one"):
    add(f"local learning: {_how}", lambda how=_how: plain_net(lambda: Local(how)), REFUSE, 10, 5)  # type: ignore[misc]


class DetachedInside(Residual):
    """The block detaches its branch's input: the branch gets no gradient, the skip does."""

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h.detach())


add(
    "a branch on a detached state",
    lambda: plain_net(lambda: Plain([DetachedInside() for _ in range(3)])),
    REFUSE,
    5,
    10,
)


class Depth(Plain):
    """The number of blocks that run depends on the batch."""

    def __init__(self, by: str) -> None:
        super().__init__(depth=6)
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        n = (len(x) % 3 + 3) if self.by == "size" else (3 + int(x.sum() > 0) * 3)
        for layer in list(self.layers)[:n]:
            h = self.tape(layer(h))
        return self.head(self.norm(h))


class EarlyExit(Plain):
    """Samples leave at different depths."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        leaves = torch.where(x[:, :1] > 0, 2, 4)
        for k, layer in enumerate(self.layers):
            h = self.tape(torch.where(leaves > k, layer(h), h))
        return self.head(self.norm(h))


def signed_batches() -> list[Batch]:
    (x, y), (u, v) = vectors((8, 8))
    return [(x.abs(), y), (-u.abs(), v)]


add("depth changes with the batch size", lambda: plain_net(lambda: Depth("size"), batches=vectors((9, 8))), REFUSE, 10)
add("depth changes with the data", lambda: plain_net(lambda: Depth("data"), batches=signed_batches()), REFUSE, 10)
add(
    "samples leave at different depths",
    lambda: plain_net(EarlyExit, marks=("beside",), false_alarms="none"),
    MARK,
    10,
    4,
)


class Fixed(Plain):
    """A batch of 12 and no other."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(12, IN))


class Even(Plain):
    """Any even batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(len(x) // 2, 2, IN).flatten(0, 1))


add("a fixed batch size", lambda: plain_net(Fixed, batches=vectors((12, 12))), MEASURE, 10)
add("a fixed batch size, not named", lambda: plain_net(Fixed, batches=vectors((12, 12)), blocks=None), EITHER, 10)
add("even batch sizes only", lambda: plain_net(Even, batches=vectors((12, 8))), MEASURE, 10)


def bad_rule(change: Callable[[list[Tensor]], Any]) -> None:
    net = plain_net()
    with left_as_found(net.model, net.batches):
        diagnose(
            net.model,
            net.batches,
            blocks="layers.*",
            credit=lambda h, logits, y: change(credit_by_class()(h, logits, y)),
        )


def _raise(_: Any) -> Any:
    raise KeyError("layer 3")


RULES: dict[str, Callable[[list[Tensor]], Any]] = {
    "too few": lambda a: a[:-1],
    "too many": lambda a: [*a, a[-1]],
    "one tensor": lambda a: a[0],
    "nothing": lambda a: None,
    "an empty list": lambda a: [],
    "NaN at one layer": lambda a: [a[0] * math.nan, *a[1:]],
    "a wrong width": lambda a: [t[:, :-1] for t in a],
    "a wrong batch": lambda a: [t[:-1] for t in a],
    "numbers": lambda a: [1.0 for _ in a],
    "an exception": _raise,
}
for _name, _change in RULES.items():
    CASES.append(Case(f"a rule that gives {_name}", lambda change=_change: bad_rule(change), REFUSE, (10,)))  # type: ignore[misc]


@run("a rule that gives NaN to one sample", EITHER, 10)
def _() -> None:
    def change(a: list[Tensor]) -> list[Tensor]:
        a[1][0] = math.nan
        return a

    bad_rule(change)


class SingleOnly(Residual):
    """An operation that exists in float32 only, as fused kernels do."""

    def branch(self, h: Tensor) -> Tensor:
        if h.dtype != torch.float32:
            raise RuntimeError(f"expected Float32, got {h.dtype}")
        return super().branch(h)


def single(model: nn.Module, batches: Sequence[Batch]) -> list[Pass]:
    return by_tape(model, batches, torch.float32)


add("float32 only", lambda: plain_net(lambda: Plain([SingleOnly() for _ in range(3)]), passes=single), MEASURE, 10)


# ---- what blocks may be named ------------------------------------------------------------------------------------


class SideBySide(Plain):
    """Both blocks of a pair read the same state."""

    def __init__(self) -> None:
        super().__init__([Branch() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for k in (0, 2):
            h = self.tape(h + self.layers[k](h) + self.layers[k + 1](h))
        return self.head(self.norm(h))


class Experts(nn.Module):
    """A mixture: the router chooses one branch for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(D, 2)
        self.experts = nn.ModuleList([Branch(), Branch()])

    def forward(self, h: Tensor) -> Tensor:
        weight = torch.softmax(self.router(h), 1)
        chosen = weight.argmax(1)
        out = torch.zeros_like(h)
        for k, expert in enumerate(self.experts):
            at = chosen == k
            out[at] = expert(h[at]) * weight[at, k : k + 1]
        return h + out


class Dense(Plain):
    """DenseNet: every block appends to the state."""

    class Block(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.linear = nn.Linear(n, 3)

        def forward(self, h: Tensor) -> Tensor:
            return torch.cat([h, torch.tanh(self.linear(h))], 1)

    def __init__(self) -> None:
        super().__init__([self.Block(D + 3 * k) for k in range(3)], width=D + 9)


class Unused(Plain):
    """The last block is never called."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in list(self.layers)[:-1]:
            h = self.tape(layer(h))
        return self.head(self.norm(h))


class Idle(Plain):
    """The last block is called, and what it gives is dropped."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        for layer in list(self.layers)[:-1]:
            h = self.tape(layer(h))
        self.layers[-1](h)
        return self.head(self.norm(h))


class Answer(Plain):
    """Gives back a mapping, a tuple, or logits among other things."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return {"logits": logits, "features": x} if self.how == "mapping" else (logits, x)


def with_parametrization() -> nn.Module:
    model: Any = Plain(depth=3)
    for layer in model.layers:
        nn.utils.parametrizations.weight_norm(layer.linear)
    return model


def scaled_by_a_hook() -> nn.Module:
    model = Plain(depth=3)
    model.layers[1].register_forward_hook(lambda m, args, out: 1.5 * out)
    return model


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(D, D, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.lstm(h)[0]


class OfLSTM(Tokens):
    def __init__(self) -> None:
        super().__init__(lambda h: h[:, -1])
        self.layers = nn.ModuleList([Recurrent() for _ in range(3)])


class Reversible(Plain):
    """Reversible: the state is two halves, each updated from the other."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f, self.g = nn.Linear(D // 2, D // 2), nn.Linear(D // 2, D // 2)

        def forward(self, h: Tensor) -> Tensor:
            a, b = h.chunk(2, 1)
            a = a + torch.tanh(self.f(b))
            return torch.cat([a, b + torch.tanh(self.g(a))], 1)

    def __init__(self) -> None:
        super().__init__([self.Block() for _ in range(3)])


class BetweenNorms(Plain):
    """A norm stands between the blocks, in the model."""

    def __init__(self) -> None:
        super().__init__()
        self.between = nn.LayerNorm(D)

    def step(self, k: int, h: Tensor) -> Tensor:
        h = self.layers[k](h)
        return h if k == len(self.layers) - 1 else self.between(h)


def tiny() -> nn.Module:
    model = Plain()
    with torch.no_grad():
        model.head.weight.mul_(1e-20)  # type: ignore[operator, union-attr]
    return model


class Linearly(Residual):
    """No bound on the branch."""

    def __init__(self, size: float) -> None:
        super().__init__()
        with torch.no_grad():
            self.linear.weight.mul_(size)

    def branch(self, h: Tensor) -> Tensor:
        return self.linear(self.norm(h))


def exploding() -> nn.Module:
    return Plain([Linearly(100.0**k) for k in range(4)])


def _as_modules() -> Network:
    net = plain_net()
    net.blocks = list(net.model.layers)  # type: ignore[arg-type]
    return net


def _wrapped() -> Network:
    net = plain_net()
    net.model = nn.DataParallel(net.model)
    net.blocks = "module.layers.*"
    return net


def _requiring() -> Network:
    net = plain_net()
    net.batches = [(x.requires_grad_(True), y) for x, y in net.batches]
    net.passes = lambda model, batches: by_tape(model, [(x.detach(), y) for x, y in batches])
    return net


add("two blocks side by side", lambda: plain_net(SideBySide), REFUSE, 4)
add("a mixture of experts", lambda: plain_net(lambda: Plain([Experts() for _ in range(3)])))
add("DenseNet: the state grows", lambda: plain_net(Dense))
add("a block that is never called", lambda: plain_net(Unused), REFUSE, 10)
add("a block whose output is dropped", lambda: plain_net(Idle), REFUSE, 4)
add("logits in a mapping", lambda: plain_net(lambda: Answer("mapping")))
add("logits in a tuple", lambda: plain_net(lambda: Answer("tuple")))
add("weight norm by parametrization", lambda: plain_net(with_parametrization), MEASURE, 6)
add("a user's forward hook scales a block", lambda: plain_net(scaled_by_a_hook), MEASURE, 4)
add("LSTM blocks", lambda: token_net(OfLSTM, "last"))
add("reversible blocks", lambda: plain_net(Reversible))
add("a norm between the blocks only", lambda: plain_net(BetweenNorms), EITHER, 4)
add("tiny gradients", lambda: plain_net(tiny), MEASURE)
add("a state that explodes", lambda: plain_net(exploding), MEASURE)
add("blocks given as modules", _as_modules, MEASURE)
add("blocks given in another order", lambda: plain_net(blocks=["layers.2", "layers.0", "layers.3", "layers.1"]), EITHER)
add("a block and a part of it", lambda: plain_net(blocks=["layers.0", "layers.0.linear", "layers.1"]), REFUSE, 4)
add("names inside a wrapper", _wrapped, MEASURE)
add("inputs that require a gradient", _requiring, MEASURE, 6)


def part_of_the_blocks(names: list[str], expect: str, name: str) -> None:
    def passes(model: nn.Module, batches: Sequence[Batch]) -> list[Pass]:
        return by_hooks(model, batches, names)

    add(name, lambda: plain_net(lambda: Plain(depth=4), blocks=names, passes=passes), expect, 4)


part_of_the_blocks(["layers.0", "layers.1"], MEASURE, "the first two of four blocks")
part_of_the_blocks(["layers.2", "layers.3"], MEASURE, "the last two of four blocks")
part_of_the_blocks(["layers.0", "layers.2"], EITHER, "every other block")


# ---- 11: frozen_blocks --------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), nn.MultiheadAttention(D, 2, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        u = self.norm(h)
        return h + self.attention(u, u, u, need_weights=False)[0]


class Tied(Tokens):
    """The linear map of the first block is the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Embedding(D, D)
        self.layers[0].linear.weight = self.stem.weight  # type: ignore[union-attr]


def trained(make: Callable[[], nn.Module]) -> nn.Module:
    """Every parameter moved away from its initialisation."""
    model = seeded(make)
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.add_(1.0 + torch.arange(p.numel()).view_as(p) % (k + 2))
    return model


@run("frozen_blocks: attention starts as its constructor starts it", MEASURE, 11)
def _() -> None:
    def make() -> nn.Module:
        model = Tokens()
        model.layers = nn.ModuleList([Attention() for _ in range(2)])
        return model

    fresh, model = make(), trained(make)
    with left_as_found(model):
        twin = frozen_blocks(model, "layers.*")
    _starts_alike(fresh, twin)


@run("frozen_blocks: torch's encoder layers", MEASURE, 11)
def _() -> None:
    model = trained(lambda: Encoder(True, False))
    with left_as_found(model):
        twin = frozen_blocks(model, "encoder.layers.*")
    _starts_alike(seeded(lambda: Encoder(True, False)), twin, "encoder.layers.")


def _starts_alike(fresh: nn.Module, twin: nn.Module, prefix: str = "layers.") -> None:
    """Constants are the same constants, and random weights have the same spread (within what 64 numbers show)."""
    theirs = dict(twin.named_parameters())
    for name, p in fresh.named_parameters():
        if not name.startswith(prefix):
            continue
        q = theirs[name].detach()
        if p.numel() == 1 or float(p.detach().std()) == 0:
            if not torch.equal(p.detach(), q):
                first, here = float(p.detach().flatten()[0]), float(q.flatten()[0])
                raise WrongError(f"{name} starts at {first:g} in the constructor, at {here:.3g} here")
        elif p.dim() > 1:
            ratio = float(q.std() / p.detach().std())
            if not 0.6 < ratio < 1.6:
                raise WrongError(f"{name} spreads {ratio:.2f} times as wide as in the constructor")
        elif float(q.abs().max()) > 2 * float(p.detach().abs().max()) + 1e-9:
            raise WrongError(
                f"{name} reaches {float(q.abs().max()):.3g}, in the constructor {float(p.detach().abs().max()):.3g}"
            )


@run("frozen_blocks: a weight shared with the embedding", MEASURE, 11)
def _() -> None:
    model = trained(Tied)
    with left_as_found(model):
        twin: Any = frozen_blocks(model, "layers.*")
    if not torch.equal(twin.stem.weight, model.stem.weight):  # type: ignore[arg-type, union-attr]
        raise WrongError("the embedding's weight was re-initialised")
    if not twin.stem.weight.requires_grad:
        raise WrongError("the embedding's weight was frozen")
