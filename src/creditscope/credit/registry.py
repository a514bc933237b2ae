"""Credit rules by name: those that are built in, those that are registered here, and those of other packages.

A user's rule is known by its name once it is registered (`@register`, `@credit_rule("name")`), found as an entry point of
the group `creditscope.credit_rules`, or defined in a file that the environment variable CREDITSCOPE_RULES names.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from creditscope.errors import CreditscopeError, unknown
from creditscope.files import own_source

if TYPE_CHECKING:
    from torch import Tensor

    from creditscope.credit.base import CreditBatch, CreditRule

GROUP = "creditscope.credit_rules"
VARIABLE = "CREDITSCOPE_RULES"
BUILT_IN = {
    "bp": "bp.BP",
    "fa": "fa.FA",
    "dfa": "dfa.DFA",
    "ep": "ep.EP",
    "sb": "state_bridge.StateBridge",
    "cb": "credit_bridge.CreditBridge",
    "fa-weights": "weight_feedback.FixedWeightFeedback",
    "usf": "usf.USF",
    "brsf": "brsf.BRSF",
    "frsf": "frsf.FRSF",
    "kp": "kp.KolenPollack",
    "wm": "wm.WeightMirror",
    "sdfa": "sdfa.SignDFA",
    "sparse-dfa": "sparse_dfa.SparseDFA",
    "dfa-sublayers": "dfa_sublayers.SublayerDFA",
    "drtp": "drtp.DRTP",
    "greedy": "greedy.Greedy",
    "pc": "pc.PC",
    "epc": "epc.EPC",
    "dtp": "dtp.DTP",
    "fgrad": "fgrad.ForwardGradient",
    "nodepert": "nodepert.NodePerturbation",
    "pepita": "pepita.Pepita",
    "ff": "ff.ForwardForward",
    "random": "random.RandomCredit",
}
"""module.Class under creditscope.credit. A module (and with it torch) is imported when its rule is asked for."""
_rules: dict[str, type[CreditRule]] = {}
"""Those that were registered."""
_origin = dict.fromkeys(BUILT_IN, "creditscope")
_of_this_file: set[str] | None = None
"""Names that the file of rules which is being read has registered: it may not give one of them twice."""

R = TypeVar("R", bound="type[CreditRule]")
CreditFunction = Callable[["list[Tensor]", "Tensor", "Tensor"], "Sequence[Tensor]"]


def register(rule: R, origin: str | None = None) -> R:
    """Make a subclass of CreditRule known by its `name`; usable as a decorator."""
    from creditscope.credit.base import CreditRule

    found: Any = rule
    if not (isinstance(found, type) and issubclass(found, CreditRule)):
        raise CreditscopeError(
            f"register needs a subclass of CreditRule; got {rule!r} (a function: use @credit_rule('name'))"
        )
    name = rule.name
    if not is_rule_name(name):
        raise CreditscopeError(f"a credit rule needs a name of letters, digits, - and _; {rule.__name__} has {name!r}")
    known = _built_in(name) if name in BUILT_IN else _rules.get(name)
    again = known is not None and known.__qualname__ == rule.__qualname__ and _one_source(known, rule)
    twice = not again or name in (_of_this_file or ())  # the same definition may run again: a cell of a notebook
    if known is not None and known is not rule and twice:
        raise CreditscopeError(f"credit rule {name!r} exists already ({_origin[name]}); choose another name")
    if rule.__abstractmethods__:
        raise CreditscopeError(f"credit rule {name!r} does not implement credit()")
    if _of_this_file is not None:
        _of_this_file.add(name)
    if name not in BUILT_IN:
        _rules[name] = rule
        _origin[name] = origin or rule.__module__
    return rule


def _one_source(one: type, other: type) -> bool:
    """Of one module, or of one file that is known as two: by CREDITSCOPE_RULES, and imported by the user as well."""
    files = [getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in (one, other)]
    return one.__module__ == other.__module__ or (
        None not in files and len({Path(str(f)).resolve() for f in files}) == 1
    )


def is_rule_name(name: str) -> bool:
    return bool(name) and all(c.isalnum() or c in "-_" for c in name)


def knows(name: str) -> bool:
    _load_others()
    return name in BUILT_IN or name in _rules


@cache
def _built_in(name: str) -> type[CreditRule]:
    module, _, kind = BUILT_IN[name].partition(".")
    rule: type[CreditRule] = getattr(importlib.import_module(f"creditscope.credit.{module}"), kind)
    return rule


def credit_rule(name: str, summary: str = "") -> Callable[[CreditFunction], type[CreditRule]]:
    """Decorator: a function (hiddens, logits, y) -> [a_0, ..., a_L] without a state of its own, as a rule."""
    if not isinstance(name, str):
        raise CreditscopeError('credit_rule takes the name of the rule: @credit_rule("my-rule")')

    from creditscope.credit.base import CreditRule

    def decorate(function: CreditFunction) -> type[CreditRule]:
        def credit(self: CreditRule, batch: CreditBatch) -> Sequence[Tensor]:
            return function(batch.hiddens, batch.logits, batch.y)

        lines = (function.__doc__ or "").strip().splitlines()
        text = summary or (lines[0] if lines else "")
        body = {
            "name": name,
            "summary": text,
            "credit": credit,
            "__module__": function.__module__,
            "__doc__": function.__doc__,
        }
        return register(type(function.__name__, (CreditRule,), body))

    return decorate


def all_rules() -> dict[str, type[CreditRule]]:
    """Every known rule by name: those that are built in, then the others."""
    return {name: rule_class(name) for name in summaries()}


def summaries() -> dict[str, str]:
    """Every known rule with its line. What is built in is not imported for it: torch takes longer than a list may."""
    _load_others()
    return {**{name: _summary(place) for name, place in BUILT_IN.items()}, **{n: r.summary for n, r in _rules.items()}}


def _summary(place: str) -> str:
    module, _, kind = place.partition(".")
    body = next(c for c in own_source("credit", module).body if isinstance(c, ast.ClassDef) and c.name == kind).body
    assigned = {ast.unparse(s.targets[0]): s.value for s in body if isinstance(s, ast.Assign)}
    return str(ast.literal_eval(assigned["summary"]))


def origin(name: str) -> str:
    """Where a rule comes from: creditscope, a package, a file or a module."""
    return _origin[name]


def rule_class(name: str) -> type[CreditRule]:
    if not knows(name):
        raise CreditscopeError(
            f"{unknown('method', name, (*BUILT_IN, *_rules))} (a rule of your own: name its file in CREDITSCOPE_RULES, or "
            "install its package)"
        )
    return _built_in(name) if name in BUILT_IN else _rules[name]


def make_rule(name: str, options: Mapping[str, Any] | None = None) -> CreditRule:
    """A new rule; it owns nothing until `setup` or `load`."""
    return rule_class(name)(**(options or {}))


@cache
def _load_others() -> None:
    """Rules of other packages and of the files in CREDITSCOPE_RULES, once per process."""
    for point in entry_points(group=GROUP):
        where = f"entry point {point.name!r} of {point.dist.name if point.dist else 'a package'}"
        try:
            loaded = point.load()
        except Exception as error:
            raise CreditscopeError(
                f"{where} cannot be loaded ({type(error).__name__}: {error}); fix or remove it"
            ) from error
        register(loaded, where)
    for text in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        load_rule_file(Path(text))


def load_rule_file(path: Path) -> None:
    """Run a Python file of the user's that registers rules."""
    if not path.is_file():
        raise CreditscopeError(f"{VARIABLE} names {path}, which is not a file")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]  # two files of one name are two files
    name = f"creditscope_rules_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CreditscopeError(f"{VARIABLE} names {path}, which is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    global _of_this_file  # noqa: PLW0603  (files are read one after the other)
    before, added = dict(_rules), set[str]()
    _of_this_file = added
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        _rules.clear()  # all of its rules or none: what is half there is in the way of the next try
        _rules.update(before)
        if isinstance(error, CreditscopeError):
            raise CreditscopeError(f"{path}: {error}") from None
        raise CreditscopeError(f"{path} cannot be loaded ({type(error).__name__}: {error})") from error
    finally:
        _of_this_file = None
    if not added:
        raise CreditscopeError(f"{path} registers no credit rule; decorate a CreditRule with @creditscope.register")
    for rule in added:
        _origin[rule] = path.name
