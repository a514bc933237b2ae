"""Reading the pickles of CIFAR's "python" layout without running what a pickle may ask for."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from creditscope.errors import CreditscopeError


def _encode_latin1(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 pickles bytes at protocol 2: `_codecs.encode(text, 'latin1')`; no other codec is needed."""
    if encoding not in ("latin1", "latin-1"):
        raise _RefusedGlobal(f"_codecs.encode to {encoding}")
    return text.encode("latin1")


# numpy moved the module between versions 1 and 2; the function is taken from an array, so both names work with both.
_RECONSTRUCT: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]
_NDARRAY = object()
"""Stands for the class in a pickle: it cannot be called, so no array of a declared size comes into being."""


def _empty_array(kind: object, shape: object, dtype: object) -> Any:
    """How every pickled array begins: empty; its content and shape come with the bytes that are really there."""
    if kind is not _NDARRAY or shape != (0,):
        raise _RefusedGlobal(f"an array of shape {shape!r} without its content")
    return _RECONSTRUCT(np.ndarray, (0,), dtype)


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode_latin1,
}


class _RefusedGlobal(Exception):
    """The pickle names something other than an array; carries the name."""


class _CifarUnpickler(pickle.Unpickler):
    """Plain containers, strings, numbers and numpy arrays; every other global is refused before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _RefusedGlobal(f"{module}.{name}")
        return _ADMITTED[module, name]


def _check_sizes(data: bytes) -> None:
    """Refuse what would take memory for something that is not there: an unpickler obeys a declared index or length at once."""
    for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
        if isinstance(argument, int) and argument > len(data) and opcode.name in _COUNTS:
            raise _RefusedGlobal(f"{opcode.name} {argument} in a file of {len(data)} bytes")


_COUNTS = ("PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "FRAME")


def load_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in `path` with its keys as str (they are bytes or str, depending on who wrote the file)."""
    try:
        data = path.read_bytes()
        _check_sizes(data)
        # latin1: the official files come from Python 2, whose str is bytes
        content = _CifarUnpickler(io.BytesIO(data), encoding="latin1").load()
    except _RefusedGlobal as refused:
        raise CreditscopeError(
            f"{path} was refused: its pickle asks for {refused}, which no CIFAR file needs; get the official archive"
        ) from None
    except Exception as error:  # a damaged pickle can raise almost anything
        reason = " ".join(str(error).split()) or "no reason given"
        raise CreditscopeError(
            f"{path} is not a readable CIFAR pickle ({type(error).__name__}: {reason}); get the official archive again"
        ) from error
    if not isinstance(content, dict):
        raise CreditscopeError(
            f"{path} holds a {type(content).__name__}, not a dictionary; get the official archive again"
        )
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}
