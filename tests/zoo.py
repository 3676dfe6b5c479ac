"""The predefined nets that are written by the importers, and how: `python tests/zoo.py`.

Most come from the PyTorch definitions in `torch_nets`, which are written from the
publications; two from Caffe files that are not ours to ship. SqueezeNet has a generator.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import paleo
from paleo.importers import ImportOptions
from paleo.layers.convolution import Convolution
from paleo.layers.pointwise import Activation
from paleo.load import load
from paleo.netwriter import dumps

ROOT = Path(__file__).parent.parent
CAFFE = ROOT.parent / "shared" / "reference" / "caffe"


class Origin(NamedTuple):
    """Where a net comes from, and what its file says."""

    batch_size: int
    source: str
    #: The Caffe file that it is converted from; its PyTorch definition if there is none.
    prototxt: str | None = None
    #: Whether activations are written as part of their convolutions, in whose memory they
    #: work: what each layer gives then counts once, as in the tables of this net.
    joined: bool = False


_LECUN = (
    "Y. LeCun et al., Gradient-based learning applied to document recognition, "
    "Proceedings of the IEEE 86(11), 1998"
)
_ALEXNET = (
    "A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet Classification with Deep Convolutional "
    "Neural Networks, NIPS 2012"
)
_VGG = (
    "K. Simonyan, A. Zisserman, Very Deep Convolutional Networks for Large-Scale Image "
    "Recognition, arXiv:1409.1556, 2014"
)
_IANDOLA = (
    "F. Iandola, Exploring the Design Space of Deep Convolutional Neural Networks at Large "
    "Scale, UC Berkeley, 2016"
)
_RESNET = "K. He et al., Deep Residual Learning for Image Recognition, arXiv:1512.03385, 2015"
_DENSENET = "G. Huang et al., Densely Connected Convolutional Networks, arXiv:1608.06993, 2016"
_DCGAN = (
    "A. Radford, L. Metz, S. Chintala, Unsupervised Representation Learning with Deep "
    "Convolutional Generative Adversarial Networks, arXiv:1511.06434, 2015"
)

ZOO = {
    "lenet5": Origin(
        64, f"{_LECUN}; in the form of Caffe's examples, on 28x28x3 images", joined=True
    ),
    "lenet5_224": Origin(64, f"{_IANDOLA}, section 2.3: LeNet on 224x224 images", joined=True),
    "alexnet": Origin(256, f"{_ALEXNET}; in the form of Caffe's reference model", joined=True),
    "vgg11": Origin(256, f"{_VGG}: configuration A", joined=True),
    "vgg13": Origin(256, f"{_VGG}: configuration B", joined=True),
    "vgg19": Origin(256, f"{_VGG}: configuration E", joined=True),
    "googlenet": Origin(
        128,
        "C. Szegedy et al., Going Deeper with Convolutions, arXiv:1409.4842, 2014: without the "
        "auxiliary classifiers",
        joined=True,
    ),
    "nin_227": Origin(
        1024,
        f"M. Lin, Q. Chen, S. Yan, Network In Network, arXiv:1312.4400, 2013; on 227x227 images, "
        f"as in table 4.2 of {_IANDOLA}",
        joined=True,
    ),
    "resnet18": Origin(256, _RESNET),
    "resnet34": Origin(256, _RESNET),
    "resnet50": Origin(256, f"{_RESNET}: the authors' Caffe file", "resnet50"),
    "resnet101": Origin(256, _RESNET),
    "resnet152": Origin(256, _RESNET),
    "densenet40": Origin(
        64,
        f"{_DENSENET}: 40 layers, growth 12, on 32x32 images; the authors' Caffe file",
        "densenet",
    ),
    "densenet121": Origin(256, _DENSENET),
    "mobilenet_v1": Origin(
        96,
        "A. Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile "
        "Vision Applications, arXiv:1704.04861, 2017",
    ),
    "mobilenet_v2": Origin(
        96,
        "M. Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, "
        "arXiv:1801.04381, 2018",
    ),
    "dcgan_generator": Origin(128, f"{_DCGAN}: 64x64 images, as for LSUN"),
    "dcgan_discriminator": Origin(128, f"{_DCGAN}: 64x64 images, as for LSUN"),
    "unet": Origin(
        1,
        "O. Ronneberger, P. Fischer, T. Brox, U-Net: Convolutional Networks for Biomedical "
        "Image Segmentation, arXiv:1505.04597, 2015",
    ),
    "msft_speech": Origin(
        1024,
        f"{_IANDOLA}, table 3.1: its dimensions are not published, these are chosen to give "
        "that table's figures",
    ),
    "lstm_lm": Origin(
        20,
        "W. Zaremba, I. Sutskever, O. Vinyals, Recurrent Neural Network Regularization, "
        "arXiv:1409.2329, 2014: the large model, 35 words",
    ),
}


def join_activations(net: paleo.NetSpec) -> paleo.NetSpec:
    """Return a net whose convolutions have the activations that alone follow them."""
    readers: dict[str, int] = {}
    for spec in net.layers:
        for parent in spec.parents:
            readers[parent] = readers.get(parent, 0) + 1
    before = {spec.name: spec for spec in net.layers}
    joined: dict[str, str] = {}  # activations, and the convolutions that they are part of
    for spec in net.layers:
        if isinstance(spec.layer, Activation):
            (parent,) = spec.parents
            if isinstance(before[parent].layer, Convolution) and readers[parent] == 1:
                joined[spec.name] = parent
    functions = {joined[name]: before[name].layer.function for name in joined}
    layers = tuple(
        replace(
            spec,
            layer=spec.layer.replace(activation_fn=functions[spec.name])
            if spec.name in functions
            else spec.layer,
            parents=tuple(joined.get(parent, parent) for parent in spec.parents),
        )
        for spec in net.layers
        if spec.name not in joined
    )
    return replace(net, layers=layers)


def text(name: str) -> str:
    """Return what the file of a net should hold; needs PyTorch, or protobuf and the Caffe files."""
    origin = ZOO[name]
    if origin.prototxt is None:
        import torch_nets

        module = torch_nets.NETS[name].__module__
        target = f"python:{module}:{name}"
        shape = (origin.batch_size, *torch_nets.INPUTS[name][1:])
        net = load(target, ImportOptions(input=((None, shape),)))
    else:
        net = load(CAFFE / f"{origin.prototxt}.prototxt").with_batch(origin.batch_size)
    if origin.joined:
        net = join_activations(net)
    return dumps(replace(net, name=name, source=origin.source))


def main() -> None:
    """Write all files."""
    sys.path.insert(0, str(ROOT / "tests"))
    for name in ZOO:
        path = ROOT / "nets" / f"{name}.json"
        path.write_text(text(name), "utf-8")
        sys.stderr.write(f"{path.name}: {paleo.summarize(path).num_params:,} parameters\n")


if __name__ == "__main__":
    main()
