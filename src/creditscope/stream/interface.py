"""How any model is seen: h_0 = embed(x), h_{l+1} = h_l + f_l(h_l) (or plain h_{l+1} = f_l(h_l)), logits = readout(h_L).

`make_stream` gives a `Stream` for a model with the papers' interface (`InterfaceStream`, here) or for any unmodified
module whose blocks are named (`creditscope.stream.hooks.HookedStream`). A stream never changes the model.
"""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError, with_article
from creditscope.stream.batches import SAMPLES, call_model, copied, logits_of, map_samples
from creditscope.stream.devices import wide
from creditscope.stream.eager import original
from creditscope.stream.notes import TOKEN_READS
from creditscope.stream.ranks import has_shards
from creditscope.stream.untouched import no_parameter_grads

Tap = Callable[[int, Tensor, Tensor], None]
"""tap(l, value, handle): `value` is h_l; a gradient hook on `handle` receives g_l."""

READS = ("vector", "cls", "last", "mean", "flatten")


class OtherRead(CreditscopeError):
    """The head reads the stream otherwise than the first samples showed."""


class Stream(ABC):
    """A model seen as a chain of hidden states. Shapes: native h_l is [B, d], [B, T, d] or [B, C, H, W]."""

    model: nn.Module
    kind: str
    read: str
    depth: int
    shapes: list[tuple[int, ...]]
    """Native shape of each h_l without the batch dimension."""
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    batch_dim: int = 0
    input_shape: tuple[int, ...] | None = None
    """Shape of one input, where the model is given one tensor and the stream knows it."""
    scores_tokens: bool = False
    """Language models: logits [B, T, C] for states [B, T, d], one label per token."""

    @abstractmethod
    def forward(self, inputs: Any, tap: Tap) -> Tensor:
        """Logits [B, C], with a graph that starts at h_0; `tap` sees every h_l on the way."""

    def forward_from(self, h: Tensor, inputs: Any, tap: Tap) -> Tensor:
        """`forward` where h_0 is known to be `h`: a stream that can leaves out the embedding."""
        return self.forward(inputs, tap)

    @abstractmethod
    def logits_from(self, layer: int, h: Tensor, inputs: Any) -> Tensor:
        """Logits when the native hidden state of `layer` is replaced by `h`."""

    @contextmanager
    def graph(self) -> Iterator[None]:
        """The flags of the parameters while `forward` builds its graph: those that the graph needs, no others."""
        with no_parameter_grads(self.model):
            yield

    @abstractmethod
    def variants(self, states: Sequence[tuple[int, Tensor]], inputs: Any) -> Tensor:
        """Logits of several runs at once, one after the other: in each the native state of one layer, [n, ...], is another.

        states: (layer, h), layers in ascending order; inputs: of the n samples.
        """

    @abstractmethod
    def on(self, model: nn.Module, example: Any) -> Stream:
        """The same stream on a copy of the model; `example`: a few samples for it."""

    def own_logits(self, inputs: Any) -> Tensor | None:
        """The model's own logits, where `forward` is not itself a run of the model and has to be held against them."""
        return None

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Length of the vector read at each layer."""
        return tuple(
            shape[-1] if self.read in ("cls", "last", "mean") and len(shape) == 2 else int(np.prod(shape))
            for shape in self.shapes
        )

    @property
    def feedback_widths(self) -> tuple[int, ...]:
        """Length of the vector that a feedback matrix meets at each layer: that of one token where every token is scored."""
        return tuple(shape[-1] for shape in self.shapes) if self.scores_tokens else self.widths

    def read_note(self) -> tuple[str, ...]:
        """What a token model's report has to say about its credit."""
        if self.scores_tokens:
            return ("every token is scored: one feedback matrix per layer for all tokens, e = 0 where a label is -100",)
        if self.reads_one_vector:
            return (f"token model: states, gradients and credit are those of the {TOKEN_READS[self.read]}",)
        return ()

    @property
    def reads_one_vector(self) -> bool:
        """Of the tokens of a sample."""
        return self.read in TOKEN_READS and any(len(shape) == 2 for shape in self.shapes)

    def all_tokens(self, h: Tensor) -> Tensor | None:
        """Native h_l -> [B, all its numbers], where only one vector of them is read; else None."""
        if not self.reads_one_vector:
            return None
        return (h.transpose(0, self.batch_dim) if self.batch_dim and h.dim() > 2 else h).flatten(1)

    def read_state(self, h: Tensor) -> Tensor:
        """Native h_l -> [B, d], the vector that norms are taken of."""
        h = h.transpose(0, self.batch_dim) if self.batch_dim and h.dim() > 2 else h
        if h.dim() == 3 and self.read in ("cls", "last", "mean"):
            return h[:, 0] if self.read == "cls" else h[:, -1] if self.read == "last" else h.mean(1)
        return h.flatten(1)

    def read_grad(self, g: Tensor) -> Tensor:
        """Native g_l (or credit) -> [B, d]. For a mean-pooled stream: the sum over tokens, the gradient of a common shift."""
        g = g.transpose(0, self.batch_dim) if self.batch_dim and g.dim() > 2 else g
        if g.dim() == 3 and self.read in ("cls", "last", "mean"):
            return g[:, 0] if self.read == "cls" else g[:, -1] if self.read == "last" else g.sum(1)
        return g.flatten(1)

    def require_read(self, g: Tensor) -> None:
        """Native g_L of a batch: at tokens that are not read it must be zero in every sample."""
        if g.dim() != 3 or self.read not in ("cls", "last"):
            return
        g = g.transpose(0, self.batch_dim) if self.batch_dim else g
        others = g[:, 1:] if self.read == "cls" else g[:, :-1]
        wrong = int((others.abs().amax((1, 2)) > 0).sum()) if others.shape[1] else 0
        if wrong:
            raise OtherRead(
                f"the head reads other tokens than {self.read!r} in {wrong} of {len(g)} samples of a batch (give read='flatten')"
            )

    def reading(self, read: str, note: str) -> Stream:
        """The same stream, read in another way."""
        other = copy.copy(self)
        other.__dict__.pop("widths", None)
        other.read = read
        other.notes = (*(n for n in self.notes if n not in self.read_note()), *other.read_note(), note)
        return other

    def write_credit(self, a: Tensor, layer: int) -> Tensor:
        """[B, d] -> something that broadcasts to the native shape of h_l (token models: every token gets the same credit)."""
        if len(self.shapes[layer]) == 2 and self.read in ("cls", "last", "mean"):
            return a.unsqueeze(0 if self.batch_dim else 1)
        return a.reshape(a.shape[0], *self.shapes[layer])


