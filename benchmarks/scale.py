"""What the measurements cost at sizes that no machine here holds: python -m benchmarks.scale [--rounds 10] [--page docs/scale.md]

Processor time and peak tensor memory of `diagnose`, `depth_profile`, `certify` and one step of `Monitor` on a residual network
of L blocks with two d x d matrices each, over n rows (tokens). Each cost is a sum of a few terms with coefficients >= 0 (a peak:
the larger one of two such sums), fitted on the sizes of FIT by relative error, and held against the sizes of CHECK, each of which
is new in something. The numbers go to
benchmarks/scale.json, and from there to the page; `--from-json` writes the page without measuring.
`--driver N ...` adds the simulation of the driver (`benchmarks.driver`) at these numbers of runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor

from benchmarks import driver
from benchmarks.bench_diagnose import peak_bytes
from creditscope import Monitor, certify, depth_profile, diagnose
from creditscope.models import ResMLP

CLASSES, INPUTS, FEW, BATCHES, CERTIFIED = 10, 32, 16, 4, 3
"""FEW: samples of the certificate, at every size; BATCHES: into which the n rows are cut; CERTIFIED: its rounds."""
JSON = Path(__file__).with_name("scale.json")
START, END = "<!-- scale -->", "<!-- end of scale -->"


@dataclass(frozen=True)
class Size:
    n: int
    """Rows: samples, or tokens of a language model."""
    d: int
    depth: int

    @property
    def weights(self) -> float:
        """Parameters of the blocks."""
        return 2.0 * self.depth * self.d**2

    def __str__(self) -> str:
        return f"n={self.n:,}, d={self.d:,}, L={self.depth}"


FIT = (
    Size(256, 64, 2), Size(1024, 64, 4), Size(256, 64, 16), Size(2048, 128, 2), Size(512, 128, 8),
    Size(512, 256, 2), Size(2048, 256, 4), Size(256, 256, 12), Size(256, 512, 2), Size(1024, 384, 4),
)  # fmt: skip
CHECK = (Size(1024, 192, 6), Size(4096, 256, 8), Size(512, 512, 8), Size(1024, 128, 24))

Term = Callable[[Size], float]
TERMS: dict[str, Term] = {
    "1": lambda s: 1.0,
    "L": lambda s: s.depth,
    "n": lambda s: s.n,
    "n·L·d": lambda s: s.n * s.depth * s.d,
    "n·P": lambda s: s.n * s.weights,
    "P": lambda s: s.weights,
    "L·P": lambda s: s.depth * s.weights,
    "L²": lambda s: s.depth**2,
    "L·d³": lambda s: s.depth * float(s.d) ** 3,
    "n·d": lambda s: s.n * s.d,
    "n·L·d²": lambda s: s.n * s.depth * float(s.d) ** 2,
    "L·d²": lambda s: s.depth * float(s.d) ** 2,
    "L·d": lambda s: s.depth * s.d,
    "d²": lambda s: float(s.d) ** 2,
}
"""P: parameters of the blocks."""
MODELS: dict[str, dict[str, tuple[str, ...]]] = {
    "forward + backward": {"s": ("1", "L", "n·L·d", "n·P"), "bytes": ("1", "n", "P", "n·L·d")},
    "diagnose": {"s": ("1", "L", "n·L·d", "n·P", "P", "L·P"), "bytes": ("n", "n·d", "n·L·d")},
    "depth profile": {"s": ("1", "L", "n·L·d", "n·P", "L·d³", "P"), "bytes": ("1", "n", "n·d", "P")},
    "certificate": {"s": ("1", "L", "L²", "P", "L·P", "L·d³")},
    "Monitor, one measurement": {"s": ("1", "L", "n·L·d", "n·P", "P", "L·P"), "bytes": ("n", "n·d", "n·L·d")},
}
"""Terms of each cost. One batch of n / 4 rows is in memory at a time; the certificate takes 16 samples at every n."""
PASS = "forward + backward"
PRODUCTS: dict[str, dict[str, float]] = {
    "diagnose": {"n·P": 2 / 3},
    "Monitor, one measurement": {"n·P": 2 / 3},
    "depth profile": {"n·P": 2 / 3, "n·L·d²": 2 / 3},
}
"""Products that are known by counting, over those of a pass (6 flops for each row and parameter): no gradients of weights; two
forward passes, and the upper half of XᵀX of 2 L states in float64. Small sizes do not tell them from the terms beside them."""
SUMS = {"depth profile": {"L·d²": 16.0}}
"""Bytes that are known by counting: XᵀX of 2 L states in float64."""
PROVED = ("diagnose", "Monitor, one measurement")
PROOF, BLOCK = ("1", "L·d"), {"d²": 16.0}
"""These prove what they measured, after the measurement has let go of its tensors: a few samples, and one block at a time in
float64, which is known by counting. Networks of more than LARGEST_COPY parameters are proved without that copy."""


# ---- measured ------------------------------------------------------------------------------------------------------


def cases(size: Size) -> dict[str, Callable[[], Any]]:
    torch.manual_seed(0)
    model = ResMLP(INPUTS, CLASSES, width=size.d, depth=size.depth)
    x, y = torch.randn(size.n, INPUTS), torch.randint(0, CLASSES, (size.n,))
    rows = math.ceil(size.n / BATCHES)
    data = list(zip(x.split(rows), y.split(rows), strict=True))
    held = [(x[:FEW] + 1, y[:FEW])]

    def plain() -> None:
        for a, b in data:
            model.zero_grad(set_to_none=True)
            F.cross_entropy(model(a), b).backward()
        model.zero_grad(set_to_none=True)

    monitor, epochs = Monitor(model, data), itertools.count()
    return {
        "forward + backward": plain,
        "diagnose": lambda: diagnose(model, data),
        "depth profile": lambda: depth_profile(model, data, held),
        "certificate": lambda: certify(update, model, (x[:FEW], y[:FEW])),
        "Monitor, one measurement": lambda: monitor.step(next(epochs)),
    }


class Updates:
    """Calls of the update: of a class, since what an update closes over is put back before each call."""

    n = 0


def update(model: Any, batch: tuple[Tensor, Tensor]) -> None:
    Updates.n += 1
    F.cross_entropy(model(batch[0]), batch[1]).backward()


def measure(sizes: Sequence[Size], rounds: int) -> list[dict[str, Any]]:
    """Best processor time of the rounds (what others do on the machine only adds to it), peak of the tensors, updates.

    Every round goes through all sizes, in an order of its own: a machine that changes its speed does so for all of them.
    """
    made = {size: cases(size) for size in sizes}
    found: dict[Size, dict[str, Any]] = {
        size: {
            **{"n": size.n, "d": size.d, "depth": size.depth},
            "s": dict.fromkeys(calls, math.inf),
            "bytes": {name: peak_bytes(call) for name, call in calls.items() if name != "certificate"},
        }
        for size, calls in made.items()
    }
    for k in range(rounds):
        for size in random.sample(list(sizes), len(sizes)):
            seconds = found[size]["s"]
            for name, call in made[size].items():
                if name == "certificate" and k >= CERTIFIED:
                    continue  # the longest of all by far
                Updates.n = 0
                start = time.process_time()
                call()
                seconds[name] = min(seconds[name], time.process_time() - start)
                if name == "certificate":
                    found[size]["updates"] = Updates.n
        print(f"round {k + 1} of {rounds}", flush=True)
    return list(found.values())


# ---- fitted --------------------------------------------------------------------------------------------------------


def size_of(row: Mapping[str, Any]) -> Size:
    return Size(row["n"], row["d"], row["depth"])


def counted(rows: Sequence[Mapping[str, Any]], what: str, unit: str) -> dict[str, float]:
    """The part of a cost that is known without a fit, but for the speed of products."""
    if unit == "bytes":
        return SUMS.get(what, {})
    if what not in PRODUCTS:
        return {}
    speed = fitted(rows, PASS, unit)["n·P"]
    return {term: share * speed for term, share in PRODUCTS[what].items()}


def phases(rows: Sequence[Mapping[str, Any]], what: str, unit: str) -> list[dict[str, float]]:
    """Coefficients of each of the sums whose largest is the cost. A size counts for the sum that is the larger one there."""
    if unit != "bytes" or what not in PROVED:
        return [fitted(rows, what, unit)]
    proved = [predicted([BLOCK], size_of(row)) > predicted([{"n·L·d": 2.0}], size_of(row)) for row in rows]
    for _ in rows:
        parts = [[row for row, later in zip(rows, proved, strict=True) if later is which] for which in (False, True)]
        found = [fit(parts[0], what, unit, MODELS[what][unit], {}), fit(parts[1], what, unit, PROOF, BLOCK)]
        again = [predicted(found[1:], size_of(row)) > predicted(found[:1], size_of(row)) for row in rows]
        if again == proved:
            break
        proved = again
    return found


def fitted(rows: Sequence[Mapping[str, Any]], what: str, unit: str) -> dict[str, float]:
    return fit(rows, what, unit, MODELS[what][unit], counted(rows, what, unit))


def fit(
    rows: Sequence[Mapping[str, Any]], what: str, unit: str, terms: Sequence[str], known: Mapping[str, float]
) -> dict[str, float]:
    """Coefficients >= 0 with the least sum of squared relative errors, on top of what is counted."""
    values = np.array([row[unit][what] for row in rows], dtype=float)
    rest = np.array([1 - predicted([known], size_of(row)) / value for row, value in zip(rows, values, strict=True)])
    matrix = np.array([[TERMS[t](size_of(row)) for t in terms] for row in rows]) / values[:, None]
    scale = matrix.max(0)
    found, _ = nnls(matrix / scale, rest)
    made = {t: float(c / s) for t, c, s in zip(terms, found, scale, strict=True)}
    return {t: made.get(t, 0.0) + known.get(t, 0.0) for t in (*terms, *(t for t in known if t not in terms))}


def predicted(sums: Sequence[Mapping[str, float]], size: Size) -> float:
    """The largest of the sums."""
    return max(sum(c * TERMS[t](size) for t, c in coefficients.items()) for coefficients in sums)


def line(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Updates of a certificate: first + slope * L, by least squares."""
    depth = np.array([[1.0, row["depth"]] for row in rows])
    first, slope = np.linalg.lstsq(depth, np.array([row["updates"] for row in rows], dtype=float), rcond=None)[0]
    return float(first), float(slope)


