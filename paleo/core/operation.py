"""The contract of an operation: one thing that a device is asked to do in one pass of one layer."""

from __future__ import annotations

from abc import ABC, abstractmethod

from paleo.core.kinds import READ, WRITTEN, Kind, Operand, Pass, Role
from paleo.core.quantity import Quantity
from paleo.core.work import Work


class Operation(ABC):
    """One thing that a device is asked to do in one pass of one layer.

    Cost models go by its kind, its pass, the roles of its operands and its sizes. Its name is for
    output alone.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """What it is."""

    @property
    def name(self) -> str:
        """What it is called in output."""
        return self.kind.value

    @property
    @abstractmethod
    def direction(self) -> Pass:
        """What it computes: what a pass gives, or an update."""

    @property
    def dtype(self) -> str:
        """The element type that it is computed in, "" for that of the net."""
        return ""

    @property
    def layer_pass(self) -> Pass:
        """The pass of its layer in which it is done."""
        return self.direction

    @property
    @abstractmethod
    def flops(self) -> Quantity:
        """FLOPs by the module's convention."""

    @property
    @abstractmethod
    def reads(self) -> tuple[Quantity, ...]:
        """Bytes of each operand read."""

    @property
    @abstractmethod
    def writes(self) -> tuple[Quantity, ...]:
        """Bytes of each result written."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The role of each operand read, where that is not what is usual in its pass."""
        return ()

    @property
    def read_roles(self) -> tuple[Role, ...]:
        """The role of each operand read."""
        first, other = READ[self.layer_pass]
        return self.roles or (first, *[other] * len(self.reads))[: len(self.reads)]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands, those read first."""
        written = WRITTEN[self.layer_pass]
        read = map(Operand, self.read_roles, self.reads)
        return (*read, *(Operand(written, size) for size in self.writes))

    @property
    def magnitude(self) -> Quantity:
        """The largest count that any cost model makes of it, to tell the absurd."""
        return max((self.flops, *self.reads, *self.writes))

    @property
    def work(self) -> Work:
        """FLOPs and bytes in one value."""
        return Work(self.flops, sum(self.reads), sum(self.writes))
