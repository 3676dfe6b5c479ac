"""The settings of a prediction: each declared once, with its type, default, help and check.

A function takes `**settings: Unpack[...]` of one of the kinds below, so that type checkers refuse
one that is misspelt or of a wrong type; `found_settings` finds and checks all of them at run time.
paleo.step.declarations says how one is declared, for options and the page's form as well. Those of
what connects workers are in paleo.step.distributed_settings, those of a whole training in
paleo.studies.training.

To add one: an entry here, and a field of paleo.step.plan.Plan or of Scenario for what reads it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from paleo.cluster import Device, device_names, find_device
from paleo.cluster.frameworks import FRAMEWORKS, find_framework
from paleo.core.checks import MAX_SIZE, is_whole, number, python_int, shown
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import TypedDict
from paleo.core.quantity import Quantity
from paleo.core.tensor import PRECISIONS, find_precision
from paleo.costs import COST_MODELS, DEFAULT_COST_MODEL, CostModel, find_cost_model
from paleo.costs.attention import ATTENTION_FAMILIES, checked_attention
from paleo.costs.convolutions.settings import (
    CONTIGUOUS,
    MEMORY_FORMATS,
    checked_library,
    checked_workspace,
)
from paleo.net.graph import checked_batch
from paleo.net.importers import ImportOptions
from paleo.step.declarations import (
    Setting,
    checked_number,
    checked_share,
    choice,
    declared,
    found_default,
    found_setting,
    listing,
    name_in,
    several,
)
from paleo.step.distributed_settings import (
    ACCUMULATE,
    CLUSTER,
    COMPRESS,
    GRADIENT_DTYPE,
    JITTER,
    NCCL,
    NETWORK,
    NUM_SERVERS,
    PPP_COMM,
    SCHEME,
    SCHEMES,
    ClusterLike,
    NetworkLike,
    NetworkSettings,
    OverlapSettings,
    SynchronousSettings,
)
from paleo.step.gradients import Compression
from paleo.step.loader import LoaderSettings
from paleo.step.loss import LOSSES, checked_loss
from paleo.step.mesh_settings import MeshSettings
from paleo.step.optimizers import KERNELS, OPTIMIZERS, checked_kernels
from paleo.step.recompute import MODES, Recompute, find_recompute

#: The worker counts of a curve: those of the original command line.
DEFAULT_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)

DeviceLike = str | os.PathLike[str] | Device

DEVICE = Setting(
    default="TITAN_X",
    check=find_device,
    help="The device: a name from `paleo devices`, or your own TOML file.",
    label="Device",
    options=("--device_name", "--device"),
    choices=device_names,
    may_be_file=True,
)


def _checked_others(value: Any) -> tuple[tuple[Device, int], ...]:
    """Return devices and how many there are of each, of a mapping or of "K80:4,P100:2"."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = tuple(each.strip().rpartition(":")[::2] for each in value.split(",") if value)
    pairs = tuple(value.items()) if isinstance(value, Mapping) else value
    found = []
    for name, given in pairs if isinstance(pairs, tuple | list) else [("", value)]:
        count = number(given) if isinstance(given, str) else python_int(given)
        if not name or not is_whole(count) or not 1 <= count <= MAX_SIZE:
            raise SettingError(
                "other_devices: expected devices and how many of each, such as K80:4, "
                f"got {shown(given)}"
            )
        found.append((find_device(name), count))
    return tuple(found)


