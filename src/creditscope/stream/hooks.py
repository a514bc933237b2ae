"""Any unmodified module as a stream: forward hooks on its blocks; what they do is recognised by `probe` and proved by `proof`."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._script import RecursiveScriptModule
from torch.utils._pytree import tree_flatten, tree_map

from creditscope.errors import CreditscopeError
from creditscope.stream.batches import SAMPLES, call_on, copied, few_samples, logits_of, map_samples
from creditscope.stream.blocks import arguments_of, at, replaced, resolve_blocks, spelled, tensors_in, with_argument
from creditscope.stream.graph import Edge, edge_of, has_skip, reaches
from creditscope.stream.interface import Stream, Tap, same
from creditscope.stream.probe import MIXING, Operation, Probe, Watch, distinct, hooks_on, pooled_by_mean, with_input
from creditscope.stream.ranks import has_shards, recover, reshard
from creditscope.stream.untouched import Kept, parameters_as, version_of


class HookedStream(Stream):
    """h_l is the state that enters the l-th call of a block; h_L is what the model makes of the last one.

    A block may return h + f, or a branch that the model joins to the stream by itself (adds, scales, gates, normalises):
    h_L is then what the model has after it has done the same with its last block.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        batch_size: int,
        blocks: Any,
        read: str | None = None,
        measured: bool = False,
    ) -> None:
        """measured: the first thing done with the stream is its `forward` pass of these inputs, for which the watched run may
        serve."""
        self.model = model
        self._blocks = list(blocks.items()) if isinstance(blocks, dict) else resolve_blocks(model, blocks)
        for name, module in self._blocks:
            if isinstance(module, RecursiveScriptModule):  # takes no hooks; one that was traced does
                raise CreditscopeError(
                    f"block {name!r} is compiled by TorchScript, which hooks cannot see; give the module itself"
                )
        self._watched: tuple[Any, list[Tensor], list[Any], Kept] | None = None
        self._recognise(inputs, batch_size, read, measured)

    def on(self, model: nn.Module, example: Any = None) -> HookedStream:
        """The same stream on a copy of the model."""
        other = copy.copy(self)
        other.model = model
        other._watched = None
        other._blocks = [(name, model.get_submodule(name)) for name, _ in self._blocks]
        return other

    # ---- what is there -----------------------------------------------------------------------------------------

    def _recognise(self, inputs: Any, batch_size: int, read: str | None, measured: bool) -> None:
        example, n, probe = self._probed(inputs, batch_size)
        self.depth = len(probe.calls)
        self.names = probe.names
        self._in_place = probe.in_place
        slots = probe.slots()
        self.slot = slots[0]
        self._places = [probe.place(k, self.slot) for k in range(self.depth)]
        self._places.append(probe.last_place(self.slot, self._places))
        states = [probe.state(k, self.slot) for k in range(self.depth)]
        self._require_chain(probe, states)
        last, edge, logits = self._last(example, probe)
        watched = [*states, last, logits] if measured and n == batch_size and not has_shards(self.model) else []
        marks, kept = marked(watched), Kept(self.model) if watched else None  # before any other run
        self.batch_dim = self._find_batch_dim(inputs, batch_size, states[0], n)
        self._in_place |= version_of(last) != self._last_version  # the readout writes to h_L
        if edge is None or not logits.requires_grad:
            raise CreditscopeError(
                f"the logits do not depend on the output of {self.names[-1]!r} by a gradient; name the residual blocks"
            )
        if not reaches(edge_of(logits), [edge]):
            raise CreditscopeError(
                f"the logits do not depend on the output of {self.names[-1]!r}; name the residual blocks without it"
            )
        edges = [call.edges.get(self.slot) for call in probe.calls]
        self.kind, notes = self._find_kind(probe, [*edges, None], [*states, last])
        self.shapes = [self._shape(h) for h in [*states, last]]
        tokens = tuple(logits.shape[1:-1])  # [T] where every token has logits of its own
        self.scores_tokens = len(tokens) == 1 and all(len(s) == 2 and s[0] == tokens[0] for s in self.shapes)
        self.read = self._find_read(example) if read is None else self._checked_read(read, example, logits)
        self.notes = (*notes, *self.read_note())
        if kept is not None and self.apart and states[0].requires_grad:
            self._watched = inputs, watched, marks, kept

    def _shape(self, h: Tensor) -> tuple[int, ...]:
        shape = list(h.shape)
        shape.pop(self.batch_dim)
        return tuple(shape)

    def _probed(self, inputs: Any, batch_size: int) -> tuple[Any, int, Probe]:
        """A few samples, their number, and the watched run of them; of the whole batch where the model takes no fewer."""
        few = map_samples(inputs, batch_size, lambda t: t[:SAMPLES])
        try:
            return few, min(SAMPLES, batch_size), self._probe(few)
        except CreditscopeError:
            raise
        except Exception:  # it is the user's code: anything may come, and `few_samples` tells it
            recover(self.model)
        example, n = few_samples(self.model, inputs, batch_size)
        return example, n, self._probe(example)

    def _probe(self, example: Any) -> Probe:
        """The watched run. Its graph begins at the parameters before the blocks, else at the inputs, else at h_0."""
        for source in ("parameters", "inputs", "state"):
            self._source = source
            with torch.enable_grad(), self.graph():
                probe = Probe(
                    self.model,
                    self._blocks,
                    lambda inputs: logits_of(call_on(self.model, inputs)),
                    self._begun(example),
                )
            if probe.calls[0].edges or source == "state":
                break
        return probe

    @contextmanager
    def graph(self) -> Iterator[None]:
        reshard(self.model)
        inside = {id(p) for _, module in self._blocks for p in module.parameters()}
        begins = self._source == "parameters"
        flags = [(p, begins and id(p) not in inside and p.is_floating_point()) for p in self.model.parameters()]
        with parameters_as(flags):
            yield

    def _begun(self, inputs: Any) -> Any:
        """Copies of the inputs, detached from the user's; where the graph begins at them, they carry gradients."""

        def begin(t: Any) -> Any:
            if not isinstance(t, Tensor):
                return t
            if self._source == "inputs" and t.is_floating_point():
                return t.detach().requires_grad_().clone()  # not a leaf: a block may write to it in place
            return t.detach().clone()

        return tree_map(begin, inputs)

    def _require_chain(self, probe: Probe, states: list[Tensor]) -> None:
        for k in range(1, self.depth - 1):
            if probe.goes_beside(k, self.slot):
                raise CreditscopeError(
                    f"the model carries its state around {self.names[k]!r} and gives that block something made of it (a norm, a "
                    "part, a mean), so what enters the blocks is not the stream; name blocks that include what makes it and the "
                    "addition, or give the model the interface (embed, blocks, head)"
                )
        for k in range(self.depth - 1):
            outs = [t for _, t in tensors_in(probe.calls[k].output)]
            if states[k + 1].dim() != states[k].dim() and states[k + 1].dim() != outs[0].dim():
                raise CreditscopeError(
                    f"blocks do not chain: {self.names[k]!r} gives {list(outs[0].shape)} and {self.names[k + 1]!r} takes "
                    f"{list(states[k + 1].shape)}; name blocks that include what lies between"
                )

    def _last(self, example: Any, probe: Probe) -> tuple[Tensor, Edge | None, Tensor]:
        """h_L, its place in the graph, and the logits of one run: the watched one, where the last block gives h_L."""
        place, call = self._places[-1], probe.calls[-1]
        if place.how == "output" and place.path in call.output_edges:
            self._last_version = call.output_versions[place.path]
            return at(call.output, place.path), call.output_edges[place.path], probe.logits
        found: list[tuple[Tensor, Edge | None]] = []

        def tap(layer: int, value: Tensor, handle: Tensor) -> None:
            if layer == self.depth:
                self._last_version = version_of(handle)
                found.append((handle, edge_of(handle) if handle.requires_grad else None))

        with torch.enable_grad(), self.graph():
            logits = self.forward(example, tap)
        return (*found[0], logits)

    def _find_batch_dim(self, inputs: Any, batch_size: int, h: Tensor, n: int) -> int:
        """The dimension that counts the samples: the first, or (time-first models) the second, if it follows their number.

        Where their number is fixed, and both dimensions fit: the one at whose first place alone another first sample is seen.
        """
        candidates = [d for d in range(min(2, h.dim())) if h.shape[d] == n]
        if 1 in candidates and 1 < n <= SAMPLES:
            fewer = self._probe(map_samples(inputs, batch_size, lambda t: t[: n - 1])).state(0, self.slot)
            candidates = [d for d in candidates if fewer.shape[d] == n - 1]
        elif len(candidates) == 2 and n > 1:
            turned = map_samples(inputs, batch_size, lambda t: torch.cat([t[1:2], t[1:]]))
            other = (self._probe(turned).state(0, self.slot) != h).detach()
            candidates = [d for d in candidates if not bool(other.narrow(d, 1, n - 1).any())] or candidates
        if not candidates:
            raise CreditscopeError(
                f"a block sees a state of shape {list(h.shape)} for {n} samples: no batch dimension; where frames, crops or "
                "pairs are folded into the batch, give samples of one each, or name blocks around the folding"
            )
        return candidates[0]

    def _find_kind(self, probe: Probe, edges: list[Edge | None], states: list[Tensor]) -> tuple[str, list[str]]:
        """`residual` where a skip leads through every step that keeps the shape; and what the model does between blocks."""
        notes: list[str] = []
        skips = []
        for k in range(self.depth):
            here = edges[k]
            if states[k].shape != states[k + 1].shape or here is None:
                continue
            if k + 1 < self.depth:
                there = edges[k + 1]
                skips.append(there is not None and has_skip(there, here, probe.joins))
            else:
                skips.append(probe.leads_by_skip(self._places[-1], here))
        residual = bool(skips) and all(skips)
        changed = [self.names[k] for k in range(self.depth) if states[k].shape != states[k + 1].shape]
        if residual and changed:
            notes.append(f"projection shortcut (shape changes) at {', '.join(changed)}")
        for k, place in enumerate(self._places[1:]):
            if place.how == "operation" and place.operations not in ADDED:
                after = (
                    f"between {self.names[k]} and {self.names[k + 1]}"
                    if k + 1 < self.depth
                    else f"after {self.names[k]}"
                )
                notes.append(
                    f"{after} the model itself goes on with the state ({', '.join(place.operations)}): a part of that step"
                )
                break
        return "residual" if residual else "plain", notes

    def _checked_read(self, read: str, example: Any, logits: Tensor) -> str:
        """The user's own word for the read, where it is true of h_L; that a head reads one token is checked on all samples."""
        shape = self.shapes[-1]
        if (read in ("cls", "last", "mean") and len(shape) != 2) or (read == "vector" and len(shape) != 1):
            raise CreditscopeError(
                f"read={read!r} does not fit h_L, which is {list(shape)} per sample; leave read= out"
            )
        if read == "mean" and bool(logits.isfinite().all()):
            with torch.no_grad():
                h = self._after_last(example)[0]
                turned = self.logits_from(self.depth, h.flip(1 - self.batch_dim), example)
            if not same(turned, logits):
                raise CreditscopeError(
                    "read='mean' does not hold: the logits change when the tokens of h_L change places; leave read= out"
                )
        return read

    def _find_read(self, example: Any) -> str:
        """Which token the head reads, by making all others NaN (a head of zeros hides them otherwise); mean by its operation."""
        dims = len(self.shapes[-1])
        if dims != 2:
            return "vector" if dims == 1 else "flatten"
        if self.scores_tokens:
            return "flatten"  # every token is read for its own logits
        h, operations, logits = self._after_last(example)
        if not bool(logits.isfinite().all()):
            return "flatten"
        for read, token in (("cls", 0), ("last", -1)):
            kept = torch.full_like(h, float("nan"))
            mine, theirs = (x.transpose(0, self.batch_dim) if self.batch_dim else x for x in (kept, h))
            mine[:, token] = theirs[:, token]
            if self._runs_finite(kept, example):
                return read
        still, n = h, h.shape[self.batch_dim]
        if n == self.shapes[-1][0] > 2:  # as many samples as tokens: fewer samples tell them apart
            if n > SAMPLES:  # the model takes no fewer
                return "flatten"
            still, operations, _ = self._after_last(map_samples(example, n, lambda t: t[:2]))
        if not pooled_by_mean(operations, still, self.shapes[-1][0]):
            return "flatten"
        with torch.no_grad():
            turned = self.logits_from(self.depth, h.flip(1 - self.batch_dim), example)
        return "mean" if same(turned, logits) else "flatten"

    def _runs_finite(self, h: Tensor, example: Any) -> bool:
        with torch.no_grad():
            try:
                return bool(self.logits_from(self.depth, h, example).isfinite().all())
            except (RuntimeError, ValueError):  # a model that refuses NaN reads them
                recover(self.model)
                return False

    def _after_last(self, example: Any) -> tuple[Tensor, list[Operation], Tensor]:
        """h_L, what the model does with it, and the logits."""
        operations: list[Operation] = []
        found: list[Tensor] = []

        def tap(layer: int, value: Tensor, handle: Tensor) -> None:
            if layer == self.depth:
                found.append(handle)

        def seen(segment: int, index: int, operation: Operation) -> None:
            if found:
                operations.append(operation)

        with torch.no_grad(), Watch(seen):
            logits = self.forward(example, tap)
        return found[0], operations, logits

    @property
    def mixes_between(self) -> bool:
        """Do layers of the model that are no blocks work on the state between two blocks of one shape?"""
        return any(
            self.shapes[k] == self.shapes[k + 1] and any(name in MIXING for name in place.operations)
            for k, place in enumerate(self._places[1:])
        )

    # ---- running it --------------------------------------------------------------------------------------------

    def forward(self, inputs: Any, tap: Tap) -> Tensor:
        watched, self._watched = self._watched, None  # a graph is run through once
        if (
            watched is not None
            and watched[0] is inputs
            and torch.is_grad_enabled()
            and watched[2] == marked(watched[1])
            and watched[3].same
        ):
            *states, logits = watched[1]
            for layer, h in enumerate(states):
                tap(layer, h, h)
            return logits
        run = _Run(self, tap)
        inputs = self._begun(inputs)
        with hooks_on(self._blocks, run.before, run.after), run.watching(self._places[-1].how == "operation"):
            logits = logits_of(call_on(self.model, inputs))
        run.require_complete()
        return logits

    def arguments(self, inputs: Any) -> list[dict[int | str, Any]]:
        """What every call of a block is given."""
        found: list[dict[int | str, Any]] = []

        def before(name: str, args: Any, kwargs: Any) -> None:
            found.append(arguments_of(args, kwargs))

        inputs = copied(inputs)
        with hooks_on(self._blocks, before, lambda *_: None):
            call_on(self.model, inputs)
        return found

    def variants(self, states: Sequence[tuple[int, Tensor]], inputs: Any) -> Tensor:
        n = states[0][1].shape[self.batch_dim]
        many = map_samples(inputs, n, lambda t: t.repeat(len(states), *[1] * (t.dim() - 1)))
        return self._with(_Puts(self, states), many)

    def logits_from(self, layer: int, h: Tensor, inputs: Any, beside: Beside | None = None) -> Tensor:
        """Logits when h_l is replaced by `h` for everybody who uses it.

        beside: replaces what the blocks are given beside the stream, from this layer on.
        """
        return self._with(_Puts(self, [(layer, h)], beside), inputs)

    @property
    def apart(self) -> bool:
        """Can each step be run with a state of its own (`steps`)? Every block is handed the very tensor that the one before
        gave, writes to none, and nobody else looks at its output from a hook."""
        handed = all(place.how == "output" for place in self._places[1:])
        return handed and not self._in_place and not any(module._forward_hooks for _, module in self._blocks)

    def steps(self, entering: Sequence[Tensor], onward: Sequence[Tensor], inputs: Any) -> tuple[list[Tensor], Tensor]:
        """One run in which block l is given entering[l], whatever the blocks before it gave: (h_0 as the model makes it and what
        each block gives, logits).

        entering, onward: native states of l = 0..L; the readout is given entering[L], and whoever else uses the output of a
            block finds onward[l + 1].
        """
        run, inputs = _Steps(self, entering, onward), copied(inputs)
        with hooks_on(self._blocks, run.before, run.after):
            logits = logits_of(call_on(self.model, inputs))
        if run.calls != self.depth:
            raise run.other_depth(f"{run.calls} times")
        return run.given, logits

    def _with(self, put: _Puts, inputs: Any) -> Tensor:
        """Logits of a run in which states are put in where they are made."""
        how = {self._places[layer].how for layer, _ in put.states}
        inputs = copied(inputs)  # before anything is watched
        if "input" in how:
            index = int(self._places[0].path[0])
            inputs = with_input(inputs, index, put.changed(0, tree_flatten(inputs)[0][index]))
        with hooks_on(self._blocks, put.before, put.after, put.first), put.watching("operation" in how):
            logits = logits_of(call_on(self.model, inputs))
        put.require_complete()
        return logits


