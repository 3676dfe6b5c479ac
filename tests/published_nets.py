"""What each net takes, and the figures known of it.

`PUBLISHED` holds figures by others, with what they were read from; a multiply-add is one there.
"recalled" marks a figure of a well-known table that was not looked up again for this file.
`COUNTED` holds exact figures of these definitions, counted by PyTorch: they say whether a
definition has changed, not whether it is right. Parameters are what training updates: batch
normalization counts with its scale and shift, not with its running statistics.
"""

from typing import NamedTuple

# One sample: batch, then channels and size, or features, or words.
INPUTS: dict[str, tuple[int, ...]] = {
    "lenet5": (1, 3, 28, 28),
    "lenet5_224": (1, 3, 224, 224),
    "alexnet": (1, 3, 227, 227),
    "vgg11": (1, 3, 224, 224),
    "vgg13": (1, 3, 224, 224),
    "vgg16": (1, 3, 224, 224),
    "vgg19": (1, 3, 224, 224),
    "googlenet": (1, 3, 224, 224),
    "inception_v3": (1, 3, 299, 299),
    "nin_227": (1, 3, 227, 227),
    "resnet18": (1, 3, 224, 224),
    "resnet34": (1, 3, 224, 224),
    "resnet50": (1, 3, 224, 224),
    "resnet101": (1, 3, 224, 224),
    "resnet152": (1, 3, 224, 224),
    "densenet40": (1, 3, 32, 32),
    "densenet121": (1, 3, 224, 224),
    "squeezenet": (1, 3, 227, 227),
    "squeezenet_simple_bypass": (1, 3, 227, 227),
    "squeezenet_complex_bypass": (1, 3, 227, 227),
    "mobilenet_v1": (1, 3, 224, 224),
    "mobilenet_v2": (1, 3, 224, 224),
    "dcgan_generator": (1, 100),
    "dcgan_discriminator": (1, 3, 64, 64),
    "unet": (1, 1, 572, 572),
    "msft_speech": (1, 440),
    "lstm_lm": (1, 35),
}

# These take integers below this number; all others take floating-point numbers.
VOCABULARY: dict[str, int] = {"lstm_lm": 10_000}


class Published(NamedTuple):
    """Figures by others: parameters and multiply-adds of one sample, and how exact each is."""

    parameters: float | None
    macs: float | None
    parameters_within: float = 0.0  # relative; 0 is exact
    macs_within: float = 0.0


