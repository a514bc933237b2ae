"""What a study asks, which runs it is made of, what its columns mean, and which published values stand next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from md import plain, table
from study_columns import COLUMNS

from creditscope.studies import published as pub
from creditscope.studies.catalogue import NAMES, get_study
from creditscope.studies.grid import PRESETS
from creditscope.studies.published import Published
from creditscope.training.spec import RunSpec, norm_remark

TABLES: dict[str, dict[str, Mapping[Any, Published]]] = {
    "audit": {"accuracy": pub.AUDIT_ACCURACY},
    "ablation": {},
    "temporal": {},
    "early": {},
    "triangulation": {
        "deep cosine": {k: v for k, v in pub.DEEP_COSINE.items() if k == ("dfa", 1e-2)},
        "deep ρ": {k: v for k, v in pub.DEEP_RHO.items() if k in (("dfa", 0.0), ("dfa", 1e-2))},
        "ρ of the control a =": pub.RHO_CONTROLS,
    },
    "penalty": {
        "accuracy": {k: v for k, v in pub.PENALTY_ACCURACY.items() if k[0] in ("bp", "fa", "dfa")},
        "deep cosine": {k: v for k, v in pub.DEEP_COSINE.items() if k[0] in ("fa", "dfa")},
        "deep ρ": {k: v for k, v in pub.DEEP_RHO.items() if k[0] == "dfa"},
    },
    "capacity": {
        "accuracy": {k: v for k, v in pub.PENALTY_ACCURACY.items() if k[0] in ("bp", "dfa") and k[1] in (0.0, 1e-2)}
    },
    "functional": {
        "accuracy": {k: v for k, v in pub.PENALTY_ACCURACY.items() if k[0] != "bp" and k[1] == 1e-2},
        "deep cosine": {k: v for k, v in pub.DEEP_COSINE.items() if k[1] == 1e-2},
        "deep ρ": {k: v for k, v in pub.DEEP_RHO.items() if k[1] == 1e-2},
    },
    "freshb": {"deep cosine,": pub.FRESH_B},
    "architectures": {"accuracy": pub.ARCHITECTURE_ACCURACY},
    "cifar100": {"accuracy": pub.CIFAR100_ACCURACY},
    "depth": {"accuracy of FA, L =": pub.DEPTH_ACCURACY},
    "ladder": {
        "accuracy, all blocks:": {
            k: v for k, v in pub.PENALTY_ACCURACY.items() if k[0] in ("bp", "fa", "dfa") and not k[1]
        }
    },
    "random-target": {"‖h_L‖ of DFA after epoch": pub.RANDOM_TARGET_H},
    "thresholds": {},
    "seeds": {"accuracy of FA,": {"d=512 L=2": pub.FA_D512_ACCURACY}},
    "credit-norm": {"accuracy": {k: v for k, v in pub.AUDIT_ACCURACY.items() if k in ("fa", "dfa")}},
    "recipe": {"accuracy": {k: v for k, v in pub.AUDIT_ACCURACY.items() if k not in ("bp", "frozen")}},
    "rescue": {},
    "ep-relaxation": {"accuracy, 100 epochs:": {"ep": pub.AUDIT_ACCURACY["ep"]}},
}
"""Which published values belong to which study; an empty entry means that none is a plain number."""


def study_question(name: str) -> str:
    return f"**Asks:** {plain(get_study(name).QUESTION)}\n"


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
    "of these frozen-blocks nulls": lambda all_: str(sum(s.frozen for s in all_)),
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
    header = dict.fromkeys(get_study(name).analyse([]).header)
    if unknown := [column for column in header if column not in COLUMNS]:
        raise LookupError(f"docs/_ext/study_columns.py does not say what column {unknown[0]!r} of study {name} holds")
    return table(["column", "holds"], [[plain(column), plain(COLUMNS[column])] for column in header])


def _named(key: Any) -> str:
    if not isinstance(key, tuple):
        return str(key)
    name, second = key
    return f"{name}, λ = {second:g}" if isinstance(second, float) else f"{name}, {second}"


def study_published(name: str) -> str:
    """The values; the setting that most of them share is said once."""
    found = [(f"{what} {_named(key)}", value) for what, values in TABLES[name].items() for key, value in values.items()]
    if not found:
        return ""
    sources = [value.source for _, value in found]
    shared = max(dict.fromkeys(sources), key=sources.count)
    rows = [
        [plain(what), value.text.strip("!").replace(" ", "\u00a0"), _remark(value, shared)] for what, value in found
    ]
    return f"Unless remarked: {plain(shared)}.\n\n{table(['value', 'published', 'remark'], rows)}"


def _remark(value: Published, shared: str) -> str:
    other = "" if value.source == shared else value.source.removeprefix(shared).lstrip(",; ")
    return plain("; ".join(filter(None, (other, value.contested)))) or "–"
