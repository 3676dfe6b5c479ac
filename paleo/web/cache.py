"""Keeping what was computed: the most recent, within bounds, for several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Cache(Generic[_T]):
    """The most recent things by key, as long as their weights are no more than `most` together.

    A thing that weighs more by itself is not kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._things: OrderedDict[Hashable, tuple[_T, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._things)

    @property
    def weight(self) -> int:
        """The weight of all that is kept."""
        return self._weight

    def find(self, key: Hashable) -> _T | None:
        """Return a thing, which is the most recent then; None if it is not kept."""
        with self._lock:
            found = self._things.get(key)
            if found is None:
                return None
            self._things.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, thing: _T, weight: int = 1) -> _T:
        """Keep a thing and return it; the one that is there by now if there is one."""
        with self._lock:
            found = self._things.get(key)
            if found is not None:
                return found[0]
            if weight <= self.most:
                self._things[key] = (thing, weight)
                self._weight += weight
                while self._weight > self.most:
                    _, (_, lighter) = self._things.popitem(last=False)
                    self._weight -= lighter
        return thing

    def get(
        self, key: Hashable, make: Callable[[], _T], weigh: Callable[[_T], int] = lambda _: 1
    ) -> _T:
        """Return a thing, made if it is not kept. Two threads may make the same one."""
        found = self.find(key)
        if found is None:
            made = make()
            found = self.keep(key, made, weigh(made))
        return found
