"""python -m benchmarks [--rounds N] [--json FILE] [--page FILE] [--only NAME ...]; parts that are not named keep their rows."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import (
    certificates,
    diagnose,
    epoch,
    large,
    monitoring,
    pages,
    peers,
    readouts,
    rules,
    startup,
    steps,
    studies,
)
from benchmarks.harness import Row, as_json, from_json, markdown, text

START, END = "<!-- table of make bench -->", "<!-- end of the table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"))
    parser.add_argument("--page", type=Path, help="page whose table between the two marks is written anew")
    parts: dict[str, Callable[[int], list[Row]]] = {
        "steps": steps.run,
        "rules": rules.run,
        "peers": peers.run,
        "epoch": lambda rounds: epoch.run(max(3, rounds // 5)),
        "diagnose": lambda rounds: diagnose.run(max(3, rounds // 3)),
        "large": lambda rounds: large.run(max(1, rounds // 8)),
        "monitor": lambda rounds: monitoring.run(max(3, rounds // 3)),
        "cockpit": lambda rounds: monitoring.cockpit(max(2, rounds // 5)),
        "profile": lambda rounds: readouts.run(max(2, rounds // 5)),
        "certificate": lambda rounds: certificates.run(max(2, rounds // 5)),
        "studies": lambda rounds: studies.run(max(1, rounds // 3)),
        "pages": lambda rounds: pages.run(max(3, rounds // 3)),
        "startup": lambda rounds: startup.run(max(3, rounds // 3)),
        "bf16": steps.run_bf16,
    }
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.only:
        found = parts[name](options.rounds)
        print(text(found), flush=True)
        kept = keep(options.json, name, found, list(parts), options.rounds)
        if options.page:
            before, _, rest = options.page.read_text().partition(START)
            where = f"torch {machine()['torch']}, {machine()['machine']}, {options.rounds} rounds (`--rounds`)."
            options.page.write_text(f"{before}{START}\n\n{markdown(kept)}\n\n{where}\n\n{END}{rest.partition(END)[2]}")
    missed = [row for row in kept if row.holds is False]
    print(
        f"\n{sum(row.holds is True for row in kept)} targets hold, {len(missed)} are missed; written to {options.json}"
    )


def machine() -> dict[str, str]:
    cores = f"{os.cpu_count()} cores"
    return {
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {cores}",
    }


def keep(path: Path, part: str, rows: list[Row], order: list[str], rounds: int) -> list[Row]:
    """Write the rows of this part beside those of the others that were measured here before; all rows, in order."""
    here = machine()
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == value for key, value in here.items())
    content = before.get("parts", {}) if same else {}
    content[part] = {"rounds": rounds, "rows": as_json(rows)}
    path.write_text(json.dumps({**here, "parts": content}, indent=1) + "\n")
    return [from_json(row) for name in order if name in content for row in content[name]["rows"]]


if __name__ == "__main__":
    main()
