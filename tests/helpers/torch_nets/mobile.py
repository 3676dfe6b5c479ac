"""Small nets by search and by hand: MnasNet, MobileNetV3, EfficientNet, ShuffleNetV2.

As torchvision has them; the names of layers say what they do.
"""

import math
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .parts import Residual, sequence


def _multiple_of_8(channels: float) -> int:
    """Round to a multiple of 8 that is not below 0.9 of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Gate(nn.Module):
    """Scale channels by what a small net makes of their means."""

    def __init__(
        self, channels: int, reduced: int, activation: type[nn.Module], gate: type[nn.Module]
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, reduced, 1)
        self.activation = activation()
        self.fc2 = nn.Conv2d(reduced, channels, 1)
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


def _inverted(
    channels: int,
    hidden: int,
    filters: int,
    kernel: int,
    stride: int,
    activation: type[nn.Module],
    gate: Callable[[], nn.Module] | None = None,
    *,
    expands: bool = True,
) -> nn.Module:
    """Expand by 1x1, filter by depth, scale, project; residual where the shape allows it."""
    layers: dict[str, nn.Module] = {}
    if expands:
        layers["expand"] = nn.Conv2d(channels, hidden, 1, bias=False)
        layers["expand_bn"] = nn.BatchNorm2d(hidden)
        layers["expand_act"] = activation()
    layers["dw"] = nn.Conv2d(
        hidden, hidden, kernel, stride=stride, padding=kernel // 2, groups=hidden, bias=False
    )
    layers["dw_bn"] = nn.BatchNorm2d(hidden)
    layers["dw_act"] = activation()
    if gate:
        layers["se"] = gate()
    layers["project"] = nn.Conv2d(hidden, filters, 1, bias=False)
    layers["project_bn"] = nn.BatchNorm2d(filters)
    if stride == 1 and channels == filters:
        return Residual(OrderedDict(layers))
    return sequence(**layers)


def _stem(filters: int, activation: type[nn.Module]) -> dict[str, nn.Module]:
    return {
        "conv1": nn.Conv2d(3, filters, 3, stride=2, padding=1, bias=False),
        "conv1_bn": nn.BatchNorm2d(filters),
        "conv1_act": activation(),
    }


def _head(channels: int, filters: int, activation: type[nn.Module]) -> dict[str, nn.Module]:
    """Make the last convolution and the mean over its positions."""
    return {
        "last": nn.Conv2d(channels, filters, 1, bias=False),
        "last_bn": nn.BatchNorm2d(filters),
        "last_act": activation(),
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
    }


def _mnasnet(width: float) -> nn.Module:
    """Make MnasNet-B1 of Tan et al. (2018), this many times as wide."""
    first, separated, *widths = (
        _multiple_of_8(width * channels) for channels in (32, 16, 24, 40, 80, 96, 192, 320)
    )
    layers = _stem(first, nn.ReLU)
    layers["separable"] = _inverted(first, first, separated, 3, 1, nn.ReLU, expands=False)
    channels = separated
    stacks = ((3, 2, 3, 3), (5, 2, 3, 3), (5, 2, 6, 3), (3, 1, 6, 2), (5, 2, 6, 4), (3, 1, 6, 1))
    for stage, (filters, stack) in enumerate(zip(widths, stacks, strict=True), start=1):
        kernel, stride, expansion, repeats = stack
        for i in range(repeats):
            layers[f"stack{stage}_{i + 1}"] = _inverted(
                channels, channels * expansion, filters, kernel, 1 if i else stride, nn.ReLU
            )
            channels = filters
    return sequence(
        **layers,
        **_head(channels, 1280, nn.ReLU),
        dropout=nn.Dropout(0.2),
        fc=nn.Linear(1280, 1000),
        softmax=nn.Softmax(dim=1),
    )


def mnasnet0_5() -> nn.Module:
    """MnasNet half as wide."""
    return _mnasnet(0.5)


def mnasnet0_75() -> nn.Module:
    """MnasNet 0.75 times as wide."""
    return _mnasnet(0.75)


def mnasnet1_0() -> nn.Module:
    """MnasNet as published."""
    return _mnasnet(1.0)


def mnasnet1_3() -> nn.Module:
    """MnasNet 1.3 times as wide."""
    return _mnasnet(1.3)


def _mobilenet_v3(
    rows: tuple[tuple[int, int, int, bool, bool, int], ...], last: int, classifier: int
) -> nn.Module:
    """Make MobileNetV3 of Howard et al. (2019).

    A row is kernel, hidden channels, filters, whether it scales channels, whether it uses the
    hard swish in the place of ReLU, and the stride.
    """
    layers = _stem(16, nn.Hardswish)
    channels = 16
    for i, (kernel, hidden, filters, scales, swish, stride) in enumerate(rows, start=1):

        def gate(hidden: int = hidden) -> nn.Module:
            return Gate(hidden, _multiple_of_8(hidden / 4), nn.ReLU, nn.Hardsigmoid)

        layers[f"bottleneck{i}"] = _inverted(
            channels,
            hidden,
            filters,
            kernel,
            stride,
            nn.Hardswish if swish else nn.ReLU,
            gate if scales else None,
            expands=hidden != channels,
        )
        channels = filters
    return sequence(
        **layers,
        **_head(channels, last, nn.Hardswish),
        fc1=nn.Linear(last, classifier),
        fc1_act=nn.Hardswish(),
        dropout=nn.Dropout(0.2),
        fc2=nn.Linear(classifier, 1000),
        softmax=nn.Softmax(dim=1),
    )


def mobilenet_v3_large() -> nn.Module:
    """MobileNetV3-Large, width 1.0."""
    return _mobilenet_v3(
        (
            (3, 16, 16, False, False, 1),
            (3, 64, 24, False, False, 2),
            (3, 72, 24, False, False, 1),
            (5, 72, 40, True, False, 2),
            (5, 120, 40, True, False, 1),
            (5, 120, 40, True, False, 1),
            (3, 240, 80, False, True, 2),
            (3, 200, 80, False, True, 1),
            (3, 184, 80, False, True, 1),
            (3, 184, 80, False, True, 1),
            (3, 480, 112, True, True, 1),
            (3, 672, 112, True, True, 1),
            (5, 672, 160, True, True, 2),
            (5, 960, 160, True, True, 1),
            (5, 960, 160, True, True, 1),
        ),
        960,
        1280,
    )


def mobilenet_v3_small() -> nn.Module:
    """MobileNetV3-Small, width 1.0."""
    return _mobilenet_v3(
        (
            (3, 16, 16, True, False, 2),
            (3, 72, 24, False, False, 2),
            (3, 88, 24, False, False, 1),
            (5, 96, 40, True, True, 2),
            (5, 240, 40, True, True, 1),
            (5, 240, 40, True, True, 1),
            (5, 120, 48, True, True, 1),
            (5, 144, 48, True, True, 1),
            (5, 288, 96, True, True, 2),
            (5, 576, 96, True, True, 1),
            (5, 576, 96, True, True, 1),
        ),
        576,
        1024,
    )


def _efficientnet(width: float, depth: float, dropout: float) -> nn.Module:
    """Make EfficientNet of Tan and Le (2019), this many times as wide and as deep as B0."""
    layers = _stem(_multiple_of_8(32 * width), nn.SiLU)
    channels = _multiple_of_8(32 * width)
    for stage, (expansion, kernel, stride, filters, repeats) in enumerate(
        (
            (1, 3, 1, 16, 1),
            (6, 3, 2, 24, 2),
            (6, 5, 2, 40, 2),
            (6, 3, 2, 80, 3),
            (6, 5, 1, 112, 3),
            (6, 5, 2, 192, 4),
            (6, 3, 1, 320, 1),
        ),
        start=1,
    ):
        out = _multiple_of_8(filters * width)
        for i in range(math.ceil(repeats * depth)):
            hidden = channels * expansion

            def gate(hidden: int = hidden, reduced: int = channels // 4) -> nn.Module:
                return Gate(hidden, reduced, nn.SiLU, nn.Sigmoid)

            layers[f"stage{stage}_{i + 1}"] = _inverted(
                channels,
                hidden,
                out,
                kernel,
                1 if i else stride,
                nn.SiLU,
                gate,
                expands=expansion > 1,
            )
            channels = out
    last = 4 * channels
    return sequence(
        **layers,
        **_head(channels, last, nn.SiLU),
        dropout=nn.Dropout(dropout),
        fc=nn.Linear(last, 1000),
        softmax=nn.Softmax(dim=1),
    )


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0 on 224x224 images."""
    return _efficientnet(1.0, 1.0, 0.2)


