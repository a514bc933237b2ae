"""creditscope train"""

from __future__ import annotations

import sys
from dataclasses import make_dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import tyro

from creditscope.cli.parse import METAVARS, named_value
from creditscope.errors import CreditscopeError
from creditscope.training.spec import ARCHITECTURES, RECIPES, RunSpec, make_spec

if TYPE_CHECKING:
    from creditscope.training.bundle import Bundle

MAX_CONFIG = 16 * 2**10
"""The time that YAML takes grows with the square of its nesting."""

DEVICE = "Where to train and measure: cpu, cuda, cuda:1, mps, ..., or auto (an accelerator, if there is one)."

SPEC_FIELDS = [name for name in RunSpec.model_fields if name != "options"]


def _default(name: str) -> str:
    """What a setting is when it is not given, in words."""
    by_dataset = {k: str(r[name]) for k, r in RECIPES.items() if name in r}
    by_arch = {k: str(a[name]) for k, a in ARCHITECTURES.items() if name in a}
    field = RunSpec.model_fields[name]
    if name in ("epochs", "lr", "augment"):
        return "by dataset: " + ", ".join(f"{k} {v}" for k, v in by_dataset.items())
    if by_arch:
        special = "".join(
            f"; {v} for {k}" for k, v in by_dataset.items() if v != by_arch[RECIPES[k].get("arch", "resmlp")]
        )
        return "by architecture: " + ", ".join(f"{k} {v}" for k, v in by_arch.items()) + special
    words = {
        "arch": "student for the student dataset, else resmlp",
        "credit_norm": "must be given where it applies",
        "credit_site": "input; output for small-cnn",
        "grad_clip": "no clipping",
        "clip_over": "module where grad_clip is given",
        "head_lr": "as lr",
        "train_last": "all blocks",
        "schedule_epochs": "as many as epochs",
        "checkpoint_epochs": "none",
    }
    return words.get(name, str(field.default))


def _flag(name: str) -> Any:
    """The type of one flag: optional, so that a flag that was not given leaves the config file alone."""
    field = RunSpec.model_fields[name]
    kinds = [k for k in (get_args(field.annotation) or (field.annotation,)) if k is not NoneType]
    values = get_args(field.annotation) if get_origin(field.annotation) is Literal else get_args(kinds[0])
    kind = METAVARS.get(name) or getattr(kinds[0], "__name__", "value").upper()
    metavar = "{" + ",".join(map(str, values)) + "}" if values else kind
    hint = f"(default: {_default(name)})"
    optional: Any = field.annotation | None  # type: ignore[operator]
    text = tyro.conf.arg(metavar=metavar, help_behavior_hint=hint, help=field.description)
    return Annotated[optional, tyro.conf.FlagConversionOff, text]  # --augment False: yes and no differ from not said


def _path(help: str, default: str) -> Any:
    return Annotated[Path | None, tyro.conf.arg(metavar="PATH", help=help, help_behavior_hint=f"(default: {default})")]


Settings: Any = make_dataclass(
    "Settings",
    [
        ("out", _path("Directory of the bundle.", "runs/<name of the run>"), None),
        (
            "config",
            _path(
                "YAML file with settings of the run (dataset, method, options, ... seed); flags win over it.", "none"
            ),
            None,
        ),
        ("data_dir", _path("Where the CIFAR files are.", "the cache, else download"), None),
        ("device", Annotated[str, tyro.conf.arg(metavar="DEVICE", help=DEVICE)], "cpu"),
        (
            "option",
            Annotated[
                tuple[str, ...],
                tyro.conf.arg(metavar="[NAME=VALUE ...]", help="Settings of the credit rule.", help_behavior_hint=""),
            ],
            (),
        ),
        *((name, _flag(name), None) for name in SPEC_FIELDS),
    ],
)


class Train(Settings):  # type: ignore[misc]
    """Train one network by one credit rule into a bundle. If interrupted, run the same command again to resume.

    Example: creditscope train --dataset cifar10 --method dfa --credit-norm rms --epochs 5 --schedule-epochs 100 --out runs/dfa
    """

    def spec(self) -> RunSpec:
        """What the config file and the flags say."""
        settings = read_yaml(self.config) if self.config else {}
        settings |= {name: value for name in SPEC_FIELDS if (value := getattr(self, name)) is not None}
        if self.option:
            settings["options"] = {**settings.get("options", {}), **dict(_option(text) for text in self.option)}
        return make_spec(settings)

    def execute(self) -> int:
        spec = self.spec()
        from rich.console import Console

        from creditscope.cli.bar import epoch_bar
        from creditscope.cli.output import report_text
        from creditscope.cli.place import chosen
        from creditscope.protocol.report import DiagnosticReport
        from creditscope.training.bundle import is_bundle
        from creditscope.training.loop import train

        out, device = self.out or Path("runs") / spec.slug, chosen(self.device)
        there = is_bundle(out)
        with epoch_bar(spec.label, spec.epochs, Console(stderr=True)) as progress:
            bundle = train(spec, out, data_dir=self.data_dir, progress=progress, device=device)
        report = DiagnosticReport.from_dict(bundle.report)
        print(report_text(report, spec.frozen))
        if there:
            print(f"\n{bundle.path} holds this run already, finished; nothing was trained", file=sys.stderr)
        follows = judged_by(bundle) if spec.frozen else f"creditscope diagnose {bundle.path}"
        print(f"\nbundle: {bundle.path}   run {spec.hash[:10]}   next: {follows}", file=sys.stderr)
        return 0


def judged_by(null: Bundle) -> str:
    """What to do with a baseline: the network beside it that is judged by it, or how one is trained."""
    from creditscope.cli.diagnose import siblings
    from creditscope.runs.groups import relatives

    for other in siblings(null.path):
        if not other.spec.frozen and null.spec.hash in relatives(other.spec).values():
            return f"creditscope diagnose {null.path.parent / other.path.name}"
    return "train the network that it is the baseline of (the same command without --train-last) beside it"


def _option(text: str) -> tuple[str, bool | int | float | str]:
    name, value = named_value("--option", text)
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def read_yaml(path: Path) -> dict[str, Any]:
    """A mapping from a YAML file: plain data only (no tags, no aliases), of limited size."""
    import yaml

    class Plain(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):  # a few of them make an object of a billion parts
                raise yaml.YAMLError("aliases (*name) are not read; write the value out")
            return super().compose_node(parent, index)

    try:
        if path.stat().st_size > MAX_CONFIG:
            raise CreditscopeError(f"{path} is larger than {MAX_CONFIG:,} bytes; a config is a few lines")
        content = yaml.load(path.read_text(), Plain)
    except OSError as error:
        raise CreditscopeError(f"cannot read {path}: {error.strerror}") from None
    except CreditscopeError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a month 13, a number of 5,000 digits
        raise CreditscopeError(f"{path} is not plain YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not all(isinstance(k, str) for k in content):
        raise CreditscopeError(f"{path} must hold a mapping of settings, for example 'method: dfa'")
    return content
