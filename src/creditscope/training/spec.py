"""The specification of a run: everything that decides its result, and nothing else. Its hash names the run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from creditscope.errors import CreditscopeError, complaint, meant

SCHEMA_VERSION = 1

SHARED: dict[str, Any] = {"epochs": 100, "lr": 1e-3, "augment": True}
"""The shared recipe of the primary audit (AdamW, weight decay .01, cosine schedule, batch 128)."""

RECIPES: dict[str, dict[str, Any]] = {
    "quadratic": {"arch": "resmlp", "width": 128, "epochs": 25, "lr": 2e-3, "augment": False},
    "cifar10": SHARED,
    "cifar100": SHARED,
    "student": {"arch": "student", "epochs": 30, "lr": 1e-3, "augment": False},
}
"""What a dataset's name stands for where the user is silent."""

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "resmlp": {"width": 256, "depth": 4, "ratio": 1, "terminal_norm": True},
    "vit-mini": {"width": 128, "depth": 4, "ratio": 2, "terminal_norm": True},
    "student": {"width": 128, "depth": 4, "ratio": 1, "terminal_norm": False},
    "small-cnn": {"width": 256, "depth": 3, "ratio": 1, "terminal_norm": False},
}

DatasetName = Literal["quadratic", "cifar10", "cifar100", "student"]
ArchName = Literal["resmlp", "vit-mini", "student", "small-cnn"]


