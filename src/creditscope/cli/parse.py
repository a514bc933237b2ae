"""From words to the object of a command, by tyro's subcommands; a mistake becomes one line."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, Union, get_args, get_type_hints

import tyro

from creditscope.cli.commands import ROOT, Group, named
from creditscope.errors import CreditscopeError, meant

events: Any = None
with contextlib.suppress(ImportError):  # private in tyro; a version without it explains mistakes itself, in a box
    from tyro import _errors as events

METAVARS = {
    "name": "STUDY",
    "names": "STUDY",
    "run": "RUN",
    "runs": "RUN",
    "pitfalls": "PITFALL",
    "method": "METHOD",
    "device": "DEVICE",
    "devices": "0,1,...",
    "protocol": "POLICY",
    "slurm": "NAME=VALUE",
    "address": "ADDRESS",
}
"""What stands for the words of an argument in the help; others are TEXT."""


class Runnable(Protocol):
    def execute(self) -> int:
        """Do what the command does; the exit code."""


@dataclass
class Unnamed:
    """Stands for a command that the call does not name, so that its module is not imported."""


def parse(args: Sequence[str]) -> Runnable:
    """The command that the arguments name, with its options."""
    words, node = named(args)
    if isinstance(node, Group):  # a word that is no command: the mistake is told, whether help was asked for or not
        wrong, near = " ".join(args[: len(words) + 1]), meant(args[len(words)], node.commands)
        raise CreditscopeError(f"unknown command {wrong!r}; {near}commands are {', '.join(node.commands)}")
    kind, given = _load(words), args[len(words) :]

    def refuse(event: Any) -> NoReturn:
        raise CreditscopeError(_mistake(event, given, words, _options(kind)))

    with events.on_parse_error(refuse) if events else contextlib.nullcontext():
        found: Any = tyro.cli(
            _subcommands(ROOT, words, kind),
            prog="creditscope",
            args=list(args),
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone),
        )
    named_options = {_typed(word) for word in given}
    for field in fields(found):  # a list without a value would mean "none of them"; nobody means that
        if getattr(found, field.name) == () and _option(field.name) in named_options:
            raise CreditscopeError(_in_command(words, f"{_option(field.name)} needs a value"))
    return found


def _subcommands(group: Group, words: Sequence[str], kind: Any) -> Any:
    """The type that tyro makes subcommands of; only the named one has its options."""

    def constructor(name: str, node: str | Group) -> Any:
        if words[:1] != [name]:
            return Unnamed
        return _subcommands(node, words[1:], kind) if isinstance(node, Group) else kind

    # through a factory, because the type of a group is itself a union
    options = (
        Annotated[Any, tyro.conf.subcommand(name, constructor_factory=partial(constructor, name, node))]
        for name, node in group.commands.items()
    )
    return Union[tuple(options)]  # noqa: UP007 (made of a tuple)


def _load(words: Sequence[str]) -> Any:
    """The dataclass of a command (`runs rm` is Rm of creditscope.cli.runs): its fields are the options, its docstring is help."""
    kind = getattr(import_module(f"creditscope.cli.{words[0]}"), words[-1].capitalize())
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        if any(hasattr(extra, "help_behavior_hint") for extra in getattr(hint, "__metadata__", ())):
            continue
        given: dict[str, Any] = {}
        if field.default in (None, False, True, "", ()) or _many(hint):
            given["help_behavior_hint"] = ""  # not "(default: None)": the help says what happens without the option
        if form := _words(hint):
            given["metavar"] = form.format(METAVARS.get(field.name, "TEXT"))
        kind.__annotations__[field.name] = Annotated[hint, tyro.conf.arg(**given)]
    return kind


def _words(hint: Any) -> str:
    """How an argument of words, or of any number of values, stands in the help; empty for other arguments."""
    kind, positional = (hint.__origin__, True) if hasattr(hint, "__metadata__") else (hint, False)
    forms: dict[Any, str] = {str: "{}", str | None: "[{}]" if positional else "{}", tuple[str, ...]: "[{} ...]"}
    forms |= {tuple[Path, ...]: "[PATH ...]", tuple[int, ...]: "[INT ...]", tuple[float, ...]: "[FLOAT ...]"}
    return forms.get(kind, "")


def _many(hint: Any) -> bool:
    """Is it a positional argument that takes any number of values, none among them?"""
    return Ellipsis in get_args(getattr(hint, "__origin__", None))


def _options(kind: Any) -> list[str]:
    """The options of a command as they are typed; one that is on by default has only its "no"."""
    named = [f for f in fields(kind) if "Positional" not in str(f.type)]
    return [_option(f"no_{f.name}" if f.default is True else f.name) for f in named]


def named_value(option: str, text: str) -> tuple[str, str]:
    """Name and value of what an option takes as NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CreditscopeError(f"{option} {text!r} is not NAME=VALUE")
    return name, value


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _typed(word: str) -> str:
    """The option of a word on the command line: --data_dir=x is --data-dir."""
    return word.partition("=")[0].replace("_", "-")


def _in_command(words: Sequence[str], text: str) -> str:
    command = " ".join(words)
    return f"{command}: {text}; see creditscope {command} --help"


def _mistake(event: Any, args: Sequence[str], words: Sequence[str], options: Sequence[str]) -> str:
    """What tyro found, as one sentence."""
    unknown = [w for w in args if w.startswith("--") and _typed(w) not in options]
    if unknown:
        near = meant(_typed(unknown[0]), options)
        return _in_command(words, f"unknown option {unknown[0]}; {near}".rstrip("; "))
    if isinstance(event, events.UnrecognizedArgs):
        extra, group = str(event.tokens[0]), named(words[:-1])[1]
        if words[-1] == "list" and isinstance(group, Group) and "show" in group.commands:
            show = " ".join([*words[:-1], "show", extra])
            return f"{' '.join(words)} takes no name; type creditscope {show}"
        return _in_command(words, f"{extra!r} is one argument too many")
    if isinstance(event, events.MissingArgs):
        return _in_command(words, "missing " + ", ".join(_required(m.arg) for m in event.missing_arguments))
    argument = getattr(event, "argument", None)
    if argument is None:
        return _in_command(words, " ".join(str(getattr(event, "message", type(event).__name__)).split()))
    name, wanted = argument.display_name(), str(argument.lowered.metavar).strip("[]")
    if isinstance(event, events.InvalidChoice):
        choices = sorted(set(event.choices) - {"None"})  # tyro's order is that of a set
        near = meant(event.value, choices).rstrip()
        known = f"choose one of {', '.join(choices)}"
        return _in_command(words, f"{name} is {event.value!r}; " + (f"{near} {known}" if near else known))
    if isinstance(event, events.BadValue):
        return _in_command(words, f"{name} needs a value ({wanted})")
    return _in_command(words, f"{name} takes {wanted}, not {' '.join(_values(args, name))!r}")


def _required(argument: Any) -> str:
    """A required argument with what it is: "--store PATH (Directory of the store.)"."""
    explained = argument.field.helptext
    text = " ".join(str(explained() if callable(explained) else explained).split())
    name = argument.display_name()
    shown = f"{name} {argument.lowered.metavar}" if name.startswith("-") else argument.lowered.metavar
    return f"{shown} ({text.rstrip('.')})"


def _values(args: Sequence[str], option: str) -> list[str]:
    """What was given behind an option."""
    found: list[str] = []
    for k, word in enumerate(args):
        if _typed(word) == option:
            after = [word.partition("=")[2]] if "=" in word else args[k + 1 :]
            found += itertools.takewhile(lambda w: not w.startswith("--"), after)
    return found
