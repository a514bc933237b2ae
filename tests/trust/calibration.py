"""How good is the profile's estimate of the depth margin? Each network that has a trained matched null gives a point.

    python tests/trust/calibration.py train STORE [--data-dir DIR]       what the grid has and calibration.csv has not yet
    python tests/trust/calibration.py measure STORE... [--data-dir DIR]  a line of calibration.csv for each network not in it;
        --no-rivals takes the estimate that training has measured and leaves the others empty
    python tests/trust/calibration.py board                             the same for entries of the board
    python tests/trust/calibration.py page                              figure and tables of docs/depth-profile.md

A store is a directory of bundles, or one with `runs/`. Directories named DATASET-N below it hold runs on the first N training
samples: their spec cannot say so, the file of points does.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from creditscope import depth_profile
from creditscope.board.claim import read_claim
from creditscope.board.entry import spec_of
from creditscope.data import Dataset, load_dataset
from creditscope.data.dataset import fit_batches, profile_batches, test_batches
from creditscope.errors import CreditscopeError
from creditscope.files import locked, write_atomic
from creditscope.measure.facts import DepthProfile
from creditscope.measure.profile import MAX_WIDTH, TOKENS, Ridge, _Reader, normalised
from creditscope.protocol.report import DiagnosticReport
from creditscope.protocol.thresholds import DiagnosticThresholds
from creditscope.stream.interface import InterfaceStream
from creditscope.stream.twins import frozen_blocks
from creditscope.studies.field import OTHERS, RELATIVES
from creditscope.training.bundle import Bundle, is_bundle, load_bundle
from creditscope.training.loop import train
from creditscope.training.spec import RunSpec, make_spec

HERE = Path(__file__).parent
POINTS = HERE / "calibration.csv"
TWINS = 3
NAMES = ("run", "dataset", "train_samples", "n_test", "arch", "width", "depth", "epochs", "method", "label", "seed")
EACH_TWIN = tuple(f"twin_{k}" for k in range(TWINS))
MEASURED = ("accuracy", "null", "h_0", "h_L", *EACH_TWIN, "fresh", "logistic", "logistic_twin")
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
FIELD: Rules = [*RELATIVES, *OTHERS]
NEAR: Rules = [
    {**rule, **change}
    for rule in (BP[0], FEEDBACK[0], FEEDBACK[2], {"method": "kp"}, {"method": "greedy"})
    for change in ({}, {"train_last": 1}, {"penalty": 0.01})
]
"""Whose margins, shortly trained, lie on both sides of the threshold; three of them share a null."""
SIZES = dict.fromkeys(("quadratic", "student"), (20_000, 4_000)) | dict.fromkeys(
    ("cifar10", "cifar100"), (50_000, 10_000)
)
"""Samples to train and to test."""
Round = tuple[dict[str, Any], Rules, int, int | None]


def grid() -> list[tuple[RunSpec, int | None]]:
    """(spec, training samples), the cheap ones first."""
    small: dict[str, Any] = {"dataset": "quadratic", "width": 64, "depth": 3, "epochs": 5}
    student = {**small, "arch": "student"}
    images = {"width": 64, "epochs": 3}
    tokens = {"arch": "vit-mini", "width": 32, "depth": 2, "epochs": 3, "batch_size": 32, "lr": 2e-3}
    maps = {"dataset": "cifar10", "arch": "small-cnn", "width": 64, "epochs": 2}
    ten, hundred = {"dataset": "cifar10"}, {"dataset": "cifar100"}
    some = 10_000
    longer: dict[str, Any] = {"width": 64, "epochs": 5, "batch_size": 32, "lr": 2e-3}
    rounds: list[Round] = [
        ({**small, "epochs": 1}, NEAR, 7, None),
        ({**small, "epochs": 2}, NEAR, 8, None),
        ({**small, "depth": 2, "epochs": 2}, NEAR, 9, None),
        ({**small, "lr": 5e-4, "epochs": 2}, NEAR, 10, None),
        (small, [*FIELD, *RANDOM, *LEARNED], 42, None),
        ({**small, "epochs": 2}, EP, 42, None),
        (small, MANY, 42, None),
        ({**images, **ten}, MANY, 42, some),
        ({**images, **hundred}, MANY, 42, some),
        (student, MANY, 42, None),
        (small, MANY, 123, None),
        ({**longer, **ten}, MANY, 42, some),
        ({**small, "width": 128, "depth": 4, "epochs": 15}, [*BP, *FEEDBACK, *CLIPPED], 42, None),
        ({**longer, **hundred}, MANY, 42, some),
        ({**tokens, **ten}, [*BP, *FEEDBACK, *KIN[::2]], 42, some),
        ({**longer, **ten}, [*MANY, *LEARNED], 123, some),
        (maps, [*BP, *PLAIN], 42, 4_000),
        ({**tokens, **hundred}, [*BP, *FEEDBACK[:4]], 42, some),
        ({**ten, "width": 128, "epochs": 5}, [*BP, *FEEDBACK, *CLIPPED], 42, None),
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
    known = {(p["run"], p["train_samples"]) for p in read_points()}
    with locked(store / ".calibration.lock", CreditscopeError(f"{store} is being filled by another process")):
        for spec, n in grid():
            if (spec.hash[:12], n or SIZES[spec.dataset][0]) in known:
                continue
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


def point(
    spec: RunSpec, accuracy: float, null: float, profile: DepthProfile | None, train_samples: int, n_test: int
) -> Point:
    """What the reports of the two runs say; the rivals are not measured yet."""
    shape = {"run": spec.hash[:12], "train_samples": train_samples, "n_test": n_test}
    about = {k: getattr(spec, k) for k in NAMES if k not in shape} | shape
    return {**about, **dict.fromkeys(MEASURED), "accuracy": accuracy, "null": null, **readouts(profile)}


def profile_of(bundle: Bundle) -> DepthProfile | None:
    """As training has measured it; None of a run from before profiles."""
    return DiagnosticReport.from_dict(bundle.report, str(bundle.path)).facts.profile


def readouts(profile: DepthProfile | None) -> Point:
    if profile is None:
        return {}
    ends = (profile.curve[0], profile.curve[-1], profile.twin[-1])
    return dict(zip(("h_0", "h_L", "twin_0"), (r.accuracy for r in ends), strict=True))


def rivals(bundle: Bundle, dataset: Dataset) -> Point:
    """The estimates that training does not measure, and the profile where it has not."""
    model = bundle.model(dataset)
    found = {} if profile_of(bundle) else readouts(depth_profile(model, **profile_batches(dataset)))
    twins = {name: frozen_blocks(model, rest="keep", seed=k) for k, name in enumerate(EACH_TWIN)}
    for name, network in {"": model, **twins, "fresh": frozen_blocks(model)}.items():
        fit, test = (last_states(network, data) for data in (fit_batches(dataset, 1000), test_batches(dataset, 1000)))
        if not (fit[0].isfinite().all() and test[0].isfinite().all()):
            continue
        if name in ("", "twin_0"):
            found["logistic_twin" if name else "logistic"] = logistic_readout(*fit, *test)
        else:
            found[name] = ridge_readout(*fit, *test)
    return found


@torch.no_grad()
def last_states(model: Any, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Normalised h_L and labels, read as the profile reads them."""
    model.eval()
    rows: list[Tensor] = []
    labels: list[Tensor] = []
    for x, y in batches:
        if not rows:
            reader = _Reader(InterfaceStream(model, x[:3]), MAX_WIDTH, TOKENS)
        states: list[Tensor] = []
        reader.stream.forward(x, partial(_keep, states))
        rows.append(normalised(reader.state(reader.stream.depth, states[-1], reader.rows(y))))
        labels.append(y)
    return torch.cat(rows), torch.cat(labels)