def marked(tensors: Sequence[Tensor]) -> list[Any]:
    """Changes where a later run has written to the memory of one of them (a network that gives its outputs back in buffers of
    its own); never equal where two of them share it."""
    places = {t.data_ptr() for t in tensors}
    if len(places) < len(tensors):
        return [object()]
    return [(version_of(t), _size(t.detach())) for t in tensors]


def _size(t: Tensor) -> float:
    """L2 norm; in float64, which is slow, only where its own dtype does not hold it."""
    size = float(torch.linalg.vector_norm(t))
    return size if 0 < size < float("inf") else float(torch.linalg.vector_norm(t, dtype=torch.float64))


Beside = Callable[[int, dict[int | str, Any]], dict[int | str, Any]]
"""(number of the call, its arguments) -> the arguments that it gets instead."""
ADDED = tuple((name,) for name in ("add", "add_", "__add__", "__radd__", "__iadd__"))


class _Calls(ABC):
    """What a measuring and a replacing run share: they count the calls of blocks and the operations after each."""

    def __init__(self, stream: HookedStream) -> None:
        self.stream = stream
        self.calls = 0
        self.watch: Watch | None = None

    def watching(self, wanted: bool) -> AbstractContextManager[Any]:
        if wanted:
            self.watch = Watch(self.operation)
            return self.watch
        return nullcontext()

    @abstractmethod
    def operation(self, segment: int, index: int, operation: Operation) -> Any:
        """Sees what the model does outside of the blocks; may give another result back."""

    def entered(self, name: str, args: Any, kwargs: Any) -> Tensor:
        if self.calls >= self.stream.depth:
            raise self.other_depth(f"more than {self.stream.depth} times")
        if name != self.stream.names[self.calls]:
            raise CreditscopeError(
                f"the model calls {name!r} where it called {self.stream.names[self.calls]!r} on the first samples; the order of "
                "its blocks must not change with the data"
            )
        h = at(arguments_of(args, kwargs), self.stream.slot)
        if not isinstance(h, Tensor):
            raise CreditscopeError(f"block {name!r} was called without a tensor at {spelled(self.stream.slot)}")
        return h

    def begins(self) -> None:
        if self.watch is not None:
            self.watch.block_begins()

    def ends(self) -> None:
        self.calls += 1
        if self.watch is not None:
            self.watch.block_ends()

    def other_depth(self, how: str) -> CreditscopeError:
        return CreditscopeError(
            f"the model called its blocks {how} on this batch and {self.stream.depth} times on the first samples: its depth "
            "changes with the data; name blocks that always run"
        )

    def matches(self, layer: int, segment: int, index: int, operation: Operation) -> bool:
        """Is it the operation that makes h_l? One line where the model does something else there than on the first samples."""
        place = self.stream._places[layer]
        if place.how != "operation" or segment != layer or index >= len(place.operations):
            return False
        if operation.name != place.operations[index]:
            raise CreditscopeError(
                f"before h_{layer} the model runs {operation.name} where it ran {place.operations[index]} on the first samples; "
                "what it does must not change with the data"
            )
        return index == len(place.operations) - 1