class InterfaceStream(Stream):
    """The duck-typed interface: `embed|patch_embed`, `blocks` (returning the branch), `out_ln`+`out_head` or `norm`+`head`.

    `model(x, return_hidden=True)`, where it exists, decides: embedding, blocks and readout must reproduce its hidden
    states and logits on the example, otherwise the model is refused.
    """

    def __init__(self, model: nn.Module, example: Any, read: str | None = None) -> None:
        self.model = model
        self.blocks: Sequence[nn.Module] = list(model.blocks)  # type: ignore[arg-type]
        if not self.blocks:
            raise CreditscopeError("the model's `blocks` is empty; a stream needs at least one block")
        self.depth = len(self.blocks)
        self._norm, self._head = self._readout = readout_parts(model)
        self._embed = getattr(model, "embed", None) or getattr(model, "patch_embed", None)
        self._verify(example, read)

    def on(self, model: nn.Module, example: Any) -> InterfaceStream:
        return InterfaceStream(model, example, self.read if len(self.shapes[-1]) == 2 else None)

    def doubled(self) -> InterfaceStream:
        """The same stream in float64, part by part: the weights of a part are lifted while it runs, so that no whole copy
        of the network is in memory. The model itself is not changed."""
        other = copy.copy(self)
        other.blocks = [_Doubled(block) for block in self.blocks]
        other._norm, other._head = (_Doubled(part) if isinstance(part, nn.Module) else part for part in self._readout)
        other._readout = other._norm, other._head
        if self._embed is not None:
            other._embed = _Doubled(self._embed)
        else:
            whole = _Doubled(self.model)
            other.embed = lambda x: whole(x, return_hidden=True)[1][0]  # type: ignore[method-assign]
        return other

    def own_logits(self, inputs: Any) -> Tensor | None:
        if type(self.model).__module__.startswith("creditscope.models."):
            return None  # their forward pass is the stream's own code
        with torch.no_grad():
            return logits_of(call_model(self.model, inputs))

    def _verify(self, example: Any, read: str | None) -> None:
        self.input_shape = tuple(example.shape[1:]) if isinstance(example, Tensor) else None
        with torch.no_grad():
            try:
                logits, hiddens = self._own_forward(example)
            except RuntimeError as error:
                raise self._cannot_run(example, error) from error
            if hiddens is not None and (self._embed is None or not same(self._embed(copied(example)), hiddens[0])):
                self._embed = None  # the model adds something (positions, tokens) to its embed module
            h = self.embed(copied(example))
            self.kind = self._find_kind(h, hiddens)
            states = [h]
            for layer in range(self.depth):
                states.append(self.advance(layer, states[-1]))
            if hiddens is None:
                self._require_own_states(example, states)
            else:
                if len(hiddens) != self.depth + 1:
                    raise CreditscopeError(
                        f"model(x, return_hidden=True) gives {len(hiddens)} hidden states for {self.depth} blocks; "
                        f"it must give {self.depth + 1} (h_0 to h_L)"
                    )
                for layer, (ours, theirs) in enumerate(zip(states, hiddens, strict=True)):
                    if not same(ours, theirs):
                        raise CreditscopeError(
                            f"h_{layer} of model(x, return_hidden=True) is not what its embed and blocks give; `blocks` "
                            "must return the branch f_l(h_l), or set stream_kind = 'plain' on the model"
                        )
            self.shapes = [tuple(s.shape[1:]) for s in states]
            self.seen = states, self._find_readout(states[-1], logits, read)
            """States and logits of the example."""

    def _require_own_states(self, example: Any, states: list[Tensor]) -> None:
        """The model does not tell its states: what its own forward pass hands from block to block must be ours.

        Equal logits are no proof: a terminal norm hides a state that was added twice.
        """
        from creditscope.stream.hooks import HookedStream

        named = {f"blocks.{k}": block for k, block in enumerate(self.blocks)}
        seen: dict[int, Tensor] = {}
        own = HookedStream(self.model, example, len(states[0]), named)
        own.forward(example, lambda layer, value, handle: seen.__setitem__(layer, value.clone()))
        for layer, ours in enumerate(states):
            if layer not in seen or not same(ours, seen[layer]):
                raise CreditscopeError(
                    f"h_{layer} of the model's own forward pass is not what embed and blocks give when h_{{l+1}} = "
                    f"{'block(h_l)' if self.kind == 'plain' else 'h_l + block(h_l)'}; set stream_kind = 'plain' or 'residual' on "
                    "the model, or pass blocks="
                )

    def _cannot_run(self, example: Any, error: RuntimeError) -> CreditscopeError:
        """Why the model's own forward pass fails: the block whose shape does not fit, else torch's first line."""
        self.kind = str(getattr(self.model, "stream_kind", "residual"))
        try:
            with suppress(RuntimeError):  # the first failure is the one to tell
                h = self.embed(example)
                for layer in range(self.depth):
                    h = self.advance(layer, h)
        except CreditscopeError as found:
            return found
        return CreditscopeError(f"the model cannot run on the evaluation batch: {str(error).splitlines()[0]}")

    def _own_forward(self, x: Any) -> tuple[Tensor, list[Tensor] | None]:
        try:
            logits, hiddens = call_model(self.model, x, return_hidden=True)
        except TypeError as error:
            if "return_hidden" not in str(error):
                raise
            return logits_of(call_model(self.model, x)), None
        return logits, list(hiddens)

    def _find_kind(self, h: Tensor, hiddens: list[Tensor] | None) -> str:
        declared = getattr(self.model, "stream_kind", None)
        if declared is not None:
            return str(declared)
        if hiddens is not None and len(hiddens) > 1 and same(self.blocks[0](h), hiddens[1]):
            return "plain"
        return "residual"

    def _find_readout(self, h: Tensor, logits: Tensor, read: str | None) -> Tensor:
        """The logits of the readout that gives the model's own."""
        if h.dim() == 2:
            candidates: tuple[str, ...] = ("vector" if all(len(s) == 1 for s in self.shapes) else "flatten",)
        elif h.dim() == 3:
            candidates = ("cls", "mean", "last") if read is None else (read,)
        else:
            candidates = ("flatten",)
        for candidate in candidates:
            for pool_first in (True, False):
                self.read, self._pool_first = candidate, pool_first
                out = self.readout(h)
                if same(out, logits):
                    self.notes = self.read_note()
                    return out
        raise CreditscopeError(
            f"readout of h_L does not reproduce the model's logits (tried to read {', '.join(candidates)}); "
            "pass blocks= so that the model is seen through hooks instead"
        )

    @property
    def embedding(self) -> nn.Module | None:
        """The module that gives h_0; None where the model's own forward pass adds something to it."""
        return self._embed

    def embed(self, x: Any) -> Tensor:
        """h_0."""
        if self._embed is None:
            hiddens: list[Tensor] = call_model(self.model, x, return_hidden=True)[1]
            return hiddens[0]
        h: Tensor = self._embed(x)
        return h

    def branch(self, layer: int, h: Tensor) -> Tensor:
        """f_l(h_l)."""
        f: Tensor = self.blocks[layer](h)
        return f

    def advance(self, layer: int, h: Tensor) -> Tensor:
        """h_{l+1}."""
        f = self.branch(layer, h)
        if self.kind == "plain":
            return f
        if f.shape != h.shape:
            raise CreditscopeError(
                f"block {layer} maps {list(h.shape)} to {list(f.shape)}; the blocks of a residual stream keep the shape "
                "(set stream_kind = 'plain' on the model if h_{l+1} = f_l(h_l))"
            )
        return h + f

    def readout(self, h: Tensor) -> Tensor:
        """h_L -> logits [B, C]."""
        if h.dim() == 3 and self._pool_first:
            h = self.read_state(h)
        h = self._norm(h)
        if h.dim() == 3:
            h = self.read_state(h)
        out: Tensor = self._head(h)
        return out

    def forward(self, inputs: Any, tap: Tap) -> Tensor:
        with torch.no_grad():
            h = self.embed(copied(inputs))
        return self.forward_from(h, inputs, tap)

    def forward_from(self, h: Tensor, inputs: Any, tap: Tap) -> Tensor:
        h = h.detach().requires_grad_()
        tap(0, h, h)
        for layer in range(self.depth):
            h = self.advance(layer, h)
            tap(layer + 1, h, h)
        return self.readout(h)

    def variants(self, states: Sequence[tuple[int, Tensor]], inputs: Any) -> Tensor:
        rows: list[Tensor] = []
        for layer in range(self.depth + 1):
            rows += [h for at, h in states if at == layer]
            if rows:
                h = torch.cat(rows)
                rows = [self.advance(layer, h) if layer < self.depth else h]
        return self.readout(rows[0])

    def logits_from(self, layer: int, h: Tensor, inputs: Any = None) -> Tensor:
        for block in range(layer, self.depth):
            h = self.advance(block, h)
        return self.readout(h)


