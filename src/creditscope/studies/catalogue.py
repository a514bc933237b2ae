"""Every study by its name; a study of your own by the path of its file."""

from __future__ import annotations

from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from creditscope.errors import CreditscopeError, unknown
from creditscope.studies.study import Study

NAMES = (
    "audit", "ablation", "temporal", "early", "triangulation", "penalty", "capacity", "functional", "freshb", "architectures",
    "cifar100", "depth", "ladder", "random-target", "thresholds", "seeds", "credit-norm", "recipe",
    "rescue", "ep-relaxation",
)  # fmt: skip


def get_study(name: str) -> Study:
    """The study of this name; `my_study.py`: the `STUDY` of that file, which is run."""
    if name.endswith(".py"):
        return _of_file(Path(name))
    if name.replace("_", "-") not in NAMES:
        raise CreditscopeError(unknown("study", name, NAMES) + ", or give the path of a file that defines STUDY")
    study: Study = import_module(f"creditscope.studies.{name.replace('-', '_')}").STUDY
    return study


def _of_file(path: Path) -> Study:
    found = spec_from_file_location(path.stem, path) if path.is_file() else None
    if found is None or found.loader is None:
        raise CreditscopeError(f"{path} is not a file; give the path of a Python file that defines STUDY")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise CreditscopeError(f"{path} defines no STUDY; it must be a creditscope.studies.study.Study")
    return study
