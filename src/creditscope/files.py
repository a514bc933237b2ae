"""Files that are whole or absent: atomic writes, claims, locks, checksums, tensors without pickle, JSON with limits."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from creditscope.errors import CreditscopeError

MAX_JSON = 64 * 2**20
MAX_TENSORS = 16 * 2**30


def write_atomic(path: Path, data: bytes) -> None:
    """Write beside the target, flush to disk, then rename: a reader sees the old file or the new one."""
    _written(path, data, os.replace)


def write_new(path: Path, data: bytes) -> None:
    """write_atomic for a file that must not be there yet: of several writers one succeeds, and nothing is written over."""
    _written(path, data, _renamed_to_new)


def _written(path: Path, data: bytes, rename: Callable[[Path, Path], None]) -> None:
    temporary = path.with_name(f"{temporary_prefix(path.name)}{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        # a link is not followed: it would lead the bytes elsewhere
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        rename(temporary, path)
    except FileExistsError as error:
        _discard(temporary)
        raise CreditscopeError(f"{path} exists already; give another path, or remove the file") from error
    except OSError as error:
        _discard(temporary)
        raise CreditscopeError(f"cannot write {path}: {error.strerror or error}") from error


def _renamed_to_new(temporary: Path, path: Path) -> None:
    if os.name == "nt":
        os.rename(temporary, path)  # refuses a name that exists; elsewhere it would replace the file
    else:
        os.link(temporary, path)
        os.unlink(temporary)


def _discard(temporary: Path) -> None:
    with contextlib.suppress(OSError):  # the fault of the write itself is the one to tell
        temporary.unlink(missing_ok=True)


def temporary_prefix(name: str) -> str:
    """How the temporary files of a file begin; they end in `.tmp`. A process that is killed while it writes leaves one."""
    return f".{name}."


def claim_directory(root: Path, marker: str, content: bytes, what: str, own: Collection[str] = ()) -> None:
    """Make `root` a directory of ours: the file `marker` in it says so.

    Any number of processes may do this at once, and one that is killed leaves nothing that stops the next: every step can
    be repeated, and what an unfinished claim leaves (`own`, temporary files of the marker) is known for ours. Anything else
    in a directory without a marker is somebody's, and the directory is refused.
    """
    path = root / marker
    if path.exists():
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        foreign = [n for n in os.listdir(root) if n not in own and not n.startswith(temporary_prefix(marker))]
        if path.exists():  # looked for last: who finds files of a finished claim above finds the marker here
            return
    except OSError as error:
        raise CreditscopeError(
            f"cannot create {what} {root}: {error.strerror or error}; choose another directory"
        ) from None
    if foreign:
        raise CreditscopeError(f"{root} is not empty and not {what} (it holds {foreign[0]}); choose another directory")
    write_atomic(path, content)


def make_directory(path: Path, fault: str, advice: str = "", parents: bool = True) -> None:
    """Make it where it is not there; `fault` begins and `advice` ends the line that says why it cannot be made."""
    try:
        path.mkdir(parents=parents, exist_ok=True)
    except OSError as error:
        raise CreditscopeError(f"{fault}: {error.strerror or error}{advice}") from None


@contextmanager
def locked(path: Path, busy: CreditscopeError, wait: float = 0.2) -> Iterator[None]:
    """Hold the lock file `path`; the lock ends with its process, however that ends, and the file goes with the lock.

    busy: what is raised where another process holds it. wait: seconds to wait for that process first (one that only
    looks, by `is_locked`, holds it for a moment).
    """
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=wait, poll_interval=min(0.02, wait) or 0.02)
    except Timeout:
        _creatable(path)
        raise busy from None
    except OSError as error:
        raise CreditscopeError(f"cannot create {path}: {error.strerror or error}; choose another directory") from None
    try:
        yield
    finally:
        _release(lock, path)


def _creatable(path: Path) -> None:
    """Refuse a directory that takes no file: filelock tries again and again there, and times out as where it is held."""
    if not os.path.lexists(path):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT))
        except OSError as error:
            raise CreditscopeError(f"cannot create {path}: {error.strerror}; choose another directory") from None


def is_locked(path: Path) -> bool:
    """True while a process holds the lock file `path`; a file that a dead process left is removed."""
    if not path.exists():
        return False
    lock = FileLock(path, thread_local=False)
    for _ in range(2):  # where the system has no locks of its own, the first try removes what a dead process left
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        except OSError:  # may not be written by us: it is there, and who holds it cannot be asked
            return True
        _release(lock, path)
        return False
    return True


def _release(lock: FileLock, path: Path) -> None:
    if os.name != "nt":  # there it removes the file itself; a lock on a file that is gone is never taken for one
        _discard(path)
    lock.release()


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


def check_size(path: Path, most: int, what: str) -> None:
    """Refuse a file of more than `most` bytes before it is read."""
    size = path.stat().st_size
    if size > most:
        raise CreditscopeError(f"{path} has {size:,} bytes; {what} has at most {most:,}")


def read_json(path: Path, what: str, most: int | None = None) -> Any:
    """JSON of limited size; every fault is one line that names the file."""
    content = b""
    try:
        check_size(path, MAX_JSON if most is None else most, what)
        content = path.read_bytes()
        return json.loads(content)
    except FileNotFoundError:
        raise CreditscopeError(f"{path} is missing; expected {what}") from None
    except OSError as error:
        raise CreditscopeError(f"cannot read {path}: {error}") from None
    except CreditscopeError:
        raise
    except (ValueError, RecursionError) as error:
        begun = not content.strip() or content.lstrip()[:1] in (b"{", b"[")
        do = "it may be truncated: train or export it again" if begun else f"it is not {what}: give a JSON file"
        raise CreditscopeError(f"{path} is not valid JSON ({error}); {do}") from None


def check_schema(version: Any, newest: int, where: object, whose: str) -> None:
    """Refuse a file without a schema version, or of one that is not known yet; `whose`: "X has", "X is a store of"."""
    if not isinstance(version, int) or version < 1:
        raise CreditscopeError(f"{where} has schema_version {version!r}; a whole number from 1 is expected")
    if version > newest:
        raise CreditscopeError(
            f"{whose} schema version {version} and this creditscope reads up to {newest}; upgrade creditscope"
        )


def write_tensors(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> None:
    import safetensors.torch

    contiguous = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    write_atomic(path, safetensors.torch.save(contiguous, metadata))


def read_tensors(path: Path, what: str) -> dict[str, Any]:
    """Tensors of a safetensors file (data only: nothing in it can run)."""
    import safetensors
    import safetensors.torch

    try:
        check_size(path, MAX_TENSORS, what)
        loaded: dict[str, Any] = safetensors.torch.load_file(path)
        return loaded
    except FileNotFoundError:
        raise CreditscopeError(f"{path} is missing; expected {what}") from None
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        if isinstance(error, CreditscopeError):
            raise
        raise CreditscopeError(f"{path} cannot be read as safetensors ({error}); it may be truncated") from None


def read_metadata(path: Path) -> dict[str, str]:
    import safetensors

    with safetensors.safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


def own_source(*place: str) -> ast.Module:
    """A module of the library as a syntax tree: what it says of itself, without importing it."""
    return ast.parse(Path(__file__).parent.joinpath(*place).with_suffix(".py").read_text("utf-8"))
