"""Caffe's layers: shapes by Caffe's formulas, parameters, and pieces of well-known nets."""

from __future__ import annotations

import pytest
from caffe_files import (
    IMAGE,
    Faults,
    Read,
    data,
    faults,
    layer,
    multiply_adds,
    outputs,
    params,
    read,
)

pytest.importorskip("google.protobuf")

__all__ = ["faults", "read"]


# Windows


@pytest.mark.parametrize(
    ("body", "shape", "weights"),
    [
        ("num_output: 16 kernel_size: 3", (7, 7, 16), 3 * 3 * 8 * 16 + 16),
        ("num_output: 16 kernel_size: 3 pad: 1 stride: 2 bias_term: false", (5, 5, 16), 1152),
        # ceil is not Caffe's for convolutions: (9 - 2) / 2 + 1 = 4.5.
        ("num_output: 1 kernel_size: 2 stride: 2", (4, 4, 1), 2 * 2 * 8 + 1),
        # Height (9 + 2 - 3) / 2 + 1 = 5, width (9 - 1) / 1 + 1 = 9.
        (
            "num_output: 2 kernel_h: 3 kernel_w: 1 pad_h: 1 stride_h: 2 stride_w: 1",
            (5, 9, 2),
            3 * 8 * 2 + 2,
        ),
        ("num_output: 2 kernel_size: 3 kernel_size: 1 pad: 1 pad: 0", (9, 9, 2), 3 * 8 * 2 + 2),
        # The window reaches over (3 - 1) * 3 + 1 = 7.
        ("num_output: 1 kernel_size: 3 dilation: 3", (3, 3, 1), 3 * 3 * 8 + 1),
        ("num_output: 1 kernel_size: 3 hole: 3", (3, 3, 1), 3 * 3 * 8 + 1),
        ("num_output: 12 kernel_size: 3 group: 4", (7, 7, 12), 3 * 3 * 2 * 12 + 12),
    ],
)
def test_convolution(read: Read, body: str, shape: tuple[int, ...], weights: int) -> None:
    graph = read(IMAGE + layer("Convolution", f"convolution_param {{ {body} }}"))
    assert (outputs(graph)["x"], graph.num_params) == ((2, *shape), weights)


@pytest.mark.parametrize("kind", ["DepthwiseConvolution", "ConvolutionDepthwise"])
def test_depthwise_types_need_no_group(read: Read, kind: str) -> None:
    body = "convolution_param { num_output: 8 kernel_size: 3 pad: 1 bias_term: false }"
    assert read(IMAGE + layer(kind, body)).num_params == 3 * 3 * 8


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        # Rounded up: ceil((9 - 2) / 2) + 1 = 5.
        ("kernel_size: 2 stride: 2", (5, 5)),
        ("kernel_size: 2 stride: 2 pool: AVE round_mode: FLOOR", (4, 4)),
        ("kernel_size: 2 stride: 2 ceil_mode: false", (4, 4)),
        ("kernel_size: 3 stride: 2", (4, 4)),
        # ceil((9 + 2 - 3) / 2) + 1 = 5, its last window from 8 - 1: inside.
        ("kernel_size: 3 stride: 2 pad: 1", (5, 5)),
        # ceil((9 + 2 - 2) / 2) + 1 = 6 would begin at 10 = 9 + 1, behind the input: 5.
        ("kernel_size: 2 stride: 2 pad: 1", (5, 5)),
        # Without padding it is kept: ceil((9 - 1) / 3) + 1 = 4, from 9 on.
        ("kernel_size: 1 stride: 3", (4, 4)),
        # Larger than the input by less than a stride: ceil(-1 / 2) + 1 = 1.
        ("kernel_size: 10 stride: 2", (1, 1)),
        # The sides apart: ceil((9 - 4) / 3) + 1 = 3, (9 + 2 - 3) / 1 + 1 = 9.
        ("kernel_h: 4 kernel_w: 3 stride_h: 3 stride_w: 1 pad_h: 0 pad_w: 1", (3, 9)),
        # One side rounded up and one whose last window is dropped.
        ("kernel_h: 2 kernel_w: 2 stride_h: 2 stride_w: 2 pad_h: 0 pad_w: 1", (5, 5)),
        ("global_pooling: true pool: AVE", (1, 1)),
    ],
)
def test_pooling_is_rounded_as_caffe_does(read: Read, body: str, shape: tuple[int, ...]) -> None:
    graph = read(IMAGE + layer("Pooling", f"pooling_param {{ {body} }}"))
    assert outputs(graph)["x"] == (2, *shape, 8)


