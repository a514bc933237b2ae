"""The judge of the odd networks: what a network's numbers are, found without any part of creditscope.

A network of ours records its own states: its forward pass hands each h_l to a `Tape`, which adds a zero that carries a
gradient, so that g_l is the total derivative with respect to that state through every later use of it. A foreign network is
read by plain forward hooks with `retain_grad`. Both run on a float64 copy. The protocol's text gives the rest:

    h_l (l < L) enters block l; h_L is what the last residual step gives, before terminal norm, pooling and head
    g_l = d(sum over samples of the loss) / d h_l
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from creditscope import CreditscopeError, diagnose

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 5e-2}
NAMED = ("cls", "last", "mean")
"""Readings that say which tokens the head reads; `flatten` is true of any token model and says less."""
Batch = tuple[Any, Tensor]


class WrongError(AssertionError):
    """The report says something that is not so, or the model was not left as found."""


class Tape:
    """Where a network of ours puts down its states, if it is asked to. Off: gives back the very tensor."""

    def __init__(self) -> None:
        self.on = False
        self.states: list[Tensor] = []
        self.probes: list[Tensor] = []
        self.shifts: dict[int, Tensor] = {}
        """Added to the states of these layers; for tests of the oracle itself."""

    def __call__(self, h: Tensor) -> Tensor:
        if not self.on:
            return h
        probe = torch.zeros_like(h, requires_grad=True)
        self.states.append(h.detach().clone())
        self.probes.append(probe)
        shift = self.shifts.get(len(self.states) - 1)
        return h + probe if shift is None else h + probe + shift


@dataclass
class Pass:
    """One batch: states and gradients in the network's own shapes, logits, labels as they are scored."""

    states: list[Tensor]
    grads: list[Tensor]
    logits: Tensor
    y: Tensor


def eval_copy(model: nn.Module, dtype: torch.dtype) -> Any:
    twin = copy.deepcopy(model)
    return (twin.double() if dtype == torch.float64 else twin.to(dtype)).eval()  # `to` makes complex weights real


def cast(inputs: Any, dtype: torch.dtype) -> Any:
    return tree_map(lambda t: t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t, inputs)


def call(model: nn.Module, inputs: Any) -> Tensor:
    """Logits."""
    if isinstance(inputs, dict):
        out = model(**inputs)
    elif isinstance(inputs, tuple):
        out = model(*inputs)
    else:
        out = model(inputs)
    if isinstance(out, Tensor):
        return out
    return out["logits"] if hasattr(out, "keys") else out[0]


def losses(logits: Tensor, y: Tensor) -> Tensor:
    """Loss of each sample; with a label per token the sum over the tokens that are scored."""
    if y.dim() == 1:
        return F.cross_entropy(logits, y, reduction="none")
    return F.cross_entropy(logits.transpose(1, 2), y, reduction="none", ignore_index=-100).sum(1)


def by_tape(model: nn.Module, batches: Sequence[Batch], dtype: torch.dtype = torch.float64) -> list[Pass]:
    """The states that the network itself puts down."""
    twin = eval_copy(model, dtype)
    tape = next(m.tape for m in twin.modules() if hasattr(m, "tape"))
    found = []
    for inputs, y in batches:
        tape.on, tape.states, tape.probes = True, [], []
        logits = call(twin, cast(inputs, dtype))
        losses(logits, y).sum().backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in tape.probes]
        found.append(Pass(tape.states, grads, logits.detach(), y))
    return found


