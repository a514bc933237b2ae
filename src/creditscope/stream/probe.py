"""One watched run of a model on a few samples: how its blocks are called, what lies between them, where each h_l is made.

A state is recognised by the very tensor that is handed on and by the graph behind it, never by its values: a branch that
is zero at initialisation, a head that is zero, or two states that happen to be equal look like what they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from creditscope.errors import CreditscopeError
from creditscope.stream.blocks import Path, arguments_of, at, replaced, spelled, tensors_in
from creditscope.stream.graph import Edge, edges_in, has_skip, is_carried, reaches
from creditscope.stream.ranks import in_sharding, shards_itself
from creditscope.stream.untouched import version_of

Blocks = Sequence[tuple[str, nn.Module]]


class CutGraph(CreditscopeError):
    """No gradient passes between two blocks."""


class Place(NamedTuple):
    """Where a state is made, so that it can be met (and replaced) for all who use it."""

    how: str
    """`output` of the block before, `operation` of the model after it (or before the first block), `input` of the model, or
    `entry`: only where it enters its block (what makes it cannot be seen)."""
    path: Path = ()
    """Within the output of the block, the result of the operation, or the flattened inputs."""
    operations: tuple[str, ...] = ()
    """`operation`: the names of the operations up to this one, counted from the end of the block before."""


class Operation(NamedTuple):
    """One call of torch outside of the blocks."""

    name: str
    given: tuple[Tensor, ...]
    gives: Any
    in_place: bool


@dataclass
class Call:
    """One call of a block."""

    name: str
    arguments: dict[int | str, Any]
    edges: dict[Path, Edge] = field(default_factory=dict)
    """Of the floating-point tensors among the arguments that carry a graph."""
    versions: dict[Path, int] = field(default_factory=dict)
    made: dict[Path, tuple[int, int, Path]] = field(default_factory=dict)
    """(segment, index, path) of the operation that gave each of them, where one was seen."""
    output: Any = None
    output_edges: dict[Path, Edge] = field(default_factory=dict)
    output_versions: dict[Path, int] = field(default_factory=dict)


class Watch(TorchFunctionMode):
    """Sees every operation outside of the blocks; `seen(segment, index, operation)` may give another result back.

    segment: number of block calls that have ended; index: number of operations since the last one ended.
    """

    def __init__(self, seen: Callable[[int, int, Operation], Any]) -> None:
        super().__init__()
        self.seen = seen
        self.inside = False
        self.segment = 0
        self.index = 0
        self.joins: dict[Any, bool] = {}
        """Nodes of the graph that write to a part of a tensor and keep what was there, which do not tell what they are: do they
        add to it?"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        if name in ADDS_IN_PLACE and isinstance(out, Tensor) and out._is_view() and out._base is not None:
            self.joins[out._base.grad_fn] = True
        if name == "__setitem__" and _writes_itself(*args):  # the second half of `h[:, :4] += f`
            whole = args[0] if args[0]._base is None else args[0]._base
            self.joins.setdefault(whole.grad_fn, False)
        if self.inside or in_sharding():
            return out
        if name == "__set__":
            return out
        gives = args[0] if name == "__setitem__" else out
        if not any(True for _ in tensors_in(gives)):
            return out
        given = tuple(t for t in tree_flatten((args, kwargs or {}))[0] if isinstance(t, Tensor))
        in_place = any(gives is t for t in given)
        index = self.index
        self.index += 1
        changed = self.seen(self.segment, index, Operation(name, given, gives, in_place))
        return out if changed is None or name == "__setitem__" else changed

    def block_begins(self) -> None:
        self.inside = True

    def block_ends(self) -> None:
        self.inside = False
        self.segment += 1
        self.index = 0


def _writes_itself(target: Any, index: Any, value: Any) -> bool:
    """Is this part of a tensor written to where it already stands?"""
    if not (isinstance(target, Tensor) and isinstance(value, Tensor) and value._is_view()):
        return False
    if value._base is not (target if target._base is None else target._base):
        return False
    part = target.detach()[index]
    return (part.data_ptr(), part.shape, part.stride()) == (value.data_ptr(), value.shape, value.stride())


