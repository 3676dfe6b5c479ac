"""ResNets as they are used today: the stride in the 3x3, groups, widths, squeeze, pre-activation.

Modules have torchvision's names.
"""

from torch import Tensor, nn

from .parts import sequence

#: Blocks in each of the four stages, by the number of layers.
STAGES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}


def _conv(channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Convolve without bias, padded to keep the size unless strided."""
    return nn.Conv2d(
        channels, filters, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
    )


class SqueezeExcitation(nn.Module):
    """Scale channels by what a small net makes of their means (Hu et al., 2017)."""

    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.squeeze = nn.Conv2d(channels, reduced, 1)
        self.relu = nn.ReLU()
        self.expand = nn.Conv2d(reduced, channels, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.sigmoid(self.expand(self.relu(self.squeeze(self.avgpool(x)))))


class Bottleneck(nn.Module):
    """A block of 1x1, 3x3, 1x1 with the stride in the 3x3, `width` channels inside."""

    def __init__(
        self, channels: int, width: int, filters: int, stride: int, groups: int, squeeze: int
    ) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = _conv(width, width, 3, stride, groups)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv3 = _conv(width, filters, 1)
        self.bn3 = nn.BatchNorm2d(filters)
        self.se = SqueezeExcitation(filters, filters // squeeze) if squeeze else nn.Identity()
        self.downsample = (
            sequence(conv=_conv(channels, filters, 1, stride), bn=nn.BatchNorm2d(filters))
            if stride != 1 or channels != filters
            else nn.Identity()
        )
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.relu2(self.bn2(self.conv2(y)))
        y = self.se(self.bn3(self.conv3(y)))
        return self.relu3(y + self.downsample(x))


def stages(
    blocks: tuple[int, ...],
    *,
    groups: int = 1,
    width: int = 64,
    squeeze: int = 0,
    strides: tuple[int, ...] = (1, 2, 2, 2),
) -> dict[str, nn.Module]:
    """Make the stem and the stages; `width` channels a group inside the first stage's blocks."""
    layers: dict[str, nn.Module] = {
        "conv1": _conv(3, 64, 7, stride=2),
        "bn1": nn.BatchNorm2d(64),
        "relu": nn.ReLU(),
        "maxpool": nn.MaxPool2d(3, 2, padding=1),
    }
    channels = 64
    for stage, (count, first) in enumerate(zip(blocks, strides[: len(blocks)], strict=True)):
        inside, filters = groups * width * 2**stage, 256 * 2**stage
        body: dict[str, nn.Module] = {}
        for i in range(count):
            stride = first if i == 0 else 1
            body[f"{i}"] = Bottleneck(channels, inside, filters, stride, groups, squeeze)
            channels = filters
        layers[f"layer{stage + 1}"] = sequence(**body)
    return layers


def _resnet(depth: int, *, groups: int = 1, width: int = 64, squeeze: int = 0) -> nn.Module:
    return sequence(
        **stages(STAGES[depth], groups=groups, width=width, squeeze=squeeze),
        avgpool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(2048, 1000),
        softmax=nn.Softmax(dim=1),
    )


def resnet50_v1_5() -> nn.Module:
    """ResNet-50 with the stride in the 3x3, often called v1.5."""
    return _resnet(50)


def resnet101_v1_5() -> nn.Module:
    """ResNet-101 with the stride in the 3x3."""
    return _resnet(101)


def resnet152_v1_5() -> nn.Module:
    """ResNet-152 with the stride in the 3x3."""
    return _resnet(152)


def resnext50_32x4d() -> nn.Module:
    """ResNeXt-50 of Xie et al. (2016), 32 groups of 4 channels."""
    return _resnet(50, groups=32, width=4)


def resnext101_32x4d() -> nn.Module:
    """ResNeXt-101 of Xie et al. (2016), 32 groups of 4 channels."""
    return _resnet(101, groups=32, width=4)


def resnext101_32x8d() -> nn.Module:
    """ResNeXt-101, 32 groups of 8 channels."""
    return _resnet(101, groups=32, width=8)


def se_resnext101_32x4d() -> nn.Module:
    """ResNeXt-101 with squeeze and excitation (Hu et al., 2017), reduced 16 times."""
    return _resnet(101, groups=32, width=4, squeeze=16)


def wide_resnet50_2() -> nn.Module:
    """ResNet-50, its blocks twice as wide inside (Zagoruyko and Komodakis, 2016)."""
    return _resnet(50, width=128)


def wide_resnet101_2() -> nn.Module:
    """ResNet-101, its blocks twice as wide inside."""
    return _resnet(101, width=128)


class PreActivation(nn.Module):
    """A block of the second ResNet (He et al., 2016): normalized and rectified before filters.

    The stride is in the 3x3. Where the shape changes, the shortcut is a convolution of what has
    been normalized.
    """

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        width = filters // 4
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu1 = nn.ReLU()
        self.conv1 = _conv(channels, width, 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv2 = _conv(width, width, 3, stride)
        self.bn3 = nn.BatchNorm2d(width)
        self.relu3 = nn.ReLU()
        self.conv3 = _conv(width, filters, 1)
        self.projected = stride != 1 or channels != filters
        if self.projected:
            self.downsample = _conv(channels, filters, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(x))
        shortcut = self.downsample(y) if self.projected else x
        y = self.relu2(self.bn2(self.conv1(y)))
        return shortcut + self.conv3(self.relu3(self.bn3(self.conv2(y))))


def _resnet_v2(depth: int) -> nn.Module:
    layers: dict[str, nn.Module] = {}
    channels = 64
    for stage, count in enumerate(STAGES[depth]):
        filters = 256 * 2**stage
        body: dict[str, nn.Module] = {}
        for i in range(count):
            body[f"{i}"] = PreActivation(channels, filters, 2 if i == 0 and stage else 1)
            channels = filters
        layers[f"layer{stage + 1}"] = sequence(**body)
    return sequence(
        conv1=_conv(3, 64, 7, stride=2),
        bn1=nn.BatchNorm2d(64),
        relu=nn.ReLU(),
        maxpool=nn.MaxPool2d(3, 2, padding=1),
        **layers,
        bn=nn.BatchNorm2d(2048),
        relu_bn=nn.ReLU(),
        avgpool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(2048, 1000),
        softmax=nn.Softmax(dim=1),
    )


def resnet50_v2() -> nn.Module:
    """ResNet-50 with pre-activation."""
    return _resnet_v2(50)


def resnet101_v2() -> nn.Module:
    """ResNet-101 with pre-activation."""
    return _resnet_v2(101)


def resnet152_v2() -> nn.Module:
    """ResNet-152 with pre-activation."""
    return _resnet_v2(152)


def resnet200_v2() -> nn.Module:
    """ResNet-200 with pre-activation, as in the publication of 2016."""
    return _resnet_v2(200)


class SSD(nn.Module):
    """SSD (Liu et al., 2015) on 300x300 images: boxes and classes from six sizes of features.

    The backbone is ResNet-50 up to its third stage, whose stride is 1, as in NVIDIA's
    DeepLearningExamples; four coordinates and 81 classes for each of 8,732 boxes.
    """

    #: Channels of the six maps of features, and boxes at each of their positions.
    CHANNELS = (1024, 512, 512, 256, 256, 256)
    BOXES = (4, 6, 6, 6, 4, 4)

    def __init__(self) -> None:
        super().__init__()
        self.backbone = sequence(**stages((3, 4, 6), strides=(1, 2, 1)))
        self.extra = nn.ModuleList(
            sequence(
                conv1=nn.Conv2d(channels, inside, 1, bias=False),
                bn1=nn.BatchNorm2d(inside),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(
                    inside,
                    filters,
                    3,
                    stride=2 if i < 3 else 1,
                    padding=1 if i < 3 else 0,
                    bias=False,
                ),
                bn2=nn.BatchNorm2d(filters),
                relu2=nn.ReLU(),
            )
            for i, (channels, filters, inside) in enumerate(
                zip(self.CHANNELS[:-1], self.CHANNELS[1:], (256, 256, 128, 128, 128), strict=True)
            )
        )
        pairs = list(zip(self.CHANNELS, self.BOXES, strict=True))
        self.location = nn.ModuleList(nn.Conv2d(c, 4 * b, 3, padding=1) for c, b in pairs)
        self.confidence = nn.ModuleList(nn.Conv2d(c, 81 * b, 3, padding=1) for c, b in pairs)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = [self.backbone(x)]
        for block in self.extra:
            maps.append(block(maps[-1]))
        return tuple(
            head(features)
            for heads in (self.location, self.confidence)
            for head, features in zip(heads, maps, strict=True)
        )


def ssd300_resnet50() -> nn.Module:
    """SSD on 300x300 images with the backbone of ResNet-50."""
    return SSD()
