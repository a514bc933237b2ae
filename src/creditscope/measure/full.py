"""Level full: the functional metrics with their controls, and the fresh-B null."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from creditscope.batch import split_batch
from creditscope.credit.base import CreditRule
from creditscope.measure.facts import FreshB, Nudging, Perturbation
from creditscope.measure.functional import (
    CONTROL_SEED,
    DTYPE,
    RESOLUTION,
    Batch,
    LossFn,
    credit_of,
    double_stream,
    first_samples,
    make_probe,
    reference_pass,
)
from creditscope.measure.nudging import STEP, nudging
from creditscope.measure.nulls import fresh_b
from creditscope.measure.perturbation import DIRECTIONS, EPSILON, SEED, perturbation
from creditscope.measure.sweep import cross_entropy
from creditscope.stream import Stream, make_stream, untouched


def functional_facts(
    model: nn.Module,
    eval_batches: Iterable[Any],
    credit: CreditRule | None = None,
    *,
    blocks: Any = None,
    read: str | None = None,
    loss_fn: LossFn | None = None,
) -> dict[str, Perturbation | Nudging | FreshB | None]:
    """The fields `perturbation`, `nudging` and `fresh_b` of the facts; the model is left as found.

    Without credit: the controls only. The batches have been swept before, so they are known to fit the model.
    """
    loss_fn = loss_fn or cross_entropy
    batches = [(x, y) for x, y in map(split_batch, eval_batches) if len(y)]
    null = None
    with untouched(model):
        stream = make_stream(model, batches[0][0], len(batches[0][1]), blocks, read)
        if credit is not None:
            credit.attach(stream)
            null = fresh_b(stream, batches, credit, loss_fn)
        rho, nudge = _probed(model, stream, first_samples(batches), credit, blocks, loss_fn)
    return {"perturbation": rho, "nudging": nudge, "fresh_b": null}


def _probed(
    model: nn.Module, stream: Stream, batches: list[Batch], credit: CreditRule | None, blocks: Any, loss_fn: LossFn
) -> tuple[Perturbation, Nudging]:
    credits = [None] * len(batches)
    exact: tuple[int, ...] = ()
    if credit is not None:
        exact = credit.exact_layers(stream.depth)
        # the credit as it is: from the network itself, in its own dtype (a user's rule may own float32 matrices)
        credits = [credit_of(credit, stream, reference_pass(stream, x, y, loss_fn), y) for x, y in batches]  # type: ignore[misc]
    rng = torch.Generator().manual_seed(CONTROL_SEED)
    try:
        twin = double_stream(model, stream, batches[0], blocks)
        probes = [make_probe(twin, batch, a, loss_fn, rng) for batch, a in zip(batches, credits, strict=True)]
    except (RuntimeError, TypeError) as error:  # a model that cannot be copied, or has float32 written into its code
        reason = f"the network does not run as a float64 copy: {' '.join(str(error).split())[:200]}"
        common: dict[str, Any] = {
            "n_samples": 0,
            "samples": "",
            "dtype": DTYPE,
            "resolution": RESOLUTION,
            "reason": reason,
        }
        return (
            Perturbation(directions=DIRECTIONS, epsilon=EPSILON, seed=SEED, **common),
            Nudging(step=STEP, **common),
        )
    if credit is not None and credit.is_exact:
        for probe in probes:
            probe.credits["credit"] = probe.credits["reference"]
    return perturbation(twin, probes, loss_fn, exact), nudging(twin, probes, loss_fn, exact)
