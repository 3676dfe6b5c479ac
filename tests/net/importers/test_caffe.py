"""Caffe's prototxt files: inputs, phases, formats old and new, and what is wrong with a file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from caffe_files import (
    IMAGE,
    Faults,
    Read,
    faults,
    layer,
    multiply_adds,
    outputs,
    params,
    read,
    read_file,
)

import paleo

pytest.importorskip("google.protobuf")

__all__ = ["faults", "read"]

REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "caffe"


# Real files


def reference(name: str) -> paleo.Graph:
    file = REFERENCE / name
    if not file.is_file():
        pytest.skip(f"the file {name} of ../shared/reference/caffe is not here")
    return read_file(file)


def test_resnet_50() -> None:
    graph = reference("resnet50.prototxt")
    # 25,557,032 as documented by torchvision for this net without a bias in any convolution,
    # scales and shifts counted, running means not; this file's conv1 also has its 64 biases.
    assert graph.num_params == 25_557_032 + 64
    # 3.8 G in the paper, where stages are strided in their first 1x1, as in this file.
    assert multiply_adds(graph) == pytest.approx(3.858e9, rel=1e-3)
    shapes = outputs(graph)
    # 224 + 2*3 - 7 = 223, halved and rounded down: 112. Pooling: ceil((112 - 3) / 2) + 1 = 56.
    assert shapes["conv1"] == (1, 112, 112, 64)
    assert shapes["pool1"] == (1, 56, 56, 64)
    assert shapes["res2c"] == (1, 56, 56, 256)
    assert shapes["res3d"] == (1, 28, 28, 512)
    assert shapes["res4f"] == (1, 14, 14, 1024)
    assert shapes["res5c"] == (1, 7, 7, 2048)
    assert shapes["pool5"] == (1, 1, 1, 2048)
    assert shapes["prob"] == (1, 1000)
    assert graph.name == "ResNet-50"


def test_densenet_40() -> None:
    graph = reference("densenet.prototxt")
    # Growth 12, three blocks of 12; scale and shift of every channel before each convolution.
    channels, total = 16, 3 * 3 * 3 * 16
    for block in range(3):
        for _ in range(12):
            total += 2 * channels + 3 * 3 * channels * 12
            channels += 12
        if block < 2:
            total += 2 * channels + channels * channels
    total += 2 * channels + channels * 10 + 10
    assert graph.num_params == total == 1_019_722  # 1.0 M in the paper
    assert outputs(graph)["Pooling3"] == (1, 1, 1, 448)


# Inputs


def test_inputs_at_the_root_and_in_layers(read: Read) -> None:
    relu = layer("ReLU")
    dims = "input_dim: 2 input_dim: 8 input_dim: 9 input_dim: 9\n"
    given = 'layer { name: "in" type: "Input" top: "data" input_param { shape: {'
    for text in (IMAGE, f'input: "data" {dims}', f"{given} dim: [2, 8, 9, 9] }} }} }}"):
        graph = read(text + relu)
        assert outputs(graph) == {"data": (2, 9, 9, 8), "x": (2, 9, 9, 8)}
        assert graph.batch_size == 2


@pytest.mark.parametrize(
    ("kind", "body", "shape"),
    [
        (
            "Data",
            "data_param { batch_size: 64 } transform_param { crop_size: 32 }",
            (64, 32, 32, 3),
        ),
        (
            "ImageData",
            "image_data_param { batch_size: 4 new_height: 5 new_width: 7 }",
            (4, 5, 7, 3),
        ),
        (
            "ImageData",
            "image_data_param { new_height: 5 new_width: 7 is_color: false }",
            (1, 5, 7, 1),
        ),
        (
            "Data",
            "data_param { batch_size: 2 } transform_param { crop_size: 8 force_gray: true }",
            (2, 8, 8, 1),
        ),
        (
            "AnnotatedData",
            "data_param { batch_size: 2 } transform_param { resize_param { height: 6 width: 5 } }",
            (2, 6, 5, 3),
        ),
        ("WindowData", "window_data_param { batch_size: 3 crop_size: 8 }", (3, 8, 8, 3)),
        (
            "MemoryData",
            "memory_data_param { batch_size: 3 channels: 2 height: 4 width: 5 }",
            (3, 4, 5, 2),
        ),
        ("DummyData", "dummy_data_param { num: 3 channels: 2 height: 4 width: 5 }", (3, 4, 5, 2)),
    ],
)
def test_data_layers_say_how_large_images_are(
    read: Read, kind: str, body: str, shape: tuple[int, ...]
) -> None:
    tops = 'top: "label"' if "dummy" not in body else ""
    source = f'layer {{ name: "d" type: "{kind}" top: "data" {tops} {body} }}\n'
    assert outputs(read(source + layer("ReLU")))["data"] == shape


def test_labels_are_an_input_where_they_are_read(read: Read) -> None:
    text = (
        'layer { name: "d" type: "Data" top: "data" top: "label"\n'
        "  data_param { batch_size: 5 } transform_param { crop_size: 4 } }\n"
        + layer("InnerProduct", "inner_product_param { num_output: 3 }", "fc")
        + layer("SoftmaxWithLoss", "", "loss", "fc label")
        + layer("Accuracy", "", "right", "fc label")
    )
    shapes = outputs(read(text))
    assert shapes["label"] == shapes["loss"] == shapes["right"] == (5, 1)


@pytest.mark.parametrize("kind", ["DenseImageData", "ImageSegData"])
def test_maps_of_labels_are_as_large_as_their_images(read: Read, kind: str) -> None:
    text = (
        f'layer {{ name: "d" type: "{kind}" top: "data" top: "truth" transform_param {{\n'
        "  crop_size: 17 } image_data_param { batch_size: 2 } }\n"
        + layer("Interp", "interp_param { shrink_factor: 4 }", "small", "truth")
        + layer("Convolution", "convolution_param { num_output: 3 kernel_size: 1 stride: 4 }")
        + layer("SoftmaxWithLoss", "", "loss", "x small")
    )
    shapes = outputs(read(text))
    # (17 - 1) / 4 + 1 = 5.
    assert (shapes["truth"], shapes["small"]) == ((2, 17, 17, 1), (2, 5, 5, 1))
    assert outputs(read(text, input=(("data", (1, 3, 9, 13)),)))["truth"] == (1, 9, 13, 1)


def test_images_of_one_of_some_sizes_have_the_first(read: Read) -> None:
    sizes = " ".join(f"resize_param {{ height: {size} width: {size} }}" for size in (12, 10, 8))
    source = (
        'layer { name: "d" type: "AnnotatedData" top: "data" data_param { batch_size: 2 }\n'
        f"  transform_param {{ {sizes} }} }}\n"
    )
    assert outputs(read(source + layer("ReLU")))["x"] == (2, 12, 12, 3)


def test_an_option_gives_and_overrides_shapes(read: Read, faults: Faults) -> None:
    source = (
        'layer { name: "d" type: "Data" top: "data" top: "label" data_param { batch_size: 64 } }'
    )
    text = source + layer("SoftmaxWithLoss", bottom="data label")
    wanted = 'layer "d": it does not say how large "data" is: give it with --input data=64xCxHxW'
    assert faults(text) == [wanted]
    shapes = outputs(read(text, input=((None, (10, 1, 28, 28)),)))
    assert (shapes["data"], shapes["label"]) == ((10, 28, 28, 1), (10, 1))
    assert outputs(read(IMAGE + layer("ReLU"), input=(("data", (3, 2, 4, 5)),)))["x"] == (
        3,
        4,
        5,
        2,
    )
    # What nothing gives becomes an input when an option says so.
    assert outputs(read(layer("ReLU"), input=((None, (1, 6)),)))["x"] == (1, 6)
    assert faults(layer("ReLU")) == [
        "nothing in it is an input in the train phase: say what is one with --input data=NxCxHxW"
    ]
    assert faults(IMAGE + layer("ReLU"), input=(("dota", (1, 2)),)) == [
        "--input dota=1x2: \"dota\" is no input (did you mean 'data'?)"
    ]


# Phases and formats


def test_phases_stages_and_levels(read: Read, faults: Faults) -> None:
    def source(phase: str, batch: int) -> str:
        return (
            f'layer {{ name: "d" type: "Data" top: "data" include {{ phase: {phase} }}'
            f" data_param {{ batch_size: {batch} }} transform_param {{ crop_size: 8 }} }}\n"
        )

    text = (
        source("TRAIN", 64)
        + source("TEST", 10)
        + layer("ReLU", "exclude { phase: TEST }", "train_only")
        + layer("ReLU", 'include { stage: "never" } include { min_level: 1 }', "never")
        + layer("ReLU", 'include { not_stage: "never" max_level: 0 }', "always")
        + layer("ReLU", 'include { stage: "val" }', "val")
    )
    assert list(outputs(read(text))) == ["data", "train_only", "always"]
    graph = read(text, phase="test")
    assert (list(outputs(graph)), graph.batch_size) == (["data", "always", "val"], 10)
    assert "never" in outputs(read('state { stage: "never" }\n' + text))
    bottom = layer("ReLU", "", "y", "train_only")
    said = 'layer "train_only" gives its bottom "train_only" only with --phase train'
    assert faults(text + bottom, phase="test") == [f'layer "y": key "bottom": {said}']


def test_stages_in_the_file_stand_alone(read: Read, faults: Faults) -> None:
    text = (
        'layer { name: "d" type: "Data" top: "in" include { stage: "train" }\n'
        "  data_param { batch_size: 8 } transform_param { crop_size: 6 } }\n"
        + layer("Power", 'include { stage: "deploy" }', "in")
        + layer("ReLU", "", "x", "in")
    )
    assert list(outputs(read(text))) == ["in", "x"]
    deploy = 'state { stage: "deploy" }\n' + text
    assert outputs(read(deploy, input=(("data", (1, 3, 6, 6)),)))["x"] == (1, 6, 6, 3)
    (fault,) = faults(deploy)
    assert fault.endswith("say what is one with --input data=NxCxHxW")


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ('phase: TEST stage: "on-val"', 'state { stage: "on-val" } in the file'),
        ("phase: TRAIN", "--phase train"),
    ],
)
def test_data_that_a_phase_lacks_is_named(
    read: Read, faults: Faults, rule: str, where: str
) -> None:
    text = (
        f'layer {{ name: "d" type: "Data" top: "pixels" include {{ {rule} }}'
        " data_param { batch_size: 2 } transform_param { crop_size: 4 } }\n"
    ) + layer("ReLU", "", "x", "pixels")
    (fault,) = faults(text, phase="test")
    assert fault == (
        f'nothing in it is an input in the test phase: layer "d" gives "pixels" only with {where}, '
        "or give it with --input pixels=NxCxHxW"
    )
    given = (("pixels", (1, 3, 5, 5)),)
    assert outputs(read(text, phase="test", input=given))["x"] == (1, 5, 5, 3)


OLD = """
name: "old"
input: "data" input_dim: 10 input_dim: 3 input_dim: 19 input_dim: 19
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 weight_decay: 1
  convolution_param { num_output: 4 kernel_size: 3 stride: 2 weight_filler { type: "xavier" } } }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "norm" type: LRN bottom: "conv" top: "norm" lrn_param { local_size: 5 } }
