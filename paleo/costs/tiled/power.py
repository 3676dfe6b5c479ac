"""How far the power that a board may take slows its kernels down."""

from __future__ import annotations

from paleo.core.quantity import Quantity, maximum, minimum
from paleo.costs.tiled.machine import Machine

#: Kernels shorter than the first number of seconds may take `BURST` times the power that the
#: board can take without end; longer than the second, none. (Operator tables time each kernel 54
#: times in a row, so that these are 27 and 81 ms of load.) In a step of training kernels follow
#: one another without end, and none may: an H100 does products of 0.5 to 2.8 ms at 785 TFLOP/s in
#: the first 50 ms of load, and from 0.1 s on, in 693 of its 700 W, at 670 to 720, short ones too
#: (8192 x 8192 x 8192, 4096 x 8192 x 28672 and x 5120 in bf16, normal numbers, PyTorch 2.11).
_BURST_UNTIL, _BURST_GONE = 0.5e-3, 1.5e-3
BURST = 1.2


def slowed_by_power(
    flops: Quantity, seconds: Quantity, machine: Machine, num_bytes: Quantity = 0.0
) -> Quantity:
    """Return how many times longer a kernel takes that the power limit slows down.

    `num_bytes` are those that leave or enter the chip.
    """
    over = (seconds - _BURST_UNTIL) / (_BURST_GONE - _BURST_UNTIL)
    long = 1.0 if machine.continuous else minimum(maximum(over, 0.0), 1.0)
    needed = flops / machine.powered_rate + num_bytes / machine.powered_bandwidth
    return 1.0 + long * maximum(needed / seconds - 1.0, 0.0)
