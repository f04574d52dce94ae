"""A headless Chromium and what its page says: console, requests, and what stands where.

Needs Debian's package ``chromium``. Knows the page by its ids; knows nothing of what is served.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

WAIT_MS, POLL_MS = 30_000, 20


def executable() -> str:
    """Where Chromium is. Raises if it isn't installed: a test that can't run says what it lacks."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise RuntimeError("no chromium: install Debian's package chromium")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    # Chromium's own sandbox needs a user namespace, which containers often don't give; the pages are our own.
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


class Sight:
    """A page that is looked at: ``said`` is what its console said, ``asked`` the hosts it wanted something of."""

    def __init__(self, browser: Browser, *, width: int = 1300, height: int = 900, scheme: Any = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.context.set_default_timeout(WAIT_MS)
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.add(urlsplit(request.url).netloc))

    def open(self, url: str) -> Sight:
        self.page.goto(url)
        self.until("document.body.dataset.frame !== undefined")
        return self

    def until(self, condition: str, argument: Any = None) -> None:
        """Wait until JavaScript says yes. (Playwright's own way would need eval, which the page forbids.)"""
        deadline = time.monotonic() + WAIT_MS / 1000
        while not self.page.evaluate(condition, argument):
            assert time.monotonic() < deadline, f"never true: {condition}"
            self.page.wait_for_timeout(POLL_MS)

    def frame(self) -> int:
        """The number of the frame that is shown."""
        return int(self.page.evaluate("document.body.dataset.frame"))

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def cells(self) -> dict[str, str]:
        """What the heatmap shows, by "device.core"."""
        return self.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('#heatmap td')].map((td) => [td.at, td.innerText]))"
        )

    def label(self, device: int, core: int) -> str:
        """How a cell is read out."""
        labels = self.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('#heatmap td')]"
            ".map((td) => [td.at, td.getAttribute('aria-label')]))"
        )
        return labels[f"{device}.{core}"]

    def cell(self, device: int, core: int) -> Any:
        return self.page.locator(f"#heatmap tbody tr:nth-child({device + 1}) td:nth-child({core + 2})")

    def rows(self) -> dict[str, list[str]]:
        """The table of processes: tag -> the texts of its row."""
        rows = self.page.evaluate(
            "[...document.querySelectorAll('#processes tbody tr')]"
            ".map((tr) => [...tr.children].map((cell) => cell.innerText))"
        )
        return {row[0]: row for row in rows}

    def totals(self) -> dict[str, str]:
        return self.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('#totals > div')]"
            ".map((div) => [div.children[0].innerText, div.children[1].innerText]))"
        )

    def close(self) -> None:
        self.context.close()
