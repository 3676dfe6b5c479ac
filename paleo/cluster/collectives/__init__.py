"""Collectives, in the files of this folder, each of which is imported when it is asked for."""

from __future__ import annotations

from paleo.cluster.collectives.base import (
    COLLECTIVES,
    NCCL_VERSION,
    Carried,
    Choice,
    Collective,
    Operation,
    Round,
)
from paleo.cluster.collectives.rounds import SWITCH, of_parts

__all__ = [
    "AUTO",
    "COLLECTIVES",
    "NCCL_VERSION",
    "OF_2017",
    "SERVERS",
    "SWITCH",
    "Carried",
    "Choice",
    "Collective",
    "Operation",
    "Round",
    "of_parts",
]

#: The scheme that a library chooses by itself.
AUTO = "auto"
#: The schemes that the model of 2017 knows.
OF_2017 = ("OneToAll", "TreeAllReduce", "ButterflyAllReduce", "ButterflyMixing")
#: The scheme whose servers are hosts of their own.
SERVERS = "parameter_server"

# Output shows first what sends most.
COLLECTIVES.discover(
    __name__,
    {
        "parameter_server": "parameter_server",
        "OneToAll": "one_to_all",
        "TreeAllReduce": "tree",
        "ButterflyAllReduce": "butterfly",
        "recursive_doubling": "halving_doubling",
        "tree": "double_tree",
        "auto": "auto",
        "sharded_server": "direct",
        "custom_all_reduce": "custom",
        "pushed_all_reduce": "custom",
        "halving_doubling": "halving_doubling",
        "hierarchical": "hierarchical",
        "ring": "ring",
        "in_network": "in_network",
        "ButterflyMixing": "butterfly",
        "pairwise": "direct",
    },
    others="base nccl paths phases rounds tuner",
)
