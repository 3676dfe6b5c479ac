"""Paleo: how long a deep neural network takes, on that hardware, at that scale.

The whole in three calls, each taking names, paths or objects and returning frozen values
in SI units:

    paleo.load("alex_v2")                            a net, checked; also .onnx, .prototxt
    paleo.summarize("alex_v2")                       its layers: shapes, parameters, FLOPs
    paleo.simulate("alex_v2", device="K40", ...)     training steps at many worker counts

What if: `paleo.edit` changes a net, `paleo.compare` says what that does, `paleo.metrics` what a
whole training takes, `paleo.footprint` how much memory. The package `paleo.validate` has errors on
measurements, `paleo.profile` measures nets beside what is predicted, and `paleo.calibrate` fits a
device file to a machine.

The pieces of a step are `build`, `estimate_forward`, `estimate_backward`,
`estimate_update` and `estimate_communication`; `data_parallel`, `model_parallel` and
`hybrid_parallel` put them together under a `Plan` and take arrays.
"""

from __future__ import annotations

from paleo.collectives import COLLECTIVES, Collective
from paleo.compare import Comparison, compare
from paleo.costs import (
    COST_MODELS,
    ConvolutionChoice,
    CostModel,
    Explanation,
    Target,
    Time,
    find_cost_model,
)
from paleo.costs.bands import Band
from paleo.datasets import DATASETS, Dataset
from paleo.edit import Edits, edit, series
from paleo.errors import (
    ExecutorError,
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
from paleo.explain import ExplainedLayer, ExplainedOperation
from paleo.graph import Graph, Node, build, longest_path
from paleo.hardware import (
    Device,
    Network,
    Price,
    device_names,
    find_device,
    find_network,
    network_names,
)
from paleo.importers import ImportOptions
from paleo.layers import LAYERS, Layer
from paleo.load import load, loads, net_names
from paleo.memory import OPTIMIZERS, Footprint, LayerMemory, footprint, largest_batch
from paleo.metrics import Metrics, metrics
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
from paleo.rows import DataRow, HybridRow, ModelRow, Run, Simulation, WholeStep, Worth
from paleo.simulate import NetLike, simulate
from paleo.summary import LayerSummary, NetSummary, TimedOn, summarize
from paleo.tensor import PRECISIONS
from paleo.version import __version__
from paleo.work import Pass, Work

__all__ = [
    "COLLECTIVES",
    "COST_MODELS",
    "DATASETS",
    "LAYERS",
    "OPTIMIZERS",
    "PRECISIONS",
    "Band",
    "Collective",
    "Comparison",
    "ConvolutionChoice",
    "CostModel",
    "DataParallelStep",
    "DataRow",
    "Dataset",
    "Device",
    "DeviceLike",
    "Edits",
    "ExecutorError",
    "ExplainedLayer",
    "ExplainedOperation",
    "Explanation",
    "Footprint",
    "Graph",
    "HardwareError",
    "HybridPart",
    "HybridRow",
    "ImportOptions",
    "Layer",
    "LayerMemory",
    "LayerSpec",
    "LayerSummary",
    "LayerTime",
    "Metrics",
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
    "Price",
    "Run",
    "SettingError",
    "Simulation",
    "Target",
    "Time",
    "TimedOn",
    "UnknownNameError",
    "WholeStep",
    "Work",
    "Worth",
    "__version__",
    "build",
    "compare",
    "data_parallel",
    "device_names",
    "edit",
    "estimate_backward",
    "estimate_communication",
    "estimate_forward",
    "estimate_update",
    "find_cost_model",
    "find_device",
    "find_network",
    "footprint",
    "hybrid_parallel",
    "largest_batch",
    "load",
    "loads",
    "longest_path",
    "metrics",
    "model_parallel",
    "net_names",
    "network_names",
    "series",
    "simulate",
    "summarize",
]
