"""Keeps what libraries write by themselves off the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

#: The file of standard error.
_STDERR = 2


@contextlib.contextmanager
def no_stderr() -> Iterator[None]:
    """Drop what is written to standard error for a while, also by libraries in C++.

    When TensorFlow is imported, its libraries say there that they use oneDNN, and no setting keeps
    them from it.
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        kept = os.dup(_STDERR)
    except OSError:  # there is none
        yield
        return
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), _STDERR)
        yield
    finally:
        if sys.stderr is not None:
            sys.stderr.flush()  # what Python holds back is dropped too
        os.dup2(kept, _STDERR)
        os.close(kept)