def by_hooks(
    model: nn.Module, batches: Sequence[Batch], blocks: Sequence[str], dtype: torch.dtype = torch.float64
) -> list[Pass]:
    """What enters each of the named modules, in the order of the names, and what the last one gives back."""
    twin = eval_copy(model, dtype)
    found = []
    for inputs, y in batches:
        kept: dict[int, Tensor] = {}

        def keep(k: int, h: Tensor, kept: dict[int, Tensor] = kept) -> None:
            h.retain_grad()
            kept[k] = h

        def entering(k: int) -> Callable[..., None]:
            return lambda _, args, kwargs: keep(k, args[0] if args else kwargs["hidden_states"])

        handles = [
            twin.get_submodule(name).register_forward_pre_hook(entering(k), with_kwargs=True)
            for k, name in enumerate(blocks)
        ]
        last = twin.get_submodule(blocks[-1])
        handles.append(
            last.register_forward_hook(
                lambda _, args, out: keep(len(blocks), out if isinstance(out, Tensor) else out[0])
            )
        )
        logits = call(twin, cast(inputs, dtype))
        losses(logits, y).sum().backward()
        for handle in handles:
            handle.remove()
        order = [kept[k] for k in range(len(blocks) + 1)]
        grads = [torch.zeros_like(h) if h.grad is None else h.grad for h in order]
        found.append(Pass([h.detach() for h in order], grads, logits.detach(), y))
        twin.zero_grad()
    return found


def vectors(t: Tensor, read: str, gradient: bool, batch_dim: int = 0) -> Any:
    """One vector per sample, [B, n] in numpy."""
    t = t.movedim(batch_dim, 0)
    if read == "cls":
        t = t[:, 0]
    elif read == "last":
        t = t[:, -1]
    elif read == "mean":
        t = t.sum(1) if gradient else t.mean(1)
    return t.double().reshape(len(t), -1).numpy()


