"""`run_null`: train the frozen-blocks null of your own model with your own training function, seed by seed."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import numbers
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from creditscope.errors import CreditscopeError, with_article
from creditscope.files import dump_json, read_json, write_atomic
from creditscope.measure.depth import accuracies, more_seeds, seeds_text
from creditscope.measure.facts import Fact
from creditscope.measure.student_t import cut, t_975
from creditscope.stream.eager import original
from creditscope.stream.twins import FRESH, twin_of
from creditscope.stream.untouched import generators_kept

ACCURACY = "accuracy"
NEEDED_PP = 2.0
"""The margin of D3, in percentage points."""


class NullRun(Fact):
    """The null over seeds; margins in percentage points where the metric is accuracy, else in the metric's own unit."""

    metric: str
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """Of the null, one per seed: what `diagnose(frozen_baseline_acc={"matched": ...})` takes where the metric is accuracy."""
    trained: tuple[float, ...] = ()
    """Of the trained networks, in the order of the seeds."""
    needed: float | None = None
    margin: float | None = None
    """How much better the trained networks are, mean over seeds."""
    low: float | None = None
    high: float | None = None
    """95 % interval: paired t over seeds; None for one seed."""
    more_seeds: int | None = None
    """How many more seeds with this spread would decide between more and less than `needed`; 0: decided; None: not known."""

    def __str__(self) -> str:
        """One line: the null, the margin with its interval, and what it decides."""
        unit = " pp" if self.metric == ACCURACY else ""
        mean = math.fsum(self.values) / len(self.values)
        line = f"null over {len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}: {self.metric} {mean:.3g}"
        if self.margin is None:
            return line
        line += f"; trained blocks are better by {self.margin:.3g}{unit}"
        if self.low is None or self.high is None:
            return f"{line} (needed {self.needed:g}; one seed has no interval)"
        widest = 100.0 if self.metric == ACCURACY else math.inf
        low, high, remark = cut(self.low, self.high, -widest, widest)
        line += f" [{low:.3g}, {high:.3g}]{remark} (needed {self.needed:g})"
        chance = ", if the trained networks beat chance (diagnose asks that)" if self.metric == ACCURACY else ""
        if self.more_seeds != 0:
            return f"{line}: not decided; {seeds_text(self.more_seeds, 'decide')}{chance}"
        side = "above" if self.low > (self.needed or 0.0) else "below"
        return f"{line}: decided, the margin is {side} what is needed{chance}"


def run_null(
    train_fn: Callable[[nn.Module, int], float],
    model: nn.Module,
    seeds: Iterable[int],
    blocks: Any = None,
    *,
    trained: Sequence[float] | None = None,
    metric: str = ACCURACY,
    needed: float | None = None,
    lower_is_better: bool = False,
    path: str | Path | None = None,
    example: Any = None,
    init: Callable[[nn.Module], None] | None = None,
    build: Callable[[], nn.Module] | None = None,
    progress: bool = True,
) -> NullRun:
    """Train a null for each seed and compare it with the trained networks.

    train_fn: (model, seed) -> its metric on the test set; trains the model it is given, by the recipe of the audited method. It
        must not change parameters that do not require gradients: a null whose blocks have moved is refused.
    model: any network of the architecture, trained or not; it and every RNG are left as found, also after an error.
    blocks, example, init, build: as for `frozen_blocks`. Every null starts from its own seed.
    trained: the metric of the trained networks, one per seed in the same order; gives the paired margin.
    metric: "accuracy" (fractions in [0, 1], margins in percentage points, `needed` 2), or the name of any other number, with
        `needed`, the margin that counts, in its unit. lower_is_better: for a loss or a perplexity.
    path: a JSON file in which finished seeds are kept; the same call then resumes. A file of another model, of other
        blocks or of another metric is refused; another recipe of train_fn cannot be seen, and needs a file of its own.
    """
    _check_given(train_fn, model)
    seeds = _checked_seeds(seeds)
    if metric == ACCURACY and lower_is_better:
        raise CreditscopeError("lower_is_better is given for accuracy; name the metric, e.g. metric='loss'")
    if metric != ACCURACY and needed is None and trained is not None:
        raise CreditscopeError(f"needed is not given; give the margin that counts, in the unit of {metric}")
    if trained is not None and len(trained) != len(seeds):
        raise CreditscopeError(f"trained has {len(trained)} numbers for {len(seeds)} seeds; give one per seed")
    others = tuple(_value(value, metric, "trained") for value in trained or ())
    model = original(model)

    def start(seed: int) -> nn.Module:
        return twin_of(model, blocks, FRESH, example, seed, init, build, advice="")  # rest= is not for callers

    with generators_kept(model):
        kept = _Kept(None if path is None else Path(path), _identity(start(seeds[0]), metric))
        for seed in _told(seeds, progress):
            if seed not in kept.values:
                null = start(seed)
                fixed = {n: p.detach().clone() for n, p in null.named_parameters() if not p.requires_grad}
                value = _value(train_fn(null, seed), metric, "train_fn")
                now = dict(null.named_parameters())
                if moved := [
                    n for n, p in fixed.items() if n not in now or not torch.equal(p, now[n].detach().to(p.device))
                ]:
                    raise CreditscopeError(
                        f"train_fn changed {moved[0]!r} of a frozen block; train only parameters that require gradients"
                    )
                kept.add(seed, value)
    values = tuple(kept.values[seed] for seed in seeds)
    needed = NEEDED_PP if metric == ACCURACY and needed is None else needed
    scale = (100.0 if metric == ACCURACY else 1.0) * (-1 if lower_is_better else 1)
    gains = [scale * (a - b) for a, b in zip(others, values, strict=False)]
    compared = _compared(gains, float(needed or 0.0)) if gains else {}
    return NullRun(metric=metric, seeds=seeds, values=values, trained=others, needed=needed, **compared)


