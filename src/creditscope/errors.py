"""The one error that a user's mistake raises, everywhere in the package, and what was probably meant."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

Model = TypeVar("Model", bound="BaseModel")
SHORT = reprlib.Repr()
"""Of a value that somebody else wrote: aliases in YAML make a small file an object without end."""
SHORT.maxlevel, SHORT.maxlist, SHORT.maxdict, SHORT.maxstring, SHORT.maxother, SHORT.maxlong = 2, 4, 4, 80, 80, 80


class CreditscopeError(ValueError):
    """A user's mistake, or a file that cannot be used: one line that says what, with which value, and what to do.

    The command line prints the line and exits with code 2; no traceback is shown.
    """


def with_article(value: object) -> str:
    """The type of a value with its article: "an OrderedDict"."""
    name = type(value).__name__
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """ "method 'dfaa' is unknown; did you mean 'dfa'? choose one of ...": the sentence for a name that is not known."""
    known = list(known)
    return f"{what} {name!r} is unknown; {meant(str(name), known)}choose one of {', '.join(known)}"


def meant(name: str, known: Iterable[str]) -> str:
    """ "did you mean 'dfa'? ", or nothing where no known name is near."""
    import difflib  # only where something went wrong

    near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""


WANTED = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping of names to values",
    "finite": "a finite number",
    "missing": "a value",
}
"""What a setting must be, by pydantic's name of the complaint, or by how that name begins."""


def complaint(item: Mapping[str, Any]) -> str:
    """One complaint of pydantic in plain words, with the value that was given: "must be 1 or more (got 0)"."""
    kind = str(item["type"])
    wanted = WANTED.get(kind) or next((w for k, w in WANTED.items() if kind.startswith(f"{k}_")), None)
    if wanted is None:
        return str(item["msg"]).removeprefix("Value error, ")
    limits = {k: f"{v:g}" if isinstance(v, float) else v for k, v in item.get("ctx", {}).items()}
    return f"must be {wanted.format(**limits)} (got {SHORT.repr(item['input'])})"


def misfit(item: Mapping[str, Any], known: Iterable[str]) -> str:
    """A complaint about a file that somebody else wrote, with its place: "n_test: must be more than 0 (got 0)"."""
    where = ".".join(map(str, item["loc"]))[:80]
    if item["type"] == "extra_forbidden":
        why = f"no such entry; {meant(where, known)}".rstrip("; ")
    else:
        why = " ".join(complaint(item).split())[:200]
    return f"{ascii(where)[1:-1]}: {why}"


def fitted(kind: type[Model], content: object, what: str) -> Model:
    """JSON that somebody else wrote (text, or what it holds) as a model; what does not fit is a line that begins with `what`."""
    from pydantic import ValidationError  # the list of commands is printed without it

    try:
        return kind.model_validate_json(content if isinstance(content, str) else json.dumps(content))
    except RecursionError:
        raise CreditscopeError(f"{what} is nested too deeply") from None
    except ValidationError as error:
        raise CreditscopeError(f"{what} does not fit: {misfit(error.errors()[0], kind.model_fields)}") from None