class RunSpec(BaseModel):
    """One training run. Fields left at None take the recipe of the dataset and the architecture.

    Three options change the conclusion. `credit_norm` has no default and must be given for the rules that use it;
    `credit_site` is `input` (as in the papers) unless said otherwise; `grad_clip` is off, and every label names it where it
    is on. An option added later has the default that the earlier runs were trained with, so their names stay.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    dataset: DatasetName = "quadratic"
    """quadratic (embedded), cifar10, cifar100 or student (synthetic teacher)."""
    arch: ArchName | None = None
    """Architecture: resmlp, vit-mini, student or small-cnn."""
    width: int | None = Field(None, ge=1, le=65536)
    """d, the width of the stream."""
    depth: int | None = Field(None, ge=1, le=1024)
    """L, the number of blocks."""
    ratio: int | None = Field(None, ge=1, le=64)
    """Hidden width of a branch as a multiple of d."""
    terminal_norm: bool | None = None
    """LayerNorm in front of the head."""
    method: str = "bp"
    """Name of the credit rule."""
    credit_norm: Literal["none", "rms"] | None = None
    """Credit as it is, or divided by its RMS per sample."""
    credit_site: Literal["input", "output"] | None = None
    """Block l learns from a_l (input) or from a_{l+1} (output)."""
    grad_clip: float | None = Field(None, gt=0, le=1e6)
    """Scale a gradient down to this L2 norm where its norm is larger."""
    clip_over: Literal["module", "global"] | None = None
    """What grad_clip bounds: `module`, each block and the embedding by itself; `global`, all trained parameters as one."""
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Settings of the credit rule (EP's β, a bridge's width, ...)."""
    penalty: float = Field(0.0, ge=0, le=1e6)
    """λ of the per-block penalty λ‖f_l(h_l)‖²."""
    train_last: int | None = Field(None, ge=0)
    """Train only the last k blocks; 0 is the null (random-blocks baseline)."""
    targets: Literal["labels", "random"] = "labels"
    """`random`: labels redrawn for every batch (growth without signal)."""
    epochs: int | None = Field(None, ge=1, le=100_000)
    """Epochs to train."""
    schedule_epochs: int | None = Field(None, ge=1, le=100_000)
    """Length of the cosine schedule, in epochs."""
    batch_size: int = Field(128, ge=1, le=1_000_000)
    """Training batch size."""
    lr: float | None = Field(None, gt=0, le=1e3, allow_inf_nan=False)
    """Peak learning rate of AdamW."""
    head_lr: float | None = Field(None, gt=0, le=1e3, allow_inf_nan=False)
    """Peak learning rate of head and terminal norm, if it differs from lr."""
    weight_decay: float = Field(0.01, ge=0, le=1e3)
    """Weight decay of AdamW."""
    augment: bool | None = None
    """Random crop (pad 4) and horizontal flip; images only."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Matrix products of training; bf16 and fp16 are faster only on hardware that has them. Weights and measurement stay fp32."""
    checkpoint_epochs: tuple[int, ...] = ()
    """Epochs after which weights and rule are also saved (triangulation reads them)."""
    seed: int = Field(42, ge=0, lt=2**31)
    """Seed of initialisation, feedback, data order and augmentation."""

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise CreditscopeError(one_line(error, data)) from None

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Resolve every None, so that a spec means the same whether or not a default was typed."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        recipe = RECIPES.get(str(data.get("dataset", "quadratic")))
        if recipe is None:
            return data  # the field's own error is the better one
        if data.get("arch") is None:
            data["arch"] = recipe.get("arch", "resmlp")
        shape = dict(ARCHITECTURES.get(str(data["arch"]), {}))
        shape |= {
            k: v for k, v in recipe.items() if k != "arch" and (k not in shape or data["arch"] == recipe.get("arch"))
        }
        for key, value in shape.items():
            if data.get(key) is None:
                data[key] = value
        if data.get("schedule_epochs") is None:
            data["schedule_epochs"] = data.get("epochs")
        return data

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        from creditscope.credit.registry import is_rule_name, knows, make_rule  # torch is slow to import

        if _of_record.get() and is_rule_name(self.method) and not knows(self.method):
            return self  # it was checked when it was trained; what needs the rule says so then
        rule = make_rule(self.method, self.options)
        object.__setattr__(self, "options", rule.options.recorded())  # all of them: they are part of the result
        if rule.uses_norm:
            if self.credit_norm is None:
                raise ValueError(
                    f"method {self.method} needs credit_norm (none or rms): it changes the conclusion, so it has no default"
                )
            plain = self.arch == "small-cnn"
            if self.credit_site is None:
                object.__setattr__(self, "credit_site", "output" if plain else "input")
            if plain and self.credit_site == "input":
                raise ValueError(
                    "small-cnn is a plain stream: a stage learns from the credit at its output (credit_site output)"
                )
        elif self.credit_norm is not None or self.credit_site is not None:
            raise ValueError(f"credit_norm and credit_site do not apply to method {self.method}; leave them out")
        if self.grad_clip is None and self.clip_over is not None:
            raise ValueError(f"clip_over {self.clip_over} says what is clipped and grad_clip (the norm) is not given")
        if self.grad_clip is not None and self.clip_over is None:
            object.__setattr__(self, "clip_over", "module")
        if self.head_lr == self.lr:
            object.__setattr__(self, "head_lr", None)
        depth = self.depth or 0
        if self.train_last is not None and self.train_last >= depth:
            if self.train_last > depth:
                raise ValueError(f"train_last={self.train_last} is more than the {depth} blocks there are")
            object.__setattr__(self, "train_last", None)
        if self.arch == "small-cnn" and (self.depth != 3 or self.ratio != 1 or self.terminal_norm):
            raise ValueError("small-cnn has a fixed shape (3 stages, no terminal norm); only its width can be chosen")
        if self.arch in ("vit-mini", "small-cnn") and self.dataset not in ("cifar10", "cifar100"):
            raise ValueError(
                f"arch {self.arch} needs images; dataset {self.dataset} has none (use cifar10 or cifar100)"
            )
        if self.arch == "vit-mini" and (self.width or 0) % 4:
            raise ValueError(f"vit-mini has 4 heads; width {self.width} is not a multiple of 4")
        if self.augment and self.dataset not in ("cifar10", "cifar100"):
            raise ValueError(f"augment needs images; dataset {self.dataset} has none")
        if self.precision != "fp32" and rule.objective == "own":
            raise ValueError(
                f"precision {self.precision} is not available for method {self.method}: its own passes need fp32"
            )
        if outside := [e for e in self.checkpoint_epochs if not 1 <= e <= (self.epochs or 0)]:
            raise ValueError(f"checkpoint_epochs has {outside[0]}; epochs go from 1 to {self.epochs}")
        object.__setattr__(self, "checkpoint_epochs", tuple(sorted(set(self.checkpoint_epochs))))
        if (self.schedule_epochs or 0) < (self.epochs or 0):
            raise ValueError(f"schedule_epochs {self.schedule_epochs} is shorter than epochs {self.epochs}")
        return self

    @property
    def shape(self) -> tuple[int, int, int, bool]:
        """(width, depth, ratio, terminal_norm), resolved."""
        if self.width is None or self.depth is None or self.ratio is None or self.terminal_norm is None:
            raise CreditscopeError(f"the shape of arch {self.arch} is not resolved; build specs with make_spec")
        return self.width, self.depth, self.ratio, self.terminal_norm

    @property
    def frozen(self) -> bool:
        """True for a frozen-blocks null."""
        return self.train_last == 0

    @property
    def first_trained(self) -> int:
        """Index of the first trained block (the number of blocks where all are frozen)."""
        return 0 if self.train_last is None else (self.depth or 0) - self.train_last

    @property
    def hash(self) -> str:
        """Name of the run: sha256 of the schema version, the resolved fields that are not at their default, and all options.

        A rule's defaults may change from one version to the next; a recorded run keeps its name, because it records them all.
        """
        content = {"schema_version": SCHEMA_VERSION, **self.model_dump(exclude_defaults=True, exclude={"options"})}
        if self.options:
            content["options"] = self.options
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def label(self) -> str:
        """How a person calls the run's method: `dfa(rms)`, `frozen(fa, none)`, `bp`, `sb(rms, condition=error)`."""
        from creditscope.credit.registry import knows, make_rule  # torch is slow to import

        inside: list[str] = [self.credit_norm] if self.credit_norm else []
        inside += ["site output"] if self.credit_site == "output" else []
        inside += [self.clip] if self.grad_clip else []
        inside += [f"head lr {self.head_lr:g}"] if self.head_lr else []
        inside += [f"λ={self.penalty:g}"] if self.penalty else []
        inside += [f"last {self.train_last}"] if self.train_last else []
        inside += ["random targets"] if self.targets == "random" else []
        inside += [self.precision] if self.precision != "fp32" else []
        default = make_rule(self.method, {}).options.recorded() if knows(self.method) else {}
        inside += [f"{k}={_shown(v)}" for k, v in self.options.items() if k not in default or v != default[k]]
        if self.frozen:
            return f"frozen({', '.join([self.method, *inside])})"
        return f"{self.method}({', '.join(inside)})" if inside else self.method

    @property
    def clip(self) -> str:
        """How the gradient is clipped, as a table names it: `clip 1 per module`, `clip 1 global`, `none`."""
        over = "global" if self.clip_over == "global" else "per module"
        return f"clip {self.grad_clip:g} {over}" if self.grad_clip else "none"

    @property
    def slug(self) -> str:
        """A directory name for the run: readable, and unique by its hash."""
        parts = ["frozen"] if self.frozen else []
        parts += [self.method, *([self.credit_norm] if self.credit_norm else []), str(self.dataset), str(self.arch)]
        return "-".join([*parts, f"s{self.seed}", self.hash[:10]])

    def null(self, kind: Literal["matched", "bp"]) -> RunSpec:
        """The spec of this run's frozen-blocks null: the same rule and recipe, or backpropagation for `bp`.

        The `bp` null is one for all rules of a recipe, so it leaves out what belongs to the rule: norm, site, clipping, options.
        """
        change: dict[str, Any] = {"train_last": 0, "penalty": 0.0, "checkpoint_epochs": ()}
        if kind == "bp":
            change |= {"method": "bp", "credit_norm": None, "credit_site": None, "options": {}}
            change |= {"grad_clip": None, "clip_over": None}
        return self.changed(**change)

    def changed(self, **change: Any) -> RunSpec:
        """A spec that differs from this one in the named fields."""
        return recorded_spec({**self.model_dump(), **change})


