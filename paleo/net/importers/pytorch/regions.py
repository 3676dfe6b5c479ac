"""Operators of detectors: which boxes are kept, what is picked by data, and regions of images.

See `operators.py`, whose table these join, and `bounded.py`, which says how many there are.
torchvision's pooling over the levels of a pyramid is one operator here: each region is in one of
the levels, which only data say.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from paleo.net.importers.builder.layout import Windows, symmetric
from paleo.net.importers.pytorch.operators import Call, Shape, elementwise, operator, spatial

torch: Any = importlib.import_module("torch")

#: At most so many boxes are compared with each other: of Faster R-CNN's candidates, those of the
#: best scores (RPN_PRE_NMS_TOP_N of py-faster-rcnn's configuration, in testing).
_COMPARED = 6000

#: The height and width of a region that the fifth of a pyramid's levels stands for (Lin et al.,
#: 2017, equation 1).
_REGION = 224

_LIBRARY: Any = torch.library.Library("paleo", "FRAGMENT")
_LIBRARY.define("pyramid_align(Tensor[] images, Tensor rois, int[] size, int samples) -> Tensor")


def _pyramid_align(images: Sequence[Any], rois: Any, size: Sequence[int], samples: int) -> Any:
    return images[0].new_empty((len(rois), images[0].shape[1], *size))


_LIBRARY.impl("pyramid_align", _pyramid_align, "CompositeExplicitAutograd")


def multiscale_roi_align(
    x_filtered: list[Any],
    boxes: list[Any],
    output_size: Any,
    sampling_ratio: int,
    scales: Any,
    mapper: Any,
) -> Any:
    """Return what torchvision's function of this name does, as one operator of a graph."""
    poolers: Any = importlib.import_module("torchvision.ops.poolers")
    rois = poolers._convert_to_roi_format(boxes)
    size = spatial(output_size, 2)
    return torch.ops.paleo.pyramid_align(list(x_filtered), rois, size, sampling_ratio)


def paste_masks_in_image(masks: Any, boxes: Any, img_shape: Any, padding: int = 1) -> Any:
    """Return each mask brought to the image's size: none is larger."""
    sizes = [int(size) for size in img_shape]
    return torch.nn.functional.interpolate(masks, size=sizes, mode="bilinear")


def heatmaps_to_keypoints(maps: Any, rois: Any) -> Any:
    """Return where each keypoint is, K x keypoints x 3, of regions of the usual size."""
    wide = torch.nn.functional.interpolate(maps, size=(_REGION, _REGION), mode="bicubic")
    scores, places = wide.flatten(2).max(-1)
    places = torch.stack([places, places, torch.ones_like(places)], -1)
    return places + rois[:, :3].unsqueeze(1), scores


#: What takes the place of a function of torchvision while a module is exported, since that loops
#: over what only data say: its module, its name, what stands for it, and what is to be said then.
STAND_INS = (
    ("torchvision.ops.poolers", "_multiscale_roi_align", multiscale_roi_align, ""),
    (
        "torchvision.models.detection.transform",
        "paste_masks_in_image",
        paste_masks_in_image,
        "each mask is brought to the size of the whole image",
    ),
    (
        "torchvision.models.detection.roi_heads",
        "heatmaps_to_keypoints",
        heatmaps_to_keypoints,
        f"keypoints are looked for in regions of {_REGION}x{_REGION}",
    ),
)

# ---- Which are kept ------------------------------------------------------------------------------


@operator("torchvision.nms")
def _suppression(call: Call) -> Any:
    boxes, scores = call["dets"], call["scores"]
    count = boxes.shape[0]
    y = call.builder.proposals(
        call.name,
        [boxes, scores],
        call.shape[0],
        num_values=1,
        num_compared=max(min(count, _COMPARED), call.shape[0]),
    )
    return call.builder.squeeze(call.part("squeeze"), y, [1])