OTHER_DEVICES = Setting(
    default=None,
    check=_checked_others,
    help="Devices of other kinds and how many of each, such as K80:4,P100:2, with "
    "--parallel=heterogeneous; --num_workers are on --device, or on that of the cluster, whose "
    "links all of them have.",
    label="Other devices",
    metavar="NAME:N",
    shown_default="none",
)
_OF_ELEMENTS = (
    "of the elements of tensors. mixed_fp16 and mixed_bf16 compute in 2 bytes and keep parameters, "
    "their update, and the gradients that workers exchange in fp32. So do those with fp8, whose "
    "linear layers multiply in it, with a scale for each tensor, of steps before (delayed) or its "
    "own (tensorwise), for each 128 numbers (blockwise) or each 32 (mxfp8)."
)
DTYPE = Setting(
    default="fp32",
    check=lambda value: find_precision(value) and value,
    help=f"Type ({', '.join(PRECISIONS)}) {_OF_ELEMENTS}",
    label="Data type",
    choices=lambda: PRECISIONS,
    metavar="NAME",
)
USE_PIPELINE = Setting(
    default=False,
    check=bool,
    help="Assume that a layer's computation and memory traffic overlap.",
    label="Pipelined",
)
COST_MODEL = Setting(
    default=DEFAULT_COST_MODEL,
    check=find_cost_model,
    help="How operations are priced.",
    describes=True,
    label="Cost model",
    choices=lambda: COST_MODELS,
)
PPP_COMP = Setting(
    default=1.0,
    check=functools.partial(checked_share, name="ppp_comp"),
    help="Share of the device's peak FLOP/s that is reached, above 0, up to 1.",
    label="Share of peak, computing",
    is_number=True,
)
BATCH_SIZE = Setting(
    default=128,
    check=lambda value: checked_batch(python_int(value)),
    help="Samples in a batch: of each worker in weak scaling, of all workers together in strong "
    "scaling.",
    label="Batch size",
    is_number=True,
)
NET_BATCH_SIZE = BATCH_SIZE.with_default(
    None, help="Samples in a batch.", shown_default="the file's"
)
WORKERS = Setting(
    default=DEFAULT_WORKERS,
    check=several("num_workers", checked_number("num_workers"), int | float),
    help="Numbers of workers (devices) that share a step by data parallelism.",
    options=("--num_workers",),
    metavar="N,N,...",
)


class DeviceSettings(TypedDict, total=False):
    """On what a net runs."""

    device: Annotated[DeviceLike, DEVICE]
    dtype: Annotated[str, DTYPE]


class RateSettings(TypedDict, total=False):
    """Who prices operations, at what share of peak."""

    cost_model: Annotated[str | CostModel, COST_MODEL]
    ppp_comp: Annotated[Quantity, PPP_COMP]


FRAMEWORK = Setting(
    default=None,
    check=find_framework,
    help="What runs the net: which operations share a kernel, what is cast, and how long the host "
    "takes for each.",
    describes=True,
    label="Framework",
    choices=lambda: FRAMEWORKS,
    metavar="NAME",
    shown_default="none: kernels alone",
)
MEMORY_FORMAT = Setting(
    default=CONTIGUOUS,
    check=choice("memory_format", MEMORY_FORMATS),
    help="How images lie in memory: contiguous (N, C, H, W), which matrix units take only after a "
    "conversion, or channels_last (N, H, W, C).",
    label="Memory format",
    choices=lambda: MEMORY_FORMATS,
)
ATTENTION = Setting(
    default=None,
    check=checked_attention,
    help="Whose kernels compute attention forward (of fa1 also backward), in 2 bytes.",
    describes=True,
    label="Attention",
    choices=lambda: ATTENTION_FAMILIES,
    metavar="NAME",
    shown_default="no library's in particular",
)


RECOMPUTE = Setting(
    default="none",
    check=find_recompute,
    help="What the backward pass computes again instead of keeping it: "
    + "; ".join(f"{mode} ({said})" for mode, said in MODES.items())
    + "; full:BLOCK,... of these blocks alone.",
    label="Recomputation",
    choices=lambda: MODES,
    metavar="MODE",
)


LOSS = Setting(
    default="cross_entropy",
    check=checked_loss,
    help="The loss of a language model that ends at scores of words, in training: "
    + "; ".join(f"{name} ({said})" for name, said in LOSSES.items())
    + ".",
    label="Loss",
    choices=lambda: LOSSES,
    metavar="NAME",
)


class LossSettings(TypedDict, total=False):
    """What training makes smaller."""

    loss: Annotated[str, LOSS]


class RecomputeSettings(LossSettings, total=False):
    """What training makes smaller, and what of activations is computed again."""

    recompute: Annotated[str | Recompute, RECOMPUTE]


class KernelSettings(TypedDict, total=False):
    """What of a device runs at the same time, or in one kernel."""

    use_pipeline: Annotated[bool, USE_PIPELINE]
    fuse: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Assume that biases, activations and other pointwise operations run in the kernel "
            "before them, as in a compiled net.",
            label="Fused",
        ),
    ]
    framework: Annotated[str | None, FRAMEWORK]
    compile: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Assume that the net is compiled, by XLA with --framework=tensorflow, else by "
            "PyTorch's TorchInductor: pointwise operations run together in kernels of their own, "
            "none is cast apart.",
            label="Compiled",
        ),
    ]
    graphs: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Assume that CUDA graphs replay the kernels of a step: the host hands over one "
            "thing, and its time does not count.",
        ),
    ]
    memory_format: Annotated[str, MEMORY_FORMAT]
    attention: Annotated[str | None, ATTENTION]