class _Run(_Calls):
    """A measuring run: every h_l is handed to `tap`."""

    def __init__(self, stream: HookedStream, tap: Tap) -> None:
        super().__init__(stream)
        self.tap = tap
        self.seen_last = False
        self.versions: dict[Any, int] = {}

    def before(self, name: str, args: Any, kwargs: Any) -> Any:
        h = self.entered(name, args, kwargs)
        changed = None
        if self.calls == 0 and torch.is_grad_enabled() and not h.requires_grad:
            if self.stream._in_place:  # a leaf must not be written to
                h = h.detach().clone().requires_grad_()
                changed = with_argument(args, kwargs, self.stream.slot, h.clone())
            else:
                h.requires_grad_()
        self.tap(self.calls, h.detach().clone() if self.stream._in_place else h, h)
        self.versions = {path: version_of(t) for path, t in tensors_in(arguments_of(args, kwargs))}
        self.begins()
        return changed

    def after(self, name: str, args: Any, kwargs: Any, out: Any) -> Any:
        out = distinct(out, arguments_of(args, kwargs), self.versions)
        self.ends()
        place = self.stream._places[-1]
        if self.calls == self.stream.depth and place.how == "output":
            self.last(at(out, place.path), name)
        return out

    def operation(self, segment: int, index: int, operation: Operation) -> Any:
        if self.matches(self.stream.depth, segment, index, operation):
            self.last(at(operation.gives, self.stream._places[-1].path), operation.name)

    def last(self, h: Any, name: str) -> None:
        if not isinstance(h, Tensor):
            raise CreditscopeError(f"{name!r} gives no tensor where it gave the state h_L on the first samples")
        self.seen_last = True
        self.tap(self.stream.depth, h.detach().clone() if self.stream._in_place else h, h)

    def require_complete(self) -> None:
        if self.calls != self.stream.depth:
            raise self.other_depth(f"{self.calls} times")
        if not self.seen_last:
            raise CreditscopeError(
                "the model did not produce h_L on this batch; what it computes must not change with the data"
            )


