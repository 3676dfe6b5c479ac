"""What is known of how published sources measured: data, by the source's key.

A row of a source that is not here is taken as it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from paleo.core.frozen import dataclass


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
    unstated: str = ""
    library: str = ""
    mixed: bool = False
    is_tuned: bool = False
    #: What runs its forward passes, one of paleo.cluster.frameworks, where that is not as it says.
    inference: str = ""
    #: The major version of PyTorch in rows that name none.
    pytorch: int = 2
    #: Whether a forward pass by itself is that of training.
    trains: bool = False
    #: Samples on a device where rows say none: by framework, net, device and precision.
    batches: Mapping[tuple[str, str, str, str], int] = field(default_factory=dict)
    #: Lengths of sequences where rows say none, by words in their net.
    lengths: Mapping[str, int] = field(default_factory=dict)
    #: Sequences that are shorter than they say: words in the framework and the net, and the length.
    binned: tuple[str, str, int] | None = None
    #: Whether the host's launch and its wait are in times of operators.
    from_host: bool = False
    #: Letters of operators that the rows do not say.
    letters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: What a letter of an operator stands for there, where it is another one.
    means: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def optimizer(self, framework: str, network: str) -> str:
        """Return by which rule this framework updated this net; plain descent if nobody says."""
        texts = (framework.casefold(), network.casefold())
        return next(
            (
                rule
                for words, rule in self.optimizers.items()
                if all(word in text for word, text in zip(words, texts, strict=True))
            ),
            "sgd",
        )

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

    def read(self, operator: str, shape: Mapping[str, int]) -> dict[str, int]:
        """Return the letters of a row's shape as they are called here, with those it leaves out."""
        other = self.means.get(operator, {})
        named = {other.get(letter, letter): value for letter, value in shape.items()}
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

PROTOCOLS: dict[str, Protocol] = {
    "convnet_benchmarks": Protocol(
        "forward and backward without the optimizer, dropout and softmax", updates=False
    ),
    "cnn_benchmarks": Protocol(
        "forward and backward without the optimizer, both of a net in training",
        updates=False,
        trains=True,
    ),
    "caffe2_convnet": Protocol(
        "forward and backward, with the gradient of the images, without the optimizer",
        updates=False,
    ),
    "u39kun": Protocol("forward and backward without the optimizer", updates=False),
    # Its script times torch.bmm of B x M x N by B x N x K; rows of linear layers are named alike.
    "neusight_ops": Protocol(
        "N is what products sum over, K are their columns",
        means={name: {"N": "K", "K": "N"} for name in ("bmm", "linear")},
    ),
    "neusight_e2e": Protocol(
        "forward and backward of a net in training without the optimizer; inference by itself",
        updates=False,
        trains=True,
    ),
    "deepbench": Protocol("recurrent layers skip the product with the inputs"),
    "llmcompass": Protocol("times from the host, with its launch and its wait", from_host=True),
    "ryujaehun": Protocol(
        "the timed region copies the batch to the device; no optimizer; TF32 where there is",
        input_link="pcie3",
        tf32=True,
        updates=False,
        pytorch=1,
    ),
    "dlperf": Protocol(
        "stacks of 2020",
        pytorch=1,
        # Its scripts: BERT by Adam throughout (in PyTorch apex's, in the place of LAMB), the others
        # of image nets have a momentum of 0.875 or 0.9.
        optimizers={
            ("nvidia dle pytorch", "bert"): "fused_adam",
            ("", "bert"): "adamw",
            ("", "resnet"): "momentum",
        },
    ),
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
    "timm": Protocol(
        "inference as with timm's --fast-norm",
        inference="timm",
        optimizers={("", ""): "momentum"},  # as its rows say
    ),
    "nvidia_dle": Protocol(
        "batches and lengths that its tables leave out are those of its scripts",
        lengths={"bert-large fine-tune": 384},  # scripts/run_squad.sh, max_seq_length
        # PyTorch/LanguageModeling/BERT/README.md, changelog of January 2022: the second phase is
        # trained on bins of 64 lengths.
        binned=("pytorch", "bert-large pretrain", 512),
        # Its READMEs, under "Default configuration" or "Optimizer".
        optimizers={
            ("", "bert-large pretrain"): "lamb",
            ("pytorch", "bert-large"): "fused_adam",
            ("", "bert-large"): "adamw",
            ("", "transformer-xl"): "lamb",
            ("", "transformer-big"): "fused_adam",
            ("", ""): "momentum",
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
