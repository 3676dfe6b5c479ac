"""Fixtures of browser tests, as a plugin of pytest.

`view` is a page on the real server. Whatever goes wrong in it (errors, warnings, violations of the
content security policy, requests that fail or go elsewhere) fails the test at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import OPTIONS, PATIENCE, View, executable, watch


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of the demo, served by a thread of its own."""
    pytest.importorskip("flask", reason="needs Flask")
    pytest.importorskip("waitress", reason="needs waitress")
    from paleo.web.server import Server

    demo = Server(port=0, prepares=False)
    thread = threading.Thread(target=demo.run, daemon=True)
    thread.start()
    yield demo.url
    demo.close()
    thread.join(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = executable()
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield found
        found.close()


@pytest.fixture
def new_view(browser: Any) -> Iterator[Callable[..., View]]:
    """Open a page in a context of its own, with options such as a viewport."""
    made: list[View] = []

    def make(url: str, **options: Any) -> View:
        settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**settings, **options})
        context.set_default_timeout(PATIENCE)
        view = View(context.new_page(), url)
        watch(view.page, view)
        made.append(view)
        return view

    yield make
    for view in made:
        view.page.context.close()
    for view in made:
        view.check()


@pytest.fixture
def view(new_view: Callable[..., View], server: str) -> View:
    """A page on the demo, not opened yet."""
    return new_view(server)