def first_of_all(call: Call, x: Any, count: int) -> Any:
    """Return as many of the elements of a tensor as a mask picks, in one row."""
    row = call.builder.reshape(call.part("row"), x, (math.prod(x.shape),))
    if count > row.shape[0]:  # of a mixture, some of them several times
        return call.builder.rearrange(call.part("several"), row, (count,))
    return call.builder.slice(call.part("first"), row, 0, 0, count)


@operator("nonzero", "argwhere")
def _nonzero(call: Call) -> Any:
    count, rank = call.shape
    y = first_of_all(call, call.builder.rearrange(call.name, call.first), count)
    y = call.builder.unsqueeze(call.part("unsqueeze"), y, [1])
    return call.builder.expand(call.part("expand"), y, (count, rank))


@operator("nonzero_numpy")
def places(call: Call) -> Any:
    """Return the indices along each axis of the elements that a mask picks."""
    y = first_of_all(call, call.builder.rearrange(call.name, call.first), call.shape[0])
    return (y,) * len(call.shapes)


@operator("masked_select")
def _masked_select(call: Call) -> Any:
    whole = elementwise(call, call.part("where"), "where", call.leading(2))
    return first_of_all(call, whole, call.shape[0])


@operator("_unique2")
def _unique(call: Call) -> Any:
    x = call.first
    y = call.builder.rearrange(call.part("sort"), x)
    found = first_of_all(call, y, call.shape[0])
    return found, y, found


# ---- Regions -------------------------------------------------------------------------------------


def _pooled(call: Call, images: Sequence[Any], size: Sequence[int], mode: str, **keys: Any) -> Any:
    return call.builder.region_pooling(call.name, images, call["rois"], size, mode, **keys)


def _bins(call: Call) -> Shape:
    return call["pooled_height"], call["pooled_width"]


def _samples(call: Call) -> int | None:
    """Return the samples along each side of a bin; None where they follow from a region's size."""
    ratio = call.get("sampling_ratio", -1)
    return ratio if ratio > 0 else None


@operator("torchvision.roi_align", "paleo.pyramid_align")
def _roi_align(call: Call) -> Any:
    if call.operator == "pyramid_align":
        samples = call["samples"] if call["samples"] > 0 else None
        return _pooled(call, call["images"], call["size"], "align", samples=samples)
    return _pooled(call, [call["input"]], _bins(call), "align", samples=_samples(call))


@operator("torchvision.roi_pool")
def _roi_pool(call: Call) -> Any:
    return _pooled(call, [call["input"]], _bins(call), "maximum"), None


@operator("torchvision.ps_roi_align", "torchvision.ps_roi_pool")
def _position_sensitive(call: Call) -> Any:
    mode = "align" if call.operator.endswith("align") else "average"
    samples = _samples(call) if mode == "align" else None
    keys = {"samples": samples, "position_sensitive": True}
    return _pooled(call, [call["input"]], _bins(call), mode, **keys), None


@operator("torchvision.deform_conv2d")
def _deformable(call: Call) -> Any:
    """Return a product with what is read at places that are computed, for each tap and channel."""
    b, x, weight = call.builder, call["input"], call["weight"]
    n, _, height, width = call.shape
    outputs, seen, *taps = weight.shape
    groups, each = x.shape[1] // seen, math.prod(taps)
    places = b.reduce(call.part("places"), "mean", call["offset"], [1], True)
    columns = b.resize(call.part("sample"), x, (*x.shape[:2], height, width), "linear")
    columns = b.unsqueeze(call.part("unsqueeze"), columns, [2])
    columns = b.expand(call.part("taps"), columns, (n, x.shape[1], each, height, width))
    columns = b.reshape(call.part("columns"), columns, (n, x.shape[1] * each, height, width))
    values = [columns, places]
    if call["use_mask"]:
        values.append(b.reduce(call.part("mask"), "mean", call["mask"], [1], True))
    columns = elementwise(call, call.part("weigh"), "product", values)
    weight = b.reshape(call.part("weight"), weight, (outputs, seen * each, 1, 1))
    windows = Windows([1, 1], symmetric([0, 0]), None, groups)
    return b.convolution(call.name, columns, weight, call.get("bias"), windows=windows)
