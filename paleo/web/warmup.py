"""Preparing a server: what the first answers would wait for is imported and read before they do.

That happens beside requests, in small pieces with pauses between them, since all of Python's
threads share a core.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from paleo.net.graph import typical
from paleo.step.loss import with_loss
from paleo.step.memory import largest_batch
from paleo.step.passes import keep_shape
from paleo.step.settings import LOSS
from paleo.web.answers import KINDS, Answers
from paleo.web.predefined import net, net_names
from paleo.web.settings import PageSettings

#: After a piece comes a pause of so many times what the piece took.
_PAUSE = 2.0
#: A small net: what its answers take is what all answers take, once.
_SMALL = "lenet5"
#: What most ask for. Of nets in other types a little more is found when they are asked for.
_DTYPES = ("fp32", "mixed_fp16")


def pieces(answers: Answers) -> Iterator[Callable[[], object]]:
    """Yield what there is to do: what is needed soonest first.

    Of `answers` the first view of the page is asked, which then are kept there.
    """
    yield functools.partial(importlib.import_module, "numpy")
    for settings in (PageSettings(net=_SMALL), PageSettings()):
        for kind in KINDS:
            yield functools.partial(answers.text, kind, settings)
    for name in net_names():
        yield functools.partial(net, name)
    for dtype in _DTYPES:
        for name in net_names():
            yield functools.partial(_look_at, name, dtype)


def _look_at(name: str, dtype: str) -> None:
    """Find what of a net is kept as long as the net is: what no device, batch or plan changes."""
    found = net(name)
    for known in dict.fromkeys((found, with_loss(found, LOSS.default))):
        for adapt in (None, keep_shape):  # as it is, and as newer cost models see it
            typical(known, dtype, adapt)
    for capacity in (sys.maxsize, 0):  # of devices that hold some samples, and of those that do not
        largest_batch(found, capacity, dtype=dtype, loss=LOSS.default)


def collect_seldom() -> None:
    """Let Python look for garbage seldom, and never through what there is by now.

    To look through all that is kept takes as long as an answer. Of ours there is no garbage that
    holds itself: what is forgotten is freed at once.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)


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
