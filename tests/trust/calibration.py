"""How good is the profile's estimate? Every network of a store that has a trained null gives a point (estimate, margin).

By hand: python tests/trust/calibration.py STORE [--data-dir DIR] [--twins 3] [--fit 50000] [--json FILE]. The store is only read.

Rivals on the same points: h_L minus h_0, the mean over several twins, a twin with a fresh embedding.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from creditscope import depth_profile
from creditscope.data import load_dataset
from creditscope.data.dataset import profile_batches
from creditscope.files import dump_json, write_atomic
from creditscope.measure.facts import DepthProfile
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.runs.groups import nulls_for
from creditscope.training.bundle import Bundle, find_bundles

ESTIMATES = ("profile margin", "h_L minus h_0", "several twins", "fresh embedding")


def point(bundle: Bundle, margin_pp: float, twins: int, fit: int | None, data_dir: Path | None) -> dict[str, Any]:
    """The margin to the trained null, and what each estimate says; None where a state is not finite."""
    dataset = load_dataset(bundle.spec.dataset, data_dir)
    model = bundle.model(dataset)

    def profile(**options: Any) -> DepthProfile:
        given = profile_batches(dataset)
        if fit is not None:
            given["fit_batches"] = islice(given["fit_batches"], math.ceil(fit / 1000))
        return depth_profile(model, **given, **options)

    profiles = [profile(seed=seed) for seed in range(twins)]
    margins = [p.margin.pp for p in profiles if p.margin is not None]
    fresh, (first, last) = profile(rest="fresh").margin, (profiles[0].curve[k].accuracy for k in (0, -1))
    values = (
        margins[0] if margins else None,
        None if first is None or last is None else 100 * (last - first),
        statistics.fmean(margins) if margins else None,
        None if fresh is None else fresh.pp,
    )
    spec = bundle.spec
    name = {"run": spec.hash, "label": spec.label, "dataset": spec.dataset, "arch": spec.arch, "seed": spec.seed}
    return {**name, "margin_pp": margin_pp, "estimates": dict(zip(ESTIMATES, values, strict=True))}


def summary(points: Sequence[dict[str, Any]], threshold: float) -> list[dict[str, Any]]:
    """Per estimate: bias and spread of estimate minus margin, and how often the two lie on different sides of `threshold`."""
    rows = []
    for name in ESTIMATES:
        pairs = [(p["estimates"][name], p["margin_pp"]) for p in points if p["estimates"][name] is not None]
        errors = [estimate - margin for estimate, margin in pairs]
        rows.append(
            {
                "estimate": name,
                "networks": len(pairs),
                "bias_pp": statistics.fmean(errors) if errors else None,
                "spread_pp": statistics.stdev(errors) if len(errors) > 1 else None,
                "wrong_side": sum((estimate < threshold) != (margin < threshold) for estimate, margin in pairs),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--twins", type=int, default=3)
    parser.add_argument("--fit", type=int, help="use only so many of the training samples")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    runs = options.store / "runs"
    pool = find_bundles([runs if runs.is_dir() else options.store], print)
    points = []
    for bundle in pool:
        null = None if bundle.spec.frozen else nulls_for(bundle, pool).get("matched")
        if null is None:
            continue
        margin = 100 * (bundle.accuracy - null.accuracy)
        points.append(point(bundle, margin, options.twins, options.fit, options.data_dir))
        told = ", ".join(f"{k} {'–' if v is None else f'{v:+.1f}'}" for k, v in points[-1]["estimates"].items())
        print(f"{bundle.spec.label} seed {bundle.spec.seed}: margin {margin:+.1f} pp; {told}", flush=True)
    rows = summary(points, DiagnosticThresholds().frozen_acc_margin_pp)
    print(json.dumps(rows, indent=1))
    if options.json:
        write_atomic(options.json, dump_json({"points": points, "summary": rows}))


if __name__ == "__main__":
    main()
