"""Caffe's layers of detectors with regions: who proposes them, samples them and pools them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isqrt, prod
from typing import Any

from paleo.net.importers.base import PROPOSALS, OperatorError
from paleo.net.importers.builder.layout import Value
from paleo.net.importers.caffe.operators import Call, Result, operator, positive, rank_of

#: Types that read regions, and which of their bottoms has them.
REGIONS: Mapping[str, int] = {
    "roipooling": 1,
    "roialign": 1,
    "roiwarping": 1,
    "psroipooling": 1,
    "psroialign": 1,
    "python.proposaltargetlayer": 0,
    "frcnnproposaltarget": 0,
    "python.stagebridgelayer": 0,
    "boxannotatorohem": 0,
}
#: Of py-faster-rcnn's configuration: RPN_PRE_NMS_TOP_N and RPN_POST_NMS_TOP_N in testing and in
#: training, and BATCH_SIZE, the regions of an image that are then sampled.
_COMPARED, _COMPARED_IN_TRAINING, _KEPT_IN_TRAINING, _SAMPLED = 6000, 12_000, 2000, 128
_SAMPLING = ("python.proposaltargetlayer", "frcnnproposaltarget")
#: Hard examples are found among all regions: none are sampled before.
_ANNOTATING = "boxannotatorohem"


def _said(call: Call, *keys: str) -> int | None:
    """Return the number of the first of some keys, of a message or of a Python layer's text."""
    for key in keys:
        for message in (call.layer.proposal_param, call.layer.simpler_nms_param):
            if key in message.DESCRIPTOR.fields_by_name and message.HasField(key):
                return positive(message, key)
        words = key.replace("_", "_?")
        text = call.layer.python_param.param_str
        if found := re.search(rf"{words}\b['\"]?\s*:\s*(\d+)", text, re.IGNORECASE):
            if not 0 < int(found[1]) <= 10**6:
                raise OperatorError(f"expected a number of regions, got {found[1]}", "param_str")
            return int(found[1])
    return None


def _kept(call: Call, usual: int, *keys: str) -> int:
    """Return how many regions of an image a layer gives, and have the net say so."""
    said = _said(call, *keys)
    if said is not None and call.options.proposals is None:
        call.builder.note(f"{call.name} gives {said} regions of an image, as the file says")
        return said
    kept = call.options.proposals or usual
    call.builder.note(
        f"{call.name} is taken to give {kept} regions of an image: --proposals says otherwise"
    )
    return kept