# ---- large models, and ranks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Large(Size):
    """A transformer: 12 d² parameters in each of its blocks."""

    @property
    def weights(self) -> float:
        return 12.0 * self.depth * self.d**2


LARGE = {"1 B": Large(16_384, 2048, 20), "70 B": Large(16_384, 8192, 80)}
RANKS = {"1 B": (1, 8), "70 B": (8, 64)}


def communication(size: Size, ranks: int, updates: float, bytes_each: int = 2) -> dict[str, float]:
    """Bytes that one rank receives under FSDP for one batch (the certificate: for all of it), counted by hand.

    A parameter that is sharded over R ranks is gathered for each pass through its block: (R - 1) / R of its bytes. `diagnose`
    and `Monitor` gather for the forward and for the backward pass, and scatter no gradients of parameters. The profile gathers
    the network and its twin once each, and adds up XᵀX and XᵀY of 2 L + 2 readouts once at the end. An update of the certificate
    gathers twice and scatters the gradients. Facts that are added up are a few numbers per layer.
    """
    share = (ranks - 1) / ranks
    gathered = share * size.weights * bytes_each
    sums = (2 * size.depth + 2) * (size.d**2 + size.d * CLASSES) * 8 * 2 * share
    facts = 64.0 * size.depth * (ranks > 1)
    return {
        "diagnose": 2 * gathered + facts,
        "depth profile": 2 * gathered + sums,
        "certificate": updates * 3 * gathered,
        "Monitor, one measurement": 2 * gathered + facts,
    }