@contextmanager
def hooks_on(blocks: Blocks, before: Any, after: Any, first: Any = None) -> Iterator[None]:
    """before(name, args, kwargs) and after(name, args, kwargs, out) at every call of a block; they may replace.

    first(out): sees the output before every other hook of the block.
    """
    handles = []
    try:
        for name, module in blocks:
            if first is not None and module._forward_hooks:
                handles.append(module.register_forward_hook(lambda _, args, out: first(out), prepend=True))
            handles.append(
                module.register_forward_pre_hook(
                    lambda _, args, kwargs, name=name: before(name, args, kwargs),
                    with_kwargs=True,
                    prepend=shards_itself(module),  # it hands its block an alias of what it was given
                )
            )
            handles.append(
                module.register_forward_hook(
                    lambda _, args, kwargs, out, name=name: after(name, args, kwargs, out), with_kwargs=True
                )
            )
        yield
    finally:
        for handle in handles:
            handle.remove()


class Probe:
    """The record of one watched run."""

    def __init__(self, model: nn.Module, blocks: Blocks, run: Callable[[Any], Tensor], inputs: Any) -> None:
        """run(inputs) -> logits, with a graph that begins before the first block."""
        self._parameters = {id(p): re.sub(r"\d+", "*", name) for name, p in model.named_parameters()}
        self.calls: list[Call] = []
        self.operations: list[list[Operation]] = [[]]
        self.in_place = False
        self._made: dict[int, tuple[int, int, Path]] = {}
        self._edges: list[list[dict[Path, Edge]]] = [[]]
        self._run(blocks, run, inputs)
        self.inputs = {id(t): k for k, t in enumerate(tree_flatten(inputs)[0]) if isinstance(t, Tensor)}

    def _run(self, blocks: Blocks, run: Callable[[Any], Tensor], inputs: Any) -> None:
        watch = Watch(self._operation)
        self.joins = watch.joins

        def before(name: str, args: Any, kwargs: Any) -> None:
            if watch.inside:
                raise CreditscopeError(f"block {name!r} lies inside another block; name blocks that follow each other")
            call = Call(name, arguments_of(args, kwargs))
            for path, t in tensors_in(call.arguments):
                call.versions[path] = version_of(t)
                if id(t) in self._made:
                    call.made[path] = self._made[id(t)]
            call.edges = edges_in(call.arguments)
            self.calls.append(call)
            watch.block_begins()

        def after(name: str, args: Any, kwargs: Any, out: Any) -> Any:
            call = self.calls[-1]
            out = distinct(out, arguments_of(args, kwargs), call.versions)
            call.output = out
            call.output_edges = edges_in(out)
            call.output_versions = {path: version_of(t) for path, t in tensors_in(out)}
            self.operations.append([])
            self._edges.append([])
            watch.block_ends()
            return out

        with hooks_on(blocks, before, after), watch:
            self.logits = run(inputs)
        self.in_place = any(
            version_of(at(call.arguments, path)) != version
            for call in self.calls
            for path, version in call.versions.items()
        )
        never = [name for name, _ in blocks if name not in {call.name for call in self.calls}]
        if never:
            raise CreditscopeError(
                f"block {never[0]!r} was not called by the model's forward pass (or by its `forward` alone, which hooks do not "
                "see); name blocks that run"
            )

    def _operation(self, segment: int, index: int, operation: Operation) -> None:
        self.operations[segment].append(operation)
        self._edges[segment].append(edges_in(operation.gives))
        for path, t in tensors_in(operation.gives):
            self._made[id(t)] = (segment, index, path)

    # ---- what was seen -----------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(call.name for call in self.calls)

    def slots(self) -> list[Path]:
        """Arguments that may be the stream, the same at every call: those that depend on what the block before gave."""
        first = [path for path, _ in tensors_in(self.calls[0].arguments)]
        if not first:
            raise CreditscopeError(
                f"block {self.calls[0].name!r} was called without a floating-point tensor; name blocks that take the stream"
            )
        if len(self.calls) == 1:
            return [self._only_slot(first)]
        fed = None
        for k in range(1, len(self.calls)):
            before = self.calls[k - 1]
            # a block may return a constant, to which the model adds the state
            given = list(before.output_edges.values()) or list(before.edges.values())
            old = set(before.edges.values())
            here = [p for p, edge in self.calls[k].edges.items() if edge not in old and reaches(edge, given)]
            if not here:
                raise CutGraph(
                    f"no gradient leads from what {self.names[k]!r} is given back to what {self.names[k - 1]!r} returns "
                    "(a detach or no_grad between them, or blocks that run side by side), so the reference g_l cannot be "
                    "taken there; diagnose the network without the cut, or name blocks that follow each other"
                )
            here = _sources(here, self.calls[k].edges, given)
            fed = here if fed is None else [path for path in fed if path in here]
        assert fed is not None
        if all(len({call.edges[path] for path in fed}) == 1 for call in self.calls[1:]):
            fed = fed[:1]  # one tensor, handed over several times: query, key and value
        if len(fed) > 1:
            both = " and ".join(map(spelled, fed[:2]))
            raise CreditscopeError(
                f"block {self.names[1]!r} is given two tensors that the block before has made ({both}): the state is not one "
                "tensor; name larger blocks between which one tensor is handed on"
            )
        if not fed:
            raise CreditscopeError(
                f"the blocks {self.names[0]!r} to {self.names[-1]!r} take the state in different arguments; "
                "name blocks of one kind"
            )
        return fed

    def _only_slot(self, given: list[Path]) -> Path:
        """Which argument of the only block is the state: of those that differ from sample to sample the one that a skip leads
        to, else the one that goes around the block, else the only one that carries a gradient or has the output's shape."""
        call = self.calls[0]
        given = [p for p in given if _varies(at(call.arguments, p), len(self.logits))] or given
        outs = list(call.output_edges.values())
        shapes = {t.shape for _, t in tensors_in(call.output)}
        for group in (
            given,
            [p for p in given if p in call.edges],
            [p for p in given if p in call.edges and any(has_skip(out, call.edges[p], self.joins) for out in outs)],
            [p for p in given if p in call.edges and self._joined(0, p) is not None],
            [p for p in given if at(call.arguments, p).shape in shapes],
        ):
            if len({call.edges.get(p, p) for p in group}) == 1:  # one tensor, perhaps handed over several times
                return group[0]
        names = " and ".join(map(spelled, given[:2]))
        raise CreditscopeError(
            f"the only block {call.name!r} is given several tensors ({names}), and it is unclear which one is the state; name "
            "larger blocks, or several of them"
        )

    def state(self, k: int, slot: Path) -> Tensor:
        """The tensor that enters the k-th call."""
        t = at(self.calls[k].arguments, slot)
        if not isinstance(t, Tensor):
            raise CreditscopeError(
                f"block {self.names[k]!r} has no tensor at {spelled(slot)}, where the other blocks take the state"
            )
        return t

    def place(self, k: int, slot: Path) -> Place:
        """Where h_k is made."""
        t = self.state(k, slot)
        if k > 0:
            for path, out in tensors_in(self.calls[k - 1].output):
                edge = self.calls[k - 1].output_edges.get(path)
                if edge is not None and (
                    (out is t and self.calls[k].edges.get(slot) == edge) or _behind_hook(t) == edge
                ):
                    return Place("output", path)
        made = self.calls[k].made.get(slot)
        if made is not None and made[0] == k:
            names = tuple(operation.name for operation in self.operations[k][: made[1] + 1])
            return Place("operation", made[2], names)
        if id(t) in self.inputs:
            return Place("input", (self.inputs[id(t)],))
        return Place("entry")

    def last_place(self, slot: Path, places: Sequence[Place]) -> Place:
        """Where h_L is made: the model does after its last block what it does after the others."""
        depth = len(self.calls)
        if depth == 1:
            return self._joined(0, slot) or self._output_of_last(places)
        links = list(places[1:])
        done = tuple(operation.name for operation in self.operations[depth])
        common = Counter(links).most_common(1)[0][0]
        if common.how == "output":
            return common
        around = any(self._goes_around(k, slot) for k in range(depth - 1))
        n = len(common.operations)
        alike = common.how == "operation" and done[:n] == common.operations
        if alike and (around or self._same_layers(1 + links.index(common), depth, n)):
            return common
        if around:
            raise CreditscopeError(
                f"the model joins {self.names[0]!r} to the stream by {', '.join(common.operations) or 'unknown operations'} and "
                f"does not do the same after {self.names[-1]!r} ({', '.join(done[:4]) or 'nothing'} follows): h_L is not known; "
                "name blocks that include the addition, or give the model the interface (embed, blocks, head)"
            )
        return self._output_of_last(places)

    def _same_layers(self, k: int, last: int, n: int) -> bool:
        """Are the first n operations of two segments done by layers of one name (norms.0, norms.3), none of which is a map
        that mixes features? A norm between the blocks and the terminal norm are not."""
        if any(o.name in MIXING for o in self.operations[k][:n]):
            return False
        used = (
            [
                self._parameters.get(id(t))
                for o in self.operations[segment][:n]
                for t in o.given
                if id(t) in self._parameters
            ]
            for segment in (k, last)
        )
        return next(used) == next(used)

    def leads_by_skip(self, place: Place, state: Edge) -> bool:
        """Does a skip lead from h_L, made at `place`, back to `state`?"""
        if place.how == "output":
            edge = self.calls[-1].output_edges.get(place.path)
        else:
            edge = self._edges[-1][len(place.operations) - 1].get(place.path)
        return edge is not None and has_skip(edge, state, self.joins)

    def _output_of_last(self, places: Sequence[Place]) -> Place:
        call = self.calls[-1]
        used = [p.path for p in places[1:] if p.how == "output"]
        for path in [*used, *call.output_edges]:
            if path in call.output_edges:
                return Place("output", path)
        raise CreditscopeError(
            f"block {call.name!r} returns {type(call.output).__name__} without a tensor that carries a gradient; it must return "
            "the state (a tensor, or a tuple with one)"
        )

    def _goes_around(self, k: int, slot: Path) -> bool:
        """Does the model itself carry h_k around block k to h_{k+1}?"""
        here, there = self.calls[k].edges.get(slot), self.calls[k + 1].edges.get(slot)
        return here is not None and there is not None and reaches(there, [here], self.calls[k].output_edges.values())

    def goes_beside(self, k: int, slot: Path) -> bool:
        """Does h_{k+1} take what block k - 1 gave by a way that passes neither h_k nor block k, and h_k by none? The state
        is then another tensor, from which h_k was made."""
        here, there = self.calls[k].edges.get(slot), self.calls[k + 1].edges.get(slot)
        if here is None or there is None or self._goes_around(k, slot):
            return False
        return reaches(there, self.calls[k - 1].output_edges.values(), [here, *self.calls[k].output_edges.values()])

    def _joined(self, k: int, slot: Path) -> Place | None:
        """The first operation after the only block that joins its output to the state that went around it; None: none does."""
        call = self.calls[k]
        here, given = call.edges.get(slot), list(call.output_edges.values())
        if here is None or any(has_skip(edge, here, self.joins) for edge in given):
            return None
        for index, edges in enumerate(self._edges[k + 1]):
            for path, edge in edges.items():
                if not reaches(edge, given):
                    continue
                if is_carried(edge, here, given):
                    return Place("operation", path, tuple(o.name for o in self.operations[k + 1][: index + 1]))
                if is_carried(edge, here, given, changed=True):
                    raise CreditscopeError(
                        f"the state goes around the only block {call.name!r} through a norm or a division: it is unclear whether "
                        "that belongs to the step or to the readout; name blocks that include it, or several"
                    )
        return None


