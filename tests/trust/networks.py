"""Networks whose every number is known in closed form.

The stream has 2C features. The head reads the first C, which are zero, so the logits are zero and e = 1/C - onehot(y) exactly;
the other C are ballast: a one-hot vector that carries the scale. Block l multiplies h_l by c_l, hence

    ‖h_{l+1}‖/‖h_l‖ = c_l        g_L = ε e (without a norm), ε e/‖h_L‖ (with one)        g_l = c_l ... c_{L-1} g_L

and ‖e‖ = sqrt(1 - 1/C) for every sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from creditscope import DiagnosticReport, diagnose
from creditscope.measure.binomial import evaluation
from creditscope.protocol.report import make_report

C = 4
GROUP = 128
GROUPS = 4
E_NORM = math.sqrt(1 - 1 / C)
Credit = Callable[[list[Tensor], Tensor, Tensor], Sequence[Tensor]]


class Times(nn.Module):
    """The branch (c - 1) h, so that h + f(h) = c h; `c` is a number, or one per feature."""

    def __init__(self, c: float | Sequence[float]) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.tensor(c, dtype=torch.float64).float())

    def forward(self, h: Tensor) -> Tensor:
        return (self.c - 1) * h


class Plus(nn.Module):
    """The branch that adds a constant to the ballast, whatever comes in."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.tensor([0.0] * C + [size] + [0.0] * (C - 1)))

    def forward(self, h: Tensor) -> Tensor:
        return self.shift.expand_as(h)


class UnitNorm(nn.Module):
    """h/‖h‖: a terminal norm that forgets the scale, as LayerNorm does."""

    def forward(self, h: Tensor) -> Tensor:
        return h / h.norm(dim=1, keepdim=True)


class Head(nn.Module):
    """Logits from the first C features, each scaled; `bias` adds to the logits."""

    def __init__(self, epsilon: float | Sequence[float], bias: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.as_tensor(epsilon, dtype=torch.float64).float())
        self.bias = bias

    def forward(self, h: Tensor) -> Tensor:
        return h[:, :C] * self.scale + self.bias * h[:, C:]


class Known(nn.Module):
    """embed (identity), blocks, norm, head: the papers' interface."""

    def __init__(self, blocks: Sequence[nn.Module], epsilon: Any, terminal_norm: bool, bias: float, kind: str) -> None:
        super().__init__()
        self.embed = nn.Identity()
        self.blocks = nn.ModuleList(blocks)
        self.norm: nn.Module = UnitNorm() if terminal_norm else nn.Identity()
        self.head = Head(epsilon, bias)
        self.stream_kind = kind

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h) if self.stream_kind == "plain" else h + block(h)
        out: Tensor = self.head(self.norm(h))
        return out


def ballast(kind: str) -> Tensor:
    """Inputs [N, 2C] in groups of 128: one-hot ballast on feature C, or (`split`) on C and C + 1 by turns of groups."""
    x = torch.zeros(GROUPS * GROUP, 2 * C)
    at = torch.arange(GROUPS * GROUP) // GROUP % 2 if kind == "split" else torch.zeros(GROUPS * GROUP, dtype=torch.long)
    if kind != "zero":
        x[torch.arange(len(x)), C + at] = 1.0
    return x


def labels(kind: str) -> Tensor:
    """[N]. `turning`: group k has a surplus of class k, so the group-mean gradients point pairwise at cosine -1/(C-1).
    `drift`: every group has the surplus of class 0, so they point the same way. `one`: a single class. `even`: no surplus.
    """
    rows = []
    for k in range(GROUPS):
        surplus = {"turning": k % C, "drift": 0, "one": 0, "even": 0}[kind]
        extra = {"one": GROUP, "even": 0}.get(kind, 32)
        even = torch.arange(GROUP - extra) % C
        rows.append(torch.cat([even, torch.full((extra,), surplus)]))
    return torch.cat(rows)


STABILITY = {"turning": -1 / (C - 1), "drift": 1.0, "one": 1.0}


def credit_along(signs: Sequence[float], size: float = 1.0) -> Credit:
    """a_l of length `size` at cosine signs[l] (1, -1 or in between) to the gradient; the rest goes to the ballast."""

    def credit(hiddens: list[Tensor], logits: Tensor, y: Tensor) -> list[Tensor]:
        e = torch.softmax(logits.float(), 1) - nn.functional.one_hot(y, C)
        e = e / e.norm(dim=1, keepdim=True)
        found = []
        for cosine in signs:
            side = torch.zeros_like(e)
            side[:, -1] = math.sqrt(1 - cosine**2)
            found.append((size * torch.cat([cosine * e, side], 1)).to(hiddens[0].dtype))
        return found

    return credit


@dataclass(frozen=True)
class Network:
    """One known network with what is known of it."""

    name: str
    factors: Sequence[float | Sequence[float]] = (1.1, 1.1, 1.1, 1.1)
    epsilon: Any = 1.0
    terminal_norm: bool = False
    y: str = "turning"
    x: str = "one"
    bias: float = 0.0
    dtype: torch.dtype = torch.float32
    kind: str = "residual"
    cosines: Sequence[float] | None = None
    credit_size: float = 1.0
    acc: Any = (0.60, 0.61, 0.62)
    null: Any = None
    bp_acc: Any = None
    n_test: int | None = None
    break_it: Callable[[Known], None] | None = None
    blocks: Callable[[], Sequence[nn.Module]] | None = None
    # --- the truth ---
    growth: float | None = 1.1
    g_128: float | None = None
    """‖g_L‖ / 128; None: not stated."""
    checks: str = "pass pass pass pass"
    """D1 D2 D3 C; `?` inconclusive, `-` not measured, `x` not measurable."""
    three: str = "pass"
    four: str = "pass"
    mode: str = ""
    four_mode: str | None = None
    withheld: bool = False
    warns: Sequence[str] = field(default_factory=tuple)

    def model(self) -> Known:
        blocks = self.blocks() if self.blocks else [Times(c) for c in self.factors]
        model = Known(blocks, self.epsilon, self.terminal_norm, self.bias, self.kind).to(self.dtype)
        if self.break_it is not None:
            with torch.no_grad():
                self.break_it(model)
        return model

    def batches(self, size: int = GROUP) -> list[tuple[Tensor, Tensor]]:
        x, y = ballast(self.x).to(self.dtype), labels(self.y)
        return [(x[k : k + size], y[k : k + size]) for k in range(0, len(y), size)]

    def arguments(self) -> dict[str, Any]:
        """What `diagnose` is given beside model and batches."""
        depth = len(self.model().blocks)
        credit = None
        if self.cosines is not None:
            credit = credit_along(
                [*self.cosines] if len(self.cosines) > 1 else list(self.cosines) * (depth + 1), self.credit_size
            )
        return {
            "headline_acc": self.acc,
            "headline_on": "other data",  # what these networks answer is not what is known of them
            "frozen_baseline_acc": self.null,
            "bp_acc": self.bp_acc,
            "n_test": self.n_test,
            "credit": credit,
        }

    def report(self) -> DiagnosticReport:
        """The verdict, as if it answered as stated: logits of zero are at chance, which alone would leave D3 open."""
        claims = self.arguments()
        facts = diagnose(self.model(), self.batches(), credit=claims.pop("credit")).facts
        seen = facts.evaluation
        if seen is not None and self.acc is not None:
            stated = float(np.mean(self.acc))
            seen = evaluation(stated, seen.n, seen.n_classes, seen.largest_class)
        return make_report(facts.model_copy(update={"evaluation": seen}), **claims)
