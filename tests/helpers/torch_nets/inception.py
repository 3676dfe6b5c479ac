"""GoogLeNet and its successors, all without the auxiliary classifiers."""

import torch
from torch import Tensor, nn

from .parts import Branches, sequence


class Inception(nn.ModuleDict):
    """An inception module of GoogLeNet; its layers have Caffe's names."""

    def __init__(
        self, channels: int, one: int, three: tuple[int, int], five: tuple[int, int], proj: int
    ) -> None:
        super().__init__(
            {
                "1x1": nn.Conv2d(channels, one, 1),
                "relu_1x1": nn.ReLU(),
                "3x3_reduce": nn.Conv2d(channels, three[0], 1),
                "relu_3x3_reduce": nn.ReLU(),
                "3x3": nn.Conv2d(three[0], three[1], 3, padding=1),
                "relu_3x3": nn.ReLU(),
                "5x5_reduce": nn.Conv2d(channels, five[0], 1),
                "relu_5x5_reduce": nn.ReLU(),
                "5x5": nn.Conv2d(five[0], five[1], 5, padding=2),
                "relu_5x5": nn.ReLU(),
                "pool": nn.MaxPool2d(3, 1, padding=1, ceil_mode=True),
                "pool_proj": nn.Conv2d(channels, proj, 1),
                "relu_pool_proj": nn.ReLU(),
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        outputs = []
        for names in (("1x1",), ("3x3_reduce", "3x3"), ("5x5_reduce", "5x5"), ("pool_proj",)):
            y = self["pool"](x) if names == ("pool_proj",) else x
            for name in names:
                y = self[f"relu_{name}"](self[name](y))
            outputs.append(y)
        return torch.cat(outputs, dim=1)


def _googlenet(*, lrn: bool) -> nn.Module:
    """Make GoogLeNet with or without its local response normalizations."""
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, 64, 7, stride=2, padding=3),
        "relu_conv1": nn.ReLU(),
        "pool1": nn.MaxPool2d(3, 2, ceil_mode=True),
        "norm1": nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        "conv2_reduce": nn.Conv2d(64, 64, 1),
        "relu_conv2_reduce": nn.ReLU(),
        "conv2": nn.Conv2d(64, 192, 3, padding=1),
        "relu_conv2": nn.ReLU(),
        "norm2": nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        "pool2": nn.MaxPool2d(3, 2, ceil_mode=True),
        "inception_3a": Inception(192, 64, (96, 128), (16, 32), 32),
        "inception_3b": Inception(256, 128, (128, 192), (32, 96), 64),
        "pool3": nn.MaxPool2d(3, 2, ceil_mode=True),
        "inception_4a": Inception(480, 192, (96, 208), (16, 48), 64),
        "inception_4b": Inception(512, 160, (112, 224), (24, 64), 64),
        "inception_4c": Inception(512, 128, (128, 256), (24, 64), 64),
        "inception_4d": Inception(512, 112, (144, 288), (32, 64), 64),
        "inception_4e": Inception(528, 256, (160, 320), (32, 128), 128),
        "pool4": nn.MaxPool2d(3, 2, ceil_mode=True),
        "inception_5a": Inception(832, 256, (160, 320), (32, 128), 128),
        "inception_5b": Inception(832, 384, (192, 384), (48, 128), 128),
        "pool5": nn.AvgPool2d(7),
        "flatten": nn.Flatten(),
        "dropout": nn.Dropout(0.4),
        "classifier": nn.Linear(1024, 1000),
        "softmax": nn.Softmax(dim=1),
    }
    return sequence(
        **{name: layer for name, layer in layers.items() if lrn or not name.startswith("norm")}
    )


def googlenet() -> nn.Module:
    """GoogLeNet of Szegedy et al. (2014) as `bvlc_googlenet` of Caffe's model zoo, main branch."""
    return _googlenet(lrn=True)


def googlenet_v1() -> nn.Module:
    """GoogLeNet of Szegedy et al. (2014) as in convnet-benchmarks: main branch, without LRN."""
    return _googlenet(lrn=False)


def _conv(
    channels: int,
    filters: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] = 0,
) -> nn.Module:
    """Convolve without bias, normalize, rectify."""
    return sequence(
        conv=nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding, bias=False),
        bn=nn.BatchNorm2d(filters, eps=0.001),
        relu=nn.ReLU(),
    )


