"""How good is the profile's estimate of the depth margin? Each network that has a trained matched null gives a point.

    python tests/trust/calibration.py train STORE [--data-dir DIR]       the grid, short runs first; goes on where it stopped
    python tests/trust/calibration.py measure STORE... [--data-dir DIR]  a line of calibration.csv for each network not in it
    python tests/trust/calibration.py page                              figure and tables of docs/depth-profile.md

A store is a directory of bundles, or one with `runs/`. Directories named DATASET-N below it hold runs on the first N training
samples: their spec cannot say so, the file of points does.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from creditscope import depth_profile
from creditscope.data import Dataset, load_dataset
from creditscope.data.dataset import fit_batches, profile_batches, test_batches
from creditscope.errors import CreditscopeError
from creditscope.files import locked, write_atomic
from creditscope.measure.profile import normalised
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.twins import frozen_blocks
from creditscope.training.bundle import Bundle, is_bundle, load_bundle
from creditscope.training.loop import train
from creditscope.training.spec import RunSpec, make_spec

HERE = Path(__file__).parent
POINTS = HERE / "calibration.csv"
TWINS = 3
NAMES = ("run", "dataset", "train_samples", "n_test", "arch", "width", "depth", "epochs", "method", "label", "seed")
MEASURED = (
    "accuracy",
    "null",
    "h_0",
    "h_L",
    *(f"twin_{k}" for k in range(TWINS)),
    "fresh",
    "logistic",
    "logistic_twin",
)
"""Accuracies: of the network and its trained null; of the readouts of its h_0 and h_L, of h_L of its twins and of a twin with
a fresh embedding; of logistic readouts of h_L and the first twin's."""
Point = dict[str, Any]


# ---- the grid ------------------------------------------------------------------------------------------------------

Rules = list[dict[str, Any]]
FEEDBACK: Rules = [
    {"method": method, "credit_norm": norm, "credit_site": site}
    for site in ("input", "output")
    for method in ("fa", "dfa")
    for norm in ("none", "rms")
]
CLIPPED: Rules = [
    {"method": "fa", "credit_norm": "rms", "grad_clip": 1.0},
    {"method": "dfa", "credit_norm": "rms", "grad_clip": 1.0},
    {"method": "dfa", "credit_norm": "none", "grad_clip": 1.0, "clip_over": "global"},
]
BP: Rules = [{"method": "bp"}]
EP: Rules = [{"method": "ep"}]
RANDOM: Rules = [{"method": "random", "credit_norm": "rms"}]
KIN = [{**rule, **change} for rule in [*BP, *FEEDBACK[:4]] for change in ({"penalty": 0.01}, {"train_last": 1})]
"""They have the nulls of the rules without penalty, with all blocks trained."""
LEARNED: Rules = [{"method": m, "credit_norm": n} for m in ("sb", "cb") for n in ("none", "rms")]
PLAIN = [{k: v for k, v in rule.items() if k != "credit_site"} for rule in FEEDBACK[4:]]
MANY = [*BP, *FEEDBACK, *CLIPPED, *KIN]
Round = tuple[dict[str, Any], Rules, int, int | None]


def grid() -> list[tuple[RunSpec, int | None]]:
    """(spec, training samples), the cheap ones first."""
    small: dict[str, Any] = {"dataset": "quadratic", "width": 64, "depth": 3, "epochs": 5}
    student = {**small, "arch": "student"}
    images = {"width": 64, "epochs": 3}
    tokens = {"arch": "vit-mini", "width": 32, "depth": 2, "epochs": 3}
    maps = {"dataset": "cifar10", "arch": "small-cnn", "width": 64, "epochs": 2}
    ten, hundred = {"dataset": "cifar10"}, {"dataset": "cifar100"}
    some = 10_000
    rounds: list[Round] = [
        (small, MANY, 42, None),
        ({**images, **ten}, MANY, 42, some),
        ({**images, **hundred}, MANY, 42, some),
        (student, MANY, 42, None),
        (small, MANY, 123, None),
        ({**tokens, **ten}, [*BP, *FEEDBACK, *KIN[::2]], 42, some),
        (small, [*RANDOM, *LEARNED], 42, None),
        ({**tokens, **hundred}, [*BP, *FEEDBACK[:4]], 42, some),
        ({**images, **ten}, [*MANY, *LEARNED], 123, some),
        ({**small, "epochs": 2}, EP, 42, None),
        (maps, [*BP, *PLAIN], 42, 4_000),
        ({**images, **hundred}, MANY, 123, some),
        ({**small, "width": 128, "depth": 4, "epochs": 25}, MANY, 42, None),
        ({**ten, "epochs": 10}, MANY, 42, None),
    ]
    return [(make_spec({**shape, **rule, "seed": seed}), n) for shape, rules, seed, n in rounds for rule in rules]


