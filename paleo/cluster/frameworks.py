"""What frameworks do with a net: which kernels they run, and what share of peak they reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paleo.cluster.device import OTHER_MAKERS, Device
from paleo.cluster.gradient_exchange import (
    AT_ONCE,
    DDP,
    FUSED,
    HOROVOD,
    KVSTORE,
    MIRRORED,
    PADDLE,
    PLAIN,
    TUNED,
    Exchange,
)
from paleo.core.checks import shown
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.kinds import AUTOCAST, Autocast, Fusion
from paleo.core.quantity import Quantity, maximum
from paleo.core.registry import Registry
from paleo.net.parameters import Handling


@dataclass(frozen=True)
class Software:
    """The "platform percent of peak" of a framework, in computation and in communication.

    Fitted by Qi, Sparks, Talwalkar, "Paleo: A Performance Model for Deep Neural Networks", ICLR
    2017, for the frameworks of 2016: with the cost model `paleo2017` they reproduce its figures.
    """

    name: str
    ppp_comp: float
    ppp_comm: float


#: The presets of the paper's case studies.
SOFTWARE: Registry[Software] = Registry("software")

for _each in (
    Software("Caffe", 0.21, 0.56),
    Software("MXNet", 0.49, 0.72),
    Software("TensorFlow", 0.62, 0.72),
):
    SOFTWARE.add(_each.name, _each)


#: A server's core beside a workstation's, in what it hands over: passes of eager PyTorch take 62 us
#: an operation at batches of 1 to 8 on a DGX-1 (Xeon E5-2698 v4; NVIDIA's DeepLearningExamples), 30
#: with an RTX 2080 Ti or a TITAN V (ryujaehun/pytorch-gpu-benchmark).
_SERVER = 2.0
#: Bytes of a half.
_HALF = 2
#: How far GPUs of one kind differ: 8 % of the median between the whiskers of their distribution,
#: which are 5.4 standard deviations apart if it is normal (P. Sinha et al., "Not all GPUs are
#: created equal", SC 2022).
_OF_GPUS = 0.015
#: With hosts and input pipelines: what steps of 2 to 8 GPUs of one node show on the whole
#: (tf_cnn_benchmarks, lambda, nvidia_dle, dlperf), within 0.015 to 0.05.
_OF_WORKERS = 0.03


def _core(device: Device) -> float:
    """Return how many times as long as a workstation's core the host of a device takes."""
    return _SERVER if device.is_server else 1.0


