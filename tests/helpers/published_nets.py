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
    "alexnet_owt": (1, 3, 224, 224),
    "alexnet_tf": (1, 3, 227, 227),
    "alexnet_mxnet": (1, 3, 224, 224),
    "overfeat_fast": (1, 3, 231, 231),
    "vgg11_bn": (1, 3, 224, 224),
    "vgg13_bn": (1, 3, 224, 224),
    "vgg16_bn": (1, 3, 224, 224),
    "vgg19_bn": (1, 3, 224, 224),
    "googlenet_v1": (1, 3, 224, 224),
    "inception_bn": (1, 3, 224, 224),
    "inception_v3_2015": (1, 3, 299, 299),
    "resnet50_v1_5": (1, 3, 224, 224),
    "resnet101_v1_5": (1, 3, 224, 224),
    "resnet152_v1_5": (1, 3, 224, 224),
    "resnet50_v2": (1, 3, 224, 224),
    "resnet101_v2": (1, 3, 224, 224),
    "resnet152_v2": (1, 3, 224, 224),
    "resnet200_v2": (1, 3, 224, 224),
    "resnext50_32x4d": (1, 3, 224, 224),
    "resnext101_32x4d": (1, 3, 224, 224),
    "resnext101_32x8d": (1, 3, 224, 224),
    "se_resnext101_32x4d": (1, 3, 224, 224),
    "wide_resnet50_2": (1, 3, 224, 224),
    "wide_resnet101_2": (1, 3, 224, 224),
    "densenet161": (1, 3, 224, 224),
    "densenet169": (1, 3, 224, 224),
    "densenet201": (1, 3, 224, 224),
    "squeezenet1_0": (1, 3, 224, 224),
    "squeezenet1_1": (1, 3, 224, 224),
    "mnasnet0_5": (1, 3, 224, 224),
    "mnasnet0_75": (1, 3, 224, 224),
    "mnasnet1_0": (1, 3, 224, 224),
    "mnasnet1_3": (1, 3, 224, 224),
    "mobilenet_v3_large": (1, 3, 224, 224),
    "mobilenet_v3_small": (1, 3, 224, 224),
    "efficientnet_b0": (1, 3, 224, 224),
    "efficientnet_b4": (1, 3, 380, 380),
    "shufflenet_v2_x0_5": (1, 3, 224, 224),
    "shufflenet_v2_x1_0": (1, 3, 224, 224),
    "shufflenet_v2_x1_5": (1, 3, 224, 224),
    "shufflenet_v2_x2_0": (1, 3, 224, 224),
    "ssd300_resnet50": (1, 3, 300, 300),
    "ssd320_resnet50_fpn": (1, 3, 320, 320),
    "bert_base": (1, 128),
    "bert_large": (1, 512),
    "bert_base_pretraining": (1, 128),
    "bert_base_pretraining_all": (1, 128),
    "bert_large_pretraining": (1, 128),
    "bert_large_pretraining_512": (1, 512),
    "bert_large_pretraining_all": (1, 512),
    "gpt2": (1, 1024),
    "gpt2_medium": (1, 1024),
    "gpt2_large": (1, 1024),
    "gpt2_xl": (1, 1024),
    "gpt3_xl": (1, 2048),
    "gpt3_xl_3072": (1, 2048),
    "gpt3_2_7b": (1, 2048),
    "opt_1_3b": (1, 2048),
    "transformer_xl_base": (1, 192),
    "transformer_xl_base_eval": (1, 64),
    "transformer_xl_large": (1, 384),
    "transformer_xl_large_eval": (1, 128),
}

