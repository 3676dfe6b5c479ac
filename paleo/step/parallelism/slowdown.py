"""What exchanges take of a device while it computes.

NCCL runs a collective in blocks of threads, one a channel, each on a multiprocessor that it shares
with no kernel of the net, and takes as few as the links need: a multiprocessor moves about 12 GB/s
(NVIDIA/nccl, issue 689, by one of its authors: "NCCL CTAs won't share an SM with compute kernels",
2 multiprocessors for one card of 12 to 24 GB/s, 16 for eight cards and 190 GB/s; issue 1225: 24 for
the 300 GB/s of NVLink 3). Products have what is left. Besides, an all-reduce reads each worker's
gradients from memory and writes their sum, at the rate at which it goes on; what is on its way
between workers stays in the cache.

On an H200 (PyTorch 2.11, cuBLAS 13), a product of 8,192 bf16 squared took 1.05, 1.22, 1.14 and 1.28
times as long beside a kernel that kept 8, 16, 24 and 32 of 132 multiprocessors and added what it
read; here that is 1.06, 1.14, 1.22 and 1.32. A pass over memory took 1.12 times as long beside
816 GB/s of 4,800, here 1.20. Products of few waves vary more: 2,048 squared took as long up to 2
multiprocessors and 1.9 times from 4 on, since its tiles are dealt out before anybody knows.
"""

from __future__ import annotations

from paleo.cluster import Device
from paleo.cluster.collectives.base import Operation
from paleo.core.quantity import Quantity, maximum, minimum, where_positive

#: Bytes/s that one multiprocessor moves to a neighbour.
_BY_ONE = 12e9
#: Multiprocessors of a collective at the least (issue 689), and at the most that is seen in one
#: node: 24 channels on the DGX A100 and between two H100 (NVIDIA/nccl, issues 1225 and 1161).
_FEWEST, _MOST = 2, 24
#: At the most so much of a device's memory rate or multiprocessors goes to an exchange.
_LARGEST_SHARE = 0.5


def slowdown(device: Device, num_bytes: Quantity, seconds: Quantity, workers: Quantity) -> Quantity:
    """Return how many times as long computation takes beside an all-reduce.

    The all-reduce takes `seconds` for `num_bytes` of each of so many workers. What computes lacks
    multiprocessors, what streams lacks a share of the memory's rate; the larger factor of both
    counts. 1 beside none, of one worker, and on what is no GPU. Numbers may be arrays.
    """
    if device.kind != "gpu":
        return 1.0
    rate = num_bytes / maximum(seconds, 1e-12)
    share = 2 * rate / device.memory_bandwidth
    if "multiprocessors" in device.figures:
        on_bus = Operation.ALL_REDUCE.bus_share(workers) * rate
        taken = minimum(maximum(on_bus / _BY_ONE, _FEWEST), _MOST)
        share = maximum(share, taken / device.figures["multiprocessors"].value)
    share = minimum(share, _LARGEST_SHARE)
    return 1 / (1 - where_positive((workers - 1) * num_bytes, share))