def test_deconvolution(read: Read) -> None:
    body = "convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 4 "
    graph = read(IMAGE + layer("Deconvolution", body + "bias_term: false }"))
    # 2 * (9 - 1) + 4 - 2 = 18; each of 4 groups has 2 channels in and 1 out.
    assert outputs(graph)["x"] == (2, 18, 18, 4)
    assert graph.num_params == 4 * 4 * 8 * 1
    assert read(IMAGE + layer("Deconvolution", body + "}")).num_params == 4 * 4 * 8 + 4


# Other layers


@pytest.mark.parametrize(
    ("text", "shape", "count"),
    [
        (layer("InnerProduct", "inner_product_param { num_output: 5 }"), (2, 5), 648 * 5 + 5),
        (
            layer("InnerProduct", "inner_product_param { num_output: 5 axis: -1 transpose: true }"),
            (2, 9, 8, 5),  # channels stay behind the height
            9 * 5 + 5,
        ),
        (layer("BatchNorm"), (2, 9, 9, 8), 0),
        (layer("BatchNorm", "batch_norm_param { scale_bias: true }"), (2, 9, 9, 8), 16),
        (layer("BN", "bn_param { slope_filler { value: 1 } }"), (2, 9, 9, 8), 16),
        (layer("Scale", "scale_param { bias_term: true }"), (2, 9, 9, 8), 16),
        (layer("Scale", "scale_param { axis: 2 num_axes: 2 }"), (2, 9, 9, 8), 81),
        (layer("Scale", "scale_param { num_axes: 0 }"), (2, 9, 9, 8), 1),
        (layer("Bias"), (2, 9, 9, 8), 8),
        (layer("PReLU"), (2, 9, 9, 8), 8),
        (layer("PReLU", "prelu_param { channel_shared: true }"), (2, 9, 9, 8), 1),
        (layer("Normalize", "norm_param { channel_shared: false }"), (2, 9, 9, 8), 8),
        (layer("MVN"), (2, 9, 9, 8), 0),
        (layer("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }"), (2, 9, 9, 8), 0),
        (layer("Flatten"), (2, 648), 0),
        (layer("Reshape", "reshape_param { shape { dim: 0 dim: 2 dim: -1 } }"), (2, 2, 324), 0),
        (
            layer("Reshape", "reshape_param { shape { dim: 3 dim: -1 } axis: 2 num_axes: 1 }"),
            (2, 3, 3, 9, 8),
            0,
        ),
        (layer("Interp", "interp_param { zoom_factor: 2 }"), (2, 17, 17, 8), 0),
        (layer("Interp", "interp_param { shrink_factor: 4 zoom_factor: 3 }"), (2, 7, 7, 8), 0),
        (layer("Interp", "interp_param { height: 4 width: 5 }"), (2, 4, 5, 8), 0),
        (layer("Upsample", "upsample_param { scale: 3 }"), (2, 27, 27, 8), 0),
        (layer("Reorg", "reorg_param { stride: 3 }"), (2, 3, 3, 72), 0),
        (layer("Reverse"), (2, 9, 9, 8), 0),
        (layer("ShuffleChannel", "shuffle_channel_param { group: 4 }"), (2, 9, 9, 8), 0),
        # 1 + 4 + 16 bins of 8 channels.
        (
            layer("SPP", "spp_param { pyramid_height: 3 }", "s")
            + layer("InnerProduct", "inner_product_param { num_output: 5 }", bottom="s"),
            (2, 5),
            168 * 5 + 5,
        ),
    ],
)
def test_a_layer(read: Read, text: str, shape: tuple[int, ...], count: int) -> None:
    graph = read(IMAGE + text)
    assert (tuple(graph.nodes[-1].output), graph.num_params) == (shape, count)


@pytest.mark.parametrize(
    ("kind", "body", "function"),
    [
        ("ReLU", "", "relu"),
        ("ReLU", "relu_param { negative_slope: 0.1 }", "leaky_relu"),
        ("ReLU6", "", "relu6"),
        ("Power", "power_param { scale: 2 shift: 1 }", "affine"),
        ("Power", "power_param { power: 2 }", "power"),
        ("TanH", "", "tanh"),
        ("BNLL", "", "softplus"),
        ("Swish", "", "silu"),
    ],
)
def test_activations(read: Read, kind: str, body: str, function: str) -> None:
    node = read(IMAGE + layer(kind, body)).nodes[-1]
    assert node.layer.function == function  # type: ignore[attr-defined]