def _shown(value: bool | int | float | str) -> str:
    """An option's value in a label."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def norm_remark(arch: str | None, terminal_norm: Any) -> str:
    """What tells a network without its terminal norm from the usual one, behind its name."""
    usual = ARCHITECTURES.get(str(arch), {}).get("terminal_norm", False)
    return " without terminal LayerNorm" if usual and not terminal_norm else ""


_of_record: ContextVar[bool] = ContextVar("_of_record", default=False)
"""True while the spec of a finished run is read: its rule may be one that this process does not know."""


def make_spec(data: dict[str, Any]) -> RunSpec:
    """A spec from a mapping; what is wrong comes as one line."""
    return RunSpec(**data)


def recorded_spec(data: dict[str, Any]) -> RunSpec:
    """The spec of a finished run, or one made from it: whole, and readable without the file of a user's rule."""
    token = _of_record.set(True)
    try:
        return RunSpec(**data)
    finally:
        _of_record.reset(token)


def one_line(error: ValidationError, data: Mapping[str, Any] | None = None) -> str:
    """The first complaints of a validation as one line; `data`: where some are about what was given, those only."""
    parts = []
    items = error.errors()
    about = [item for item in items if data is None or not item["loc"] or item["loc"][0] in data]
    for item in (about or items)[:3]:
        where = ".".join(str(p) for p in item["loc"])
        message = complaint(item)
        if item["type"] == "extra_forbidden":
            message = f"unknown field; {meant(where, RunSpec.model_fields)}known: {', '.join(RunSpec.model_fields)}"
        elif item["type"] == "literal_error":
            allowed = re.findall("'([^']*)'", item["ctx"]["expected"])
            message = f"{message}; {meant(str(item['input']), allowed)}".rstrip("; ")
        parts.append(f"{where}: {message}" if where else message)
    return " ".join("; ".join(parts).split())
