"""What a reader waits for: the report of 24 and of 200 networks in a browser, and the page of a board of 1,000 entries.

The networks are runs of results/, with their trajectories. A page is opened from its file, offline, in a headless chromium.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.trust.board_size import build, write_entries

from benchmarks.harness import Row
from creditscope.render.html import html_page, networks
from creditscope.runs.archive import Archive
from creditscope.runs.groups import audit

RESULTS = Path(__file__).parents[1] / "results"
KILOBYTES, SECONDS, BOARD_SECONDS, ENTRIES = 400, 1.0, 30, 1000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PAINTED = "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime / 1000)[0]"


def run(rounds: int) -> list[Row]:
    """Kilobytes and seconds, not ratios: these targets are what a person notices."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        files = {n: write_report(n, Path(directory)) for n in (24, 200)}
        size = files[24].stat().st_size / 1000
        rows.append(Row("Pages (kilobytes)", "report of 24 networks", "its file", size, size, KILOBYTES))
        if found := next(filter(None, map(shutil.which, BROWSERS)), None):
            for n, file in files.items():
                for what, seconds in zip(("first paint", "loaded"), opened(found, file, rounds), strict=True):
                    best, median = min(seconds), statistics.median(seconds)
                    name = f"report of {n} networks, {what}"
                    rows.append(Row("Pages (seconds)", name, "in all", best, median, SECONDS))
        else:
            print("pages: no chromium here, so that first paint and loading are not measured")
        write_entries(ENTRIES, Path(directory) / "entries")
        _, _, wall, processor = build(Path(directory) / "entries", Path(directory) / "site")
        name = f"board of {ENTRIES:,} entries, checked and built"
        rows.append(
            Row("Pages (seconds)", name, "processor time", processor, processor, BOARD_SECONDS, note=f"wall {wall:.0f}")
        )
    return rows


def write_report(n: int, directory: Path) -> Path:
    """The page of n networks of results/, nulls last, as `creditscope report` writes it."""
    runs = sorted(Archive(RESULTS).runs(), key=lambda found: (found.spec.frozen, found.spec.hash))[:n]
    groups = audit(runs)
    path = directory / f"{n}.html"
    path.write_text(html_page(groups, networks(groups, runs)), encoding="utf-8")
    return path


def opened(browser: str, file: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from the request to the first paint, and to the end of loading; each time in a new context."""
    from playwright.sync_api import sync_playwright

    painted, loaded = [], []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(rounds + 1):
            context = running.new_context(offline=True)
            page = context.new_page()
            start = time.perf_counter()
            page.goto(file.as_uri())
            loaded.append(time.perf_counter() - start)
            painted.append(first_paint(page))
            context.close()
        running.close()
    return painted[1:], loaded[1:]  # the first one warmed the browser


def first_paint(page: Any) -> float:
    while (seconds := page.evaluate(PAINTED)) is None:
        time.sleep(0.01)
    return float(seconds)
