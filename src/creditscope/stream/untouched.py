"""A model is left exactly as it was found: parameters, buffers, modes, flags, .grad, hooks and every reachable generator.

With CREDITSCOPE_CHECK_UNTOUCHED=1 in the environment (all tests set it) a fingerprint of the whole state is taken before
and after every measurement, and a difference is an error.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_flatten

from creditscope.errors import CreditscopeError
from creditscope.stream.eager import eagerly, require_usable
from creditscope.stream.ranks import has_shards, own_part, recover, reshard

CHECK = "CREDITSCOPE_CHECK_UNTOUCHED"
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@contextmanager
def untouched(model: nn.Module, train: bool = False, reads: Any = None) -> Iterator[None]:
    """Run with the model in eval (or train) mode; put its whole state back afterwards, also after an error.

    reads: a DataLoader (or any object) whose own generators are put back as well.
    """
    require_usable(model)
    reshard(model)
    before = fingerprint(model, reads) if os.environ.get(CHECK) else {}
    restore_generators = _generators(model, reads)
    modes = [(m, m.training) for m in model.modules()]
    params = [(p, p.requires_grad, p.grad) for p in model.parameters()]
    restore_buffers, written, restore_own = _buffers(model), _Written(model), _attributes(model)
    _TO_WATCH.append(written)
    try:
        with written:
            _set_mode(model, train)
        for p, _, _ in params:
            p.grad = None  # whatever runs here adds to a new tensor, never into the user's
        with eagerly(model):
            yield
    except BaseException:
        recover(model)
        raise
    finally:
        _TO_WATCH[:] = [w for w in _TO_WATCH if w is not written]
        reshard(model)
        with written:
            for module, mode in modes:  # parents come first: what they set in their children is set right after them
                if module.training != mode:
                    module.train(mode)
        with ExitStack() as steps:  # the last first, each of them even where one before it raises
            for restore in (restore_generators, restore_buffers, written.restore, restore_own):
                steps.callback(restore)
            for p, requires_grad, grad in params:
                p.requires_grad_(requires_grad)
                p.grad = grad
    if before:
        _require_same(before, fingerprint(model, reads))


@contextmanager
def first_run(model: nn.Module) -> Iterator[None]:
    """A run of the model; the first one shows to which weights its own forward pass writes (a norm that is bounded there, as in
    EEGNet), and these are kept. A later one costs nothing."""
    p = next(model.parameters(), None)
    watching = [w for w in _TO_WATCH if w.holds(p)]
    with ExitStack() as stack:
        for w in watching:
            stack.enter_context(w)
        yield
    _TO_WATCH[:] = [w for w in _TO_WATCH if w not in watching]


def _set_mode(model: nn.Module, train: bool) -> None:
    try:
        model.train(train)
    except Exception as error:  # it is the user's code, or a program of torch.export, which has one mode
        why = " ".join((str(error) or type(error).__name__).split())[:120]
        raise CreditscopeError(
            f"{type(model).__name__} cannot be put into {'train' if train else 'eval'} mode ({why}); give the module itself, not "
            "an exported program"
        ) from error


def _buffers(model: nn.Module) -> Callable[[], None]:
    """Keeps a copy of every buffer (some are written in eval mode too); what it returns puts them back.

    By their bytes: the observers of fake quantisation write to theirs without counting it as a new version.
    """
    kept = [
        (module, name, buffer, None if buffer is None else _inside(buffer))
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]

    def restore() -> None:
        for module, name, buffer, held in kept:
            module._buffers[name] = buffer
            if held is not None:
                _put_back(buffer, *held)

    return restore


def _attributes(model: nn.Module) -> Callable[[], None]:
    """What else modules keep and their forward pass may write: counters, caches, hooks and parts that it installs.

    Values are put back as they were; of lists, dictionaries and sets what stands in them, of tensors what they hold.
    """
    kept = []
    for module in model.modules():
        own = {k: v for k, v in vars(module).items() if k not in KEPT_ELSEWHERE}
        kept.append((module, own, {k: (v, _inside(v)) for k, v in own.items() if isinstance(v, CONTAINERS)}))

    def restore() -> None:
        for module, own, containers in kept:
            now = vars(module)
            for name in [k for k in now if k not in own and k not in KEPT_ELSEWHERE]:
                del now[name]
            now.update({k: v for k, v in own.items() if k not in now or now[k] is not v})
            for value, held in containers.values():
                _put_back(value, *held)

    return restore


KEPT_ELSEWHERE = ("training",)
CONTAINERS = (list, dict, set, deque, Tensor)


def _inside(value: Any) -> tuple[Any, ...]:
    """What `_put_back` takes: of a tensor its numbers, its version and, where it has bytes, the memory in which they lie."""
    if isinstance(value, Tensor):
        return value.detach().clone(), version_of(value), value.detach() if _has_bytes(value) else None
    return (dict(value) if isinstance(value, dict) else list(value), 0, None)


def version_of(t: Tensor) -> int:
    """Those of inference mode count none."""
    return 0 if t.is_inference() else t._version


def _put_back(value: Any, inside: Any, version: int, memory: Tensor | None) -> None:
    if isinstance(value, Tensor):
        with torch.no_grad():
            if memory is not None:
                if value.dtype != memory.dtype or _place(value) != _place(memory):  # it was given other data, or turned
                    value.data = memory
                # by its bytes: observers of fake quantisation, .data and numpy write without counting it as a new version
                if not _equal(value, inside):
                    value.copy_(inside)
            elif version_of(value) != version:
                value.copy_(inside)
    elif not value and not inside:
        return  # as most are
    elif isinstance(value, dict):
        if list(map(id, value)) != list(map(id, inside)) or any(value[k] is not v for k, v in inside.items()):
            value.clear()
            value.update(inside)
    elif list(map(id, value)) != list(map(id, inside)):
        value.clear()
        (value.update if isinstance(value, set) else value.extend)(inside)


class _Written(TorchDispatchMode):
    """Weights that modules write to in a `train` of their own (adapters that are merged for evaluation) or in their forward pass.

    Each is copied before the first write to its storage, or before its address is given away, so that a model that writes to
    none is not copied. An embedding that renormalises its weight in every forward pass is copied at once. `fully_shard` moves
    its weights about: of such a model only modules with a `train` of their own are looked at.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        modules = list(model.modules())
        bound = [m for m in modules if getattr(m, "max_norm", None) is not None]
        own = [*bound, *(m for m in modules if type(m).train is not nn.Module.train)] if has_shards(model) else [model]
        self._found = {id(p): (p, _memory(p)) for m in own for p in m.parameters() if _has_bytes(p)}
        self._places = {key: _place(p) for key, (p, _) in self._found.items()}
        self._storages = {place[0] for place in self._places.values()}
        self._kept: dict[int, Tensor] = {}
        self._addresses = _Addresses(self._keep)
        for p in (p for m in bound for p in m.parameters(recurse=False)):
            self._keep(p)
        if self._storages:
            self._keep_seen_by_numpy(modules)

    def _keep_seen_by_numpy(self, modules: Sequence[nn.Module]) -> None:
        """Arrays that a module has of its weights are written to without torch."""
        starts = [_start(v) for m in modules for v in vars(m).values() if isinstance(v, np.ndarray)]
        for p, before in self._found.values() if starts else ():
            memory = own_part(before()).untyped_storage()
            first = memory.data_ptr()
            if memory.device.type == "cpu" and any(first <= start < first + memory.nbytes() for start in starts):
                self._keep(p)

    def holds(self, p: nn.Parameter | None) -> bool:
        return id(p) in self._found

    def __enter__(self) -> _Written:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._addresses.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        self._addresses.__exit__(*error)  # type: ignore[no-untyped-call]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if written := _written_to(func, args, kwargs):
            for t in tree_flatten(written)[0]:
                if isinstance(t, Tensor):
                    self._keep(t)
        return func(*args, **kwargs)

    def _keep(self, written: Tensor) -> None:
        storage = _storage(written)
        if storage in self._storages:
            self._storages.discard(storage)
            views = {key: view() for key, (_, view) in self._found.items()}
            self._kept |= {key: t.clone() for key, t in views.items() if _storage(t) == storage}

    @torch.no_grad()
    def restore(self) -> None:
        for key, (p, view) in self._found.items():
            if key in self._kept and not _equal(before := view(), self._kept[key]):
                before.copy_(self._kept[key])
            if _place(p) != self._places[key]:  # it was given other data, or turned
                p.data = view()


