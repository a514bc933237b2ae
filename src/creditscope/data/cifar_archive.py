"""Getting CIFAR's official archive and unpacking it: checksum, expected members only, nothing half-written."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from creditscope.errors import CreditscopeError

MAX_ARCHIVE_BYTES = 300_000_000  # the official ones have 161 to 170 MB
MAX_MEMBERS = 100  # the official ones have under 10
MAX_PICKLE_OVERHEAD = 1_000_000
CHUNK = 1 << 20
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Layout:
    """One official way to lay out the files: directory, archive, and the (smallest, largest) size of each in bytes."""

    directory: str
    archive: str
    sizes: Mapping[str, tuple[int, int]]


def download(url: str, md5: str, layout: Layout, root: Path) -> None:
    """Put the archive into `root`, under its final name only if it arrived whole."""
    absent = "" if root.exists() else ", which does not exist (--data-dir names another directory)"
    advice = f"download it elsewhere and put {layout.archive} (or the unpacked {layout.directory}/) into {root}{absent}"
    made: list[Path] = []
    try:
        made = [p for p in (root, *root.parents) if not p.exists()]
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as temporary:
            part = Path(temporary) / layout.archive
            found = _fetch(url, part)
            if found != md5:
                raise CreditscopeError(f"{url} arrived with MD5 {found} instead of {md5}; try again, or {advice}")
            os.replace(part, root / layout.archive)
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CreditscopeError(f"cannot download {url} to {root} ({_one_line(reason)}); {advice}") from error
    finally:
        for directory in made:  # a mistyped path leaves nothing behind
            with contextlib.suppress(OSError):
                directory.rmdir()


def _fetch(url: str, path: Path) -> str:
    """Stream `url` into `path` with a progress bar on stderr; returns the MD5 of what came."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    digest, received = hashlib.md5(usedforsecurity=False), 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with (
        urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,
        path.open("wb") as file,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        length = response.headers.get("Content-Length", "")
        task = progress.add_task(path.name, total=int(length) if length.isdigit() else None)
        while chunk := response.read(CHUNK):
            received += len(chunk)
            if received > MAX_ARCHIVE_BYTES:
                raise CreditscopeError(f"{url} sent over {MAX_ARCHIVE_BYTES} bytes, too many for CIFAR; try later")
            digest.update(chunk)
            file.write(chunk)
            progress.update(task, completed=received)
    return digest.hexdigest()


def extract(layout: Layout, root: Path) -> Path:
    """Unpack the layout's files from its archive in `root`; their directory, returned, appears whole or not at all."""
    archive, target = root / layout.archive, root / layout.directory
    try:
        with tempfile.TemporaryDirectory(dir=root, prefix=".extract-") as temporary:
            whole = Path(temporary) / layout.directory
            whole.mkdir()
            _copy_members(layout, archive, whole)
            try:
                os.replace(whole, target)
            except OSError:
                # another process was faster: its files are as good as ours
                if not all((target / name).is_file() for name in layout.sizes):
                    raise
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CreditscopeError(
            f"{archive} is damaged ({_one_line(error)}); delete it, and it is downloaded again"
        ) from error
    except OSError as error:
        raise CreditscopeError(
            f"cannot unpack {archive} ({_one_line(error)}); unpack it by hand and name the directory that holds "
            f"{layout.directory}/"
        ) from error
    return target


def _copy_members(layout: Layout, archive: Path, destination: Path) -> None:
    """Copy the expected members by name; nothing in the archive chooses where a byte is written."""
    wanted = {f"{layout.directory}/{name}": name for name in layout.sizes}
    largest_of_all = max(largest for _, largest in layout.sizes.values())
    advice = "it is not the official archive; delete it, and that one is downloaded"
    with tarfile.open(archive, "r:gz") as tar:
        for count, member in enumerate(tar):
            if count >= MAX_MEMBERS or member.size > largest_of_all:
                raise CreditscopeError(f"{archive} has too many or too large members at {member.name!r}: {advice}")
            name = wanted.pop(member.name.removeprefix("./"), None)
            if name is None:
                continue
            smallest, largest = layout.sizes[name]
            if not member.isreg() or not smallest <= member.size <= largest:
                raise CreditscopeError(
                    f"{archive}: {member.name!r} is not a file of {smallest} bytes or more: {advice}"
                )
            source = tar.extractfile(member)
            assert source is not None  # a regular member always has content
            with source, (destination / name).open("wb") as file:
                shutil.copyfileobj(source, file, CHUNK)
            if not wanted:
                return
    raise CreditscopeError(f"{archive} lacks {', '.join(sorted(wanted))}: {advice}")


def _one_line(reason: object) -> str:
    return " ".join(str(reason).split()) or type(reason).__name__
