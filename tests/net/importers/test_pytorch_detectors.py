"""Modules in which data decide on sizes: detectors, masks, lists of images.

What is multiplied is counted by hand, for as many regions as the module or `--proposals` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch_import import Net, imported  # noqa: E402

import paleo  # noqa: E402
from paleo.core.errors import NetSpecError  # noqa: E402

nn = torch.nn
Images = list[torch.Tensor]

#: An image of 20 x 20 has 400 places, each with 8 features.
IMAGES = (2, 3, 20, 20)
PLACES = 20 * 20
#: A convolution of 3 x 3 x 3 for each of 8 features of a place.
CONVOLVED = 2 * 27 * 8 * PLACES


def flops(net: paleo.NetSpec, batch: int = 2) -> dict[str, int]:
    """Return the FLOPs forward of each layer that multiplies."""
    products = ("Convolution", "InnerProduct", "MatMul", "Attention")
    layers = paleo.summarize(net, batch_size=batch).layers
    return {layer.name: int(layer.forward_flops) for layer in layers if layer.type_name in products}


def places(m: Any, image: Any) -> Any:
    """Return the features of each place of one image."""
    return m.conv(image.unsqueeze(0))[0].flatten(1).T


def detector(function: Callable[..., Any], **modules: Any) -> Callable[[], Any]:
    """Return what makes a module that looks at each image of a batch by itself."""

    def whole(m: Any, images: Any) -> Any:
        return [function(m, places(m, image)) for image in images]

    return lambda: Net(whole, conv=nn.Conv2d(3, 8, 3, padding=1), fc=nn.Linear(8, 5), **modules)


def picked(m: Any, x: Any) -> Any:
    return m.fc(x[x[:, 0] > 0.5])


def picked_by_indices(m: Any, x: Any) -> Any:
    return m.fc(x[torch.where(x[:, 0] > 0.5)[0]])


def picked_as_a_list(m: Any, x: Any) -> Any:
    return m.fc(x.index_select(0, torch.nonzero(x[:, 0] > 0.5).squeeze(1)))


@pytest.mark.parametrize(
    ("pick", "options", "kept"),
    [
        (picked, {}, 300),
        (picked_by_indices, {"proposals": 7}, 7),
        (picked_as_a_list, {"proposals": 399}, 399),
    ],
)
def test_what_a_mask_picks_is_multiplied_for_as_many_as_said(
    pick: Callable[..., Any], options: dict[str, Any], kept: int
) -> None:
    net = imported(detector(pick), IMAGES, **options)
    assert flops(net) == {"conv": 2 * CONVOLVED, "fc": 2 * 2 * kept * 8 * 5}
    assert flops(net, 5) == {"conv": 5 * CONVOLVED, "fc": 5 * 2 * kept * 8 * 5}
    assert any(
        f"taken to pick {kept} of a sample; --proposals says otherwise" in note
        for note in net.notes
    )


def test_fewer_places_than_are_said_are_all_picked() -> None:
    net = imported(detector(picked), (2, 3, 4, 4))
    assert flops(net)["fc"] == 2 * 2 * 16 * 8 * 5
    assert any("masks are taken to pick all that they may" in note for note in net.notes)


def test_the_best_of_what_a_mask_picks_are_as_many_as_the_module_says() -> None:
    def best(m: Any, x: Any) -> Any:
        above = x[x[:, 0] > 0.5]
        _, order = above[:, 0].topk(min(10, len(above)))
        return m.fc(above[order])

    net = imported(detector(best), IMAGES, proposals=7)
    assert flops(net)["fc"] == 2 * 2 * 10 * 8 * 5
    (note,) = (note for note in net.notes if "pick" in note)
    assert note.startswith("masks are taken to pick all that they may (in index")


class OfAList(nn.Module):  # type: ignore[name-defined]
    """A detector of images in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.fc = nn.Linear(8, 5)

    def forward(self, images: Images, targets: list[dict[str, Any]] | None = None) -> Any:
        assert isinstance(images, list)
        return [self.fc(places(self, image)) for image in images]