def null_of(spec: RunSpec) -> RunSpec:
    """The matched null. With all blocks frozen the credit of the embedding is a_0 at either site: one null serves both."""
    null = spec.null("matched")
    return null if null.credit_site is None or spec.arch == "small-cnn" else null.changed(credit_site="input")


def part(dataset: Dataset, n: int | None) -> Dataset:
    """The first n training samples; of the maps' few also as few test samples, a pass of which costs as much."""
    if n is None:
        return dataset
    test = n if n < 10_000 else len(dataset.test_y)
    return replace(
        dataset,
        train_x=dataset.train_x[:n],
        train_y=dataset.train_y[:n],
        test_x=dataset.test_x[:test],
        test_y=dataset.test_y[:test],
    )


def train_grid(store: Path, data_dir: Path | None) -> None:
    store.mkdir(parents=True, exist_ok=True)
    data: dict[tuple[str, int | None], Dataset] = {}
    with locked(store / ".calibration.lock", CreditscopeError(f"{store} is being filled by another process")):
        for spec, n in grid():
            key = (str(spec.dataset), n)
            data.setdefault(key, part(load_dataset(spec.dataset, data_dir), n))
            for one in (null_of(spec), spec):
                folder = store / (spec.dataset if n is None else f"{spec.dataset}-{n}")
                out = folder / one.hash
                if not is_bundle(out):
                    print(f"{folder.name} {one.slug}", train(one, out, dataset=data[key]).accuracy, flush=True)


# ---- points --------------------------------------------------------------------------------------------------------


def bundles(stores: Iterable[Path]) -> Iterator[tuple[Bundle, Bundle, int | None]]:
    """(network, its trained matched null, training samples), where there are both."""
    for store in stores:
        folders = [store / "runs"] if (store / "runs").is_dir() else sorted(p for p in store.iterdir() if p.is_dir())
        for folder in folders:
            for path in sorted(p for p in folder.iterdir() if not p.name.startswith(".") and is_bundle(p)):
                bundle = load_bundle(path, verify=False)
                null = folder / null_of(bundle.spec).hash
                if not bundle.spec.frozen and is_bundle(null):
                    n = folder.name.partition("-")[2]
                    yield bundle, load_bundle(null, verify=False), int(n) if n else None


def measure(bundle: Bundle, null: Bundle, dataset: Dataset) -> Point:
    spec = bundle.spec
    model = bundle.model(dataset)
    profiles = [depth_profile(model, **profile_batches(dataset), seed=k) for k in range(TWINS)]
    fresh = depth_profile(model, **profile_batches(dataset), rest="fresh")
    logistic = [logistic_readout(m, dataset) for m in (model, frozen_blocks(model, rest="keep", seed=0))]
    first = profiles[0].curve
    values = (
        bundle.accuracy,
        null.accuracy,
        first[0].accuracy,
        first[-1].accuracy,
        *(p.twin[-1].accuracy for p in profiles),
        fresh.twin[-1].accuracy,
        *logistic,
    )
    shape = {"train_samples": len(dataset.train_y), "n_test": len(dataset.test_y)}
    about = {"run": spec.hash[:12], **{k: getattr(spec, k) for k in NAMES if k not in ("run", *shape)}, **shape}
    return {**about, **dict(zip(MEASURED, values, strict=True))}


