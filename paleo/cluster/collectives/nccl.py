"""NCCL's collectives: which algorithm and protocol its tuner takes, and how long that lasts.

Both are asked apart. What is taken follows from NCCL's own model with its own constants
(`ncclTopoTuneModel` and `ncclTopoGetAlgoTime` of src/graph/tuning.cc): the least of latency +
bytes / bandwidth. How long it lasts is the model here, with what was measured of the links, for
the tuner errs by up to a factor of three, and switches where it is not quickest.

Letters: K workers of N nodes, k hops of a ring (2 (K - 1) of an all-reduce, K - 1 of one half of
it), S bytes, B bytes/s of the slowest tier that is used. Protocols (Z. Hu et al., "Demystifying
NCCL: an in-depth analysis of GPU communication protocols and algorithms", 2025): LL sends 4 bytes
of data beside 4 of a flag, LL128 120 beside 8; Simple sends whole chunks and synchronizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from paleo.cluster.collectives.base import Choice, Collective, Operation
from paleo.cluster.collectives.paths import PROTOCOLS, Path, is_modelled
from paleo.cluster.collectives.tuner import SUMS_SECONDS, Tuner
from paleo.cluster.topology import Group, beyond_one
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import (
    Quantity,
    ceil_log2,
    is_array,
    maximum,
    minimum,
    np,
    some,
    where,
)

#: The part of what is sent that is data: 4 of 8 bytes, 120 of 128 as NCCL counts them, all.
PAYLOAD = (0.5, 0.92, 1.0)
#: Bytes of a message in protocol LL at the most, between two workers (NCCL_P2P_LL_THRESHOLD).
_LL_MESSAGE = 16384
#: Bytes that one channel sends at a time in protocol LL (512 threads, 8 bytes each).
_LL_LINES = 4096
#: Channels, and bytes that all of them have on their way at the most (2 MiB each).
_CHANNELS = 32
_CHUNKS = _CHANNELS * 2**21
#: The schemes that its algorithms are, where they have another name.
SCHEMES = {"nvls": "in_network", "nvls_tree": "in_network", "p2p": "pairwise"}


@dataclass(frozen=True)
class Nccl:
    """A version of NCCL: what it has, and how its protocols spend their time.

    The shares are the same for all links and all versions; they were read off the tables that
    the constants of links are fitted to (docs/collectives.md):

    - `fill`: a hop of LL takes so much longer when each thread of a channel has a line to send;
    - `start`: Simple starts and ends as long as so many launches of LL, messages between pairs as
      long as `message_start`;
    - `blend`: hops and bytes of Simple, and of trees, overlap: the norm of this degree of both;
    - `tail`: the first and the last step copy a share of the message once more, at so much of
      what channels copy, LL unpacks its last one at `unpack` of it;
    - `sums`: the part of the bandwidth of switches that sum which is reached, of that counted;
    - `message_share`: the part of the bandwidth that messages between all pairs reach.
    """

    version: str = "2.27"
    fill: float = 0.24
    start: float = 3.2
    message_start: float = 2.4
    blend: float = 1.47
    tail: float = 0.7
    unpack: float = 0.23
    sums: float = 0.91
    message_share: float = 0.9

    @functools.cached_property
    def tuner(self) -> Tuner:
        """What this version chooses by; raises SettingError for a version that is no number."""
        parts = self.version.split(".")
        if len(parts) < 2 or not all(part.isdecimal() for part in parts):
            raise SettingError(
                f"nccl: expected a version such as 2.27 or 2.18.3, got {self.version!r}"
            )
        return Tuner(tuple(map(int, parts)))


#: The version that is taken unless told otherwise.
CURRENT = Nccl()


class Times(NamedTuple):
    """How long it is: `waiting` for hops and kernel, `carrying` the bytes, `seconds` in all."""

    waiting: Quantity
    carrying: Quantity
    seconds: Quantity


class Option(NamedTuple):
    """An algorithm with a protocol: the seconds that the tuner counts, and its real times."""

    algorithm: Any
    protocol: str
    counted: Quantity
    times: Callable[[], Times]


def choice(
    group: Group,
    num_bytes: Quantity,
    operation: Operation = Operation.ALL_REDUCE,
    nccl: Nccl = CURRENT,
    algorithm: str = ""

    def of_nccl(self, group: Group, operation: Operation) -> bool:
        """Tell whether NCCL does this on these links, and what is known of them."""
        return is_modelled(group) and operation in self.operations

    def seconds_on(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Quantity:
        if self.of_nccl(group, operation):
            return seconds(group, num_bytes, operation, algorithm=self.algorithm)
        return super().seconds_on(group, num_bytes, operation)

    def choice(
        self, group: Group, num_bytes: Quantity, operation: Operation = Operation.ALL_REDUCE
    ) -> Choice:
        if self.of_nccl(group, operation):
            return choice(group, num_bytes, operation, algorithm=self.algorithm)
        return super().choice(group, num_bytes, operation)
