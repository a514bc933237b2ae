"""Facts from before three-check/1.1, in which every layer counted, read over the layers whose credit trains something.

What can be had from the means of the layers is taken anew; what needs the samples (Γ concatenated, flattened or clamped)
becomes None. The fresh-B null keeps the layers that it names.
"""

from __future__ import annotations

from creditscope.credit.layers import idle_note
from creditscope.measure.alignment import aggregate_of, norm_weighted
from creditscope.measure.concentration import concentration, mean_of
from creditscope.measure.facts import Facts, LayerMeans


def recounted(facts: Facts, counting: tuple[int, ...]) -> Facts:
    """`facts` over the layers `counting`; as they are where they were measured under 1.1 or hold no credit."""
    aligned = facts.alignment
    if aligned is None or aligned.counting is not None or facts.aggregate is None or facts.concentration is None:
        return facts
    aligned = aligned.model_copy(
        update={"counting": counting, "counting_note": idle_note(facts.stream.depth, counting)}
    )
    update: dict[str, object] = {"alignment": aligned}
    if len(counting) < len(aligned.mean):
        means = [aligned.mean[layer] for layer in counting]
        norms = [facts.reference.per_sample[layer] for layer in counting]
        values = {"headline": mean_of(means), "norm_weighted": norm_weighted(means, norms)}
        unknown = dict.fromkeys(("concat", "flattened", "clamped_128"))
        update["aggregate"] = aggregate_of({**values, **unknown}, facts.aggregate.gamma_all_layers)
        exact = facts.concentration.exact_layers
        update["concentration"] = concentration(aligned.mean, exact, counting)
        for name in ("perturbation", "nudging"):
            fact = getattr(facts, name)
            if fact is not None:
                each = {whose: getattr(fact, whose) for whose in ("credit", "reference", "random")}
                update[name] = fact.model_copy(
                    update={whose: _means(means, exact, counting) for whose, means in each.items()}
                )
    return facts.model_copy(update=update)


def _means(fact: LayerMeans | None, exact: tuple[int, ...], counting: tuple[int, ...]) -> LayerMeans | None:
    if fact is None:
        return None
    deep = concentration(fact.mean, exact, counting)
    return fact.model_copy(
        update={"deep_mean": deep.deep_mean, "deep_mean_without_exact": deep.deep_mean_without_exact}
    )