def efficientnet_b4() -> nn.Module:
    """EfficientNet-B4 on 380x380 images."""
    return _efficientnet(1.4, 1.8, 0.4)


class ShuffleUnit(nn.Module):
    """A unit of ShuffleNetV2: half of the channels pass; with a stride, both halves are filtered.

    The halves are interleaved at the end.
    """

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.strided = stride > 1
        half = filters // 2
        if self.strided:
            self.branch1 = sequence(
                dw=nn.Conv2d(
                    channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False
                ),
                dw_bn=nn.BatchNorm2d(channels),
                conv=nn.Conv2d(channels, half, 1, bias=False),
                bn=nn.BatchNorm2d(half),
                relu=nn.ReLU(),
            )
        self.branch2 = sequence(
            conv1=nn.Conv2d(channels if self.strided else half, half, 1, bias=False),
            bn1=nn.BatchNorm2d(half),
            relu1=nn.ReLU(),
            dw=nn.Conv2d(half, half, 3, stride=stride, padding=1, groups=half, bias=False),
            dw_bn=nn.BatchNorm2d(half),
            conv2=nn.Conv2d(half, half, 1, bias=False),
            bn2=nn.BatchNorm2d(half),
            relu2=nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.strided:
            y = torch.cat((self.branch1(x), self.branch2(x)), dim=1)
        else:
            kept, changed = x.chunk(2, dim=1)
            y = torch.cat((kept, self.branch2(changed)), dim=1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def _shufflenet_v2(*widths: int, last: int) -> nn.Module:
    """Make ShuffleNetV2 of Ma et al. (2018) with these channels in its three stages."""
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False),
        "bn1": nn.BatchNorm2d(24),
        "relu1": nn.ReLU(),
        "maxpool": nn.MaxPool2d(3, 2, padding=1),
    }
    channels = 24
    for stage, (filters, repeats) in enumerate(zip(widths, (4, 8, 4), strict=True), start=2):
        for i in range(repeats):
            layers[f"stage{stage}_{i + 1}"] = ShuffleUnit(channels, filters, 1 if i else 2)
            channels = filters
    return sequence(
        **layers,
        conv5=nn.Conv2d(channels, last, 1, bias=False),
        bn5=nn.BatchNorm2d(last),
        relu5=nn.ReLU(),
        avgpool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(last, 1000),
        softmax=nn.Softmax(dim=1),
    )


def shufflenet_v2_x0_5() -> nn.Module:
    """ShuffleNetV2, width 0.5."""
    return _shufflenet_v2(48, 96, 192, last=1024)


def shufflenet_v2_x1_0() -> nn.Module:
    """ShuffleNetV2, width 1."""
    return _shufflenet_v2(116, 232, 464, last=1024)


def shufflenet_v2_x1_5() -> nn.Module:
    """ShuffleNetV2, width 1.5."""
    return _shufflenet_v2(176, 352, 704, last=1024)


def shufflenet_v2_x2_0() -> nn.Module:
    """ShuffleNetV2, width 2."""
    return _shufflenet_v2(244, 488, 976, last=2048)
