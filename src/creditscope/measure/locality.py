"""Locality certificate: what does the update of each block depend on? One thing is changed at a time, the update is a black box.

Every call of the update begins from the same weights, auxiliary state and random numbers. A change counts where it stands
out from its floor: the change of the update when inputs and states get noise of the size that the forward pass shows.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from creditscope.measure.certificate import ABOVE
from creditscope.measure.exact_gradient import exact_gradient
from creditscope.measure.null_space import NullSpace, Products, Use, null_space, unseen
from creditscope.measure.replay import Replay
from creditscope.stream.batches import call_model, logits_of, map_samples
from creditscope.stream.blocks import replaced, tensors_in
from creditscope.stream.labels import IGNORED
from creditscope.stream.untouched import generators_kept, untouched

Update = Callable[[nn.Module, Any], Any]
LossFn = Callable[[Tensor, Tensor], Tensor]
Changes = dict[str, Tensor]
"""Name of a parameter -> what the update does to it (float64)."""
Exact = Callable[[Mapping[str, Tensor] | None], Changes]
"""The exact gradient of the mean loss as a function of a change of the weights (None: none)."""

SMALLEST = {torch.float64: 1e-9}
SMALLEST_NATIVE = 1e-5
"""Smaller relative changes never count (float64; any other dtype, or an auxiliary network in one)."""
HIGHEST_FLOOR = 1e-3
"""A floor above it hides what the question asks for."""
CLIPPED = 1e-5
"""Of the size of a clipped gradient: torch adds 1e-6 to the norm that it divides by."""
STATE_NOISE = 0.1
"""Of the RMS of a state, where later states are changed."""
WEIGHT_NOISE = 0.01
"""Of the RMS of a weight, where a first update leaves something behind for a second one."""
EQUAL = {torch.float64: 1e-8}
EQUAL_NATIVE = 1e-4
"""Relative difference up to which two gradients are equal to round-off."""
EMBEDDING, READOUT, AUXILIARY = "embedding", "readout", "auxiliary"


@dataclass
class Compared:
    """The change of each part's update, after a factor that all parts other than the perturbed one have in common."""

    parts: dict[str, float]
    scale: float = 1.0


@dataclass
class Transport:
    """What the null-space perturbations showed."""

    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    inside: dict[str, float] = field(default_factory=dict)
    signs: dict[str, dict[str, float]] = field(default_factory=dict)
    power: dict[str, dict[str, float]] = field(default_factory=dict)
    """The same for the exact gradient: what a rule that transports everything would show."""
    inside_power: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    scales: list[float] = field(default_factory=list)
    moved: float = 0.0
    """Largest relative change of a state or of the logits under a perturbation."""