def test_slices_concatenations_and_sums(read: Read) -> None:
    two = 'top: "y" slice_param { slice_point: 3 }'
    text = (
        IMAGE
        + layer("Slice", two)
        + layer("Slice", 'top: "low" slice_param { axis: 2 slice_point: 4 }', "high")
        + layer("Concat", "concat_param { axis: -3 }", "cat", "y x y")
        + layer("Eltwise", "eltwise_param { operation: MAX }", "most", "data data")
    )
    shapes = outputs(read(text))
    assert (shapes["x_1"], shapes["x_2"]) == ((2, 9, 9, 3), (2, 9, 9, 5))
    assert (shapes["high_1"], shapes["high_2"]) == ((2, 4, 9, 8), (2, 5, 9, 8))
    assert shapes["cat"] == (2, 9, 9, 13)
    assert shapes["most"] == (2, 9, 9, 8)


def test_dropout_has_the_ratio_that_is_dropped(read: Read) -> None:
    graph = read(IMAGE + layer("Dropout", "dropout_param { dropout_ratio: 0.2 }"))
    assert graph.nodes[-1].layer.dropout_keep_prob == 0.8  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "body", "name", "number"),
    [
        ("Reduction", "reduction_param {{ operation: {} axis: 1 }}", "MEAN", 4),
        ("Reduction", "reduction_param {{ operation: {} axis: 1 }}", "SUM", 1),
        ("Eltwise", "eltwise_param {{ operation: {} }}", "SUM", 1),
        ("Pooling", "pooling_param {{ pool: {} kernel_size: 3 }}", "AVE", 1),
    ],
)
def test_choices_by_number(read: Read, kind: str, body: str, name: str, number: int) -> None:
    bottoms = "data data" if kind == "Eltwise" else "data"
    by_name, by_number = (
        read(IMAGE + layer(kind, body.format(choice), bottom=bottoms)).nodes[-1].layer
        for choice in (name, number)
    )
    assert by_name == by_number


# Pieces of well-known nets


def test_the_net_of_2012_with_groups(read: Read) -> None:
    def convolution(bottom: str, name: str, outputs: int, fields: str) -> str:
        body = f"convolution_param {{ num_output: {outputs} {fields} }}"
        return layer("Convolution", body, name, bottom) + layer("ReLU", "", f"{name}_r", name)

    pool = "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"
    text = (
        data(10, 3, 227, 227)
        + convolution("data", "c1", 96, "kernel_size: 11 stride: 4")
        + layer("LRN", "lrn_param { local_size: 5 }", "n1", "c1_r")
        + layer("Pooling", pool, "p1", "n1")
        + convolution("p1", "c2", 256, "kernel_size: 5 pad: 2 group: 2")
        + layer("Pooling", pool, "p2", "c2_r")
        + convolution("p2", "c3", 384, "kernel_size: 3 pad: 1")
        + convolution("c3_r", "c4", 384, "kernel_size: 3 pad: 1 group: 2")
        + convolution("c4_r", "c5", 256, "kernel_size: 3 pad: 1 group: 2")
        + layer("Pooling", pool, "p5", "c5_r")
    )
    for name, bottom, count in (("f6", "p5", 4096), ("f7", "f6", 4096), ("f8", "f7", 1000)):
        body = f"inner_product_param {{ num_output: {count} }}"
        text += layer("InnerProduct", body, name, bottom)
    graph = read(text)
    # 60,965,224 parameters and 724 M multiply-adds, as published of Caffe's AlexNet.
    assert graph.num_params == 60_965_224
    assert multiply_adds(graph) / 10 == 724_406_816
    assert outputs(graph)["p5"] == (10, 6, 6, 256)