@dataclass(frozen=True)
class Framework:
    """How a framework runs a net on a device, as `source` says.

    `host` are the seconds in which a workstation's core hands over an operation, while the device
    does others. `fusion` says which pointwise operations run in the kernel before them, `autocast`
    what mixed precision computes in fp32 and casts in between, None if it does neither; `handling`
    what is done with parameters and gradients besides what layers do. `compiled` is the same net
    compiled; None if the framework does not compile.
    """

    name: str
    summary: str
    source: str
    host: Quantity = 0.0
    #: Seconds in which such a core hands over each tensor of parameters, before all operations.
    host_for_tensor: float = 0.0
    #: And an operation of the update, where that takes it longer than others.
    host_for_update: float = 0.0
    fusion: Fusion = Fusion.NONE
    autocast: Autocast | None = None
    handling: Handling = Handling()
    compiled: Framework | None = None
    #: Whether functions that a user composes are fused, those of an update among them.
    compiles: bool = False
    #: How it has images lie in memory by itself, "" for as they are given.
    memory_format: str = ""
    #: Whether that is so of halves alone, which matrix units multiply.
    last_halves: bool = False
    #: Whether it leaves images as they are given where grouped convolutions do most of the work.
    weighs_groups: bool = False
    #: Whether it composes GELU, dropout and layer normalizations of elementary kernels.
    composes: bool = False
    #: Whether models are those of transformers, whose code composes layers of its functions.
    runs_transformers: bool = False
    #: Whether attention is products and a softmax, each a kernel of its own.
    in_steps: bool = False
    #: Whether each step of a function's gradients is a kernel of its own.
    gradients_apart: bool = False
    #: Whether permutations of a tensor's dimensions are views of it.
    views: bool = False
    #: Whether it asks for recurrent kernels that keep their weights on the chip.
    persistent: bool = False
    #: Whether the formula of an optimizer is taken step by step, each a pass over all parameters.
    updates_in_steps: bool = False
    #: Whether it has a kernel of Adam, and none of Adam with a decay of weights.
    decays_apart: bool = False
    #: Whether parameters are updated by kernels for each tensor; else, many tensors share one.
    updates_each: bool = False
    #: The framework whose measured cases say how far it is off, where it is one of its versions.
    version_of: str = ""
    #: Whether it is a library of NVIDIA's, for its GPUs.
    is_nvidia: bool = False
    #: How its workers exchange gradients, those of PyTorch where nothing is said.
    exchange: Exchange = DDP
    #: Whether stages of a pipeline have buffers to receive all micro-batches in, and keep what they
    #: sent until its gradient is there.
    receives_all: bool = False
    #: Whether what tensor parallelism gathers for products is kept for their backward pass.
    keeps_gathered: bool = False
    #: The standard deviation of its workers' steps, as a share of their mean.
    jitter: float = _OF_WORKERS
    #: Devices that one process hands operations to.
    devices: Quantity = 1

    def images(self, size: int) -> str:
        """Return how it has images lie whose elements have `size` bytes, "" for as given."""
        return "" if self.last_halves and size > _HALF else self.memory_format

    @property
    def family(self) -> str:
        """The name of the framework that it is a version of, or its own."""
        return self.version_of or self.name

    def runs_on(self, device: Device) -> bool:
        """Tell whether there is a build of it for a device."""
        is_other = device.kind != "gpu" or device.architecture in OTHER_MAKERS
        return not (self.is_nvidia and is_other)

    def host_of(self, device: Device) -> Quantity:
        """Return the seconds in which the host of a device hands over an operation.

        They are the device file's own, where it says so (`paleo calibrate` measures them).
        """
        own = device.constants.get("host")
        return (self.host * _core(device) if own is None else own.value) * self.devices

    def update_host_of(self, device: Device, host: Quantity) -> Quantity:
        """Return the seconds for an operation of the update, of `host` for any."""
        return maximum(host, self.host_for_update * _core(device) * self.devices)

    def start_on(self, device: Device, tensors: Quantity) -> Quantity:
        """Return the seconds before the first operation on parameters of so many tensors."""
        return self.host_for_tensor * _core(device) * tensors

    def driving(self, devices: Quantity) -> Framework:
        """Return the framework where one process hands over the operations of so many devices."""
        return replace(self, devices=devices)


