"""What a study asks, which runs it is made of, what its columns mean, and which published values stand next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from md import plain, table

from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import PRESETS
from creditscope.studies.published import Number, read_paper
from creditscope.training.spec import RunSpec, norm_remark

AUDIT = Path(__file__).parents[2] / "audits" / "arxiv-2606.21126"
MAIN, UNDER_PENALTY, COURSE = "Primary audit", "Functional metrics under λ = 1e-2", "Course of DFA"
TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "audit": {MAIN: ("accuracy", "gamma_all_layers")},
    "temporal": {COURSE: ("d1_epoch", "floor_epoch[1024]", "saved[1024]")},
    "early": {
        COURSE: ("cosine[0]", "deep_cosine_all_layers"),
        "Cosine per layer": tuple(f"cosine[{k}]" for k in range(5)),
    },
    "triangulation": {
        "Penalty": ("deep_cosine_all_layers", "rho_all_layers"),
        UNDER_PENALTY: ("rho_reference", "rho_random"),
    },
    "penalty": {"Penalty": ("accuracy", "deep_cosine_all_layers", "rho_all_layers")},
    "capacity": {"Penalty": ("accuracy",)},
    "functional": {UNDER_PENALTY: ("nudging_all_layers", "loss_change")},
    "freshb": {UNDER_PENALTY: ("fresh_b", "fresh_b_mean"), "Pitfalls": ("gamma_all_layers", "fresh_b_mean")},
    "architectures": {"Other architectures": ("accuracy", "growth")},
    "cifar100": {"CIFAR-100": ("accuracy", "growth")},
    "depth": {"Depth of FA, d = 512": ("accuracy",)},
    "random-target": {"Random targets": ("last_h",)},
    "seeds": {"d = 512, L = 2": ("accuracy",)},
    "credit-norm": {MAIN: ("accuracy", "growth")},
    "ep-relaxation": {MAIN: ("accuracy",)},
    "recipe": {MAIN: ("accuracy",)},
}
"""Which published values stand on the page of which study: table of the audit -> quantities."""


@cache
def published_numbers() -> tuple[Number, ...]:
    return tuple(claim for claim in read_paper(AUDIT)[1] if isinstance(claim, Number))


def study_question(name: str) -> str:
    return f"**Asks:** {plain(get_study(name).question)}\n"


def study_commands(name: str) -> str:
    return f"""\
<!-- not run: trains for a minute or more -->
```sh
creditscope study plan {name} --preset smoke
creditscope study run {name} --preset smoke --store runs/store
creditscope study show {name} --preset smoke --store runs/store
```
"""


def _in_order(values: Iterable[Any]) -> str:
    return ", ".join(map(str, dict.fromkeys(values)))


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{v:g}" for v in dict.fromkeys(values))


def _network(s: RunSpec) -> str:
    return f"{s.arch} d={s.width} L={s.depth}{norm_remark(s.arch, s.terminal_norm)}"


def _epochs(s: RunSpec) -> str:
    return str(s.epochs) if s.epochs == s.schedule_epochs else f"{s.epochs} of a schedule of {s.schedule_epochs}"


def _method(s: RunSpec) -> str:
    """The label without what the grid lists in columns of its own."""
    return s.model_copy(update={"penalty": 0.0, "train_last": None, "targets": "labels"}).label


ROWS: dict[str, Callable[[Sequence[RunSpec]], str]] = {
    "runs": lambda all_: str(len(all_)),
    "of these nulls": lambda all_: str(sum(s.frozen for s in all_)),
    "dataset": lambda all_: _in_order(s.dataset for s in all_),
    "network": lambda all_: _in_order(map(_network, all_)).replace(", ", "; "),
    "methods": lambda all_: _in_order(map(_method, (s for s in all_ if not s.frozen))),
    "penalty λ": lambda all_: _numbers(s.penalty for s in all_ if not s.frozen),
    "last blocks trained": lambda all_: _in_order("all" if s.train_last is None else s.train_last for s in all_),
    "labels": lambda all_: _in_order(s.targets for s in all_),
    "epochs": lambda all_: "; ".join(dict.fromkeys(map(_epochs, all_))),
    "batch size": lambda all_: _in_order(s.batch_size for s in all_),
    "seeds": lambda all_: _in_order(s.seed for s in all_),
}
QUIET = {"penalty λ": ("0",), "labels": ("labels",), "last blocks trained": ("all", "all, 0")}
"""A row that says only this in every preset is left out."""


def study_grid(name: str) -> str:
    grids = [get_study(name).specs(preset) for preset in PRESETS]
    rows = []
    for label, tell in ROWS.items():
        cells = [tell(grid) for grid in grids]
        if not all(cell in QUIET.get(label, ()) for cell in cells):
            rows.append([label, *map(plain, cells)])
    return table(["preset", *(f"`{p}`" for p in PRESETS)], rows)


def study_sizes() -> str:
    rows = [[f"`{name}`", *(str(len(get_study(name).specs(preset))) for preset in PRESETS)] for name in NAMES]
    return table(["study", *(f"`{p}`" for p in PRESETS)], rows)


def study_columns(name: str) -> str:
    """The columns of the table that `study show` prints, each explained."""
    columns = get_study(name).table([]).columns
    rows = [[plain(c.heading), f"`{c.name}`", plain(c.holds)] for c in columns]
    return table(["column", "in JSON and CSV", "holds"], rows)


def study_published(name: str) -> str:
    """The values of the audited paper that belong to the study."""
    wanted = TABLES.get(name, {})
    found = [c for c in published_numbers() if c.quantity in wanted.get(c.table, ()) and not c.minus]
    rows = [
        [
            plain(c.measured.title + ("" if c.epoch is None else f" after epoch {c.epoch}")),
            plain(c.method),
            plain(c.setting) or "–",
            plain(f"{c.low:g} to {c.high:g}" if c.kind == "range" else c.value) + (f" ± {c.std:g}" if c.std else ""),
            plain("; ".join(filter(None, (c.source, c.contested)))),
        ]
        for c in found
    ]
    return table(["quantity", "method", "setting", "published", "where, and other versions"], rows) if rows else ""