def _sources(paths: list[Path], edges: Mapping[Path, Edge], given: Sequence[Edge]) -> list[Path]:
    """The arguments from which the others are made: what is computed from the state alone is no second state."""
    return [
        path
        for path in paths
        if not any(
            edges[path] != edges[other] and not reaches(edges[path], given, [edges[other]])
            for other in paths
            if other != path
        )
    ]


def _varies(t: Tensor, n: int) -> bool:
    """Does a tensor differ from sample to sample? (Positions and other parameters do not.)"""
    axes = [d for d in range(min(2, t.dim())) if t.shape[d] == n]
    return any(n == 1 or not torch.equal(t.select(d, 0), t.select(d, n - 1)) for d in axes)


def _behind_hook(t: Tensor) -> Edge | None:
    """The tensor that a full backward hook of the user has wrapped, as the graph knows it."""
    node = t.grad_fn
    if node is None or not node.name().startswith("BackwardHookFunction"):
        return None
    return node.next_functions[t.output_nr]


def distinct(out: Any, arguments: Mapping[int | str, Any], versions: Mapping[Path, int]) -> Any:
    """The output of a block, with an alias for a tensor that the block was given and hands back: two states are two tensors."""
    for path, given in list(tensors_in(arguments)):
        for where, t in list(tensors_in(out)):
            if t is given and version_of(t) == versions.get(path, version_of(t)):
                out = replaced(out, where, t.view_as(t))
    return out


