"""A board of many entries: python tests/trust/board_size.py 1000 OUT writes them, builds their page, says how long it took.

The entries are those of board/entries under other names, with other claimed accuracies, sealed anew; each is read and checked.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from creditscope.board.claim import FILE, sealed, write_claim
from creditscope.board.entry import read_entries
from creditscope.render.html.board import write_board

ENTRIES = Path(__file__).parents[2] / "board" / "entries"


def write_entries(n: int, out: Path) -> None:
    good = sorted(ENTRIES.iterdir())
    for k in range(n):
        source = good[k % len(good)]
        directory = out / f"{source.name[:60].strip('-')}-{k}"
        shutil.copytree(source, directory)
        content = json.loads((source / FILE).read_bytes())
        content["name"], content["method"] = directory.name, f"{content['method']} {k}"
        content["claimed"]["accuracy"] = ((content["claimed"]["accuracy"] or 0.3) + 0.0137 * k) % 1
        for evidence in (e for stated in content["evaluations"] for e in stated["reports"]):
            data = (source / evidence["file"]).read_bytes() + b" " * k  # one report serves one entry
            (directory / evidence["file"]).write_bytes(data)
            evidence["sha256"] = hashlib.sha256(data).hexdigest()
        write_claim(sealed(content, str(directory)), directory)


def build(entries: Path, site: Path) -> tuple[int, int, float, float]:
    """(entries, bytes of the page, seconds, seconds of CPU) of reading, checking and writing."""
    start, cpu = time.perf_counter(), time.process_time()
    held, refused = read_entries([entries])
    size = write_board(held, [(p.name, why) for p, why in refused], site, "creditscope board")
    assert not refused, refused[0]
    return len(held), size, time.perf_counter() - start, time.process_time() - cpu


if __name__ == "__main__":
    count, where = int(sys.argv[1]), Path(sys.argv[2])
    write_entries(count, where / "entries")
    n, size, seconds, cpu = build(where / "entries", where / "site")
    print(f"{n} entries: {size:,} bytes, {seconds:.1f} s ({cpu:.1f} s of CPU)")
