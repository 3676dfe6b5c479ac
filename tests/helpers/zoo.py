"""The predefined nets that are written by the importers, and how: `python tests/helpers/zoo.py`.

Most come from the PyTorch definitions in `torch_nets`, which are written from the
publications; two from Caffe files that are not ours to ship. SqueezeNet has a generator. Nets that
name dimensions are written by hand, and hold the layers that their definitions give.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import paleo
from paleo.net.importers import ImportOptions
from paleo.net.layers.convolution import Convolution
from paleo.net.layers.pointwise import Activation
from paleo.net.load import load
from paleo.net.writer import dumps

ROOT = Path(__file__).parents[2]
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

_OWT = (
    "A. Krizhevsky, One weird trick for parallelizing convolutional neural networks, "
    "arXiv:1404.5997, 2014"
)
_GOOGLENET = "C. Szegedy et al., Going Deeper with Convolutions, arXiv:1409.4842, 2014"
_SQUEEZENET = (
    "F. Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB "
    "model size, arXiv:1602.07360, 2016"
)
_STRIDE = "the stride in the 3x3 convolution of a block"
_RESNET_V2 = (
    f"K. He et al., Identity Mappings in Deep Residual Networks, arXiv:1603.05027, 2016; {_STRIDE}"
)
_RESNEXT = (
    "S. Xie et al., Aggregated Residual Transformations for Deep Neural Networks, "
    "arXiv:1611.05431, 2016"
)
_WIDE = "S. Zagoruyko, N. Komodakis, Wide Residual Networks, arXiv:1605.07146, 2016"
_MNASNET = (
    "M. Tan et al., MnasNet: Platform-Aware Neural Architecture Search for Mobile, "
    "arXiv:1807.11626, 2018"
)
_MOBILENET_V3 = "A. Howard et al., Searching for MobileNetV3, arXiv:1905.02244, 2019"
_EFFICIENTNET = (
    "M. Tan, Q. Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, "
    "arXiv:1905.11946, 2019"
)
_SHUFFLENET_V2 = (
    "N. Ma et al., ShuffleNet V2: Practical Guidelines for Efficient CNN Architecture Design, "
    "arXiv:1807.11164, 2018"
)
_BERT = (
    "J. Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers for Language "
    "Understanding, arXiv:1810.04805, 2018"
)
_GPT2 = "A. Radford et al., Language Models are Unsupervised Multitask Learners, OpenAI, 2019"
_GPT3 = (
    "T. Brown et al., Language Models are Few-Shot Learners, arXiv:2005.14165, 2020; all of its "
    "attention dense"
)
_TRANSFORMER_XL = (
    "Z. Dai et al., Transformer-XL: Attentive Language Models beyond a Fixed-Length Context, "
    "arXiv:1901.02860, 2019; on WikiText-103 as in NVIDIA's DeepLearningExamples"
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
    "alexnet_owt": Origin(128, f"{_OWT}; one tower, as in convnet-benchmarks and torchvision"),
    "alexnet_tf": Origin(512, f"{_OWT}; one tower, as in tf_cnn_benchmarks"),
    "alexnet_mxnet": Origin(256, f"{_ALEXNET}; without groups, as in MXNet's examples"),
    "overfeat_fast": Origin(
        128,
        "P. Sermanet et al., OverFeat: Integrated Recognition, Localization and Detection using "
        "Convolutional Networks, arXiv:1312.6229, 2013: the fast model",
    ),
    "vgg11_bn": Origin(64, f"{_VGG}: configuration A, normalized as in torchvision"),
    "vgg13_bn": Origin(64, f"{_VGG}: configuration B, normalized as in torchvision"),
    "vgg16_bn": Origin(64, f"{_VGG}: configuration D, normalized as in torchvision"),
    "vgg19_bn": Origin(64, f"{_VGG}: configuration E, normalized as in torchvision"),
    "googlenet_v1": Origin(
        128, f"{_GOOGLENET}: as in convnet-benchmarks, without LRN and auxiliary classifiers"
    ),
    "inception_bn": Origin(
        128,
        "S. Ioffe, C. Szegedy, Batch Normalization: Accelerating Deep Network Training by "
        "Reducing Internal Covariate Shift, arXiv:1502.03167, 2015; in the form of MXNet's "
        "examples",
    ),
    "inception_v3_2015": Origin(
        64,
        "C. Szegedy et al., Rethinking the Inception Architecture for Computer Vision, "
        "arXiv:1512.00567, 2015: without the auxiliary classifier",
    ),
    "resnet50_v1_5": Origin(256, f"{_RESNET}; {_STRIDE}"),
    "resnet101_v1_5": Origin(128, f"{_RESNET}; {_STRIDE}"),
    "resnet152_v1_5": Origin(128, f"{_RESNET}; {_STRIDE}"),
    "resnet50_v2": Origin(256, _RESNET_V2),
    "resnet101_v2": Origin(128, _RESNET_V2),
    "resnet152_v2": Origin(128, _RESNET_V2),
    "resnet200_v2": Origin(64, _RESNET_V2),
    "resnext50_32x4d": Origin(256, _RESNEXT),
    "resnext101_32x4d": Origin(128, _RESNEXT),
    "resnext101_32x8d": Origin(128, f"{_RESNEXT}; 8 channels a group, as in torchvision"),
    "se_resnext101_32x4d": Origin(
        128, "J. Hu et al., Squeeze-and-Excitation Networks, arXiv:1709.01507, 2017"
    ),
    "wide_resnet50_2": Origin(128, _WIDE),
    "wide_resnet101_2": Origin(128, f"{_WIDE}; as in torchvision"),
    "densenet161": Origin(256, _DENSENET),
    "densenet169": Origin(256, _DENSENET),
    "densenet201": Origin(256, _DENSENET),
    "squeezenet1_0": Origin(512, f"{_SQUEEZENET}; on 224x224 images, as in torchvision"),
    "squeezenet1_1": Origin(512, f"{_SQUEEZENET}; version 1.1 of its authors"),
    "mnasnet0_5": Origin(512, _MNASNET),
    "mnasnet0_75": Origin(512, _MNASNET),
    "mnasnet1_0": Origin(512, _MNASNET),
    "mnasnet1_3": Origin(512, _MNASNET),
    "mobilenet_v3_large": Origin(512, _MOBILENET_V3),
    "mobilenet_v3_small": Origin(512, _MOBILENET_V3),
    "efficientnet_b0": Origin(256, _EFFICIENTNET),
    "efficientnet_b4": Origin(128, _EFFICIENTNET),
    "shufflenet_v2_x0_5": Origin(512, _SHUFFLENET_V2),
    "shufflenet_v2_x1_0": Origin(512, _SHUFFLENET_V2),
    "shufflenet_v2_x1_5": Origin(512, _SHUFFLENET_V2),
    "shufflenet_v2_x2_0": Origin(512, _SHUFFLENET_V2),
    "ssd300_resnet50": Origin(
        32,
        "W. Liu et al., SSD: Single Shot MultiBox Detector, arXiv:1512.02325, 2015; on ResNet-50 "
        "as in NVIDIA's DeepLearningExamples",
    ),
    "ssd320_resnet50_fpn": Origin(
        32,
        "W. Liu et al., SSD: Single Shot MultiBox Detector, arXiv:1512.02325, 2015; on ResNet-50 "
        "with a pyramid of features, as in NVIDIA's DeepLearningExamples for TensorFlow",
    ),
    "bert_base": Origin(32, _BERT),
    "bert_large": Origin(8, _BERT),
    "bert_base_pretraining": Origin(32, f"{_BERT}; with both heads, 20 of 128 words predicted"),
    "bert_base_pretraining_all": Origin(32, f"{_BERT}; with both heads, of all 128 words"),
    "bert_large_pretraining": Origin(32, f"{_BERT}; with both heads, 20 of 128 words predicted"),
    "bert_large_pretraining_512": Origin(8, f"{_BERT}; with both heads, 80 of 512 words predicted"),
    "bert_large_pretraining_all": Origin(8, f"{_BERT}; with both heads, of all 512 words"),
    "gpt2": Origin(8, _GPT2),
    "gpt2_medium": Origin(8, _GPT2),
    "gpt2_large": Origin(8, _GPT2),
    "gpt2_xl": Origin(8, _GPT2),
    "gpt3_xl": Origin(8, f"{_GPT3}; 16 heads, for the 24 of its table do not divide its width"),
    "gpt3_xl_3072": Origin(8, f"{_GPT3}; 24 heads of 128 and as wide, as measured by NeuSight"),
    "gpt3_2_7b": Origin(8, _GPT3),
    "opt_1_3b": Origin(
        8,
        "S. Zhang et al., OPT: Open Pre-trained Transformer Language Models, arXiv:2205.01068, "
        "2022",
    ),
    "transformer_xl_base": Origin(32, f"{_TRANSFORMER_XL}: 192 words, 192 kept"),
    "transformer_xl_base_eval": Origin(16, f"{_TRANSFORMER_XL}: in inference 64 words, 640 kept"),
    "transformer_xl_large": Origin(16, f"{_TRANSFORMER_XL}: 384 words, 384 kept"),
    "transformer_xl_large_eval": Origin(
        16, f"{_TRANSFORMER_XL}: in inference 128 words, 1600 kept"
    ),
}

#: Deeper nets of families whose others are read from their origin by the same code.
DEEPER = {
    "bert_large", "bert_large_pretraining", "bert_large_pretraining_512",
    "bert_large_pretraining_all", "densenet161", "densenet169", "densenet201",
    "efficientnet_b4", "gpt2_large", "gpt2_medium", "gpt2_xl", "gpt3_2_7b", "gpt3_xl",
    "gpt3_xl_3072", "mnasnet0_75", "mnasnet1_3", "opt_1_3b", "resnet101", "resnet101_v1_5",
    "resnet101_v2", "resnet152", "resnet152_v1_5", "resnet152_v2", "resnet200_v2", "resnet34",
    "resnext101_32x4d", "resnext101_32x8d", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0",
    "transformer_xl_large", "transformer_xl_large_eval", "vgg13", "vgg13_bn", "vgg19",
    "vgg19_bn", "wide_resnet101_2",
}  # fmt: skip


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
    functions = {joined[name]: vars(before[name].layer)["function"] for name in joined}
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


def constants_into_blocks(net: paleo.NetSpec) -> paleo.NetSpec:
    """Return a net in which what one layer of Transformer-XL alone reads has its name."""
    readers: dict[str, set[str]] = {}
    for spec in net.layers:
        found = re.match(r"layers/\d+/dec_attn/", spec.name)
        for parent in spec.parents if found else ():
            readers.setdefault(parent.removesuffix("_view"), set()).add(found[0])  # type: ignore[index]
    widths = {spec.name: spec.layer.infer_shape(())[-1] for spec in net.layers if not spec.parents}

    def renamed(name: str) -> str:
        constant = name.removesuffix("_view")
        if not constant.startswith("constants/") or len(readers[constant]) > 1:
            return name
        (block,) = readers[constant]
        kind = "zeros" if widths[constant] == 1 else "distances"
        return block + kind + name[len(constant) :]

    layers = (
        replace(spec, name=renamed(spec.name), parents=tuple(map(renamed, spec.parents)))
        for spec in net.layers
    )
    return replace(net, layers=tuple(layers))


def made(name: str) -> paleo.NetSpec:
    """Return what the file of a net should say; needs PyTorch, or protobuf and the Caffe files."""
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
    if name.startswith("transformer_xl"):
        net = constants_into_blocks(net)
    return replace(net, name=name, source=origin.source)


def main() -> None:
    """Write all files."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    for name in ZOO:
        path = ROOT / "nets" / f"{name}.json"
        if path.exists() and paleo.load(path).dims:
            continue
        path.write_text(dumps(made(name)), "utf-8")
        sys.stderr.write(f"{path.name}: {paleo.summarize(path).num_params:,} parameters\n")


if __name__ == "__main__":
    main()