def with_input(inputs: Any, index: int, new: Tensor) -> Any:
    """The inputs with another tensor at a place of the flattened tree."""
    leaves, spec = tree_flatten(inputs)
    leaves[index] = new
    return tree_unflatten(leaves, spec)


ADDS_IN_PLACE = {"add_", "__iadd__", "sub_", "__isub__", "addcmul_", "addcdiv_", "lerp_", "index_add_", "scatter_add_"}
"""Operations that add to a tensor in place."""
MIXING = {
    *("linear", "conv1d", "conv2d", "conv3d", "matmul", "__matmul__", "bmm", "einsum", "addmm", "baddbmm"),
    *("scaled_dot_product_attention", "multi_head_attention_forward"),
}
"""Operations that mix features or tokens: the work of a layer."""
POOLS = ("mean", "adaptive_avg_pool1d", "avg_pool1d")
TOKENWISE = {
    *("layer_norm", "rms_norm", "linear", "dropout", "gelu", "relu", "silu", "tanh", "sigmoid", "softplus"),
    *(
        "add",
        "sub",
        "mul",
        "addcmul",
        "div",
        "true_divide",
        "__add__",
        "__radd__",
        "__mul__",
        "__rmul__",
        "__sub__",
        "__truediv__",
    ),
    *("pow", "__pow__", "square", "sqrt", "rsqrt", "var", "std", "to", "float", "type_as", "contiguous"),
    *("transpose", "permute", "view_as", "clone", "__get__", "mT", "mean"),
}
"""Operations that treat every token alike and by itself, if the tokens' axis stays."""


