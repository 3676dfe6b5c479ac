"""The predefined nets against their publications, and against the definitions they come from."""

from __future__ import annotations

import importlib.util
import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from products import counts
from published_nets import COUNTED, PUBLISHED
from zoo import CAFFE, DEEPER, ROOT, ZOO, made

import paleo
from paleo.net.layers.reshape import Gather
from paleo.net.writer import dumps

#: The figures are of the usual form; the file of this name is another.
OTHER_FORMS = {
    "inception_v3": "has biases in the place of normalizations, and one convolution fewer",
    "resnet50": "its first convolution has a bias, as in the authors' Caffe file",
}
NETS = sorted({*ZOO, *COUNTED} & set(paleo.net_names()))


def products(net: paleo.NetSpec) -> int:
    """Return the multiply-adds of one sample's forward pass: convolutions, matrix products."""
    return counts(net)[1] // 2


def num_params(net: paleo.NetSpec) -> int:
    return counts(net)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETS if name not in OTHER_FORMS])
def test_a_net_has_what_was_published(name: str) -> None:
    net, published = paleo.load(name), PUBLISHED[name]
    if published.parameters is not None:
        exact = pytest.approx(published.parameters, rel=published.parameters_within)
        assert num_params(net) == exact
    if published.macs is not None:
        assert products(net) == pytest.approx(published.macs, rel=published.macs_within)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETS if name not in OTHER_FORMS])
def test_a_net_has_what_pytorchs_counter_finds(name: str) -> None:
    """FlopCounterMode and the module's own parameters, as the definitions' test has them."""
    net = paleo.load(name)
    assert (num_params(net), products(net)) == COUNTED[name]


def test_deeper_nets_are_there() -> None:
    assert set(ZOO) >= DEEPER


def test_resnet50_differs_by_one_bias() -> None:
    # A bias for each of the 64 filters of conv1; Kaiming He's file has it.
    parameters, macs = COUNTED["resnet50"]
    net = paleo.load("resnet50")
    assert num_params(net) == parameters + 64
    assert products(net) == macs


def test_inception_v3_differs_by_a_convolution_and_normalizations() -> None:
    # Mixed_6a/Branch_1 lacks a 3x3 convolution over 35x35 (torchvision has 96 to 96 channels,
    # stride 1, then stride 2): see nets/README.md.
    assert products(paleo.load("inception_v3")) == pytest.approx(
        COUNTED["inception_v3"][1], rel=0.02
    )


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.deeper] * (each in DEEPER)) for each in ZOO]
)
def test_a_file_is_what_its_origin_gives(name: str) -> None:
    if ZOO[name].prototxt is None:
        missing = None if importlib.util.find_spec("torch") else "needs PyTorch"
    else:
        missing = None if CAFFE.exists() else "needs the Caffe files, which are not ours to ship"
        if importlib.util.find_spec("google") is None:
            missing = "needs protobuf"
    if missing:
        pytest.skip(missing)
    net, origin = paleo.load(name), made(name)
    if not net.dims:
        assert (ROOT / "nets" / f"{name}.json").read_text("utf-8") == dumps(origin)
        return
    # Its file is written by hand: it says of positions that each is picked once.
    assert (net.name, net.source, net.notes) == (origin.name, origin.source, origin.notes)
    layers = {spec.name: spec for spec in net.layers}
    assert layers.keys() == {spec.name for spec in origin.layers}
    for spec in origin.layers:
        layer = layers[spec.name].layer
        if isinstance(layer, Gather) and layer.distinct:
            layer = layer.replace(distinct=False)
        assert replace(layers[spec.name], layer=layer) == spec


def layers(name: str) -> dict[str, Any]:
    return {layer.name: layer for layer in paleo.summarize(name, 1024).layers}


#: Iandola (2016), table 4.2: NiN at batch 1024. Decimal MB of a layer's output.
TABLE_4_2 = {
    "data": ("227x227", 633),
    "conv1": ("55x55", 1190),
    "conv2": ("55x55", 1190),
    "conv3": ("55x55", 1190),
}


@pytest.mark.parametrize("name", TABLE_4_2)
def test_nin_227_has_the_outputs_of_the_table(name: str) -> None:
    size, megabytes = TABLE_4_2[name]
    layer = layers("nin_227")[name]
    assert "x".join(map(str, layer.output[1:3])) == size
    assert layer.activations_bytes / 1e6 == pytest.approx(megabytes, rel=0.005)


def test_msft_speech_gives_the_figures_that_it_was_chosen_for() -> None:
    """Iandola (2016), table 3.1, batch 1024: 74 MB of data, 151 MB of weights, 0.23 TFLOP."""
    summary = paleo.summarize("msft_speech", 1024)
    linear = [layer for layer in summary.layers if layer.type_name in ("Input", "InnerProduct")]
    assert sum(layer.activations_bytes for layer in linear) / 1e6 == pytest.approx(74, rel=0.01)
    assert summary.weights_bytes / 1e6 == pytest.approx(151, rel=0.005)
    # Training takes three times the forward pass.
    assert 3 * summary.forward_flops / 1e12 == pytest.approx(0.23, rel=0.02)


def test_lenet5_gives_the_figures_of_the_dissertation() -> None:
    """Iandola (2016), section 2.3: 5.74 MFLOP on 28x28, 2700 on 224x224."""
    assert 2 * products(paleo.load("lenet5")) / 1e6 == pytest.approx(5.74, rel=0.001)
    assert 2 * products(paleo.load("lenet5_224")) / 1e6 == pytest.approx(2700, rel=0.005)


