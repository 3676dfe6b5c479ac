"""Paleo: how long a deep neural network takes, on that hardware, at that scale.

The whole in three calls, each taking names, paths or objects and returning frozen values
in SI units:

    paleo.load("alex_v2")                            a net, checked; also .onnx, .prototxt
    paleo.summarize("alex_v2")                       its layers: shapes, parameters, FLOPs
    paleo.simulate("alex_v2", device="K40", ...)     training steps at many worker counts

The pieces of a step are `build`, `estimate_forward`, `estimate_backward`,
`estimate_update` and `estimate_communication`; `data_parallel`, `model_parallel` and
`hybrid_parallel` put them together under a `Plan` and take arrays.
"""

from __future__ import annotations

from paleo.collectives import COLLECTIVES, Collective
from paleo.costs import COST_MODELS, CostModel, Target, Time, find_cost_model
from paleo.errors import (
    HardwareError,
    Mistake,
    NetSpecError,
    PaleoError,
    SettingError,
    UnknownNameError,
)
from paleo.estimate import (
    DeviceLike,
    LayerTime,
    NetworkLike,
    PassTime,
    estimate_backward,
    estimate_communication,
    estimate_forward,
    estimate_update,
)
from paleo.graph import Graph, Node, build, longest_path
from paleo.hardware import (
    Device,
    Network,
    device_names,
    find_device,
    find_network,
    network_names,
)
from paleo.importers import ImportOptions
from paleo.layers import LAYERS, Layer
from paleo.load import load, loads, net_names
from paleo.netspec import LayerSpec, NetSpec
from paleo.parallelism import (
    DataParallelStep,
    HybridPart,
    ModelParallelPass,
    Plan,
    data_parallel,
    hybrid_parallel,
    model_parallel,
)
from paleo.rows import DataRow, HybridRow, ModelRow, Run, Simulation, WholeStep
from paleo.simulate import NetLike, simulate
from paleo.summary import LayerSummary, NetSummary, summarize
from paleo.version import __version__
from paleo.work import Pass, Work

__all__ = [
    "COLLECTIVES",
    "COST_MODELS",
    "LAYERS",
    "Collective",
    "CostModel",
    "DataParallelStep",
    "DataRow",
    "Device",
    "DeviceLike",
    "Graph",
    "HardwareError",
    "HybridPart",
    "HybridRow",
    "ImportOptions",
    "Layer",
    "LayerSpec",
    "LayerSummary",
    "LayerTime",
    "Mistake",
    "ModelParallelPass",
    "ModelRow",
    "NetLike",
    "NetSpec",
    "NetSpecError",
    "NetSummary",
    "Network",
    "NetworkLike",
    "Node",
    "PaleoError",
    "Pass",
    "PassTime",
    "Plan",
    "Run",
    "SettingError",
    "Simulation",
    "Target",
    "Time",
    "UnknownNameError",
    "WholeStep",
    "Work",
    "__version__",
    "build",
    "data_parallel",
    "device_names",
    "estimate_backward",
    "estimate_communication",
    "estimate_forward",
    "estimate_update",
    "find_cost_model",
    "find_device",
    "find_network",
    "hybrid_parallel",
    "load",
    "loads",
    "longest_path",
    "model_parallel",
    "net_names",
    "network_names",
    "simulate",
    "summarize",
]
