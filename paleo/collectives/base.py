"""The contract of a collective: bytes, workers and a link become seconds.

To add one: a subclass of Collective in a file of this folder, registered by
`COLLECTIVES.add(name, instance)`, and the file imported in `paleo/collectives/__init__.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from paleo.quantity import Quantity
from paleo.registry import Registry

__all__ = ["COLLECTIVES", "Collective"]


class Collective(ABC):
    """A scheme by which workers exchange their gradients."""

    name: ClassVar[str]
    #: One line for lists and help.
    summary: ClassVar[str]
    #: Whether every worker ends with the sum over all workers.
    exact: ClassVar[bool] = True

    @abstractmethod
    def transfers(self, workers: Quantity) -> Quantity:
        """Return how many times the whole message crosses a link, one after another."""

    def seconds(self, num_bytes: Quantity, workers: Quantity, bandwidth: Quantity) -> Quantity:
        """Return the seconds to exchange `num_bytes` at `bandwidth` bytes/s."""
        return self.transfers(workers) * (num_bytes / bandwidth)


COLLECTIVES: Registry[Collective] = Registry("communication scheme")