class _Puts(_Calls):
    """A run of several copies of the samples, in each of which one state is another."""

    def __init__(
        self, stream: HookedStream, states: Sequence[tuple[int, Tensor]], beside: Beside | None = None
    ) -> None:
        super().__init__(stream)
        self.states, self.beside = states, beside
        self.missing = {layer for layer, _ in states}

    def changed(self, layer: int, t: Tensor) -> Tensor:
        """The native state of all copies, with those that are another at this layer put in."""
        self.missing.discard(layer)
        if len(self.states) == 1:
            return self.states[0][1].clone()
        rows = list(t.chunk(len(self.states), self.stream.batch_dim))
        for k, (at_layer, h) in enumerate(self.states):
            if at_layer == layer:
                rows[k] = h
        return torch.cat(rows, self.stream.batch_dim)

    def wanted(self, layer: int, how: str) -> bool:
        return self.stream._places[layer].how == how and any(at_layer == layer for at_layer, _ in self.states)

    def before(self, name: str, args: Any, kwargs: Any) -> Any:
        entered = self.entered(name, args, kwargs)
        changed = None
        if self.wanted(self.calls, "entry"):
            args, kwargs = changed = with_argument(args, kwargs, self.stream.slot, self.changed(self.calls, entered))
        if self.beside is not None and self.calls >= self.states[0][0]:
            given = self.beside(self.calls, arguments_of(args, kwargs))
            changed = tuple(given[k] for k in range(len(args))), {key: given[key] for key in kwargs}
        self.begins()
        return changed

    def first(self, out: Any) -> Any:
        """Before the hooks of the user: one that keeps the output of a block for later has to keep the state that is put."""
        layer = self.calls + 1
        if not self.wanted(layer, "output") or not isinstance(at(out, self.stream._places[layer].path), Tensor):
            return None
        path = self.stream._places[layer].path
        return replaced(out, path, self.changed(layer, at(out, path)))

    def after(self, name: str, args: Any, kwargs: Any, out: Any) -> Any:
        self.ends()
        if not self.wanted(self.calls, "output"):
            return None
        path = self.stream._places[self.calls].path
        return replaced(out, path, self.changed(self.calls, at(out, path)))

    def operation(self, segment: int, index: int, operation: Operation) -> Any:
        if not self.wanted(segment, "operation") or not self.matches(segment, segment, index, operation):
            return None
        path = self.stream._places[segment].path
        new = self.changed(segment, at(operation.gives, path))
        if operation.in_place:  # whoever holds the tensor that was written to holds the state
            with torch.no_grad():
                at(operation.gives, path).copy_(new)
            return None
        return replaced(operation.gives, path, new)

    def require_complete(self) -> None:
        if self.calls != self.stream.depth:
            raise self.other_depth(f"{self.calls} times")
        if self.missing:
            raise CreditscopeError(f"the model did not produce h_{min(self.missing)} when it was to be replaced")


class _Steps(_Calls):
    """A run of steps that do not know of each other."""

    def __init__(self, stream: HookedStream, entering: Sequence[Tensor], onward: Sequence[Tensor]) -> None:
        super().__init__(stream)
        self.entering, self.onward = entering, onward
        self.given: list[Tensor] = []

    def operation(self, segment: int, index: int, operation: Operation) -> Any:
        return None

    def before(self, name: str, args: Any, kwargs: Any) -> Any:
        made = self.entered(name, args, kwargs)
        if not self.calls:
            self.given.append(made.detach().clone())
        return with_argument(args, kwargs, self.stream.slot, self.entering[self.calls].clone())

    def after(self, name: str, args: Any, kwargs: Any, out: Any) -> Any:
        self.ends()
        path = self.stream._places[self.calls].path
        self.given.append(at(out, path).detach().clone())
        last = self.calls == self.stream.depth
        return replaced(out, path, (self.entering if last else self.onward)[self.calls].clone())
