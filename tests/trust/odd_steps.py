"""Odd steps from a state to the next: recognised from one look, handed through, led around, made in the model (1 to 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tests.trust.odd_grammar import IN, C, D, Spec, build
from tests.trust.odd_parts import Branch, Plain, Residual, Tokens, Zoo, plain_net, token_net
from tests.trust.oracle import (
    MARK,
    MEASURE,
    REFUSE,
    Case,
    Network,
    Tape,
    WrongError,
    credit_by_class,
    expected,
    left_as_found,
    same,
)
from torch import Tensor, nn

from creditscope import Monitor

ZOO = Zoo()
add, run = ZOO.add, ZOO.run


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
add("interface: forward scales the branch", lambda: plain_net(lambda: Interface(False, 1.0, scale=0.5), blocks=None),
    MEASURE, 4)  # fmt: skip
add("interface: forward scales the branch, starts at zero", lambda: plain_net(lambda: Interface(False, 0.0,
    scale=0.5), blocks=None), MEASURE, 1, 4)  # fmt: skip
add("interface: no terminal norm", lambda: plain_net(lambda: Interface(True, 0.0, terminal=False), blocks=None),
    MEASURE, 1)  # fmt: skip


def watch(net: Network, steps: int = 4, rate: float = 0.3, between: Callable[[Any, int], None] | None = None) -> None:
    """A Monitor made before training, compared with the oracle after every step of SGD.

    between: changes the network before the measurement of that step.
    """
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
        if between is not None:
            between(net.model, step)
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
    ZOO.cases.append(Case(f"Monitor: {_name}", lambda make=_make: watch(make()), MEASURE, (1,)))  # type: ignore[misc]


class Switched(Residual):
    """Hands its input on, once it is pruned; turns its gradient around, once it is a method's."""

    pruned = turned = False

    def forward(self, h: Tensor) -> Tensor:
        if self.pruned:
            return h
        f = self.branch(h)
        return h + (f + 2 * (f.detach() - f) if self.turned else f)


def switched() -> Network:
    return plain_net(lambda: Plain([Residual(), Switched(), Switched(), Residual()]))


@run("Monitor: blocks are pruned midway", MEASURE, 1, 2)
def _() -> None:
    def prune(model: Any, step: int) -> None:
        model.layers[1].pruned, model.layers[2].pruned = step >= 2, step >= 3

    watch(switched(), between=prune)


@run("Monitor: a block turns its gradient around midway", REFUSE, 1, 5, says="gradient|backward|finite difference")
def _() -> None:
    def turn(model: Any, step: int) -> None:
        model.layers[1].turned = step >= 2

    net = switched()
    monitor = Monitor(net.model, net.batches, blocks=net.blocks)
    for step in range(4):
        turn(net.model, step)
        monitor.step(step)


# ---- 2: two states that are one tensor ----------------------------------------------------------------------------


class View(Residual):
    def forward(self, h: Tensor) -> Tensor:
        return h.view_as(h)


class Passing(Residual):
    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h) if self.training else h


add("layer drop in eval mode", lambda: plain_net(lambda: Plain([Residual(), Passing(), Passing(), Residual()])),
    MEASURE, 2)  # fmt: skip
add("pruned blocks are nn.Identity", lambda: plain_net(lambda: Plain([Residual(), nn.Identity(), nn.Identity(),
    Residual()])), MEASURE, 2)  # fmt: skip
add("the last two blocks are nn.Identity", lambda: plain_net(lambda: Plain([Residual(), Residual(), nn.Identity(),
    nn.Identity()])), MEASURE, 2)  # fmt: skip
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
    """Blocks 0 and 1 hand their states to blocks 3 and 2; block 4 comes after."""

    def __init__(self) -> None:
        super().__init__(depth=5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.stem(x))
        kept: list[Tensor] = []
        for k, layer in enumerate(self.layers):
            h = self.tape(layer(h) + 0.5 * kept.pop() if k in (2, 3) else layer(h))
            if k < 2:
                kept.append(h)
        return self.head(self.norm(h))


class Gain(Plain):
    """The length of h_0 scales the logits."""

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


add("the stream is the second argument", lambda: plain_net(FirstIsAnother, false_alarms="swap"), MEASURE, 4)
add("the first argument comes from the input", lambda: plain_net(FirstIsData, marks=("beside",)), MARK, 4, 3)


