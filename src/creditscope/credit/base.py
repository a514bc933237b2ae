"""What a credit rule is: given the hidden states, logits and labels of a batch, the credit a_l at every layer.

Credit has the sign of a gradient (a step against it lowers the loss) and the scale of a per-sample loss. At each layer
it is a [B, d_l] tensor: the vector that is read from the stream (token models: the read token; feature maps: flattened).
A rule may also return the native shape of h_l.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from creditscope.credit.adamw import AdamW
from creditscope.credit.layers import idle_note, trained_layers
from creditscope.credit.places import put
from creditscope.errors import CreditscopeError, complaint, meant, with_article
from creditscope.stream.interface import InterfaceStream, Stream
from creditscope.stream.labels import IGNORED

RMS_EPS = 1e-6


@dataclass
class CreditBatch:
    """What a rule may look at. All tensors are detached."""

    stream: Stream
    hiddens: list[Tensor]
    """Native h_0..h_L."""
    logits: Tensor
    """[B, C]; language models [B, T, C]."""
    y: Tensor
    """[B]; language models [B, T], -100 where a token is not scored."""
    output_grad: Tensor | None = None
    """Exact per-sample gradient of the loss at h_L as it is read: [B, d_L]."""
    inputs: Any = None
    """What the network was given, as it was given."""
    later: Later | None = None
    """Where the finiteness of the credit is noted, to be asked once per epoch; None: it is asked at once."""
    labels: Tensor | None = None
    """y on the CPU, where it is known there; None: as y is."""

    @cached_property
    def is_finite(self) -> Tensor:
        """Is all finite that the network handed to the rule? A flag on its device."""
        return _all_finite(_given(self))

    def exact_top(self, name: str) -> Tensor:
        """`output_grad`, which the rule of this name cannot do without."""
        if self.output_grad is None:
            raise CreditscopeError(f"credit rule {name!r} needs the exact gradient at h_L and none was given")
        return self.output_grad

    @property
    def error(self) -> Tensor:
        """e = softmax(logits) - onehot(y), [B, C]: the gradient of the per-sample loss at the logits.

        Language models: [B, T, C], zero at tokens that are not scored (label -100).
        """
        if self.y.is_floating_point() or self.y.shape != self.logits.shape[:-1]:
            raise CreditscopeError(
                f"e = softmax(logits) - onehot(y) needs one class per row of logits; logits are {list(self.logits.shape)} and "
                f"labels {list(self.y.shape)} ({self.y.dtype}); give credit= a callable that knows the loss"
            )
        if self.y.dim() > 1 and not self.stream.scores_tokens:
            raise CreditscopeError(
                f"labels {list(self.y.shape)} are per token and h_L is {list(self.stream.shapes[-1])} per sample: e has no "
                "place in it; give credit= a callable"
            )
        half = self.logits.dtype in (torch.float16, torch.bfloat16)
        e = torch.softmax(self.logits.float() if half else self.logits, dim=-1).to(self.logits.dtype)
        label = (self.y if self.y.dim() == 1 else self.y.clamp_min(0)).unsqueeze(-1)
        e = e.scatter_add(-1, label, e.new_full((), -1.0).expand(label.shape))
        return e if self.y.dim() == 1 else e * (self.y != IGNORED).unsqueeze(-1)


class Later:
    """Questions about the credit of many batches that are kept on the device: the host waits for the answer once."""

    def __init__(self) -> None:
        self._wrong: dict[tuple[str, int], Tensor] = {}

    def note(self, name: str, layer: int, a: Tensor, batch: CreditBatch) -> None:
        """Is `a` not finite although what the network handed to the rule is?"""
        wrong = ~_all_finite([a]) & batch.is_finite
        known = self._wrong.get((name, layer))
        self._wrong[name, layer] = wrong if known is None else known | wrong

    def answers(self) -> Tensor | None:
        """One flag for each rule and layer, still on the device; None: nothing was asked."""
        return torch.stack(list(self._wrong.values())) if self._wrong else None

    def settle(self, answers: Sequence[float]) -> None:
        """Refuse what was found; `answers`: the flags, on the host."""
        for (name, layer), wrong in zip(self._wrong, answers, strict=True):
            if wrong:
                raise _not_finite(name, layer)
        self._wrong.clear()


def _all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Is every number finite? A flag on their device."""
    return torch.stack([torch.linalg.vector_norm(t.detach(), torch.inf).isfinite() for t in tensors]).all()


def _not_finite(name: str, layer: int) -> CreditscopeError:
    return CreditscopeError(
        f"credit rule {name!r} returned NaN or Inf at layer {layer} although the network's states are finite"
    )