_TO_WATCH: list[_Written] = []
"""Of models that have not run since `untouched` began."""


def _memory(p: nn.Parameter) -> Callable[[], Tensor]:
    """Gives a view of the numbers of a weight as they lie now; no tensor is held by which others would see them shared."""
    if type(p) is not nn.Parameter or p.is_conj() or p.is_neg():
        held = p.detach()
        return lambda: held
    storage, offset, shape, stride = p.untyped_storage(), p.storage_offset(), p.shape, p.stride()
    dtype, device = p.dtype, p.device
    return lambda: torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, stride)


def _start(array: Any) -> int:
    """Where in memory the first number of an array lies."""
    place: int = array.__array_interface__["data"][0]
    return place


class _Addresses(TorchFunctionMode):
    """Sees who is given the address of a tensor, to which he may write unseen."""

    GIVEN_BY = ("numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage")

    def __init__(self, given: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._given = given

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.GIVEN_BY:
            self._given(args[0])
        return func(*args, **(kwargs or {}))


def _place(t: Tensor) -> tuple[Any, ...]:
    """Where in memory a tensor lies, and how."""
    t = own_part(t)
    return _storage(t), t.storage_offset(), t.shape, t.stride()


def _storage(t: Tensor) -> int:
    """Of all tensors that share memory the same."""
    found: int = own_part(t).untyped_storage()._cdata
    return found


def _written_to(func: Any, args: Any, kwargs: Any) -> Any:
    """The arguments to which an operation may write."""
    places = _written_places(func)
    if places is None:
        return args, kwargs
    return [args[k] if k < len(args) else kwargs.get(name) for k, name in places]


@cache
def _written_places(func: Any) -> list[tuple[int, str]] | None:
    """Their places and names; None: they are not known. Asked at every operation of a run."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    return [(k, a.name) for k, a in enumerate(schema.arguments) if written[k]]


def _equal(a: Tensor, b: Tensor) -> bool:
    """To the bit, NaN included."""
    a, b = own_part(a), own_part(b)
    return a.shape == b.shape and torch.equal(_bytes(a), _bytes(b))


def _has_bytes(t: Tensor) -> bool:
    """Not where numbers lie in several tensors (sparse, nested), or as only their own operations know (quantised, mkldnn)."""
    t = own_part(t)
    plain = t.layout is torch.strided and not t.is_quantized and not t.is_nested
    return plain and not t.is_meta and not is_traceable_wrapper_subclass(t)


def _bytes(t: Tensor) -> Tensor:
    return t.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)


@contextmanager
def generators_kept(model: nn.Module) -> Iterator[None]:
    """Whatever draws random numbers inside, nobody outside sees it."""
    restore = _generators(model, None)
    try:
        yield
    finally:
        restore()


def _generators(model: nn.Module, reads: Any) -> Callable[[], None]:
    """The state of the global generators and of those that the model and the loader hold; what it returns puts it back."""
    python_rng, numpy_rng, torch_rng = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    cuda_rng = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    own = [(g, generator_state(g)) for g in _held(model, reads)]

    def restore() -> None:
        random.setstate(python_rng)
        np.random.set_state(numpy_rng)  # noqa: NPY002  (the user's own legacy state)
        torch.set_rng_state(torch_rng)
        if cuda_rng is not None:
            torch.cuda.set_rng_state_all(cuda_rng)
        for generator, state in own:
            set_generator_state(generator, state)

    return restore


GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def _held(model: nn.Module, reads: Any) -> list[Any]:
    """Generators that modules keep as attributes, and those of a DataLoader, its samplers and its data set."""
    owners: list[Any] = [*model.modules()]
    loader = [reads] if reads is not None else []
    for owner in loader:
        parts = (getattr(owner, name, None) for name in ("sampler", "batch_sampler", "dataset"))
        loader += [part for part in parts if part is not None and len(loader) < 16]
    owners += loader
    values = [v for owner in owners for v in getattr(owner, "__dict__", {}).values()]
    kinds = {
        kind for kind in set(map(type, values)) if issubclass(kind, GENERATORS)
    }  # torch answers for its own in Python
    return list({id(v): v for v in values if type(v) in kinds}.values())


def generator_state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state() if isinstance(generator, np.random.RandomState) else generator.getstate()


def set_generator_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator | np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.setstate(state)


def fingerprint(model: nn.Module, reads: Any = None) -> dict[str, Any]:
    """Everything that must be the same afterwards, by name; tensors by the hash of their bytes."""
    found: dict[str, Any] = {}
    for name, p in model.named_parameters():
        found[f"parameter {name}"] = (id(p), p.requires_grad, _digest(p))
        found[f"gradient of {name}"] = None if p.grad is None else (id(p.grad), _digest(p.grad))
    for name, buffer in model.named_buffers():
        found[f"buffer {name}"] = (id(buffer), _digest(buffer))
    for name, module in model.named_modules():
        found[f"mode of {name or 'the model'}"] = module.training
        found[f"hooks of {name or 'the model'}"] = tuple(tuple(getattr(module, h).items()) for h in HOOKS)
    found["random numbers of Python"] = random.getstate()
    found["random numbers of numpy"] = str(np.random.get_state())  # noqa: NPY002
    found["random numbers of torch"] = _digest(torch.get_rng_state())
    for k, generator in enumerate(_held(model, reads)):
        state = generator_state(generator)
        found[f"generator {k}"] = _digest(state) if isinstance(state, Tensor) else str(state)
    return found


class Kept:
    """What modules keep beside their parameters (buffers, masks and caches in their attributes), as it is now."""

    def __init__(self, model: nn.Module) -> None:
        values = [v for m in model.modules() for v in (*m._buffers.values(), *vars(m).values())]
        values += [v for each in values if isinstance(each, CONTAINERS[:-1]) for v in _values(each)]
        found = {id(t): t for t in values if isinstance(t, Tensor) and not isinstance(t, nn.Parameter)}
        self._tensors = [(t, *self._state(t)) for t in found.values()]

    @property
    def same(self) -> bool:
        """Has nobody written to it since? By its version, and by its bytes: some write without counting a new version."""
        return all(self._state(t) == before for t, *before in self._tensors)

    @staticmethod
    def _state(t: Tensor) -> list[Any]:
        return [version_of(t), _digest(t) if _has_bytes(t) else ""]


def _values(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


def _digest(t: Tensor) -> str:
    part = own_part(t)
    if not _has_bytes(part):
        part = part.int_repr() if part.is_quantized else part.to_dense()
    # of a copy: memory that numpy has seen cannot be given back, as `fully_shard` does after a pass
    return hashlib.blake2b(_bytes(part.cpu().clone()).numpy().tobytes(), digest_size=16).hexdigest()


def _require_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if changed:
        raise CreditscopeError(f"the measurement changed the state of the model: {', '.join(changed[:5])}")


@contextmanager
def no_parameter_grads(model: nn.Module) -> Iterator[None]:
    """Build a graph through the hidden states only: faster, and nothing is kept for weight gradients."""
    with parameters_as([(p, False) for p in model.parameters()]):
        yield


@contextmanager
def parameters_as(flags: Sequence[tuple[nn.Parameter, bool]]) -> Iterator[None]:
    """Give parameters these requires_grad flags for a while."""
    before = [(p, p.requires_grad) for p, _ in flags]
    try:
        for p, flag in flags:
            p.requires_grad_(flag)
        yield
    finally:
        for p, flag in before:
            p.requires_grad_(flag)