#: Every kernel by itself, and nothing on the host.
NO_FRAMEWORK = Framework("", "", "", exchange=PLAIN, jitter=0.0)
#: TorchInductor, without CUDA graphs.
INDUCTOR = Framework(
    "pytorch_compiled",
    "nets compiled by PyTorch's TorchInductor",
    "PyTorch, torch.compiler documentation: TorchInductor generates Triton kernels for pointwise "
    "operations, leaves products and convolutions to libraries, and has images channels last "
    "(torch/_inductor/config.py, layout_optimization)",
    fusion=Fusion.STREAMS,
    autocast=AUTOCAST,
    handling=Handling(is_cast=True),
    memory_format="channels_last",
    weighs_groups=True,
    views=True,
    updates_in_steps=True,
)
#: XLA. What it makes of TensorFlow's elementary kernels is one for each layer.
XLA = Framework(
    "tensorflow_compiled",
    "graphs compiled by TensorFlow's XLA: a kernel for each layer, handed over sooner",
    "OpenXLA, XLA:GPU architecture overview (elementwise operations and reductions are fused, "
    "products and convolutions left to libraries); debug_options_flags.cc: cuDNN's batch "
    "normalizations are off, service/batchnorm_expander.cc; halves have images channels last: "
    "xla/service/gpu/transforms/layout_assignment.cc, HeuristicLayoutAssignment; parameters are "
    "cast in every step: TensorFlow, auto_mixed_precision.cc; each comes by an operation of its "
    "own before the compiled program: tensorflow/compiler/jit/kernels/xla_ops.cc; host: passes of "
    "BERT-Base of NVIDIA's DeepLearningExamples at batches of 1 to 8 begin 6 us a tensor of "
    "parameters later on a DGX-1, and a kernel's launch takes 8 us at most; BERT-Large agrees. "
    "Where an update waits for infinities, each tensor's takes as long as without XLA: steps of "
    "BERT-Base and BERT-Large in mixed precision there and in DLPerf are 30 to 40 ms longer than "
    "their kernels, whatever the batch",
    host=3e-6,
    host_for_tensor=3e-6,
    host_for_update=15e-6,
    fusion=Fusion.NORMS,
    autocast=Autocast(full_softmax=False),
    handling=Handling(is_cast=True),
    memory_format="channels_last",
    last_halves=True,
    compiles=True,
    updates_each=True,
    exchange=MIRRORED,
)

_TENSORFLOW = Framework(
    "tensorflow",
    "TensorFlow's graphs: a kernel for each operation, mixed precision of halves; GELU, dropout "
    "and layer normalizations are composed of several",
    "TensorFlow, keras/mixed_precision (a layer computes in halves, normalizations in fp32) and "
    "core/grappler/optimizers/auto_mixed_precision_lists.h (Softmax in GrayList); "
    "paleo/net/composed.py has the code of what is composed; host: ResNets and BERT of NVIDIA's "
    "DeepLearningExamples at batches of 1 to 256 take 30 us an operation on a DGX-1",
    host=15e-6,
    autocast=Autocast(full_softmax=False),
    composes=True,
    compiled=XLA,
    decays_apart=True,
    updates_each=True,
    exchange=MIRRORED,
)
#: The rewrite of a graph to halves in TensorFlow 1.
_REWRITE = Autocast(functions=("gelu",), full_softmax=False)
_MINDSPORE = Framework(
    "mindspore",
    "MindSpore 1's graphs: a kernel for each operation; gradients of layer normalizations are "
    "summed column by column; mixed precision leaves all but sums and losses in halves",
    "MindSpore 1.1, model_zoo/official/nlp/bert/src/bert_model.py (to_float of products and layer "
    "normalizations; parameters are fp32); paleo/net/parameters.py, by_columns; no host: none was "
    "measured",
    autocast=Autocast(full_softmax=False, half_norms=True),
    handling=Handling(is_cast=True, in_block=1),
    updates_each=True,
    exchange=FUSED,
)
#: With Graph Kernel Fusion (context.set_context, enable_graph_kernel), which generates kernels.
_GRAPH_KERNELS = replace(
    _MINDSPORE, name="mindspore_compiled", handling=Handling(is_cast=True), compiles=True
)
_PYTORCH_1 = Framework(
    "pytorch1",
    "eager PyTorch 1: as 2, but attention is products and a softmax, each a kernel, and "
    "gradients are set to zero and added to",
    "PyTorch 2.0 release notes: scaled_dot_product_attention is new, zero_grad sets to None; "
    "torch/csrc/autograd/functions/accumulate_grad.h; "
    "aten/src/ATen/native/cuda/layer_norm_kernel.cu of 1.12; host: as pytorch",
    host=30e-6,
    fusion=Fusion.BIAS,
    autocast=AUTOCAST,
    handling=Handling(is_cast=True, is_added=True, in_block=16),
    version_of="pytorch",
    views=True,
    gradients_apart=True,
    in_steps=True,
    updates_in_steps=True,
    updates_each=True,
)

