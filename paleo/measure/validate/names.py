"""The names that measurements have for nets, and the predefined nets that they mean.

A name is compared by its letters and digits, in one case, what is in brackets left out; the names
of predefined nets stand for themselves. Where a source means another net by a name than the rest,
the entry is "source_id: name", and "source_id: name on length" where that depends on the length of
sequences, "source_id: name by framework" on the framework, "source_id: name in training" on that.
Nets of installed packages go by "timm:name", and take images of the size that a row
says.
"""

from __future__ import annotations

import functools
import importlib.util

from paleo.core.errors import PaleoError, near
from paleo.measure.validate.spellings import UnmappedError, plain
from paleo.net.graph import build
from paleo.net.importers import ImportOptions
from paleo.net.importers.base import PACKAGES
from paleo.net.load import load, net_names
from paleo.net.spec import NetSpec

#: The rounds of MLPerf Training.
MLPERF_ROUNDS = (
    "0.5", "0.6", "0.7", "1.0", "1.1", "2.0", "2.1", "3.0", "3.1", "4.0", "4.1", "5.0", "5.1",
)  # fmt: skip
#: Which sources mean which version of ResNet by its plain names.
_RESNETS = {
    "cnn_benchmarks": "v1_5",
    "ryujaehun": "v1_5",
    "u39kun": "v1_5",
    "lambda": "v1_5",
    "nvidia_dle": "v1_5",
    "dlperf": "v1_5",
    "mxnet_perf": "v2",
}
#: Spellings, and the predefined net that each is.
NETS: dict[str, str] = {
    **{
        f"{source}: resnet{depth}": f"resnet{depth}_{version}"
        for source, version in _RESNETS.items()
        for depth in (50, 101, 152)
    },
    "vgg_a": "vgg11",
    "googlenet-v1": "googlenet_v1",
    "cnn_benchmarks: googlenet-v1": "googlenet",
    "tf_cnn_benchmarks: alexnet": "alexnet_tf",
    "mxnet_perf: alexnet": "alexnet_mxnet",
    "inception-v3": "inception_v3_2015",
    "resnet-200": "resnet200_v2",
    "resnet50-v1b": "resnet50_v1_5",
    "efficientnet-b0": "efficientnet_b0",
    "bert-base": "bert_base",
    "bert": "bert_base",
    "bert-large": "bert_large",
    # Scores of the 20 of 128 words that are masked; NVIDIA's PyTorch of 2020 made those of all.
    "dlperf: bert-base": "bert_base_pretraining",
    "dlperf: bert-base by NVIDIA DLE PyTorch": "bert_base_pretraining_all",
    **{
        f"mlperf_training_v{version}: bert_large": "bert_large_pretraining"
        for version in MLPERF_ROUNDS
    },
    "nvidia_dle: bert-large pretrain": "bert_large_pretraining",
    "nvidia_dle: bert-large pretrain on 512": "bert_large_pretraining_512",
    # It trains what transformers calls BertForPreTraining.
    "neusight_e2e: bert_large in training": "bert_large_pretraining_all",
    "nvidia_dle: bert-large fine-tune": "bert_large",
    "nvidia_dle: bert-large:large fine-tune": "bert_large",
    "nvidia_dle: bert-large:base fine-tune": "bert_base",
    "gpt2_med": "gpt2_medium",
    "gpt3_27": "gpt3_2_7b",
    "opt_13": "opt_1_3b",
    # Its configuration has states of 3072, where GPT-3 XL's are 2048.
    "neusight_e2e: gpt3_xl": "gpt3_xl_3072",
    "nvidia_dle: ssd320-resnet50fpn": "ssd320_resnet50_fpn",
    "nvidia_dle: transformer-xl:base": "transformer_xl_base",
    "nvidia_dle: transformer-xl:large": "transformer_xl_large",
    "nvidia_dle: transformer-xl:base on 64": "transformer_xl_base_eval",
    "nvidia_dle: transformer-xl:large on 128": "transformer_xl_large_eval",
}


@functools.cache
def _known() -> dict[str, str]:
    """Return predefined nets by the plain forms of their spellings."""
    predefined = set(net_names())
    own = {plain(name): name for name in predefined}
    listed = {
        (f"{source}:" if mark else "") + plain(name or source): net
        for spelling, net in NETS.items()
        for source, mark, name in [spelling.partition(": ")]
        if net in predefined
    }
    return {**own, **listed}


@functools.cache
def net_of(
    name: str, source_id: str, image: int | None = None, sequence: int | None = None
) -> NetSpec:
    """Return the net that a row is of: a predefined one, a package's, or the file of that name.

    `image` is the height and width of its images, `sequence` the length of its sequences, None for
    its own. Raises UnmappedError if there is no such net, NetSpecError if the file is wrong.
    """
    if name.startswith(PACKAGES):
        net = _of_package(name, image)
        if isinstance(net, str):
            raise UnmappedError(net)
        return net
    net = _own(name, source_id, sequence)
    sizes = {size for node in build(net).nodes if node.layer.is_input for size in node.output[1:3]}
    if image is not None and image not in sizes:
        raise UnmappedError(f"net {name!r} takes no images of {image} x {image}")
    return net


@functools.cache
def _of_package(target: str, image: int | None) -> NetSpec | str:
    """Return a net of an installed package, or why there is none: to try takes seconds."""
    package = target.partition(":")[0]
    missing = [name for name in (package, "torch") if importlib.util.find_spec(name) is None]
    if missing:
        needs = " and ".join(missing)
        return f'nets of {package} need {needs}: pip install "paleo[{package}]"'
    shapes = () if image is None else ((None, (1, 3, image, image)),)
    try:
        return load(target, ImportOptions(input=shapes))
    except PaleoError as error:
        return str(error.mistakes[0])


def meant(name: str, source_id: str, framework: str, trains: bool) -> str:
    """Return the net that a source means by a name with this framework, or in training.

    It is the name itself where nothing is known of either.
    """
    known, own = _known(), f"{source_id}:{plain(name)}"
    by_framework = known.get(f"{own}by{plain(framework)}")
    return by_framework or (trains and known.get(f"{own}intraining")) or name


def _own(name: str, source_id: str, sequence: int | None) -> NetSpec:
    known = _known()
    form = plain(name)
    own = f"{source_id}:{form}"
    stem = known.get(f"{own}on{sequence}") or known.get(own) or known.get(form)
    if stem:
        return load(stem)
    if name.startswith("python:"):
        raise UnmappedError(
            f"net {name!r} would have to be run: `paleo convert` it to a file first"
        )
    if name.endswith((".json", ".prototxt", ".onnx")):
        return load(name)
    raise UnmappedError(f"unknown net {name!r}{near(name, net_names())}")
