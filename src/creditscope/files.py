"""Files that are whole or absent: atomic writes, checksums, tensors without pickle, JSON with limits."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError

MAX_JSON = 64 * 2**20
MAX_TENSORS = 16 * 2**30


def write_atomic(path: Path, data: bytes) -> None:
    """Write beside the target, flush to disk, then rename: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        # a link is not followed: it would lead the bytes elsewhere
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CreditscopeError(f"cannot write {path}: {error.strerror or error}") from error


def sha256_file(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def dump_json(value: Any) -> bytes:
    """Deterministic, readable JSON; non-finite numbers must already be strings."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def dump_line(value: dict[str, Any]) -> bytes:
    """One line of JSON; NaN and infinities become the strings "NaN", "Infinity", "-Infinity"."""
    return (json.dumps(plain(value), allow_nan=False) + "\n").encode()


def plain(value: Any) -> Any:
    """Non-finite floats as strings (JSON has none), at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def read_json(path: Path, what: str) -> Any:
    """JSON of limited size; every fault is one line that names the file."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON:
            raise CreditscopeError(f"{path} has {size:,} bytes; a {what} has at most {MAX_JSON:,}")
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CreditscopeError(f"{path} is missing; {what} expected there") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CreditscopeError(f"cannot read {path}: {error}") from None
    except CreditscopeError:
        raise
    except (ValueError, RecursionError) as error:
        raise CreditscopeError(
            f"{path} is not valid JSON ({error}); it may be truncated: train or export it again"
        ) from None


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> None:
    import safetensors.torch

    contiguous = {name: t.detach().contiguous() for name, t in tensors.items()}
    write_atomic(path, safetensors.torch.save(contiguous, metadata))


def read_tensors(path: Path, what: str) -> dict[str, Any]:
    """Tensors of a safetensors file (data only: nothing in it can run)."""
    import safetensors
    import safetensors.torch

    try:
        size = path.stat().st_size
        if size > MAX_TENSORS:
            raise CreditscopeError(f"{path} has {size:,} bytes; {what} has at most {MAX_TENSORS:,}")
        loaded: dict[str, Any] = safetensors.torch.load_file(path)
        return loaded
    except FileNotFoundError:
        raise CreditscopeError(f"{path} is missing; {what} expected there") from None
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        if isinstance(error, CreditscopeError):
            raise
        raise CreditscopeError(f"{path} cannot be read as safetensors ({error}); it may be truncated") from None


def read_metadata(path: Path) -> dict[str, str]:
    import safetensors

    with safetensors.safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})