class Experiment:
    """One model, one batch, one update that can be called again and again from the same state."""

    def __init__(
        self,
        update: Update,
        model: nn.Module,
        inputs: Any,
        y: Tensor,
        blocks: Sequence[tuple[str, nn.Module]],
        rebuild: Callable[[Any, Tensor], Any],
        *,
        loss_fn: LossFn | None,
        seed: int,
        roots: Sequence[Any] = (),
        by_step: bool = False,
    ) -> None:
        """Call inside `placed`: weights are already in the dtype of the test. rebuild(inputs, y) -> the user's batch."""
        self.update, self.model, self.inputs, self.y = update, model, inputs, y
        self.blocks, self.rebuild, self.by_step = list(blocks), rebuild, by_step
        self.loss_fn, self.loss_given = loss_fn or cross_entropy, loss_fn is not None
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters = dict(model.named_parameters())
        self.weights = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.dtype = next((p.dtype for p in self.parameters.values() if p.is_floating_point()), torch.float32)
        self.replay = Replay([update, model, *roots], self.parameters.values())
        self.calls = 0
        self.states, self.logits, self.products, self.segment = self._watch()
        self.idle = self._idle()
        self.part_of = self._parts()
        self.names = [name for name, _ in self.blocks]
        self.head = self._head()
        self.base = self.run()

    # ---- one call ----------------------------------------------------------------------------------------------

    def run(
        self,
        change: Mapping[str, Tensor] | None = None,
        inputs: Any = None,
        y: Tensor | None = None,
        hooks: Callable[[], ExitStack] | None = None,
        keep_state: bool = False,
    ) -> Changes:
        """The update, from the recorded state, with some weights changed."""
        self.calls += 1
        if not keep_state:
            self.replay.restore()
        batch = self.rebuild(self.inputs if inputs is None else inputs, self.y if y is None else y)
        with generators_kept(self.model), torch.enable_grad():
            self._place(change)
            before = {name: p.detach().clone() for name, p in self.parameters.items()} if self.by_step else {}
            for p in self.parameters.values():
                p.grad = None
            with ExitStack() if hooks is None else hooks():
                self.update(self.model, batch)
            after = dict(self.model.named_parameters())  # some layers put a new parameter in the place of the old
            if self.by_step:
                left = {n: (w - after[n].detach()).double() for n, w in before.items() if after[n].requires_grad}
            else:
                left = {n: p.grad.detach().double().clone() for n, p in after.items() if p.grad is not None}
        for p in self.parameters.values():
            p.grad = None
        self._place(None)
        return left

    @torch.no_grad()
    def _place(self, change: Mapping[str, Tensor] | None) -> None:
        for name, p in self.parameters.items():
            p.copy_(self.weights[name])
        for name, added in (change or {}).items():  # last: two parameters may share their memory
            self.parameters[name].add_(added.to(self.parameters[name]))

    def forward(
        self,
        change: Mapping[str, Tensor] | None = None,
        ended: Callable[[], None] = lambda: None,
        watched: Sequence[AbstractContextManager[Any]] = (),
    ) -> tuple[dict[str, Tensor], Tensor]:
        """States behind each block, and the logits; `ended` is called at the end of each block."""
        self.replay.restore()
        self._place(change)
        states: dict[str, Tensor] = {}

        def keep(name: str, _: nn.Module, __: Any, out: Any) -> None:
            states[name] = _first(out).detach()
            ended()

        with ExitStack() as stack, generators_kept(self.model), torch.enable_grad():
            stack.enter_context(hooked((block, partial(keep, name)) for name, block in self.blocks))
            for watch in watched:
                stack.enter_context(watch)
            logits = logits_of(call_model(self.model, self.inputs)).detach()
        self.replay.restore()
        self._place(None)
        return states, logits

    def _watch(self) -> tuple[dict[str, Tensor], Tensor, Products, dict[str, int]]:
        """The forward pass with every product seen; also the number of blocks that had ended before each first use."""
        products = Products(self.parameters)
        ended = 0
        segment: dict[str, int] = {}

        def end() -> None:
            nonlocal ended
            ended += 1

        ids = {id(p): name for name, p in self.parameters.items()}

        class Seen(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                for value in (*args, *(kwargs or {}).values()):
                    for _, t in tensors_in(value):
                        if id(t) in ids:
                            segment.setdefault(ids[id(t)], ended)
                return func(*args, **(kwargs or {}))

        states, logits = self.forward(ended=end, watched=(Seen(), products))
        return states, logits, products, segment

    def _idle(self) -> set[str]:
        """Parameters without which the forward pass is the same to the bit: readouts of local losses, feedback matrices."""

        def unseen_by(names: Sequence[str]) -> bool:
            noise = {n: torch.randn(self.parameters[n].shape, generator=self.generator) for n in names}
            states, logits = self.forward(noise)
            return torch.equal(logits, self.logits) and all(torch.equal(states[n], h) for n, h in self.states.items())

        names = [
            n for n, p in self.parameters.items() if n not in self.segment and n not in self.products.uses and p.numel()
        ]
        if not names or unseen_by(names):
            return set(names)
        return {n for n in names if unseen_by([n])}

    def _parts(self) -> dict[str, tuple[str, ...]]:
        """The parts that a parameter belongs to: blocks (several, if they share it), else embedding, readout or auxiliary."""
        found: dict[str, tuple[str, ...]] = {}
        ids = {name: {id(p) for p in block.parameters()} for name, block in self.blocks}
        for name, p in self.parameters.items():
            inside = tuple(block for block, members in ids.items() if id(p) in members)
            outside = AUXILIARY if name in self.idle else EMBEDDING if self.segment.get(name, 1) == 0 else READOUT
            found[name] = inside or (outside,)
        return found

    def _head(self) -> tuple[str, nn.Module] | None:
        """Name of the last weight behind the blocks, and the module that holds it."""
        last = [name for name in self.products.uses if self.part_of[name] == (READOUT,)]
        if not last:
            return None
        return last[-1], self.model.get_submodule(last[-1].rpartition(".")[0])

    def inputs_in_update(self) -> dict[str, Use] | None:
        """Inputs of each weight wherever the update runs a module forward: also at states other than the recorded ones; None
        where it runs a module with other weights, whose inputs are not known."""
        products = Products(self.parameters)
        products.active = False
        inside = 0
        others = False
        weights = {id(m): {n: f"{name}.{n}" for n in m._parameters} for name, m in self.model.named_modules()}

        def begin(module: nn.Module, _: Any) -> None:
            nonlocal inside, others
            inside += 1
            products.active = True
            for n, name in weights[id(module)].items():
                if name in self.base and not _same_values(module._parameters[n], self.weights[name]):
                    others = True

        def end(*_: Any) -> None:
            nonlocal inside
            inside -= 1
            products.active = inside > 0

        def hooks() -> ExitStack:
            modules = [module for module in self.model.modules() if module is not self.model]
            stack = hooked((module, end) for module in modules)
            for module in modules:
                stack.callback(module.register_forward_pre_hook(begin).remove)
            stack.enter_context(products)
            return stack

        self.run(hooks=hooks)
        if others:
            return None
        for name, use in self.products.uses.items():
            products.uses.setdefault(name, Use()).inputs.extend(use.inputs)
            products.uses[name].left.extend(use.left)
        return products.uses

    # ---- comparison --------------------------------------------------------------------------------------------

    @property
    def trained(self) -> list[str]:
        """Parts that the update changes, in the order of the forward pass."""
        parts = [EMBEDDING, *self.names, READOUT]
        return [part for part in parts if self.size(self.base, part) > 0]

    def _in(self, part: str) -> list[str]:
        return [name for name, parts in self.part_of.items() if part in parts]

    def size(self, update: Changes, *parts: str) -> float:
        names = {n for part in parts for n in self._in(part) if n in update}
        return math.sqrt(sum(float(update[n].square().sum()) for n in names))

    def change(self, other: Changes, names: Sequence[str], scale: float = 1.0, base: Changes | None = None) -> float:
        """‖u' - scale u‖ / ‖u‖ over these parameters; NaN where u is zero."""
        base = self.base if base is None else base
        difference = size = 0.0
        for name in names:
            if name not in base and name not in other:
                continue
            u = base.get(name, torch.zeros_like(other[name]) if name in other else None)
            assert u is not None
            v = other.get(name, torch.zeros_like(u))
            difference += float((v - scale * u).square().sum())
            size += float(u.square().sum())
        return (difference / size) ** 0.5 if size > 0 else float("nan")

    def compare(self, other: Changes, perturbed: Sequence[str] = ()) -> Compared:
        """perturbed: parts that the perturbation may change directly; they say nothing about a common factor."""
        scale = self._common_scale(other, [part for part in self.trained if part not in perturbed])
        return Compared({part: self.change(other, self._in(part), scale) for part in self.trained}, scale)

    def _common_scale(self, other: Changes, parts: Sequence[str]) -> float:
        """The one factor that explains the change of all these parts; 1 where there is none."""
        names = [n for part in parts for n in self._in(part) if n in self.base and n in other]
        size = sum(float(self.base[n].square().sum()) for n in names)
        factor = sum(float((self.base[n] * other[n]).sum()) for n in names) / size if size else 1.0
        if abs(factor - 1) <= self.smallest or factor <= 0:
            return 1.0
        left = max(self.change(other, self._in(part), factor) for part in parts)
        return factor if left <= max(self.smallest, 1e-3 * abs(factor - 1)) else 1.0

    @property
    def smallest(self) -> float:
        return SMALLEST_NATIVE if self.replay.narrow else SMALLEST.get(self.dtype, SMALLEST_NATIVE)

    @property
    def equal(self) -> float:
        return EQUAL.get(self.dtype, EQUAL_NATIVE)

    def bound(self, floor: float) -> float:
        """A change above it counts."""
        return max(ABOVE * floor, self.smallest)

    def depends(self, change: float, floor: float) -> bool:
        return change > self.bound(floor)

    # ---- noise -------------------------------------------------------------------------------------------------

    def noise(self, t: Tensor, size: float) -> Tensor:
        rms = float(t.detach().double().square().mean().sqrt())
        return (size * rms * torch.randn(t.shape, dtype=torch.float64, generator=self.generator)).to(t)

    def floor(self, size: float) -> float:
        """The largest change of a block's update when inputs and states get noise of this relative size, in two draws."""
        found = 0.0
        for _ in range(2):
            inputs = map_samples(
                self.inputs, len(self.y), lambda t: t + self.noise(t, size) if t.is_floating_point() else t
            )
            noise = {name: self.noise(state, size) for name, state in self.states.items()}
            changed = self.compare(self.run(inputs=inputs, hooks=partial(self._added, noise)))
            found = max(found, *(changed.parts[name] for name in self.trained))
        return found

    def _added(self, noise: Mapping[str, Tensor], logits: Tensor | None = None) -> ExitStack:
        """Noise at the outputs of blocks; the first call of the head gives these logits, with the graph of its own."""
        self.fired: set[str] = set()

        def add(name: str, _: nn.Module, __: Any, out: Any) -> Any:
            self.fired.add(name)
            path, t = next(iter(tensors_in(out)))
            extra = noise[name]
            return replaced(out, path, t + extra.to(t)) if extra.shape == t.shape else out

        def hand_back(_: nn.Module, __: Any, out: Any) -> None:
            first, t = "head" not in self.fired, _first(out)
            self.fired.add("head")
            assert logits is not None
            if first and t.shape == logits.shape:
                t.data.copy_(logits)  # the graph, and what hooks of the user hang on it, stay

        hooks: list[Hook] = [(block, partial(add, name)) for name, block in self.blocks if name in noise]
        if logits is not None and self.head is not None:
            hooks.append((self.head[1], hand_back))
        return hooked(hooks)

    # ---- 1: weight transport -----------------------------------------------------------------------------------

    @cached_property
    def spaces(self) -> dict[str, NullSpace]:
        """The null space of every weight of blocks and readout."""
        return {name: self._space(name, self.products.uses) for part in self.parts for name in self._weights(part)}

    @property
    def parts(self) -> tuple[str, ...]:
        """What is perturbed: the blocks and the readout."""
        return (*self.names, READOUT)

    def transport(self, exact: Exact | None) -> Transport:
        found, spaces = Transport(), self.spaces
        self.exact, self.exact_base = exact, exact(None) if exact is not None else {}
        for part in self.parts:
            weights = self._weights(part)
            trainable = {
                n: self.parameters[n] for n in self._in(part) if self.parameters[n].requires_grad and n not in self.idle
            }
            for name in unseen(trainable, self.products.uses):
                found.refused[name] = "no product with it was seen"
            for name in weights:
                if spaces[name].refused:
                    fitting = spaces[name].fitting
                    found.refused[name] = spaces[name].refused + (
                        f", batch <= {fitting} would do" if fitting and fitting < len(self.y) else ""
                    )
            usable = [name for name in weights if not spaces[name].refused]
            self._perturb_part(found, part, usable)
            first = weights[0] if weights else ""
            behind = [name for name in usable if name != first]
            if part != READOUT and first in self.base and behind:
                self._perturb_inside(found, part, first, behind)
        return found

    @property
    def tolerance(self) -> float:
        """Singular values of inputs under this share of the largest are zero."""
        return 1e-10 if self.dtype == torch.float64 else 1e-5

    def forward_runs(self) -> dict[str, dict[str, float]] | None:
        """The rows of a perturbation again, with changes that no forward run inside the update can see; None: there is no room
        for such a change, or none is known; {}: the update runs its modules at the recorded states only."""
        uses = self.inputs_in_update()
        if uses is None:
            return None
        found = Transport()
        wider = False
        rows: dict[str, dict[str, float]] = {}
        for part in self.parts:
            spaces = {n: self._space(n, uses) for n in self._weights(part)}
            known = self.spaces
            wider |= any(spaces[n].refused or len(spaces[n].basis) > len(known[n].basis) for n in spaces)
            if any(space.refused and not known[n].refused for n, space in spaces.items()):
                return None
            change = self._drawn(found, [n for n in spaces if not spaces[n].refused], spaces)
            if change:
                compared = self.compare(self.run(change), [part])
                rows[part] = {p: compared.parts[p] for p in self._others(part)}
        return rows if wider else {}

    def _weights(self, part: str) -> list[str]:
        """Weights of a part that are used in products, in the order of their first use."""
        return [name for name in self.products.uses if name in self._in(part)]

    def _space(self, name: str, uses: Mapping[str, Use]) -> NullSpace:
        return null_space(self.parameters[name], uses[name], len(self.y), self.tolerance)

    def _drawn(
        self, found: Transport, names: Sequence[str], spaces: Mapping[str, NullSpace], keep_signs: bool = False
    ) -> dict[str, Tensor]:
        """A null-space change of these weights, without those that turn out to move the forward pass."""
        change: dict[str, Tensor] = {}
        for name in names:
            drawn = spaces[name].change(self.parameters[name], self.generator, keep_signs)
            if drawn is not None:
                change[name] = drawn.to(self.parameters[name])
        most = 1e-9 if self.dtype == torch.float64 else 1e-3
        moved = self._moved(change)
        if moved > most:
            for name in list(change):
                alone = self._moved({name: change[name]})
                if alone > most:
                    found.refused[name] = f"it acts on the forward pass in other ways than by products ({alone:.1g})"
                    del change[name]
            moved = self._moved(change)
        found.moved = max(found.moved, moved)
        return change

    def _moved(self, change: Mapping[str, Tensor]) -> float:
        if not change:
            return 0.0
        states, logits = self.forward(change)
        pairs = [(states[name], self.states[name]) for name in self.states] + [(logits, self.logits)]
        sizes = [float(b.double().norm()) for _, b in pairs]
        # a branch that starts at zero has no size of its own
        return max(
            float((a - b).double().norm()) / (size or max(sizes) or 1.0)
            for (a, b), size in zip(pairs, sizes, strict=True)
        )

    def _others(self, part: str) -> list[str]:
        """Trained parts that share no parameter with this one."""
        mine = set(self._in(part))
        return [p for p in self.trained if p != part and not mine & set(self._in(p))]

    def _perturb_part(self, found: Transport, part: str, weights: Sequence[str]) -> None:
        change = self._drawn(found, weights, self.spaces)
        if not change:
            return
        compared = self.compare(self.run(change), [part])
        found.scales.append(compared.scale)
        others = self._others(part)
        found.rows[part] = {p: compared.parts[p] for p in others}
        if self.exact is not None:
            power = self.exact(change)
            found.power[part] = {p: self.change(power, self._in(p), base=self.exact_base) for p in others}
        kept = self._drawn(found, list(change), self.spaces, keep_signs=True)
        if kept:
            compared = self.compare(self.run(kept), [part])
            found.signs[part] = {p: compared.parts[p] for p in others}

    def _perturb_inside(self, found: Transport, part: str, first: str, behind: Sequence[str]) -> None:
        change = self._drawn(found, behind, self.spaces)
        if not change:
            return
        other = self.run(change)
        found.inside[part] = self.change(other, [first], self.compare(other, [part]).scale)
        if self.exact is not None and first in self.exact_base:
            found.inside_power[part] = self.change(self.exact(change), [first], base=self.exact_base)

    # ---- 2 to 6 ------------------------------------------------------------------------------------------------

    def other_labels(self) -> list[Tensor]:
        """Labels of the same form: all of them others; and half of them, so that other samples share a class."""
        half = torch.arange(len(self.y), device=self.y.device).view(-1, *[1] * (self.y.dim() - 1)) % 2 == 0
        if self.y.is_floating_point():
            other = self.y.roll(1, 0)
        else:
            other = torch.where(self.y == IGNORED, self.y, (self.y + 1) % self.logits.shape[-1])
        return [other, torch.where(half, other, self.y)]

    def taught(self, other: Changes) -> float:
        """The largest change of a block's update by another teaching signal. A factor that all updates have in common counts,
        unless it keeps the size of all updates together: that is a clip, which the readout's own update moves."""
        compared = self.compare(other, [READOUT])
        change = max((compared.parts[name] for name in self.names if name in compared.parts), default=0.0)
        sizes = [math.sqrt(sum(float(u.square().sum()) for u in update.values())) for update in (self.base, other)]
        bound = compared.scale != 1.0 and abs(sizes[1] / sizes[0] - 1) <= CLIPPED + 1e-3 * abs(compared.scale - 1)
        return change if bound else max(change, abs(compared.scale - 1))

    def moved_logits(self) -> Changes | None:
        """The update when a constant is added to the logits by the head; None where no head is known."""
        if self.head is None:
            return None
        name, module = self.head
        size = 0.5 * float(self.logits.double().std().clamp_min(0.1))
        shift = size * torch.randn(self.logits.shape[-1], dtype=torch.float64, generator=self.generator)
        bias = f"{name.rpartition('.')[0]}.bias".lstrip(".")
        if bias in self.parameters and self.parameters[bias].shape == shift.shape:
            return self.run({bias: shift})

        def move(_: nn.Module, __: Any, out: Any) -> None:
            _first(out).data.add_(shift.to(_first(out).device))

        return self.run(hooks=partial(hooked, [(module, move)]))

    def later_states(self, uses_logits: bool) -> tuple[dict[str, dict[str, float]], float, str]:
        """({noisy block: {block in front: change}}, floor, why not): logits, where they are used, come as recorded."""
        if self.head is None:
            return {}, 0.0, "no readout behind the blocks was seen"
        quiet = {name: torch.zeros_like(state) for name, state in self.states.items()}
        still = self.compare(self.run(hooks=partial(self._added, quiet, self.logits)))
        missing = [name for name in (*self.names, *(["head"] if uses_logits else [])) if name not in self.fired]
        if missing:
            return {}, 0.0, f"the update does not call the module of {missing[0]}, block(h), but parts of it"
        rows: dict[str, dict[str, float]] = {}
        for k, name in enumerate(self.names[1:], 1):
            noise = {name: self.noise(self.states[name], STATE_NOISE)}
            other = self.run(hooks=partial(self._added, noise, self.logits))
            compared = self.compare(other, [*self.names[k:], READOUT])
            rows[name] = {p: compared.parts[p] for p in self.names[:k] if p in self._others(name)}
        # the readout learns from the logits that are handed back, which may belong to other states than its own
        return rows, max((still.parts[name] for name in self.names if name in still.parts), default=0.0), ""

    def of_halves(self) -> tuple[float, float, float] | None:
        """(change, floor, factor) of the update of a batch against the mean of its halves' updates; None: one sample."""
        n = len(self.y) // 2
        if n == 0:
            return None

        def taken(index: Tensor) -> Changes:
            inputs = map_samples(self.inputs, len(self.y), lambda t: t[index.to(t.device)])
            return self.run(inputs=inputs, y=self.y[index.to(self.y.device)])

        order = torch.arange(2 * n)
        whole, turned = taken(order), taken(order.flip(0))
        halves = [taken(order[:n]), taken(order[n:])]
        mean = {name: (halves[0][name] + halves[1][name]) / 2 for name in whole if all(name in h for h in halves)}
        dot = sum(float((whole[name] * mean[name]).sum()) for name in mean)
        factor = dot / max(sum(float(mean[name].square().sum()) for name in mean), 1e-300)
        blocks = [name for name in whole if set(self.part_of[name]) & set(self.names)] or list(whole)
        scaled = {name: factor * mean[name] for name in mean}
        return self.change(scaled, blocks, base=whole), self.change(turned, blocks, base=whole), factor

    def over_time(self) -> tuple[float, float]:
        """Change of an update that begins (a) with what one at other weights has left, (b) with other random numbers.

        Other weights: a copy of them that an update leaves behind would else be the one it began with.
        """
        self.run(self._other_weights())
        second = self.run(keep_state=True)
        with self._other_numbers():
            drawn = self.run()
        self.replay.restore()
        blocks = [name for name in self.names if name in self.trained]
        return tuple(max(self.change(u, self._in(name)) for name in blocks) for u in (second, drawn))  # type: ignore[return-value]

    def forward_varies(self) -> tuple[bool, bool]:
        """Is the forward pass another one (a) behind an update at other weights, (b) with other random numbers?"""
        self.run(self._other_weights())
        with generators_kept(self.model), torch.enable_grad():
            behind = logits_of(call_model(self.model, self.inputs)).detach()
        with self._other_numbers():
            _, drawn = self.forward()
        return not torch.equal(behind, self.logits), not torch.equal(drawn, self.logits)

    def _other_weights(self) -> Changes:
        return {n: self.noise(w, WEIGHT_NOISE).double() for n, w in self.weights.items() if w.is_floating_point()}

    @contextmanager
    def _other_numbers(self) -> Iterator[None]:
        with generators_kept(self.model):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            yield


Hook = tuple[nn.Module, Callable[[nn.Module, Any, Any], Any]]


def hooked(hooks: Iterable[Hook]) -> ExitStack:
    """Forward hooks on modules, until the stack is closed."""
    stack = ExitStack()
    for module, hook in hooks:
        stack.callback(module.register_forward_hook(hook).remove)
    return stack


def _same_values(given: Tensor | None, own: Tensor) -> bool:
    """Of a parameter that `torch.func` may have put in the place of the model's own."""
    functorch: Any = torch._C._functorch
    while given is not None and functorch.is_functorch_wrapped_tensor(given):
        given = functorch.get_unwrapped(given)
    return given is not None and given.shape == own.shape and torch.equal(given.detach().to(own), own)


def _first(out: Any) -> Tensor:
    return next(iter(tensors_in(out)))[1]


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    if y.is_floating_point():
        return F.cross_entropy(logits, y, reduction="none")
    return F.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none", ignore_index=IGNORED)


def next_token(logits: Tensor, y: Tensor) -> Tensor:
    """Token t is scored against label t + 1."""
    return cross_entropy(logits[:, :-1], y[:, 1:])


@contextmanager
def placed(model: nn.Module, dtype: torch.dtype | None, roots: Sequence[Any]) -> Iterator[None]:
    """The model with its weights in this dtype (None: as they are), every module in its mode; all is put back afterwards.

    roots: what else may be changed inside, and is put back.

    Weights are changed in place, so that whoever refers to them (a hook, a closure, another module) sees it.
    """
    modes = [(module, module.training) for module in model.modules()]
    with untouched(model, train=model.training):
        kept = [(p, p.data) for p in model.parameters()]
        values = [(p, p.detach().clone()) for p in model.parameters()]
        replay = Replay([model, *roots], model.parameters())
        try:
            for module, mode in modes:
                module.training = mode
            for module in model.modules():
                for name, buffer in module._buffers.items():
                    if dtype is not None and buffer is not None and buffer.is_floating_point():
                        module._buffers[name] = buffer.to(dtype)
            for p, data in kept:
                if dtype is not None and p.is_floating_point():
                    p.data = data.to(dtype)
            yield
        finally:
            replay.restore()
            with torch.no_grad():
                for p, data in kept:
                    p.grad = None
                    p.data = data
                for p, value in values:
                    p.copy_(value)


def aliased(model: nn.Module) -> str:
    """Name of a parameter whose memory another tensor uses too; "": none. A copy in float64 would not be seen there."""
    storages: dict[int, str] = {}
    own = {id(p) for p in model.parameters()}
    for name, p in model.named_parameters():
        if p.numel() and storages.setdefault(p.untyped_storage().data_ptr(), name) != name:
            return name
    for found in gc.get_objects():
        if issubclass(type(found), Tensor) and id(found) not in own and type(found) in (Tensor, nn.Parameter):
            try:
                pointer = found.untyped_storage().data_ptr()
            except (RuntimeError, NotImplementedError):  # sparse, or without storage
                continue
            if pointer in storages and found.device.type != "meta":
                return storages[pointer]
    return ""


def as_dtype(tree: Any, dtype: torch.dtype | None) -> Any:
    return tree_map(
        lambda t: t.to(dtype) if dtype is not None and isinstance(t, Tensor) and t.is_floating_point() else t, tree
    )


def exact_of(e: Experiment) -> tuple[Exact | None, str]:
    """The exact gradient; None, and why, where it is not known."""

    def loss() -> Tensor:
        with generators_kept(e.model):
            losses = e.loss_fn(logits_of(call_model(e.model, e.inputs)), e.y)
        return losses.sum() / len(e.y)

    moving = {n: p for n, p in e.parameters.items() if p.requires_grad and n not in e.idle}
    gradient, why = exact_gradient(e.model, loss, e.replay.restore, moving, e.part_of)
    if gradient is None:
        return None, why

    def at(change: Mapping[str, Tensor] | None) -> Changes:
        e._place(change)
        found = gradient()
        e.replay.restore()
        e._place(None)
        return found

    return at, why
