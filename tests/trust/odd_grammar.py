"""A small grammar of networks: residual forms, norms, pooling, sharing, side paths, layouts, wrappers, signatures.

`Spec` is a sentence of it, `build` makes the network. The expectation follows from the sentence alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from tests.trust.oracle import EITHER, MARK, MEASURE, Batch, Case, Network, Tape, network
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

IN, D, T, C, VOCABULARY, SIDE = 6, 8, 5, 4, 7, 4
SIZES = (14, 9)

INSIDE = (
    "inside", "inside_rezero", "inside_gated", "inside_highway", "inside_minus", "inside_post", "inside_scaled_skip",
    "inside_linear_skip", "inside_custom", "inside_iadd", "plain",
)  # fmt: skip
"""The block gives back the new state."""
MODEL = (
    "model", "model_rezero_0", "model_rezero", "model_gated", "model_highway", "model_minus", "model_post",
    "model_scaled_skip", "model_add_", "model_iadd", "model_inplace_start",
)  # fmt: skip
"""The block gives back a branch, and the model makes the new state."""
ADDITIVE = ("inside", "inside_iadd", "model")
"""h + f and nothing else; the forms that blocks are looked for in."""
POOLINGS = ("cls", "last", "mean", "max", "sum", "attention", "flatten", "masked_mean", "last_real")
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}

CHOICES: dict[str, tuple[Any, ...]] = {
    "residual": INSIDE + MODEL,
    "branch": ("usual", "zero", "near_zero"),
    "norm": ("pre", "none", "post", "rms", "batch"),
    "terminal": (True, False),
    "shape": ("vector", "tokens", "time_first", "image"),
    "pooling": POOLINGS,
    "shared": (False, True),
    "tied": (False, True),
    "side": ("none", "h0", "x", "h1", "skip2", "norm_h0"),
    "dtype": ("float32", "float64", "bfloat16"),
    "depth": (2, 4, 1, 6),
    "wrapper": ("none", "sequential", "parallel", "holder", "checkpoint", "checkpoint_reentrant", "functional"),
    "signature": ("first", "second", "keyword", "tuple", "mask"),
    "identity": ("none", "first", "middle", "last", "all"),
    "named": (True, False),
    "seed": (0, 1, 2, 3),
}


@dataclass(frozen=True)
class Spec:
    residual: str = "inside"
    branch: str = "usual"
    """zero: the last linear map of each branch starts at zero; near_zero: a ten-millionth of the usual."""
    norm: str = "pre"
    terminal: bool = True
    shape: str = "vector"
    pooling: str = "cls"
    """Token shapes only."""
    shared: bool = False
    """One block, called L times."""
    tied: bool = False
    """The head is the transpose of the embedding; the input is token ids."""
    side: str = "none"
    dtype: str = "float32"
    depth: int = 4
    wrapper: str = "none"
    signature: str = "first"
    identity: str = "none"
    """Which blocks hand back their very input."""
    named: bool = True
    """False: creditscope has to find the blocks."""
    seed: int = 0

    @property
    def name(self) -> str:
        """What differs from the usual."""
        usual = Spec()
        return " ".join(
            f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != getattr(usual, f.name)
        ) or "usual"  # fmt: skip

    @property
    def is_tokens(self) -> bool:
        return self.shape in ("tokens", "time_first")

    @property
    def masked(self) -> bool:
        return self.signature == "mask" or (self.is_tokens and self.pooling in ("masked_mean", "last_real"))


def sense(spec: Spec) -> Spec:
    """The nearest sentence that makes sense: choices that do not go together are taken back to the usual ones."""

    def put(**values: Any) -> None:
        nonlocal spec
        spec = replace(spec, **values)

    if not spec.is_tokens:
        put(pooling="cls", tied=False)
        if spec.signature == "mask":
            put(signature="first")
    if spec.norm == "batch" and spec.is_tokens:
        put(norm="pre")
    if spec.norm == "post" and spec.branch != "usual":
        put(norm="pre")  # the norm of a zero branch
    if spec.residual == "plain":
        put(branch="usual")  # all would be zero
    if spec.norm == "post" and "post" in spec.residual:
        put(norm="none")
    if spec.residual in ("model_add_", "model_iadd", "model_inplace_start"):
        put(side="none")  # the side path would read what has been overwritten
        if spec.wrapper.startswith("checkpoint"):
            put(wrapper="none")  # nor can a block be run again on it
    if spec.residual == "model_post" and spec.depth < 2:
        put(depth=2)  # the norm after an only block may as well be the terminal norm
    if spec.side == "h1" and spec.depth < 2:
        put(depth=2)
    if spec.side == "skip2" and spec.depth < 4:
        put(depth=4)  # a skip over the last two blocks may as well be a part of the readout
    if spec.pooling == "flatten":
        put(tied=False)  # the embedding is as wide as one token
    if spec.side == "x" and spec.tied:
        put(tied=False)
    if spec.wrapper == "sequential" and (
        spec.residual not in INSIDE or spec.signature != "first" or spec.side != "none" or spec.masked or spec.tied
    ):
        put(wrapper="none")
    if spec.wrapper == "functional":
        put(shared=False, identity="none")
        if spec.norm == "batch":
            put(norm="pre")
    if spec.residual not in ("inside", "inside_iadd") or spec.shared:
        put(identity="none")
    if spec.signature == "tuple" and spec.wrapper == "sequential":
        put(wrapper="none")
    if spec.identity == "all" and spec.depth == 1:
        put(identity="none")
    if spec.side in ("h0", "norm_h0", "skip2", "h1") and int(spec.side == "h1") in identities(spec):
        put(identity="none")  # of two states that are one tensor, the side path may start at either
    return spec


class Branch(nn.Module):
    """f: norm, linear map (tokens: with a look at the others), tanh."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        image = spec.shape == "image"
        self.linear: nn.Module = nn.Conv2d(D, D, 3, padding=1) if image else nn.Linear(D, D)
        self.out: nn.Module = nn.Conv2d(D, D, 1) if image else nn.Linear(D, D)
        self.norm = make_norm(spec) if spec.norm != "none" else nn.Identity()

    def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.spec.residual == "model_inplace_start":
            h = nn.functional.relu_(h)
        u = h * 0.9  # so that h itself is not kept for the backward pass, and may be written to
        u = u if self.spec.norm == "post" else self.norm(u)
        u = self.linear(u)
        if self.spec.is_tokens:
            at = 0 if self.spec.shape == "time_first" else 1
            if mask is None:
                u = u + 0.5 * u.mean(at, keepdim=True)
            else:
                m = mask.to(u.dtype)
                m = m.t().unsqueeze(-1) if at == 0 else m.unsqueeze(-1)
                u = u + 0.5 * (u * m).sum(at, keepdim=True) / m.sum(at, keepdim=True)
        u = self.out(torch.tanh(u))
        return self.norm(u) if self.spec.norm == "post" else u


