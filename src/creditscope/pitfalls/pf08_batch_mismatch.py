"""PF08: a and g are not of the same samples (or not at the same place)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from creditscope.pitfalls.base import (
    NO_COSINE,
    NO_REPORT,
    Answer,
    Evidence,
    Numbers,
    Spot,
    Tensor,
    clear,
    found,
    unknown,
)
from creditscope.pitfalls.source import Source

OLD_HOOKS = {
    "register_backward_hook": "register_full_backward_hook",
    "register_module_backward_hook": "register_module_full_backward_hook",
}


def reproduce() -> Numbers:
    import torch

    from creditscope.pitfalls.tiny import cosine, generator, randn, with_cosine

    rng = generator(8)
    g = randn(128, 64, rng=rng)
    a = with_cosine(g, 0.4, rng)
    order = torch.randperm(128, generator=rng)  # a second pass over a shuffling loader
    wrong = float(cosine(a[order], g).mean())
    right = float(cosine(a, g).mean())
    return {"wrong": wrong, "right": right}


def tensors(a: Tensor, g: Tensor) -> str | None:
    """a [B, d], g [B', d]: sizes that differ, or rows that fit each other much better in another order."""
    import torch

    if len(a) != len(g):
        return f"a has {len(a)} samples and g has {len(g)}"
    a, g = (t.detach().double().flatten(1) for t in (a, g))
    ok = (a.norm(dim=1) > 0) & (g.norm(dim=1) > 0)
    a, g = a[ok], g[ok]
    if len(a) < 4:
        return None
    cos = (a / a.norm(dim=1, keepdim=True)) @ (g / g.norm(dim=1, keepdim=True)).T
    best = cos.argmax(1)
    moved = best != torch.arange(len(a), device=best.device)
    # chance makes a best partner too, but not one that is everybody's only one
    if len(best.unique()) > 0.9 * len(a) and float(moved.double().mean()) > 0.5:
        here, there = float(cos.diag().mean()), float(cos.max(1).values.mean())
        if there > here + 5 * a.shape[1] ** -0.5:
            return (
                f"in another order of the samples the mean cosine is {there:+.2f} instead of {here:+.2f}: a and g "
                "are of different batches"
            )
    return None


def code(source: Source) -> Iterator[Spot]:
    seen = "the hook sees the gradient of the module's last operation only, not of its input"
    for call in source.calls:
        if isinstance(call.func, ast.Attribute) and (new := OLD_HOOKS.get(call.func.attr)):
            yield source.spot(call, f"{seen}: use {new}")


def audit(evidence: Evidence) -> Answer:
    facts = evidence.facts
    if facts is None:
        return NO_REPORT
    samples = facts.convention.samples
    for n in evidence.neighbours:
        if n.spec.dataset == evidence.spec.dataset and n.samples not in (None, samples):
            return found(f"{n.path.name} was measured on other samples ({n.samples}) than this network ({samples})")
    if facts.alignment is None:
        return NO_COSINE
    if facts.stream.given_as_arrays:
        return unknown("credit and reference came as arrays: say that row by row they belong to the same samples")
    return clear(
        f"credit and reference were taken in one pass over the same {facts.convention.n_samples:,} samples ({samples})"
    )
