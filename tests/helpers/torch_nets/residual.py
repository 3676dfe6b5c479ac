"""ResNet and DenseNet."""

from collections import OrderedDict
from string import ascii_lowercase

from torch import Tensor, nn

from .parts import Dense, sequence


def _conv(
    channels: int, filters: int, kernel: int, stride: int = 1, padding: int | None = None
) -> nn.Conv2d:
    """Convolve without bias, padded to keep the size unless strided."""
    padding = kernel // 2 if padding is None else padding
    return nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding, bias=False)


class ResidualBlock(nn.Module):
    """A block of ResNet; its layers have the names of the authors' Caffe release.

    `bottleneck` is 1x1, 3x3, 1x1 with the stride in the first 1x1, as published (later
    implementations move it to the 3x3); otherwise two 3x3. `branch1` is the projection of the
    shortcut where the shape changes.
    """

    def __init__(self, channels: int, filters: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        kernels: tuple[int, ...]
        widths: tuple[int, ...]
        if bottleneck:
            kernels, widths = (1, 3, 1), (filters, filters, 4 * filters)
        else:
            kernels, widths = (3, 3), (filters, filters)
        self.projected = stride != 1 or channels != widths[-1]
        if self.projected:
            self.branch1 = _conv(channels, widths[-1], 1, stride)
            self.bn_branch1 = nn.BatchNorm2d(widths[-1])
        body: dict[str, nn.Module] = {}
        for letter, kernel, width in zip("abc"[: len(kernels)], kernels, widths, strict=True):
            body[f"branch2{letter}"] = _conv(channels, width, kernel, stride)
            body[f"bn_branch2{letter}"] = nn.BatchNorm2d(width)
            body[f"relu_branch2{letter}"] = nn.ReLU()
            channels, stride = width, 1
        body.popitem()  # the last ReLU comes after the addition
        self.body_names = tuple(body)
        for name, module in body.items():
            self.add_module(name, module)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.bn_branch1(self.branch1(x)) if self.projected else x
        for name in self.body_names:
            x = self.get_submodule(name)(x)
        return self.relu(shortcut + x)


def _resnet(*blocks: int, bottleneck: bool) -> nn.Module:
    """Make the ResNet with this many blocks in each of its four stages.

    Blocks are lettered; in the stages of ResNet-101 and -152 with more than six (or, in their
    third stage, three) they are a, b1, b2 and so on, as the authors did.
    """
    layers: dict[str, nn.Module] = {}
    channels = 64
    deep = sum(blocks) > 16
    for stage, count in enumerate(blocks, start=2):
        for i in range(count):
            numbered = deep and count > 3
            name = ("a" if i == 0 else f"b{i}") if numbered else ascii_lowercase[i]
            filters = 64 * 2 ** (stage - 2)
            stride = 2 if i == 0 and stage > 2 else 1
            layers[f"res{stage}{name}"] = ResidualBlock(
                channels, filters, stride, bottleneck=bottleneck
            )
            channels = 4 * filters if bottleneck else filters
    return sequence(
        conv1=_conv(3, 64, 7, stride=2),
        bn_conv1=nn.BatchNorm2d(64),
        conv1_relu=nn.ReLU(),
        pool1=nn.MaxPool2d(3, 2, ceil_mode=True),
        **layers,
        pool5=nn.AvgPool2d(7),
        flatten=nn.Flatten(),
        fc1000=nn.Linear(channels, 1000),
        prob=nn.Softmax(dim=1),
    )


def resnet18() -> nn.Module:
    """ResNet-18 of He et al. (2015), with projections where the shape changes (option B)."""
    return _resnet(2, 2, 2, 2, bottleneck=False)


def resnet34() -> nn.Module:
    """ResNet-34 of He et al. (2015), with projections where the shape changes (option B)."""
    return _resnet(3, 4, 6, 3, bottleneck=False)


def resnet50() -> nn.Module:
    """ResNet-50 of He et al. (2015).

    The authors' Caffe file gives `conv1` of this net, and of no other, a bias: 64 parameters
    more than here.
    """
    return _resnet(3, 4, 6, 3, bottleneck=True)


def resnet101() -> nn.Module:
    """ResNet-101 of He et al. (2015)."""
    return _resnet(3, 4, 23, 3, bottleneck=True)


def resnet152() -> nn.Module:
    """ResNet-152 of He et al. (2015)."""
    return _resnet(3, 8, 36, 3, bottleneck=True)


def _dense_layer(channels: int, growth: int, *, bottleneck: bool, dropout: float) -> nn.Module:
    """Make a layer of DenseNet, which appends `growth` channels to its input."""
    layers: dict[str, nn.Module]
    if bottleneck:
        layers = {
            "bn1": nn.BatchNorm2d(channels),
            "relu1": nn.ReLU(),
            "conv1": _conv(channels, 4 * growth, 1),
            "bn2": nn.BatchNorm2d(4 * growth),
            "relu2": nn.ReLU(),
            "conv2": _conv(4 * growth, growth, 3),
        }
    else:
        layers = {
            "bn": nn.BatchNorm2d(channels),
            "relu": nn.ReLU(),
            "conv": _conv(channels, growth, 3),
        }
    if dropout:
        layers["dropout"] = nn.Dropout(dropout)
    return Dense(OrderedDict(layers))


def _dense_blocks(
    channels: int,
    growth: int,
    blocks: tuple[int, ...],
    *,
    bottleneck: bool,
    compression: float,
    dropout: float = 0.0,
) -> tuple[dict[str, nn.Module], int]:
    """Make dense blocks with transitions between them, and count the channels they end with."""
    layers: dict[str, nn.Module] = {}
    for i, count in enumerate(blocks, start=1):
        block: dict[str, nn.Module] = {}
        for j in range(1, count + 1):
            block[f"layer{j}"] = _dense_layer(
                channels, growth, bottleneck=bottleneck, dropout=dropout
            )
            channels += growth
        layers[f"block{i}"] = sequence(**block)
        if i < len(blocks):
            kept = int(channels * compression)
            transition = sequence(
                bn=nn.BatchNorm2d(channels), relu=nn.ReLU(), conv=_conv(channels, kept, 1)
            )
            if dropout:
                transition.add_module("dropout", nn.Dropout(dropout))
            transition.add_module("pool", nn.AvgPool2d(2, 2))
            layers[f"transition{i}"] = transition
            channels = kept
    return layers, channels


def densenet40() -> nn.Module:
    """DenseNet of Huang et al. (2016), 40 layers, k = 12, for 32x32 images in ten classes.

    As the authors' Caffe file: no bottlenecks, no compression, dropout of 0.2.
    """
    layers, channels = _dense_blocks(
        16, 12, (12, 12, 12), bottleneck=False, compression=1.0, dropout=0.2
    )
    return sequence(
        conv1=_conv(3, 16, 3),
        **layers,
        bn=nn.BatchNorm2d(channels),
        relu=nn.ReLU(),
        pool=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc=nn.Linear(channels, 10),
        softmax=nn.Softmax(dim=1),
    )


def _densenet(first: int, growth: int, blocks: tuple[int, ...]) -> nn.Module:
    """Make a DenseNet-BC for ImageNet, with this many channels after its first convolution."""
    layers, channels = _dense_blocks(first, growth, blocks, bottleneck=True, compression=0.5)
    return sequence(
        conv1=_conv(3, first, 7, stride=2),
        bn1=nn.BatchNorm2d(first),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(3, 2, padding=1),
        **layers,
        bn5=nn.BatchNorm2d(channels),
        relu5=nn.ReLU(),
        pool5=nn.AdaptiveAvgPool2d(1),
        flatten=nn.Flatten(),
        fc6=nn.Linear(channels, 1000),
        softmax=nn.Softmax(dim=1),
    )


def densenet121() -> nn.Module:
    """DenseNet-BC of Huang et al. (2016), 121 layers, k = 32, for ImageNet."""
    return _densenet(64, 32, (6, 12, 24, 16))


def densenet161() -> nn.Module:
    """DenseNet-BC of Huang et al. (2016), 161 layers, k = 48, for ImageNet."""
    return _densenet(96, 48, (6, 12, 36, 24))


def densenet169() -> nn.Module:
    """DenseNet-BC of Huang et al. (2016), 169 layers, k = 32, for ImageNet."""
    return _densenet(64, 32, (6, 12, 32, 32))


def densenet201() -> nn.Module:
    """DenseNet-BC of Huang et al. (2016), 201 layers, k = 32, for ImageNet."""
    return _densenet(64, 32, (6, 12, 48, 32))