class Channels(nn.GroupNorm):
    """LayerNorm of a feature map."""

    def __init__(self) -> None:
        super().__init__(1, D)


def make_norm(spec: Spec) -> nn.Module:
    if spec.norm == "batch":
        norm = nn.BatchNorm2d(D) if spec.shape == "image" else nn.BatchNorm1d(D)
        nn.init.normal_(norm.running_mean)  # type: ignore[arg-type]
        nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
        return norm
    if spec.shape == "image":
        return Channels()
    return nn.RMSNorm(D) if spec.norm == "rms" else nn.LayerNorm(D)


class Add(torch.autograd.Function):
    """A sum whose graph shows one node."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, f: Tensor) -> Tensor:
        return h + f

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad


class Block(nn.Module):
    """A branch, or a whole residual step (the forms `inside`)."""

    def __init__(self, spec: Spec, identity: bool) -> None:
        super().__init__()
        self.spec, self.identity = spec, identity
        self.f = Branch(spec)
        form = spec.residual
        if form == "inside_rezero":
            self.alpha = nn.Parameter(torch.zeros(()))
        if form in ("inside_gated", "inside_highway"):
            self.gate: nn.Module = nn.Conv2d(D, D, 1) if spec.shape == "image" else nn.Linear(D, D)
        if form == "inside_post":
            self.after = make_norm(replace(spec, norm="pre"))
        if form == "inside_linear_skip":
            self.skip: nn.Module = (
                nn.Conv2d(D, D, 1, bias=False) if spec.shape == "image" else nn.Linear(D, D, bias=False)
            )
            nn.init.eye_(self.skip.weight.view(D, D).data)
        if spec.branch != "usual":
            with torch.no_grad():
                for p in self.f.out.parameters():
                    p.mul_(1e-7 if spec.branch == "near_zero" else 0.0)

    def step(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.identity:
            return h
        form = self.spec.residual
        f = self.f(h, mask)
        if form in MODEL or form == "plain":
            return f
        if form == "inside_rezero":
            return h + self.alpha * f
        if form == "inside_gated":
            return h + torch.sigmoid(self.gate(h)) * f
        if form == "inside_highway":
            t = torch.sigmoid(self.gate(h))
            return t * f + (1 - t) * h
        if form == "inside_minus":
            return h - f
        if form == "inside_post":
            return self.after(h + f)
        if form == "inside_scaled_skip":
            return 0.7 * h + f
        if form == "inside_linear_skip":
            return self.skip(h) + f
        if form == "inside_custom":
            return Add.apply(h, f)
        if form == "inside_iadd":
            f += h
            return f
        return h + f

    def forward(self, h: Tensor) -> Tensor:
        return self.step(h)


class SecondBlock(Block):
    """The stream is its second argument."""

    def forward(self, place: Tensor, h: Tensor) -> Tensor:  # type: ignore[override]
        return self.step(h) + 0.0 * place if self.identity else self.step(h + 0 * place) + 0.1 * torch.tanh(place)


class KeywordBlock(Block):
    def forward(self, *, hidden_states: Tensor) -> Tensor:  # type: ignore[override]
        return self.step(hidden_states)


class TupleBlock(Block):
    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        out = self.step(h)
        return out, out.detach().mean()


class MaskBlock(Block):
    def forward(self, h: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return self.step(h, mask)


BLOCKS = {"first": Block, "second": SecondBlock, "keyword": KeywordBlock, "tuple": TupleBlock, "mask": MaskBlock}


class Stem(nn.Module):
    """x -> h_0."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        if spec.tied:
            self.table = nn.Embedding(VOCABULARY, D)
        elif spec.shape == "image":
            self.linear: nn.Module = nn.Conv2d(3, D, 3, padding=1)
        else:
            self.linear = nn.Linear(IN, D)
        if spec.is_tokens:
            self.position = nn.Parameter(torch.randn(T, D) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) if self.spec.tied else self.linear(x)
        if self.spec.is_tokens:
            h = h + self.position
        return h.transpose(0, 1).contiguous() if self.spec.shape == "time_first" else h