class _Doubled(nn.Module):
    """A part of a network with its weights in float64 for the length of a call."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.__dict__["part"] = part  # not a child: the part belongs to its own model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        part: nn.Module = self.__dict__["part"]
        stores: list[dict[str, Any]] = [held for m in part.modules() for held in (m._parameters, m._buffers) if held]
        kept = [(held, dict(held)) for held in stores]
        try:  # as torch.func.functional_call does, with less to look up
            for held, own in kept:
                held.update({k: t.detach().double() for k, t in own.items() if t is not None and t.is_floating_point()})
            return part(*args, **kwargs)
        finally:
            for held, own in kept:
                held.clear()
                held.update(own)


def readout_parts(model: nn.Module) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """(terminal norm, head) of the interface: `out_ln`+`out_head` or `norm`+`head`; a missing norm is the identity."""
    for norm, head in (("out_ln", "out_head"), ("norm", "head")):
        if callable(getattr(model, head, None)):
            found = getattr(model, norm, None)
            return (found if callable(found) else nn.Identity()), getattr(model, head)
    raise CreditscopeError("the model has `blocks` but no readout; it needs `out_ln`+`out_head` or `norm`+`head`")


def has_interface(model: nn.Module) -> bool:
    head = any(callable(getattr(model, name, None)) for name in ("out_head", "head"))
    embed = any(hasattr(model, name) for name in ("embed", "patch_embed"))
    return head and embed and isinstance(getattr(model, "blocks", None), nn.ModuleList | nn.Sequential | list | tuple)


def make_stream(
    model: nn.Module, inputs: Any, batch_size: int, blocks: Any = None, read: str | None = None, measured: bool = False
) -> Stream:
    """See `model` as a stream. `inputs` is a batch of `batch_size` samples, used to verify what was found.

    measured: the stream's first `forward` pass will be that of these inputs; the run that was watched may serve for it.
    Call inside `untouched(model)`.
    """
    if read is not None and read not in READS:
        raise CreditscopeError(f"read={read!r} is unknown; choose one of {', '.join(READS)}")
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
    model = original(model)
    from creditscope.stream.find import verified_stream
    from creditscope.stream.hooks import HookedStream

    if blocks is None and has_shards(model) and has_interface(model):  # its parts run inside the whole model only
        blocks = {f"blocks.{k}": block for k, block in enumerate(model.blocks)}  # type: ignore[arg-type]
    if blocks is not None:
        return HookedStream(model, inputs, batch_size, blocks, read, measured)
    if not has_interface(model) or not isinstance(inputs, Tensor):
        return verified_stream(model, inputs, batch_size, read, measured)
    try:
        return InterfaceStream(model, map_samples(inputs, batch_size, lambda t: t[:SAMPLES]), read)
    except (CreditscopeError, RuntimeError) as refused:
        if "return_hidden" in inspect.signature(model.forward).parameters:
            raise
        try:  # names like the interface's on a model that means something else by them (timm)
            return verified_stream(model, inputs, batch_size, read, measured)
        except CreditscopeError:
            raise refused from None


CHUNK = 2**19
"""Numbers that are compared at a time."""
ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Largest relative difference of two computations of one tensor that only round otherwise."""


