"""The predefined nets against their publications, and against the definitions they come from."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from products import counts
from published_nets import COUNTED, PUBLISHED
from zoo import CAFFE, ROOT, ZOO, text

import paleo

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


@pytest.mark.parametrize("name", ZOO)
def test_a_file_is_what_its_origin_gives(name: str) -> None:
    if ZOO[name].prototxt is None:
        missing = None if importlib.util.find_spec("torch") else "needs PyTorch"
    else:
        missing = None if CAFFE.exists() else "needs the Caffe files, which are not ours to ship"
        if importlib.util.find_spec("google") is None:
            missing = "needs protobuf"
    if missing:
        pytest.skip(missing)
    assert (ROOT / "nets" / f"{name}.json").read_text("utf-8") == text(name)


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