def _keep(states: list[Tensor], _: int, value: Tensor, __: Tensor) -> None:
    states.append(value)


def ridge_readout(x: Tensor, y: Tensor, test: Tensor, labels: Tensor) -> float:
    ridge = Ridge()
    ridge.add(x.clone(), y)
    found = ridge.solve(y.bincount().double())
    return float(((test @ found.weights + found.offset).argmax(1) == labels).double().mean())


def logistic_readout(x: Tensor, y: Tensor, test: Tensor, labels: Tensor, decay: float = 1e-4, steps: int = 60) -> float:
    mean, classes = x.mean(0), int(y.max()) + 1
    x, test = (x - mean).float(), (test - mean).float()
    weights = torch.zeros(x.shape[1], classes, requires_grad=True)
    offset = torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, offset], max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weights + offset, y) + decay * weights.square().sum() / 2
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        return float(((test @ weights + offset).argmax(1) == labels).double().mean())


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


def by_run(path: Path) -> dict[tuple[str, int], Point]:
    return {(p["run"], p["train_samples"]): p for p in read_points(path)}


def measure_stores(stores: Sequence[Path], data_dir: Path | None, path: Path, with_rivals: bool = True) -> None:
    """First all points, from the reports; then the rivals, one network after the other."""
    points = by_run(path)
    left = []
    for bundle, null, n in bundles(stores):
        train_samples, n_test = SIZES[bundle.spec.dataset]
        sizes = n or train_samples, min(n_test, n) if n and n < 10_000 else n_test
        profile = profile_of(bundle)
        made = point(bundle.spec, bundle.accuracy, null.accuracy, profile, *sizes)
        key = (made["run"], made["train_samples"])
        diverged = made["h_L"] is None and profile is not None
        if points.setdefault(key, made)["logistic"] is None and not diverged:
            left.append((key, bundle, n))
    write_points(list(points.values()), path)
    if not with_rivals:
        return
    data: dict[tuple[str, int | None], Dataset] = {}
    for key, bundle, n in left:
        which = (str(bundle.spec.dataset), n)
        data.setdefault(which, part(load_dataset(bundle.spec.dataset, data_dir), n))
        points[key] |= rivals(bundle, data[which])
        write_points(list(points.values()), path)
        print(points[key]["label"], estimates(points[key]), flush=True)