def difference(a: Tensor, b: Tensor) -> float:
    """Largest |a - b| relative to the largest |b|; NaN and infinities equal themselves, so that a diverged network can be
    seen; infinite where shapes differ."""
    if a.shape != b.shape:
        return float("inf")
    a, b = (
        torch.view_as_real(t) if t.is_complex() else t for t in (a.detach().resolve_conj(), b.detach().resolve_conj())
    )
    if a.shape != b.shape:
        return float("inf")
    if a.dtype == b.dtype and torch.equal(a, b):
        return 0.0
    error = largest = 0.0
    for x, y in zip(a.flatten().split(CHUNK), b.flatten().split(CHUNK), strict=True):  # no large copy in float64
        if x.dtype != y.dtype or x.dtype not in (torch.float32, torch.float64):
            x, y = wide(x), wide(y)
        off, size = _largest(x - y), _largest(y)
        if not math.isfinite(off + size):
            x, y = wide(x), wide(y)
            finite = x.isfinite() & y.isfinite()
            if not torch.allclose(x[~finite], y[~finite], rtol=0.0, atol=0.0, equal_nan=True):
                return float("inf")
            off, size = _largest((x - y)[finite]), _largest(y[finite])
        error, largest = max(error, off), max(largest, size)
    return error / max(largest, 1e-300) if error else 0.0


def _largest(t: Tensor) -> float:
    """Largest |t|: a fourteenth of the time that t.abs().max() takes; NaN where something is."""
    if not t.numel():
        return 0.0
    low, high = t.aminmax()
    return max(-float(low), float(high))


def same(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding in their dtype."""
    return difference(a, b) <= ROUNDING.get(b.dtype, ROUNDING[torch.float32])