def test_a_list_of_images_gets_those_of_the_batch() -> None:
    net = imported(OfAList, IMAGES)
    assert flops(net) == {"conv": 2 * CONVOLVED, "fc": 2 * 2 * PLACES * 8 * 5}


def test_rows_that_data_send_to_one_product_or_another_are_not_bounded() -> None:
    """How many rows each of the products gets is not known: all in all they are 400."""

    def routed(m: Any, x: Any) -> Any:
        out = torch.zeros(len(x), 5)
        for expert, layer in enumerate((m.fc, m.other)):
            rows = torch.where(x.argmax(1) % 2 == expert)[0]
            out[rows] = layer(x[rows])
        return out

    with pytest.raises(NetSpecError, match=r"aten.index_put.*py, line .*put back among all"):
        imported(detector(routed, other=nn.Linear(8, 5)), IMAGES)


def test_a_loop_over_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paleo.net.importers.pytorch.bounded._MOST", 20)

    def halved(m: Any, x: Any) -> Any:
        while (x > 1).any():
            x = x / 2
        return m.fc(x)

    def endless(m: Any, x: Any) -> Any:
        while len(x):
            x = x[x[:, 0] > 0.5]
        return m.fc(x)

    for function in (halved, endless):
        with pytest.raises(NetSpecError, match="branches on data, which an export cannot follow"):
            imported(detector(function), IMAGES)


@torch.library.custom_op("paleo_tests::pick", mutates_args=())
def chosen(x: torch.Tensor) -> torch.Tensor:
    """Return some of the rows, as a library's own kernel would."""
    return x[x[:, 0] > 0.5]


@chosen.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.shape[1])


@pytest.mark.parametrize(("said", "kept"), [(None, 300), (40, 40)])
def test_what_an_unknown_operator_picks_is_multiplied_for_as_many_as_said(
    said: int | None, kept: int
) -> None:
    """It is refused by name; where it may cost nothing, what reads it costs what it costs."""
    make = detector(lambda m, x: m.fc(chosen(x)))
    with pytest.raises(NetSpecError, match=r"operator paleo_tests.pick is not understood"):
        imported(make, IMAGES)
    net = imported(make, IMAGES, unknown="zero", proposals=said)
    assert flops(net)["fc"] == 2 * 2 * kept * 8 * 5
    assert any(f"give {kept} of a sample" in note for note in net.notes)


def test_masks_that_are_written_through() -> None:
    """Neither a mask's zeros nor its rows change how many rows are multiplied."""

    def masked(m: Any, x: Any) -> Any:
        y = m.wide(x)
        y[y > 1] = 0
        rows = x[:, 0] > 0.5
        y[rows] = x[rows]
        return m.fc(y)

    net = imported(detector(masked, wide=nn.Linear(8, 8)), IMAGES)
    assert flops(net) == {
        "conv": 2 * CONVOLVED,
        "wide": 2 * 2 * PLACES * 8 * 8,
        "fc": 2 * 2 * PLACES * 8 * 5,
    }


def test_overlaps_that_a_loop_finds_take_every_turn() -> None:
    """Of 6 boxes each turn drops at least one: at most 6 are left to multiply."""

    def suppressed(m: Any, x: Any) -> Any:
        order, kept = x[:, 4].argsort(descending=True), []
        while len(order):
            kept.append(order[0])
            rest = order[1:]
            order = rest[(x[rest, :2] - x[order[0], :2]).abs().sum(1) > 0.5]
        return m.fc(x[torch.stack(kept)])

    net = imported(detector(suppressed), (2, 3, 2, 3))
    assert flops(net)["fc"] == 2 * 2 * 6 * 8 * 5


