"""Preparing a server: what the first answers would wait for is imported and read before they do.

That happens beside requests, in small pieces with pauses between them, since all of Python's
threads share a core.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from paleo.web.answers import KINDS, Answers
from paleo.web.predefined import net, net_names
from paleo.web.settings import Settings

__all__ = ["Preparation", "pieces"]

#: After a piece comes a pause of so many times what the piece took.
_PAUSE = 2.0
#: A small net: what its answers take is what all answers take, once.
_SMALL = "lenet5"


def pieces(answers: Answers) -> Iterator[Callable[[], object]]:
    """Yield what there is to do: what is needed soonest first.

    Of `answers` the first view of the page is asked, which then are kept there.
    """
    yield functools.partial(importlib.import_module, "numpy")
    for settings in (Settings(net=_SMALL), Settings()):
        for kind in KINDS:
            yield functools.partial(answers.text, kind, settings)
    for name in net_names():
        yield functools.partial(net, name)


class Preparation:
    """Does things one after the other in a thread, from `start` until `stop` or there are none."""

    def __init__(self, things: Iterable[Callable[[], object]]) -> None:
        self._things = things
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paleo-preparing", daemon=True)

    @property
    def is_done(self) -> bool:
        """Whether the thread was started, and has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End as soon as the piece is done that is being done, without waiting for that."""
        self._stopping.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end, but no longer than so many seconds."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        for thing in self._things:
            if self._stopping.is_set():
                return
            begun = time.perf_counter()
            with contextlib.suppress(Exception):  # whoever asks for it will be told
                thing()
            if self._stopping.wait(_PAUSE * (time.perf_counter() - begun)):
                return
