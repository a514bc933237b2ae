"""Credit of a method that lives in somebody else's layers: what its backward pass brings to h_l, against exact gradients.

A layer with a backward pass of its own (a custom autograd function, a backward hook) sends something else than the
gradient down the network. Whatever arrives at h_l on that way is the method's credit a_l. The reference g_l cannot come
from the same model, whose backward pass is the method: it comes from an exact twin, an ordinary model with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from creditscope.credit.base import CreditBatch, CreditRule
from creditscope.errors import CreditscopeError, with_article
from creditscope.stream.eager import copied, original
from creditscope.stream.interface import Stream, make_stream, same
from creditscope.stream.probe import CutGraph
from creditscope.stream.untouched import generators_kept, untouched

LossFn = Callable[[Tensor, Tensor], Tensor]
ToExact = Mapping[type[nn.Module], Callable[[Any], nn.Module]]


def credit_from_grads(
    model: nn.Module,
    twin: nn.Module | None = None,
    *,
    to_exact: ToExact | None = None,
    blocks: Any = None,
    loss_fn: LossFn | None = None,
) -> ForeignCredit:
    """The credit of `model`'s own backward pass, as a rule; diagnose its exact twin with it:

        rule = credit_from_grads(their_model, twin=OrdinaryModel())
        report = diagnose(rule.twin, eval_batches, credit=rule)

    model: the network of the method; its backward pass carries the method's signal.
    twin: an ordinary network of the same architecture; takes over the weights of `model` by name.
    to_exact: instead of `twin`, the ordinary layer for each class of the method's layers, e.g.
        {FALinear: lambda m: nn.Linear(m.in_features, m.out_features)}; the twin is then a copy of `model` with these.
    blocks: as for `diagnose`; by default the blocks that are seen in the twin.
    loss_fn: (logits, y) -> loss per sample; cross-entropy if None. Give `diagnose` the same.

    While `model` goes on training, call `rule.sync()` before each measurement of the twin.
    """
    for given in (model, *([] if twin is None else [twin])):
        if not isinstance(given, nn.Module):
            raise CreditscopeError(f"model is {with_article(given)}; give a torch.nn.Module")
    model = original(model)
    if (twin is None) == (to_exact is None):
        raise CreditscopeError("give credit_from_grads either twin= (an ordinary model) or to_exact= (layer classes)")
    with generators_kept(model):
        exact = original(twin) if twin is not None else _exact_copy(model, to_exact or {})
    return ForeignCredit(model, exact, blocks, loss_fn or _cross_entropy)


class ForeignCredit(CreditRule):
    """a_l = what the backward pass of another model brings to its h_l (see `credit_from_grads`)."""

    name = "foreign"
    summary = "what the backward pass of a foreign model brings to h_l"

    def __init__(self, model: nn.Module, twin: nn.Module, blocks: Any, loss_fn: LossFn) -> None:
        super().__init__()
        self.model, self.twin = model, twin
        self._blocks, self._loss_fn = blocks, loss_fn
        self._stream: Stream | None = None
        self.sync()

    def sync(self) -> nn.Module:
        """Copy the weights of the method's model into the twin; returns the twin."""
        theirs = self.model.state_dict()
        own = self.twin.state_dict()
        missing = [name for name in own if name not in theirs]
        if missing:
            raise CreditscopeError(f"the method's model has no weight {missing[0]!r}, which the exact twin needs")
        wrong = [name for name in own if own[name].shape != theirs[name].shape]
        if wrong:
            raise CreditscopeError(
                f"weight {wrong[0]!r} is {list(theirs[wrong[0]].shape)} in the method's model and "
                f"{list(own[wrong[0]].shape)} in the exact twin"
            )
        # what only the method's model has (its feedback weights) is not the twin's business
        self.twin.load_state_dict({name: theirs[name] for name in own})
        return self.twin

    def attach(self, stream: Stream) -> None:
        if stream.model is self.model:
            raise CreditscopeError(
                "the reference would come from the method's own backward pass; diagnose the exact twin (rule.twin) instead"
            )

    def credit(self, batch: CreditBatch) -> Sequence[Tensor]:
        n = len(batch.y)
        places: dict[int, Tensor] = {}

        def tap(layer: int, value: Tensor, handle: Tensor) -> None:
            if handle.requires_grad:
                places[layer] = handle

        with untouched(self.model), torch.enable_grad():
            if self._stream is None:
                blocks = self._blocks if self._blocks is not None else list(dict.fromkeys(batch.stream.names)) or None
                try:
                    self._stream = make_stream(self.model, batch.inputs, n, blocks, batch.stream.read)
                except CutGraph:
                    raise _no_signal(0) from None
            if self._stream.depth != batch.stream.depth:
                raise CreditscopeError(
                    f"the method's model has {self._stream.depth} blocks and the exact twin {batch.stream.depth}; name blocks="
                )
            logits = self._stream.forward(batch.inputs, tap)
            if not same(logits, batch.logits):
                raise CreditscopeError(
                    "the exact twin does not give the logits of the method's model; after training call rule.sync(), and "
                    "check that both have the same architecture"
                )
            losses = self._loss_fn(logits, batch.y)
            # unlike torch.autograd.grad, .grad holds what every hook of the method leaves of the gradient
            torch.autograd.backward(losses.sum(), inputs=list(places.values()))
        arrived = {layer: h.grad.detach() for layer, h in places.items() if h.grad is not None}
        lost = [layer for layer in range(batch.stream.depth + 1) if layer not in arrived]
        if lost:
            raise _no_signal(lost[-1])
        return [arrived[layer] for layer in range(batch.stream.depth + 1)]


def _no_signal(layer: int) -> CreditscopeError:
    return CreditscopeError(
        f"no signal arrives at h_{layer} in the backward pass of the method's model; if it computes its updates outside of "
        "autograd, give diagnose a callable credit instead"
    )


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none")  # a token with label -100 counts 0


def _exact_copy(model: nn.Module, to_exact: ToExact) -> nn.Module:
    twin = copied(model)
    chosen = [(name, module) for name, module in twin.named_modules() if type(module) in to_exact]
    if not chosen:
        names = ", ".join(kind.__name__ for kind in to_exact) or "nothing"
        raise CreditscopeError(f"to_exact names {names} and the model has no such layer")
    for name, module in chosen:
        exact = to_exact[type(module)](module)
        if not name:
            return exact
        above, _, last = name.rpartition(".")
        setattr(twin.get_submodule(above), last, exact)
    return twin
