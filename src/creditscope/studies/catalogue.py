"""Every study by its name; a study of your own by the path of its file."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from creditscope.errors import CreditscopeError, unknown
from creditscope.files import own_source

if TYPE_CHECKING:
    from creditscope.studies.study import Study

RUNS = {
    "audit": (48, 16, 48, 51),
    "ablation": (48, 16, 48, 51),
    "temporal": (48, 16, 48, 51),
    "early": (12, 4, 12, 12),
    "triangulation": (6, 2, 6, 6),
    "penalty": (45, 15, 90, 70),
    "capacity": (18, 6, 18, 18),
    "functional": (27, 9, 27, 27),
    "freshb": (6, 2, 6, 6),
    "architectures": (36, 30, 108, 66),
    "cifar100": (30, 10, 30, 30),
    "depth": (36, 8, 60, 60),
    "ladder": (45, 15, 45, 45),
    "random-target": (15, 5, 15, 15),
    "thresholds": (48, 16, 48, 51),
    "seeds": (50, 50, 50, 50),
    "credit-norm": (35, 17, 44, 44),
    "recipe": (27, 33, 150, 114),
    "rescue": (9, 147, 147, 147),
    "ep-relaxation": (15, 10, 51, 10),
    "profile": (30, 10, 30, 30),
    "field": (55, 55, 161, 161),
    "learning-rates": (81, 81, 81, 81),
}
"""Every study, with the number of its runs at smoke, quick, paper and reduced. To count them takes torch; a test does."""
NAMES = tuple(RUNS)


def question(name: str) -> str:
    """What a study asks: the second argument of its `STUDY = Study(name, question, ...)`, read without importing torch."""
    source = own_source("studies", name.replace("-", "_"))
    calls = (s.value for s in source.body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "STUDY")
    return next(str(ast.literal_eval(call.args[1])) for call in calls if isinstance(call, ast.Call))


def get_study(name: str) -> Study:
    """The study of this name; `my_study.py`: the `STUDY` of that file, which is run."""
    if name.endswith(".py"):
        return _of_file(Path(name))
    if name.replace("_", "-") not in NAMES:
        raise CreditscopeError(unknown("study", name, NAMES) + ", or give the path of a file that defines STUDY")
    study: Study = import_module(f"creditscope.studies.{name.replace('-', '_')}").STUDY
    return study


def _line_in(path: Path, error: Exception) -> str:
    """Where in the file it happened, unless the message of the error says so itself (a SyntaxError does)."""
    lines = [f.lineno for f in extract_tb(error.__traceback__) if Path(f.filename) == path.absolute() and f.lineno]
    return f", line {lines[-1]}" if lines else ""


def _of_file(path: Path) -> Study:
    from creditscope.studies.study import Study

    found = spec_from_file_location(path.stem, path) if path.is_file() else None
    if found is None or found.loader is None:
        raise CreditscopeError(f"{path} is not a file; give the path of a Python file that defines STUDY")
    module = module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except CreditscopeError as error:
        raise CreditscopeError(f"{path}: {error}") from None
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise CreditscopeError(f"{path} cannot be loaded ({what}{_line_in(path, error)}); correct the file") from error
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise CreditscopeError(f"{path} defines no STUDY; it must be a creditscope.studies.study.Study")
    return study
