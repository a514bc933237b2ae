"""ePC: predictive coding over the errors in place of the states (Goemaere et al. 2025)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from creditscope.credit.base import Options
from creditscope.credit.bridge_net import statistics_kept
from creditscope.credit.ep import Course, Point, States
from creditscope.credit.pc import PC
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.untouched import no_parameter_grads


class EPCOptions(Options):
    steps: int = Field(5, ge=1, le=100_000)
    """Gradient steps on the errors."""
    step_size: float = Field(0.2, gt=0, le=1e3)
    """Of each of them."""


class EPC(PC):
    """E = ½ Σ_l ‖ε_l‖² + loss with h_0 = embed(x) + ε_0 and h_{l+1} = h_l + f_l(h_l) + ε_{l+1}: the energy of `pc`, lowered over
    ε from 0 on by ε <- ε - γ (ε + dloss/dε). Its minimum is that of `pc`, but the loss reaches every ε at the first step, which
    gives ε = -γ g. The inner gradient is a backward pass through the network: weight transport.
    """

    name = "epc"
    summary = "error-based predictive coding: the energy of `pc` lowered over the errors; one backward pass per step"
    needs_float64 = False
    Options: ClassVar[type[Options]] = EPCOptions

    def _nudge(self, stream: InterfaceStream, free: States, branches: States, y: Tensor) -> list[tuple[float, Point]]:
        o: EPCOptions = self.options
        errors, trace = [torch.zeros_like(h) for h in free], list[Tensor]()
        start = torch.zeros(())
        with torch.enable_grad(), no_parameter_grads(stream.model), statistics_kept(stream.model):
            for step in range(o.steps + 1):
                errors = [e.detach().requires_grad_() for e in errors]
                states = [free[0] + errors[0]]
                for layer in range(stream.depth):
                    states.append(stream.advance(layer, states[-1]) + errors[layer + 1])
                loss = F.cross_entropy(stream.readout(states[-1]), y, reduction="none")
                grads = torch.autograd.grad(loss.sum(), errors)
                with torch.no_grad():
                    slope = [e + g for e, g in zip(errors, grads, strict=True)]
                    size = _lengths(slope)
                    start = size if step == 0 else start
                    trace.append((loss + 0.5 * _lengths(errors).square()).mean())
                    if step < o.steps:
                        errors = [e - o.step_size * s for e, s in zip(errors, slope, strict=True)]
        residual = torch.where(start > 0, size / start, size)
        known = {"beta": 1.0, "steps": o.steps, "rejected": 0.0, "step_size": o.step_size}
        self.courses = (Course(known, {"residual": residual.mean(), "residual_max": residual.max()}, trace),)
        errors = [e.detach() for e in errors]
        u = [(h - f).detach() for h, f in zip(states, free, strict=True)]
        return [(1.0, Point(u, errors, slope, loss.detach(), torch.zeros_like(start)))]


def _lengths(states: States) -> Tensor:
    """Norm over all layers, [B]."""
    return sum((s.flatten(1).square().sum(1) for s in states[1:]), states[0].flatten(1).square().sum(1)).sqrt()