_PYTORCH = Framework(
    "pytorch",
    "eager PyTorch 2: a kernel for each operation, biases of products within them, autocast",
    "PyTorch, aten/src/ATen/native/cuda/Blas.cpp (addmm by cuBLASLt with a bias epilogue); "
    "Automatic Mixed Precision package, Autocast Op Reference; host: forward passes of "
    "ryujaehun/pytorch-gpu-benchmark on an RTX 2080 Ti and a TITAN V in either precision are "
    "those of a queue that takes 30 us an operation; torch/distributed/pipelining/stage.py "
    "(_setup_forward_recv_info, fwd_cache); "
    "torch/distributed/tensor/parallel/style.py (a product keeps its gathered input)",
    host=30e-6,
    fusion=Fusion.BIAS,
    autocast=AUTOCAST,
    handling=Handling(is_cast=True),
    views=True,
    gradients_apart=True,
    compiled=INDUCTOR,
    updates_in_steps=True,
    receives_all=True,
    keeps_gathered=True,
)
#: PyTorch where each layer has its parameters in halves, and nothing is cast in between.
_IN_HALVES = replace(
    _PYTORCH,
    autocast=None,
    handling=Handling(),
    version_of="pytorch",
    compiled=replace(INDUCTOR, autocast=None, handling=Handling()),
)

FRAMEWORKS: Registry[Framework] = Registry("framework")

