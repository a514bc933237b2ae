"""EP: equilibrium propagation (Scellier and Bengio 2017) on a stream, by relaxation of its states.

E = ½‖h_0 - embed(x)‖² + ½ Σ_l ‖h_{l+1} - h_l - f_l(h_l)‖² + β·loss per sample (plain stream: ‖h_{l+1} - f_l(h_l)‖²).
The forward pass is the exact minimum at β = 0 (the free state); the nudged state is reached from it by gradient descent
on the states: the loss pulls at h_L only, and each step carries the pull one layer down. Converged EP is
backpropagation, so how far the relaxation came is part of the result: `EP.last`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map

from creditscope.credit.base import CreditBatch, CreditRule, Options, as_interface
from creditscope.credit.bridge_net import statistics_kept
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.untouched import no_parameter_grads

States = list[Tensor]
"""One tensor for each h_0..h_L, native shape."""


class EPOptions(Options):
    beta: float = Field(0.5, gt=0, le=1e6)
    """Strength of the nudge."""
    steps: int = Field(12, ge=1, le=100_000)
    """Most gradients of E to take in one relaxation (a rejected step counts)."""
    step_size: float = Field(0.5, gt=0, le=1e3)
    """First step size; it is halved for a sample whose energy would rise."""
    momentum: bool = True
    """Momentum k/(k+2), started again where the energy would rise; off: plain gradient descent."""
    symmetric: bool = False
    """Relax at +β and at -β and take the difference: twice the cost, bias β² instead of β."""
    reading: Literal["displacement", "error"] = "displacement"
    """What `credit` returns (the parameters learn from E and do not depend on it)."""
    tolerance: float = Field(1e-3, ge=0, lt=1)
    """A sample whose residual has come down to this is left alone."""
    control: bool = True
    """Undo a step that raises the energy; off: every step is taken as it is."""
    states: Literal["displacement", "float32", "float64"] = "displacement"
    """How the relaxing states are kept: as displacements from the free state; as float32 states, rounded after every step,
    with prediction errors formed as differences of states; or as displacements on a float64 copy of the network."""
    nudge: Literal["sample", "batch"] = "sample"
    """Loss that β multiplies: of each sample, or the mean over the batch (β / B for each sample)."""
    clamp: bool = False
    """Hold h_0 at embed(x): it gets no credit, and the embedding learns through block 0 from the error at h_1."""

    later: ClassVar[frozenset[str]] = frozenset({"control", "states", "nudge", "clamp"})


@dataclass(frozen=True)
class Relaxation:
    """How far one relaxation came. Residual of a sample: ‖dE/dh‖ over all layers, divided by β‖g_L‖ (the start)."""

    beta: float
    steps: int
    """Gradients of E taken."""
    rejected: float
    """Mean over samples of the steps undone because the energy would have risen."""
    step_size: float
    """Smallest final step size over the samples."""
    residual: float
    """Mean over samples; NaN where the network itself has diverged."""
    residual_max: float
    energy: tuple[float, ...]
    """Mean over samples of E - E(free state), from the free state (0) on: never rises."""


@dataclass(frozen=True)
class Course:
    """A relaxation whose numbers are still on the device: nobody has asked for them yet."""

    known: dict[str, float]
    """Fields of `Relaxation` that are numbers already."""
    measured: dict[str, Tensor]
    """The others, scalars."""
    energy: list[Tensor]
    """From the free state on, one for each step that was computed; scalars."""

    def read(self) -> Relaxation:
        values = torch.stack([*self.measured.values(), *self.energy]).tolist()
        found = {**self.known, **dict(zip(self.measured, values, strict=False))}
        steps, energy = int(found.pop("steps")), values[len(self.measured) :]
        trace = tuple(e - energy[0] for e in energy[: steps + 1])
        return Relaxation(steps=steps, energy=trace, **found)


class Point(NamedTuple):
    """E and its derivatives at one set of states, written as displacements u from the free state."""

    u: States
    errors: States
    """h_l minus its prediction."""
    grad: States
    """dE/dh_l."""
    energy: Tensor
    """E - E(free), [B]."""
    rounding: Tensor
    """Differences of energy below this are rounding, [B]."""

    def to(self, dtype: torch.dtype) -> Point:
        """States in this dtype (themselves where they have it)."""
        u, errors, grad = tree_map(lambda t: t.to(dtype), self[:3])
        return self._replace(u=u, errors=errors, grad=grad)


class EP(CreditRule):
    """Credit from the nudged equilibrium; gradient-like sign.

    `displacement` = -(h_l^β - h_l^0)/β; `error` = -(h_l - its prediction)/β, equal to g_l at the nudged equilibrium as
    β -> 0. Symmetric: the mean of this at +β and at -β. Token models: relaxed at every token, read at the read token.
    """

    name = "ep"
    summary = "equilibrium propagation: states relaxed on an energy that the loss nudges; contrastive gradients"
    uses_norm = False
    objective = "own"
    runs_parts = True
    needs_float64 = True
    Options: ClassVar[type[Options]] = EPOptions
    options: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.courses: tuple[Course, ...] = ()

    @property
    def last(self) -> tuple[Relaxation, ...]:
        """The relaxations (+β, and -β if symmetric) of the batch seen last."""
        return tuple(course.read() for course in self.courses)

    @property
    def relaxation(self) -> EPOptions:
        """How the states are relaxed."""
        return self.options

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        return self.readings(batch)[self.relaxation.reading]

    def readings(self, batch: CreditBatch) -> dict[str, States]:
        """Both readings of the credit, each [a_0, ..., a_L] with a_l [B, d_l]."""
        stream = as_interface(batch.stream, self.name)
        with torch.no_grad():
            branches = [stream.branch(layer, batch.hiddens[layer]) for layer in range(stream.depth)]
        points = self._nudge(stream, batch.hiddens, branches, batch.y)
        weight = 1 / len(points)

        def contrast(of: str) -> States:
            per_phase = [[t * (-weight / beta) for t in getattr(point, of)] for beta, point in points]
            return [stream.read_grad(sum(layer[1:], layer[0])) for layer in zip(*per_phase, strict=True)]

        return {"displacement": contrast("u"), "error": contrast("errors")}

    def backward(self, stream: InterfaceStream, x: Tensor, y: Tensor, first_trained: int, penalty: float) -> Tensor:
        """Contrastive gradient of E for embed and blocks (their own prediction errors); exact for norm and head."""
        n = len(y)
        h0 = stream.embed(x)
        free, branches = [h0.detach()], []
        roots: States = []
        pushes: States = []
        for layer in range(stream.depth):
            penalised = penalty > 0 and layer >= first_trained
            with torch.set_grad_enabled(penalised):
                f = stream.branch(layer, free[-1])
            if penalised:
                roots.append(f)
                pushes.append(f.detach() * (2 * penalty / n))
            branches.append(f.detach())
            free.append(branches[-1] if stream.kind == "plain" else free[-1] + branches[-1])
        loss = F.cross_entropy(stream.readout(free[-1]), y)
        torch.autograd.backward(loss)
        points = self._nudge(stream, free, branches, y)
        scale = 1 / (len(points) * n)
        with statistics_kept(stream.model):
            for beta, point in points:
                first = first_trained
                # clamped, h_0 is no state of its own: h_1's error reaches block 0 and the embedding together
                if self.relaxation.clamp:
                    f = stream.branch(0, h0)
                    roots.append(f if stream.kind == "plain" else h0 + f)
                    pushes.append(point.errors[1] * (-scale / beta))
                    first = max(first_trained, 1)
                else:
                    roots.append(h0)
                    pushes.append(point.errors[0] * (-scale / beta))
                for layer in range(first, stream.depth):
                    roots.append(stream.branch(layer, free[layer] + point.u[layer]))
                    pushes.append(point.errors[layer + 1] * (-scale / beta))
            torch.autograd.backward(roots, pushes)
        return loss.detach()

    def diagnostics(self) -> dict[str, float]:
        """How far the last batch was relaxed (the worse of +β and -β), for a trajectory."""
        found = self.last
        if not found:
            return {}
        worst = max(found, key=lambda r: float("inf") if r.residual != r.residual else r.residual)
        return {key: getattr(worst, key) for key in ("residual", "residual_max", "steps", "rejected", "step_size")}

    def _nudge(self, stream: InterfaceStream, free: States, branches: States, y: Tensor) -> list[tuple[float, Point]]:
        """[(β of each sample, nudged equilibrium)], with -β after it if symmetric; in the dtype of the free states."""
        options = self.relaxation
        beta = options.beta / (len(y) if options.nudge == "batch" else 1)
        dtype = free[-1].dtype
        if options.states == "float64":
            stream, free, branches = _in_double(stream, free[0])
        found = []
        self.courses = ()
        with torch.enable_grad(), no_parameter_grads(stream.model), statistics_kept(stream.model):
            for signed in (beta, -beta) if options.symmetric else (beta,):
                point, course = _relax(_Energy(stream, free, branches, y, signed, options), options)
                found.append((signed, point.to(dtype)))
                self.courses += (course,)
        return found


class _Energy:
    """E around the free state. Displacements are kept, not states: a small nudge of a large h survives rounding."""

    def __init__(
        self, stream: InterfaceStream, free: States, branches: States, y: Tensor, beta: float, options: EPOptions
    ) -> None:
        self.stream, self.free, self.branches, self.y, self.beta = stream, free, branches, y, beta
        self.clamp, self.rounds = options.clamp, options.states == "float32"
        self.plain = stream.kind == "plain"
        self.coupled = any(isinstance(m, _BatchNorm) and m.training for m in stream.model.modules())
        """Batch statistics make the energy one of the whole batch: it then gets one step size."""
        self.eps = torch.finfo(free[-1].dtype).eps
        self.size = sum((h.flatten(1).double().square().sum(1) for h in free), torch.zeros(())).sqrt()
        self.loss0 = torch.zeros(())
        self.loss0 = self.top(free[-1].detach().requires_grad_())[0].detach()

    def top(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """(loss relative to the free state's [B] in float64, largest |logit| of each sample [B])."""
        logits = self.stream.readout(h).double()
        return F.cross_entropy(logits, self.y, reduction="none") - self.loss0, logits.detach().abs().amax(1)

    def start(self) -> Point:
        """The free state: no prediction error, and a gradient at h_L only."""
        h = self.free[-1].detach().requires_grad_()
        loss, _ = self.top(h)
        (g,) = torch.autograd.grad(loss.sum(), h)
        zeros = [torch.zeros_like(h) for h in self.free]
        nothing = torch.zeros_like(self.loss0)
        return Point(zeros, zeros, [*zeros[:-1], g * self.beta], nothing, nothing)

    def at(self, u: States) -> Point:
        """One pass through every block and one vector-Jacobian product of each."""
        h = [(free + d).detach() for free, d in zip(self.free, u, strict=True)]
        if self.rounds:
            h = [state.float().to(state.dtype) for state in h]
            u = [state - free for state, free in zip(h, self.free, strict=True)]
        h = [state.requires_grad_() for state in h]
        f = [self.stream.branch(layer, h[layer]) for layer in range(self.stream.depth)]
        loss, logit = self.top(h[-1])
        with torch.no_grad():
            errors = [u[0]]
            for layer, (new, old) in enumerate(zip(f, self.branches, strict=True)):
                if self.rounds:
                    errors.append(h[layer + 1] - (new if self.plain else h[layer] + new))
                else:
                    errors.append(u[layer + 1] - (new - old) if self.plain else u[layer + 1] - u[layer] - (new - old))
        back = torch.autograd.grad([*f, loss], h, [*(-error for error in errors[1:]), torch.full_like(loss, self.beta)])
        with torch.no_grad():
            grad = [g + error for g, error in zip(back, errors, strict=True)]
            if not self.plain:
                grad = [g - above for g, above in zip(grad, errors[1:], strict=False)] + grad[-1:]
            if self.clamp:
                grad[0] = torch.zeros_like(grad[0])
            squares = self.inner(errors, errors)
            energy = self.pooled(0.5 * squares + self.beta * loss.detach())
            noise = abs(self.beta) * (1 + logit) + squares.sqrt() * self.size
            return Point(u, errors, grad, energy, self.pooled(4 * self.eps * noise))

    def inner(self, a: States, b: States) -> Tensor:
        """Inner product over all layers, [B]; layers are added in float64."""
        parts = [(x * y).flatten(1).sum(1).double() for x, y in zip(a, b, strict=True)]
        return self.pooled(sum(parts[1:], parts[0]))

    def pooled(self, t: Tensor) -> Tensor:
        return t.sum().expand_as(t) if self.coupled else t


def _relax(energy: _Energy, options: EPOptions) -> tuple[Point, Course]:
    """Gradient descent with step-size control for each sample: a step that raises the energy is undone.

    The result for a sample does not depend on the others in the batch (unless batch statistics couple them). Off the CPU the
    host asks nothing: all steps are computed, and those after the last sample has come to rest change nothing.
    """
    now = energy.start()
    start = energy.inner(now.grad, now.grad).sqrt()
    residual = torch.where(start == 0, start, start / start)  # nothing to do is 0; NaN stays NaN
    velocity = [torch.zeros_like(d) for d in now.u]
    step = torch.full_like(start, options.step_size)
    streak = torch.zeros_like(start)
    rejected = torch.zeros_like(start)
    trace = [start.new_zeros(())]
    taken = start.new_zeros(())
    for _ in range(options.steps):
        active = residual > options.tolerance
        if _surely(~active):
            break
        taken = taken + active.any()
        inertia = streak / (streak + 2) if options.momentum else torch.zeros_like(streak)
        move = [v * _column(inertia, v) - g * _column(step, g) for v, g in zip(velocity, now.grad, strict=True)]
        trial = energy.at([d + m for d, m in zip(now.u, move, strict=True)])
        good = _falls(energy, now, trial, move) if options.control else trial.energy.isfinite()
        bad = active & ~good
        # momentum is dropped first; only a plain gradient step that fails shows that the step is too long
        step = torch.where(bad & (inertia == 0), step / 2, step)
        streak = torch.where(good, streak + 1, torch.zeros_like(streak))
        rejected = rejected + bad
        velocity = _choose(good, move, [torch.zeros_like(m) for m in move])
        now = _choose(active & good, trial, now)
        residual = torch.where(start > 0, energy.inner(now.grad, now.grad).sqrt() / start, residual)
        trace.append(now.energy.mean())
    if not _surely(~residual.isnan()):  # a network that has diverged gets NaN, not the zeros it started from
        nan = [torch.full_like(d, torch.nan) for d in now.u]
        now = _choose(~residual.isnan(), now, Point(nan, nan, nan, residual, residual))
    measured = {"steps": taken, "rejected": rejected.mean(), "step_size": step.min()}
    measured |= {"residual": residual.mean(), "residual_max": residual.max()}
    return now, Course({"beta": energy.beta}, measured, trace)


def _surely(mask: Tensor) -> bool:
    """Is the mask set everywhere, as far as the host knows without waiting? (On the CPU it knows.)"""
    return mask.device.type == "cpu" and bool(mask.all())


def _falls(energy: _Energy, now: Point, trial: Point, move: States) -> Tensor:
    """Which samples' energy does not rise by the move, [B] bool; a non-finite energy counts as risen.

    Where the two energies differ by less than rounding, the mean slope along the move decides (exact for a quadratic).
    """
    change = trial.energy - now.energy
    resolved = change.abs() > torch.maximum(trial.rounding, now.rounding)
    falls = change <= 0
    if not _surely(resolved):
        falls = torch.where(resolved, falls, energy.inner(now.grad, move) + energy.inner(trial.grad, move) <= 0)
    return falls & trial.energy.isfinite()


def _column(t: Tensor, like: Tensor) -> Tensor:
    """[B] -> [B, 1, ...] in the dtype of `like`."""
    return t.to(like.dtype).view(-1, *[1] * (like.dim() - 1))


def _choose(mask: Tensor, a: Any, b: Any) -> Any:
    """a where the sample's mask is set, else b; both are states or points."""
    if _surely(mask):
        return a
    return tree_map(lambda x, y: torch.where(mask.view(-1, *[1] * (x.dim() - 1)), x, y), a, b)


def _in_double(stream: InterfaceStream, h0: Tensor) -> tuple[InterfaceStream, States, States]:
    """(the stream on a float64 copy of the network, its free states from h_0 on, its branches there)."""
    twin = copy.deepcopy(stream)
    twin.model.double()
    free, branches = [h0.detach().double()], []
    with torch.no_grad(), statistics_kept(twin.model):
        for layer in range(twin.depth):
            branches.append(twin.branch(layer, free[-1]))
            free.append(branches[-1] if twin.kind == "plain" else free[-1] + branches[-1])
    return twin, free, branches