class Pool(nn.Module):
    """h -> [B, n], batch first."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec
        self.query = nn.Parameter(torch.randn(D)) if spec.is_tokens and spec.pooling == "attention" else None

    @property
    def width(self) -> int:
        return D * T if self.spec.is_tokens and self.spec.pooling == "flatten" else D

    def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.spec.shape == "vector":
            return h
        if self.spec.shape == "image":
            return h.mean((2, 3))
        if self.spec.shape == "time_first":
            h = h.transpose(0, 1)
        how = self.spec.pooling
        if how == "attention":
            assert self.query is not None
            return (torch.softmax(h @ self.query, 1).unsqueeze(-1) * h).sum(1)
        if how in ("masked_mean", "last_real"):
            assert mask is not None
            if how == "last_real":
                return h[torch.arange(len(h)), mask.long().sum(1) - 1]
            m = mask.to(h.dtype).unsqueeze(-1)
            return (h * m).sum(1) / m.sum(1)
        table = {"cls": lambda: h[:, 0], "last": lambda: h[:, -1], "mean": lambda: h.mean(1), "sum": lambda: h.sum(1)}
        return table.get(how, lambda: h.amax(1) if how == "max" else h.flatten(1))()


class Readout(nn.Module):
    """Terminal norm, pooling, head; puts down h_L where nobody else does."""

    def __init__(self, spec: Spec, tape: Tape | None) -> None:
        super().__init__()
        self.tape = tape or Tape()
        self.keeps = tape is not None
        self.norm = make_norm(replace(spec, norm="pre")) if spec.terminal else nn.Identity()
        self.pool = Pool(spec)
        self.head: nn.Module = nn.Identity() if spec.tied else nn.Linear(self.pool.width, C)

    def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.keeps:
            h = self.tape(h)
        return self.head(self.pool(self.norm(h), mask))


class Recording(nn.Module):
    """A block in nn.Sequential, which puts down what it is given."""

    def __init__(self, block: nn.Module, tape: Tape) -> None:
        super().__init__()
        self.block, self.tape = block, tape

    def forward(self, h: Tensor) -> Tensor:
        h = self.tape(h)
        return self.block(h)


class Net(nn.Module):
    """A network of the grammar."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec, self.tape = spec, Tape()
        self.stem = Stem(spec)
        count = 1 if spec.shared else spec.depth
        blocks = [BLOCKS[spec.signature](spec, k in identities(spec)) for k in range(count)]
        self.layers = nn.ModuleList(blocks)
        self.readout = Readout(spec, None)
        self.places = nn.Parameter(torch.randn(spec.depth, D)) if spec.signature == "second" else None
        if spec.residual in ("model_rezero", "model_rezero_0"):
            size = 0.7 if spec.residual == "model_rezero" else 0.0
            self.alphas = nn.Parameter(torch.full((spec.depth,), size))
        if spec.residual in ("model_gated", "model_highway"):
            self.gate: nn.Module = nn.Conv2d(D, D, 1) if spec.shape == "image" else nn.Linear(D, D)
        if spec.residual == "model_post":
            self.norms = nn.ModuleList(make_norm(replace(spec, norm="pre")) for _ in range(spec.depth))
        if spec.side in ("h0", "h1"):
            self.side = nn.Linear(self.readout.pool.width, VOCABULARY if spec.tied else C)
        elif spec.side == "x":
            self.side = nn.Linear(torch.Size(input_shape(spec)).numel(), C)

    def through(self, k: int, h: Tensor, mask: Tensor | None) -> Tensor:
        """What block k gives."""
        spec, block = self.spec, self.layers[0 if self.spec.shared else k]
        args: tuple[Any, ...] = (h,)
        kwargs: dict[str, Any] = {}
        if spec.signature == "second":
            assert self.places is not None
            place = self.places[k].view(1, D, 1, 1) if spec.shape == "image" else self.places[k]
            args = (place.expand_as(h), h)
        elif spec.signature == "keyword":
            args, kwargs = (), {"hidden_states": h}
        elif spec.signature == "mask":
            args = (h, mask)
        if spec.wrapper.startswith("checkpoint"):
            if kwargs:
                out = checkpoint(block, use_reentrant=False, **kwargs)
            else:
                out = checkpoint(block, *args, use_reentrant=spec.wrapper.endswith("reentrant"))
        elif spec.wrapper == "functional":
            out = functional_call(self.layers[0], dict(block.named_parameters()), args, kwargs)
        else:
            out = block(*args, **kwargs)
        return out[0] if spec.signature == "tuple" else out

    def combined(self, k: int, h: Tensor, f: Tensor) -> Tensor:
        form = self.spec.residual
        if form in INSIDE:
            return f
        if form.startswith("model_rezero"):
            return h + self.alphas[k] * f
        if form == "model_gated":
            return h + torch.sigmoid(self.gate(h)) * f
        if form == "model_highway":
            t = torch.sigmoid(self.gate(h))
            return t * f + (1 - t) * h
        if form == "model_minus":
            return h - f
        if form == "model_post":
            return self.norms[k](h + f)
        if form == "model_scaled_skip":
            return 0.7 * h + f
        if form == "model_add_":
            return h.add_(f)
        if form == "model_iadd":
            h += f
            return h
        return h + f

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        spec = self.spec
        h = self.tape(self.stem(x))
        beside: Tensor | None = None
        if spec.side == "h0":
            beside = self.side(self.readout.pool(h, mask))
        elif spec.side == "norm_h0":
            beside = self.readout.pool(h, mask).pow(2).mean(-1, keepdim=True)
        elif spec.side == "x":
            beside = self.side(x.flatten(1))
        first = h
        for k in range(spec.depth):
            h = self.combined(k, h, self.through(k, h, mask))
            if k == 1 and spec.side == "skip2":
                h = h + 0.5 * first
            h = self.tape(h)
            if k == 0 and spec.side == "h1":
                beside = self.side(self.readout.pool(h, mask))
        logits = self.readout(h, mask)
        if spec.tied:
            logits = logits @ self.stem.table.weight.t()
        if beside is not None:
            logits = logits * (1 + beside) if spec.side == "norm_h0" else logits + beside
        return logits