class Options(BaseModel):
    """Settings of a rule; a subclass names them with their defaults and limits. They are part of the run's spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    later: ClassVar[frozenset[str]] = frozenset()
    """Options that came after runs had been recorded. At their default they stay out of a spec: those runs keep their names."""

    def recorded(self) -> dict[str, Any]:
        """What a spec records: every option, but one of `later` only where it is not at its default."""
        given = self.model_dump(exclude_defaults=True)
        return {k: v for k, v in self.model_dump().items() if k not in self.later or k in given}


class CreditRule(ABC):
    """Base of every rule. Subclass it, give it a `name`, and implement `credit` (and `setup` if it owns tensors)."""

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    """One line for `creditscope rules`."""
    is_exact: ClassVar[bool] = False
    """True if the credit is the backpropagation gradient itself."""
    exact_at_top: ClassVar[bool] = False
    """True if a_L alone is."""
    runs_parts: ClassVar[bool] = False
    """True if it runs parts of the model by themselves, so that any other model than one with the interface is refused."""
    uses_norm: ClassVar[bool] = True
    """Whether credit_norm and credit_site apply to this rule."""
    objective: ClassVar[str] = "local"
    """`local`: blocks minimise <f_l(h_l), a>; `exact`: backpropagation end to end; `own`: the rule's own `backward`."""
    site: ClassVar[str | None] = None
    """Where block l learns from, if the rule itself says so (`uses_norm` is then False); None: the run's credit_site."""
    has_feedback: ClassVar[bool] = False
    """True if `setup` draws feedback that `redraw` can draw again."""
    numbers: tuple[str, ...] = ()
    """Attributes that `state` saves and `load` takes back by themselves: whole numbers, yes or no, or a list of numbers."""
    tensors: ClassVar[tuple[str, ...]] = ()
    """The same for attributes that hold a tensor, a list of tensors (saved as `B.0`, `B.1`, ...) or a dict of them (`B.name`)."""
    needs_float64: ClassVar[bool] = False
    """True if training by it computes in float64, which not every device has."""
    Options: ClassVar[type[Options]] = Options
    credit_site: str | None = None
    """`input`: block l learns from a_l; `output`: from a_{l+1}. Set by training and by a bundle; None: not stated."""
    first_trained: int = 0
    """Blocks below it are frozen. Set by training and by a bundle."""
    uncredited: frozenset[int] | None = None
    """Layers for which `credit` returned None; None before the first batch."""
    seed: int = 0
    steps: int = 0
    """Of a rule that draws at every training step: it names both in `numbers`, sets the one in `setup` and counts the other."""

    def __init__(self, **options: Any) -> None:
        try:
            self.options = self.Options(**options)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            known = ", ".join(self.Options.model_fields) or "none"
            if first["type"] == "extra_forbidden":
                reason = f"no such option; {meant(where, self.Options.model_fields)}".rstrip("; ")
            else:
                reason = complaint(first)
            raise CreditscopeError(f"option {where!r} of method {self.name}: {reason} (options: {known})") from None

    def setup(self, stream: Stream, n_classes: int, generator: torch.Generator) -> None:
        """Draw whatever the rule owns for this stream."""

    def to(self, device: torch.device | str) -> CreditRule:
        """Move every tensor, network and optimiser that the rule owns to a device; the rule itself is given back."""
        put(vars(self), torch.device(device))
        return self

    def attach(self, stream: Stream) -> None:
        """Called before a measurement: refuse a stream that the rule was not made for."""
        if self.runs_parts:
            as_interface(stream, self.name)

    @abstractmethod
    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        """[a_0, ..., a_L], detached."""

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Called before each training epoch (1..epochs of the schedule): warm-up, annealing."""

    def learn(self, batch: CreditBatch) -> None:
        """Called on each training batch before `credit`: a rule with networks of its own trains them here."""

    def backward(self, stream: InterfaceStream, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        """For `objective = "own"`: leave the gradients of one batch in .grad; returns the mean loss (detached)."""
        raise CreditscopeError(f"credit rule {self.name!r} has objective 'own' and no backward()")

    def after_step(self, stream: InterfaceStream, optimizer: AdamW) -> None:
        """Called after each step of the optimiser; the gradients are still there. A rule moves its feedback here."""

    def redraw(self, stream: Stream, n_classes: int, generator: torch.Generator) -> CreditRule | None:
        """The same rule with everything random redrawn and nothing trained (fresh-B null); None: not applicable."""
        if not self.has_feedback:
            return None
        fresh = type(self)(**self.options.model_dump())
        fresh.setup(stream, n_classes, generator)
        return fresh

    def step_generator(self) -> torch.Generator:
        """Of this training step alone: a resumed run draws the same."""
        return torch.Generator().manual_seed(self.seed + self.steps)

    def diagnostics(self) -> dict[str, float]:
        """Numbers about the last credit that belong into the trajectory (EP: how far its relaxation came)."""
        return {}

    def exact_layers(self, depth: int) -> tuple[int, ...]:
        """Layers whose credit is the reference by construction."""
        return tuple(range(depth + 1)) if self.is_exact else (depth,) if self.exact_at_top else ()

    def trained_layers(self, depth: int, kind: str) -> tuple[int, ...]:
        """Layers whose credit trains something in a stream of this depth and kind: only these count in Γ and other means."""
        site = self.credit_site if self.objective == "local" else None
        missing = self.uncredited or frozenset()
        return tuple(k for k in trained_layers(depth, kind, site, self.first_trained) if k not in missing)

    def counting_note(self, depth: int, kind: str) -> str:
        """Why these layers count, where it does not go without saying."""
        if self.objective == "local" and self.credit_site is None:
            return "where a block takes its credit (credit_site) is not stated: every layer counts"
        return idle_note(depth, self.trained_layers(depth, kind))

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the rule needs again: saved with the model, always."""
        values = {name: getattr(self, name) for name in self.numbers}
        found = {name: torch.tensor(v if isinstance(v, list) else int(v)) for name, v in values.items()}
        for name in self.tensors:
            held = getattr(self, name)
            named = {name: held} if isinstance(held, Tensor) else {f"{name}.{key}": t for key, t in _items(held)}
            found |= {key: t.detach().clone(memory_format=torch.contiguous_format) for key, t in named.items()}
        return found

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name in self.numbers:
            setattr(self, name, type(getattr(self, name))(state[name].tolist()))
        for name in self.tensors:
            held = getattr(self, name, None)
            inside = [key.removeprefix(f"{name}.") for key in state if key.startswith(f"{name}.")]
            if name in state or isinstance(held, Tensor):
                setattr(self, name, state[name].clone())
            elif isinstance(held, dict) or not all(map(str.isdigit, inside)):
                setattr(self, name, {key: state[f"{name}.{key}"].clone() for key in inside})
            else:
                setattr(self, name, [state[f"{name}.{k}"].clone() for k in range(len(inside))])