def logistic_readout(model: Any, dataset: Dataset, decay: float = 1e-4, steps: int = 60) -> float | None:
    """Accuracy of a logistic regression on the normalised h_L; None where a state is not finite."""
    model.eval()
    stream = InterfaceStream(model, next(fit_batches(dataset, 3))[0])
    (x, y), (test, labels) = (
        _states(stream, data) for data in (fit_batches(dataset, 1000), test_batches(dataset, 1000))
    )
    if not (x.isfinite().all() and test.isfinite().all()):
        return None
    mean = x.mean(0)
    x, test = x - mean, test - mean
    weights = torch.zeros(x.shape[1], dataset.n_classes, requires_grad=True)
    offset = torch.zeros(dataset.n_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, offset], max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weights + offset, y) + decay * weights.square().sum() / 2
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        return float(((test @ weights + offset).argmax(1) == labels).double().mean())


@torch.no_grad()
def _states(stream: InterfaceStream, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    rows, labels = [], []

    def keep(layer: int, value: Tensor, _: Tensor) -> None:
        if layer == stream.depth:
            h = stream.read_state(value) if stream.widths[layer] <= 1024 else value.flatten(1)
            rows.append(normalised(h).float())

    for x, y in batches:
        stream.forward(x, keep)
        labels.append(y)
    return torch.cat(rows), torch.cat(labels)


def read_points(path: Path = POINTS) -> list[Point]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [
        {
            k: (float(v) if v else None) if k in MEASURED else int(v) if v.isdigit() and k != "run" else v
            for k, v in line.items()
        }
        for line in lines
    ]


def write_points(points: Sequence[Point], path: Path = POINTS) -> None:
    table = io.StringIO()
    writer = csv.DictWriter(table, (*NAMES, *MEASURED), lineterminator="\n")
    writer.writeheader()
    for p in sorted(points, key=lambda p: tuple(str(p[k]) for k in ("dataset", "arch", "label", "seed", "run"))):
        writer.writerow({k: "" if v is None else f"{v:.5f}" if k in MEASURED else v for k, v in p.items()})
    write_atomic(path, table.getvalue().encode())


def measure_stores(stores: Sequence[Path], data_dir: Path | None, path: Path) -> None:
    points = {(p["run"], p["train_samples"]): p for p in read_points(path)}
    data: dict[tuple[str, int | None], Dataset] = {}
    for bundle, null, n in bundles(stores):
        key = (str(bundle.spec.dataset), n)
        data.setdefault(key, part(load_dataset(bundle.spec.dataset, data_dir), n))
        if (bundle.spec.hash[:12], len(data[key].train_y)) in points:
            continue
        point = measure(bundle, null, data[key])
        points[point["run"], point["train_samples"]] = point
        write_points(list(points.values()), path)
        print(
            f"{point['dataset']} {point['arch']} {point['label']} {point['seed']}: {truth(point):+.1f}",
            estimates(point),
        )


# ---- what they say -------------------------------------------------------------------------------------------------


def truth(p: Point) -> float:
    return 100 * float(p["accuracy"] - p["null"])


def estimates(p: Point) -> dict[str, float | None]:
    """Each way to estimate the depth margin, in pp; None where a state is not finite."""

    def pp(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else round(100 * (a - b), 3)

    twins = [p[f"twin_{k}"] for k in range(TWINS)]
    mean = None if None in twins else statistics.fmean(twins)
    return {
        "profile margin": pp(p["h_L"], p["twin_0"]),
        "h_L minus h_0": pp(p["h_L"], p["h_0"]),
        f"mean of {TWINS} twins": pp(p["h_L"], mean),
        "fresh embedding": pp(p["h_L"], p["fresh"]),
        "logistic readout": pp(p["logistic"], p["logistic_twin"]),
        "accuracy minus twin": pp(p["accuracy"], p["twin_0"]),
        "accuracy minus fresh": pp(p["accuracy"], p["fresh"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "measure"):
        command = commands.add_parser(name)
        command.add_argument("stores", type=Path, nargs=1 if name == "train" else "+")
        command.add_argument("--data-dir", type=Path)
        command.add_argument("--points", type=Path, default=POINTS)
    commands.add_parser("page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "train":
        train_grid(options.stores[0], options.data_dir)
    elif options.command == "measure":
        measure_stores(options.stores, options.data_dir, options.points)


if __name__ == "__main__":
    main()
