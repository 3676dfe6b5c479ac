"""How much an operation computes and moves."""

from __future__ import annotations

from paleo.core.frozen import dataclass
from paleo.core.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs, and bytes read from and written to memory. It adds, scales, and has a zero."""

    flops: Quantity = 0
    bytes_read: Quantity = 0
    bytes_written: Quantity = 0

    @property
    def num_bytes(self) -> Quantity:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    def __mul__(self, times: Quantity) -> Work:
        return Work(self.flops * times, self.bytes_read * times, self.bytes_written * times)

    __rmul__ = __mul__
