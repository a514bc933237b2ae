"""python -m benchmarks [--rounds N] [--json FILE] [--only NAME ...]"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import diagnose, epoch, peers, startup, steps, studies
from benchmarks.harness import Row, as_json, markdown, text

START, END = "<!-- table of make bench -->", "<!-- end of the table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, default=Path("benchmarks.json"))
    parser.add_argument("--page", type=Path, help="page whose table between the two marks is written anew")
    parts: dict[str, Callable[[int], list[Row]]] = {
        "steps": steps.run,
        "peers": peers.run,
        "epoch": lambda rounds: epoch.run(max(2, rounds // 5)),
        "diagnose": lambda rounds: diagnose.run(max(3, rounds // 3)),
        "studies": lambda rounds: studies.run(max(1, rounds // 3)),
        "startup": lambda rounds: startup.run(max(3, rounds // 3)),
        "bf16": steps.run_bf16,
    }
    parser.add_argument("--only", nargs="*", choices=list(parts), default=list(parts))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name in options.only:
        found = parts[name](options.rounds)
        print(text(found), flush=True)
        rows += found
    missed = [row for row in rows if row.holds is False]
    print(f"\n{sum(row.holds is True for row in rows)} targets hold, {len(missed)} are missed")
    content = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "rounds": options.rounds,
        "rows": as_json(rows),
    }
    options.json.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {options.json}")
    if options.page:
        before, _, rest = options.page.read_text().partition(START)
        options.page.write_text(f"{before}{START}\n\n{markdown(rows)}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
