"""SqueezeNet with its bypasses, and both MobileNets."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from .parts import Residual, sequence


class Fire(nn.Module):
    """SqueezeNet's module: squeeze to few channels, then expand them by 1x1 and by 3x3."""

    def __init__(self, channels: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(channels, squeeze, 1)
        self.relu_squeeze1x1 = nn.ReLU()
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.relu_expand1x1 = nn.ReLU()
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.relu_expand3x3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu_squeeze1x1(self.squeeze1x1(x))
        ones = self.relu_expand1x1(self.expand1x1(x))
        threes = self.relu_expand3x3(self.expand3x3(x))
        return torch.cat([ones, threes], dim=1)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.0 of Iandola et al. (2016), on 227x227: table 5.1 of the dissertation.

    `conv10` is not padded, as the table says and Caffe's file does not. Pools round up, which on
    227x227 changes nothing.
    """

    # Channels in, squeezed and expanded to (twice), of Fire modules 2 to 9.
    FIRES = (
        (96, 16, 64),
        (128, 16, 64),
        (128, 32, 128),
        (256, 32, 128),
        (256, 48, 192),
        (384, 48, 192),
        (384, 64, 256),
        (512, 64, 256),
    )

    def __init__(self, *, simple: bool = False, complex_: bool = False) -> None:
        super().__init__()
        self.simple = simple
        self.conv1 = nn.Conv2d(3, 96, 7, stride=2)
        self.relu_conv1 = nn.ReLU()
        self.maxpool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        for i, (channels, squeeze, expand) in enumerate(self.FIRES, start=2):
            if complex_ and channels != 2 * expand:
                self.add_module(f"bypass{i}", nn.Conv2d(channels, 2 * expand, 1))
            self.add_module(f"fire{i}", Fire(channels, squeeze, expand))
            if i in (4, 8):
                self.add_module(f"maxpool{i}", nn.MaxPool2d(3, 2, ceil_mode=True))
        self.drop9 = nn.Dropout(0.5)
        self.conv10 = nn.Conv2d(512, 1000, 1)
        self.relu_conv10 = nn.ReLU()
        self.avgpool10 = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        modules = dict(self.named_children())
        x = self.maxpool1(self.relu_conv1(self.conv1(x)))
        for i, (channels, _, expand) in enumerate(self.FIRES, start=2):
            y = modules[f"fire{i}"](x)
            if f"bypass{i}" in modules:
                y = y + modules[f"bypass{i}"](x)
            elif self.simple and channels == 2 * expand:
                y = y + x
            x = modules[f"maxpool{i}"](y) if f"maxpool{i}" in modules else y
        x = self.relu_conv10(self.conv10(self.drop9(x)))
        return self.softmax(self.flatten(self.avgpool10(x)))


def squeezenet() -> nn.Module:
    """SqueezeNet without bypass."""
    return SqueezeNet()


def squeezenet_simple_bypass() -> nn.Module:
    """SqueezeNet with Fire modules 3, 5, 7 and 9 residual; the parameters stay the same."""
    return SqueezeNet(simple=True)


def squeezenet_complex_bypass() -> nn.Module:
    """SqueezeNet with the simple bypasses, and 1x1 convolutions around Fire 2, 4, 6 and 8."""
    return SqueezeNet(simple=True, complex_=True)


def _squeezenet_224(stem: tuple[int, int], pooled: tuple[int, int], first: int) -> nn.Module:
    """Make torchvision's SqueezeNet for 224x224, pooled after these Fire modules.

    `stem` is filters and kernel of the first convolution; the Fire modules are the same in both
    versions, but for the channels that the first one reads.
    """
    filters, kernel = stem
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, filters, kernel, stride=2),
        "relu_conv1": nn.ReLU(),
        "maxpool1": nn.MaxPool2d(3, 2, ceil_mode=True),
    }
    for i, (channels, squeeze, expand) in enumerate(SqueezeNet.FIRES, start=2):
        layers[f"fire{i}"] = Fire(first if i == 2 else channels, squeeze, expand)
        if i in pooled:
            layers[f"maxpool{i}"] = nn.MaxPool2d(3, 2, ceil_mode=True)
    return sequence(
        **layers,
        drop9=nn.Dropout(0.5),
        conv10=nn.Conv2d(512, 1000, 1),
        relu_conv10=nn.ReLU(),
        avgpool10=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        softmax=nn.Softmax(dim=1),
    )


def squeezenet1_0() -> nn.Module:
    """SqueezeNet 1.0 on 224x224 images."""
    return _squeezenet_224((96, 7), (4, 8), 96)


def squeezenet1_1() -> nn.Module:
    """SqueezeNet 1.1 on 224x224 images: a smaller first convolution, earlier pools."""
    return _squeezenet_224((64, 3), (3, 5), 64)


def mobilenet_v1() -> nn.Module:
    """Make MobileNet of Howard et al. (2017), width 1.0; blocks named as the Caffe models of it."""
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False),
        "conv1_bn": nn.BatchNorm2d(32),
        "conv1_relu": nn.ReLU(),
    }
    channels = 32
    for name, filters, stride in (
        ("conv2_1", 64, 1),
        ("conv2_2", 128, 2),
        ("conv3_1", 128, 1),
        ("conv3_2", 256, 2),
        ("conv4_1", 256, 1),
        ("conv4_2", 512, 2),
        *((f"conv5_{i}", 512, 1) for i in range(1, 6)),
        ("conv5_6", 1024, 2),
        ("conv6", 1024, 1),
    ):
        layers[name] = sequence(
            dw=nn.Conv2d(
                channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False
            ),
            dw_bn=nn.BatchNorm2d(channels),
            dw_relu=nn.ReLU(),
            sep=nn.Conv2d(channels, filters, 1, bias=False),
            sep_bn=nn.BatchNorm2d(filters),
            sep_relu=nn.ReLU(),
        )
        channels = filters
    return sequence(
        **layers,
        pool6=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc7=nn.Linear(1024, 1000),
        softmax=nn.Softmax(dim=1),
    )


def _inverted_residual(channels: int, expansion: int, filters: int, stride: int) -> nn.Module:
    """Expand by 1x1, filter by depth, project linearly; residual where the shape allows it."""
    layers: dict[str, nn.Module] = {}
    hidden = channels * expansion
    if expansion > 1:
        layers["expand"] = nn.Conv2d(channels, hidden, 1, bias=False)
        layers["expand_bn"] = nn.BatchNorm2d(hidden)
        layers["expand_relu"] = nn.ReLU6()
    body = sequence(
        **layers,
        dw=nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
        dw_bn=nn.BatchNorm2d(hidden),
        dw_relu=nn.ReLU6(),
        project=nn.Conv2d(hidden, filters, 1, bias=False),
        project_bn=nn.BatchNorm2d(filters),
    )
    if stride == 1 and channels == filters:
        return Residual(OrderedDict(body.named_children()))
    return body


def mobilenet_v2() -> nn.Module:
    """Make MobileNetV2 of Sandler et al. (2018), width 1.0."""
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False),
        "conv1_bn": nn.BatchNorm2d(32),
        "conv1_relu": nn.ReLU6(),
    }
    channels, stage = 32, 2
    for expansion, filters, repeats, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(repeats):
            layers[f"bottleneck{stage}_{i + 1}"] = _inverted_residual(
                channels, expansion, filters, stride if i == 0 else 1
            )
            channels = filters
        stage += 1
    return sequence(
        **layers,
        conv9=nn.Conv2d(320, 1280, 1, bias=False),
        conv9_bn=nn.BatchNorm2d(1280),
        conv9_relu=nn.ReLU6(),
        pool9=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        drop9=nn.Dropout(0.2),
        fc10=nn.Linear(1280, 1000),
        softmax=nn.Softmax(dim=1),
    )
