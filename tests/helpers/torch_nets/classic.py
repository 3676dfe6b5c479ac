"""LeNet, AlexNet, OverFeat, VGG and Network in Network."""

from torch import nn

from .parts import sequence


def lenet5() -> nn.Module:
    """LeNet as Caffe's MNIST example has it (20 and 50 filters of 5x5, 500 units), on 28x28.

    Three input channels, not MNIST's one: only with three do its two convolutions and two inner
    products make the dissertation's 5.74 MFLOP (4.59 with one).
    """
    return sequence(
        conv1=nn.Conv2d(3, 20, 5),
        pool1=nn.MaxPool2d(2, 2),
        conv2=nn.Conv2d(20, 50, 5),
        pool2=nn.MaxPool2d(2, 2),
        flatten=nn.Flatten(),
        ip1=nn.Linear(50 * 4 * 4, 500),
        relu1=nn.ReLU(),
        ip2=nn.Linear(500, 10),
        softmax=nn.Softmax(dim=1),
    )


def lenet5_224() -> nn.Module:
    """Make the dissertation's LeNet for 224x224: `ip1` slides as a 4x4 convolution.

    Its 50x50 outputs are averaged before the classifier. The parameters are those of `lenet5`.
    """
    return sequence(
        conv1=nn.Conv2d(3, 20, 5),
        pool1=nn.MaxPool2d(2, 2),
        conv2=nn.Conv2d(20, 50, 5),
        pool2=nn.MaxPool2d(2, 2),
        ip1=nn.Conv2d(50, 500, 4),
        relu1=nn.ReLU(),
        pool3=nn.AvgPool2d(50),
        flatten=nn.Flatten(),
        ip2=nn.Linear(500, 10),
        softmax=nn.Softmax(dim=1),
    )


def alexnet() -> nn.Module:
    """AlexNet as `bvlc_alexnet` of Caffe's model zoo: LRN before pooling, grouped convolutions."""
    return sequence(
        conv1=nn.Conv2d(3, 96, 11, stride=4),
        relu1=nn.ReLU(),
        norm1=nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        pool1=nn.MaxPool2d(3, 2, ceil_mode=True),
        conv2=nn.Conv2d(96, 256, 5, padding=2, groups=2),
        relu2=nn.ReLU(),
        norm2=nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75),
        pool2=nn.MaxPool2d(3, 2, ceil_mode=True),
        conv3=nn.Conv2d(256, 384, 3, padding=1),
        relu3=nn.ReLU(),
        conv4=nn.Conv2d(384, 384, 3, padding=1, groups=2),
        relu4=nn.ReLU(),
        conv5=nn.Conv2d(384, 256, 3, padding=1, groups=2),
        relu5=nn.ReLU(),
        pool5=nn.MaxPool2d(3, 2, ceil_mode=True),
        flatten=nn.Flatten(),
        fc6=nn.Linear(256 * 6 * 6, 4096),
        relu6=nn.ReLU(),
        drop6=nn.Dropout(0.5),
        fc7=nn.Linear(4096, 4096),
        relu7=nn.ReLU(),
        drop7=nn.Dropout(0.5),
        fc8=nn.Linear(4096, 1000),
        softmax=nn.Softmax(dim=1),
    )


def _one_tower(
    convolutions: tuple[tuple[int, int, int, int], ...], features: int, *, lrn: bool = False
) -> nn.Module:
    """Make an AlexNet of one tower: filters, kernel, stride and padding of its convolutions.

    Pools of 3x3 follow the first, the second and the last; `features` leave the last one.
    """
    layers: dict[str, nn.Module] = {}
    channels = 3
    for i, (filters, kernel, stride, padding) in enumerate(convolutions, start=1):
        layers[f"conv{i}"] = nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding)
        layers[f"relu{i}"] = nn.ReLU()
        if lrn and i < 3:
            layers[f"norm{i}"] = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)
        if i in (1, 2, 5):
            layers[f"pool{i}"] = nn.MaxPool2d(3, 2)
        channels = filters
    return sequence(
        **layers,
        flatten=nn.Flatten(),
        drop6=nn.Dropout(0.5),
        fc6=nn.Linear(features, 4096),
        relu6=nn.ReLU(),
        drop7=nn.Dropout(0.5),
        fc7=nn.Linear(4096, 4096),
        relu7=nn.ReLU(),
        fc8=nn.Linear(4096, 1000),
        softmax=nn.Softmax(dim=1),
    )


def alexnet_owt() -> nn.Module:
    """Krizhevsky's net of one tower (2014), as convnet-benchmarks and torchvision have it."""
    return _one_tower(
        ((64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1)),
        256 * 6 * 6,
    )


def alexnet_tf() -> nn.Module:
    """Krizhevsky's net of one tower (2014), as tf_cnn_benchmarks: 227x227, unpadded `conv1`."""
    return _one_tower(
        ((64, 11, 4, 0), (192, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1)),
        256 * 6 * 6,
    )


def alexnet_mxnet() -> nn.Module:
    """AlexNet (2012) as MXNet's examples have it: no groups, LRN, on 224x224."""
    return _one_tower(
        ((96, 11, 4, 0), (256, 5, 1, 2), (384, 3, 1, 1), (384, 3, 1, 1), (256, 3, 1, 1)),
        256 * 5 * 5,
        lrn=True,
    )