def _compared(gains: Sequence[float], needed: float) -> dict[str, Any]:
    """The fields of a `NullRun` that follow from how much better each trained network is."""
    n, mean = len(gains), math.fsum(gains) / len(gains)
    if n == 1:
        return {"margin": round(mean, 9)}
    spread = math.sqrt(math.fsum((g - mean) ** 2 for g in gains) / (n - 1))
    half = t_975(n - 1) * spread / math.sqrt(n)
    more = more_seeds(mean - needed, spread, n)
    return {"margin": round(mean, 9), "low": mean - half, "high": mean + half, "more_seeds": more}


def _check_given(train_fn: Any, model: Any) -> None:
    """Refuse what cannot be called as train_fn(model, seed), before anything is trained."""
    if isinstance(train_fn, nn.Module):
        raise CreditscopeError(
            f"train_fn is a network ({type(train_fn).__name__}); give run_null(train_fn, model, seeds): the function first"
        )
    if not callable(train_fn):
        raise CreditscopeError(f"train_fn is {with_article(train_fn)}; give a function (model, seed) -> {ACCURACY}")
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"model is {with_article(model)}; give a torch.nn.Module")
    try:
        signature = inspect.signature(train_fn)
    except (TypeError, ValueError):  # some callables of C state none
        return
    try:
        signature.bind(model, 0)
    except TypeError as error:
        raise CreditscopeError(
            f"train_fn takes {signature} and is called as train_fn(model, seed): {error}; give it these two parameters"
        ) from None


def _checked_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    try:
        found = tuple(seeds)
    except TypeError:
        raise CreditscopeError(f"seeds is {seeds!r}; give a list of whole numbers, one for each null") from None
    if not found or any(type(seed) is not int or seed < 0 for seed in found) or len(set(found)) < len(found):
        raise CreditscopeError(f"seeds are {list(found)!r}; give at least one whole number from 0, each once")
    return found


def _value(value: Any, metric: str, name: str) -> float:
    one = hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1
    if not isinstance(value, numbers.Real) and not one:
        end = ": return it at the end" if value is None else ""
        raise CreditscopeError(f"{name} gives {' '.join(repr(value).split())}; a number is expected ({metric}){end}")
    if metric == ACCURACY:
        return accuracies(float(value) if one else value, f"an accuracy from {name}")[0]
    number = float(value)
    if not math.isfinite(number):
        raise CreditscopeError(f"{name} gives {number}; a finite number is expected ({metric})")
    return number


def _identity(null: nn.Module, metric: str) -> str:
    """Of the architecture, what is frozen in it, and the metric."""
    shapes = [(name, list(t.shape)) for name, t in null.state_dict().items()]
    frozen = [name for name, p in null.named_parameters() if not p.requires_grad]
    return hashlib.sha256(json.dumps([type(null).__name__, shapes, frozen, metric]).encode()).hexdigest()[:16]


class _Kept:
    """Finished seeds, in memory and in a file."""

    def __init__(self, path: Path | None, identity: str) -> None:
        self.path, self.identity = path, identity
        self.values: dict[int, float] = {}
        if path is not None and path.exists():
            content = read_json(path, "the nulls of a model")
            if not isinstance(content, dict) or content.get("model") != identity:
                raise CreditscopeError(
                    f"{path} holds nulls of another model, of other blocks or of another metric; give another path"
                )
            self.values = {int(seed): float(value) for seed, value in content["values"].items()}

    def add(self, seed: int, value: float) -> None:
        self.values[seed] = value
        if self.path is not None:
            values = {str(k): v for k, v in sorted(self.values.items())}
            write_atomic(self.path, dump_json({"schema_version": 1, "model": self.identity, "values": values}))


def _told(seeds: tuple[int, ...], progress: bool) -> Iterator[int]:
    """The seeds, with a bar where standard error is a terminal."""
    if not progress or not sys.stderr.isatty():
        yield from seeds
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(seeds, "null (random-blocks baseline)", console=Console(stderr=True))
