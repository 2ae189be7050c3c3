"""A browser that is logged in as the admin; the fixture `page` of tests/conftest.py opens a page in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

R = TypeVar("R")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def opened(url: str, session: str) -> Iterator[Any]:
    """A page; relative addresses are those of the server at `url`."""
    # Imported here: only those who ask for these tests have it.
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found is not None, f"no browser: install one of {', '.join(BROWSERS)}"
    cookie = {"name": "sessionid", "value": session, "url": url}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        context = browser.new_context(base_url=url)
        context.add_cookies([cookie])  # type: ignore[list-item]
        yield context.new_page()
        browser.close()


def outside_the_browser(read: Callable[[], R]) -> R:
    """In a thread of its own: the browser's driver leaves an event loop in this one, where Django refuses queries."""
    from django.db import connections

    def call() -> R:
        try:
            return read()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()
