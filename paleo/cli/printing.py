"""What reaches standard output and standard error: texts of files move no cursor and fake no line.

Commands print by these functions alone; `progress` draws its line by itself.
"""

from __future__ import annotations

import contextlib
import sys

from paleo.core.errors import printable


def say(message: str) -> None:
    """Print a message on standard error, as one line."""
    _complain(f"paleo: {printable(message)}\n")


def show(text: str | bytes) -> None:
    """Print lines on standard output; tabs stay, and so do bytes, which are a file's."""
    if isinstance(text, bytes):
        sys.stdout.buffer.write(text)
    else:
        sys.stdout.write(_visible(text))
    sys.stdout.flush()


def show_traceback() -> None:
    """Print the traceback of the error that is being handled on standard error."""
    import traceback

    _complain(_visible(traceback.format_exc()))


def _complain(text: str) -> None:
    with contextlib.suppress(OSError):  # it may be full, and the answer is still to come
        if sys.stderr is not None:  # it may be closed
            sys.stderr.write(text)


def _visible(text: str) -> str:
    lines = (line.split("\t") for line in text.split("\n"))
    return "\n".join("\t".join(map(printable, parts)) for parts in lines)