layers { name: "a" type: INNER_PRODUCT bottom: "norm" top: "a" param: "w" param: "b"
  inner_product_param { num_output: 6 } }
layers { name: "b" type: INNER_PRODUCT bottom: "norm" top: "b" param: "w" param: "b"
  inner_product_param { num_output: 6 } }
layers { name: "cat" type: CONCAT bottom: "a" bottom: "b" top: "cat"
  concat_param { concat_dim: 1 } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "cat" bottom: "data" }
"""


def test_old_layers_with_types_in_capitals(read: Read) -> None:
    graph = read(OLD)
    # (19 - 3) / 2 + 1 = 9. 3*3*3*4 + 4 = 112; 9*9*4 * 6 + 6 = 1950, once.
    assert outputs(graph)["conv"] == (10, 9, 9, 4)
    assert params(graph) == {"conv": 112, "a": 1950}
    assert outputs(graph)["cat"] == (10, 12)
    assert graph.nodes[2].parents == (1,)  # relu, in place, reads conv


def test_the_oldest_layers_and_their_padding(read: Read) -> None:
    text = """
    input: "data" input_dim: 10 input_dim: 3 input_dim: 31 input_dim: 31
    layers { layer { name: "conv1" type: "conv" num_output: 8 kernelsize: 11 stride: 4 }
      bottom: "data" top: "conv1" }
    layers { layer { name: "pad2" type: "padding" pad: 2 } bottom: "conv1" top: "pad2" }
    layers { layer { name: "conv2" type: "conv" num_output: 6 group: 2 kernelsize: 5
      biasterm: false } bottom: "pad2" top: "conv2" }
    layers { layer { name: "pool" type: "pool" pool: AVE kernelsize: 2 stride: 2 }
      bottom: "conv2" top: "pool" }
    layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.25 } bottom: "pool" top: "pool" }
    """
    graph = read(text)
    # (31 - 11) / 4 + 1 = 6; 6 + 4 - 5 + 1 = 6; 6 / 2 = 3. Each group sees 4 channels.
    shapes = outputs(graph)
    assert (shapes["conv1"], shapes["conv2"]) == ((10, 6, 6, 8), (10, 6, 6, 6))
    assert shapes["pool"] == (10, 3, 3, 6)
    assert params(graph)["conv2"] == 5 * 5 * 4 * 6
    assert graph.nodes[-1].layer.dropout_keep_prob == 0.75  # type: ignore[attr-defined]


def test_c3d_has_fields_of_its_own_for_time(read: Read) -> None:
    text = """
    layers { name: "d" type: VIDEO_DATA top: "data" top: "label"
      image_data_param { batch_size: 2 crop_size: 12 new_length: 8 } }
    layers { name: "c" type: CONVOLUTION3D bottom: "data" top: "c" convolution_param {
      num_output: 4 kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1 } }
    layers { name: "p" type: POOLING3D bottom: "c" top: "p" pooling_param {
      kernel_size: 2 kernel_depth: 1 stride: 2 temporal_stride: 1 } }
    """
    graph = read(text)
    assert outputs(graph)["p"] == (2, 8, 6, 6, 4)
    assert params(graph) == {"c": 3 * 3 * 3 * 3 * 4 + 4}


def test_newer_c3d_has_messages_of_its_own_for_volumes(read: Read, faults: Faults) -> None:
    window = "kernel_size: 4 kernel_depth: 2 stride: 4 temporal_stride: 2"
    text = (
        'layer { name: "d" type: "VideoData" top: "data" transform_param { crop_size: 12 }\n'
        "  video_data_param { batch_size: 2 new_length: 8 } }\n"
        + layer(
            "Convolution3D",
            "convolution3d_param { num_output: 4 kernel_size: 3 kernel_depth: 1 pad: 1 }",
            "c",
        )
        + layer("Pooling3D", f"pooling3d_param {{ {window} }}", "p", "c")
        + layer("Deconvolution3D", f"convolution3d_param {{ num_output: 2 {window} }}", "up", "p")
        + layer("VoxelSoftmaxLoss", "", "loss", "up")
    )
    # Its windows have three axes, so that frames are no channels.
    graph = read(text)
    assert outputs(graph)["data"] == (2, 8, 12, 12, 3)
    shapes = outputs(graph)
    assert (shapes["p"], shapes["up"]) == ((2, 4, 3, 3, 4), (2, 8, 12, 12, 2))
    assert params(graph) == {"c": 9 * 3 * 4 + 4, "up": 2 * 4 * 4 * 4 * 2 + 2}
    (fault,) = faults(text, input=(("data", (2, 3, 12, 12)),))
    assert fault == 'layer "c": its input must be N x C x L x H x W, got 2x3x12x12'


def test_frames_may_be_channels(faults: Faults) -> None:
    text = (
        'layer { name: "d" type: "VideoData" top: "data" transform_param { crop_size: 12 }\n'
        "  video_data_param { batch_size: 2 new_length: 8 } }\n"
    ) + layer("ReLU")
    assert faults(text) == [
        'layer "d": it does not say how large "data" is: give it with --input data=2xCxHxW'
    ]


def test_video_of_no_length_is_asked_for(faults: Faults) -> None:
    text = """
    layers { name: "d" type: VIDEO_SEGMENTATION_DATA top: "data" top: "truth"
      image_data_param { batch_size: 1 crop_size: 12 } }
    layers { name: "r" type: RELU bottom: "data" top: "r" }
    """
    (fault,) = faults(text)
    assert fault.endswith("give it with --input data=1xCxHxW")


def test_types_that_are_not_understood(read: Read, faults: Faults) -> None:
    text = (
        IMAGE
        + layer("Python", 'python_param { module: "own" layer: "Mine" }', "mine")
        + layer("Strange", "", "strange", "mine")
        + layer("InnerProduct", "inner_product_param { num_output: 5 }", "fc", "strange")
    )
    (fault,) = faults(text)
    assert fault == (
        "types of layers that are not understood: Python own.Mine (mine), Strange (strange); "
        "--unknown=zero takes them as costing nothing"
    )
    graph = read(text, unknown="zero")
    assert outputs(graph)["strange"] == (2, 8, 9, 9)
    assert params(graph) == {"fc": 8 * 9 * 9 * 5 + 5}


# What is wrong with a file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        (b"\x00\x01\x02", "it is binary, perhaps a .caffemodel"),
        (b"\x0a\x07\x89PNG\x1a", "it is binary"),
        ('{"name": "x"}', "it is no prototxt, but looks like JSON"),
        ("<html>", "it is no prototxt, but looks like XML or HTML"),
        ('net: "a.prototxt" base_lr: 0.1', "it is a solver, not a net: name the file in its `net`"),
        ('base_lr: 0.1 lr_policy: "step"', "it is a solver, not a net"),
        ('name: "x"', "it has no layers"),
        ('item { name: "label" }', "it has no layers"),
        ("def f():\n  return 1", "it is no prototxt: line 1, column 5"),
        (IMAGE + 'layer { name: "x"', "it is no prototxt: line 2"),
        ("layer { convolution_param { num_output: 3.5 } }", "it is no prototxt: line 1"),
        ("layer { convolution_param { num_output: 99999999999999999999 } }", "it is no prototxt"),
        ("layer {" * 5000, "it is nested too deeply"),
        ("foo {" * 5000, "it is nested too deeply"),
        ("layer { }\n" * 100_001, "it has 100,001 layers"),
        (IMAGE + "layer { } layers { }", "it has both `layer` and `layers`"),
        (
            IMAGE + layer("ReLU", "include { phase: TEST }"),
            "no layer reads its inputs in the train",
        ),
    ],
)
def test_files_that_are_no_nets(faults: Faults, text: str | bytes, said: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layer { name: 'x' bottom: 'data' }", 'key "type": it must be given'),
        (layer("ReLU", bottom="y"), "if it is an input, give it with --input y=NxCxHxW"),
        (layer("ReLU", bottom="dato"), "no layer gives its bottom \"dato\" (did you mean 'data'?)"),
        (layer("ReLU", bottom="z") + layer("ReLU", name="z"), 'only later, by layer "z"'),
        (layer("ReLU") + layer("ReLU"), "another layer's too"),
        (layer("Convolution"), 'key "num_output": it must be given'),
        (layer("Convolution", "convolution_param { num_output: 4 }"), 'key "kernel_size"'),
        (layer("Pooling", "pooling_param { kernel_size: 12 }"), "a window of 12 is larger"),
        (layer("Pooling", "pooling_param { kernel_size: 2 pad: 2 }"), 'key "pad"'),
        (layer("InnerProduct", "inner_product_param { num_output: 0 }"), "got 0"),
        (layer("InnerProduct", "inner_product_param { num_output: 2 axis: 4 }"), "no axis 4"),
        (layer("Eltwise", bottom="data y") + "", 'no layer gives its bottom "y"'),
        (layer("Reshape", "reshape_param { shape { dim: 5 dim: -1 } }"), "cannot become 5x-1"),
        (layer("Slice", 'top: "y" slice_param { axis: 2 }'), "9 does not divide into 2 tops"),
        (layer("Permute", "permute_param { order: 1 order: 1 }"), "[1, 1] is no order"),
        (layer("Dropout", "dropout_param { dropout_ratio: 1.5 }"), "got 1.5"),
        (layer("LSTM"), 'key "num_output"'),
        (layer("Crop"), "it needs 2 bottoms, and has 1"),
    ],
)
def test_layers_that_do_not_fit(faults: Faults, text: str, said: str) -> None:
    (fault,) = faults(IMAGE + text)
    assert 'layer "' in fault
    assert said in fault


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("kernel_size: 11", "a window of 11 is larger than its input of 9"),
        ("kernel_size: 0", "got 0"),
        ("kernel_size: 3 group: 3", "do not divide into 3 groups"),
        ("kernel_size: 3 stride: -1", "got -1"),
        ("kernel_size: 3 pad: 2147483648", "got 2147483648"),
        ("kernel_size: 1 pad: 2147483647", "is too large"),
        ("kernel_h: 3", "are given together"),
        ("kernel_size: 3 kernel_h: 3", "and so is kernel_h or kernel_w"),
    ],
)
def test_convolutions_that_do_not_fit(faults: Faults, field: str, said: str) -> None:
    (fault,) = faults(
        IMAGE + layer("Convolution", f"convolution_param {{ num_output: 4 {field} }}")
    )
    assert said in fault


def test_all_mistakes_come_together_up_to_a_number(faults: Faults) -> None:
    wrong = [layer("Convolution", name=f"c{i}") for i in range(300)]
    behind = layer("ReLU", "", "r", "c0")
    assert len(faults(IMAGE + wrong[0] + wrong[1] + behind)) == 2
    assert len(faults(IMAGE + "".join(wrong))) == 101


def test_names_and_characters_of_all_kinds(read: Read, faults: Faults) -> None:
    latin = (IMAGE + layer("ReLU", name="fünf")).encode("latin-1")
    assert "fünf" in outputs(read(latin))
    assert "a\\nb" in outputs(read(IMAGE + layer("ReLU", name="a\\nb")))
    (fault,) = faults(IMAGE + layer("ReLU", bottom="\\033[1m"))
    assert fault.isprintable()


def test_without_protobuf(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> None:
    real = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("google"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    (fault,) = faults(IMAGE + layer("ReLU"))
    assert fault == 'reading it needs protobuf; install it with: pip install "paleo[caffe]"'


def test_files_that_are_too_large(faults: Faults) -> None:
    text = IMAGE + layer("ReLU") + "# no end\n" * 2**22
    assert faults(text) == ["more than 32 MiB are no description of a net"]


def test_labels_without_their_images_are_asked_for(faults: Faults) -> None:
    text = 'layer { name: "d" type: "Python" top: "data" top: "label" }\n'
    (fault,) = faults(text + layer("ReLU", bottom="label"))
    assert fault.endswith("--input label=NxCxHxW")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "no.prototxt", "No such file")):
        with pytest.raises(paleo.NetSpecError, match=said):
            read_file(path)
