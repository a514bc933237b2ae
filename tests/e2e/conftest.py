"""A real browser with the network blocked, and the page of a test module (its fixture `page_file`) opened in it."""

from __future__ import annotations

from typing import Any

import pytest

from .browsing import CHROMIUM, FLAGS


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser, page_file):
    """Opens the page; at the end no request and no complaint may have been seen."""
    contexts, requests, complaints = [], [], []

    def open_page(width: int = 1200, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, accept_downloads=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [url for url in requests if not url.startswith(("blob:", "data:", page_file.as_uri()))] == []
    assert complaints == []
