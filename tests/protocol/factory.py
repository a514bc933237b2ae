"""Facts made by hand: a healthy network unless told otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from creditscope.measure.facts import (
    Aggregate,
    Alignment,
    Concentration,
    Convention,
    Depth,
    DepthMargin,
    Facts,
    Reference,
    Scale,
    Stability,
    StreamInfo,
)

BLOCKS = 4
LAYERS = BLOCKS + 1
SAMPLES = 1024


def margin(
    pp: float,
    null: str = "matched",
    interval: tuple[float, float] | None = None,
    kind: str = "paired t over 3 seeds",
    n: int = 3,
) -> DepthMargin:
    """A depth margin of `pp` over a null of accuracy .30; without `interval` a point comparison."""
    return DepthMargin(
        null=null,
        accuracy=0.30 + pp / 100,
        null_accuracy=0.30,
        margin_pp=pp,
        low_pp=interval[0] if interval else None,
        high_pp=interval[1] if interval else None,
        interval=kind if interval else "point comparison",
        n=n,
    )


HEALTHY_DEPTH = Depth(margins=(margin(10.0, interval=(8.0, 12.0)),))


def make_facts(
    *,
    growth: float = 1.3,
    growth_by_group: Sequence[float] = (),
    g_128: float = 4e-4,
    g_128_by_group: Sequence[float] = (),
    dtype: str = "float32",
    depth: Depth | None = HEALTHY_DEPTH,
    stability: float | None = 0.10,
    groups: int = 8,
    stability_reason: str = "",
    cosines: Sequence[float] | None = None,
    exact_layers: tuple[int, ...] = (),
    aggregate: Aggregate | None = None,
    measurable: Sequence[int] = (SAMPLES,) * LAYERS,
    non_finite: tuple[str, ...] = (),
    accuracy: float | None = None,
) -> Facts:
    """Facts of a four-block residual network; `g_128` is ‖g_L‖ in the batch-mean convention at B = 128."""
    alignment = concentration = None
    if cosines is not None:
        total = sum(abs(cosine) for cosine in cosines)
        share = tuple(cosine / total for cosine in cosines)
        top = max(range(len(share)), key=lambda layer: abs(share[layer]))
        mean = sum(cosines) / len(cosines)
        left = [cosine for layer, cosine in enumerate(cosines) if layer and layer not in exact_layers]
        alignment = Alignment(
            mean=tuple(cosines),
            std=(0.1,) * LAYERS,
            measurable=tuple(measurable),
            under_floor=(0.0,) * LAYERS,
            floor=1e-7,
            credit_norm=(1.0,) * LAYERS,
        )
        concentration = Concentration(
            share=share,
            top_layer=top,
            top_share=abs(share[top]),
            deep_mean=sum(cosines[1:]) / BLOCKS,
            deep_mean_without_exact=sum(left) / len(left) if left else None,
            exact_layers=exact_layers,
            deep_mean_all_layers=sum(cosines[1:]) / BLOCKS,
        )
        aggregate = aggregate or make_aggregate(mean)
    return Facts(
        convention=Convention(n_samples=SAMPLES, samples="0123", batch_sizes=(128,), dtype=dtype),
        stream=StreamInfo(kind="residual", depth=BLOCKS, read="vector", widths=(256,) * LAYERS),
        accuracy=accuracy,
        scale=Scale(
            mean=(16.0,) * LAYERS,
            median=(16.0,) * LAYERS,
            growth=growth,
            growth_at=2,
            total_growth=growth,
            growth_by_group=tuple(growth_by_group),
        ),
        reference=Reference(
            per_sample=(g_128 * 128,) * LAYERS,
            batch_mean_128=(g_128,) * LAYERS,
            clamp_batch_size=(g_128 * 128 / 1e-7,) * LAYERS,
            deepest_by_group=tuple(g * 128 for g in g_128_by_group),
            zero_samples=(0,) * LAYERS,
        ),
        alignment=alignment,
        aggregate=aggregate,
        concentration=concentration,
        stability=Stability(deepest=stability, per_layer=(stability,) * LAYERS, groups=groups, reason=stability_reason),
        depth=depth,
        non_finite=non_finite,
    )


def make_aggregate(headline: float, clamped: float | None = None, *, sign_flips: bool = False) -> Aggregate:
    """Every aggregation equal to `headline`, but for the clamped one where it is given."""
    return Aggregate(
        headline=headline,
        concat=headline,
        norm_weighted=headline,
        flattened=headline,
        clamped_128=headline if clamped is None else clamped,
        spread=0.0 if clamped is None else abs(headline - clamped),
        sign_flips=sign_flips,
        gamma_all_layers=headline,
    )
