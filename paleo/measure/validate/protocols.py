"""What is known of how published sources measured: data, by the source's key.

A row of a source that is not here is taken as it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from paleo.core.frozen import dataclass
from paleo.core.units import MIB
from paleo.costs import ConvolutionChoice


@dataclass(frozen=True)
class Protocol:
    """How a source measured, where its rows do not say.

    `input_link` is the network over which the timed region copies the batch to the device.
    `tf32`: fp32 was computed as TF32 on devices that can. `devices` says which device a name
    stands for there. `optimizer`: whether a time of a step has the update of the parameters in
    it; None: as the row's direction says. `unstated` is the element type of rows that say none;
    with `mixed`, nets in halves have parameters in fp32. `library` are the libraries of rows that
    name none. `is_tuned`: its stacks are as tuned as
    there are: fused, channels last, the host hidden.
    """

    note: str = ""
    input_link: str = ""
    tf32: bool = False
    devices: Mapping[str, str] = field(default_factory=dict)
    optimizer: bool | None = None
    unstated: str = ""
    library: str = ""
    mixed: bool = False
    is_tuned: bool = False
    #: What runs its forward passes, one of paleo.cluster.frameworks, where that is not as it says.
    inference: str = ""
    #: The version of PyTorch in rows that name none, and on devices where it is another one.
    pytorch: tuple[int, int] = (2, 0)
    pytorch_on: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: Whether a forward pass by itself is that of training.
    trains: bool = False
    #: Samples on a device where rows say none: by framework, net, device and precision.
    batches: Mapping[tuple[str, str, str, str], int] = field(default_factory=dict)
    #: By which algorithms convolutions are computed, by how a framework is called.
    convolutions: Mapping[str, ConvolutionChoice] = field(default_factory=dict)
    #: Nets of rows that name another one, by what stands as their source.
    nets: Mapping[str, str] = field(default_factory=dict)
    #: How the frameworks are called whose backward passes make the gradient of the images.
    image_gradient: tuple[str, ...] = ()
    #: How images lie in memory in rows that do not say, by framework, net and precision.
    memory_formats: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    #: Whether the host's launch and its wait are in times of operators.
    from_host: bool = False
    #: Letters of operators that the rows do not say.
    letters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: What a letter of an operator stands for there, where it is another one.
    means: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    #: Letters of operators that its program fills up for matrix units, and to multiples of what.
    filled: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)

    def read(self, operator: str, shape: Mapping[str, int], units: str = "") -> dict[str, int]:
        """Return the letters of a row's shape as they are called here, with those it leaves out.

        `units` is the element type, if matrix units multiply it.
        """
        other = self.means.get(operator, {})
        named = {other.get(letter, letter): value for letter, value in shape.items()}
        for letter, multiple in self.filled.get((operator, units), {}).items():
            named[letter] += -named[letter] % multiple
        return {**named, **self.letters.get(operator, {})}


PLAIN = Protocol()
#: The rounds of MLPerf Training.
_MLPERF = [
    "0.5",
    "0.6",
    "0.7",
    "1.0",
    "1.1",
    "2.0",
    "2.1",
    "3.0",
    "3.1",
    "4.0",
    "4.1",
    "5.0",
    "5.1",
]
#: NVIDIA's DeepLearningExamples: PyTorch/Classification/ConvNets/configs.yml for DGX1V, which its
#: scripts run, and the commands in MxNet/Classification/RN50v1.5/README.md; fp32 and mixed.
_DLE_BATCHES = {
    ("PyTorch", "resnet50-v1.5", ""): (112, 256),
    ("PyTorch", "resnext101-32x4d", ""): (64, 128),
    ("PyTorch", "se-resnext101-32x4d", ""): (64, 112),
    ("MxNet", "resnet50-v1.5", "-16GB"): (96, 192),
    ("MxNet", "resnet50-v1.5", "-32GB"): (128, 256),
}

#: Its tables of BERT in TensorFlow 2, two by two of the large net and of the base ("BERT-Base
#: FP16", "BERT-Base FP32"): the lines where those of the base begin.
_DLE_BERT = "NVIDIA/DeepLearningExamples TensorFlow2/LanguageModeling/BERT/README.md@729963dd47e7"
_DLE_BASE_LINES = (856, 869, 914, 927, 973, 986, 1031, 1045)

PROTOCOLS: dict[str, Protocol] = {
    # Caffe gives cuDNN 8 MiB a layer (src/caffe/layers/cudnn_conv_layer.cpp,
    # workspace_limit_bytes); where a version is not stated it is the newest of that time.
    "convnet_benchmarks": Protocol(
        "forward and backward without the optimizer, dropout and softmax",
        optimizer=False,
        library="cuDNN 4",
        convolutions={"Caffe(cuDNN build": ConvolutionChoice(None, 8 * MIB)},
    ),
    "cnn_benchmarks": Protocol(
        "forward and backward without the optimizer, both of a net in training",
        optimizer=False,
        trains=True,
    ),
    "caffe2_convnet": Protocol(
        "forward and backward, with the gradient of the images, without the optimizer",
        optimizer=False,
        image_gradient=("Caffe2",),
    ),
    # Its README: "CuDNN 7.0.0.5 ... except where noted"; frameworks/pytorch/models.py gives images
    # with requires_grad, frameworks/caffe2/models.py adds all gradients.
    "u39kun": Protocol(
        "forward and backward without the optimizer, in PyTorch and Caffe2 with the gradient of "
        "the images",
        optimizer=False,
        library="cuDNN 7.0",
        # caffe2/operators/conv_op_cudnn.cc, kCONV_CUDNN_WORKSPACE_LIMIT_BYTES
        convolutions={"Caffe2": ConvolutionChoice(None, 64 * MIB)},
        image_gradient=("PyTorch", "Caffe2"),
    ),
    # Its script times torch.bmm of B x M x N by B x N x K; rows of linear layers are named alike.
    "neusight_ops": Protocol(
        "N is what products sum over, K are their columns",
        means={name: {"N": "K", "K": "N"} for name in ("bmm", "linear")},
    ),
    "neusight_e2e": Protocol("forward and backward without the optimizer", optimizer=False),
    # Its program (code/nvidia/conv_bench.cu, PAD_KERNELS): "Tensor cores need channels to be a
    # multiple of 8. So, added padding for some kernels."
    "deepbench": Protocol(
        "recurrent layers skip the product with the inputs; channels are filled up to multiples of "
        "eight for matrix units",
        filled={("conv2d", "fp16"): {"C": 8}},
    ),
    "llmcompass": Protocol("times from the host, with its launch and its wait", from_host=True),
    # Its README: results of a TITAN V of 2019 and of the RTX 2080 Ti of January 2020, with cuDNN
    # 7.6; NVIDIA's container 20.10 on A100 and RTX 3090.
    "ryujaehun": Protocol(
        "the timed region copies the batch to the device; no optimizer; TF32 where there is",
        input_link="pcie3",
        tf32=True,
        optimizer=False,
        pytorch=(1, 7),
        pytorch_on=dict.fromkeys(("TITAN_V", "GTX_1080_TI", "RTX_2080_TI"), (1, 4)),
    ),
    "dlperf": Protocol("stacks of 2020", pytorch=(1, 5)),
    # vLLM's kernels of 2023 move one element of two bytes at a time.
    "vidur_ops": Protocol(
        "kernel times of vLLM's operators of 2023",
        letters={"rmsnorm": {"width": 2}, "silu_mul_act": {"width": 2}},
    ),
    **{
        f"mlperf_training_v{version}": Protocol(
            "times of whole epochs without evaluation, of the most tuned stacks; rows that say no "
            "element type are taken to compute in halves, as these stacks nearly always do",
            unstated="fp16",
            mixed=True,
            is_tuned=True,
        )
        for version in _MLPERF
    },
    # What normalizes in halves shows in nets of group normalizations, which take half the time
    # that normalizations in fp32 and their casts would.
    "timm": Protocol("inference as with timm's --fast-norm", inference="timm"),
    # PyTorch/Classification/ConvNets/configs.yml: memory_format: nhwc for AMP alone, and
    # MxNet/Classification/RN50v1.5/runner: --conv-layout NHWC for float16; the container of
    # TensorFlow/Classification/ConvNets/Dockerfile, whose nets are NCHW unless told.
    "nvidia_dle": Protocol(
        "batches and memory formats that its tables leave out are those of its scripts",
        library="NGC tensorflow-20.12",
        nets={f"{_DLE_BERT} line {line}": "bert-base" for line in _DLE_BASE_LINES},
        memory_formats={
            (framework, net, "mixed(fp16)"): "channels_last"
            for framework, net in dict.fromkeys(key[:2] for key in _DLE_BATCHES)
        },
        batches={
            (framework, net, f"V100-SXM{memory}", precision): batch
            for (framework, net, only), both in _DLE_BATCHES.items()
            for memory in ("-16GB", "-32GB")
            if only in ("", memory)
            for precision, batch in zip(("fp32", "mixed(fp16)"), both, strict=True)
        },
    ),
    "lambda": Protocol(
        "the container computes fp32 as TF32 where it can", tf32=True, library="NGC pytorch-22.09"
    ),
}


def protocol_of(source_id: str) -> Protocol:
    """Return what is known of a source."""
    return PROTOCOLS.get(source_id, PLAIN)