def _factorized(channels: int, filters: int, kernel: tuple[int, int]) -> nn.Module:
    """Convolve with a kernel of one row or one column, padded to keep the size."""
    return _conv(channels, filters, kernel, padding=(kernel[0] // 2, kernel[1] // 2))


def _mixed_35(channels: int, pool_proj: int) -> nn.Module:
    """A module of the 35x35 stage."""
    return Branches(
        {
            "Branch_0": sequence(Conv2d_0a_1x1=_conv(channels, 64, 1)),
            "Branch_1": sequence(
                Conv2d_0a_1x1=_conv(channels, 48, 1),
                Conv2d_0b_5x5=_conv(48, 64, 5, padding=2),
            ),
            "Branch_2": sequence(
                Conv2d_0a_1x1=_conv(channels, 64, 1),
                Conv2d_0b_3x3=_conv(64, 96, 3, padding=1),
                Conv2d_0c_3x3=_conv(96, 96, 3, padding=1),
            ),
            "Branch_3": sequence(
                AvgPool_0a_3x3=nn.AvgPool2d(3, 1, padding=1),
                Conv2d_0b_1x1=_conv(channels, pool_proj, 1),
            ),
        }
    )


def _mixed_17(inner: int) -> nn.Module:
    """A module of the 17x17 stage, its 7x7 convolutions factorized, `inner` channels wide."""
    row, column = (1, 7), (7, 1)
    return Branches(
        {
            "Branch_0": sequence(Conv2d_0a_1x1=_conv(768, 192, 1)),
            "Branch_1": sequence(
                Conv2d_0a_1x1=_conv(768, inner, 1),
                Conv2d_0b_1x7=_factorized(inner, inner, row),
                Conv2d_0c_7x1=_factorized(inner, 192, column),
            ),
            "Branch_2": sequence(
                Conv2d_0a_1x1=_conv(768, inner, 1),
                Conv2d_0b_7x1=_factorized(inner, inner, column),
                Conv2d_0c_1x7=_factorized(inner, inner, row),
                Conv2d_0d_7x1=_factorized(inner, inner, column),
                Conv2d_0e_1x7=_factorized(inner, 192, row),
            ),
            "Branch_3": sequence(
                AvgPool_0a_3x3=nn.AvgPool2d(3, 1, padding=1),
                Conv2d_0b_1x1=_conv(768, 192, 1),
            ),
        }
    )


def _mixed_8(channels: int) -> nn.Module:
    """A module of the 8x8 stage, two of its branches ending side by side."""
    row, column = (1, 3), (3, 1)
    return Branches(
        {
            "Branch_0": sequence(Conv2d_0a_1x1=_conv(channels, 320, 1)),
            "Branch_1": sequence(
                Conv2d_0a_1x1=_conv(channels, 384, 1),
                split=Branches(
                    {
                        "Conv2d_0b_1x3": _factorized(384, 384, row),
                        "Conv2d_0b_3x1": _factorized(384, 384, column),
                    }
                ),
            ),
            "Branch_2": sequence(
                Conv2d_0a_1x1=_conv(channels, 448, 1),
                Conv2d_0b_3x3=_conv(448, 384, 3, padding=1),
                split=Branches(
                    {
                        "Conv2d_0c_1x3": _factorized(384, 384, row),
                        "Conv2d_0d_3x1": _factorized(384, 384, column),
                    }
                ),
            ),
            "Branch_3": sequence(
                AvgPool_0a_3x3=nn.AvgPool2d(3, 1, padding=1),
                Conv2d_0b_1x1=_conv(channels, 192, 1),
            ),
        }
    )


def inception_v3() -> nn.Module:
    """Inception v3 of Szegedy et al. (2015), named as in TF-Slim, with batch normalization."""
    return sequence(
        Conv2d_1a_3x3=_conv(3, 32, 3, stride=2),
        Conv2d_2a_3x3=_conv(32, 32, 3),
        Conv2d_2b_3x3=_conv(32, 64, 3, padding=1),
        MaxPool_3a_3x3=nn.MaxPool2d(3, 2),
        Conv2d_3b_1x1=_conv(64, 80, 1),
        Conv2d_4a_3x3=_conv(80, 192, 3),
        MaxPool_5a_3x3=nn.MaxPool2d(3, 2),
        Mixed_5b=_mixed_35(192, 32),
        Mixed_5c=_mixed_35(256, 64),
        Mixed_5d=_mixed_35(288, 64),
        Mixed_6a=Branches(
            {
                "Branch_0": sequence(Conv2d_1a_3x3=_conv(288, 384, 3, stride=2)),
                "Branch_1": sequence(
                    Conv2d_0a_1x1=_conv(288, 64, 1),
                    Conv2d_0b_3x3=_conv(64, 96, 3, padding=1),
                    Conv2d_1a_3x3=_conv(96, 96, 3, stride=2),
                ),
                "Branch_2": sequence(MaxPool_1a_3x3=nn.MaxPool2d(3, 2)),
            }
        ),
        Mixed_6b=_mixed_17(128),
        Mixed_6c=_mixed_17(160),
        Mixed_6d=_mixed_17(160),
        Mixed_6e=_mixed_17(192),
        Mixed_7a=Branches(
            {
                "Branch_0": sequence(
                    Conv2d_0a_1x1=_conv(768, 192, 1),
                    Conv2d_1a_3x3=_conv(192, 320, 3, stride=2),
                ),
                "Branch_1": sequence(
                    Conv2d_0a_1x1=_conv(768, 192, 1),
                    Conv2d_0b_1x7=_factorized(192, 192, (1, 7)),
                    Conv2d_0c_7x1=_factorized(192, 192, (7, 1)),
                    Conv2d_1a_3x3=_conv(192, 192, 3, stride=2),
                ),
                "Branch_2": sequence(MaxPool_1a_3x3=nn.MaxPool2d(3, 2)),
            }
        ),
        Mixed_7b=_mixed_8(1280),
        Mixed_7c=_mixed_8(2048),
        AvgPool_1a_8x8=nn.AvgPool2d(8),
        flatten=nn.Flatten(),
        Dropout_1b=nn.Dropout(0.2),
        Logits=nn.Linear(2048, 1000),
        softmax=nn.Softmax(dim=1),
    )


def inception_v3_2015() -> nn.Module:
    """Inception v3; the predefined net of the plain name is the form of 2017."""
    return inception_v3()


def _module_bn(
    channels: int,
    one: int,
    three: tuple[int, int],
    double: tuple[int, int],
    pool: nn.Module,
    proj: int,
) -> tuple[nn.Module, int]:
    """Make a module of Inception-BN, and count its channels; without `one`, it halves the size."""
    stride = 1 if one else 2
    branches: dict[str, nn.Module] = {}
    if one:
        branches["1x1"] = _conv(channels, one, 1)
    branches["3x3"] = sequence(
        reduce=_conv(channels, three[0], 1), conv=_conv(*three, 3, stride=stride, padding=1)
    )
    branches["double_3x3"] = sequence(
        reduce=_conv(channels, double[0], 1),
        conv0=_conv(*double, 3, padding=1),
        conv1=_conv(double[1], double[1], 3, stride=stride, padding=1),
    )
    branches["pool"] = sequence(pool=pool)
    if proj:
        branches["pool"].add_module("proj", _conv(channels, proj, 1))
    return Branches(branches), one + three[1] + double[1] + (proj or channels)


def inception_bn() -> nn.Module:
    """Inception with batch normalization (Ioffe and Szegedy, 2015), as MXNet's examples have it.

    Its pools round up or down so that sizes halve: 224, 112, 56, 28, 14, 7.
    """

    def average() -> nn.Module:
        return nn.AvgPool2d(3, 1, padding=1)

    def halve() -> nn.Module:
        return nn.MaxPool2d(3, 2, padding=1)

    layers: dict[str, nn.Module] = {
        "conv1": _conv(3, 64, 7, stride=2, padding=3),
        "pool1": nn.MaxPool2d(3, 2, ceil_mode=True),
        "conv2_reduce": _conv(64, 64, 1),
        "conv2": _conv(64, 192, 3, padding=1),
        "pool2": nn.MaxPool2d(3, 2, ceil_mode=True),
    }
    channels = 192
    for name, one, three, double, pool, proj in (
        ("3a", 64, (64, 64), (64, 96), average(), 32),
        ("3b", 64, (64, 96), (64, 96), average(), 64),
        ("3c", 0, (128, 160), (64, 96), halve(), 0),
        ("4a", 224, (64, 96), (96, 128), average(), 128),
        ("4b", 192, (96, 128), (96, 128), average(), 128),
        ("4c", 160, (128, 160), (128, 160), average(), 128),
        ("4d", 96, (128, 192), (160, 192), average(), 128),
        ("4e", 0, (128, 192), (192, 256), halve(), 0),
        ("5a", 352, (192, 320), (160, 224), average(), 128),
        ("5b", 352, (192, 320), (192, 224), nn.MaxPool2d(3, 1, padding=1), 128),
    ):
        layers[f"inception_{name}"], channels = _module_bn(channels, one, three, double, pool, proj)
    return sequence(
        **layers,
        global_pool=nn.AvgPool2d(7),
        flatten=nn.Flatten(),
        fc1=nn.Linear(channels, 1000),
        softmax=nn.Softmax(dim=1),
    )