# ---- the page ------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def formula(sums: Sequence[Mapping[str, float]], unit: str) -> str:
    kept = [[f"{c:.2g} {t}" if t != "1" else f"{c:.2g}" for t, c in each.items() if c > 0] for each in sums]
    told = ", or ".join(" + ".join(terms) for terms in kept)
    return f"{told} {unit}" + (" (the larger)" if len(sums) > 1 else "")


def errors(measured: Mapping[str, Any], what: str, unit: str) -> dict[str, list[float]]:
    found = phases(measured["fit"], what, unit)
    return {
        part: [predicted(found, size_of(row)) / row[unit][what] - 1 for row in measured[part]]
        for part in ("fit", "check")
    }


def costs(measured: Mapping[str, Any]) -> str:
    parts = []
    for unit, name in (("s", "time"), ("bytes", "memory")):
        rows = []
        for what in (what for what in MODELS if unit in MODELS[what]):
            off = errors(measured, what, unit)
            within = sum(abs(e) <= 0.2 for e in off["check"])
            rows.append(
                [
                    what,
                    formula(phases(measured["fit"], what, unit), unit),
                    f"{100 * max(map(abs, off['fit'])):.0f} %",
                    " ".join(f"{100 * e:+.0f}" for e in off["check"]) + " %",
                    f"{within} of {len(off['check'])}",
                ]
            )
        parts.append(table([name, "cost", "largest error, fitted", "errors, not fitted", "within 20 %"], rows))
    return "\n\n".join(parts)


