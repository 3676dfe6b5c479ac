"""What is known of how published sources measured: data, by the source's key.

A row of a source that is not here is taken as it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

from paleo.core.frozen import dataclass
from paleo.core.units import MIB
from paleo.costs import ConvolutionChoice
from paleo.costs.convolutions import DEFAULT
from paleo.measure.validate.measured import Measurement


@dataclass(frozen=True)
class Script:
    """What the scripts of a part of a repository ask for, where rows say it otherwise or not.

    They made the rows whose `source` has `place` in it, and whose precision, direction, device and
    network are these; "" is any. `says` are the values, by the names of Measurement.
    """

    place: str
    says: Mapping[str, Any]
    precision: str = ""
    direction: str = ""
    device: str = ""
    network: str = ""

    def made(self, row: Measurement) -> bool:
        """Tell whether they made a row."""
        asked = ("precision", "direction", "device", "network")
        return self.place in row.source and all(
            getattr(self, name) in ("", getattr(row, name)) for name in asked
        )


class Copied(NamedTuple):
    """What a timed region copies between the host and the device, over which network.

    The batch comes in elements of `size` bytes, 0 for those of the net, and so many bytes a sample
    go there or back `besides`.
    """

    network: str = ""
    size: int = 0
    besides: int = 0


@dataclass(frozen=True)
class Protocol:
    """How a source measured, where its rows do not say.

    `input_link` is the network over which the timed region copies the batch to the device.
    `tf32`: fp32 was computed as TF32 on devices that can. `devices` says which device a name
    stands for there. `updates`: whether a time of a step has the update of the parameters in it,
    where its direction does not say; `optimizers` by which rule they are, by words that a row has
    in its framework and its net, the first that fit. `unstated` is the type of rows that say none;
    with `mixed`, nets in halves have parameters in fp32. `library` are the libraries of rows that
    name none. `is_tuned`: its stacks are as tuned as
    there are: fused, channels last, the host hidden.
    """

    note: str = ""
    input_link: str = ""
    tf32: bool = False
    devices: Mapping[str, str] = field(default_factory=dict)
    updates: bool = True
    optimizers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    #: Words that a row has in its framework and its net where gradients are clipped to a norm.
    clipped: tuple[tuple[str, str], ...] = ()
    #: Whether mixed precision scales the loss.
    scales_loss: bool = False
    unstated: str = ""
    library: str = ""
    mixed: bool = False
    is_tuned: bool = False
    #: What runs its forward passes, one of paleo.cluster.frameworks, where that is not as it says.
    inference: str = ""
    #: The version of PyTorch in rows that name none, and on devices where it is another one.
    pytorch: tuple[int, int] = (2, 0)
    pytorch_on: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: The first number of TensorFlow's version in rows that name none.
    tensorflow: int = 2
    #: Whether a forward pass by itself is that of training.
    trains: bool = False
    #: What its scripts ask for; of several that made a row all say something.
    scripts: tuple[Script, ...] = ()
    #: Lengths of sequences where rows say none, by words in their net.
    lengths: Mapping[str, int] = field(default_factory=dict)
    #: Sequences that are shorter than they say: words in the framework and the net, and the length.
    binned: tuple[str, str, int] | None = None
    #: What is copied in some rows: words in their source, their direction, and that.
    copied: tuple[tuple[str, str, Copied], ...] = ()
    #: Times that are not of runs alone: words in the source, the quantity and the direction of such
    #: rows, and what else is in them.
    mingled: tuple[tuple[str, str, str, str], ...] = ()
    #: By which algorithms convolutions are computed, by how a framework is called.
    convolutions: Mapping[str, ConvolutionChoice] = field(default_factory=dict)
    #: How the frameworks are called whose backward passes make the gradient of the images.
    image_gradient: tuple[str, ...] = ()
    #: Whether the host's launch and its wait are in times of operators.
    from_host: bool = False
    #: Seconds of each operator's time that are the host's: it hands over, and may wait for the end.
    handed_over: float = 0.0
    #: Seconds of which its times of operators are whole multiples, the rest cut off. Half of one is
    #: missing on average.
    whole: float = 0.0
    #: Letters of operators that the rows do not say.
    letters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: What a letter of an operator stands for there, where it is another one.
    means: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    #: Letters of operators that its program fills up for matrix units, and to multiples of what.
    filled: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)

    def convolution(self, framework: str) -> ConvolutionChoice:
        """Return by which algorithms this framework computed convolutions."""
        known = self.convolutions.items()
        return next((choice for begin, choice in known if framework.startswith(begin)), DEFAULT)

    def optimizer(self, framework: str, network: str) -> str:
        """Return by which rule this framework updated this net; plain descent if nobody says."""
        known = self.optimizers.items()
        return next((rule for words, rule in known if _fit(words, framework, network)), "sgd")

    def clips(self, framework: str, network: str) -> bool:
        """Tell whether this framework clipped gradients of this net."""
        return any(_fit(words, framework, network) for words in self.clipped)

    def length(self, network: str) -> int | None:
        """Return the length of a net's sequences where a row says none; None: the net's own."""
        text = network.casefold()
        return next((each for words, each in self.lengths.items() if words in text), None)

    def is_binned(self, framework: str, network: str, length: float | None) -> bool:
        """Tell whether sequences of a row are shorter than it says."""
        if self.binned is None:
            return False
        *words, most = self.binned
        texts = (framework.casefold(), network.casefold())
        return length == most and all(map(str.__contains__, texts, words))

    def copied_in(self, row: Measurement) -> Copied:
        """Return what the timed region of a row copies."""
        for place, direction, copied in self.copied:
            if place in row.source and direction == row.direction:
                return copied
        return Copied(self.input_link)

    def mingled_with(self, row: Measurement) -> str:
        """Return what is in a row's time besides what it says, "" for nothing."""
        said = (row.quantity.name, row.direction)
        return next(
            (what for place, *of, what in self.mingled if place in row.source and said == (*of,)),
            "",
        )

    def read(self, operator: str, shape: Mapping[str, int], units: str = "") -> dict[str, int]:
        """Return the letters of a row's shape as they are called here, with those it leaves out.

        `units` is the element type, if matrix units multiply it.
        """
        other = self.means.get(operator, {})
        named = {other.get(letter, letter): value for letter, value in shape.items()}
        for letter, multiple in self.filled.get((operator, units), {}).items():
            named[letter] += -named[letter] % multiple
        return {**named, **self.letters.get(operator, {})}

    def as_run(self, row: Measurement) -> Measurement:
        """Return a row with what the scripts that made it ask for."""
        made = [script.says for script in self.scripts if script.made(row)]
        says = {name: value for each in made for name, value in each.items()}
        return replace(row, **says) if says else row


