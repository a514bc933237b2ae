"""Grids of specs: the presets, the methods, and the nulls that belong to every trained network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

from creditscope.errors import CreditscopeError, unknown
from creditscope.runs.groups import NULL_KINDS
from creditscope.training.spec import RunSpec, make_spec

Preset = Literal["smoke", "quick", "paper", "reduced"]
PRESETS: tuple[str, ...] = get_args(Preset)

RECIPES: dict[str, dict[str, Any]] = {
    "smoke": {"dataset": "quadratic", "width": 64, "depth": 4, "batch_size": 250, "lr": 4e-3, "epochs": 3},
    "quick": {"dataset": "cifar10", "epochs": 5, "schedule_epochs": 30},
    "paper": {"dataset": "cifar10", "epochs": 100},
    "reduced": {"dataset": "cifar10", "epochs": 100},
}
"""`reduced` is `paper` at a cost that two cores can bear: the same runs, but EP and the bridges train 30 epochs instead of
100, and the studies that say so leave out seeds or epochs. docs/audit.md is made from it."""
PAPER_SEEDS = (42, 123, 456)
SEEDS: dict[str, tuple[int, ...]] = {"smoke": PAPER_SEEDS, "quick": (42,), "paper": PAPER_SEEDS, "reduced": PAPER_SEEDS}

BP: dict[str, Any] = {"method": "bp"}
FA: dict[str, Any] = {"method": "fa", "credit_norm": "none"}
FA_RMS: dict[str, Any] = {"method": "fa", "credit_norm": "rms"}
DFA: dict[str, Any] = {"method": "dfa", "credit_norm": "rms"}
DFA_NONE: dict[str, Any] = {"method": "dfa", "credit_norm": "none"}
EP: dict[str, Any] = {"method": "ep"}
SB: dict[str, Any] = {"method": "sb", "credit_norm": "rms"}
CB: dict[str, Any] = {"method": "cb", "credit_norm": "rms"}
CLIP: dict[str, Any] = {"grad_clip": 1.0, "clip_over": "module"}
"""Not stated in the papers; with rms it gives DFA the published course."""
OUTPUT: dict[str, Any] = {"credit_site": "output"}
ERROR: dict[str, Any] = {"options": {"condition": "error"}}
"""A bridge that sees e, as the public history of the papers has it."""
PLAIN_EP: dict[str, Any] = {"steps": 20, "step_size": 0.1, "momentum": False, "control": False, "tolerance": 0.0}
"""EP as it is written in a few lines: a fixed number of fixed steps."""
NAIVE_EP: dict[str, Any] = {**PLAIN_EP, "states": "float32", "nudge": "batch", "clamp": True}
EP_READINGS: tuple[dict[str, Any], ...] = (
    {**EP, "options": NAIVE_EP},
    {**EP, "options": {**NAIVE_EP, "step_size": 0.01}},
    {**EP, "options": {**NAIVE_EP, "nudge": "sample"}},
    {**EP, "options": {**NAIVE_EP, "states": "float64"}},
)
"""Whether the small credit of the published EP is round-off (float32 against float64), the nudge or the length of the way."""
SIX = (BP, EP, FA, FA_RMS, DFA, DFA_NONE, CB, SB)
"""The six methods of the primary audit; FA and DFA under both norms, since the papers do not state theirs."""

COSTLY = ("ep", "sb", "cb")
"""Rules whose step costs several times that of backpropagation."""

CHEAPER: dict[str, dict[str, Any]] = {
    "ep": {"options": {"steps": 3}},
    "sb": {"options": {"width": 64}},
    "cb": {"options": {"width": 64}},
}
"""What `smoke` changes so that it ends within two minutes."""


def check_preset(preset: str) -> None:
    if preset not in PRESETS:
        raise CreditscopeError(unknown("preset", preset, PRESETS))


def make(preset: str, method: dict[str, Any], seed: int, **changes: Any) -> RunSpec:
    """One spec of a preset; 30 epochs (`intervention`) instead of 100 in the papers' intervention studies."""
    check_preset(preset)
    recipe = dict(RECIPES[preset])
    costly = preset == "reduced" and method["method"] in COSTLY
    if (changes.pop("intervention", False) and preset in ("paper", "reduced")) or costly:
        recipe["epochs"] = 30
    settings = {**recipe, **method, "seed": seed, **changes}
    if preset == "smoke" and (cheaper := CHEAPER.get(method["method"])):
        settings["options"] = {**cheaper["options"], **settings.get("options", {})}
    return make_spec(settings)


def grid(preset: str, methods: Iterable[dict[str, Any]], **changes: Any) -> list[RunSpec]:
    """Every method with every seed of the preset; a method may bring settings of its own."""
    methods = list(methods)
    return [make(preset, method, seed, **changes) for seed in seeds_of(preset) for method in methods]


def with_nulls(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """The specs, then the matched and the `bp` null of each; each once."""
    specs = list(specs)
    nulls = [spec.null(kind) for spec in specs if not spec.frozen for kind in NULL_KINDS]
    return unique([*specs, *nulls])


def unique(specs: Iterable[RunSpec]) -> list[RunSpec]:
    return list({spec.hash: spec for spec in specs}.values())


def seeds_of(preset: str) -> tuple[int, ...]:
    check_preset(preset)
    return SEEDS[preset]
