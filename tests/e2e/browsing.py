"""What the tests of pages in a real browser share; their fixtures are in conftest.py."""

from __future__ import annotations

import shutil
import warnings
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"]  # fmt: skip
if CHROMIUM is None:
    warnings.warn("############ no chromium found: the browser tests are SKIPPED ############", stacklevel=1)

MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM FOUND: the page was not tested in a browser"),
]


def violations(page: Any) -> list[Any]:
    """What axe finds wrong with the page for who cannot see it well."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found]
