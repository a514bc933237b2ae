"""The exact gradient of a network's loss, also where its layers bring a backward pass of their own; checked by differences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

STEP = 1e-6
"""Of the norm of the weights of a part, in float64."""
STEP_NATIVE = 1e-2
WRONG = 1e-3
WRONG_NATIVE = 0.1
"""Largest relative difference between a directional derivative and the difference quotient (float64; any other dtype)."""


def exact_gradient(
    model: nn.Module,
    loss: Callable[[], Tensor],
    restore: Callable[[], None],
    parameters: Mapping[str, nn.Parameter],
    part_of: Mapping[str, tuple[str, ...]],
) -> tuple[Callable[[], dict[str, Tensor]] | None, str]:
    """(gradient of `loss` at the present weights, how it is taken), or (None, why there is none).

    First by autograd as it is; where the model's own backward pass is not the gradient, with hooks and backward passes of
    custom autograd functions left out. `restore` puts the state of the model back before each run.
    """

    def loss_anew() -> Tensor:
        restore()
        return loss()

    def gradient(plain: bool) -> dict[str, Tensor]:
        restore()
        with torch.enable_grad(), _plain(model) if plain else nullcontext():
            grads = torch.autograd.grad(loss(), list(parameters.values()), allow_unused=True)
        return {
            name: torch.zeros_like(p, dtype=torch.float64) if g is None else g.detach().double()  # type: ignore[redundant-expr]
            for (name, p), g in zip(parameters.items(), grads, strict=True)
        }

    errors: list[str] = []
    for plain in (False, True):
        try:
            found = gradient(plain)
        except (RuntimeError, TypeError, AttributeError) as error:
            errors.append(" ".join(str(error).split())[:120])
            continue
        wrong = _wrong(loss_anew, parameters, part_of, found)
        if not wrong:
            how = (
                "the model's own backward pass is not the gradient of its loss: "
                "the exact gradient was taken without its hooks and custom backward passes"
            )
            return functools.partial(gradient, plain), how if plain else ""
        errors.append(wrong)
    return None, f"the gradient of the loss is not known: {errors[-1]}"


def _wrong(
    loss: Callable[[], Tensor],
    parameters: Mapping[str, nn.Parameter],
    part_of: Mapping[str, tuple[str, ...]],
    gradient: Mapping[str, Tensor],
) -> str:
    """The first part whose gradient is not what the loss does; "": none."""
    generator = torch.Generator().manual_seed(0)
    double = all(p.dtype == torch.float64 for p in parameters.values())
    size, most = (STEP, WRONG) if double else (STEP_NATIVE, WRONG_NATIVE)
    for part in dict.fromkeys(part for parts in part_of.values() for part in parts):
        names = [name for name in parameters if part in part_of[name]]
        if not names:
            continue
        weights = sum(float(parameters[n].detach().double().square().sum()) for n in names) ** 0.5 or 1.0
        steep = sum(float(gradient[n].square().sum()) for n in names) ** 0.5
        # along the gradient, where there is one, and a little in a direction of chance, which sees what it leaves out
        direction = {}
        for n in names:
            chance = torch.randn(parameters[n].shape, dtype=torch.float64, generator=generator).to(gradient[n].device)
            direction[n] = chance / sum(parameters[m].numel() for m in names) ** 0.5 * (0.3 if steep else 1.0)
            if steep:
                direction[n] = direction[n] + gradient[n] / steep
        step = size * weights
        values = [_loss_at(loss, parameters, direction, sign * step) for sign in (1, -1)]
        quotient = (values[0] - values[1]) / (2 * step)
        slope = sum(float((gradient[n] * direction[n]).sum()) for n in names)
        resolution = 1e-15 if double else 1e-6
        noise = resolution * max(abs(values[0]), 1.0) / step
        if abs(quotient - slope) > most * max(abs(quotient), abs(slope)) + 10 * noise:
            return f"in {part} the loss changes by {quotient:.3g} per step where the gradient says {slope:.3g}"
    return ""


@torch.no_grad()
def _loss_at(
    loss: Callable[[], Tensor],
    parameters: Mapping[str, nn.Parameter],
    direction: Mapping[str, Tensor],
    step: float,
) -> float:
    kept = {n: parameters[n].detach().clone() for n in direction}
    try:
        for n, v in direction.items():
            parameters[n].add_((step * v).to(parameters[n]))
        return float(loss().double())
    finally:
        for n, value in kept.items():
            parameters[n].copy_(value)


class _Context(SimpleNamespace):
    """What a custom autograd function writes to in its forward pass."""

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if not name.startswith("__") else None


@contextmanager
def _plain(model: nn.Module) -> Iterator[None]:
    """Custom autograd functions run as what their forward pass computes; no backward hook is called."""
    own = torch.autograd.Function

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        context = _Context(needs_input_grad=tuple(isinstance(a, Tensor) and a.requires_grad for a in args))
        if cls.setup_context is not own.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(context, *args, **kwargs)

    held = [(module, module._backward_hooks, module._backward_pre_hooks) for module in model.modules()]
    patched = [(own, "apply", classmethod(apply)), (Tensor, "register_hook", lambda *_, **__: _Context())]
    before = [(owner, name, owner.__dict__[name]) for owner, name, _ in patched]
    try:
        for module, hooks, pre_hooks in held:
            module._backward_hooks, module._backward_pre_hooks = type(hooks)(), type(pre_hooks)()
        for owner, name, value in patched:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        for module, hooks, pre_hooks in held:
            module._backward_hooks, module._backward_pre_hooks = hooks, pre_hooks
