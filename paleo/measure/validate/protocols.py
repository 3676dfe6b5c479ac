"""What is known of how published sources measured: data, by the source's key.

A row of a source that is not here is taken as it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.units import MIB
from paleo.costs import ConvolutionChoice
from paleo.costs.convolutions import DEFAULT
from paleo.measure.validate.measured import Measurement
from paleo.measure.validate.names import MLPERF_ROUNDS


class Copied(NamedTuple):
    """What a timed region copies between the host and the device, over which network.

    The batch comes in elements of `size` bytes, 0 for those of the net, and so many bytes a sample
    go there or back `besides`.
    """

    network: str = ""
    size: int = 0
    besides: int = 0


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a part of a source's programs did otherwise than the rest, or than its rows say.

    It made the rows that have all of this, where "" and None are any: words of their `source`,
    notes, framework and net in those, the others as they are. What it `says` are values by the
    names of Protocol and of Measurement.
    """

    says: Mapping[str, Any]
    source: str = ""
    framework: str = ""
    network: str = ""
    precision: str = ""
    direction: str = ""
    device: str = ""
    quantity: str = ""
    notes: str = ""
    seq_len: int | None = None

    def made(self, row: Measurement) -> bool:
        """Tell whether it made a row."""
        return (
            self.source in row.source
            and self.framework in row.framework.casefold()
            and self.network in row.network.casefold()
            and self.precision in ("", row.precision)
            and self.direction in ("", row.direction)
            and self.device in ("", row.device)
            and self.quantity in ("", row.quantity.name)
            and self.notes in row.notes
            and self.seq_len in (None, row.seq_len)
        )


@dataclass(frozen=True)
class Protocol:
    """How a source measured, where its rows do not say.

    `copied` is what the timed region copies; `mingled` what is in a time besides what it is called,
    so that nobody can predict it. `tf32`: fp32 was computed as TF32 on devices that can. `updates`:
    whether a time of a step has the update of the parameters in it, where its direction does not
    say; by which rule, the `optimizer` says, in which of its `kernels`, and whether gradients are
    clipped to a norm before (`clips`), and mixed precision scales the loss (`scales_loss`).
    `unstated` is the type of rows that say none; with `mixed`, nets in halves have parameters in
    fp32. `library` are the libraries of rows that name none. `is_tuned`: its stacks are as tuned as
    there are: fused, channels last, the host hidden.
    """

    note: str = ""
    copied: Copied = Copied()
    mingled: str = ""
    tf32: bool = False
    updates: bool = True
    optimizer: str = "sgd"
    kernels: str | None = None
    clips: bool = False
    scales_loss: bool = False
    unstated: str = ""
    mixed: bool = False
    library: str = ""
    is_tuned: bool = False
    #: How workers exchange gradients, one of paleo.cluster.gradient_exchange, where that is not as
    #: the framework does it by itself.
    exchange: str = ""
    #: What runs its forward passes, one of paleo.cluster.frameworks, where that is not as it says.
    inference: str = ""
    #: The versions of PyTorch and of TensorFlow in rows that name none.
    pytorch: tuple[int, int] = (2, 0)
    tensorflow: int = 2
    #: The version of NCCL of rows that name none, "" for the current one.
    nccl: str = ""
    #: Whether the code of its models composes GELU of elementary functions.
    composes_gelu: bool = False
    #: Whether a forward pass by itself is that of training.
    trains: bool = False
    #: The length of sequences in rows that say none, None for the net's own.
    length: int | None = None
    #: By which algorithms convolutions are computed.
    convolutions: ConvolutionChoice = DEFAULT
    #: Whether backward passes make the gradient of the images.
    image_gradient: bool = False
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
    #: What holds of some of its rows alone; of several that made a row the last counts.
    scripts: tuple[Script, ...] = ()

    def read(self, operator: str, shape: Mapping[str, int], units: str = "") -> dict[str, int]:
        """Return the letters of a row's shape as they are called here, with those it leaves out.

        `units` is the element type, if matrix units multiply it.
        """
        other = self.means.get(operator, {})
        named = {other.get(letter, letter): value for letter, value in shape.items()}
        for letter, multiple in self.filled.get((operator, units), {}).items():
            named[letter] += -named[letter] % multiple
        return {**named, **self.letters.get(operator, {})}

    def of(self, row: Measurement) -> tuple[Measurement, Protocol]:
        """Return a row, and how it was measured, as the scripts say that made it."""
        said: dict[str, Any] = {}
        for script in self.scripts:
            said |= script.says if script.made(row) else {}
        told = {name: said.pop(name) for name in tuple(said) if name in _TOLD}
        return replace(row, **told) if told else row, replace(self, **said) if said else self