def board_points(root: Path) -> Iterator[Point]:
    """Of the audits on the board with a profile and a matched null: every built-in rule on the embedded data set."""
    for path in sorted(root.glob("entries/*/claim.json")):
        stated = read_claim(path.parent).evaluations[0]
        spec = spec_of(stated)
        report = DiagnosticReport.from_json(path.parent / stated.reports[0].file)
        profile, depth = report.facts.profile, report.facts.depth
        matched = next((m for m in depth.margins if m.null == "matched"), None) if depth else None
        if spec is not None and profile is not None and matched is not None:
            yield point(spec, matched.accuracy, matched.null_accuracy, profile, profile.n_fit, profile.n_test)


def add_points(found: Iterable[Point], path: Path) -> None:
    points = by_run(path)
    for made in found:
        points.setdefault((made["run"], made["train_samples"]), made)
    write_points(list(points.values()), path)


# ---- what they say -------------------------------------------------------------------------------------------------


def truth(p: Point) -> float:
    return 100 * float(p["accuracy"] - p["null"])


def estimates(p: Point) -> dict[str, float | None]:
    """Each way to estimate the depth margin, in pp; None where a state is not finite."""

    def pp(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else round(100 * (a - b), 3)

    twins = [p[name] for name in EACH_TWIN]
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


THRESHOLD = DiagnosticThresholds().frozen_acc_margin_pp
Pairs = list[tuple[float, float]]


def pairs(points: Iterable[Point], name: str) -> Pairs:
    """(estimate, margin), where the estimate was measured."""
    return [(e, truth(p)) for p in points if (e := estimates(p)[name]) is not None]


def wrong(found: Pairs) -> int:
    """Networks whose estimate and margin lie on different sides of the threshold of D3."""
    return sum((e < THRESHOLD) != (m < THRESHOLD) for e, m in found)


def said(found: Pairs) -> list[str]:
    """Networks, bias, spread, correlation by rank, wrong side."""
    errors = [e - m for e, m in found]
    if len(errors) < 2:
        return [str(len(errors)), "–", "–", "–", str(wrong(found))]
    spread = statistics.stdev(errors)
    rank = statistics.correlation(*(stats.rankdata(values, "ordinal") for values in zip(*found, strict=True)))
    share = f"{wrong(found)} ({100 * wrong(found) / len(found):.0f} %)"
    return [str(len(errors)), f"{statistics.fmean(errors):+.1f}", f"{spread:.1f}", f"{rank:.2f}", share]


def _networks(found: Pairs) -> str:
    return f"{len(found)} network{'s' * (len(found) != 1)}"


def table(heading: str, rows: Mapping[str, Pairs]) -> str:
    head = [heading, "networks", "bias (pp)", "spread (pp)", "rank correlation", "wrong side of 2 pp"]
    lines = [head, ["---"] * len(head), *([name, *said(found)] for name, found in rows.items() if found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


LARGE = 8.0
"""From here on a margin is called large, in pp."""
FEW = 5
"""Rules with fewer networks share a row: a bias of two networks says nothing."""
FAR = ((0.0, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, 8.0), (8.0, math.inf))


def page(points: list[Point]) -> str:
    """The tables of the documentation."""
    names = list(estimates(points[0]))
    all_of = [p for p in points if None not in estimates(p).values()]
    main = names[0]

    def where(key: str, *values: Any) -> Pairs:
        return pairs([p for p in points if p[key] in values], main)

    groups: dict[str, Pairs] = {"all": pairs(points, main)}
    for key in ("dataset", "arch"):
        groups |= {str(value): where(key, value) for value in sorted({p[key] for p in points})}
    methods = Counter(p["method"] for p in points)
    few = sorted(m for m, n in methods.items() if n < FEW)
    rules = {m: where("method", m) for m in sorted(methods.keys() - set(few))}
    least, most = min(methods[m] for m in few), max(methods[m] for m in few)
    rules[f"the other {len(few)} rules ({least} or {most} networks each)"] = where("method", *few)
    norms = {
        f"fa and dfa ({n})": pairs([p for p in points if p["label"].startswith((f"fa({n}", f"dfa({n}"))], main)
        for n in ("rms", "none")
    }
    margins = {
        f"margin of {LARGE:g} pp and more": [(e, m) for e, m in groups["all"] if m >= LARGE],
        f"margin below {-THRESHOLD:g} pp": [(e, m) for e, m in groups["all"] if m < -THRESHOLD],
    }
    near = {
        f"{low:g} to {high:g} pp from 2 pp" if high < math.inf else f"{low:g} pp and more": [
            (e, m) for e, m in groups["all"] if low <= abs(e - THRESHOLD) < high
        ]
        for low, high in FAR
    }
    by_few = {m: where("method", m) for m in few}
    bias = {m: statistics.fmean(e - m for e, m in found) for m, found in by_few.items() if found}
    worst = max(bias, key=lambda m: abs(bias[m]))
    return "\n\n".join(
        [
            table(f"estimate ({len(all_of)} networks that have all)", {n: pairs(all_of, n) for n in names}),
            table(f"{main}, by", {**groups, **rules, **norms, **margins}),
            f"Among the other rules the bias is largest for {worst}: {bias[worst]:+.1f} pp ({_networks(by_few[worst])}).",
            table("estimate lies", near),
        ]
    )


def draw(points: list[Point], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "calibration"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 5))
    marks = dict(zip(sorted({p["arch"] for p in points}), "os^Dv", strict=False))
    colours = dict(zip(sorted({p["dataset"] for p in points}), ("C0", "C1", "C2", "C3"), strict=False))
    for arch, mark in marks.items():
        for dataset, colour in colours.items():
            found = pairs([p for p in points if (p["arch"], p["dataset"]) == (arch, dataset)], "profile margin")
            if found:
                x, y = zip(*found, strict=True)
                axes.scatter(x, y, s=18, marker=mark, color=colour, label=f"{dataset}, {arch}", alpha=0.7)
    ends = axes.get_xlim()
    axes.plot(ends, ends, color="grey", lw=0.8)
    axes.axvline(THRESHOLD, color="grey", lw=0.8, ls=":")
    axes.axhline(THRESHOLD, color="grey", lw=0.8, ls=":")
    axes.set(xlabel="profile margin (pp)", ylabel="margin to the trained matched null (pp)")
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


START, END = "<!-- calibration -->", "<!-- end of the calibration -->"


def write_page(points: list[Point]) -> None:
    docs = HERE.parent.parent / "docs"
    draw(points, docs / "images" / "calibration.svg")
    path = docs / "depth-profile.md"
    before, _, rest = path.read_text().partition(START)
    content = f"{before}{START}\n\n{page(points)}\n\n{END}{rest.partition(END)[2]}"
    write_atomic(path, content.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "measure"):
        command = commands.add_parser(name)
        command.add_argument("stores", type=Path, nargs=1 if name == "train" else "+")
        command.add_argument("--data-dir", type=Path)
        command.add_argument("--points", type=Path, default=POINTS)
        command.add_argument("--no-rivals", action="store_true")
    commands.add_parser("board")
    commands.add_parser("page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "train":
        train_grid(options.stores[0], options.data_dir)
    elif options.command == "measure":
        measure_stores(options.stores, options.data_dir, options.points, not options.no_rivals)
    elif options.command == "board":
        add_points(board_points(HERE.parents[1] / "board"), POINTS)
    else:
        write_page(read_points())


if __name__ == "__main__":
    main()
