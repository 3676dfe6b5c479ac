"""Memory that all-reduces hold while a host runs ahead, and what getting it anew takes.

PyTorch's `all_reduce` runs on a stream of its own, and its allocator gives the memory of a tensor
that another stream uses to nobody until the host has seen that stream done with it (recordStream).
Where a host hands over kernels long before they run, as in steps of long prompts, so each tensor
that was reduced has memory of its own to the step's end. Once what the server leaves free is taken,
the allocator waits, gives all back to the driver and asks for it again: again and again
(pytorch/pytorch, pull request 76861; vllm-project/vllm, issue 2248). Since version 0.2.6 vLLM sets
TORCH_NCCL_AVOID_RECORD_STREAMS, which ends it (vllm/worker/worker.py, `init_model`).
"""

from __future__ import annotations

from paleo.cluster.collectives import Operation
from paleo.core.quantity import Quantity, maximum
from paleo.core.units import MIB
from paleo.step.serving.prices import StepPrices

#: Bytes of a page of memory.
PAGE = 2 * MIB
#: Seconds in which a driver takes back a byte and gives it again: 126 us for a page. (Prabhu et
#: al., vAttention, arXiv:2405.04437, of the calls for one: create 29, map 2, set access 38, unmap
#: 34, release 23; 20 of Splitwise's rows of prompts give 124, by benchmarks/served.py --fit.)
RENEWED = 126e-6 / PAGE


def held_bytes(prices: StepPrices, tokens: Quantity) -> Quantity:
    """Return the bytes of all tensors that a step of so many tokens reduces, on a device."""
    found: Quantity = 0.0
    for message, count in prices.program.messages:
        if message.operation == Operation.ALL_REDUCE.value:
            found = found + count * message.num_bytes * tokens
    return found / prices.degrees.pp


def renewing_seconds(prices: StepPrices, tokens: Quantity, free: Quantity) -> Quantity:
    """Return the seconds in which a step of so many tokens gets anew what it lacks.

    `free` are the bytes that a server leaves to the allocator.
    """
    return RENEWED * maximum(held_bytes(prices, tokens) - free, 0.0)