# These take integers below this number; all others take floating-point numbers.
VOCABULARY: dict[str, int] = {
    "lstm_lm": 10_000,
    "bert_base": 30_522,
    "bert_large": 30_522,
    "bert_base_pretraining": 30_522,
    "bert_base_pretraining_all": 30_522,
    "bert_large_pretraining": 30_522,
    "bert_large_pretraining_512": 30_522,
    "bert_large_pretraining_all": 30_522,
    "gpt2": 50_257,
    "gpt2_medium": 50_257,
    "gpt2_large": 50_257,
    "gpt2_xl": 50_257,
    "gpt3_xl": 50_257,
    "gpt3_xl_3072": 50_257,
    "gpt3_2_7b": 50_257,
    "opt_1_3b": 50_272,
    "transformer_xl_base": 267_735,
    "transformer_xl_base_eval": 267_735,
    "transformer_xl_large": 267_735,
    "transformer_xl_large_eval": 267_735,
}


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
    # torchvision.models, `num_params` and `_ops`, which has three digits after the point.
    "alexnet_owt": Published(61_100_840, 0.714e9, macs_within=0.00071),
    "vgg11_bn": Published(132_868_840, 7.609e9, macs_within=0.0001),
    "vgg13_bn": Published(133_053_736, 11.308e9, macs_within=0.0001),
    "vgg16_bn": Published(138_365_992, 15.47e9, macs_within=0.0001),
    "vgg19_bn": Published(143_678_248, 19.632e9, macs_within=0.0001),
    "resnet50_v1_5": Published(25_557_032, 4.089e9, macs_within=0.00012),
    "resnet101_v1_5": Published(44_549_160, 7.801e9, macs_within=0.0001),
    "resnet152_v1_5": Published(60_192_808, 11.514e9, macs_within=0.0001),
    "resnext50_32x4d": Published(25_028_904, 4.23e9, macs_within=0.00012),
    "resnext101_32x8d": Published(88_791_336, 16.414e9, macs_within=0.0001),
    "wide_resnet50_2": Published(68_883_240, 11.398e9, macs_within=0.0001),
    "wide_resnet101_2": Published(126_886_696, 22.753e9, macs_within=0.0001),
    "densenet161": Published(28_681_000, 7.728e9, macs_within=0.0001),
    "densenet169": Published(14_149_480, 3.36e9, macs_within=0.00015),
    "densenet201": Published(20_013_928, 4.291e9, macs_within=0.00012),
    "squeezenet1_0": Published(1_248_424, 0.819e9, macs_within=0.00062),
    "squeezenet1_1": Published(1_235_496, 0.349e9, macs_within=0.0015),
    "mnasnet0_5": Published(2_218_512, 0.104e9, macs_within=0.0049),
    "mnasnet0_75": Published(3_170_208, 0.215e9, macs_within=0.0024),
    "mnasnet1_0": Published(4_383_312, 0.314e9, macs_within=0.0016),
    "mnasnet1_3": Published(6_282_256, 0.526e9, macs_within=0.00097),
    "mobilenet_v3_large": Published(5_483_032, 0.217e9, macs_within=0.0024),
    "mobilenet_v3_small": Published(2_542_856, 0.057e9, macs_within=0.0089),
    "efficientnet_b0": Published(5_288_548, 0.386e9, macs_within=0.0013),
    "efficientnet_b4": Published(19_341_616, 4.394e9, macs_within=0.00012),
    "shufflenet_v2_x0_5": Published(1_366_792, 0.04e9, macs_within=0.013),
    "shufflenet_v2_x1_0": Published(2_278_604, 0.145e9, macs_within=0.0035),
    "shufflenet_v2_x1_5": Published(3_503_624, 0.296e9, macs_within=0.0017),
    "shufflenet_v2_x2_0": Published(7_393_996, 0.583e9, macs_within=0.00087),
    # Sermanet et al. (2013), table 4, recalled: 145 M parameters, 2,810 M connections.
    "overfeat_fast": Published(145e6, 2810e6, 0.01, 0.005),
    # The first has no published figures; that of convnet-benchmarks has those of `googlenet`.
    "alexnet_tf": Published(None, None),  # counted only
    "alexnet_mxnet": Published(None, None),  # counted only
    "googlenet_v1": Published(6_998_552, None),
    "inception_bn": Published(None, None),  # counted only
    # As `inception_v3`.
    "inception_v3_2015": Published(23.83e6, 5.713e9, 0.0005, 0.0001),
    # The tables of pytorchcv, recalled: PreResNet-50b, -101b, -152b, -200b, ResNeXt-101 (32x4d),
    # SE-ResNeXt-101 (32x4d).
    "resnet50_v2": Published(25_549_480, None),
    "resnet101_v2": Published(44_541_608, None),
    "resnet152_v2": Published(60_185_256, None),
    "resnet200_v2": Published(64_666_280, None),
    "resnext101_32x4d": Published(44_177_704, None),
    "se_resnext101_32x4d": Published(48_955_416, None),
    "ssd300_resnet50": Published(None, None),  # counted only
    # Parameters of the models of these names in Hugging Face Transformers, recalled.
    "bert_base": Published(109_482_240, None),
    "bert_large": Published(335_141_888, None),
    # Of BertForPreTraining there.
    "bert_base_pretraining": Published(110_106_428, None),
    "bert_base_pretraining_all": Published(110_106_428, None),
    "bert_large_pretraining": Published(336_226_108, None),
    "bert_large_pretraining_512": Published(336_226_108, None),
    "bert_large_pretraining_all": Published(336_226_108, None),
    "gpt2": Published(124_439_808, None),
    "gpt2_medium": Published(354_823_168, None),
    "gpt2_large": Published(774_030_080, None),
    "gpt2_xl": Published(1_557_611_200, None),
    # Brown et al., table 2.1, to its digits.
    "gpt3_xl": Published(1.3e9, None, 0.02),
    "gpt3_xl_3072": Published(None, None),  # no model of theirs
    "gpt3_2_7b": Published(2.7e9, None, 0.02),
    # As BERT's.
    "opt_1_3b": Published(1_315_758_080, None),
    # Counted only, and by hand in test_zoo.py.
    **dict.fromkeys(
        (
            "ssd320_resnet50_fpn",
            "transformer_xl_base",
            "transformer_xl_base_eval",
            "transformer_xl_large",
            "transformer_xl_large_eval",
        ),
        Published(None, None),
    ),
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
    "alexnet_owt": (61_100_840, 714_188_480),
    "alexnet_tf": (61_838_248, 838_788_800),
    "alexnet_mxnet": (50_844_008, 1_009_945_728),
    "overfeat_fast": (145_920_872, 2_801_403_904),
    "vgg11_bn": (132_868_840, 7_609_090_048),
    "vgg13_bn": (133_053_736, 11_308_466_176),
    "vgg16_bn": (138_365_992, 15_470_264_320),
    "vgg19_bn": (143_678_248, 19_632_062_464),
    "googlenet_v1": (6_998_552, 1_582_671_872),
    "inception_bn": (11_285_224, 2_032_600_064),
    "inception_v3_2015": (23_834_568, 5_713_216_096),
    "resnet50_v1_5": (25_557_032, 4_089_184_256),
    "resnet101_v1_5": (44_549_160, 7_801_405_440),
    "resnet152_v1_5": (60_192_808, 11_513_626_624),
    "resnet50_v2": (25_549_480, 4_089_184_256),
    "resnet101_v2": (44_541_608, 7_801_405_440),
    "resnet152_v2": (60_185_256, 11_513_626_624),
    "resnet200_v2": (64_666_280, 15_007_481_856),
    "resnext50_32x4d": (25_028_904, 4_230_479_872),
    "resnext101_32x4d": (44_177_704, 7_969_996_800),
    "resnext101_32x8d": (88_791_336, 16_414_015_488),
    "se_resnext101_32x4d": (48_955_416, 7_974_739_968),
    "wide_resnet50_2": (68_883_240, 11_398_021_120),
    "wide_resnet101_2": (126_886_696, 22_753_050_624),
    "densenet161": (28_681_000, 7_727_907_072),
    "densenet169": (14_149_480, 3_359_843_328),
    "densenet201": (20_013_928, 4_291_365_888),
    "squeezenet1_0": (1_248_424, 818_924_576),
    "squeezenet1_1": (1_235_496, 349_151_936),
    "mnasnet0_5": (2_218_512, 104_455_968),
    "mnasnet0_75": (3_170_208, 215_493_104),
    "mnasnet1_0": (4_383_312, 314_415_872),
    "mnasnet1_3": (6_282_256, 526_362_432),
    "mobilenet_v3_large": (5_483_032, 216_589_760),
    "mobilenet_v3_small": (2_542_856, 56_510_400),
    "efficientnet_b0": (5_288_548, 385_814_752),
    "efficientnet_b4": (19_341_616, 4_393_771_024),
    "shufflenet_v2_x0_5": (1_366_792, 40_476_448),
    "shufflenet_v2_x1_0": (2_278_604, 144_907_992),
    "shufflenet_v2_x1_5": (3_503_624, 295_759_392),
    "shufflenet_v2_x2_0": (7_393_996, 583_253_464),
    "ssd300_resnet50": (22_894_902, 20_150_906_112),
    "bert_base": (109_482_240, 11_174_215_680),
    "bert_large": (335_141_888, 167_504_773_120),
    "bert_base_pretraining": (110_106_428, 11_654_831_616),
    "bert_base_pretraining_all": (110_106_428, 14_250_149_376),
    "bert_large_pretraining": (336_226_108, 40_107_124_736),
    "bert_large_pretraining_512": (336_226_108, 170_089_023_488),
    "bert_large_pretraining_all": (336_226_108, 184_043_964_416),
    "gpt2": (124_439_808, 145_824_153_600),
    "gpt2_medium": (354_823_168, 413_475_536_896),
    "gpt2_large": (774_030_080, 887_285_350_400),
    "gpt2_xl": (1_557_611_200, 1_753_351_782_400),
    "gpt3_xl": (1_315_723_264, 3_097_011_159_040),
    "gpt3_xl_3072": (2_879_554_560, 6_500_942_610_432),
    "gpt3_2_7b": (2_651_553_280, 6_104_646_942_720),
    "opt_1_3b": (1_315_758_080, 3_097_074_073_600),
    "ssd320_resnet50_fpn": (32_840_570, 22_307_953_664),
    "transformer_xl_base": (191_950_298, 19_767_595_008),
    "transformer_xl_base_eval": (191_950_298, 16_720_737_280),
    "transformer_xl_large": (285_167_482, 148_742_878_880),
    "transformer_xl_large_eval": (285_167_482, 167_504_903_392),
}