def overfeat_fast() -> nn.Module:
    """Make the fast model of OverFeat (Sermanet et al., 2013), as convnet-benchmarks has it."""
    layers: dict[str, nn.Module] = {}
    channels = 3
    for i, (filters, kernel, stride, padding) in enumerate(
        ((96, 11, 4, 0), (256, 5, 1, 0), (512, 3, 1, 1), (1024, 3, 1, 1), (1024, 3, 1, 1)), start=1
    ):
        layers[f"conv{i}"] = nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding)
        layers[f"relu{i}"] = nn.ReLU()
        if i in (1, 2, 5):
            layers[f"pool{i}"] = nn.MaxPool2d(2, 2)
        channels = filters
    return sequence(
        **layers,
        flatten=nn.Flatten(),
        drop6=nn.Dropout(0.5),
        fc6=nn.Linear(1024 * 6 * 6, 3072),
        relu6=nn.ReLU(),
        drop7=nn.Dropout(0.5),
        fc7=nn.Linear(3072, 4096),
        relu7=nn.ReLU(),
        fc8=nn.Linear(4096, 1000),
        softmax=nn.Softmax(dim=1),
    )


def _vgg(*convolutions: int, normalized: bool = False) -> nn.Module:
    """Make the VGG net with this many convolutions before each of its five pools."""
    layers: dict[str, nn.Module] = {}
    channels = 3
    for i, (count, filters) in enumerate(zip(convolutions, (64, 128, 256, 512, 512), strict=True)):
        for j in range(count):
            layers[f"conv{i + 1}_{j + 1}"] = nn.Conv2d(channels, filters, 3, padding=1)
            if normalized:
                layers[f"bn{i + 1}_{j + 1}"] = nn.BatchNorm2d(filters)
            layers[f"relu{i + 1}_{j + 1}"] = nn.ReLU()
            channels = filters
        layers[f"pool{i + 1}"] = nn.MaxPool2d(2, 2)
    return sequence(
        **layers,
        flatten=nn.Flatten(),
        fc6=nn.Linear(512 * 7 * 7, 4096),
        relu6=nn.ReLU(),
        drop6=nn.Dropout(0.5),
        fc7=nn.Linear(4096, 4096),
        relu7=nn.ReLU(),
        drop7=nn.Dropout(0.5),
        fc8=nn.Linear(4096, 1000),
        softmax=nn.Softmax(dim=1),
    )


def vgg11() -> nn.Module:
    """Configuration A of Simonyan and Zisserman (2014)."""
    return _vgg(1, 1, 2, 2, 2)


def vgg13() -> nn.Module:
    """Configuration B of Simonyan and Zisserman (2014)."""
    return _vgg(2, 2, 2, 2, 2)


def vgg16() -> nn.Module:
    """Configuration D of Simonyan and Zisserman (2014)."""
    return _vgg(2, 2, 3, 3, 3)


def vgg19() -> nn.Module:
    """Configuration E of Simonyan and Zisserman (2014)."""
    return _vgg(2, 2, 4, 4, 4)


def vgg11_bn() -> nn.Module:
    """Configuration A with batch normalization, as torchvision has it: biases stay."""
    return _vgg(1, 1, 2, 2, 2, normalized=True)


def vgg13_bn() -> nn.Module:
    """Configuration B with batch normalization, as torchvision has it: biases stay."""
    return _vgg(2, 2, 2, 2, 2, normalized=True)


def vgg16_bn() -> nn.Module:
    """Configuration D with batch normalization, as torchvision has it: biases stay."""
    return _vgg(2, 2, 3, 3, 3, normalized=True)


def vgg19_bn() -> nn.Module:
    """Configuration E with batch normalization, as torchvision has it: biases stay."""
    return _vgg(2, 2, 4, 4, 4, normalized=True)


def nin_227() -> nn.Module:
    """Network in Network on 227x227, layer by layer as the dissertation's table 4.2.

    The table lists neither the dropout that Caffe's NiN has after its third pool nor a softmax;
    the softmax is here, as it ends every classifier of this package, the dropout is not. Pools
    round up as Caffe's do, which on 227x227 changes nothing.
    """
    layers: dict[str, nn.Module] = {}
    channels, number = 3, 1
    for kernel, stride, padding, filters in (
        (11, 4, 0, (96, 96, 96)),
        (5, 1, 2, (256, 256, 256)),
        (3, 1, 1, (384, 384, 384)),
        (3, 1, 1, (1024, 1024, 1000)),
    ):
        first = nn.Conv2d(channels, filters[0], kernel, stride=stride, padding=padding)
        second = nn.Conv2d(filters[0], filters[1], 1)
        third = nn.Conv2d(filters[1], filters[2], 1)
        for convolution in (first, second, third):
            layers[f"conv{number}"] = convolution
            layers[f"relu{number}"] = nn.ReLU()
            number += 1
        layers[f"pool{number - 1}"] = nn.MaxPool2d(3, 2, ceil_mode=True)
        channels = filters[2]
    layers["pool12"] = nn.AvgPool2d(6)  # instead of a fourth maximum
    return sequence(**layers, flatten=nn.Flatten(), softmax=nn.Softmax(dim=1))
