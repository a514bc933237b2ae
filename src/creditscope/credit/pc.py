"""PC: predictive coding (Rao and Ballard 1999; Whittington and Bogacz 2017) on a stream: the energy of `ep` at β = 1."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from creditscope.credit.base import Options
from creditscope.credit.ep import EP, EPOptions


class PCOptions(Options):
    steps: int = Field(20, ge=1, le=100_000)
    """Gradient steps on the states."""
    step_size: float = Field(0.2, gt=0, le=1e3)
    """Of each of them."""


class PC(EP):
    """E = ½‖h_0 - embed(x)‖² + ½ Σ_l ‖h_{l+1} - h_l - f_l(h_l)‖² + loss, from the forward pass on lowered by a fixed number of
    plain gradient steps on the states; the parameters learn from the prediction errors that are then left.

    The credit is a_l = -(h_l - its prediction). At a small β in front of the loss it would be g_l; at 1 it is not.
    """

    name = "pc"
    summary = "predictive coding: states relaxed for a fixed number of steps; parameters learn from prediction errors"
    Options: ClassVar[type[Options]] = PCOptions

    @property
    def relaxation(self) -> EPOptions:
        o: PCOptions = self.options
        return EPOptions(
            beta=1.0,
            steps=o.steps,
            step_size=o.step_size,
            momentum=False,
            reading="error",
            tolerance=0.0,
            control=False,
        )
