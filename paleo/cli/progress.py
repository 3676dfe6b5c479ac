"""How far a long measurement is, in one line on the terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paleo.core.errors import printable

_WIDTH = 20
#: Puts the cursor at the begin of the line and clears it.
_CLEAR = "\r\x1b[K"


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[str], object]]:
    """Show a bar on standard error while `total` steps are done; nothing if it is no terminal.

    Gives a function to call as each step begins, with what it is. The line is gone at the end,
    also if that is an error or an interrupt.
    """
    if not sys.stderr.isatty() or total < 1:
        yield lambda text: None
        return
    begin = time.monotonic()
    begun = 0

    def advance(text: str) -> None:
        nonlocal begun
        columns = shutil.get_terminal_size().columns
        line = _line(label, min(begun, total), total, time.monotonic() - begin, text)
        sys.stderr.write(_CLEAR + line[: max(1, columns - 1)])
        sys.stderr.flush()
        begun += 1

    try:
        yield advance
    finally:
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


def _line(label: str, done: int, total: int, seconds: float, text: str) -> str:
    """Return the line when `done` of `total` steps took so many seconds."""
    full = _WIDTH * done // total
    bar = "#" * full + "." * (_WIDTH - full)
    left = ""
    if done:
        # Shown when there is something to go by.
        rest = round(seconds / done * (total - done))
        left = f", {rest // 60}:{rest % 60:02d} left"
    return f"{label} [{bar}] {done}/{total}{left}  {printable(text)}"