def _fit(words: tuple[str, str], framework: str, network: str) -> bool:
    """Tell whether the first of two words is in a framework's name and the second in a net's."""
    return words[0] in framework.casefold() and words[1] in network.casefold()


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
_MIXED = "mixed(fp16)"
_LAST = {"memory_format": "channels_last"}
#: Samples on a device in fp32 and in mixed precision that scripts of DeepLearningExamples train
#: with, on the V100: configs.yml for DGX1V, and the commands in the README of MXNet's ResNet-50.
_DLE_BATCHES = (
    ("PyTorch/Classification/ConvNets/resnet50v1.5/", "", 112, 256),
    ("PyTorch/Classification/ConvNets/resnext101-32x4d/", "", 64, 128),
    ("PyTorch/Classification/ConvNets/se-resnext101-32x4d/", "", 64, 112),
    ("MxNet/Classification/RN50v1.5/", "V100-SXM-16GB", 96, 192),
    ("MxNet/Classification/RN50v1.5/", "V100-SXM-32GB", 128, 256),
)
#: Where tables begin that are headed "BERT-Base", of inference on the V100 with 16 and 32 GB, the
#: A100 and the T4.
_DLE_BERT2 = "TensorFlow2/LanguageModeling/BERT/"
_DLE_BERT2_BASE = (856, 869, 914, 927, 973, 986, 1031, 1045)
#: Where the README of Transformer-XL in PyTorch has tables that are headed "TorchScript".
_DLE_XL = "PyTorch/LanguageModeling/Transformer-XL/"
_DLE_XL_SCRIPTED = (1746, 1768, 1806, 1828)
#: The scripts of DeepLearningExamples: configs.yml of image nets in PyTorch, MXNet's `runner` (in
#: training its kernels are those of MLPerf's stacks: --fuse-bn-relu, --fuse-bn-add-relu), the
#: container that the README of image nets in TensorFlow names, BERT's
#: finetune_inference_benchmark.sh and run_squad.sh, Transformer-XL's eval.py (model.to(float16)).
_DLE_SCRIPTS = (
    Script("PyTorch/Classification/ConvNets/", _LAST, _MIXED),
    Script("MxNet/Classification/RN50v1.5/", _LAST, _MIXED),
    Script("MxNet/Classification/RN50v1.5/", {"framework": "MXNet, tuned"}, _MIXED, "train"),
    Script("TensorFlow/Classification/ConvNets/", {"library_version": "NGC tensorflow-20.06"}),
    Script("TensorFlow/LanguageModeling/BERT/", {"framework": "TensorFlow +XLA"}),
    Script(_DLE_BERT2, {"framework": "TensorFlow2 +XLA"}),
    Script(_DLE_XL, {"precision": "fp16"}, _MIXED, "inference"),
    *(
        Script(
            f"{_DLE_XL}README.md@729963dd47e7 line {line}", {"framework": "PyTorch, TorchScript"}
        )
        for line in _DLE_XL_SCRIPTED
    ),
    *(
        Script(f"{_DLE_BERT2}README.md@729963dd47e7 line {line}", {"network": "bert-base"})
        for line in _DLE_BERT2_BASE
    ),
    *(
        Script(place, {"batch_per_device": batch}, precision, "train", device)
        for place, device, *both in _DLE_BATCHES
        for precision, batch in zip(("fp32", _MIXED), both, strict=True)
    ),
)

