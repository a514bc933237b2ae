"""Does h_l carry everything, and do samples influence each other? States are put into the run of another sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from creditscope.errors import CreditscopeError
from creditscope.measure.proof.excerpt import Excerpt
from creditscope.measure.proof.native import rounding, variant_logits
from creditscope.stream.batches import Arguments, call_model, logits_of, map_samples, run
from creditscope.stream.blocks import Path, spelled, tensors_in
from creditscope.stream.hooks import HookedStream
from creditscope.stream.interface import Stream, difference
from creditscope.stream.ranks import recover


def are_independent(stream: Stream, example: Any, n: int, own: Tensor) -> bool | None:
    """Do the first and the last sample get the same logits in a batch of their own copies, wherever they stand in it? None:
    there is only one sample. (The first alone does not tell: samples may see those before them.)"""
    if n < 2:
        return None
    for k in (0, n - 1):
        alone = map_samples(example, n, lambda t, k=k: t[k : k + 1].expand_as(t).clone())
        with torch.no_grad():
            logits = logits_of(call_model(stream.model, alone))
        if difference(logits, own[k : k + 1].expand_as(logits)) > rounding(own):
            return False
    return True


def is_coupled(stream: Stream, excerpt: Excerpt) -> bool:
    """Do samples of the batch of an excerpt influence each other?"""
    logits = logits_of(run(stream.model, excerpt.inputs)).clone()
    return are_independent(stream, excerpt.inputs, excerpt.batch_size, logits) is False


@torch.no_grad()
def error_alone(stream: Stream, excerpt: Excerpt, k: int) -> float:
    """Relative difference of the logits of a sample, run by itself without hooks, to those of the measurement."""
    try:
        example = map_samples(excerpt.example, len(excerpt.samples), lambda t: t[k : k + 1])
        alone = logits_of(call_model(stream.model, example))
    except Exception:  # it is the user's code: it may take no sample by itself
        recover(stream.model)
        return float("inf")
    return difference(alone, excerpt.logits[k : k + 1])


def swap_errors(
    stream: Stream, example: Any, n: int, states: list[Tensor], own: Tensor, at_once: int
) -> tuple[list[float | None], tuple[str, ...]]:
    """Per layer: h_l of each sample put into the run of another one; relative difference of the logits to the sample's own.

    Where it fails, once more with what else the blocks are given (masks, the states of an encoder), and once more with the
    further inputs of the model: those go beside the stream, and are named.
    """
    if not isinstance(stream, HookedStream):
        return [0.0] * len(states), ()  # runs from h_l on and sees no input at all
    other = map_samples(example, n, lambda t: t.roll(1, 0))
    errors: list[float | None] = []
    beside: dict[str, None] = {}
    given: _Given | None = None
    swapped = variant_logits(stream, list(enumerate(states)), other, at_once)
    with torch.no_grad():
        for layer, h in enumerate(states):
            error = difference(swapped[layer], own)
            if error > rounding(own):
                given = given or _Given(stream, example, other)
                names = given.names(layer)
                if names:
                    again = difference(stream.logits_from(layer, h, other, given.handed), own)
                    if again <= rounding(own):
                        error = again
                        beside |= dict.fromkeys(names)
            if error > rounding(own):
                mixed, names = _first_only(example, other)
                again = difference(stream.logits_from(layer, h, mixed), own) if names else error
                if again <= rounding(own):
                    error = again
                    beside |= dict.fromkeys(names)
            if error > rounding(own):
                itself = difference(stream.logits_from(layer, h, example), own)
                if itself > rounding(own):
                    raise CreditscopeError(
                        f"replacing h_{layer} by itself changes the logits (relative difference {itself:.2g}): the stream is not "
                        "what it seems; name other blocks"
                    )
            errors.append(error)
    return errors, tuple(beside)


class _Given:
    """What the blocks are given beside the stream, in the run of a sample and in that of another one."""

    def __init__(self, stream: HookedStream, example: Any, other: Any) -> None:
        self.stream = stream
        self.mine, self.theirs = (stream.arguments(inputs) for inputs in (example, other))

    def names(self, layer: int) -> list[str]:
        found: dict[str, None] = {}
        for mine, theirs in list(zip(self.mine, self.theirs, strict=True))[layer:]:
            for path in _differing(mine, theirs, self.stream.slot):
                found[spelled(path)] = None
        return list(found)

    def handed(self, call: int, arguments: dict[int | str, Any]) -> dict[int | str, Any]:
        """The arguments of the sample's own run where they hold other tensors, except for the stream.

        The rest stays: an object without tensors may be one that blocks write to (a cache of keys and values).
        """
        others = {path[0] for path in _differing(self.mine[call], arguments, self.stream.slot)}
        return {key: self.mine[call][key] if key in others else value for key, value in arguments.items()}


def _differing(mine: dict[int | str, Any], theirs: dict[int | str, Any], slot: Path) -> list[Path]:
    mine_flat, theirs_flat = (
        [(path, t) for path, t in tensors_in(tree, every=True) if path[0] != slot[0]] for tree in (mine, theirs)
    )
    return [
        path
        for (path, t), (_, u) in zip(mine_flat, theirs_flat, strict=False)
        if t.shape != u.shape or not torch.equal(t, u)
    ]


def _first_only(example: Any, other: Any) -> tuple[Any, list[str]]:
    """Another sample's first input with the further inputs of the sample itself; and the names of those."""
    inner, outer = (x.inputs if isinstance(x, Arguments) else x for x in (example, other))
    mine, spec = tree_flatten(inner)
    theirs = tree_flatten(outer)[0]
    tensors = [k for k, t in enumerate(mine) if isinstance(t, Tensor)]
    names = list(inner) if isinstance(inner, dict) else [f"input {k + 1}" for k in range(len(mine))]
    if len(tensors) < 2 or len(names) != len(mine):
        return example, []
    mixed = tree_unflatten([theirs[k] if k == tensors[0] else t for k, t in enumerate(mine)], spec)
    further = [str(names[k]) for k in tensors[1:] if not torch.equal(mine[k], theirs[k])]
    return (Arguments(mixed, example.kwargs) if isinstance(example, Arguments) else mixed), further