def identities(spec: Spec) -> tuple[int, ...]:
    last = spec.depth - 1
    return {
        "none": (),
        "first": (0,),
        "middle": (last // 2,),
        "last": (last,),
        "all": tuple(range(spec.depth)),
    }[spec.identity]


def input_shape(spec: Spec) -> tuple[int, ...]:
    return {"vector": (IN,), "image": (3, SIDE, SIDE)}.get(spec.shape, (T,) if spec.tied else (T, IN))


def make_batches(spec: Spec, sizes: tuple[int, ...] = SIZES) -> list[Batch]:
    gen = torch.Generator().manual_seed(1000 + spec.seed)
    found: list[Batch] = []
    for n in sizes:
        y = torch.randint(VOCABULARY if spec.tied else C, (n,), generator=gen)
        if spec.tied:
            x = torch.randint(VOCABULARY, (n, T), generator=gen)
        else:
            x = torch.randn(n, *input_shape(spec), generator=gen).to(DTYPES[spec.dtype])
        if not spec.masked:
            found.append((x, y))
            continue
        lengths = torch.randint(2, T + 1, (n,), generator=gen)
        lengths[:3] = T  # the first samples show no padding
        found.append(((x, torch.arange(T) < lengths.unsqueeze(1)), y))
    return found


def build(spec: Spec) -> Network:
    """The network of a sentence."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        net: Any = Net(spec)
        if spec.wrapper == "sequential":
            net = sequence(spec)
        elif spec.wrapper == "parallel":
            net = nn.DataParallel(net)
        elif spec.wrapper == "holder":
            net = Holder(net)
    net.to(DTYPES[spec.dtype])
    names = block_names(spec)
    return Network(
        net,
        make_batches(spec),
        blocks_of(net, names) if spec.named else None,
        read=true_read(spec),
        batch_dim=1 if spec.shape == "time_first" else 0,
        dtype=DTYPES[spec.dtype],
        marks=("beside",) if spec.side != "none" else (),
        false_alarms="none" if spec.masked else "swap" if spec.signature == "second" else "all",
        names=names if not spec.named else None,
    )


class Holder(nn.Module):
    """Wraps a network, as many libraries do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


def blocks_of(net: nn.Module, names: tuple[str, ...]) -> list[Any]:
    """The names once each; those inside DataParallel as modules (it is looked through, so names have two forms)."""
    once = list(dict.fromkeys(names))
    return [net.module.get_submodule(n) for n in once] if isinstance(net, nn.DataParallel) else once


def sequence(spec: Spec) -> nn.Sequential:
    tape = Tape()
    blocks = [Block(spec, k in identities(spec)) for k in range(1 if spec.shared else spec.depth)]
    blocks = blocks * spec.depth if spec.shared else blocks
    return nn.Sequential(Stem(spec), nn.Sequential(*(Recording(b, tape) for b in blocks)), Readout(spec, tape))


def block_names(spec: Spec) -> tuple[str, ...]:
    """One name for each call of a block."""
    if spec.wrapper == "sequential":
        return tuple(f"1.{k}" for k in range(spec.depth))
    start = "inner." if spec.wrapper == "holder" else ""
    one = spec.shared or spec.wrapper == "functional"
    return tuple(f"{start}layers.{0 if one else k}" for k in range(spec.depth))


def true_read(spec: Spec) -> str:
    if spec.shape == "vector":
        return "vector"
    return spec.pooling if spec.is_tokens and spec.pooling in ("cls", "last", "mean") else "flatten"


def expectation(spec: Spec) -> str:
    """See `Case`."""
    if not spec.named and (
        spec.residual not in ADDITIVE or spec.signature != "first" or spec.depth == 1 or spec.side != "none"
    ):
        return EITHER  # a search may give up
    if spec.depth == 1 and spec.residual in MODEL and spec.residual not in ADDITIVE:
        return EITHER  # one step does not tell its own end from the beginning of the readout
    return MARK if spec.side != "none" else MEASURE


def classes(spec: Spec) -> tuple[int, ...]:
    """Kinds of defect that the sentence belongs to."""
    found = {
        1: spec.branch != "usual" or spec.residual.endswith("rezero_0"),
        2: spec.identity != "none",
        3: spec.side != "none",
        4: (spec.residual in MODEL and spec.residual not in ADDITIVE) or spec.signature == "second",
        7: spec.is_tokens and spec.pooling not in ("cls", "last", "mean"),
        8: not spec.named,
    }
    return tuple(k for k, holds in found.items() if holds)


def case(spec: Spec) -> Case:
    return network(spec.name, lambda: build(spec), expectation(spec), classes(spec))


def _listed() -> list[Spec]:
    """The sentences of the fixed list."""
    found = [Spec()]
    found += [Spec(residual=r) for r in INSIDE + MODEL]
    found += [Spec(residual=r, branch=b, depth=6) for r in INSIDE[:-1] for b in ("zero", "near_zero")]
    found += [Spec(residual=r, branch="zero", depth=6) for r in ("model", "model_post", "model_gated", "model_minus")]
    found += [Spec(residual=r, branch="zero", terminal=False) for r in ("inside", "model", "inside_linear_skip")]
    found += [Spec(residual=r, terminal=False) for r in ("model_post", "model_rezero_0", "model_minus")]
    found += [Spec(norm=n) for n in ("none", "post", "rms", "batch")]
    found += [Spec(shape="tokens", pooling=p) for p in POOLINGS]
    found += [
        Spec(shape="tokens", pooling=p, terminal=False, residual="model") for p in ("mean", "sum", "max", "last_real")
    ]
    found += [Spec(shape="time_first", pooling=p) for p in ("cls", "last", "mean", "flatten")]
    found += [
        Spec(shape="image", residual=r, norm=n)
        for r, n in (("inside", "batch"), ("model", "none"), ("inside_iadd", "batch"))
    ]
    found += [
        Spec(shared=True),
        Spec(shared=True, residual="model", depth=6),
        Spec(shape="tokens", tied=True, pooling="mean"),
    ]
    found += [Spec(side=s) for s in ("h0", "x", "h1", "skip2", "norm_h0")]
    found += [Spec(side=s, residual="model", shape="tokens", pooling="mean") for s in ("h0", "x", "skip2")]
    found += [Spec(dtype=d, residual=r) for d in ("float64", "bfloat16") for r in ("inside", "model", "model_gated")]
    found += [Spec(depth=k) for k in (1, 2, 6)] + [
        Spec(depth=1, residual="model"),
        Spec(depth=1, residual="model_rezero_0"),
    ]
    found += [
        Spec(wrapper=w)
        for w in ("sequential", "parallel", "holder", "checkpoint", "checkpoint_reentrant", "functional")
    ]
    found += [Spec(wrapper="sequential", branch="zero", shape="tokens", depth=6)]
    found += [Spec(signature=s) for s in ("second", "keyword", "tuple")]
    found += [Spec(signature=s, shape="tokens", residual="model") for s in ("second", "keyword", "tuple", "mask")]
    found += [Spec(identity=i) for i in ("first", "middle", "last", "all")]
    found += [Spec(identity="middle", side="h0"), Spec(identity="last", shape="tokens", wrapper="sequential")]
    found += [Spec(named=False, residual=r) for r in ("inside", "model", "plain", "model_post")]
    found += [Spec(named=False, branch="zero", residual=r, depth=6) for r in ("inside", "model")]
    found += [
        Spec(named=False, wrapper="sequential"),
        Spec(named=False, shared=True),
        Spec(named=False, wrapper="parallel"),
    ]
    return list(dict.fromkeys(sense(s) for s in found))


CASES = [case(spec) for spec in _listed()]