def test_an_inception_module(read: Read) -> None:
    def convolution(name: str, bottom: str, outputs: int, size: int) -> str:
        pad = size // 2
        body = f"convolution_param {{ num_output: {outputs} kernel_size: {size} pad: {pad} }}"
        return layer("Convolution", body, name, bottom)

    text = (
        data(1, 192, 28, 28)
        + convolution("m/1x1", "data", 64, 1)
        + convolution("m/3x3_reduce", "data", 96, 1)
        + convolution("m/3x3", "m/3x3_reduce", 128, 3)
        + convolution("m/5x5_reduce", "data", 16, 1)
        + convolution("m/5x5", "m/5x5_reduce", 32, 5)
        + layer("Pooling", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }", "m/pool")
        + convolution("m/proj", "m/pool", 32, 1)
        + layer("Concat", "", "m/output", "m/1x1 m/3x3 m/5x5 m/proj")
    )
    graph = read(text)
    assert outputs(graph)["m/output"] == (1, 28, 28, 256)
    # 159 K weights in GoogLeNet's table; and 64 + 96 + 128 + 16 + 32 + 32 biases.
    weights = 192 * (64 + 96 + 16 + 32) + 9 * 96 * 128 + 25 * 16 * 32
    assert graph.num_params == weights + 368


def test_the_end_of_a_fully_convolutional_net(read: Read) -> None:
    text = (
        data(1, 3, 32, 40)
        + layer("Convolution", "convolution_param { num_output: 4 kernel_size: 3 pad: 100 }", "c")
        + layer("Pooling", "pooling_param { kernel_size: 8 stride: 8 }", "p", "c")
        + layer("Convolution", "convolution_param { num_output: 21 kernel_size: 1 }", "s", "p")
        + layer(
            "Deconvolution",
            "param { lr_mult: 0 } convolution_param { num_output: 21 bias_term: false "
            "kernel_size: 16 stride: 8 }",
            "up",
            "s",
        )
        + layer("Crop", "crop_param { axis: 2 offset: 19 }", "score", "up data")
        + layer("SoftmaxWithLoss", "loss_param { ignore_label: 255 }", "loss", "score")
    )
    graph = read(text)
    shapes = outputs(graph)
    # 32 + 200 - 2 = 230, ceil((230 - 8) / 8) + 1 = 29, 8 * 28 + 16 = 240; the width 238, 30, 248.
    assert (shapes["c"], shapes["p"]) == ((1, 230, 238, 4), (1, 29, 30, 4))
    assert shapes["up"] == (1, 240, 248, 21)
    assert tuple(graph.nodes[-2].output) == (1, 32, 40, 21)
    assert params(graph)["up"] == 16 * 16 * 21 * 21


def test_pooling_undone_with_its_mask(read: Read) -> None:
    text = (
        IMAGE
        + layer("Pooling", 'top: "mask" pooling_param { kernel_size: 3 stride: 3 }', "p")
        + layer("Upsample", "upsample_param { scale: 3 }", "up", "p mask")
    )
    assert outputs(read(text))["up"] == (2, 9, 9, 8)


def test_squeeze_and_excitation_by_scale_and_by_axpy(read: Read) -> None:
    text = (
        IMAGE
        + layer("Pooling", "pooling_param { pool: AVE global_pooling: true }", "g")
        + layer("Flatten", "", "f", "g")
        + layer("Scale", "scale_param { axis: 0 }", "s", "data f")
        + layer("Axpy", "", "a", "g data s")
    )
    graph = read(text)
    assert (outputs(graph)["s"], outputs(graph)["a"]) == ((2, 9, 9, 8), (2, 9, 9, 8))
    assert graph.num_params == 0


def test_the_head_of_a_single_shot_detector(read: Read) -> None:
    def branch(name: str, outputs: int) -> str:
        body = f"convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 }}"
        order = "permute_param { order: 0 order: 2 order: 3 order: 1 }"
        return (
            layer("Convolution", body, name)
            + layer("Permute", order, f"{name}_perm", name)
            + layer("Flatten", "flatten_param { axis: 1 }", f"{name}_flat", f"{name}_perm")
        )

    boxes = "prior_box_param { min_size: 30 max_size: 60 aspect_ratio: 2 flip: true }"
    text = (
        IMAGE
        + branch("loc", 4 * 4)
        + branch("conf", 4 * 21)
        + layer("PriorBox", boxes, "prior", "data data")
        + layer("Concat", "concat_param { axis: 2 }", "priors", "prior prior")
        + layer("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 21 } }", "r", "conf_flat")
        + layer("Softmax", "softmax_param { axis: 2 }", "prob", "r")
        + layer("DetectionOutput", "include { phase: TEST }", "found", "loc_flat prob priors")
        + layer("DetectionEvaluate", "include { phase: TEST }", "score", "found data")
        + layer(
            "MultiBoxLoss", "include { phase: TRAIN }", "loss", "loc_flat conf_flat priors data"
        )
    )
    graph = read(text)
    shapes = outputs(graph)
    # 1 and 2 and 1/2 at the smaller size, 1 in between: 4 boxes of 81 places.
    assert (shapes["loc_flat"], shapes["r"]) == ((2, 9 * 9 * 4 * 4), (2, 324, 21))
    assert (shapes["loss_loc"], shapes["loss_conf"]) == ((2, 1), (2, 1))
    # Channels are last in Paleo: nothing has to be moved.
    assert "Transpose" not in [node.type_name for node in graph.nodes]
    tested = read(text, phase="test")
    assert [node.type_name for node in tested.nodes[-2:]] == ["Unknown", "Unknown"]