def _items(held: list[Tensor] | dict[str, Tensor]) -> Iterable[tuple[Any, Tensor]]:
    return held.items() if isinstance(held, dict) else enumerate(held)


def as_interface(stream: Stream, name: str) -> InterfaceStream:
    if not isinstance(stream, InterfaceStream):
        raise CreditscopeError(
            f"credit rule {name!r} runs parts of the model by themselves; it needs a model with embed, blocks and readout"
        )
    return stream


def require_fit(what: str, have: Sequence[int], need: Sequence[int]) -> None:
    """One line where what a rule owns does not fit the stream (or was never made); `what` ends before the widths."""
    if list(have) != list(need):
        raise CreditscopeError(
            f"{what} {list(have)} and the stream has {list(need)}; "
            "load the rule that was saved with this model, or call rule.setup(...)"
        )


class CallableRule(CreditRule):
    """A user's function `(hiddens, logits, y) -> [a_0, ..., a_L]` as a rule (for measuring); None: no credit at a layer."""

    name = "callable"

    def __init__(self, function: Callable[[list[Tensor], Tensor, Tensor], Sequence[Tensor]]) -> None:
        super().__init__()
        self.function = function

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        return self.function(batch.hiddens, batch.logits, batch.y)

    def counting_note(self, depth: int, kind: str) -> str:
        return "credit is a callable: every layer for which it returns a tensor counts"


def as_rule(credit: Any) -> CreditRule | None:
    """None, a CreditRule, or a callable -> a rule (or None)."""
    if credit is None or isinstance(credit, CreditRule):
        return credit
    if callable(credit):
        return CallableRule(credit)
    raise CreditscopeError(
        f"credit is {with_article(credit)}; give a CreditRule or a callable (hiddens, logits, y) -> [a_0, ..., a_L]"
    )


def credit_of(rule: CreditRule, batch: CreditBatch) -> list[Tensor]:
    """The credit of a rule, checked. What somebody's rule raises is one line with its name; the traceback stays behind it."""
    try:
        credits = rule.credit(batch)
    except CreditscopeError:
        raise
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise CreditscopeError(f"credit rule {_name(rule)!r} raised {message}") from error
    return checked(_filled(rule, credits, batch), batch, _name(rule))


