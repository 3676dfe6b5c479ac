"""Settings of what connects workers, how they share a batch, and how they exchange gradients.

Declared as those of paleo.step.settings, which has the kinds that these are parts of.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from paleo.cluster import (
    Cluster,
    Network,
    cluster_names,
    find_cluster,
    find_network,
    network_names,
)
from paleo.cluster.collectives import COLLECTIVES, NCCL_VERSION
from paleo.core.checks import MAX_SIZE, checked_bytes, is_whole, shown
from paleo.core.errors import SettingError
from paleo.core.frozen import TypedDict
from paleo.core.quantity import Quantity
from paleo.step.declarations import (
    Setting,
    checked_jitter,
    checked_share,
    choice,
    name_in,
    several,
)
from paleo.step.gradients import COMPRESSIONS, SENT_DTYPES, Compression, find_compression

NetworkLike = str | os.PathLike[str] | Network
ClusterLike = str | os.PathLike[str] | Cluster

#: Weak scaling gives every worker the batch; strong scaling divides it among them.
SCALINGS = ("weak", "strong")

NETWORK = Setting(
    default="ethernet",
    check=find_network,
    help="The network: a name from `paleo networks`, or your own TOML file.",
    label="Network",
    options=("--network_name", "--network"),
    choices=network_names,
    may_be_file=True,
)
CLUSTER = Setting(
    default=None,
    check=lambda value: None if value is None else find_cluster(value),
    help="The cluster: a name from `paleo clusters`, or your own TOML file. It has its devices and "
    "networks: without it, there is one device behind one network for each worker.",
    label="Cluster",
    choices=cluster_names,
    metavar="NAME",
    shown_default="--device behind --network",
    may_be_file=True,
)
PPP_COMM = Setting(
    default=1.0,
    check=functools.partial(checked_share, name="ppp_comm"),
    help="Share of the network's bandwidth that is reached, above 0, up to 1.",
    label="Share of peak, network",
    is_number=True,
)
SCALING = Setting(
    default="weak",
    check=several("scaling", choice("scaling", SCALINGS)),
    help="weak: every worker gets a batch; strong: the workers divide one batch.",
    choices=lambda: SCALINGS,
    metavar="SCALING,...",
)
ONE_SCALING = replace(
    SCALING, check=lambda value: (choice("scaling", SCALINGS)(value),), metavar=""
)
#: Stands for every scheme that workers can exchange gradients by.
ALL_SCHEMES = ("all",)
SCHEMES = Setting(
    default=None,
    check=lambda value: (
        value
        if value in (None, ALL_SCHEMES)
        else ALL_SCHEMES
        if value in ("all", ["all"])
        else several("schemes", name_in(COLLECTIVES))(value)
    ),
    help="How workers exchange gradients: one scheme, several to compare, or all.",
    describes=True,
    options=("--scheme",),
    choices=lambda: COLLECTIVES,
    metavar="NAME,...",
    shown_default="auto; the best of four with paleo2017",
)


def _checked_scheme(value: Any) -> str | None:
    if not isinstance(value, str | None):
        raise SettingError(f"scheme: expected one, got {shown(value)}")
    return value if value is None else str(name_in(COLLECTIVES)(value))


SCHEME = Setting(
    default=None,
    check=_checked_scheme,
    help="How workers exchange gradients.",
    describes=True,
    choices=lambda: COLLECTIVES,
    metavar="NAME",
    shown_default="auto; the best of four with paleo2017",
)


def _checked_overlap(value: Any) -> bool | None:
    return value if value is None else bool(value)


OVERLAP = Setting(
    default=None,
    check=_checked_overlap,
    help="Exchange gradients while the backward pass goes on, bucket by bucket.",
    label="Overlapped",
    options=("--overlap/--no_overlap",),
    shown_default="overlap, but with paleo2017",
)


def _checked_bucket(value: Any) -> int | None:
    if value is None:
        return None
    size = checked_bytes(value, "bucket")
    if size < 1:
        raise SettingError(f"bucket: expected one byte or more, got {shown(value)}")
    return size


BUCKET = Setting(
    default=None,
    check=_checked_bucket,
    help="How many bytes of gradients are exchanged together, such as 100MiB. Every framework has "
    "its own; PyTorch's are 25 MiB, of which the first bucket has 1 MiB.",
    label="Bucket",
    metavar="SIZE",
    shown_default="the framework's, else PyTorch's",
)


def checked_count(name: str) -> Callable[[Any], int]:
    """Return the check of a setting that counts something: one or more."""

    def check(value: Any) -> int:
        if is_whole(value) and 1 <= value <= MAX_SIZE:
            return value
        raise SettingError(
            f"{name}: expected a whole number from 1 to {MAX_SIZE}, got {shown(value)}"
        )

    return check


ACCUMULATE = Setting(
    default=1,
    check=checked_count("accumulate"),
    help="Sum up the gradients of so many batches in turn, then exchange them once and update "
    "(gradient accumulation). Weak scaling gives a worker so many batches of --batch_size; strong "
    "scaling divides --batch_size among workers and turns.",
    label="Accumulated batches",
    metavar="N",
    is_number=True,
)


GRADIENT_DTYPE = Setting(
    default=None,
    check=lambda value: (
        None if value is None else choice("gradient_dtype", tuple(SENT_DTYPES))(value)
    ),
    help="Type in which gradients are sent. Kernels cast them before and after.",
    label="Gradients sent in",
    choices=lambda: SENT_DTYPES,
    shown_default="that of the parameters",
)
COMPRESS = Setting(
    default=None,
    check=find_compression,
    help="Compress the gradients that are sent: "
    + "; ".join(f"{name} ({text})" for name, text in COMPRESSIONS.items())
    + ". Their kernels count; what it does to the accuracy of training is not modelled.",
    label="Compression",
    metavar="NAME",
)
NUM_SERVERS = Setting(
    default=None,
    check=lambda value: None if value is None else checked_count("num_servers")(value),
    help="Hosts that are parameter servers, each with a share of the parameters and one link of "
    "the network. This chooses --scheme=parameter_server.",
    label="Servers",
    metavar="N",
    is_number=True,
    shown_default="1 with that scheme",
)
JITTER = Setting(
    default=None,
    check=lambda value: None if value is None else checked_jitter(value),
    help="How much the computation of a worker varies from step to step: the standard deviation "
    "over the mean, such as 0.03. A step waits for the slowest worker.",
    label="Jitter",
    metavar="SHARE",
    shown_default="the framework's; without one 0",
    is_number=True,
)


def _checked_nccl(value: Any) -> str | None:
    if value is None:
        return None
    from paleo.cluster.collectives.nccl import find_nccl  # here: most start without

    return find_nccl(str(value)).version


NCCL = Setting(
    default=None,
    check=_checked_nccl,
    help="Version of NCCL, such as 2.18, which decides by which algorithm and protocol auto, ring "
    "and others of its schemes send.",
    label="NCCL",
    metavar="VERSION",
    shown_default=NCCL_VERSION,
)


class NetworkSettings(TypedDict, total=False):
    """What connects devices, and how well it is used."""

    cluster: Annotated[ClusterLike | None, CLUSTER]
    network: Annotated[NetworkLike, NETWORK]
    ppp_comm: Annotated[Quantity, PPP_COMM]


class OverlapSettings(TypedDict, total=False):
    """When gradients are exchanged."""

    overlap: Annotated[bool | None, OVERLAP]
    bucket: Annotated[int | str | None, BUCKET]


class SynchronousSettings(OverlapSettings, total=False):
    """How workers that step together bring together what they have."""

    accumulate: Annotated[int, ACCUMULATE]
    gradient_dtype: Annotated[str | None, GRADIENT_DTYPE]
    compress: Annotated[str | Compression | None, COMPRESS]
    num_servers: Annotated[int | None, NUM_SERVERS]
    jitter: Annotated[Quantity | None, JITTER]
    nccl: Annotated[str | None, NCCL]


class ExchangeSettings(TypedDict, total=False):
    """How the workers of one step share a batch, and exchange gradients."""

    scaling: Annotated[str, ONE_SCALING]
    scheme: Annotated[str | None, SCHEME]