#: What rows alone tell.
_TOLD = {column.name for column in fields(Measurement)} - {one.name for one in fields(Protocol)}


PLAIN = Protocol()
#: BERT is trained by LAMB. More than half of the tokens of its sequences of 512 are padding (M.
#: Krell et al., "Efficient sequence packing without cross-contamination", 2021), which NVIDIA's
#: code removes (--unpad) and others fill with second sequences: half is left. Products of the
#: Transformer Engine are of fp8, the rest of halves.
_UNPADDED = {"seq_len": 256.0}
_MLPERF_SCRIPTS = (
    Script(network="bert", says={"optimizer": "lamb"}),
    # NVIDIA's code, which others submit, too.
    Script(network="bert", framework="pytorch", says={**_UNPADDED, "exchange": "distributed_lamb"}),
    Script(network="bert", notes="--unpad", says=_UNPADDED),
    Script(network="bert", notes="PACKED", says=_UNPADDED),
    Script(
        precision="fp16+fp8 (Transformer Engine; per-row use not confirmed)",
        says={"precision": "fp16"},
    ),
)
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
#: How rows of a README of the repository end, before the line.
_DLE_README = "README.md@729963dd47e7 line "
#: Where tables begin that are headed "BERT-Base", of inference on the V100 with 16 and 32 GB, the
#: A100 and the T4.
_DLE_BERT2 = "TensorFlow2/LanguageModeling/BERT/"
_DLE_BERT2_BASE = (856, 869, 914, 927, 973, 986, 1031, 1045)
#: Where the README of Transformer-XL in PyTorch has tables that are headed "TorchScript".
_DLE_XL = "PyTorch/LanguageModeling/Transformer-XL/"
_DLE_XL_SCRIPTED = (1746, 1768, 1806, 1828)
#: Places in the repository.
_DLE_IMAGES = "TensorFlow/Classification/ConvNets/"
_DLE_BERT1 = "TensorFlow/LanguageModeling/BERT/"
#: The scripts of DeepLearningExamples.
_DLE_SCRIPTS = (
    # configs.yml of image nets in PyTorch; MXNet's `runner` (in training its kernels are those of
    # MLPerf's stacks: --fuse-bn-relu, --fuse-bn-add-relu); the container that the README of image
    # nets in TensorFlow names; BERT's finetune_inference_benchmark.sh and run_squad.sh;
    # Transformer-XL's eval.py (model.to(float16)).
    Script(source="PyTorch/Classification/ConvNets/", precision=_MIXED, says=_LAST),
    Script(source="MxNet/Classification/RN50v1.5/", precision=_MIXED, says=_LAST),
    Script(
        source="MxNet/Classification/RN50v1.5/",
        precision=_MIXED,
        direction="train",
        says={"framework": "MXNet, tuned"},
    ),
    Script(source=_DLE_IMAGES, says={"library_version": "NGC tensorflow-20.06"}),
    Script(source=_DLE_BERT1, says={"framework": "TensorFlow +XLA"}),
    Script(source=_DLE_BERT2, says={"framework": "TensorFlow2 +XLA"}),
    Script(source=_DLE_XL, precision=_MIXED, direction="inference", says={"precision": "fp16"}),
    *(
        Script(source=f"{_DLE_XL}{_DLE_README}{line}", says={"framework": "PyTorch, TorchScript"})
        for line in _DLE_XL_SCRIPTED
    ),
    *(
        Script(source=f"{_DLE_BERT2}{_DLE_README}{line}", says={"network": "bert-base"})
        for line in _DLE_BERT2_BASE
    ),
    *(
        Script(
            source=source,
            precision=precision,
            direction="train",
            device=device,
            says={"batch_per_device": batch},
        )
        for source, device, *both in _DLE_BATCHES
        for precision, batch in zip(("fp32", _MIXED), both, strict=True)
    ),
    # Where its folder is not TensorFlow2.
    Script(source="TensorFlow/", says={"tensorflow": 1}),
    # All of its scripts for TensorFlow 2 and MXNet start by horovodrun or mpirun, with hvd.init().
    Script(source="TensorFlow2/", says={"exchange": "horovod"}),
    Script(source="MxNet/", says={"exchange": "horovod"}),
    # Its READMEs, under "Default configuration" or "Optimizer".
    Script(network="transformer-big", says={"optimizer": "fused_adam"}),
    Script(network="transformer-xl", says={"optimizer": "lamb"}),
    Script(network="bert-large", says={"optimizer": "adamw"}),
    Script(framework="pytorch", network="bert-large", says={"optimizer": "fused_adam"}),
    # TensorFlow*/LanguageModeling/BERT/optimization.py and run_squad.py: mixed precision looks for
    # infinities in every step (all_are_finite, LossScaleOptimizer).
    Script(framework="tensorflow", network="bert", says={"scales_loss": True}),
    # PyTorch/LanguageModeling/BERT/run_squad.py: apex's in mixed precision alone, else BertAdam of
    # optimization.py, a loop over tensors which clips each and goes step by step.
    Script(
        framework="pytorch",
        network="bert-large fine-tune",
        precision="fp32",
        says={"optimizer": "adamw", "kernels": "forloop", "clips": True},
    ),
    Script(network="bert-large pretrain", says={"optimizer": "lamb"}),
    # scripts/run_squad.sh, max_seq_length
    Script(network="bert-large fine-tune", says={"length": 384}),
    # PyTorch/LanguageModeling/BERT/README.md, changelog of January 2022: the second phase is
    # trained on bins of 64 lengths.
    Script(
        framework="pytorch",
        network="bert-large pretrain",
        seq_len=512,
        says={"mingled": "sequences of other lengths than it says"},
    ),
    # run_squad.py prints as latency the mean of all batches, the first and the last, for which XLA
    # compiles, among them; as throughput what is left without the slowest hundredth. By its own
    # table a batch takes 1.1 to 5.9 times as long by the one as by the other.
    Script(
        source=_DLE_BERT1,
        quantity="latency_ms",
        direction="inference",
        says={"mingled": "a mean with XLA's compilation in it"},
    ),
    # In training model/resnet.py stages images on the device; in inference runner.py's pass begins
    # with their copy, from memory that is pinned (force_gpu_compatible), as the fp32 that
    # utils/image_processing.py makes of them.
    Script(source=_DLE_IMAGES, direction="inference", says={"copied": Copied("pcie3", 4)}),
    # tf/main.py feeds and fetches the memories in every pass of inference, of a sample 16 layers x
    # 640 places (tf/run_wt103_base.sh) x 512 numbers in fp32.
    Script(
        source="TensorFlow/LanguageModeling/Transformer-XL/",
        direction="inference",
        says={"copied": Copied("pcie3", 4, 2 * 16 * 640 * 512 * 4)},
    ),
)