PUBLISHED: dict[str, Published] = {
    # Iandola (2016), as thesis/README.md: 5.74 MFLOP. Parameters: see COUNTED.
    "lenet5": Published(None, 5.74e6 / 2, macs_within=0.001),
    # Iandola (2016), as thesis/README.md: 2700 MFLOP, of two figures.
    "lenet5_224": Published(None, 2700e6 / 2, macs_within=0.005),
    # Both from public counts of bvlc_alexnet (HewlettPackard/dlcookbook-dlbs, by Netscope, has
    # the parameters). Sze et al. (2017), table II, recalled: 61 M and 724 M. Chen et al. (2016):
    # 666 M in the convolutions.
    "alexnet": Published(60_965_224, 724_406_816),
    # torchvision.models.vgg, `num_params` and `_ops`; those of vgg13, to 2 figures after the
    # point, in blog.csdn.net/tfcy694/article/details/127984916. Simonyan and Zisserman (2014),
    # table 2, recalled: 133, 133, 138, 144 M.
    "vgg11": Published(132_863_336, 7.609e9, macs_within=0.0001),
    "vgg13": Published(133_047_848, 11.31e9, macs_within=0.0005),
    "vgg16": Published(138_357_544, 15.47e9, macs_within=0.0001),
    # And Iandola (2016): 117 GFLOP a sample of training, three times inference.
    "vgg19": Published(143_667_240, 19.632e9, macs_within=0.0001),
    # Parameters of bvlc_googlenet by Netscope, in HewlettPackard/dlcookbook-dlbs. Multiply-adds: a
    # public count has 3,168,570,904 FLOPs, of which 3,227,160 add biases. Szegedy et al. (2014)
    # give 1.5 billion, and torchvision's 1.498 G are of another net: 3x3 in place of 5x5.
    "googlenet": Published(6_998_552, (3_168_570_904 - 3_227_160) / 2),
    # torchvision.models.inception, `_ops`. Its 27,161,264 parameters have the auxiliary
    # classifier; without: blog.csdn.net/tfcy694/article/details/127984916, 23.83 M.
    "inception_v3": Published(23.83e6, 5.713e9, 0.0005, 0.0001),
    # Iandola (2016), table 4.2: 30.4 decimal MB, 2270 GFLOP at batch 1024, pools included.
    "nin_227": Published(30.4e6 / 4, 2270e9 / 2 / 1024, 0.002, 0.003),
    # Parameters: torchvision.models.resnet, `num_params`, of which stride's place changes none.
    # Multiply-adds: He et al. (2015), table 1, recalled.
    "resnet18": Published(11_689_512, 1.8e9, macs_within=0.03),
    "resnet34": Published(21_797_672, 3.6e9, macs_within=0.03),
    "resnet50": Published(25_557_032, 3.8e9, macs_within=0.03),
    "resnet101": Published(44_549_160, 7.6e9, macs_within=0.01),
    "resnet152": Published(60_192_808, 11.3e9, macs_within=0.005),
    # Parameters in the README of several public implementations, "1.0 M" in Huang et al. (2016).
    # Multiply-adds: Liu et al. (2017), Network Slimming, table 1, recalled: 5.33e8 FLOPs.
    "densenet40": Published(1_019_722, 5.33e8 / 2, macs_within=0.01),
    # torchvision.models.densenet, `num_params` and `_ops`.
    "densenet121": Published(7_978_856, 2.834e9, macs_within=0.0001),
    # Iandola (2016), table 5.1. Multiply-adds: torchvision's 0.819 G are for 224x224, where this
    # definition gives the same (818,924,576); on 227x227 they follow from counting only.
    "squeezenet": Published(1_248_424, None),
    "squeezenet_simple_bypass": Published(1_248_424, None),
    # Table 5.3 prints 7.7 MB; 1x1 convolutions around Fire 2, 4, 6 and 8 make 6.06 MiB: counted.
    "squeezenet_complex_bypass": Published(None, None),
    # TensorFlow's table of MobileNet_v1_1.0_224: 569 M, 4.24 M (the publication says 4.2).
    "mobilenet_v1": Published(4.24e6, 569e6, 0.003, 0.001),
    # Parameters: torchvision.models.mobilenetv2, `num_params`. Multiply-adds: Sandler et al.
    # (2018), table 4, recalled: 300 M.
    "mobilenet_v2": Published(3_504_872, 300e6, macs_within=0.005),
    "dcgan_generator": Published(None, None),  # counted only
    "dcgan_discriminator": Published(None, None),  # counted only
    # 31,031,810 in public implementations of two classes and three channels in; one channel has
    # 2 x 576 fewer. Multiply-adds: counted only.
    "unet": Published(31_031_810 - 1152, None),
    # Iandola (2016), table 3.1: 151 decimal MB, 0.23 TFLOP forward and backward at batch 1024.
    "msft_speech": Published(151e6 / 4, 0.23e12 / 3 / 2 / 1024, 0.004, 0.025),
    # Zaremba et al. (2014), as in takase.github.io/lm_performance. Multiply-adds: counted only.
    "lstm_lm": Published(66e6, None, parameters_within=0.01),
}

# Parameters, and multiply-adds of one sample's forward pass: products of matrices and
# convolutions, without biases.
COUNTED: dict[str, tuple[int, int]] = {
    "lenet5": (432_080, 2_869_000),
    "lenet5_224": (432_080, 1_353_505_000),
    "alexnet": (60_965_224, 724_406_816),
    "vgg11": (132_863_336, 7_609_090_048),
    "vgg13": (133_047_848, 11_308_466_176),
    "vgg16": (138_357_544, 15_470_264_320),
    "vgg19": (143_667_240, 19_632_062_464),
    "googlenet": (6_998_552, 1_582_671_872),
    "inception_v3": (23_834_568, 5_713_216_096),
    "nin_227": (7_595_176, 1_105_996_320),
    "resnet18": (11_689_512, 1_814_073_344),
    "resnet34": (21_797_672, 3_663_761_408),
    "resnet50": (25_557_032, 3_857_973_248),
    "resnet101": (44_549_160, 7_570_194_432),
    "resnet152": (60_192_808, 11_282_415_616),
    "densenet40": (1_019_722, 264_812_928),
    "densenet121": (7_978_856, 2_834_161_664),
    "squeezenet": (1_248_424, 832_667_936),
    "squeezenet_simple_bypass": (1_248_424, 832_667_936),
    "squeezenet_complex_bypass": (1_589_672, 1_183_953_184),
    "mobilenet_v1": (4_231_976, 568_740_352),
    "mobilenet_v2": (3_504_872, 300_774_272),
    "dcgan_generator": (18_885_760, 640_614_400),
    "dcgan_discriminator": (17_232_768, 638_992_384),
    "unet": (31_030_658, 150_428_424_448),
    "msft_speech": (37_793_700, 37_776_000),
    "lstm_lm": (66_034_000, 1_785_000_000),
}
