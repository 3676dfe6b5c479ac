"""Settings whose options stand in one order in several commands, and what is said of them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from paleo.cli.options import is_given, is_verbose, say_no_effect, verbose
from paleo.cluster import find_cluster, find_device, find_network, group_of
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.tensor import find_precision
from paleo.costs import find_cost_model
from paleo.net.load import net_source
from paleo.step.declarations import declared
from paleo.step.distributed_settings import SynchronousSettings
from paleo.step.mesh import Mesh
from paleo.step.mesh_settings import MeshSettings
from paleo.step.parallelism import PARALLELISMS
from paleo.step.plan_keys import DEGREES
from paleo.step.scenario import workers_of
from paleo.step.settings import (
    OF_CLUSTER,
    ConvolutionSettings,
    DeviceLike,
    GradientSettings,
    KernelSettings,
    OptimizerSettings,
)

#: What nets run on.
CLUSTER = ("cluster", "device", "network", "batch_size", "workers")
#: By which algorithm convolutions are computed.
CONVOLUTIONS = tuple(ConvolutionSettings.__annotations__)
#: What runs at the same time, or in one kernel.
KERNELS = tuple(KernelSettings.__annotations__)
#: How a step is priced, but for the shares of peak.
PRICING = (*KERNELS, *CONVOLUTIONS, "cost_model", "dtype")
#: How workers that step together bring together what they have.
SYNCHRONOUS = tuple(SynchronousSettings.__annotations__)
#: How devices share a net.
MESH = tuple(MeshSettings.__annotations__)
#: How parameters are updated.
UPDATE = (*OptimizerSettings.__annotations__, *GradientSettings.__annotations__)
#: How long a net is trained.
SCHEDULE = ("epochs", "dataset", "dataset_size")


def devices_and_workers(
    clusters: list[str] | None, devices: list[str], workers: list[Any], mistakes: Mistakes
) -> tuple[dict[str, DeviceLike], list[Any]]:
    """Return devices, and numbers of workers, of a report: clusters have devices of their own.

    Those of clusters are by the names of these. It is an error to give a device or a network as
    well, or more workers than any of them has.
    """
    if not clusters:
        return {name: name for name in devices}, workers
    for name in filter(is_given, OF_CLUSTER):
        mistakes.add(f"{name}: a cluster has its own: leave out {name}, or cluster")
    found = {name: mistakes.check(find_cluster, name) for name in clusters}
    known = {name: cluster for name, cluster in found.items() if cluster}
    smallest = min(known.values(), key=lambda cluster: cluster.size, default=None)
    counts = list(workers_of(smallest, workers)) if smallest else workers
    for cluster in known.values():
        mistakes.check(group_of, cluster, max(counts, default=1))
    return {name: cluster.device for name, cluster in known.items()}, counts


class Several(NamedTuple):
    """What a report may have several of."""

    cluster: list[str] | None
    device: list[str]
    batch_size: list[Any]
    workers: list[Any]
    scaling: list[str]

    def checked(
        self, settings: Mapping[str, Any], mistakes: Mistakes
    ) -> tuple[dict[str, DeviceLike], list[Any], list[str]]:
        """Return devices by their names, or those of clusters, numbers of workers, and scalings."""
        once: dict[str, list[Any]] = {"device": self.device, "batch_size": self.batch_size}
        once |= {} if self.cluster is None else {"cluster": self.cluster}
        counted = {"num_workers": self.workers, "scaling": self.scaling}
        for name, values in (counted | once).items():
            if not values:
                mistakes.add(f"{name}: expected one or more, got none")
            elif name in once and len(set(values)) < len(values):
                mistakes.add(f"{name}: one is given twice")
        where = (self.cluster, self.device, self.workers)
        devices, workers = devices_and_workers(*where, mistakes)
        if any(map(is_given, MESH)):
            return devices, _on_mesh(settings, workers, mistakes), self.scaling[:1]
        return devices, workers, self.scaling


def _on_mesh(settings: Mapping[str, Any], workers: list[Any], mistakes: Mistakes) -> list[Any]:
    """Return the numbers of workers of a report on a mesh: by default those that divide so.

    What is wrong with those that are given is said of each.
    """
    known = declared(MeshSettings)
    found: dict[str, Any] = {
        name: mistakes.check(known[name].check, settings[name]) for name in DEGREES
    }
    if None in found.values():
        return workers
    if is_given("num_workers"):
        return workers
    fitting = []
    for count in workers:
        with contextlib.suppress(SettingError):
            Mesh.of(count, **found)
            fitting.append(count)
    if not fitting:
        ways = " x ".join(f"{name} {count}" for name, count in found.items() if count > 1)
        mistakes.add(f"num_workers: none of {_listed(workers)} devices divide by {ways}: give more")
    return fitting


def _listed(counts: Sequence[Any]) -> str:
    return f"{', '.join(map(str, counts[:-1]))} or {counts[-1]}" if counts[1:] else str(counts[0])


def say_what_is_used(nets: Sequence[str], settings: Mapping[str, Any] | None = None) -> None:
    """Print where the nets are and which figures count, for --verbose."""
    if not is_verbose():
        return
    for net in nets:
        verbose(f"net {net}: {net_source(net)}")
    if settings is None:
        return
    several = {name: _each(settings[name]) for name in _USED if settings.get(name) is not None}
    if "cluster" in several:
        several.pop("device", None)
        several.pop("network", None)
    said: dict[str, None] = {}
    for values in itertools.product(*several.values()):
        said |= dict.fromkeys(_figures(**dict(zip(several, values, strict=True))))
    for line in said:
        verbose(line)


#: The settings that decide which figures count.
_USED = ("cost_model", "dtype", "cluster", "device", "network")


def _each(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _figures(
    cost_model: str, dtype: str, device: Any = None, network: Any = None, cluster: Any = None
) -> Iterator[str]:
    """Yield a line for each figure of the hardware that a cost model reckons with."""
    model = find_cost_model(cost_model)
    whose = "the 2017 model's" if model.uses_2017_figures else "the data sheet's"
    networks = [] if network is None else [find_network(network)]
    if cluster is not None:
        tiers = find_cluster(cluster)
        device, networks = tiers.device, [tier.network for tier in tiers.tiers]
    if device is not None:
        found = find_device(device)
        for name, value, unit in model.rates(found, find_precision(dtype).computing):
            yield f"{found.name}: {name} {value:g} {unit}, {whose}"
    for link in networks:
        bandwidth = link.bandwidth_2017 if model.uses_2017_figures else link.bandwidth
        yield f"{link.name}: bandwidth {bandwidth:g} bytes/s, {whose}"


def beside_plan(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those that a plan file may say, which are not given."""
    if settings["plan"] is None:
        return dict(settings)
    context = click.get_current_context()
    usual = {
        name for name in settings if context.get_parameter_source(name) is ParameterSource.DEFAULT
    }
    return {name: value for name, value in settings.items() if name not in usual}


#: The options that not every kind of parallelism looks at, and those that do.
_ONLY_FOR = {
    "num_workers": ("data", "mesh", "single_process"),
    "scaling": ("data",),
    "scheme": ("data", "mesh"),
    "explain": ("data",),
    "hybrid_workers": ("hybrid",),
}


def say_what_has_no_effect(parallel: str) -> None:
    """Print a note for each option that was given and is for another kind of parallelism."""
    like = "data" if PARALLELISMS[parallel].has_others else parallel
    for option, kinds in _ONLY_FOR.items():
        if like not in kinds:
            say_no_effect(f"--parallel={' or '.join(kinds)}", option)
