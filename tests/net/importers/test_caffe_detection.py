"""Caffe's detectors: regions proposed, sampled and pooled, and how many of them there are."""

from __future__ import annotations

import pytest
from caffe_files import (
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

INFO = 'input: "im_info" input_shape { dim: 1 dim: 3 }\n'
PYTHON = 'python_param {{ module: "{}" layer: "{}" param_str: "{}" }}'


def convolution(name: str, bottom: str, outputs: int, size: int = 1) -> str:
    body = f"num_output: {outputs} kernel_size: {size} pad: {size // 2}"
    return layer("Convolution", f"convolution_param {{ {body} }}", name, bottom)


def product(name: str, bottom: str, outputs: int) -> str:
    return layer("InnerProduct", f"inner_product_param {{ num_output: {outputs} }}", name, bottom)


def scores() -> str:
    """Return what gives each of 9 boxes of a place its score, in two shapes."""

    def reshape(name: str, bottom: str, channels: int) -> str:
        body = f"shape {{ dim: 0 dim: {channels} dim: -1 dim: 0 }}"
        return layer("Reshape", f"reshape_param {{ {body} }}", name, bottom)

    return (
        convolution("rpn_cls_score", "data", 18)
        + convolution("rpn_bbox_pred", "data", 36)
        + reshape("rpn_cls_score_reshape", "rpn_cls_score", 2)
        + layer("Softmax", "", "rpn_cls_prob", "rpn_cls_score_reshape")
        + reshape("rpn_cls_prob_reshape", "rpn_cls_prob", 18)
    )


def proposal(name: str = "rois") -> str:
    body = PYTHON.format("rpn.proposal_layer", "ProposalLayer", "'feat_stride': 16")
    return layer("Python", body, name, "rpn_cls_prob_reshape rpn_bbox_pred im_info")


def head(rois: str = "rois") -> str:
    pool = "roi_pooling_param { pooled_w: 7 pooled_h: 6 spatial_scale: 0.0625 }"
    return (
        layer("ROIPooling", pool, "pool5", f"data {rois}")
        + product("fc6", "pool5", 10)
        + product("cls_score", "fc6", 21)
        + product("bbox_pred", "fc6", 84)
    )


def test_faster_rcnn_in_testing(read: Read, notes: Notes) -> None:
    text = (
        data(1, 8, 14, 20) + INFO + scores() + proposal()
        + head() + layer("Softmax", "", "cls_prob", "cls_score")
    )  # fmt: skip
    graph = read(text, phase="test")
    shapes = outputs(graph)
    # 14 x 20 places of 9 boxes; all 2520 are compared, and 300 are kept.
    assert shapes["rpn_cls_score_reshape"] == (1, 2, 126, 20)
    assert (shapes["rois"], shapes["pool5"]) == ((1, 300, 5), (1, 300, 6, 7, 8))
    assert (shapes["cls_prob"], shapes["bbox_pred"]) == ((1, 300, 21), (1, 300, 84))
    assert params(graph)["fc6"] == 6 * 7 * 8 * 10 + 10
    places = 14 * 20 * 8 * (18 + 36)
    rows = 300 * (6 * 7 * 8 * 10 + 10 * (21 + 84))
    assert multiply_adds(graph) == places + rows
    said = "rois is taken to give 300 regions of an image: --proposals says otherwise"
    assert notes(text, phase="test") == (said,)
    assert outputs(read(text, proposals=7))["cls_score"] == (1, 7, 21)


DATA = layer(
    "Python",
    'top: "im_info" top: "gt_boxes" '
    + PYTHON.format("roi_data_layer.layer", "RoIDataLayer", "'num_classes': 21"),
    "data",
    "",
)


def test_faster_rcnn_in_training(read: Read, notes: Notes) -> None:
    tops = 'top: "rpn_bbox_targets" top: "rpn_inside" top: "rpn_outside"'
    anchors = PYTHON.format("rpn.anchor_target_layer", "AnchorTargetLayer", "'feat_stride': 16")
    sampled = 'top: "labels" top: "bbox_targets" top: "inside" top: "outside"'
    targets = PYTHON.format("rpn.proposal_target_layer", "ProposalTargetLayer", "'num_classes': 21")
    text = (
        DATA.replace('name: "data"', 'name: "input-data"')
        + scores()
        + layer("Python", f"{tops} {anchors}", "rpn_labels", "rpn_cls_score gt_boxes im_info data")
        + layer(
            "SoftmaxWithLoss",
            "loss_param { ignore_label: -1 }",
            "rpn_loss_cls",
            "rpn_cls_score_reshape rpn_labels",
        )
        + layer(
            "SmoothL1Loss",
            "",
            "rpn_loss_bbox",
            "rpn_bbox_pred rpn_bbox_targets rpn_inside rpn_outside",
        )
        + proposal("rpn_rois")
        + layer("Python", f"{sampled} {targets}", "rois", "rpn_rois gt_boxes")
        + head()
        + layer("SoftmaxWithLoss", "", "loss_cls", "cls_score labels")
        + layer("SmoothL1Loss", "", "loss_bbox", "bbox_pred bbox_targets inside outside")
    )
    graph = read(text, input=(("data", (2, 8, 14, 20)),))
    shapes = outputs(graph)
    # Of 2000 regions of an image, 128 are sampled.
    assert (shapes["rpn_rois"], shapes["rois"]) == ((2, 2000, 5), (2, 128, 5))
    assert shapes["bbox_pred"] == (2, 128, 84)
    assert len(notes(text, input=(("data", (2, 8, 14, 20)),))) == 2
    # Their images are not said.
    assert outputs(read(text))["data"] == (1, 600, 1000, 3)
    assert notes(text)[0].startswith("data is taken as 1x3x600x1000, the largest of ")


def test_regions_that_are_fed(read: Read, faults: Faults, notes: Notes) -> None:
    rois = 'input: "rois" input_shape {{ dim: {} dim: 5 }}\n'
    deploy = data(1, 8, 14, 20) + rois.format(1) + head()
    # One row is a place held for those of an image.
    graph = read(deploy)
    assert outputs(graph)["bbox_pred"] == (1, 300, 84)
    assert notes(deploy) == (
        "rois is taken as 300 regions of an image: --input rois=300x5 says otherwise",
    )
    fifty = (("rois", (50, 5)),)
    assert outputs(read(deploy, input=fifty))["bbox_pred"] == (1, 50, 84)
    assert notes(deploy, input=fifty) == ()
    two = data(2, 8, 14, 20) + rois.format(64) + head()
    assert outputs(read(two))["fc6"] == (2, 32, 10)
    assert faults(two, input=(("rois", (7, 5)),))[0] == (
        '7 rows of "rois" are not as many for each of 2 images'
    )
    fed = DATA.replace("im_info", "rois").replace("gt_boxes", "labels")
    graph = read(fed + head() + layer("SoftmaxWithLoss", "", "loss", "cls_score labels"))
    # Fast R-CNN's batch: 128 regions of 2 images.
    assert outputs(graph)["cls_score"] == (2, 64, 21)


@pytest.mark.parametrize(
    ("kind", "body", "kept"),
    [
        ("Proposal", "proposal_param { pre_nms_topn: 600 post_nms_topn: 30 }", 30),
        ("Proposal", "proposal_param { feat_stride: 16 }", 300),
        ("SimplerNMS", "simpler_nms_param { pre_nms_topn: 600 post_nms_topn: 40 }", 40),
        ("Python", PYTHON.format("rpn", "ProposalLayer", "{'post_nms_topN': 50, 'x': 1}"), 50),
        ("Python", PYTHON.format("rpn", "ProposalLayer", "feat_stride: 16"), 300),
    ],
)
def test_what_proposes_regions_says_how_many(
    read: Read, notes: Notes, kind: str, body: str, kept: int
) -> None:
    text = (
        data(1, 8, 14, 20) + INFO + scores()
        + layer(kind, f'top: "scores" {body}', "rois", "rpn_cls_prob_reshape rpn_bbox_pred im_info")
        + head()
    )  # fmt: skip
    assert outputs(read(text))["fc6"] == (1, kept, 10)
    assert len(notes(text)) == 1


def test_position_sensitive_regions(read: Read, faults: Faults) -> None:
    pool = "psroi_pooling_param {{ spatial_scale: 0.0625 output_dim: {} group_size: 3 }}"
    whole = "pooling_param { pool: AVE kernel_size: 3 stride: 3 }"
    annotated = 'top: "weights" box_annotator_ohem_param { roi_per_img: 128 }'
    text = (
        data(1, 8, 14, 20) + INFO + scores() + proposal()
        + convolution("rfcn_cls", "data", 3 * 3 * 21)
        + layer("PSROIPooling", pool.format(21), "psroi", "rfcn_cls rois")
        + layer("Pooling", whole, "ave", "psroi")
        + layer("Reshape", "reshape_param { shape { dim: -1 dim: 21 } }", "cls_score", "ave")
        + layer("BoxAnnotatorOHEM", annotated, "labels", "rois cls_score")
        + layer("SoftmaxWithLossOHEM", "", "loss", "cls_score labels")
    )  # fmt: skip
    graph = read(text)
    shapes = outputs(graph)
    assert (shapes["psroi"], shapes["ave"]) == ((1, 300, 3, 3, 21), (1, 300, 1, 1, 21))
    # The loss is of each region: its reshape of the average is no layer.
    assert tuple(map(tuple, graph.nodes[-1].inputs)) == ((1, 300, 1, 1, 21),)
    (fault,) = faults(text.replace("output_dim: 21", "output_dim: 20"))
    assert "189 channels are not 20 for each of 3x3 bins" in fault


def test_aligned_regions(read: Read) -> None:
    body = "roi_align_param { pooled_w: 7 pooled_h: 7 sampling_ratio: 3 }"
    text = data(1, 8, 14, 20) + 'input: "rois" input_shape { dim: 9 dim: 5 }\n'
    graph = read(text + layer("ROIAlign", body, "x", "data rois"))
    assert outputs(graph)["x"] == (1, 9, 7, 7, 8)
    assert (graph.nodes[-1].layer.mode, graph.nodes[-1].layer.samples) == ("align", 3)  # type: ignore[attr-defined]


def test_regions_are_never_priced_as_one(read: Read, faults: Faults, notes: Notes) -> None:
    text = (
        data(1, 8, 14, 20) + INFO + scores()
        + layer("Python", PYTHON.format("own", "MyLayer", ""), "rois", "rpn_cls_prob_reshape")
    )  # fmt: skip
    unknown = "types of layers that are not understood: Python own.MyLayer (rois); "
    assert faults(text + head()) == [f"{unknown}--unknown=zero takes them as costing nothing"]
    graph = read(text + head(), unknown="zero", proposals=20)
    assert outputs(graph)["fc6"] == (1, 20, 10)
    assert notes(text + head(), unknown="zero", proposals=20) == (
        (
            "what gives the regions of pool5 is not understood: taken as 20 of an image; "
            "--proposals says otherwise"
        ),
    )
    # How many a layer gives on that is not understood is not known.
    own = layer("OwnPooling", "", "own", "data rois")
    behind = text + head() + own + layer("ReLU", "", "behind", "own")
    assert faults(behind, unknown="zero") == [
        (
            'layer "own": OwnPooling reads the regions "rois" and is not understood: '
            "how many it gives on is not known"
        )
    ]


def test_a_port_to_another_language_has_the_same_layers(read: Read) -> None:
    text = data(2, 8, 40, 40) + 'input: "im_info" input_shape { dim: 2 dim: 3 }\n' + scores()
    text += layer("FrcnnAnchorTarget", "", "truth", "rpn_cls_score data im_info")
    text += layer("FrcnnProposal", "", "all", "rpn_cls_prob_reshape rpn_bbox_pred im_info")
    text += layer("FrcnnProposalTarget", 'top: "labels"', "rois", "all data")
    shapes = outputs(read(text + head()))
    # 128 of the regions of each image, as py-faster-rcnn samples them.
    assert shapes["fc6"] == (2, 128, 10)


def test_masks_of_regions(read: Read, faults: Faults) -> None:
    def masks(places: int) -> str:
        return (
            data(1, 8, 14, 20)
            + INFO
            + scores()
            + proposal()
            + head()
            + product("mask", "fc6", places)
            + layer("Python", PYTHON.format("own", "MaskLayer", ""), "square", "mask")
            + layer("MaskResize", "mask_resize_param { output_height: 6 output_width: 7 }",
                    "resized", "square")
            + layer("MaskPooling", "", "masked", "pool5 resized")
            + product("behind", "masked", 3)
            + layer("Python", PYTHON.format("own", "StageBridgeLayer", ""), "moved", "rois behind")
            + layer("ROIPooling", "roi_pooling_param { pooled_w: 2 pooled_h: 2 }", "again",
                    "data moved")
        )  # fmt: skip

    graph = read(masks(25), proposals=20)
    shapes = outputs(graph)
    assert shapes["resized"] == (1, 20, 6, 7, 1)
    # Each region's features, 8 x 6 x 7, times its own mask.
    assert shapes["masked"] == (1, 20, 6, 7, 8)
    assert params(graph)["behind"] == 8 * 6 * 7 * 3 + 3
    assert (shapes["moved"], shapes["again"]) == ((1, 20, 5), (1, 20, 2, 2, 8))
    (said,) = faults(masks(24), proposals=20)
    assert said == 'layer "square": 24 places are no square'
