"""A record: the arrays of one network in one file (npz or safetensors) with a JSON header, written by any framework.

Nothing in a record can run: arrays are read without pickle, sizes are compared before memory is taken, and whatever does not
fit is one line. The format is described in docs/records.md.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from creditscope.arrays import diagnose_arrays
from creditscope.errors import CreditscopeError, fitted, meant
from creditscope.files import check_size, read_metadata, read_tensors
from creditscope.protocol.report import DiagnosticReport

SCHEMA = "creditscope-arrays/1"
HEADER = "header"
MAX_BYTES = 2 * 2**30
"""Of a file, and of its arrays when they are unpacked."""
MAX_HEADER = 2**20
MAX_ARRAYS = 10_000
MAX_DIMENSIONS = 5
NPZ, SAFETENSORS = SUFFIXES = ".npz", ".safetensors"
PER_LAYER = re.compile(r"(fit_)?(h|g|a|twin)_(0|[1-9][0-9]{0,3})")
PER_SAMPLE = ("logits", "labels", "losses", "x", "fit_labels", "fit_x")
NAMES = ("h_0", "g_0", "a_0", "twin_0", "fit_h_0", "fit_twin_0", *PER_SAMPLE)
Accuracy = float | tuple[float, ...]


class Header(BaseModel):
    """What a record says about its arrays: arguments of `diagnose_arrays`, and what is claimed of the network."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="Header of a record")

    schema_: Literal["creditscope-arrays/1"] = Field(alias="schema", description="Version of the format.")
    reduction: Literal["sum", "mean"] = Field(description="Of the loss behind g_l: its sum or its mean over samples.")
    batch_size: int | None = Field(None, gt=0, description="With reduction mean: samples in that mean.")
    credit_reduction: Literal["sum", "mean"] | None = Field(None, description="The same for a_l, where it differs.")
    kind: Literal["residual", "plain"] = Field("residual", description="h_{l+1} = h_l + f_l(h_l), or f_l(h_l).")
    read: Literal["vector", "cls", "last", "mean", "flatten"] | None = Field(
        None, description="For states [N, tokens, d]: what the head reads."
    )
    loss: str = Field("cross-entropy", max_length=200)
    dtype: Literal["float16", "bfloat16", "float32", "float64"] | None = Field(
        None, description="Of the network, where it is not that of g_l."
    )
    mode: str = Field("unstated", max_length=200, description="Mode of the network: eval, train.")
    checkpoint: str = Field("final", max_length=200)
    trained_layers: tuple[int, ...] | None = Field(None, description="Layers whose credit trains something.")
    exact_layers: tuple[int, ...] = Field((), description="Layers whose credit is the reference by construction.")
    method_name: str = Field("", max_length=1000)
    notes: str = Field("", max_length=10_000)
    headline_acc: Accuracy | None = Field(
        None, description="The accuracy that would be published; a list: one per seed."
    )
    network_acc: float | None = Field(None, description="Test accuracy of this very network.")
    headline_on: Literal["same data", "other data"] = "same data"
    frozen_baseline_acc: Accuracy | dict[str, Accuracy] | None = Field(
        None, description="Accuracy of the null (random-blocks baseline), or of each: {matched: ..., bp: ...}."
    )
    bp_acc: Accuracy | None = None
    n_test: int | None = Field(None, gt=0, description="Size of the test set behind the accuracies.")


@dataclass(frozen=True)
class Record:
    """The content of a record."""

    header: Header
    batch: dict[str, Any]
    """Entries as for `diagnose_arrays`."""
    fit: dict[str, Any] | None
    """The same for the samples that the profile's readouts are fitted on."""

    def diagnose(self, **options: Any) -> DiagnosticReport:
        """The report; options as for `diagnose_arrays`, before what the header says."""
        header = self.header.model_dump(exclude={"schema_"})
        return diagnose_arrays(self.batch, **{**header, "fit_batches": self.fit, **options})


