"""Before a rule trains: what it saves is enough to measure it again.

A rule that keeps a matrix to itself trains and saves without a word, and its runs can never be measured.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, CreditRule, credit_of
from creditscope.credit.bp import states_of
from creditscope.errors import CreditscopeError
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.untouched import untouched


def check_round_trip(
    made: CreditRule, empty: CreditRule, model: nn.Module, stream: InterfaceStream, x: Tensor, y: Tensor
) -> None:
    """Refuse a rule that gives other credit on (x, y) once its state() was loaded; equal means equal to the bit.

    made: the rule after `setup`; empty: one of the same options that was never set up. Both are used up: neither is the one
    that trains.
    """
    if made.is_exact:
        return  # its credit is the reference, whatever it saves
    with untouched(model):
        model.eval()
        batch = one_batch(stream, x, y)
        before = _seeded(made, batch)
        state: Any = made.state()
        if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
            raise CreditscopeError(f"state() of credit rule {made.name!r} must return a dict of names and tensors")
        try:
            empty.load({name: t.detach().cpu().clone() for name, t in state.items()})  # as from a file
            empty.to(x.device)
            empty.attach(stream)
            after = _seeded(empty, batch)
        except Exception as error:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            raise CreditscopeError(f"{_lost(made, state)}: once loaded it raises {message}; {ADVICE}") from None
    for layer, (a, b) in enumerate(zip(before, after, strict=True)):
        if not torch.equal(a, b):
            raise CreditscopeError(f"{_lost(made, state)}: once loaded its credit at layer {layer} differs; {ADVICE}")


ADVICE = "state() must give every tensor that the rule needs again, and load() take them back"


def _seeded(rule: CreditRule, batch: CreditBatch) -> list[Tensor]:
    """The credit, drawn (by a rule that draws) from the same numbers each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return credit_of(rule, batch)


def one_batch(stream: InterfaceStream, x: Tensor, y: Tensor) -> CreditBatch:
    """What training hands to a rule for (x, y), by a pass of its own."""
    with torch.no_grad():
        hiddens = states_of(stream, x)
    top = hiddens[-1].detach().requires_grad_()
    with torch.enable_grad():
        logits = stream.readout(top)
        (g,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), top)
    return CreditBatch(stream, hiddens, logits.detach(), y, stream.read_grad(g), inputs=x)


def _lost(rule: CreditRule, state: dict[str, Tensor]) -> str:
    owned = sorted(name for name, value in vars(rule).items() if _has_tensors(value))
    own = f"owns {', '.join(owned)} and " if owned else ""
    return f"credit rule {rule.name!r} cannot be saved: it {own}has {len(state)} tensors in its state()"


def _has_tensors(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, Tensor | nn.Module) or (isinstance(value, list | tuple) and any(map(_has_tensors, value)))
