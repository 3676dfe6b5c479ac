"""A page in a browser, and what tests look for in it. The fixtures are in browser_fixtures.py."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
#: Milliseconds that anything may take: a page is late where much else runs, not wrong.
PATIENCE = 120_000

#: A small net as a net file.
NET: dict[str, Any] = {
    "name": "small",
    "layers": {
        "data": {"type": "Input", "parents": [], "tensor": [4, 8, 8, 3]},
        "conv": {
            "type": "Convolution",
            "parents": ["data"],
            "filter": [3, 3, 3, 5],
            "strides": [1, 1, 1, 1],
            "padding": "SAME",
        },
        "flat": {"type": "Flatten", "parents": ["conv"]},
        "out": {"type": "InnerProduct", "parents": ["flat"], "num_outputs": 10},
    },
}


def executable() -> str:
    """Return the path of a Chromium; skips the test if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("PALEO_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium: install one, or say in PALEO_CHROMIUM where it is")
    return found


@dataclass
class View:
    """A page, the address of its server, and what went wrong in it."""

    page: Any
    url: str
    faults: list[str] = field(default_factory=list)
    #: Whether the server is to refuse something, which browsers write on their console.
    refused: bool = False

    def open(self, query: str = "", fragment: str = "") -> View:
        """Open the page at these settings, and wait until it shows them."""
        self.page.goto(f"{self.url}{'?' * bool(query)}{query}{fragment}")
        return self

    def shows(self, *parts: str, file: str = "") -> None:
        """Wait until the page shows answers to exactly these settings, such as "net=nin"."""
        # Asked from here: a page asks itself whenever it draws, and it may have nothing to draw.
        wanted = [*sorted(parts), file]
        found: list[str] = []
        end = time.monotonic() + PATIENCE / 1000
        while found != wanted:
            assert time.monotonic() < end, f"{self.page.url} shows {found}, not {wanted}"
            self.page.wait_for_timeout(20)
            shown = self.page.evaluate("document.getElementById('results')?.dataset.shows")
            if shown is not None:
                query, _, own = shown.partition("#")
                found = [*sorted(filter(None, query.split("&"))), own]

    def query(self) -> str:
        """Return the query of the address."""
        found = urlsplit(self.page.url).query
        assert isinstance(found, str)
        return found

    def headlines(self) -> list[list[str]]:
        """Return the figures at the top: label and value of each."""
        found = self.page.eval_on_selector_all(
            "#headlines > div",
            "all => all.map(e => [...e.children].slice(0, 2).map(c => c.textContent))",
        )
        assert isinstance(found, list)
        return found

    def cells(self, table: str) -> list[list[str]]:
        """Return the texts of a table's rows."""
        found = self.page.eval_on_selector_all(
            f"#{table} tbody tr:not(.block)",
            "all => all.map(e => [...e.children].map(c => c.textContent))",
        )
        assert isinstance(found, list)
        return found

    def text(self, selector: str) -> str:
        """Return the text of an element that is shown."""
        found = self.page.locator(selector)
        found.wait_for(timeout=PATIENCE)
        return str(found.inner_text())

    def upload(self, name: str, data: bytes) -> None:
        """Choose a file for the upload."""
        file = {"name": name, "mimeType": "application/octet-stream", "buffer": data}
        self.page.set_input_files("#file", files=[file])

    def download(self, selector: str) -> tuple[str, bytes]:
        """Return name and content of the file that a button hands out."""
        with self.page.expect_download(timeout=PATIENCE) as found:
            self.page.click(selector)
        with open(found.value.path(), "rb") as file:
            return found.value.suggested_filename, file.read()

    def check(self) -> None:
        """Fail if anything went wrong."""
        refusals = "status of 400" if self.refused else "nothing"
        found = [fault for fault in self.faults if refusals not in fault]
        assert found == [], "\n".join(found)


def watch(page: Any, view: View) -> None:
    """Note what goes wrong in a page."""
    own = urlsplit(view.url)

    def request(found: Any) -> None:
        there = urlsplit(found.url)
        if (there.scheme, there.netloc) != (own.scheme, own.netloc) and there.scheme != "blob":
            view.faults.append(f"request to {found.url}")

    def console(message: Any) -> None:
        if message.type in ("error", "warning"):
            view.faults.append(f"console: {message.text}")

    def failed(found: Any) -> None:
        if "ERR_ABORTED" not in str(found.failure):  # what is no longer wanted is given up
            view.faults.append(f"failed: {found.url}: {found.failure}")

    page.on("request", request)
    page.on("requestfailed", failed)
    page.on("console", console)
    page.on("pageerror", lambda error: view.faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: view.faults.append(f"dialog: {dialog.message}"))


def net_file(**changes: Any) -> bytes:
    """Return the small net as a net file."""
    return json.dumps({**NET, **changes}).encode()


def violations(page: Any) -> list[str]:
    """Return what axe-core finds wrong in a page."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python"
    )
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]}"
        for each in found
        for node in each["nodes"]
    ]


def violations_in_both(page: Any) -> list[str]:
    """Return what axe-core finds wrong in a page in light colours and in dark ones."""
    found: list[str] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {each}" for each in violations(page)]
    return found