@pytest.mark.parametrize(
    ("name", "words", "positions", "layers", "width"),
    [
        ("gpt3_xl", 50_257, 2048, 24, 2048),
        ("gpt3_xl_3072", 50_257, 2048, 24, 3072),
        ("gpt3_2_7b", 50_257, 2048, 32, 2560),
        ("opt_1_3b", 50_272, 2048 + 2, 24, 2048),
    ],
)
def test_a_transformer_by_its_symbols(
    name: str, words: int, positions: int, layers: int, width: int
) -> None:
    v, length, h = words, 2048, width
    # Four products of attention, two of the net for each word, biases, and two norms.
    layer = 12 * h**2 + (4 + 4 + 1) * h + 2 * 2 * h
    net = paleo.load(name)
    assert num_params(net) == (v + positions) * h + layers * layer + 2 * h
    # Scores and mixtures are S x S x H each.
    assert products(net) == length * (layers * (12 * h**2 + 2 * length * h) + v * h)


@pytest.mark.parametrize(
    ("name", "layers", "width", "length", "predicted"),
    [
        ("bert_base_pretraining", 12, 768, 128, 20),
        ("bert_base_pretraining_all", 12, 768, 128, 128),
        ("bert_large_pretraining", 24, 1024, 128, 20),
        ("bert_large_pretraining_512", 24, 1024, 512, 80),
        ("bert_large_pretraining_all", 24, 1024, 512, 512),
    ],
)
def test_bert_with_both_heads_by_its_symbols(
    name: str, layers: int, width: int, length: int, predicted: int
) -> None:
    v, h, s, p = 30_522, width, length, predicted
    net = paleo.load(name)
    # Words, 512 positions and 2 kinds with a norm; layers; the pooler.
    params = (v + 512 + 2) * h + 2 * h + layers * (12 * h**2 + 13 * h) + h**2 + h
    # A product and a norm for each masked word, a bias for the scores of all words, whose weights
    # are the words' own; whether the next sentence follows.
    params += h**2 + h + 2 * h + v + 2 * h + 2
    assert num_params(net) == params
    assert (name == "bert_base_pretraining") <= (params == 110_106_428)
    macs = layers * (12 * h**2 * s + 2 * s**2 * h) + h**2 + p * (h**2 + h * v) + 2 * h
    assert products(net) == macs


#: Words of WikiText-103 in clusters by rank, and the ranks where these end.
CLUSTERS = (19_997, 20_000, 160_000, 67_738)
ENDS = (19_997, 39_997, 199_997, 267_735)


@pytest.mark.parametrize(
    ("name", "length", "kept", "layers", "width", "divided"),
    [
        ("transformer_xl_base", 192, 192, 16, 512, 1),
        ("transformer_xl_base_eval", 64, 640, 16, 512, 1),
        ("transformer_xl_large", 384, 384, 18, 1024, 4),
        ("transformer_xl_large_eval", 128, 1600, 18, 1024, 4),
    ],
)
def test_transformer_xl_by_its_symbols(
    name: str, length: int, kept: int, layers: int, width: int, divided: int
) -> None:
    v, t, k, d = sum(CLUSTERS), length, length + kept, width
    widths = [d // divided**i for i in range(4)]
    net = paleo.load(name)
    # Queries, keys and values, distances, outputs; the net for each word; biases and norms.
    params = layers * (5 * d**2 + 8 * d**2 + 5 * d + 2 * 2 * d) + 2 * d
    params += sum(size * narrow for size, narrow in zip(CLUSTERS, widths, strict=True))
    params += v + 3 * (d + 1)  # biases of words, weights and biases of clusters
    macs = layers * (4 * k * d**2 + 3 * t * k * d + 9 * t * d**2)
    shares = [math.log(end + 1) / math.log(v + 1) for end in ENDS]  # P(rank) by Zipf's law
    rare = [max(1, round(t * (b - a))) for a, b in itertools.pairwise(shares)]
    embedded = [t - sum(rare), *rare]
    if divided > 1:
        params += sum(d * narrow for narrow in widths) + d**2  # the first score has its own
        macs += sum(n * d * narrow for n, narrow in zip(embedded, widths, strict=True))
        macs += t * d**2 + sum(n * d * narrow for n, narrow in zip(rare, widths[1:], strict=True))
    macs += t * d * (CLUSTERS[0] + 3)
    macs += sum(n * w * size for n, w, size in zip(rare, widths[1:], CLUSTERS[1:], strict=True))
    assert (num_params(net), products(net)) == (params, macs)


def test_ssd320_by_its_parts() -> None:
    # ResNet-50 without its last layer, on images 10/7 times as high and wide.
    parameters, macs = COUNTED["resnet50"]
    parameters -= 2048 * 1000 + 1000
    macs = (macs - 2048 * 1000) * 100 // 49
    square = 9 * 256**2
    positions = [40**2, 20**2, 10**2, 5**2, 3**2]
    # Projections with biases; two smoothed and two coarser levels, normalized.
    parameters += (512 + 1024 + 2048 + 3) * 256 + 4 * (square + 2 * 256)
    macs += 256 * sum(n * c for n, c in zip(positions, (512, 1024, 2048), strict=False))
    macs += square * (positions[0] + positions[1] + positions[3] + positions[4])
    # Two towers of four, with norms of 5 levels; 4 coordinates and 91 classes of 6 boxes.
    outputs = 6 * (4 + 91)
    parameters += 8 * (square + 5 * 2 * 256) + (9 * 256 + 1) * outputs
    macs += sum(positions) * (8 * square + 9 * 256 * outputs)
    net = paleo.load("ssd320_resnet50_fpn")
    assert (num_params(net), products(net)) == (parameters, macs)