PROTOCOLS: dict[str, Protocol] = {
    # Caffe gives cuDNN 8 MiB a layer (src/caffe/layers/cudnn_conv_layer.cpp,
    # workspace_limit_bytes); where a version is not stated it is the newest of that time.
    "convnet_benchmarks": Protocol(
        "forward and backward without the optimizer, dropout and softmax",
        updates=False,
        library="cuDNN 4",
        convolutions={"Caffe(cuDNN build": ConvolutionChoice(None, 8 * MIB)},
    ),
    "cnn_benchmarks": Protocol(
        "forward and backward without the optimizer, both of a net in training",
        updates=False,
        trains=True,
    ),
    "caffe2_convnet": Protocol(
        "forward and backward, with the gradient of the images, without the optimizer",
        updates=False,
        image_gradient=("Caffe2",),
    ),
    # Its README: "CuDNN 7.0.0.5 ... except where noted"; frameworks/pytorch/models.py gives images
    # with requires_grad, frameworks/caffe2/models.py adds all gradients.
    "u39kun": Protocol(
        "forward and backward without the optimizer, in PyTorch and Caffe2 with the gradient of "
        "the images",
        updates=False,
        library="cuDNN 7.0",
        # caffe2/operators/conv_op_cudnn.cc, kCONV_CUDNN_WORKSPACE_LIMIT_BYTES
        convolutions={"Caffe2": ConvolutionChoice(None, 64 * MIB)},
        image_gradient=("PyTorch", "Caffe2"),
    ),
    # Its script times torch.bmm of B x M x N by B x N x K; rows of linear layers are named alike.
    # Each call is timed by itself: of its pointwise operators, of 86 us to 0.1 s, lines through
    # time over bytes meet 0 bytes at 14 to 25 us on A100, V100 and T4 alike, 0.1 % off. A kernel's
    # start is 2 to 5 us of that.
    "neusight_ops": Protocol(
        "N is what products sum over, K are their columns; each call with the host's launch",
        handed_over=15e-6,
        means={name: {"N": "K", "K": "N"} for name in ("bmm", "linear")},
    ),
    "neusight_e2e": Protocol(
        "forward and backward of a net in training without the optimizer; inference by itself",
        updates=False,
        trains=True,
    ),
    # Its program (code/nvidia/conv_bench.cu, PAD_KERNELS): "Tensor cores need channels to be a
    # multiple of 8. So, added padding for some kernels."
    "deepbench": Protocol(
        "recurrent layers skip the product with the inputs; channels are filled up to multiples of "
        "eight for matrix units; convolutions of halves sum up halves",
        filled={("conv2d", "fp16"): {"C": 8}},
        # code/nvidia/conv_bench.cu, time_cnn<uint16_t, uint16_t>: the second is the type of sums.
        convolutions={"DeepBench": ConvolutionChoice(in_halves=True)},
    ),
    # Its smallest products and gelus take 20 to 25 us more than their kernels, on A100 and MI210.
    "llmcompass": Protocol(
        "times from the host, with its launch and its wait", from_host=True, handed_over=20e-6
    ),
    # Its README: results of a TITAN V of 2019 and of the RTX 2080 Ti of January 2020, with cuDNN
    # 7.6; NVIDIA's container 20.10 on A100 and RTX 3090.
    "ryujaehun": Protocol(
        "the timed region copies the batch to the device; no optimizer; TF32 where there is",
        input_link="pcie3",
        tf32=True,
        updates=False,
        pytorch=(1, 7),
        pytorch_on=dict.fromkeys(("TITAN_V", "GTX_1080_TI", "RTX_2080_TI"), (1, 4)),
    ),
    "dlperf": Protocol(
        "stacks of 2020",
        pytorch=(1, 5),
        tensorflow=1,  # its README of NVIDIA's container: 1.15
        # Its scripts: BERT by Adam throughout (in PyTorch apex's, in the place of LAMB), the others
        # of image nets have a momentum of 0.875 or 0.9.
        optimizers={
            ("nvidia dle pytorch", "bert"): "fused_adam",
            ("nvidia dle tensorflow", "bert"): "bert_adam",
            ("mindspore", "bert"): "bert_adam",
            ("", "bert"): "adamw",
            ("", "resnet"): "momentum",
        },
        clipped=(("tensorflow", "bert"), ("paddle", "bert"), ("mindspore", "bert")),
        scales_loss=True,
        # MxNet/.../runner.sh: --fuse-bn-relu 1 --fuse-bn-add-relu 1, convolutions in NHWC.
        scripts=(
            Script(
                "NVIDIADeepLearningExamples/MxNet/Classification/RN50v1.5/",
                {**_LAST, "framework": "MXNet, tuned"},
                "fp16 (see heading)",
            ),
        ),
    ),
    # vLLM's kernels of 2023 move one element of two bytes at a time. Its profiler adds up what
    # Kineto says of kernels (vidur/profiling/utils/record_function_tracer.py), which are whole
    # microseconds: libkineto/include/ITraceActivity.h, nsToUs, "No rounding!". Of Phi-2 it timed
    # other operators under the same names (vidur/profiling/mlp/mlp_impl.py, without
    # post_attn_norm and use_gated_mlp): torch's layer_norm and gelu, and the sum of three tensors.
    "vidur_ops": Protocol(
        "kernel times of vLLM's operators of 2023, in microseconds that are cut off",
        letters={"rmsnorm": {"width": 2}, "silu_mul_act": {"width": 2}},
        whole=1e-6,
        scripts=tuple(
            Script("/microsoft/phi-2/", {"network": ran}, network=said)
            for said, ran in (
                ("op:rmsnorm", "op:layernorm"),
                ("op:silu_mul_act", "op:gelu"),
                ("op:add", "op:add3"),
            )
        ),
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
    "timm": Protocol(
        "inference as with timm's --fast-norm",
        inference="timm",
        optimizers={("", ""): "momentum"},  # as its rows say
    ),
    "nvidia_dle": Protocol(
        "what its tables leave out is what its scripts ask for",
        tensorflow=1,  # where its folder is not TensorFlow2
        scripts=_DLE_SCRIPTS,
        lengths={"bert-large fine-tune": 384},  # scripts/run_squad.sh, max_seq_length
        # PyTorch/LanguageModeling/BERT/README.md, changelog of January 2022: the second phase is
        # trained on bins of 64 lengths.
        binned=("pytorch", "bert-large pretrain", 512),
        # Image nets: in training model/resnet.py stages images on the device; in inference
        # runner.py's pass begins with their copy, from memory that is pinned
        # (force_gpu_compatible), as the fp32 that utils/image_processing.py makes of them.
        # Transformer-XL: tf/main.py feeds and fetches the memories in every pass of inference, of
        # a sample 16 layers x 640 places (tf/run_wt103_base.sh) x 512 numbers in fp32.
        copied=(
            ("TensorFlow/Classification/ConvNets/", "inference", Copied("pcie3", 4)),
            (
                "TensorFlow/LanguageModeling/Transformer-XL/",
                "inference",
                Copied("pcie3", 4, 2 * 16 * 640 * 512 * 4),
            ),
        ),
        # run_squad.py prints as latency the mean of all batches, the first and the last, for which
        # XLA compiles, among them; as throughput what is left without the slowest hundredth. By
        # its own table a batch takes 1.1 to 5.9 times as long by the one as by the other.
        mingled=(
            (
                "TensorFlow/LanguageModeling/BERT/",
                "latency_ms",
                "inference",
                "a mean with XLA's compilation in it",
            ),
        ),
        # Its READMEs, under "Default configuration" or "Optimizer".
        optimizers={
            ("", "bert-large pretrain"): "lamb",
            ("pytorch", "bert-large"): "fused_adam",
            ("", "bert-large"): "adamw",
            ("", "transformer-xl"): "lamb",
            ("", "transformer-big"): "fused_adam",
            ("", ""): "momentum",
        },
    ),
    "lambda": Protocol(
        "the container computes fp32 as TF32 where it can",
        tf32=True,
        library="NGC pytorch-22.09",
        optimizers={("", ""): "momentum"},  # of NVIDIA's DeepLearningExamples
    ),
    "mxnet_perf": Protocol(
        "times of MXNet's example/image-classification",
        optimizers={("", ""): "momentum"},  # common/fit.py: --optimizer sgd, --mom 0.9
    ),
}


def protocol_of(source_id: str) -> Protocol:
    """Return what is known of a source."""
    return PROTOCOLS.get(source_id, PLAIN)
