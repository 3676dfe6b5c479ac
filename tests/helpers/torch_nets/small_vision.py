"""Small nets on vectors, signals, images and volumes, for tests of the importer."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .parts import Residual, sequence


def mlp() -> nn.Module:
    """Make a perceptron of three layers."""
    return sequence(
        fc1=nn.Linear(64, 128),
        relu1=nn.ReLU(),
        fc2=nn.Linear(128, 96, bias=False),
        tanh2=nn.Tanh(),
        fc3=nn.Linear(96, 10),
        log_softmax=nn.LogSoftmax(dim=1),
    )


def conv_1d() -> nn.Module:
    """Make a net on a signal: strided, dilated and pooled in one dimension."""
    return sequence(
        conv1=nn.Conv1d(4, 16, 9, stride=2, padding=4),
        bn1=nn.BatchNorm1d(16),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool1d(2),
        conv2=nn.Conv1d(16, 32, 3, dilation=4, padding=4, groups=4),
        elu2=nn.ELU(),
        pool2=nn.AvgPool1d(4),
        conv3=nn.Conv1d(32, 8, 1),
        flatten=nn.Flatten(),
        fc4=nn.Linear(8 * 16, 5),
    )


def conv_3d() -> nn.Module:
    """Make a net on a volume."""
    return sequence(
        conv1=nn.Conv3d(1, 8, 3, padding=1),
        bn1=nn.BatchNorm3d(8),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool3d((1, 2, 2)),
        conv2=nn.Conv3d(8, 16, (3, 5, 5), stride=(1, 2, 2), padding=(0, 2, 2)),
        relu2=nn.ReLU(),
        pool2=nn.AvgPool3d(2),
        gap=nn.AdaptiveAvgPool3d(1),
        flatten=nn.Flatten(),
        fc3=nn.Linear(16, 4),
    )


def odd_convolutions() -> nn.Module:
    """Make convolutions whose height and width differ in everything, grouped and dilated."""
    return sequence(
        conv1=nn.Conv2d(3, 12, (7, 3), stride=(3, 1), padding=(2, 0)),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(12, 24, (3, 5), dilation=(2, 3), padding=(0, 6), groups=3),
        relu2=nn.ReLU(),
        conv3=nn.Conv2d(24, 24, 3, stride=(1, 2), padding="valid", groups=24, bias=False),
        conv4=nn.Conv2d(24, 16, 3, padding="same", padding_mode="zeros"),
        pool4=nn.MaxPool2d((2, 3), stride=(1, 2), padding=(0, 1), ceil_mode=True),
        pool5=nn.AdaptiveMaxPool2d((2, 3)),
        flatten=nn.Flatten(),
        fc6=nn.Linear(16 * 2 * 3, 7),
    )


def deconvolution() -> nn.Module:
    """Make a decoder of transposed convolutions, one grouped, one not square."""
    return sequence(
        fc1=nn.Linear(20, 32 * 4 * 4),
        reshape1=nn.Unflatten(1, (32, 4, 4)),
        deconv2=nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
        relu2=nn.ReLU(),
        deconv3=nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1, groups=4),
        lrelu3=nn.LeakyReLU(0.1),
        deconv4=nn.ConvTranspose2d(8, 1, (5, 3), stride=(2, 1), padding=(2, 1), bias=False),
        sigmoid4=nn.Sigmoid(),
    )


class SqueezeExcite(nn.Module):
    """Scale channels by what a small net makes of their means."""

    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, reduced, 1)
        self.relu = nn.ReLU()
        self.expand = nn.Conv2d(reduced, channels, 1)
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.relu(self.reduce(self.pool(x)))))


class SqueezeExciteNet(nn.Module):
    """A residual net with channel scaling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.conv1 = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.silu1 = nn.SiLU()
        self.conv2 = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.se = SqueezeExcite(32, 8)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        y = self.silu1(self.bn1(self.conv1(x)))
        x = F.relu(x + self.se(self.bn2(self.conv2(y))))
        return self.fc(x.mean(dim=(2, 3)))


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, then a perceptron over channels that come last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.gelu = nn.GELU()
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.scale * self.pwconv2(self.gelu(self.pwconv1(self.norm(y))))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Two blocks of ConvNeXt on patches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 4, stride=4)
        self.block1 = ConvNeXtBlock(24)
        self.block2 = ConvNeXtBlock(24)
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block2(self.block1(self.stem(x)))
        return self.head(self.norm(x.mean([-2, -1])))


class Shuffle(nn.Module):
    """Interleave the channels of groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        return x.view(n, self.groups, c // self.groups, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleNet(nn.Module):
    """A unit of ShuffleNet and one of its second version, which splits the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 3, stride=2, padding=1)
        self.unit1 = Residual(
            nn.Conv2d(24, 12, 1, groups=3, bias=False),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            Shuffle(3),
            nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False),
            nn.BatchNorm2d(12),
            nn.Conv2d(12, 24, 1, groups=3, bias=False),
            nn.BatchNorm2d(24),
        )
        self.branch2 = sequence(
            conv=nn.Conv2d(12, 12, 1, bias=False), bn=nn.BatchNorm2d(12), relu=nn.ReLU()
        )
        self.shuffle2 = Shuffle(2)
        self.fc = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.unit1(self.stem(x)))
        kept, changed = x.chunk(2, dim=1)
        x = self.shuffle2(torch.cat((kept, self.branch2(changed)), dim=1))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class UpsampledUNet(nn.Module):
    """A padded U-Net of three levels, upsampled by interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(1, 8, 3, padding=1)
        self.down2 = nn.Conv2d(8, 16, 3, padding=1)
        self.bottom = nn.Conv2d(16, 32, 3, padding=1)
        self.up2 = nn.Conv2d(48, 16, 3, padding=1)
        self.up1 = nn.Conv2d(24, 8, 3, padding=1)
        self.score = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = F.relu(self.down1(x))
        two = F.relu(self.down2(F.max_pool2d(one, 2)))
        x = F.relu(self.bottom(F.max_pool2d(two, 2)))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = F.relu(self.up2(torch.cat([two, x], dim=1)))
        x = F.interpolate(x, size=one.shape[2:], mode="nearest")
        return self.score(F.relu(self.up1(torch.cat([one, x], dim=1))))


def norms() -> nn.Module:
    """Make a net of the rarer normalizations and activations."""
    return sequence(
        pad1=nn.ReflectionPad2d(1),
        conv1=nn.Conv2d(3, 16, 3),
        in1=nn.InstanceNorm2d(16, affine=True),
        prelu1=nn.PReLU(16),
        conv2=nn.Conv2d(16, 16, 3, stride=2, padding=1),
        gn2=nn.GroupNorm(4, 16),
        hardswish2=nn.Hardswish(),
        conv3=nn.Conv2d(16, 32, 3, padding=1),
        lrn3=nn.LocalResponseNorm(5),
        softplus3=nn.Softplus(),
        drop3=nn.Dropout2d(0.1),
        shuffle4=nn.PixelShuffle(2),
        pool4=nn.LPPool2d(2, 2),
        flatten=nn.Flatten(),
        fc5=nn.Linear(8 * 16 * 16, 10),
    )
