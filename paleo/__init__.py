"""Paleo: how long a deep neural network takes, on that hardware, at that scale.

The whole in three calls, each taking names, paths or objects and returning frozen values
in SI units:

    paleo.load("alex_v2")                            a net, checked; also a file or module
    paleo.summarize("alex_v2")                       its layers: shapes, parameters, FLOPs
    paleo.simulate("alex_v2", device="K40", ...)     training steps at many worker counts

Nets        `load`, `loads`, `net_names`; `edit` with `Edits`, and `series` of them; `build` makes
            the `Graph` of a `NetSpec`; `LAYERS` has the types of layers, each a `Layer`;
            `ImportOptions` are for nets of other frameworks
Clusters    `find_device`, `device_names`, `Device`, its `Price`, `prices` of all; `find_network`,
            `network_names`, `Network`; `find_cluster`, `cluster_names`, `Cluster`; `COLLECTIVES`
Costs       `find_cost_model`, `COST_MODELS`, each a `CostModel`; `PRECISIONS`
Questions   `simulate`, `summarize`, `compare`, `metrics` (with `DATASETS`), `memory` (with
            `OPTIMIZERS`), `collectives`, `timeline`, as the commands of these names answer them;
            `footprint`, `largest_batch`; `plans` has every way to share a net among devices,
            `deployments` every way to serve one and `sweep` every combination of settings, as
            arrays, `best_plans` (the command `plan`) the best ways to train, run or serve one;
            `infer` says how a language model answers on a server;
            `search` finds the best net of a design space. Those of a net take settings, or a
            `Scenario`, which `scenario` finds and checks: a net on a cluster under a `Plan`
Pieces      `estimate_forward`, `estimate_backward`, `estimate_update` and
            `estimate_communication` of a step; `data_parallel`, `model_parallel` and
            `hybrid_parallel` put them together under a `Plan` and take arrays
Errors      `PaleoError`, and of its family `NetSpecError`, `HardwareError`, `SettingError`,
            `UnknownNameError`

The package `paleo.measure.validate` has errors on measurements, `paleo.measure.profile` measures
nets beside what is predicted, and `paleo.measure.calibrate` fits a device file to a machine.
All else stands in the wings: paleo.core, net, cluster, costs, step, studies, measure, views.
Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # as type checkers see what is found below
    from paleo.cluster import Cluster as Cluster
    from paleo.cluster import Device as Device
    from paleo.cluster import Network as Network
    from paleo.cluster import Price as Price
    from paleo.cluster import cluster_names as cluster_names
    from paleo.cluster import device_names as device_names
    from paleo.cluster import find_cluster as find_cluster
    from paleo.cluster import find_device as find_device
    from paleo.cluster import find_network as find_network
    from paleo.cluster import network_names as network_names
    from paleo.cluster.collectives import COLLECTIVES as COLLECTIVES
    from paleo.core.errors import HardwareError as HardwareError
    from paleo.core.errors import NetSpecError as NetSpecError
    from paleo.core.errors import PaleoError as PaleoError
    from paleo.core.errors import SettingError as SettingError
    from paleo.core.errors import UnknownNameError as UnknownNameError
    from paleo.core.tensor import PRECISIONS as PRECISIONS
    from paleo.core.version import __version__ as __version__
    from paleo.costs import COST_MODELS as COST_MODELS
    from paleo.costs import CostModel as CostModel
    from paleo.costs import find_cost_model as find_cost_model
    from paleo.net.edit import Edits as Edits
    from paleo.net.edit import edit as edit
    from paleo.net.edit import series as series
    from paleo.net.graph import Graph as Graph
    from paleo.net.graph import build as build
    from paleo.net.importers import ImportOptions as ImportOptions
    from paleo.net.layers import LAYERS as LAYERS
    from paleo.net.layers import Layer as Layer
    from paleo.net.load import load as load
    from paleo.net.load import loads as loads
    from paleo.net.load import net_names as net_names
    from paleo.net.spec import NetSpec as NetSpec
    from paleo.step.estimates import estimate_backward as estimate_backward
    from paleo.step.estimates import estimate_communication as estimate_communication
    from paleo.step.estimates import estimate_forward as estimate_forward
    from paleo.step.estimates import estimate_update as estimate_update
    from paleo.step.memory import OPTIMIZERS as OPTIMIZERS
    from paleo.step.memory import footprint as footprint
    from paleo.step.memory import largest_batch as largest_batch
    from paleo.step.parallelism.data import data_parallel as data_parallel
    from paleo.step.parallelism.hybrid import hybrid_parallel as hybrid_parallel
    from paleo.step.parallelism.model import model_parallel as model_parallel
    from paleo.step.plan import Plan as Plan
    from paleo.step.scenario import Scenario as Scenario
    from paleo.step.scenario import scenario as scenario
    from paleo.studies.collectives import collectives as collectives
    from paleo.studies.compare import compare as compare
    from paleo.studies.datasets import DATASETS as DATASETS
    from paleo.studies.memory import memory as memory
    from paleo.studies.metrics import metrics as metrics
    from paleo.studies.planning import best_plans as best_plans
    from paleo.studies.plans import plans as plans
    from paleo.studies.prices import prices as prices
    from paleo.studies.search import search as search
    from paleo.studies.serving.deployments import deployments as deployments
    from paleo.studies.serving.infer import infer as infer
    from paleo.studies.simulate import simulate as simulate
    from paleo.studies.summary import summarize as summarize
    from paleo.studies.sweeps.result import sweep as sweep
    from paleo.studies.timeline import timeline as timeline

#: Where the public names are.
_PLACES = {
    "paleo.cluster": (
        "Cluster",
        "Device",
        "Network",
        "Price",
        "cluster_names",
        "device_names",
        "find_cluster",
        "find_device",
        "find_network",
        "network_names",
    ),
    "paleo.cluster.collectives": ("COLLECTIVES",),
    "paleo.core.errors": (
        "HardwareError",
        "NetSpecError",
        "PaleoError",
        "SettingError",
        "UnknownNameError",
    ),
    "paleo.core.tensor": ("PRECISIONS",),
    "paleo.core.version": ("__version__",),
    "paleo.costs": ("COST_MODELS", "CostModel", "find_cost_model"),
    "paleo.net.edit": ("Edits", "edit", "series"),
    "paleo.net.graph": ("Graph", "build"),
    "paleo.net.importers": ("ImportOptions",),
    "paleo.net.layers": ("LAYERS", "Layer"),
    "paleo.net.load": ("load", "loads", "net_names"),
    "paleo.net.spec": ("NetSpec",),
    "paleo.step.estimates": (
        "estimate_backward",
        "estimate_communication",
        "estimate_forward",
        "estimate_update",
    ),
    "paleo.step.memory": ("OPTIMIZERS", "footprint", "largest_batch"),
    "paleo.step.parallelism.data": ("data_parallel",),
    "paleo.step.parallelism.hybrid": ("hybrid_parallel",),
    "paleo.step.parallelism.model": ("model_parallel",),
    "paleo.step.plan": ("Plan",),
    "paleo.step.scenario": ("Scenario", "scenario"),
    "paleo.studies.collectives": ("collectives",),
    "paleo.studies.compare": ("compare",),
    "paleo.studies.datasets": ("DATASETS",),
    "paleo.studies.memory": ("memory",),
    "paleo.studies.metrics": ("metrics",),
    "paleo.studies.planning": ("best_plans",),
    "paleo.studies.plans": ("plans",),
    "paleo.studies.prices": ("prices",),
    "paleo.studies.search": ("search",),
    "paleo.studies.serving.deployments": ("deployments",),
    "paleo.studies.serving.infer": ("infer",),
    "paleo.studies.simulate": ("simulate",),
    "paleo.studies.summary": ("summarize",),
    "paleo.studies.sweeps.result": ("sweep",),
    "paleo.studies.timeline": ("timeline",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
__all__ = sorted(_MODULES)  # noqa: PLE0605 (it is a list of texts)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(name for name in _MODULES if not name.startswith("_"))