class Detr(nn.Module):  # type: ignore[name-defined]
    """A detector whose boxes are those of learnt queries (Carion et al., 2020), as published."""

    def __init__(self, width: int = 16, heads: int = 2, queries: int = 6) -> None:
        super().__init__()
        self.backbone = nn.Conv2d(3, 32, 4, stride=4)
        self.conv = nn.Conv2d(32, width, 1)
        self.transformer = nn.Transformer(width, heads, 1, 1, 24)
        self.classes = nn.Linear(width, 5)
        self.boxes = nn.Linear(width, 4)
        self.queries = nn.Parameter(torch.rand(queries, width))
        self.rows = nn.Parameter(torch.rand(50, width // 2))
        self.columns = nn.Parameter(torch.rand(50, width // 2))

    def forward(self, images: Any) -> Any:
        x = self.conv(self.backbone(images))
        height, width = x.shape[-2:]
        columns = self.columns[:width].unsqueeze(0).repeat(height, 1, 1)
        rows = self.rows[:height].unsqueeze(1).repeat(1, width, 1)
        positions = torch.cat([columns, rows], -1).flatten(0, 1).unsqueeze(1)
        queries = self.queries.unsqueeze(1).expand(-1, len(images), -1)
        y = self.transformer(positions + 0.1 * x.flatten(2).permute(2, 0, 1), queries)
        return self.classes(y), self.boxes(y).sigmoid()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_detector_of_learnt_queries() -> None:
    """20 x 24 pixels are 5 x 6 places S; there are 6 queries Q; all are D = 16 wide."""
    net = imported(Detr, (2, 3, 20, 24))
    s, q, d, f = 5 * 6, 6, 16, 24
    patches = 2 * s * (4 * 4 * 3 * 32 + 32 * d)
    encoder = 2 * s * 4 * d * d + 2 * 2 * s * s * d + 2 * s * 2 * d * f
    own = 2 * q * 4 * d * d + 2 * 2 * q * q * d
    across = 2 * (2 * q + 2 * s) * d * d + 2 * 2 * q * s * d
    decoder = own + across + 2 * q * 2 * d * f
    heads = 2 * q * d * (5 + 4)
    assert sum(flops(net).values()) == 2 * (patches + encoder + decoder + heads)
    assert paleo.summarize(net).num_params == sum(p.numel() for p in Detr().parameters())


class DetrOfOne(Detr):
    """As its authors show it on a page: queries for one image, and no other number of them."""

    def forward(self, images: Any) -> Any:
        x = self.conv(self.backbone(images))
        return self.classes(self.transformer(x.flatten(2).permute(2, 0, 1), self.queries[:, None]))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_module_that_takes_one_image_alone() -> None:
    """The heads' FLOPs: 6 queries of 16 features, 5 classes."""
    net = imported(DetrOfOne, (1, 3, 20, 24))
    assert flops(net, 1)["classes"] == 2 * 6 * 16 * 5
    assert flops(net, 3)["classes"] == 3 * 2 * 6 * 16 * 5
    assert "each sample is read by itself" in net.notes[0]


# ---- torchvision's operators ---------------------------------------------------------------------


@pytest.fixture
def vision() -> Any:
    """Return torchvision, where it is installed."""
    return pytest.importorskip("torchvision")


def pooled(vision: Any, kept: int | None) -> Callable[..., Any]:
    """Return a detector that pools the boxes which overlap no better one, or the best of them."""

    def function(m: Any, images: Any) -> Any:
        features = m.conv(images)
        boxes, scores = features[0, :4].flatten(1).T, features[0, 4].flatten()
        best = vision.ops.nms(boxes, scores, 0.5)[:kept]
        regions = vision.ops.roi_align(features, [boxes[best]], (2, 2), sampling_ratio=1)
        return m.fc(regions.flatten(1))

    return function


@pytest.mark.parametrize(
    ("own", "said", "kept", "note"),
    [
        (None, None, 300, "nms is taken to keep 300 boxes of an image; --proposals says otherwise"),
        (50, None, 50, "nms is taken to keep 50 boxes of an image, as the net says"),
        (50, 20, 20, "nms is taken to keep 20 boxes of an image; --proposals says otherwise"),
        (None, 350, 350, "nms is taken to keep 350 boxes of an image; --proposals says otherwise"),
    ],
)
def test_boxes_that_overlap_no_better_one(
    vision: Any, own: int | None, said: int | None, kept: int, note: str
) -> None:
    def make() -> Any:
        modules = {"conv": nn.Conv2d(3, 8, 3, padding=1), "fc": nn.Linear(8 * 2 * 2, 5)}
        return Net(pooled(vision, own), **modules)

    net = imported(make, (1, *IMAGES[1:]), proposals=said)
    assert flops(net, 1) == {"conv": CONVOLVED, "fc": 2 * kept * 32 * 5}
    assert note in net.notes
    (pooling,) = (layer for layer in net.layers if layer.layer.type_name == "RegionPooling")
    (node,) = (node for node in paleo.build(net).nodes if node.name == pooling.name)
    assert node.output == (1, kept, 2, 2, 8)


def faster_rcnn(vision: Any) -> Any:
    """Return torchvision's Faster R-CNN of a backbone of one convolution, for 64 x 64 pixels."""
    backbone = nn.Conv2d(3, 8, 8, stride=8)
    backbone.out_channels = 8
    detection = vision.models.detection
    anchors = detection.anchor_utils.AnchorGenerator(((16, 32),), ((1.0,),))
    pool = vision.ops.MultiScaleRoIAlign(["0"], 3, 2)
    return detection.FasterRCNN(
        backbone, 4, min_size=64, max_size=64, rpn_anchor_generator=anchors, box_roi_pool=pool,
        rpn_pre_nms_top_n_test=60, rpn_post_nms_top_n_test=40, box_detections_per_img=10,
    )  # fmt: skip


@pytest.mark.parametrize(("said", "kept"), [(None, 40), (25, 25)])
def test_a_detector_of_torchvision(vision: Any, said: int | None, kept: int) -> None:
    """8 x 8 places, 2 anchors at each; the heads of 3 x 3 x 8 features have a width of 1024."""
    net = imported(lambda: faster_rcnn(vision), (3, 3, 64, 64), phase="test", proposals=said)
    s, c, hidden = 8 * 8, 8, 1024
    image = 2 * s * (8 * 8 * 3 * c + 9 * c * c + c * 2 + c * 2 * 4)
    region = 2 * (9 * c * hidden + hidden * hidden + hidden * (4 + 4 * 4))
    assert sum(flops(net, 3).values()) == 3 * (image + kept * region)
    expected = sum(p.numel() for p in faster_rcnn(vision).parameters())
    assert paleo.summarize(net).num_params == expected


def test_a_detector_that_trains_needs_targets(vision: Any) -> None:
    with pytest.raises(NetSpecError, match="--phase=test"):
        imported(lambda: faster_rcnn(vision), (1, 3, 64, 64))


def test_a_deformable_convolution(vision: Any) -> None:
    """Offsets are of a convolution of its own; 9 taps of 8 channels are read for each output."""

    def deformed(m: Any, x: Any) -> Any:
        y = m.conv(x)
        return m.deformed(y, m.offsets(y))

    def make() -> Any:
        return Net(
            deformed,
            conv=nn.Conv2d(3, 8, 3, padding=1),
            offsets=nn.Conv2d(8, 18, 1),
            deformed=vision.ops.DeformConv2d(8, 6, 3, padding=1),
        )

    net = imported(make, IMAGES)
    assert flops(net, 1) == {
        "conv": CONVOLVED,
        "offsets": 2 * 8 * 18 * PLACES,
        "deformed": 2 * 72 * 6 * PLACES,
    }
    assert paleo.summarize(net).num_params == (27 * 8 + 8) + (8 * 18 + 18) + (72 * 6 + 6)
