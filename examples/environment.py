"""Make the environment of an example, run the example in it: python examples/environment.py pcx

The libraries whose networks are audited need different versions of JAX, so each example has an environment of its own, in
examples/NAME/.venv. It is made once; remove the directory to make it anew. Needs nothing but Python.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))


def names_in(text: str) -> set[str]:
    """The packages that a list of requirements names."""
    found = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in text.splitlines())
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in found if name}


def make(example: Path) -> Path:
    """The example's Python; the environment is complete where its stamp is newer than what it is made from."""
    home = example / ".venv"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    requirements, pins, stamp = example / "requirements.txt", HERE.parent / "constraints.txt", home / "ready"
    sources = (requirements, pins, HERE.parent / "pyproject.toml")
    if stamp.exists() and all(stamp.stat().st_mtime > path.stat().st_mtime for path in sources):
        return python
    started = time.monotonic()
    print(f"making {home} ...", flush=True)
    venv.create(home, clear=True, with_pip=True)
    own = names_in(requirements.read_text())
    kept = [line for line in pins.read_text().splitlines() if not names_in(line) & own]
    (home / "constraints.txt").write_text("\n".join(kept) + "\n")
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    command += ["-c", home / "constraints.txt", "-r", requirements, HERE.parent]
    subprocess.run([str(part) for part in command], check=True)
    stamp.touch()
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"made in {time.monotonic() - started:.0f} s, {size / 2**20:,.0f} MiB", flush=True)
    return python


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in NAMES:
        print(f"usage: python examples/environment.py {'|'.join(NAMES)}", file=sys.stderr)
        return 2
    example = HERE / arguments[0]
    try:
        python = make(example)
    except subprocess.CalledProcessError as error:
        print(f"creditscope: pip failed with code {error.returncode} (see above)", file=sys.stderr)
        return 1
    started = time.monotonic()
    code = subprocess.run([str(python), str(example / "run.py")], check=False, cwd=example).returncode
    print(f"example: {time.monotonic() - started:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