class Joined(Residual):
    """The branch is joined to the state by another operation than h + f."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, h: Tensor) -> Tensor:
        half, f = D // 2, self.branch(h)
        if self.how == "a part of a copy, +=":
            out = h.clone()
            out[:, :half] += f[:, half:]
            return out
        if self.how == "a part of a copy, written":
            out = h.clone()
            out[:, :half] = out[:, :half] + f[:, half:]
            return out
        if self.how == "a view of the branch, +=":
            out = (2 * f).view(len(h), 2, half).view(len(h), D)
            out += h
            return out
        if self.how == "index_add":
            return h.index_add(1, torch.arange(D).flip(0), f)
        if self.how == "scatter_add":
            return h.scatter_add(1, torch.arange(D).flip(0).expand_as(f), f)
        if self.how == "addmm":
            return torch.addmm(h, f, self.linear.weight)
        if self.how == "addcmul":
            return torch.addcmul(h, f, f)
        return torch.lerp(h, f, 0.3)


for _how in ("a part of a copy, +=", "a part of a copy, written", "a view of the branch, +=", "index_add", "scatter_add",
    "addmm", "addcmul", "lerp"):  # fmt: skip
    for _blocks in ("layers.*", None):
        add(
            f"joined by {_how}{'' if _blocks else ', not named'}",
            lambda how=_how, blocks=_blocks: plain_net(  # type: ignore[misc]
                lambda: Plain([Joined(how) for _ in range(3)]), blocks=blocks, kind="residual"
            ),
            MEASURE,
            4,
        )


class Overwritten(Residual):
    """The state is copied, and then all of the copy is another one: no skip."""

    def forward(self, h: Tensor) -> Tensor:
        out = h.clone()
        out[:, :].copy_(self.branch(h))
        return out


add("a copy of the state that is overwritten",
    lambda: plain_net(lambda: Plain([Overwritten() for _ in range(3)]), kind="plain"), MEASURE, 4)  # fmt: skip


class Coupled(nn.Module):
    """f_l of a stream of two halves, of which block l changes one: what the interface asks for."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.linear, self.k = nn.Linear(D // 2, D // 2), k

    def halves(self, h: Tensor) -> tuple[Tensor, Tensor]:
        mine, other = h.split(D // 2, 1) if self.k % 2 else h.split(D // 2, 1)[::-1]
        return mine, torch.tanh(self.linear(other))

    def forward(self, h: Tensor) -> Tensor:
        mine, f = self.halves(h)
        both = (f, torch.zeros_like(mine))
        return torch.cat(both if self.k % 2 else both[::-1], 1)


class Sliced(Plain):
    """The model writes to one half of its state after the other; blocks are the layers inside."""

    def __init__(self) -> None:
        super().__init__([Coupled(k).linear for k in range(4)])

    def forward(self, x: Tensor) -> Any:
        h = self.stem(x).clone()
        for k, layer in enumerate(self.layers):
            mine, other = (slice(0, D // 2), slice(D // 2, D))[:: 1 if k % 2 else -1]
            h[:, mine] = h[:, mine] + torch.tanh(layer(h[:, other].clone()))
        return self.head(self.norm(h))


class SlicedInterface(nn.Module):
    """The same network as embed, blocks and head."""

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape()
        self.embed, self.norm, self.head = nn.Linear(IN, D), nn.LayerNorm(D), nn.Linear(D, C)
        self.blocks = nn.ModuleList(Coupled(k) for k in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.tape(self.embed(x))
        block: Any
        for k, block in enumerate(self.blocks):
            mine, f = block.halves(h)
            other = h.split(D // 2, 1)[0 if k % 2 == 0 else 1]
            moved = torch.cat((mine + f, other) if k % 2 else (other, mine + f), 1)
            h = self.tape(moved) if self.tape.on else h + block(h)
        return self.head(self.norm(h))


for _blocks in ("layers.*", None):
    add(
        f"halves of the state that the model writes{'' if _blocks else ', not named'}",
        lambda blocks=_blocks: plain_net(Sliced, blocks=blocks, passes=lambda *_: []),  # type: ignore[misc]
        REFUSE,
        4,
        says="give the model the interface",
    )
add("halves of the state, through the interface",
    lambda: plain_net(SlicedInterface, blocks=None, kind="residual"), MEASURE, 4)  # fmt: skip


class Spectral(nn.Module):
    """A filter of complex weights on the frequencies of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(D // 2 + 1, dtype=torch.complex64))

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.fft.irfft(torch.fft.rfft(h) * self.weight, n=D)


add("complex weights", lambda: plain_net(lambda: Plain([Spectral() for _ in range(3)])), MEASURE, 4)


def at_full(spec: Spec) -> Network:
    """ρ's positive control is close to 1 wherever a network is measured."""
    net = build(spec)
    net.options = {"level": "full"}
    return net


for _spec in (
    Spec(),
    Spec(residual="model"),
    Spec(residual="model_rezero"),
    Spec(residual="model_post"),
    Spec(residual="model_highway"),
    Spec(side="h0"),
    Spec(identity="middle"),
    Spec(branch="zero", depth=6),
    Spec(shape="tokens", pooling="mean"),
    Spec(shape="tokens", pooling="sum"),
):
    add(
        f"level full: {_spec.name}",
        lambda spec=_spec: at_full(spec),  # type: ignore[misc]
        MARK if _spec.side != "none" else MEASURE,
        4,
    )