def test_losses_of_each_region_that_hard_examples_are_found_by(read: Read) -> None:
    tops = 'top: "scores" top: "each"'
    text = (
        IMAGE
        + layer("InnerProduct", "inner_product_param { num_output: 3 }", "classes")
        + layer("InnerProduct", "inner_product_param { num_output: 4 }", "boxes")
        + layer("SoftmaxWithLossOHEM", tops, "loss", "classes data")
        + layer("SmoothL1LossOHEM", 'top: "far"', "off", "boxes data data")
        + layer("Eltwise", "", "sum", "each far")
        + layer("Silence", "", "quiet", "loss scores off").replace('top: "quiet"', "")
    )
    shapes = outputs(read(text))
    assert shapes["loss_scores"] == (2, 3)
    assert shapes["loss"] == shapes["off"] == shapes["sum"] == (2, 1)


def test_recurrent_layers(read: Read) -> None:
    text = (
        'layer { name: "d" type: "DummyData" top: "words" top: "cont" top: "target"\n'
        "  dummy_data_param { shape { dim: 20 dim: 6 } } }\n"
        + layer(
            "Embed", "embed_param { num_output: 7 input_dim: 100 bias_term: false }", "e", "words"
        )
        + layer("LSTM", "recurrent_param { num_output: 5 }", "lstm", "e cont")
        + layer("RNN", "recurrent_param { num_output: 4 }", "rnn", "lstm cont")
        + layer("InnerProduct", "inner_product_param { num_output: 9 axis: 2 }", "fc", "rnn")
        + layer("SoftmaxWithLoss", "softmax_param { axis: 2 }", "loss", "fc target")
    )
    graph = read(text)
    assert graph.batch_size == 6  # time comes first in Caffe
    assert outputs(graph)["words"] == (6, 20)
    assert (outputs(graph)["lstm"], outputs(graph)["fc"]) == ((6, 20, 5), (6, 20, 9))
    # One bias a gate; Caffe's RNN has an output product of its own.
    assert params(graph) == {
        "e": 700,
        "lstm": 4 * 5 * (7 + 5 + 1),
        "rnn": 4 * (5 + 4 + 1),
        "rnn_output": 4 * 4 + 4,
        "fc": 4 * 9 + 9,
    }


def test_frames_that_become_sequences(read: Read) -> None:
    text = (
        data(24, 3, 9, 9)
        + layer("Convolution", "convolution_param { num_output: 2 kernel_size: 9 }", "c")
        + layer("Reshape", "reshape_param { shape { dim: 4 dim: 6 dim: -1 } }", "r", "c")
        + layer("LSTM", "recurrent_param { num_output: 5 }", "lstm", "r r")
    )
    graph = read(text)
    assert graph.batch_size == 6
    assert outputs(graph)["lstm"] == (6, 4, 5)
    assert multiply_adds(graph) == 24 * 9 * 9 * 3 * 2


def test_siamese_nets_count_shared_parameters_once(read: Read, faults: Faults) -> None:
    def tower(name: str, bottom: str, size: int = 5) -> str:
        named = 'param { name: "w" lr_mult: 1 } param { name: "b" lr_mult: 2 }'
        body = f"convolution_param {{ num_output: 4 kernel_size: {size} }}"
        return layer("Convolution", f"{named} {body}", name, bottom)

    text = data(3, 2, 28, 28) + layer("Slice", 'top: "y" slice_param { slice_dim: 1 }')
    loss = layer("ContrastiveLoss", "", "loss", "a b")
    graph = read(text + tower("a", "x") + tower("b", "y") + loss)
    assert params(graph) == {"a": 5 * 5 * 4 + 4}
    assert outputs(graph)["loss"] == (3, 1)
    said = 'its parameter "w" has 36 elements here and 100 in another layer'
    expected = [f'layer "b": key "param": {said}']
    assert faults(text + tower("a", "x") + tower("b", "y", 3) + loss) == expected
