"""Nets that do not classify images: DCGAN, U-Net, a speech net and a language model."""

import torch
from torch import Tensor, nn

from .parts import sequence


def dcgan_generator() -> nn.Module:
    """Make the generator of DCGAN (Radford et al., 2015) that was trained on LSUN bedrooms.

    Kernels are 5x5 with stride 2, as in the publication's figure 1 and the authors' code
    (github.com/Newmu/dcgan_code), which projects by a matrix product and uses no biases; the 4x4
    kernels of many later versions are not the publication's. The authors normalize each of the
    projection's 16,384 features for itself, before reshaping, and so does `bn1`.
    """
    layers: dict[str, nn.Module] = {}
    channels = 1024
    for i, filters in enumerate((512, 256, 128, 3), start=2):
        layers[f"deconv{i}"] = nn.ConvTranspose2d(
            channels, filters, 5, stride=2, padding=2, output_padding=1, bias=False
        )
        if filters != 3:
            layers[f"bn{i}"] = nn.BatchNorm2d(filters)
            layers[f"relu{i}"] = nn.ReLU()
        channels = filters
    return sequence(
        project1=nn.Linear(100, 1024 * 4 * 4, bias=False),
        bn1=nn.BatchNorm1d(1024 * 4 * 4),
        relu1=nn.ReLU(),
        reshape1=nn.Unflatten(1, (1024, 4, 4)),
        **layers,
        tanh5=nn.Tanh(),
    )


def dcgan_discriminator() -> nn.Module:
    """Make the discriminator of DCGAN, mirroring the generator, with 5x5 kernels too.

    The first convolution is not normalized; nothing has a bias (see `dcgan_generator`).
    """
    layers: dict[str, nn.Module] = {}
    channels = 3
    for i, filters in enumerate((128, 256, 512, 1024), start=1):
        layers[f"conv{i}"] = nn.Conv2d(channels, filters, 5, stride=2, padding=2, bias=False)
        if i > 1:
            layers[f"bn{i}"] = nn.BatchNorm2d(filters)
        layers[f"lrelu{i}"] = nn.LeakyReLU(0.2)
        channels = filters
    return sequence(
        **layers,
        flatten=nn.Flatten(),
        fc5=nn.Linear(1024 * 4 * 4, 1, bias=False),
        sigmoid5=nn.Sigmoid(),
    )


def _contract(channels: int, filters: int) -> nn.Module:
    """Make a step down of U-Net: two unpadded convolutions."""
    return sequence(
        conv1=nn.Conv2d(channels, filters, 3),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(filters, filters, 3),
        relu2=nn.ReLU(),
    )


class Expand(nn.Module):
    """A step up of U-Net: upsample, concatenate with the cropped map of the way down."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.upconv = nn.ConvTranspose2d(channels, filters, 2, stride=2)
        self.relu_upconv = nn.ReLU()
        self.conv1 = nn.Conv2d(2 * filters, filters, 3)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(filters, filters, 3)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor, skipped: Tensor) -> Tensor:
        x = self.relu_upconv(self.upconv(x))
        size = x.shape[-1]
        margin = (skipped.shape[-1] - size) // 2
        cropped = skipped[:, :, margin : margin + size, margin : margin + size]
        x = self.relu1(self.conv1(torch.cat([cropped, x], dim=1)))
        return self.relu2(self.conv2(x))


class UNet(nn.Module):
    """U-Net of Ronneberger et al. (2015): unpadded, 572x572 in, 388x388 out, two classes.

    The up-convolutions are rectified and the last two maps of the way down dropped out, as in the
    authors' Caffe file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.down1 = _contract(1, 64)
        self.pool1 = nn.MaxPool2d(2, 2)
        self.down2 = _contract(64, 128)
        self.pool2 = nn.MaxPool2d(2, 2)
        self.down3 = _contract(128, 256)
        self.pool3 = nn.MaxPool2d(2, 2)
        self.down4 = _contract(256, 512)
        self.drop4 = nn.Dropout(0.5)
        self.pool4 = nn.MaxPool2d(2, 2)
        self.down5 = _contract(512, 1024)
        self.drop5 = nn.Dropout(0.5)
        self.up4 = Expand(1024, 512)
        self.up3 = Expand(512, 256)
        self.up2 = Expand(256, 128)
        self.up1 = Expand(128, 64)
        self.score = nn.Conv2d(64, 2, 1)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(self.pool1(one))
        three = self.down3(self.pool2(two))
        four = self.drop4(self.down4(self.pool3(three)))
        x = self.drop5(self.down5(self.pool4(four)))
        x = self.up2(self.up3(self.up4(x, four), three), two)
        return self.softmax(self.score(self.up1(x, one)))


def unet() -> nn.Module:
    """U-Net for 572x572 images of one channel."""
    return UNet()


def msft_speech() -> nn.Module:
    """Make a fully connected speech net with the figures of the dissertation's table 3.1.

    The table gives none of MSFT-Speech's dimensions; these are chosen so that batch 1024 comes to
    its 151 MB of weights, 74 MB of data and 0.23 TFLOP: eleven stacked frames of 40 filter bank
    features, five hidden layers of 2400, a softmax over 5,700 senones. With equal hidden layers
    weights and data decide the width: the usual 2048 units would need 84 MB of data, whatever
    the number of layers. The data are the input and the outputs of the six layers; as in the
    dissertation's other tables, what activations and the softmax write is not counted.
    """
    layers: dict[str, nn.Module] = {}
    features = 11 * 40
    for i in range(1, 6):
        layers[f"fc{i}"] = nn.Linear(features, 2400)
        layers[f"sigmoid{i}"] = nn.Sigmoid()
        features = 2400
    return sequence(**layers, fc6=nn.Linear(features, 5700), softmax=nn.Softmax(dim=1))


class LanguageModel(nn.Module):
    """A word-level language model of two LSTM layers."""

    def __init__(self, vocabulary: int, units: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, units)
        self.dropout0 = nn.Dropout(dropout)
        self.lstm1 = nn.LSTM(units, units, batch_first=True)
        self.dropout1 = nn.Dropout(dropout)
        self.lstm2 = nn.LSTM(units, units, batch_first=True)
        self.dropout2 = nn.Dropout(dropout)
        self.decoder = nn.Linear(units, vocabulary)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, words: Tensor) -> Tensor:
        x = self.dropout0(self.embedding(words))
        x, _ = self.lstm1(x)
        x, _ = self.lstm2(self.dropout1(x))
        return self.softmax(self.decoder(self.dropout2(x)))


def lstm_lm() -> nn.Module:
    """Make the large LSTM of Zaremba et al. (2014) for Penn Treebank: 1500 units, 35 steps.

    PyTorch's LSTM has two biases a gate where the publication has one: 12,000 parameters more.
    """
    return LanguageModel(10_000, 1500, 0.65)
