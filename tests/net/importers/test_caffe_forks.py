"""What Caffe's forks have: layers of their own, data of their own, and ends that nobody reads."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from caffe_files import (
    IMAGE,
    Faults,
    Notes,
    Read,
    data,
    faults,
    layer,
    multiply_adds,
    notes,
    outputs,
    params,
    read,
)

pytest.importorskip("google.protobuf")

__all__ = ["faults", "notes", "read"]

NARROW = "num_output: 4 kernel_shape { dim: 3 dim: 5 } pad_shape { dim: 1 dim: 0 }"
NARROW = f"convolution_param {{ {NARROW} }}"
LABELS = 'input: "label" input_shape { dim: 2 dim: 1 }\n'


def product(name: str, bottom: str, size: int, rest: str = "") -> str:
    body = f"inner_product_param {{ num_output: {size} }} {rest}"
    return layer("InnerProduct", body, name, bottom)


def types(graph: Any) -> dict[str, str]:
    return {node.name: node.type_name for node in graph.nodes}


# Ends


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("RegionLoss", "param { lr_mult: 0 }"),
        ("Yolov3", "loss_weight: 1 yolov3_param { num_class: 20 biases: 10 }"),
        ("Python", 'loss_weight: 0.5 python_param { module: "own" layer: "Mine" }'),
        ("Python", 'python_param { module: "own" layer: "FarLossLayer" } loss_weight: 1'),
    ],
)
def test_what_nobody_reads_is_a_loss_by_its_weight_or_its_name(
    read: Read, notes: Notes, kind: str, body: str
) -> None:
    text = IMAGE + LABELS + product("x", "data", 3) + layer(kind, body, "end", "x label")
    graph = read(text)
    assert types(graph)["end"] == "Loss"
    (said,) = notes(text)
    assert said.endswith("is taken as a loss that reads its inputs once")


def test_old_types_of_forks_are_losses_by_name(read: Read) -> None:
    text = """
    input: "data" input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 4
    layers { name: "ip" type: INNER_PRODUCT bottom: "data" top: "ip"
      inner_product_param { num_output: 5 } }
    layers { name: "end" type: MULTI_SOFTMAX_LOSS bottom: "ip" bottom: "data" }
    """
    graph = read(text)
    assert types(graph)["end"] == "Loss"
    assert params(graph) == {"ip": 3 * 4 * 4 * 5 + 5}


def test_other_ends_are_listed_as_not_counted(read: Read) -> None:
    text = (
        IMAGE
        + product("x", "data", 3)
        + layer("Python", 'python_param { module: "own" layer: "Cluster" }', "found", "x")
        + layer("Python", 'python_param { module: "own" layer: "Score" }', "end", "found data")
        + layer("MatWrite", 'mat_write_param { prefix: "out/" }', "file", "x").replace(
            'top: "file"', ""
        )
    )
    graph = read(text)
    assert {name: kind for name, kind in types(graph).items() if kind == "Unknown"} == {
        "found": "Unknown", "end": "Unknown", "file": "Unknown",
    }  # fmt: skip
    # They cost nothing, and change nothing.
    assert params(graph) == {"x": 8 * 9 * 9 * 3 + 3}


@pytest.mark.parametrize(
    "text",
    [
        layer("Strange", "strange_param { num_output: 5 }", "end"),
        layer("Strange", "", "end"),
        layer("StrangeLoss", "weight_filler { type: 'xavier' }", "end"),
        layer("Strange", "strange_param { Filter_Filler { value: 1 } }", "end"),
        layer("Strange", "", "data") + layer("ReLU"),
        layer("Strange", "", "s") + layer("Own", "", "t", "s") + product("x", "t", 3),
    ],
)
def test_what_may_have_parameters_or_is_read_is_no_end(faults: Faults, text: str) -> None:
    (said,) = faults(IMAGE + text)
    assert said.startswith("types of layers that are not understood: ")


# Data


def images(tops: str, text: str = "") -> str:
    listed = " ".join(f'top: "{top}"' for top in tops.split())
    return (
        f'layer {{ name: "d" type: "Python" {listed} python_param {{ module: "own" layer: "Data" '
        f'param_str: "{text}" }} }}\n'
    )


def convolution(name: str, bottom: str, extra: str = "") -> str:
    return layer(
        "Convolution", f"convolution_param {{ num_output: 4 kernel_size: 3 }} {extra}", name, bottom
    )


def test_two_images_of_one_layer_are_as_large(read: Read, notes: Notes, faults: Faults) -> None:
    text = (
        images("color depth label")
        + convolution("a", "color")
        + convolution("b", "depth")
        + layer("Eltwise", "", "both", "a b")
        + layer("SoftmaxWithLoss", "", "loss", "both label")
    )
    wanted = 'layer "d": it does not say how large "color" is: give it with --input color=NxCxHxW'
    assert wanted in faults(text)
    given = (("color", (2, 3, 9, 7)),)
    shapes = outputs(read(text, input=given))
    assert (shapes["depth"], shapes["label"]) == ((2, 9, 7, 3), (2, 1))
    assert notes(text, input=given) == ("depth is taken to be as large as color",)
    own = (*given, ("depth", (2, 1, 9, 7)))
    assert outputs(read(text, input=own))["depth"] == (2, 9, 7, 1)


@pytest.mark.parametrize(
    ("said", "shape"),
    [
        ("{'batch_size': 2, 'im_shape': [9, 7]}", (2, 9, 7, 3)),
        ("batch_size: 4, crop_size: 8", (4, 8, 8, 3)),
        ("{'batch':3, 'side':7, 'width': 5, 'height':6}", (3, 6, 5, 3)),
    ],
)
def test_text_of_a_python_layer_may_say_a_size(
    read: Read, notes: Notes, said: str, shape: tuple[int, ...]
) -> None:
    text = images("data label", said) + layer("ReLU")
    assert outputs(read(text))["data"] == shape
    n, h, w, c = shape
    (note,) = notes(text)
    assert note.startswith(f"data is taken as {n}x{c}x{h}x{w}, as param_str has it: --input ")


def test_labels_of_several_numbers_are_asked_for_where_they_matter(
    faults: Faults, read: Read
) -> None:
    text = (
        'layer { name: "d" type: "Data" top: "data" top: "label" data_param { batch_size: 2 }\n'
        "  transform_param { crop_size: 4 } }\n"
        + layer("Slice", 'top: "rest" slice_param { slice_point: 2 }', "first", "label")
        + layer("Reshape", "reshape_param { shape { dim: -1 dim: 2 } }", "rows", "first")
        + product("x", "data", 2)
        + layer("EuclideanLoss", "", "loss", "x rows")
    )
    # A loss does without them.
    assert outputs(read(text))["loss"] == (2, 1)
    assert outputs(read(text, input=(("label", (2, 5)),)))["first_2"] == (2, 3)
    assert faults(text + product("y", "rest", 3)) == [
        'layer "d": it does not say how large "label" is: give it with --input label=2xCxHxW'
    ]


def test_what_picks_samples_for_losses_passes_them_on(read: Read, faults: Faults) -> None:
    bridge = layer(
        "Python", 'top: "known" python_param { module: "own" layer: "Picked" }', "picked", "x label"
    )
    text = IMAGE + LABELS + product("x", "data", 3) + bridge
    judged = (
        layer("SoftmaxWithLoss", "", "loss", "picked known")
        + layer("Accuracy", "", "right", "picked known")
    )  # fmt: skip
    graph = read(text + judged)
    assert types(graph)["picked"] == "Unknown"
    assert outputs(graph)["picked"] == (2, 3)
    assert types(graph)["loss"] == "Loss"
    (said,) = faults(text + judged + product("y", "picked", 3))
    assert said.startswith("types of layers that are not understood: Python own.Picked (picked)")


def test_images_side_by_side_are_counted(read: Read, faults: Faults) -> None:
    def text(shared: str) -> str:
        source = (
            'layer { name: "d" type: "Data" top: "data" data_param { batch_size: 2 }\n'
            "  transform_param { crop_size: 9 } }\n"
        )
        cut = layer("Slice", 'top: "b" top: "c" slice_param { slice_point: 4 slice_point: 8 }', "a")
        return source + cut + "".join(convolution(f"c{top}", top, shared) for top in "abc")

    graph = read(text('param { name: "w" } param { name: "b" }'))
    # Three times the 4 channels of the first, since the same filters read all.
    assert outputs(graph)["data"] == (2, 9, 9, 12)
    assert params(graph) == {"ca": 3 * 3 * 4 * 4 + 4}
    (said,) = faults(text(""))
    assert said.endswith(
        "it does not say how many channels its images have: give it with --input data=2xCxHxW"
    )


def test_rows_of_a_file_are_steps(read: Read, notes: Notes, faults: Faults) -> None:
    rows = (
        'layer { name: "h" type: "HDF5Data" top: "ends" top: "words"\n'
        "  hdf5_data_param { batch_size: 5 } }\n"
    )
    text = (
        rows
        + layer("Embed", "embed_param { num_output: 3 input_dim: 9 }", "e", "words")
        + layer("LSTM", "recurrent_param { num_output: 4 }", "lstm", "e ends")
    )
    assert len(faults(text)) == 2  # nothing says how many sequences there are
    both = data(6, 3, 4, 4) + product("x", "data", 3) + text
    graph = read(both)
    assert (graph.batch_size, outputs(graph)["lstm"]) == (6, (6, 5, 4))
    said = "words is taken as 5x6, the steps of each of 6 samples: --input words=TxN says otherwise"
    assert said in notes(both)


def test_one_sequence_keeps_its_frames_apart(read: Read) -> None:
    text = (
        data(4, 3, 9, 9)
        + layer("Convolution", "convolution_param { num_output: 2 kernel_size: 9 }", "c")
        + layer("Reshape", "reshape_param { shape { dim: 4 dim: 1 dim: -1 } }", "r", "c")
        + layer("LSTM", "recurrent_param { num_output: 5 }", "lstm", "r r")
    )
    graph = read(text)
    assert (graph.batch_size, outputs(graph)["lstm"]) == (1, (1, 4, 5))
    assert multiply_adds(graph) == 4 * 9 * 9 * 3 * 2


def test_detectors_of_digits_say_their_own_size(read: Read) -> None:
    text = (
        'layer { name: "d" type: "Data" top: "data" data_param { batch_size: 3 } }\n'
        'layer { name: "l" type: "Data" top: "label" data_param { batch_size: 3 } }\n'
        'layer { name: "t" type: "DetectNetTransformation" bottom: "data" bottom: "label"\n'
        '  top: "images" top: "truth" detectnet_groundtruth_param { stride: 4 image_size_x: 16\n'
        "  image_size_y: 8 object_class { src: 1 dst: 0 } object_class { src: 8 dst: 1 } } }\n"
        + layer("Convolution", "convolution_param { num_output: 2 kernel_size: 4 stride: 4 }", "x",
                "images")
        + layer("Slice", 'top: "classes" slice_param { slice_point: 8 }', "boxes", "truth")
        + layer("EuclideanLoss", "", "loss", "x classes")
    )  # fmt: skip
    shapes = outputs(read(text))
    assert shapes["images"] == (3, 8, 16, 3)
    # 1 + 4 + 2 + 1 for each place, and one for each of two classes.
    assert (shapes["truth"], shapes["boxes_2"]) == ((3, 2, 4, 10), (3, 2, 4, 2))


def test_labels_may_be_fewer_than_places(read: Read) -> None:
    text = (
        'layer { name: "d" type: "DenseImageData" top: "data" top: "truth"\n'
        "  dense_image_data_param { batch_size: 2 new_height: 16 new_width: 24\n"
        "  label_divide_factor: 8 } }\n"
        + layer("Convolution", "convolution_param { num_output: 3 kernel_size: 8 stride: 8 }")
        + layer("SoftmaxWithLoss", "", "loss", "x truth")
    )
    assert outputs(read(text))["truth"] == (2, 2, 3, 1)


def test_data_of_a_fork_has_a_message_of_its_own(read: Read) -> None:
    text = (
        'layer { name: "d" type: "BoxImageData" top: "data" top: "label"\n'
        '  box_image_data_param { source: "a" batch_size: 3 new_height: 4 new_width: 5 } }\n'
    )
    assert outputs(read(text + layer("ReLU")))["data"] == (3, 4, 5, 3)


# Layers


def test_rows_of_several_blobs_are_rows_of_each_sample(read: Read) -> None:
    text = (
        data(2, 8, 6, 6)
        + layer("Concat", "concat_param { axis: 0 }", "rows", "data data data")
        + convolution("x", "rows")
    )
    graph = read(text)
    # Six images, three of each sample.
    assert multiply_adds(graph) == 6 * 4 * 4 * 8 * 3 * 3 * 4


def test_rows_of_each_sample_are_taken_apart(read: Read, faults: Faults) -> None:
    three = 'top: "like" top: "other" slice_param { slice_dim: 0 slice_point: 2 slice_point: 4 }'
    text = data(6, 8, 5, 5) + convolution("x", "data") + layer("Slice", three, "one", "x")
    graph = read(text + product("fc", "like", 7))
    # Three images a sample: six go through the convolution, two through the product.
    assert graph.batch_size == 2
    assert multiply_adds(graph) == 6 * 3 * 3 * 8 * 3 * 3 * 4 + 2 * 3 * 3 * 4 * 7
    uneven = three.replace("slice_point: 4", "slice_point: 5")
    (said,) = faults(data(6, 8, 5, 5) + layer("Slice", uneven, "one"))
    assert said.startswith('layer "one": ')


def test_domains_share_their_layers(read: Read) -> None:
    other = 'input: "target" input_shape { dim: 2 dim: 8 dim: 9 dim: 9 }\n'
    text = (
        IMAGE
        + other
        + layer("Concat", "concat_param { concat_dim: 0 }", "both", "data target")
        + convolution("x", "both")
        + layer("Slice", 'top: "second" slice_param { slice_dim: 0 }', "first", "x")
        + product("fc", "first", 3)
        + layer("MMDLoss", "loss_weight: 0.3", "mmd", "first second")
    )
    graph = read(text)
    assert graph.batch_size == 2
    assert multiply_adds(graph) == 4 * 7 * 7 * 8 * 3 * 3 * 4 + 2 * 7 * 7 * 4 * 3


def test_faces(read: Read) -> None:
    text = (
        IMAGE
        + LABELS
        + product("feature", "data", 6)
        + layer("MarginInnerProduct",
                'top: "lambda" margin_inner_product_param { num_output: 10 type: DOUBLE }',
                "margin", "feature label")
        + layer("LabelSpecificAdd", "label_specific_add_param { bias: -0.35 }", "less",
                "margin label")
        + layer("SoftmaxWithLoss", "", "loss", "less label")
        + layer("CenterLoss", "center_loss_param { num_output: 10 } loss_weight: 0.1", "center",
                "feature label")
    )  # fmt: skip
    graph = read(text)
    # Neither has a bias; a center is as long as a feature.
    assert params(graph) == {"feature": 648 * 6 + 6, "margin": 6 * 10, "center_centers": 6 * 10}
    assert outputs(graph)["less"] == (2, 10)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_dense_block_in_one_layer(read: Read, bottleneck: bool) -> None:
    body = f"numTransition: 2 growthRate: 3 use_BC: {str(bottleneck).lower()}"
    graph = read(IMAGE + layer("DenseBlock", f"denseblock_param {{ {body} initChannel: 8 }}"))
    assert outputs(graph)["x_2"] == (2, 9, 9, 14)
    expected = 0
    for channels in (8, 8 + 3):
        if bottleneck:  # 1 x 1 to 12 channels, with a scale and a shift of each that it reads
            expected += 2 * channels + channels * 12
            channels = 12
        expected += 2 * channels + 3 * 3 * channels * 3
    assert sum(params(graph).values()) == expected


def test_flow(read: Read, faults: Faults) -> None:
    pair = data(1, 8, 20, 30) + 'input: "other" input_shape { dim: 1 dim: 8 dim: 20 dim: 30 }\n'
    body = "pad: 4 kernel_size: 3 max_displacement: 5 stride_1: 2 stride_2: 2"
    text = (
        pair
        + layer("Correlation", f"correlation_param {{ {body} }}", "corr", "data other")
        + layer("Resample", "resample_param { width: 12 height: 7 type: NEAREST }", "small", "data")
        + layer("Downsample", "", "same", "data small")
        + layer("FlowWarp", "", "warped", "data other")
        + layer("ChannelNorm", "", "norm", "warped")
        + layer("SpatialTransformer", "st_param { output_H: 5 }", "turned", "data other")
    )
    shapes = outputs(read(text))
    # 20 + 8 - 2 * (5 + 1) = 16, 30 + 8 - 12 = 26, halved; 5 / 2 = 2 to each side: 5 x 5.
    assert shapes["corr"] == (1, 25, 8, 13)
    assert shapes["small"] == shapes["same"] == (1, 7, 12, 8)
    assert shapes["turned"] == (1, 8, 5, 30)
    assert prod(shapes["norm"]) == 20 * 30
    far = layer("Correlation", "correlation_param { kernel_size: 1 max_displacement: 40 }", "corr",
                "data other")  # fmt: skip
    (said,) = faults(pair + far)
    assert said == 'layer "corr": key "max_displacement": nothing is left of its output'


@pytest.mark.parametrize("kind", ["Resample", "Downsample", "SpatialTransformer"])
def test_resampling_needs_the_shapes_of_all_that_it_reads(faults: Faults, kind: str) -> None:
    other = 'layer { name: "other" type: "HDF5Data" top: "other" }\n'
    (said,) = faults(IMAGE + other + layer(kind, "", "x", "data other"))
    assert "--input other=" in said


def test_scores_refined_by_their_neighbours(read: Read) -> None:
    body = "multi_stage_meanfield_param { num_iterations: 2 }"
    text = data(1, 5, 6, 7) + layer("MultiStageMeanfield", body, "crf", "data data data")
    graph = read(text)
    # Three matrices of 5 x 5, used at each of 42 places in both iterations.
    assert sum(params(graph).values()) == 3 * 5 * 5
    assert multiply_adds(graph) == 2 * 3 * 42 * 5 * 5
    assert list(types(graph).values()).count("Unknown") == 4  # what is near, and what is alike


def test_windows_of_each_place_and_what_reads_them(read: Read) -> None:
    text = (
        data(1, 8, 6, 10)
        + layer("Im2col", "convolution_param { kernel_size: 3 pad: 1 stride: 2 }", "columns")
        + layer("Transpose", "transpose_param { dim: 3 dim: 2 dim: 0 dim: 1 }", "turned", "columns")
        + product("fc", "turned", 4, "").replace("num_output: 4", "num_output: 4 axis: 3")
    )
    graph = read(text)
    assert outputs(graph)["columns"] == (1, 72, 3, 5)
    assert params(graph) == {"fc": 72 * 4 + 4}
    assert multiply_adds(graph) == 3 * 5 * 72 * 4


@pytest.mark.parametrize(
    ("kind", "body", "shape", "count"),
    [
        ("ConvolutionRistretto", "convolution_param { num_output: 4 kernel_size: 3 }", (2, 7, 7, 4),
         8 * 9 * 4 + 4),
        ("FcRistretto", "inner_product_param { num_output: 4 }", (2, 4), 648 * 4 + 4),
        ("CReLU", "", (2, 9, 9, 16), 0),
        ("Unpooling", "unpooling_param { unpool: MAX unpool_size: 18 }", (2, 18, 18, 8), 0),
        ("NdConvolution", NARROW, (2, 9, 5, 4), 8 * 15 * 4 + 4),
        ("SpatialDropout", "dropout_param { dropout_ratio: 0.1 }", (2, 9, 9, 8), 0),
        ("HSigmoid", "", (2, 9, 9, 8), 0),
        ("L2Normalize", "", (2, 9, 9, 8), 0),
        ("Yolov3DetectionOutput", "", (2, 7), 0),
        ("CTCGreedyDecoder", "", (2, 5), 0),
    ],
)  # fmt: skip
def test_types_of_forks(
    read: Read, kind: str, body: str, shape: tuple[int, ...], count: int
) -> None:
    graph = read(IMAGE + layer(kind, body))
    assert outputs(graph)["x"] == shape
    assert sum(params(graph).values()) == count


def test_dropout_written_in_python_says_how_much(read: Read) -> None:
    text = "{\\'phase\\': \\'TRAIN\\', \\'p\\': \\'0.25\\'}"
    body = (
        f'python_param {{ module: "own" layer: "SpatialDropoutLayer" param_str: "{text}" }}'
    )  # fmt: skip
    graph = read(IMAGE + layer("Python", body))
    assert graph.nodes[-1].layer.dropout_keep_prob == 0.75  # type: ignore[attr-defined]


def test_an_lstm_of_before(read: Read, faults: Faults) -> None:
    body = "lstm_param { num_output: 5 clipping_threshold: 1 }"
    graph = read(data(4, 2, 7) + layer("Lstm", body))
    assert params(graph) == {"x": 4 * 5 * (7 + 5 + 1)}
    (said,) = faults(data(8, 7) + layer("Lstm", body))
    assert said == 'layer "x": its input must be T x N x D, got 8x7'
