"""Results of every study on made-up runs: the whole grid of a preset, numbers drawn from the hash of each spec."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from creditscope.files import plain
from creditscope.measure.facts import DepthProfile, Facts, FreshB, LayerMeans, Nudging, Paired, Perturbation, Readout
from creditscope.protocol.report import make_report
from creditscope.runs.record import Record
from creditscope.studies.catalogue import get_study
from creditscope.tables import Cell, Row, Statement, Table
from creditscope.training.spec import RunSpec

from ..protocol.factory import make_facts
from .pages import HOSTILE

COMMON: dict[str, Any] = {"n_samples": 256, "samples": "x", "dtype": "float64", "resolution": "1e-12"}


def _means(value: float) -> LayerMeans:
    return LayerMeans(
        mean=(value,) * 5,
        std=(0.1,) * 5,
        measurable=(256,) * 5,
        deep_mean=value,
        deep_mean_without_exact=None,
        deep_mean_all_layers=value,
    )


def readout(accuracy: float) -> Readout:
    return Readout(accuracy=accuracy, low=accuracy - 0.02, high=accuracy + 0.03, width=8, strength=0.1)


def profile(curve: Sequence[float], twin: Sequence[float]) -> DepthProfile:
    return DepthProfile(
        raw=readout(0.25), curve=tuple(map(readout, curve)), twin=tuple(map(readout, twin)),
        margin=Paired(pp=1.0, low_pp=0.5, high_pp=1.5), steps=(None,) * (len(curve) - 1), first_loss=2, n_fit=500, n_test=100,
        fit_rows=500, test_rows=100, fit_samples="f", test_samples="t", seed=0, rest="keep",
    )  # fmt: skip


def full(facts: Facts, dice: random.Random) -> Facts:
    """The facts with a made-up full level."""
    draws = tuple(dice.gauss(0, 0.02) for _ in range(20))
    return facts.model_copy(
        update={
            "perturbation": Perturbation(
                credit=_means(dice.uniform(-0.1, 0.6)), reference=_means(0.99), random=_means(0.01),
                directions=32, epsilon=1e-3, seed=0, **COMMON,
            ),
            "profile": profile([0.3 + 0.1 * dice.random() for _ in range(5)], [0.3 - 0.01 * k for k in range(5)]),
            "nudging": Nudging(credit=_means(-(10 ** dice.uniform(-5, -3))), step=0.01, **COMMON),
            "fresh_b": FreshB(
                trained=dice.uniform(0.05, 0.3), mean=0.0, std=0.02, z=5.0, draws=draws, layers=(1, 2, 3), seed=0,
                n_samples=256, samples="x",
            ),
        }
    )  # fmt: skip


def made_up(spec: RunSpec) -> Record:
    dice = random.Random(spec.hash)
    explodes = spec.credit_norm == "rms" and not spec.penalty and not spec.frozen
    growth = 10 ** dice.uniform(2, 4) if explodes else dice.uniform(1, 6)
    g_128 = 10 ** dice.uniform(-9, -8) if explodes else 10 ** dice.uniform(-5, -3)
    accuracy = dice.uniform(0.25, 0.6)
    cosines = (0.42, *(dice.uniform(-0.05, 0.3) for _ in range(4)))
    facts = make_facts(depth=None, cosines=cosines, growth=growth, g_128=g_128)
    report = plain(make_report(facts, headline_acc=accuracy, n_test=10_000).to_dict())
    epochs, lines = spec.epochs or 1, []
    for epoch in range(epochs + 1):
        share = epoch / epochs
        now = math.exp(share * math.log(growth))
        fired = [c for c, on in (("D1", now > 50), ("D2", explodes and share > 0.04)) if on]
        lines.append(
            {
                "epoch": epoch, "accuracy": 0.1 + (accuracy - 0.1) * math.sqrt(share), "train_loss": 2.3 - share,
                "h": [16.0] * 4 + [16 * now], "g_per_sample": [0.1] * 4 + [0.1 * 128 * g_128**share], "growth": now,
                "cosine": list(cosines), "fired": fired, "gamma": 0.2, "stability": 0.1,
            }
        )  # fmt: skip
    fuller = full(facts, dice)
    return Record(spec, lines, report, full=lambda epoch: fuller)


@cache
def made_up_study(name: str, preset: str = "smoke") -> Table:
    study = get_study(name)
    return study.table([made_up(spec) for spec in study.specs(preset)])


def spoilt(table: Table) -> Table:
    """The same study with hostile text for every name, and in its words."""
    text = itertools.cycle(HOSTILE)
    rows = tuple(
        Row({k: Cell(next(text)) if isinstance(c.value, str) else c for k, c in row.cells.items()}, row.runs)
        for row in table.rows
    )
    told = (Statement("{x}", {"x": HOSTILE[0]}),)
    return dataclasses.replace(
        table,
        title=HOSTILE[3],
        rows=rows,
        conclusion=told,
        convention=(Statement("{x}", {"x": HOSTILE[4]}),),
        notes=HOSTILE,
    )