class AlgorithmSettings(TypedDict, total=False):
    """Which algorithms convolutions may take."""

    workspace: Annotated[
        int | str | None,
        Setting(
            default=None,
            check=checked_workspace,
            help="The most scratch memory that an algorithm for a convolution may need, such as "
            "4GiB.",
            metavar="SIZE",
            shown_default="no limit",
        ),
    ]
    use_only_gemm: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Compute every convolution as a matrix multiplication (GEMM), by the library's "
            "quickest such algorithm.",
        ),
    ]


def _libraries() -> Iterable[str]:
    from paleo.costs.convolutions.libraries import LIBRARIES

    return LIBRARIES


CONV_LIBRARY = Setting(
    default=None,
    check=checked_library,
    help="The library that computes convolutions, each by its quickest algorithm: cudnn2 to cudnn9 "
    "(versions of cuDNN), onednn (on CPUs), any (every known algorithm), or cudnn, which asks the "
    "cuDNN of this machine.",
    choices=_libraries,
    metavar="NAME",
    shown_default="the device's own with tiled, else a matrix product",
)


class ConvolutionSettings(AlgorithmSettings, total=False):
    """By which algorithm convolutions are computed: the quickest of a library."""

    conv_library: Annotated[str | None, CONV_LIBRARY]


class EstimateSettings(RateSettings, KernelSettings, ConvolutionSettings, total=False):
    """How a pass of a graph is priced on a device."""


class PricingSettings(DeviceSettings, EstimateSettings, total=False):
    """How a net is priced on a device."""


OPTIMIZER = Setting(
    default="sgd",
    check=name_in(OPTIMIZERS),
    help="The optimizer, which decides how much state training keeps and how long an update takes:",
    describes=True,
    label="Optimizer",
    choices=lambda: OPTIMIZERS,
    metavar="NAME",
)


OPTIMIZER_KERNELS = Setting(
    default=None,
    check=checked_kernels,
    help="The kernels of the optimizer, as PyTorch has them: fused (one kernel of many tensors), "
    "foreach (step by step, many tensors at once) or forloop (step by step, tensor by tensor).",
    label="Optimizer kernels",
    choices=lambda: KERNELS,
    metavar="NAME",
    shown_default="the framework's own, of PyTorch foreach on GPUs",
)


class GradientSettings(TypedDict, total=False):
    """What is done to gradients before the update."""

    clip_gradients: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Assume that gradients are clipped before the update, to a norm over all of them.",
            label="Clipped gradients",
        ),
    ]
    scale_loss: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="Assume that the loss is scaled, as in training with fp16: gradients are divided "
            "by the scale and checked before the update.",
            label="Scaled loss",
        ),
    ]


class OptimizerSettings(TypedDict, total=False):
    """By which rule parameters are updated."""

    optimizer: Annotated[str, OPTIMIZER]
    optimizer_kernels: Annotated[str | None, OPTIMIZER_KERNELS]


class UpdateSettings(RateSettings, OptimizerSettings, GradientSettings, total=False):
    """How the update of parameters is priced on a device."""

    use_pipeline: Annotated[bool, USE_PIPELINE]
    framework: Annotated[str | None, FRAMEWORK]
    dtype: Annotated[str, DTYPE]


class ClusterSettings(
    PricingSettings,
    RecomputeSettings,
    NetworkSettings,
    OptimizerSettings,
    GradientSettings,
    SynchronousSettings,
    MeshSettings,
    LoaderSettings,
    total=False,
):
    """Devices and what connects them: all of a `Plan`."""

    other_devices: Annotated[str | Mapping[Any, int] | None, OTHER_DEVICES]


class PlanSettings(ClusterSettings, total=False):
    """All of a `Plan`."""

    schemes: Annotated[str | Sequence[str] | None, SCHEMES]


class MaybeDeviceSettings(TypedDict, total=False):
    """On what a net runs, if on anything."""

    device: Annotated[
        DeviceLike | None,
        DEVICE.with_default(
            None,
            help="Add the time of each layer on this device: a name from `paleo devices`, or a "
            "TOML file of your own.",
        ),
    ]
    dtype: Annotated[str, DTYPE]


class TimedSettings(MaybeDeviceSettings, EstimateSettings, total=False):
    """Of the layers of a net, with their times if there is a device."""


