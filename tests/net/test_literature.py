"""Parameters and FLOPs of well-known nets, against published figures.

torchvision documents parameters and multiply-adds of its models (the table of weights;
"GFLOPS" there are multiply-adds): AlexNet 61,100,840 and 0.714e9, VGG-16 138,357,544 and
15.47e9, Inception v3 5.713e9. The abstract of Szegedy et al., arXiv:1512.00567, says 5
billion multiply-adds and less than 25 million parameters for Inception v3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import paleo


def multiply_adds(net: paleo.NetSpec) -> float:
    """Half the FLOPs of convolutions and inner products: what the literature counts."""
    layers = paleo.summarize(net, 1).layers
    products = ("Convolution", "InnerProduct")
    return sum(float(layer.forward_flops) for layer in layers if layer.type_name in products) / 2


def convolution(parent: str, size: int, c: int, k: int, stride: int, padding: int) -> Any:
    return {
        "type": "Convolution",
        "parents": [parent],
        "filter": [size, size, c, k],
        "strides": [1, stride, stride, 1],
        "padding": [padding, padding],
    }


def pooling(parent: str) -> Any:
    return {
        "type": "Pooling",
        "parents": [parent],
        "ksize": [1, 3, 3, 1],
        "strides": [1, 2, 2, 1],
        "padding": "VALID",
    }


@pytest.fixture
def torchvision_alexnet(net: Callable[..., paleo.NetSpec]) -> paleo.NetSpec:
    return net(
        {
            "image": {"type": "Input", "parents": [], "tensor": [1, 224, 224, 3]},
            "conv1": convolution("image", 11, 3, 64, 4, 2),
            "pool1": pooling("conv1"),
            "conv2": convolution("pool1", 5, 64, 192, 1, 2),
            "pool2": pooling("conv2"),
            "conv3": convolution("pool2", 3, 192, 384, 1, 1),
            "conv4": convolution("conv3", 3, 384, 256, 1, 1),
            "conv5": convolution("conv4", 3, 256, 256, 1, 1),
            "pool5": pooling("conv5"),
            "fc6": {"type": "InnerProduct", "parents": ["pool5"], "num_outputs": 4096},
            "fc7": {"type": "InnerProduct", "parents": ["fc6"], "num_outputs": 4096},
            "fc8": {"type": "InnerProduct", "parents": ["fc7"], "num_outputs": 1000},
        }
    )


def test_alexnet_as_torchvision_has_it(torchvision_alexnet: paleo.NetSpec) -> None:
    assert paleo.summarize(torchvision_alexnet).num_params == 61_100_840
    assert multiply_adds(torchvision_alexnet) == pytest.approx(0.714e9, rel=1e-3)


def test_alex_v2_differs_from_it_as_its_layers_do() -> None:
    # conv4 has 384 filters, not 256: 3*3*384*128 + 128 more, and 3*3*128*256 more in conv5.
    # pool5 is 5x5, not 6x6: 11*256*4096 fewer in fc6. The counts are of the same layers else.
    expected = 61_100_840 + (3 * 3 * 384 * 128 + 128) + 3 * 3 * 128 * 256 - 11 * 256 * 4096
    assert paleo.summarize("alex_v2").num_params == expected
    # Without padding, conv1 gives 54x54, not 55x55, and images shrink to 26, 12 and 5.
    expected = (
        54**2 * 64 * 11 * 11 * 3
        + 26**2 * 192 * 5 * 5 * 64
        + 12**2 * 384 * 3 * 3 * 192
        + 12**2 * 384 * 3 * 3 * 384
        + 12**2 * 256 * 3 * 3 * 384
        + 5 * 5 * 256 * 4096
        + 4096 * 4096
        + 4096 * 1000
    )
    assert multiply_adds(paleo.load("alex_v2")) == expected
    assert expected == pytest.approx(0.714e9, rel=0.04)


def test_vgg16() -> None:
    assert paleo.summarize("vgg16").num_params == 138_357_544
    assert multiply_adds(paleo.load("vgg16")) == pytest.approx(15.47e9, rel=1e-3)


def test_inception_v3() -> None:
    # Without the auxiliary classifier, and with biases in the place of normalizations.
    assert 23.5e6 < paleo.summarize("inception_v3").num_params < 25e6
    assert multiply_adds(paleo.load("inception_v3")) == pytest.approx(5.713e9, rel=0.02)
