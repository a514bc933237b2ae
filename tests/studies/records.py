"""Records made by hand: accuracy, nulls and facts as told, for any spec."""

from __future__ import annotations

from typing import Any

from tests.protocol.factory import make_facts

from creditscope.files import plain
from creditscope.measure.facts import Facts, FreshB, LayerMeans, Nudging, Perturbation
from creditscope.protocol.report import make_report
from creditscope.runs.record import Line, Record
from creditscope.studies.grid import make
from creditscope.training.spec import RunSpec

Item = tuple[dict[str, Any], float, float, dict[str, Any]]
"""Method, accuracy, accuracy of the nulls, facts."""
COMMON: dict[str, Any] = {"n_samples": 256, "samples": "", "dtype": "float64", "resolution": ""}
COSINES = (0.4, 0.1, 0.1, 0.1, 0.1)


def means(value: float) -> LayerMeans:
    deep = {"deep_mean": value, "deep_mean_without_exact": None, "deep_mean_all_layers": value}
    return LayerMeans(mean=(value,) * 5, std=(0.1,) * 5, measurable=(256,) * 5, **deep)


def full_facts(base: Facts, rho: float, nudge: float = -1e-4, fresh: FreshB | None = None) -> Facts:
    shared = {"directions": 32, "epsilon": 1e-3, "seed": 0, **COMMON}
    p = Perturbation(credit=means(rho), reference=means(0.99), random=means(0.01), **shared)
    return base.model_copy(
        update={"perturbation": p, "nudging": Nudging(credit=means(nudge), step=0.01, **COMMON), "fresh_b": fresh}
    )


def record(spec: RunSpec, accuracy: float, *, trajectory: list[Line] | None = None, rho: float = 0.1, nudge: float = -1e-4,
           fresh: FreshB | None = None, loss: float = -0.5, shown: float | None = None, **facts: Any) -> Record:  # fmt: skip
    """`shown`: its accuracy on the evaluation batches; `accuracy` if None."""
    found = make_facts(depth=None, accuracy=accuracy if shown is None else shown, **{"cosines": COSINES, **facts})
    report = plain(make_report(found, headline_acc=accuracy, n_test=10_000).to_dict())
    lines = trajectory or [line(0, 0.1, loss=2.5), line(1, 0.2, loss=2.0), line(2, accuracy, loss=2.0 + loss)]
    return Record(
        spec, lines, report, full=lambda epoch: full_facts(found, rho if epoch is None else 0.9, nudge, fresh)
    )


def line(
    epoch: int, accuracy: float, fired: tuple[str, ...] = (), h: float = 16.0, loss: float = 1.0, cosine: Any = COSINES
) -> Line:
    return {"epoch": epoch, "accuracy": accuracy, "train_loss": loss, "h": [16.0] * 4 + [h], "g_per_sample": [0.1] * 5,
            "growth": 1.0, "cosine": list(cosine), "fired": list(fired), "gamma": 0.2, "stability": 0.1}  # fmt: skip


def with_nulls(spec: RunSpec, accuracy: float, null: float, **facts: Any) -> list[Record]:
    nulls = {s.hash: s for s in (spec.null("matched"), spec.null("bp"))}.values()
    return [record(spec, accuracy, **facts), *(record(s, null) for s in nulls)]


def pool(*items: Item, seeds: tuple[int, ...] = (42, 123, 456), **change: Any) -> list[Record]:
    """Every seed of each (method, accuracy, accuracy of the nulls, facts); nulls that are shared stand once."""
    found: dict[str, Record] = {}
    for k, seed in enumerate(seeds):
        for method, accuracy, null, facts in items:
            for r in with_nulls(make("paper", method, seed, **change), accuracy + 0.001 * k, null + 0.001 * k, **facts):
                found.setdefault(r.spec.hash, r)
    return list(found.values())
