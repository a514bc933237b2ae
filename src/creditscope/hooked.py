"""Any unmodified module as a stream: forward hooks on its blocks, and what they do is detected and verified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from creditscope.batch import call_model, logits_of, map_samples
from creditscope.blocks import first_tensor, has_skip, replace_first, replace_output, resolve_blocks, tensor_of
from creditscope.errors import CreditscopeError
from creditscope.stream import Stream, Tap, _same, no_parameter_grads


class HookedStream(Stream):
    """h_l is the input of the l-th call of a block; h_L is what follows the last one.

    A block may return h + f ("full") or only f ("branch", the model adds it): which, is read off the example batch.
    """

    def __init__(self, model: nn.Module, inputs: Any, batch_size: int, blocks: Any, read: str | None = None) -> None:
        self.model = model
        self._blocks = resolve_blocks(model, blocks)
        self._verify(inputs, batch_size, read)

    # ---- what is there -----------------------------------------------------------------------------------------

    def _verify(self, inputs: Any, batch_size: int, read: str | None) -> None:
        example = map_samples(inputs, batch_size, lambda t: t[:3])
        probe = self._probe(example)
        ins, outs = probe.inputs, probe.outputs
        self.depth = len(ins)
        self.names = tuple(probe.names)
        self._in_place = probe.in_place
        n = min(3, batch_size)
        self.batch_dim = self._find_batch_dim(inputs, batch_size, ins[0], n)
        notes: list[str] = []
        self._returns = self._find_returns(ins, outs, probe.names, notes)
        if self.depth == 1 and not (ins[0].shape == outs[0].shape and has_skip(outs[0], ins[0])):
            self._returns = self._around(example, probe.names[0], notes)
        residual = self._returns == "branch" or (
            self._returns == "full"
            and all(has_skip(o, i) for i, o in zip(ins, outs, strict=True) if i.shape == o.shape)
            and any(i.shape == o.shape for i, o in zip(ins, outs, strict=True))
        )
        self.kind = "residual" if residual else "plain"
        changed = [name for name, i, o in zip(probe.names, ins, outs, strict=True) if i.shape != o.shape]
        if residual and changed:
            notes.append(f"projection shortcut (shape changes) at {', '.join(changed)}")
        last = ins[-1] + outs[-1] if self._returns == "branch" else outs[-1]
        self.shapes = [self._shape(h) for h in [*ins, last]]
        self.read = read or self._find_read(probe, last, example)
        tokens = probe.logits_shape[1:-1]  # [T] where every token has logits of its own
        self.scores_tokens = len(tokens) == 1 and all(len(s) == 2 and s[0] == tokens[0] for s in self.shapes)
        self.notes = (*notes, *self.read_note())

    def _shape(self, h: Tensor) -> tuple[int, ...]:
        shape = list(h.shape)
        shape.pop(self.batch_dim)
        return tuple(shape)

    def _probe(self, inputs: Any) -> _Probe:
        probe = _Probe()

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            h = first_tensor(args, kwargs, self._name(module))
            if len(probe.outputs) != len(probe.inputs):
                raise CreditscopeError(
                    f"block {self._name(module)!r} lies inside another block; name blocks that follow each other"
                )
            leaf = h.detach().clone().requires_grad_()
            probe.inputs.append(leaf)
            probe.names.append(self._name(module))
            probe.entered = leaf.clone()  # a block may work in place, and a leaf must not be written to
            return replace_first(args, kwargs, probe.entered)

        def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
            assert probe.entered is not None
            probe.in_place |= probe.entered._version > 0
            probe.outputs.append(tensor_of(out, self._name(module)))

        with torch.enable_grad(), no_parameter_grads(self.model), self._hooks(before, after):
            logits = logits_of(call_model(self.model, inputs))
        probe.logits_shape = tuple(logits.shape)
        never = [name for name, _ in self._blocks if name not in probe.names]
        if never:
            raise CreditscopeError(
                f"block {never[0]!r} was not called by the model's forward pass; name blocks that run"
            )
        if not logits.requires_grad:
            raise CreditscopeError(f"the logits do not depend on the output of {probe.names[-1]!r} by a gradient")
        # the read token: where the gradient of the logits at the last output is not zero
        weights = torch.linspace(1.0, 2.0, logits.numel(), device=logits.device).view_as(logits).to(logits.dtype)
        with torch.enable_grad():
            (probe.grad,) = torch.autograd.grad((logits * weights).sum(), probe.outputs[-1], allow_unused=True)
        if probe.grad is None:
            raise CreditscopeError(
                f"the logits do not depend on the output of {probe.names[-1]!r}; name the residual blocks"
            )
        return probe

    def _find_batch_dim(self, inputs: Any, batch_size: int, h: Tensor, n: int) -> int:
        candidates = [d for d in range(min(2, h.dim())) if h.shape[d] == n]
        if candidates == [0] or batch_size < 3 or len(candidates) < 1:
            if not candidates:
                raise CreditscopeError(
                    f"a block sees a state of shape {list(h.shape)} for {n} samples: no batch dimension"
                )
            return candidates[0]
        if len(candidates) == 1:
            return candidates[0]
        smaller = self._probe(map_samples(inputs, batch_size, lambda t: t[:2])).inputs[0]
        return 0 if smaller.shape[0] == 2 else 1

    def _find_returns(self, ins: list[Tensor], outs: list[Tensor], names: list[str], notes: list[str]) -> str:
        links = []
        for k in range(len(ins) - 1):
            if _same(ins[k + 1], outs[k]):
                links.append("full")
            elif ins[k].shape == outs[k].shape and _same(ins[k + 1], ins[k] + outs[k]):
                links.append("branch")
            elif ins[k + 1].shape != outs[k].shape:
                raise CreditscopeError(
                    f"blocks do not chain: {names[k]!r} gives {list(outs[k].shape)} and {names[k + 1]!r} takes "
                    f"{list(ins[k + 1].shape)}; name blocks that include what lies between"
                )
            else:
                links.append("between")
        if not links:
            return "full"
        if len(set(links)) == 1 and links[0] != "between":
            return links[0]
        k = next(k for k, link in enumerate(links) if link != links[0] or link == "between")
        notes.append(
            f"between {names[k]} and {names[k + 1]} something else changes the stream; h_l is read at the inputs of the blocks"
        )
        return "between"

    def _around(self, example: Any, name: str, notes: list[str]) -> str:
        """Does the model add the output of its only block to the input itself? No next block shows it, but gradients do:

        held apart, the state that goes around the block and the branch then have the same gradient.
        """
        kept: list[Tensor] = []

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            h = first_tensor(args, kwargs, name).requires_grad_()
            kept.append(h)
            return replace_first(args, kwargs, h.detach().clone())

        def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> Any:
            kept.append(tensor_of(out, name).detach().clone().requires_grad_())
            return replace_output(out, kept[-1])

        example = tree_map(lambda t: t.detach().clone() if isinstance(t, Tensor) else t, example)
        with torch.enable_grad(), no_parameter_grads(self.model), self._hooks(before, after):
            logits = logits_of(call_model(self.model, example))
            weights = torch.linspace(1.0, 2.0, logits.numel(), device=logits.device).view_as(logits).to(logits.dtype)
            grads: Any = torch.autograd.grad((logits * weights).sum(), kept, allow_unused=True)
        beside, branch = grads
        if beside is not None and branch is not None and bool(beside.abs().max() > 0):
            if _same(beside, branch):
                return "branch"
            notes.append(f"the state also goes around {name} in another way than h + f; it is read as a plain block")
        return "full"

    def _find_read(self, probe: _Probe, last: Tensor, example: Any) -> str:
        """Which token the head reads: where the gradient of the logits is, and whether the order of tokens matters."""
        assert probe.grad is not None
        g = probe.grad.transpose(0, self.batch_dim) if self.batch_dim else probe.grad
        if g.dim() == 2:
            return "vector"
        if g.dim() != 3:
            return "flatten"
        used = g.abs().sum((0, 2)) > 0
        if int(used.sum()) == 1 and bool(used[0]):
            return "cls"
        if int(used.sum()) == 1 and bool(used[-1]):
            return "last"
        with torch.no_grad():
            same_order = self.logits_from(self.depth, last.detach(), example)
            turned = self.logits_from(self.depth, last.detach().flip(1 - self.batch_dim), example)
        return "mean" if _same(turned, same_order) else "flatten"

    # ---- running it --------------------------------------------------------------------------------------------

    def _name(self, module: nn.Module) -> str:
        return next(name for name, m in self._blocks if m is module)

    @contextmanager
    def _hooks(self, before: Any, after: Any) -> Iterator[None]:
        handles = []
        try:
            for _, module in self._blocks:
                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                handles.append(module.register_forward_hook(after, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def forward(self, inputs: Any, tap: Tap) -> Tensor:
        calls = 0
        state: list[Tensor] = []

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            h = first_tensor(args, kwargs, self._name(module))
            if calls == 0 and self._in_place:  # the copy keeps a block that works in place off the leaf
                leaf = h.detach().clone().requires_grad_()
                tap(0, leaf, leaf)
                state[:] = [leaf]
                return replace_first(args, kwargs, leaf.clone())
            if (
                calls == 0
            ):  # the graph starts at the very tensor that the model holds: it may add it to the branch itself
                h.requires_grad_()
            tap(calls, h.detach().clone() if self._in_place else h, h)
            state[:] = [h]
            return None

        def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == self.depth:
                h = tensor_of(out, self._name(module))
                # where the model adds the branch itself, dLoss/dh_L = dLoss/df_{L-1}
                tap(calls, state[0].detach() + h.detach() if self._returns == "branch" else h, h)

        # detached: the first block may be given the user's own tensor
        inputs = tree_map(lambda t: t.detach() if isinstance(t, Tensor) else t, inputs)
        with self._hooks(before, after):
            return logits_of(call_model(self.model, inputs))

    def logits_from(self, layer: int, h: Tensor, inputs: Any) -> Tensor:
        calls = 0
        entered: list[Tensor] = []

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            entered[:] = [first_tensor(args, kwargs, self._name(module))]
            return replace_first(args, kwargs, h.clone() if self._in_place else h) if calls == layer else None

        def after(module: nn.Module, args: Any, kwargs: Any, out: Any) -> Any:
            nonlocal calls
            calls += 1
            if layer == self.depth and calls == layer:
                return replace_output(out, h - entered[0] if self._returns == "branch" else h)
            if self._returns == "branch" and calls == layer + 1:  # the model will add the state that it still holds
                return replace_output(out, tensor_of(out, self._name(module)) + (h - entered[0]))
            return None

        with self._hooks(before, after):
            return logits_of(call_model(self.model, inputs))


class _Probe:
    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.names: list[str] = []
        self.entered: Tensor | None = None
        self.in_place = False
        self.grad: Tensor | None = None
        self.logits_shape: tuple[int, ...] = ()