def read_record(path: str | Path) -> Record:
    """Read a record; what is damaged, foreign or too large is one line."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise CreditscopeError(f"{path} is not a record; a record is a {NPZ} or {SAFETENSORS} file")
    try:
        check_size(path, MAX_BYTES, "a record")
    except OSError as error:
        raise CreditscopeError(f"cannot read {path}: {error.strerror}") from None
    if path.suffix == NPZ:
        text, arrays = _npz(path)
    else:
        arrays = read_tensors(path, "a record")
        text = read_metadata(path).get(HEADER)
    if text is None:
        raise CreditscopeError(f"{path} has no header; add a text entry {HEADER!r} with JSON (docs/records.md)")
    header = _header(path, text)
    batch, fit = _entries(path, arrays)
    return Record(header, batch, fit)


def _header(path: Path, text: str) -> Header:
    if len(text) > MAX_HEADER:
        raise CreditscopeError(f"the header of {path} has {len(text):,} characters; it has at most {MAX_HEADER:,}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CreditscopeError(f"the header of {path} is not valid JSON ({error})") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise CreditscopeError(
            f"the header of {path} has schema {str(schema)[:80]!r}; this creditscope reads {SCHEMA!r}"
        )
    return fitted(Header, text, f"the header of {path}")


def _entries(path: Path, arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Arrays by name -> the entries of the batch and of the samples to fit."""
    parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    layers: dict[tuple[bool, str], dict[int, Any]] = {}
    for name, array in arrays.items():
        found = PER_LAYER.fullmatch(name)
        fitted = name.startswith("fit_")
        if found and not (fitted and found[2] in "ga"):
            layers.setdefault((fitted, found[2]), {})[int(found[3])] = array
        elif name in PER_SAMPLE:
            parts[fitted][name.removeprefix("fit_")] = array
        else:
            raise CreditscopeError(
                f"{path} has an array {name[:80]!r}; {meant(name[:80], NAMES)}names are {', '.join(NAMES)}, counted up from 0"
            )
    depth = max(layers.get((False, "h"), {0: None}))
    for (fitted, kind), found_layers in layers.items():
        missing = [k for k in range(depth + 1) if k not in found_layers]
        if (missing and kind != "a") or max(found_layers) > depth:
            what = f"{'fit_' if fitted else ''}{kind}"
            gap = f"{what}_{max(found_layers)}" if max(found_layers) > depth else f"no {what}_{missing[0]}"
            raise CreditscopeError(f"{path} has h_0 to h_{depth} and {gap}; give one array for each layer")
        parts[fitted][kind] = [found_layers.get(k) for k in range(depth + 1)]
    return parts[0], parts[1] or None


# ---- npz -----------------------------------------------------------------------------------------------------------

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    EOFError,
    MemoryError,
    NotImplementedError,  # an unknown compression
    OSError,
    OverflowError,
    RecursionError,
    RuntimeError,  # encrypted
    SyntaxError,
    TypeError,
    ValueError,
)
"""What the readers of the standard library and of numpy raise on a damaged file."""


def _npz(path: Path) -> tuple[str | None, dict[str, Any]]:
    text: str | None = None
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if len(members) > MAX_ARRAYS or total > MAX_BYTES:
                raise CreditscopeError(
                    f"{path} has {len(members):,} arrays of {total:,} bytes; a record has at most {MAX_ARRAYS:,} of {MAX_BYTES:,}"
                )
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in arrays or (name == HEADER and text is not None):
                    raise CreditscopeError(f"{path} has two arrays {name[:80]!r}")
                array = npy(archive.read(member))
                if name == HEADER:
                    text = _text(array)
                else:
                    arrays[name] = array
    except CreditscopeError:
        raise
    except DAMAGE as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise CreditscopeError(f"{path} cannot be read as npz ({why}); it may be truncated") from None
    return text, arrays


def npy(data: bytes) -> np.ndarray[Any, Any]:
    """One array in numpy's format. Its data must be there before memory is taken for them; objects are refused."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the npy format")
    shape, by_columns, dtype = readers[version](file)
    if dtype.kind not in "fiuU" or dtype.hasobject:
        raise ValueError(f"dtype {str(dtype)[:40]}, which holds no numbers")
    if len(shape) > MAX_DIMENSIONS or any(n < 0 for n in shape):
        raise ValueError(f"shape {str(shape)[:40]}")
    count = 1
    for n in shape:
        count *= n
    if count * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"{len(data) - file.tell():,} bytes of data for shape {str(shape)[:40]} of {dtype}")
    array = np.frombuffer(data, dtype, count, file.tell()) if count and dtype.itemsize else np.zeros(count, dtype)
    return array.reshape(shape, order="F" if by_columns else "C").astype(dtype.newbyteorder("="), copy=False)


def _text(array: np.ndarray[Any, Any]) -> str:
    """The header: a text (np.savez(..., header=json.dumps(...))), or its bytes in UTF-8."""
    if array.dtype.kind == "U" and array.size == 1:
        return str(array.reshape(())[()])
    if array.dtype == np.uint8 and array.ndim == 1:
        return array.tobytes().decode()
    raise ValueError(f"the header is {array.dtype} of shape {array.shape}, not text")