def pooled_by_mean(operations: Sequence[Operation], h: Tensor, tokens: int) -> bool:
    """Is the tokens' axis of h_L given up by a mean, with nothing before it that mixes tokens or tells them apart?

    Read off the operations, because values cannot tell: a head that is zero makes every pooling look alike. False where it
    cannot be told.
    """
    if sum(n == tokens for n in h.shape) != 1:
        return False
    followed = {id(h)}
    for operation in operations:
        if not any(id(t) in followed for t in operation.given):
            continue
        if any(tokens in t.shape for t in operation.given if id(t) not in followed):
            return False  # a mask, or positions
        outs = [t for _, t in tensors_in(operation.gives)]
        if len(outs) != 1:
            return False
        (out,) = outs
        if operation.name in POOLS and tokens not in out.shape:
            return True
        whole = operation.name == "__getitem__" and any(_is_all_of(out, t) for t in operation.given)
        if not (whole or operation.name in TOKENWISE) or tokens not in out.shape:
            return False
        followed.add(id(out))
    return False


def _is_all_of(part: Tensor, t: Tensor) -> bool:
    """Is `part` the whole of t, as t[:, 0:] is? (A list of indices gives a copy.)"""
    return part.shape == t.shape and part.stride() == t.stride() and part.data_ptr() == t.data_ptr()