PROTOCOLS: dict[str, Protocol] = {
    # Caffe gives cuDNN 8 MiB a layer (src/caffe/layers/cudnn_conv_layer.cpp,
    # workspace_limit_bytes); where a version is not stated it is the newest of that time.
    "convnet_benchmarks": Protocol(
        "forward and backward without the optimizer, dropout and softmax",
        updates=False,
        library="cuDNN 4",
        scripts=(
            Script(
                framework="caffe(cudnn build",
                says={"convolutions": ConvolutionChoice(None, 8 * MIB)},
            ),
        ),
    ),
    "cnn_benchmarks": Protocol(
        "forward and backward without the optimizer, both of a net in training",
        updates=False,
        trains=True,
    ),
    "caffe2_convnet": Protocol(
        "forward and backward, with the gradient of the images, without the optimizer",
        updates=False,
        image_gradient=True,
    ),
    # Its README: "CuDNN 7.0.0.5 ... except where noted"; frameworks/pytorch/models.py gives images
    # with requires_grad, frameworks/caffe2/models.py adds all gradients.
    "u39kun": Protocol(
        "forward and backward without the optimizer, in PyTorch and Caffe2 with the gradient of "
        "the images",
        updates=False,
        library="cuDNN 7.0",
        scripts=(
            # caffe2/operators/conv_op_cudnn.cc, kCONV_CUDNN_WORKSPACE_LIMIT_BYTES
            Script(
                framework="caffe2",
                says={"convolutions": ConvolutionChoice(None, 64 * MIB), "image_gradient": True},
            ),
            Script(framework="pytorch", says={"image_gradient": True}),
        ),
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
        # transformers, activations.py, NewGELUActivation: "gelu_new" in configurations of GPT-2,
        # as which NeuSight has GPT-3, too; its tables of operators list pow, tanh and the rest.
        scripts=(Script(network="gpt", says={"composes_gelu": True}),),
    ),
    # Its program (code/nvidia/conv_bench.cu, PAD_KERNELS): "Tensor cores need channels to be a
    # multiple of 8. So, added padding for some kernels."
    "deepbench": Protocol(
        "recurrent layers skip the product with the inputs; channels are filled up to multiples of "
        "eight for matrix units; convolutions of halves sum up halves",
        filled={("conv2d", "fp16"): {"C": 8}},
        # code/nvidia/conv_bench.cu, time_cnn<uint16_t, uint16_t>: the second is the type of sums.
        convolutions=ConvolutionChoice(in_halves=True),
    ),
    # Its smallest products and gelus take 20 to 25 us more than their kernels, on A100 and MI210.
    # The paper (ISCA 2024, III-C) names CUDA 11.7 and PyTorch 2.0, and nccl-tests for the
    # all-reduce: NCCL 2.14.3 is what PyTorch 2.0 requires for CUDA 11.7 (nvidia-nccl-cu11).
    "llmcompass": Protocol(
        "times from the host, with its launch and its wait",
        from_host=True,
        handed_over=20e-6,
        nccl="2.14",
    ),
    # Its README: results of a TITAN V of 2019 and of the RTX 2080 Ti of January 2020, with cuDNN
    # 7.6; NVIDIA's container 20.10 on A100 and RTX 3090.
    "ryujaehun": Protocol(
        "the timed region copies the batch to the device; no optimizer; TF32 where there is",
        copied=Copied("pcie3"),
        tf32=True,
        updates=False,
        pytorch=(1, 7),
        scripts=tuple(
            Script(device=device, says={"pytorch": (1, 4)})
            for device in ("RTX2080Ti", "TITANV", "GTX1080Ti")
        ),
    ),
    "dlperf": Protocol(
        "stacks of 2020",
        pytorch=(1, 5),
        tensorflow=1,  # its README of NVIDIA's container: 1.15
        # Its scripts: BERT by Adam throughout (in PyTorch apex's, in the place of LAMB), the others
        # of image nets have a momentum of 0.875 or 0.9.
        scales_loss=True,
        scripts=(
            Script(network="resnet", says={"optimizer": "momentum"}),
            Script(network="bert", says={"optimizer": "adamw"}),
            *(
                Script(framework=framework, network="bert", says={"clips": True, **by})
                for framework, by in (
                    ("tensorflow", {}),
                    ("nvidia dle tensorflow", {"optimizer": "bert_adam"}),
                    ("paddle", {}),
                    ("mindspore", {"optimizer": "bert_adam"}),
                )
            ),
            Script(
                framework="nvidia dle pytorch", network="bert", says={"optimizer": "fused_adam"}
            ),
            # MxNet/.../runner.sh: --fuse-bn-relu 1 --fuse-bn-add-relu 1, convolutions in NHWC.
            Script(
                source="NVIDIADeepLearningExamples/MxNet/Classification/RN50v1.5/",
                precision="fp16 (see heading)",
                says={**_LAST, "framework": "MXNet, tuned"},
            ),
            # MxNet/BERT and RN50v1b: horovod; as NVIDIA's.
            Script(framework="mxnet", says={"exchange": "horovod"}),
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
            Script(source="/microsoft/phi-2/", network=said, says={"network": ran})
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
            optimizer="momentum",
            scripts=_MLPERF_SCRIPTS,
        )
        for version in MLPERF_ROUNDS
    },
    # What normalizes in halves shows in nets of group normalizations, which take half the time
    # that normalizations in fp32 and their casts would.
    "timm": Protocol(
        "inference as with timm's --fast-norm",
        inference="timm",
        optimizer="momentum",  # as its rows say
    ),
    "nvidia_dle": Protocol(
        "what its tables leave out is what its scripts ask for",
        tensorflow=1,  # where its folder is not TensorFlow2
        optimizer="momentum",
        scripts=_DLE_SCRIPTS,
    ),
    "lambda": Protocol(
        "the container computes fp32 as TF32 where it can",
        tf32=True,
        library="NGC pytorch-22.09",
        optimizer="momentum",  # of NVIDIA's DeepLearningExamples
    ),
    # docs_src/performance/benchmarks.md says of each net how variables are updated.
    "tf_cnn_benchmarks": Protocol(
        "variables of the host, or of each device with sums by NCCL, as its notes say",
        tensorflow=1,
        scripts=(
            Script(notes="update=parameter_server", says={"exchange": "host_server"}),
            Script(notes="update=replicated", says={"exchange": "replicated"}),
            Script(notes="update=distributed_replicated", says={"exchange": "replicated"}),
        ),
    ),
    "mxnet_perf": Protocol(
        "times of MXNet's example/image-classification",
        optimizer="momentum",  # common/fit.py: --optimizer sgd, --mom 0.9
    ),
}


def protocol_of(source_id: str) -> Protocol:
    """Return what is known of a source."""
    return PROTOCOLS.get(source_id, PLAIN)
