"""When Python looks for garbage that holds itself."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Let Python look for no garbage for a while, and then as before.

    It is for what makes much that stays: to look through that again and again is a tenth of the
    time, and finds next to nothing. Behind it all counts as old, which is seldom looked through.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if was_enabled:
            gc.enable()