def credit_by_class(batch_dim: int = 0, by_label: bool = True) -> Callable[..., list[Tensor]]:
    """A fixed random credit in the shape of h_l: a_l of a sample depends on its label (and on nothing else of the batch)."""

    def credit(hiddens: Sequence[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        n, found = len(y), []
        key = (y % 7).cpu() if by_label and y.dim() == 1 else torch.zeros(n, dtype=torch.long)
        for layer, h in enumerate(hiddens):
            at = batch_dim if h.dim() > batch_dim and h.shape[batch_dim] == n else 0
            shape = h.movedim(at, 0).shape[1:]
            table = torch.randn((7, *shape), generator=torch.Generator().manual_seed(100 + layer), dtype=torch.float64)
            found.append(table[key].movedim(0, at).to(h))
        return found

    return credit


def expected(
    passes: Sequence[Pass], read: str, batch_dim: int, credit: Callable[..., list[Tensor]] | None
) -> dict[str, Any]:
    """Every number that a report is held against."""
    depth = len(passes[0].states) - 1
    h_norms: list[list[float]] = [[] for _ in range(depth + 1)]
    g_norms: list[list[float]] = [[] for _ in range(depth + 1)]
    cosines: list[list[float]] = [[] for _ in range(depth + 1)]
    right, each = [], []
    for one in passes:
        given = credit(one.states, one.logits, one.y) if credit else [None] * (depth + 1)
        for layer, (h, g, a) in enumerate(zip(one.states, one.grads, given, strict=True)):
            hs, gs = vectors(h, read, False, batch_dim), vectors(g, read, True, batch_dim)
            h_norms[layer] += list(np.sqrt((hs**2).sum(1)))
            g_norms[layer] += list(np.sqrt((gs**2).sum(1)))
            if a is not None:
                rows = vectors(a, read, True, batch_dim)
                size = np.sqrt((rows**2).sum(1) * (gs**2).sum(1))
                cosines[layer] += [float(d / s) for d, s in zip((rows * gs).sum(1), size, strict=True) if s > 0]
        each += losses(one.logits, one.y).tolist()
        scored = one.y != -100
        right += (one.logits.argmax(-1) == one.y)[scored].double().tolist()
    h_mean, g_mean = [float(np.mean(v)) for v in h_norms], [float(np.mean(v)) for v in g_norms]
    return {
        "depth": depth,
        "h": h_mean,
        "g": g_mean,
        "growth": max(b / a if a else math.inf for a, b in pairwise(h_mean)),
        "zero_share": [float(np.mean(np.array(v) == 0)) for v in g_norms],
        "cosine": [float(np.mean(v)) if v else None for v in cosines] if credit else None,
        "accuracy": float(np.mean(right)),
        "loss": float(np.mean(each)),
    }


@dataclass
class Network:
    """A model with all that is known of it."""

    model: nn.Module
    batches: list[Batch]
    blocks: Any
    """As given to creditscope; None: it has to find them."""
    passes: Callable[[nn.Module, Sequence[Batch]], list[Pass]] = by_tape
    read: str = "vector"
    """The true pooling: vector, cls, last, mean, or `flatten` for any other and for feature maps."""
    batch_dim: int = 0
    dtype: torch.dtype = torch.float32
    marks: tuple[str, ...] = ()
    """What the report has to say: beside, dependent, zero."""
    false_alarms: str = "all"
    """Which doubts of the stream would be wrong: "all", "swap" (what reaches the blocks may be named), "none" (masks)."""
    options: dict[str, Any] = field(default_factory=dict)
    given: Any = None
    """The batches as creditscope gets them, if not as the oracle does."""
    names: tuple[str, ...] | None = None
    """The blocks that a report has to name."""
    watched: tuple[Any, ...] = ()
    """Further objects that have to be left as found: generators."""
    by_label: bool = True
    kind: str | None = None
    """`residual` or `plain`, where a report has to say it."""


def check(net: Network) -> str:
    """Measure and compare; '' if all is exact, `flatten` if a nearer name for the read was possible. Raises what is wrong."""
    credit = credit_by_class(net.batch_dim, net.by_label)
    truth = net.passes(net.model, net.batches)
    given = net.batches if net.given is None else net.given
    with left_as_found(net.model, net.batches, *net.watched):
        report = diagnose(net.model, given, blocks=net.blocks, credit=credit, **net.options)
    return compare(report, net, truth, credit)


def compare(report: Any, net: Network, truth: Sequence[Pass], credit: Callable[..., list[Tensor]]) -> str:
    facts = report.facts
    read = facts.stream.read
    if net.names is not None and tuple(facts.stream.blocks) != net.names:
        raise WrongError(f"the blocks are {facts.stream.blocks}, in truth {net.names}")
    if net.kind is not None and facts.stream.kind != net.kind:
        raise WrongError(f"the stream is called {facts.stream.kind}, in truth {net.kind}")
    if facts.stream.depth != len(truth[0].states) - 1:
        raise WrongError(f"depth {facts.stream.depth}, in truth {len(truth[0].states) - 1}")
    allowed = {net.read, "flatten"}
    if read not in allowed:
        raise WrongError(f"read is named {read!r}, in truth {net.read!r}")
    wanted = expected(truth, read, net.batch_dim, credit)
    tolerance = TOLERANCE[net.dtype]
    same("depth", [facts.stream.depth], [wanted["depth"]], 0)
    same("accuracy", [facts.accuracy], [wanted["accuracy"]], 0.3 if net.dtype == torch.bfloat16 else 1e-9)
    same("loss", [facts.loss], [wanted["loss"]], tolerance)
    same("h", facts.scale.mean, wanted["h"], tolerance)
    same("growth", [facts.scale.growth], [wanted["growth"]], tolerance)
    same("g", facts.reference.per_sample, wanted["g"], tolerance)
    if facts.alignment is None:
        raise WrongError("no alignment, though credit was given")
    same("cosine", facts.alignment.mean, wanted["cosine"], tolerance, absolute=tolerance)
    if facts.perturbation is not None and facts.perturbation.reference is not None:
        for layer, rho in enumerate(facts.perturbation.reference.mean):
            if rho is not None and rho < 0.95:
                raise WrongError(f"the positive control of ρ is {rho:.3g} at layer {layer}")
    check_marks(report, net, wanted)
    return "flatten" if net.read in NAMED and read == "flatten" else ""


def same(what: str, got: Sequence[Any], wanted: Sequence[Any], tolerance: float, absolute: float = 0.0) -> None:
    """Equal to a relative tolerance; next to nothing (1e-9 of the largest) counts as zero."""
    if len(got) != len(wanted):
        raise WrongError(f"{what} has {len(got)} entries, in truth {len(wanted)}")
    largest = max((abs(w) for w in wanted if w is not None and math.isfinite(w)), default=0.0)
    for layer, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if a is None or b is None:
            close = a is None and b is None
        elif math.isfinite(b):
            close = abs(a - b) <= max(tolerance * abs(b), absolute, 1e-9 * largest)
        else:
            close = a == b
        if not close:
            where = f"{what}_{layer}" if len(wanted) > 1 else what
            raise WrongError(f"{where} = {shown(a)}, in truth {shown(b)}")


def shown(value: Any) -> str:
    return "None" if value is None else f"{value:.6g}"


SAID = {"beside": r"beside|around|carr(y|ies)|swap|side path|reach",
    "dependent": r"depend|coupled|influence|other samples|the batch", "zero": r"zero|g(_\w+)? = 0|no gradient"}  # fmt: skip
"""What a warning's sentence mentions, at the least."""


def check_marks(report: Any, net: Network, wanted: dict[str, Any]) -> None:
    """What must be said is said as a fact and as a sentence; what is not so is not said."""
    proof = getattr(report.facts, "proof", None)
    for mark in net.marks:
        if proof is None:
            raise WrongError(f"nothing is said of {mark!r}: the facts hold no proof")
        if mark == "beside" and not (proof.beside or any(e is not None and e > 1e-3 for e in proof.swap)):
            raise WrongError("something goes around the stream, and the proof does not show it")
        if mark == "dependent" and proof.independent is not False:
            raise WrongError(f"samples influence each other, and the proof says independent = {proof.independent}")
        if mark == "zero" and not any(report.facts.reference.zero_samples):
            raise WrongError("samples with g = 0 are not reported")
        if not any(re.search(SAID[mark], w, re.IGNORECASE) for w in report.verdict.warnings):
            raise WrongError(f"no warning mentions {mark!r}: {list(report.verdict.warnings)}")
    if proof is None:
        return
    zero = [n / report.facts.convention.n_samples for n in report.facts.reference.zero_samples]
    same("zero_share", zero, wanted["zero_share"], 0, absolute=1e-9 if net.dtype != torch.bfloat16 else 1.0)
    rough = 0.2 if net.dtype == torch.bfloat16 else 1e-2
    if proof.gradient and any(e is not None and e > rough for e in proof.gradient):
        raise WrongError(f"the proof doubts a true gradient: {proof.gradient}")
    if "dependent" in net.marks:
        return
    if proof.independent is False:
        raise WrongError("the proof says that samples influence each other; they do not")
    if "beside" not in net.marks and net.false_alarms != "none":
        if any(e is not None and e > rough for e in proof.swap):
            raise WrongError(f"the swap test doubts a stream that carries everything: {proof.swap}")
        if proof.beside and net.false_alarms == "all":
            raise WrongError(f"{proof.beside} is said to reach the blocks beside the stream; nothing does")


# ---- left as found ------------------------------------------------------------------------------------------------


def fingerprint(model: nn.Module | None, *others: Any) -> dict[str, Any]:
    """The whole state: model, the tensors it is fed with, every generator."""
    state: dict[str, Any] = {}
    if model is not None:
        for name, t in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
            state[f"value of {name}"] = t.detach().clone()
            state[f"identity of {name}"] = id(t)
            state[f"flag of {name}"] = t.requires_grad
            state[f"grad of {name}"] = None if t.grad is None else t.grad.clone()
            state[f"identity of the grad of {name}"] = None if t.grad is None else id(t.grad)
            state[f"hooks on {name}"] = len(t._backward_hooks or ())
        for name, m in model.named_modules():
            state[f"mode of {name or 'the model'}"] = m.training
            for kind in vars(m):
                if kind.endswith("hooks"):
                    state[f"{kind} of {name or 'the model'}"] = len(getattr(m, kind))
                elif isinstance(getattr(m, kind), bool):
                    state[f"attribute {kind} of {name or 'the model'}"] = getattr(m, kind)
            state[f"attributes of {name or 'the model'}"] = sorted(vars(m))
    for k, other in enumerate(others):
        if isinstance(other, torch.Generator):
            state[f"generator {k}"] = other.get_state()
            continue
        for j, t in enumerate(t for t in tree_flatten(other)[0] if isinstance(t, Tensor)):
            state[f"input {k}.{j}"] = t.detach().clone()
            state[f"flag of input {k}.{j}"] = (t.requires_grad, t.grad is None)
    kept: Any = np.random.get_state()  # noqa: NPY002
    state |= {
        "torch's generator": torch.get_rng_state(),
        "numpy's": torch.from_numpy(np.array(kept[1], dtype=np.int64)),
    }
    state |= {"numpy's place": kept[2], "python's": random.getstate(), "grad mode": torch.is_grad_enabled()}
    state |= {"default dtype": torch.get_default_dtype(), "threads": torch.get_num_threads()}
    return state


@contextlib.contextmanager
def left_as_found(model: nn.Module | None, *others: Any) -> Iterator[None]:
    """Raises what is no longer as it was, also where a refusal is under way."""
    before = fingerprint(model, *others)
    try:
        yield
    finally:
        after = fingerprint(model, *others)
        changed = [k for k in before if k not in after] + [k for k in after if k not in before]
        for name, value in before.items():
            if name in after:
                as_before = equal(value, after[name]) if isinstance(value, Tensor) else value == after[name]
                if not as_before:
                    changed.append(name)
        if changed:
            raise WrongError(f"not left as found: {', '.join(changed[:4])}")


def equal(a: Tensor, b: Any) -> bool:
    """Bit by bit (a NaN equals itself)."""
    return (
        isinstance(b, Tensor)
        and a.dtype == b.dtype
        and torch.equal(a.nan_to_num(7.25), b.nan_to_num(7.25))
        and torch.equal(a.isnan(), b.isnan())
    )


# ---- cases --------------------------------------------------------------------------------------------------------

MEASURE, MARK, REFUSE, EITHER = "measure", "mark", "refuse", "either"


@dataclass(frozen=True)
class Case:
    """One odd network.

    expect: `measure` (a refusal is a gap), `mark` (measured, and the report says what is odd; a refusal is a gap), `refuse`
        (no number is right), `either` (exact or refused; the network does not decide it).
    classes: numbers of the kinds of defect that it belongs to.
    says: what the line of a refusal has to mention, as a pattern.
    """

    name: str
    run: Callable[[], str | None]
    expect: str = MEASURE
    classes: tuple[int, ...] = ()
    says: str = ""
    build: Callable[[], Network] | None = None
    """The network, where the case is one that is measured and compared in everything."""


@dataclass(frozen=True)
class Outcome:
    name: str
    outcome: str
    """exact, refused or wrong."""
    line: str
    gap: bool = False
    classes: tuple[int, ...] = ()


def outcome(case: Case) -> Outcome:
    """Run one case."""

    def found(kind: str, line: str, gap: bool = False) -> Outcome:
        return Outcome(case.name, kind, " ".join(line.split()), gap, case.classes)

    try:
        note = case.run() or ""
    except CreditscopeError as error:
        line = str(error)
        if not line.strip() or "\n" in line:
            return found("wrong", f"refused, not in one line: {line}")
        if not re.search(case.says, line, re.IGNORECASE):
            return found("wrong", f"refused for another reason than the true one: {line}")
        return found("refused", line, case.expect in (MEASURE, MARK))
    except WrongError as error:
        return found("wrong", str(error))
    except Exception as error:  # whatever else comes out is what the zoo looks for
        return found("wrong", f"{type(error).__name__}: {error}"[:300])
    if case.expect == REFUSE:
        return found("wrong", "measured, where no number is right")
    return found("exact", note, note == "flatten")


def network(
    name: str, build: Callable[[], Network], expect: str = MEASURE, classes: tuple[int, ...] = (), says: str = ""
) -> Case:
    """The usual case: measured, and compared in everything."""
    return Case(name, lambda: check(build()), expect, classes, says, build)
