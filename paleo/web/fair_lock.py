"""Taking turns: on one core, much at once is done no sooner, and all of it late."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Turns:
    """Lets one thread after the other compute.

    One that has waited for `patience` seconds goes on beside the one that takes so long.
    """

    def __init__(self, patience: float = 0.3) -> None:
        self.patience = patience
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for one's turn, which lasts as long as the context."""
        is_mine = self._lock.acquire(timeout=self.patience)
        try:
            yield
        finally:
            if is_mine:
                self._lock.release()