@operator("Proposal", "SimplerNMS", "Python.ProposalLayer", "FrcnnProposal", needs=2)
def _proposal(call: Call) -> Result:
    scores, boxes = call.bottom(0), call.bottom(1)
    rank_of(boxes, 2)
    sampled = any(kind in call.kinds for kind in _SAMPLING) and _ANNOTATING not in call.kinds
    candidates = max(1, prod(boxes.shape[1:]) // 4)
    usual = _KEPT_IN_TRAINING if sampled else PROPOSALS
    kept = min(candidates, _kept(call, usual, "post_nms_topn", "post_nms_top_n", "max_rois"))
    most = _said(call, "pre_nms_topn", "pre_nms_top_n")
    compared = min(candidates, most or (_COMPARED_IN_TRAINING if sampled else _COMPARED))
    regions = call.builder.proposals(
        call.name, [scores, boxes], kept, num_values=5, num_compared=max(compared, kept)
    )
    score = call.builder.slice(f"{call.name}_scores", regions, 1, 0, 1)
    return [regions, *[score] * (call.num_tops - 1)]


def _rows(call: Call, shape: tuple[int, ...]) -> Value:
    """Return what training compares with, which is there at no cost."""
    return call.builder.constant(shape)


@operator("Python.AnchorTargetLayer", "FrcnnAnchorTarget", needs=1)
def _anchor_target(call: Call) -> Result:
    scores = call.bottom()
    rank_of(scores, 2)
    samples, channels, height, width = scores.shape
    anchors = max(1, channels // 2)
    labels = _rows(call, (samples, 1, anchors * height, width))
    targets = [_rows(call, (samples, 4 * anchors, height, width)) for _ in range(1, call.num_tops)]
    return [labels, *targets]


@operator("Python.ProposalTargetLayer", "FrcnnProposalTarget", needs=1)
def _proposal_target(call: Call) -> Result:
    candidates = call.bottom()
    traced = call.builder.traced
    usual = candidates.shape[0] // traced if _ANNOTATING in call.kinds else _SAMPLED
    kept = _kept(call, usual, "batch_size")
    regions = call.builder.proposals(call.name, [candidates], kept, num_values=5)
    rows, classes = traced * kept, _said(call, "num_classes") or 1
    labels = _rows(call, (rows, 1))
    targets = [_rows(call, (rows, 4 * classes)) for _ in range(2, call.num_tops)]
    return [regions, labels, *targets]


@operator("Python.StageBridgeLayer", needs=1)
def _stage_bridge(call: Call) -> Result:
    """Move each region by what was predicted of it, for another stage."""
    regions = call.bottom()
    rows = regions.shape[0]
    moved = call.builder.proposals(
        call.name, [regions], rows // call.builder.traced, num_values=prod(regions.shape[1:])
    )
    return [moved, *[_rows(call, (rows, 1))] * (call.num_tops - 1)]


@operator("Python.MaskLayer", needs=1)
def _mask(call: Call) -> Result:
    """Give each region's mask its two sides."""
    masks = call.bottom()
    rows, side = masks.shape[0], isqrt(prod(masks.shape[1:]))
    if side * side != prod(masks.shape[1:]):
        raise OperatorError(f"{prod(masks.shape[1:])} places are no square")
    square = call.builder.reshape(call.name, masks, (rows, 1, side, side))
    return [square, *[_rows(call, (rows, 1))] * (call.num_tops - 1)]


@operator("MaskResize")
def _mask_resize(call: Call) -> Result:
    x, param = call.bottom(), call.layer.mask_resize_param
    rank_of(x, 2)
    sizes = positive(param, "output_height"), positive(param, "output_width")
    return call.builder.resize(call.name, x, (*x.shape[:2], *sizes), "linear")


@operator("MaskPooling")
def _mask_pooling(call: Call) -> Result:
    return call.builder.elementwise(call.name, "product", [call.bottom(), call.bottom(1)])


@operator("BoxAnnotatorOHEM", needs=1)
def _annotate(call: Call) -> Result:
    rows = call.bottom().shape[0]
    return [_rows(call, (rows, 1))] * max(1, call.num_tops)


def _regions(call: Call) -> Value:
    """Return the regions that a layer pools, one row for each."""
    regions = call.bottom(1)
    rows = regions.shape[0]
    if regions.batched and 4 <= prod(regions.shape[1:]) <= 7 and len(regions.shape) > 1:
        return call.builder.reshape(call.name, regions, (rows, prod(regions.shape[1:])))
    # What gives them is not understood, and was taken as costing nothing.
    kept = call.options.proposals or PROPOSALS
    call.builder.note(
        f"what gives the regions of {call.name} is not understood: taken as {kept} of an image; "
        "--proposals says otherwise"
    )
    return call.builder.proposals(f"{call.name}_regions", [regions], kept, num_values=5)


@operator("ROIPooling", "ROIAlign", "ROIWarping")
def _roi_pooling(call: Call) -> Result:
    layer, x = call.layer, call.bottom()
    rank_of(x, 2)
    fields = ("roi_align_param", "roi_warping_param", "roi_pooling_param")
    param: Any = getattr(layer, next((f for f in fields if layer.HasField(f)), fields[-1]))
    size = [positive(param, "pooled_h"), positive(param, "pooled_w")]
    samples = max(param.sampling_ratio, param.sample_ratio)
    mode = "maximum" if call.kind == "roipooling" else "align"
    return call.builder.region_pooling(
        call.name,
        [x],
        _regions(call),
        size,
        mode,
        samples=samples if samples > 0 and mode == "align" else None,
        position_sensitive=param.position_sensitive,
    )


@operator("PSROIPooling", "PSROIAlign")
def _position_sensitive(call: Call) -> Result:
    layer, x = call.layer, call.bottom()
    rank_of(x, 2)
    aligned = layer.HasField("psroi_align_param")
    param = layer.psroi_align_param if aligned else layer.psroi_pooling_param
    bins, channels = positive(param, "group_size"), positive(param, "output_dim")
    if x.shape[1] != channels * bins * bins:
        raise OperatorError(
            f"{x.shape[1]} channels are not {channels} for each of {bins}x{bins} bins", "output_dim"
        )
    mode = "align" if call.kind == "psroialign" else "average"
    return call.builder.region_pooling(
        call.name, [x], _regions(call), [bins, bins], mode, position_sensitive=True
    )