def _filled(rule: CreditRule, credits: Any, batch: CreditBatch) -> Any:
    """Zero credit (a cosine that is not measurable) where a layer got None, and the rule remembers which they were."""
    if not isinstance(credits, Sequence) or len(credits) != batch.stream.depth + 1:
        return credits
    missing = frozenset(layer for layer, a in enumerate(credits) if a is None)
    if rule.uncredited is not None and missing != rule.uncredited:
        raise CreditscopeError(
            f"credit rule {_name(rule)!r} returned None at layers {sorted(missing)} in one batch and at "
            f"{sorted(rule.uncredited)} in another; always return None at the same layers"
        )
    if len(missing) == len(credits):
        raise CreditscopeError(
            f"credit rule {_name(rule)!r} returned None at every layer; there is no credit to measure"
        )
    rule.uncredited = missing
    if not missing:
        return credits
    n, widths, like = len(batch.y), batch.stream.widths, batch.hiddens[0]
    return [
        torch.zeros(n, widths[layer], dtype=like.dtype, device=like.device) if a is None else a
        for layer, a in enumerate(credits)
    ]


def descent_of(rule: CreditRule, batch: CreditBatch) -> Iterator[tuple[int, Tensor]]:
    """(layer, credit) from L to 0, the order in which a backward pass meets them; computed when the first is asked for."""
    yield from reversed(list(enumerate(credit_of(rule, batch))))


def _name(rule: CreditRule) -> str:
    return rule.name or type(rule).__name__


def checked(credits: Any, batch: CreditBatch, name: str) -> list[Tensor]:
    """Refuse credit with the wrong number of layers, or that `check` refuses at one."""
    depth = batch.stream.depth
    if not isinstance(credits, Sequence):
        raise CreditscopeError(f"credit rule {name!r} returned {type(credits).__name__}; return a list [a_0, ..., a_L]")
    if len(credits) != depth + 1:
        returned = f"credit rule {name!r} returned {len(credits)} layers for {depth} blocks"
        raise CreditscopeError(f"{returned}; return {depth + 1} (h_0 to h_{depth})")
    for layer, a in enumerate(credits):
        check(a, layer, batch, name)
    return list(credits)


def check(a: Any, layer: int, batch: CreditBatch, name: str) -> None:
    """Refuse credit of the wrong shape, with a graph attached, or NaN; one line names rule and layer.

    Where the network itself has diverged (its states or logits are not finite), non-finite credit is let through: that is
    a finding about the network, not a mistake of the rule.
    """
    if not isinstance(a, Tensor):
        raise CreditscopeError(f"credit rule {name!r} returned {type(a).__name__} at layer {layer}; return tensors")
    read = (batch.y.shape[0], batch.stream.widths[layer])
    if a.shape != read and a.shape != batch.hiddens[layer].shape:
        native = list(batch.hiddens[layer].shape)
        raise CreditscopeError(
            f"credit rule {name!r} returned shape {list(a.shape)} at layer {layer}; expected "
            + " or ".join(dict.fromkeys((str(list(read)), str(native))))
        )
    if a.is_complex() or a.layout is not torch.strided:
        raise CreditscopeError(
            f"credit rule {name!r} returned {a.dtype} of layout {a.layout} at layer {layer}; return real numbers in dense tensors"
        )
    if a.requires_grad:
        raise CreditscopeError(
            f"credit rule {name!r} returned credit with a graph attached at layer {layer}; detach it"
        )
    if a.device != batch.logits.device:
        raise CreditscopeError(
            f"credit rule {name!r} returned credit on {a.device} at layer {layer} and the network is on {batch.logits.device}; "
            "make it there (draw on the CPU, then .to(hiddens[layer]))"
        )
    if batch.later is not None:
        batch.later.note(name, layer, a, batch)
    elif not is_finite(a) and all(map(is_finite, _given(batch))):
        raise _not_finite(name, layer)


def is_finite(t: Tensor) -> bool:
    """Is every number of `t` finite? Without a copy of it."""
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    elif t.is_floating_point() and t.itemsize == 1:  # float8 has no arithmetic of its own
        t = t.float()
    # one cheap sum answers almost always; a finite tensor whose sum overflows takes the long way
    return math.isfinite(t.sum().item()) or bool(torch.isfinite(t).all())


def _given(batch: CreditBatch) -> list[Tensor]:
    """What the network handed to the rule."""
    return [batch.logits, *batch.hiddens, *([] if batch.output_grad is None else [batch.output_grad])]


def rms_normalised(a: Tensor, n: int = 1) -> Tensor:
    """a / (RMS(a) + 1e-6) / n per sample; [B, d] -> [B, d]."""
    rms = (a * a).mean(dim=1, keepdim=True).sqrt_().add_(RMS_EPS)
    return a / (rms if n == 1 else rms.mul_(n))


def gaussian(shape: tuple[int, ...], scale: float, generator: torch.Generator) -> Tensor:
    """N(0, scale^2), drawn from the rule's own generator (never the global RNG)."""
    return torch.randn(shape, generator=generator) * scale
