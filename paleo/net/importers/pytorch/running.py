"""Runs code that is not ours: quietly, and with whatever it raises said in one line."""

from __future__ import annotations

import contextlib
import importlib
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from paleo.core.errors import NetSpecError, printable


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep warnings and logs away from the terminal for a while."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


#: Of longer messages of other libraries the beginning is said.
_LONGEST = 300


def first_line(error: BaseException) -> str:
    """Return an error's type and first line."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    first = first if len(first) <= _LONGEST else f"{first[:_LONGEST]}..."
    name = type(error).__name__
    return printable(f"{name}: {first}" if first else name)


def place_of(error: BaseException) -> str:
    """Return where in code that is not PyTorch's an error comes from: " (models.py, line 7)"."""
    own = {Path(__file__).parent, Path(importlib.import_module("torch").__file__ or "").parent}
    cause = error.__cause__ or error
    place = ""
    for frame in traceback.extract_tb(cause.__traceback__):
        path = Path(frame.filename)
        if path.is_file() and not own & set(path.parents):
            place = f" ({path.name}, line {frame.lineno})"
    return place


def guarded(target: str, doing: str, function: Callable[[], Any]) -> Any:
    """Return what code of the user's returns; raises NetSpecError for whatever it raises."""
    try:
        return function()
    except NetSpecError:
        raise
    except SystemExit as error:
        raise NetSpecError(f"{target}: {doing} exits: SystemExit: {error.code}") from None
    except Exception as error:
        raise NetSpecError(f"{target}: {doing} fails: {first_line(error)}") from error