for _framework in (
    _PYTORCH,
    _PYTORCH_1,
    replace(
        _PYTORCH,
        name="transformers",
        summary="Hugging Face's models on eager PyTorch 2: normalizations by root mean squares, "
        "rotary embeddings and gates are several kernels each, scores are cast to fp32",
        source="paleo/net/composed_transformers.py has the code of what is composed; else as "
        "pytorch",
        runs_transformers=True,
        version_of="pytorch",
    ),
    replace(
        _PYTORCH_1,
        name="megatron",
        summary="Megatron-LM: eager PyTorch whose parameters are halves, updated by one kernel",
        source="NVIDIA/Megatron-LM: model/module.py (Float16Module), optimizer (fused Adam of apex "
        "on fp32 parameters beside), model/distributed.py (gradients in one buffer, exchanged when "
        "the backward pass is done); host: as pytorch",
        autocast=None,
        handling=Handling(),
        gradients_apart=False,
        in_steps=False,
        updates_in_steps=False,
        updates_each=False,
        exchange=AT_ONCE,
    ),
    replace(
        _IN_HALVES,
        name="torchtitan",
        summary="torchtitan: eager PyTorch 2 whose layers have parameters of halves, from FSDP",
        source="PyTorch, torch.distributed.fsdp, MixedPrecisionPolicy: shards are cast before they "
        "are gathered, and no operation is, as under autocast; host: as pytorch",
    ),
    replace(
        _IN_HALVES,
        name="deepspeed",
        summary="DeepSpeed: eager PyTorch 2 whose layers have parameters of halves",
        source="deepspeedai/DeepSpeed, deepspeed/runtime/engine.py: a module is cast to halves, "
        "fp32 parameters are the optimizer's; host: as pytorch",
    ),
    replace(
        _PYTORCH_1,
        name="pytorch0",
        summary="eager PyTorch before 1.5: as 1, and loops over elements move one at a time",
        source="PyTorch, pull request 32383 (vectorized memory access in TensorIterator), of 1.5; "
        "before, aten/src/ATen/native/cuda/Loops.cuh loaded and stored single elements; host: as "
        "pytorch",
        handling=_PYTORCH_1.handling._replace(is_narrow=True),
    ),
    replace(
        _PYTORCH_1,
        name="torchscript",
        summary="PyTorch 1 by TorchScript: as pytorch1, handed over sooner, without Python",
        source="PyTorch, torch.jit.script; torch/csrc/jit/runtime/interpreter.cpp; host: the base "
        "model of Transformer-XL in halves of NVIDIA's DeepLearningExamples takes 28 us an "
        "operation at a batch of 1 on a DGX-1; single precision and the large model agree",
        host=14e-6,
    ),
    Framework(
        "timm",
        "eager PyTorch 2 with timm's fast norm: its own normalizations in halves, too",
        "huggingface/pytorch-image-models, timm/layers/fast_norm.py; host: as pytorch",
        host=30e-6,
        fusion=Fusion.BIAS,
        autocast=Autocast(fast_norms=True),
        handling=Handling(is_cast=True),
        version_of="pytorch",
        views=True,
        gradients_apart=True,
        compiled=replace(INDUCTOR, autocast=Autocast(fast_norms=True)),
        updates_in_steps=True,
    ),
    _TENSORFLOW,
    replace(
        _TENSORFLOW,
        name="tensorflow1",
        summary="TensorFlow 1: as 2, but its rewrite of a graph to halves leaves GELU in fp32",
        source="TensorFlow 1.15, core/grappler/optimizers/auto_mixed_precision_lists.h: powers are "
        "computed in fp32, and what follows them; else as tensorflow",
        version_of="tensorflow",
        autocast=_REWRITE,
        compiled=replace(XLA, autocast=_REWRITE, exchange=HOROVOD),
        exchange=HOROVOD,
    ),
    Framework(
        "mxnet",
        "MXNet's graphs: a kernel for each operation, automatic mixed precision",
        "Apache MXNet, python/mxnet/amp/lists/symbol_fp16.py; host: ResNet-50 of NVIDIA's "
        "DeepLearningExamples at batches of 1 to 256 takes 25 us an operation on a DGX-1",
        host=12.5e-6,
        autocast=AUTOCAST,
        updates_each=True,
        exchange=KVSTORE,
    ),
    Framework(
        "paddle",
        "PaddlePaddle 1's graphs: a kernel for each operation; gradients of biases and layer "
        "normalizations are summed column by column; mixed precision leaves GELU in fp32",
        "PaddlePaddle 1.8, python/paddle/fluid/contrib/mixed_precision/fp16_utils.py (operators of "
        "no list are computed in fp32; parameters are cast by operators of their own); "
        "paleo/net/parameters.py, by_columns; no host: none was measured",
        autocast=Autocast(functions=("gelu",)),
        handling=Handling(is_cast=True, in_block=1, rewrites=True),
        updates_each=True,
        exchange=PADDLE,
    ),
    replace(_MINDSPORE, compiled=_GRAPH_KERNELS),
    Framework(
        "tuned",
        "a training stack as tuned as those of MLPerf: pointwise operations within other kernels",
        "MLCommons, training_results repositories: normalization and activation fused with "
        "convolutions, channels last, CUDA graphs",
        fusion=Fusion.ALL,
        memory_format="channels_last",
        exchange=TUNED,
        jitter=_OF_GPUS,  # hosts and input pipelines are hidden
    ),
    Framework(
        "tensorrt",
        "an engine that is built ahead of time: all pointwise operations within other kernels",
        "NVIDIA TensorRT Developer Guide, Types of Fusions, and formats that it chooses by itself",
        fusion=Fusion.ALL,
        memory_format="channels_last",
        is_nvidia=True,
    ),
):
    FRAMEWORKS.add(_framework.name, _framework)
FRAMEWORKS.built_in = tuple(FRAMEWORKS)


def running(framework: Framework | None, compiled: bool) -> Framework:
    """Return what runs a net: the framework, or what compiles for it, TorchInductor for none."""
    named = framework or NO_FRAMEWORK
    return (named.compiled or INDUCTOR) if compiled else named


def find_framework(value: Any) -> Framework | None:
    """Return a framework, also of its name, or None; raises UnknownNameError or SettingError."""
    if isinstance(value, str):
        return FRAMEWORKS[value]
    if not isinstance(value, Framework | None):
        raise SettingError(f"framework: expected a framework, got {shown(value)}")
    return value