def predictions(measured: Mapping[str, Any]) -> str:
    plain = [fitted(measured["fit"], PASS, "s")]
    first, slope = line(measured["fit"])
    rows = []
    for name, size in LARGE.items():
        updates = first + slope * size.depth
        small = Large(FEW, size.d, size.depth)
        for what, units in MODELS.items():
            if what == PASS:
                continue
            of = {unit: phases(measured["fit"], what, unit)[:1] for unit in units}  # too large for a proof with a copy
            one = what == "certificate"
            times = predicted(of["s"], size) / predicted(plain, small if one else size)
            memory = _bytes(predicted(of["bytes"], size)) if "bytes" in of else "not measured"
            sent = [communication(size, r, updates)[what] for r in RANKS[name]]
            against = f"{times:,.0f} updates of {FEW} tokens" if one else f"{times:.2g} forward + backward"
            rows.append(
                [
                    *(name, what, against, memory),
                    " / ".join(f"{_bytes(v)} (R = {r})" for r, v in zip(RANKS[name], sent, strict=True)),
                ]
            )
    return table(["model", "what", "time", "tensors at the peak", "received by a rank"], rows)


def _bytes(value: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


DRIVER = {
    "runs": ("planned runs", "{:,}"),
    "workers_at_once": ("workers busy at once", "{:,}"),
    "failed": ("failures met (worker dies / error / answer lost)", "{}"),
    "commands": ("commands until all are there", "{}"),
    "lost": ("runs lost", "{}"),
    "twice": ("runs written twice", "{}"),
    "started_again_when_whole": ("started again although whole", "{}"),
    "plan_s": ("plan, s", "{:.1f}"),
    "first_s": ("first command, s", "{:.1f}"),
    "per_run_ms": ("first command, ms per run", "{:.2f}"),
    "again_s": ("the other commands, s", "{:.1f}"),
    "peak_mb": ("memory of the driver, MB above the start", "{:.0f}"),
    "list_s": ("`runs list`, s", "{:.1f}"),
    "status_s": ("`study status`, s", "{:.1f}"),
}


def simulation(found: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for key, (name, form) in DRIVER.items():
        cells = []
        for one in found:
            value = one["first_s"] / one["runs"] * 1000 if key == "per_run_ms" else one.get(key)
            if value is None:
                cells.append("not measured")
                continue
            if key == "failed":
                value = " / ".join(str(value.get(k, 0)) for k in (driver.DIES, driver.RAISES, driver.SILENT))
            cells.append(form.format(value))
        rows.append([name, *cells])
    return table(["", *("" for _ in found)], rows)


def page(content: Mapping[str, Any]) -> str:
    first, slope = line(content["fit"])
    sizes = "; ".join(str(size_of(row)) for row in content["fit"])
    checked = "; ".join(str(size_of(row)) for row in content["check"])
    return "\n\n".join(
        [
            costs(content),
            f"Fitted on {sizes}. Not fitted, in the order of the errors: {checked}.",
            f"A certificate calls the update {first:.0f} + {slope:.1f} L times.",
            "### A 1 B and a 70 B model",
            predictions(content),
            "### The driver",
            simulation(content["driver"]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--from-json", action="store_true")
    parser.add_argument("--driver", type=int, nargs="*", help="numbers of runs, for example 1000 10000 100000")
    options = parser.parse_args()
    torch.set_num_threads(1)
    content: dict[str, Any] = json.loads(JSON.read_text()) if JSON.exists() else {"driver": []}
    if not options.from_json:
        found = measure(FIT + CHECK, options.rounds)
        content |= {"fit": found[: len(FIT)], "check": found[len(FIT) :]}
    if options.driver:
        content["driver"] = [driver.apart(n, 1000, 0.05, None) for n in options.driver]
    JSON.write_text(json.dumps(content, indent=1) + "\n")
    print(page(content))
    if options.page:
        before, _, rest = options.page.read_text().partition(START)
        options.page.write_text(f"{before}{START}\n\n{page(content)}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