class GridSettings(
    KernelSettings,
    RecomputeSettings,
    ConvolutionSettings,
    OptimizerSettings,
    GradientSettings,
    SynchronousSettings,
    MeshSettings,
    LoaderSettings,
    total=False,
):
    """What nets run on, and how that is priced: every combination, where there are several.

    `VARIED` are those that may be several.
    """

    device: Annotated[
        DeviceLike | Sequence[DeviceLike],
        listing(
            "device",
            DEVICE,
            "Devices: names from `paleo devices`, or your own TOML files.",
        ),
    ]
    network: Annotated[
        NetworkLike | Sequence[NetworkLike],
        listing(
            "network",
            NETWORK,
            "Networks: names from `paleo networks`, or your own TOML files.",
        ),
    ]
    cluster: Annotated[
        ClusterLike | Sequence[ClusterLike | None] | None,
        listing(
            "cluster",
            CLUSTER,
            "Clusters: names from `paleo clusters`, or your own TOML files, with their own devices "
            "and networks.",
        ),
    ]
    batch_size: Annotated[int | Sequence[int], listing("batch_size", BATCH_SIZE)]
    cost_model: Annotated[
        str | CostModel | Sequence[str | CostModel], listing("cost_model", COST_MODEL)
    ]
    dtype: Annotated[
        str | Sequence[str],
        listing("dtype", DTYPE, f"Types ({', '.join(PRECISIONS)}) {_OF_ELEMENTS}"),
    ]
    ppp_comp: Annotated[Quantity, PPP_COMP]
    ppp_comm: Annotated[Quantity, PPP_COMM]


#: The settings of which every combination is asked, in the order in which they vary.
VARIED = ("cluster", "device", "network", "dtype", "cost_model", "batch_size")
#: Those of them that a cluster brings.
OF_CLUSTER = ("device", "network")


class ComparedSettings(
    KernelSettings, AlgorithmSettings, GradientSettings, OverlapSettings, total=False
):
    """Of a training step under one or several choices of settings, on one device or several."""

    device: Annotated[DeviceLike | Sequence[DeviceLike], declared(GridSettings)["device"]]
    network: Annotated[NetworkLike | Sequence[NetworkLike], declared(GridSettings)["network"]]
    cluster: Annotated[
        ClusterLike | Sequence[ClusterLike | None] | None, declared(GridSettings)["cluster"]
    ]
    workers: Annotated[int | Sequence[int], WORKERS.with_default((1,))]
    batch_size: Annotated[
        int | Sequence[int] | None,
        listing(
            "batch_size",
            replace(NET_BATCH_SIZE, shown_default="the first net's own"),
        ),
    ]
    ppp_comm: Annotated[Quantity, PPP_COMM]
    scheme: Annotated[str | Sequence[str | None] | None, listing("scheme", SCHEME)]
    accumulate: Annotated[int | Sequence[int], listing("accumulate", ACCUMULATE)]
    gradient_dtype: Annotated[
        str | Sequence[str | None] | None, listing("gradient_dtype", GRADIENT_DTYPE)
    ]
    compress: Annotated[
        str | Compression | Sequence[str | Compression | None] | None,
        listing("compress", COMPRESS),
    ]
    num_servers: Annotated[int | None, NUM_SERVERS]
    jitter: Annotated[float | None, JITTER]
    nccl: Annotated[str | None, NCCL]
    cost_model: Annotated[
        str | CostModel | Sequence[str | CostModel], declared(GridSettings)["cost_model"]
    ]
    ppp_comp: Annotated[
        float | Sequence[float],
        listing(
            "ppp_comp",
            PPP_COMP,
            "Shares of the device's peak FLOP/s that are reached, above 0, up to 1.",
        ),
    ]
    dtype: Annotated[str | Sequence[str], declared(GridSettings)["dtype"]]
    conv_library: Annotated[
        str | Sequence[str | None] | None, listing("conv_library", CONV_LIBRARY)
    ]
    importing: ImportOptions | None


class SummarySettings(TimedSettings, total=False):
    """Of the layers of a net, with their times if there is a device."""

    batch_size: Annotated[int | Quantity | None, NET_BATCH_SIZE]
    importing: ImportOptions | None


def found_settings(
    kind: type,
    given: Mapping[str, Any],
    mistakes: Mistakes,
    *,
    arrays: bool = False,
    base: type = PlanSettings,
) -> dict[str, Any]:
    """Return what every setting stands for, those of `base` that the kind has not at their default.

    What is wrong is noted, and None. Numbers may be `arrays` of them only if that is said.
    """
    own = declared(kind)
    return {
        name: mistakes.check(found_setting, setting, given[name], arrays)
        if name in given
        else mistakes.check(found_default, setting)
        for name, setting in (own | declared(base) | own).items()
    }
