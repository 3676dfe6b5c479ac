"""What each type of Caffe's layers makes of its blobs, and what it has and multiplies.

Blobs are tuples of sizes. Each rule says what `Reshape` of Caffe, or of the fork that has the type,
does; nothing of Paleo's is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

from collected.text_format import Fields

Shape = tuple[int, ...]


class CannotCountError(ValueError):
    """A type, or a use of one, that is not counted here."""


@dataclass
class Layer:
    """A layer of a file, with the shapes of its bottoms."""

    kind: str
    fields: Fields
    bottoms: list[Shape]
    num_tops: int
    count: Counted

    def param(self, *names: str) -> Param:
        """Return one of its parameter messages, the first that it has."""
        found = [self.fields[name][-1] for name in names if name in self.fields]
        return Param(found[0] if found else {})

    def weigh(self, index: int, *shape: int) -> None:
        """Have a parameter, which may be shared by name."""
        specs = self.fields.get("param", [])
        spec = specs[index] if index < len(specs) else ""
        name = spec.get("name", [""])[-1] if isinstance(spec, dict) else spec
        self.count.weights[name or f"#{len(self.count.weights)}"] = prod(shape)


@dataclass
class Param:
    """A parameter message, asked for the last value of a field."""

    fields: Fields

    def __call__(self, name: str, default: Any = None) -> Any:
        values = self.fields.get(name)
        if not values:
            if default is None:
                raise CannotCountError(f"it has no {name}")
            return default
        return values[-1]

    def all(self, name: str) -> list[Any]:
        return self.fields.get(name, [])

    def dims(self, name: str = "shape") -> list[int]:
        return [int(d) for d in self.fields.get(name, [{}])[-1].get("dim", [])]

    def along(self, name: str, rank: int, default: int | None) -> list[int]:
        """Return what a window has along each axis."""
        side = name.removesuffix("_size")
        if rank == 2 and (f"{side}_h" in self.fields or f"{side}_w" in self.fields):
            return [int(self(f"{side}_{s}", default or 0)) for s in "hw"]
        depth = {"kernel_size": "kernel_depth", "stride": "temporal_stride", "pad": "temporal_pad"}
        values = [int(value) for value in self.all(name)] or self.dims(f"{side}_shape")
        if not values and default is None:
            raise CannotCountError(f"it has no {name}")
        values = values or [default or 0]
        sizes = values * rank if len(values) == 1 else values
        if rank == 3 and "kernel_depth" in self.fields:
            sizes[0] = int(self(depth.get(name, "-"), default or 1))
        return sizes


@dataclass
class Counted:
    """What is counted of a net."""

    proposals: int
    images: int
    weights: dict[str, int] = field(default_factory=dict)
    multiply_adds: int = 0


Rule = Callable[[Layer], Sequence[Shape]]
RULES: dict[str, Rule] = {}


def _of(*kinds: str) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return enter


def _axis(x: Shape, axis: int) -> int:
    return axis if axis >= 0 else len(x) + axis


@_of("convolution", "deconvolution", "depthwiseconvolution", "convolutiondepthwise",
     "depthwisedeconvolution", "convolution3d", "deconvolution3d", "ndconvolution",
     "convolutionristretto", "deconvolutionristretto")  # fmt: skip
def _convolution(layer: Layer) -> Sequence[Shape]:
    param = layer.param("convolution3d_param", "convolution_param")
    x = layer.bottoms[0]
    rank, outputs, groups = len(x) - 2, int(param("num_output")), int(param("group", 1))
    if "group" not in param.fields and layer.kind in (
        "depthwiseconvolution",
        "convolutiondepthwise",
    ):
        groups = x[1]
    kernel = param.along("kernel_size", rank, None)
    strides, pads = param.along("stride", rank, 1), param.along("pad", rank, 0)
    holes = param.along(
        "hole" if "hole" in param.fields or "hole_h" in param.fields else "dilation", rank, 1
    )
    layer.weigh(0, x[1] * outputs // groups, *kernel)
    if param("bias_term", True):
        layer.weigh(1, outputs)
    tops = []
    for x in layer.bottoms:
        spans = [hole * (size - 1) + 1 for hole, size in zip(holes, kernel, strict=True)]
        axes = zip(x[2:], spans, strides, pads, strict=True)
        if "deconvolution" in layer.kind:
            sizes = [stride * (size - 1) + span - 2 * pad for size, span, stride, pad in axes]
            places = prod(x[2:])
        else:
            sizes = [(size + 2 * pad - span) // stride + 1 for size, span, stride, pad in axes]
            places = prod(sizes)
        layer.count.multiply_adds += x[0] * places * x[1] * outputs // groups * prod(kernel)
        tops.append((x[0], outputs, *sizes))
    return tops


@_of("innerproduct", "fcristretto")
def _inner_product(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("inner_product_param"), layer.bottoms[0]
    axis, outputs = _axis(x, int(param("axis", 1))), int(param("num_output"))
    layer.weigh(0, prod(x[axis:]), outputs)
    if param("bias_term", True):
        layer.weigh(1, outputs)
    layer.count.multiply_adds += prod(x) * outputs
    return [(*x[:axis], outputs)]


@_of("embed")
def _embed(layer: Layer) -> Sequence[Shape]:
    param = layer.param("embed_param")
    layer.weigh(0, int(param("input_dim")), int(param("num_output")))
    if param("bias_term", True):
        layer.weigh(1, int(param("num_output")))
    return [(*layer.bottoms[0], int(param("num_output")))]


@_of("lstm", "rnn")
def _recurrent(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("lstm_param", "recurrent_param"), layer.bottoms[0]
    hidden, gates = int(param("num_output")), 4 if layer.kind == "lstm" else 1
    steps, samples, inputs = x[0], x[1], prod(x[2:])
    exposed = 0 if not param("expose_hidden", False) else 2 if layer.kind == "lstm" else 1
    layer.weigh(0, gates * hidden, inputs)
    layer.weigh(1, gates * hidden)
    index = 2
    if len(layer.bottoms) > 2 + exposed:
        static = prod(layer.bottoms[2][1:])
        layer.weigh(2, gates * hidden, static)
        layer.count.multiply_adds += samples * gates * hidden * static
        index = 3
    layer.weigh(index, gates * hidden, hidden)
    layer.count.multiply_adds += steps * samples * gates * hidden * (inputs + hidden)
    if layer.kind == "rnn":
        layer.weigh(index + 1, hidden, hidden)
        layer.weigh(index + 2, hidden)
        layer.count.multiply_adds += steps * samples * hidden * hidden
    return [(steps, samples, hidden), *[(1, samples, hidden)] * exposed]


@_of("pooling", "pooling3d", "ndpooling")
def _pooling(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("pooling3d_param", "pooling_param"), layer.bottoms[0]
    rank = len(x) - 2
    if param("global_pooling", False):
        return [(*x[:2], *[1] * rank)] * layer.num_tops
    axes = zip(x[2:], param.along("kernel_size", rank, None), param.along("stride", rank, 1),
               param.along("pad", rank, 0), strict=True)  # fmt: skip
    floor = param("round_mode", "CEIL") in ("FLOOR", 1) or not param("ceil_mode", True)
    sizes = []
    for size, kernel, stride, pad in axes:
        steps = (size + 2 * pad - kernel) / stride
        count = (int(steps // 1) if floor else ceil(steps)) + 1
        if any(param.along("pad", rank, 0)) and (count - 1) * stride >= size + pad:
            count -= 1
        sizes.append(count)
    return [(*x[:2], *sizes)] * layer.num_tops


@_of("spp")
def _pyramid(layer: Layer) -> Sequence[Shape]:
    x = layer.bottoms[0]
    bins = sum(4**level for level in range(int(layer.param("spp_param")("pyramid_height"))))
    return [(x[0], x[1] * bins)]


@_of("roipooling", "roialign", "roiwarping")
def _region_pooling(layer: Layer) -> Sequence[Shape]:
    param = layer.param("roi_align_param", "roi_warping_param", "roi_pooling_param")
    x, regions = layer.bottoms
    return [(regions[0], x[1], int(param("pooled_h")), int(param("pooled_w")))]


@_of("psroipooling", "psroialign")
def _sensitive(layer: Layer) -> Sequence[Shape]:
    param = layer.param("psroi_align_param", "psroi_pooling_param")
    bins = int(param("group_size"))
    return [(layer.bottoms[1][0], int(param("output_dim")), bins, bins)]


@_of("batchnorm", "bn")
def _batch_norm(layer: Layer) -> Sequence[Shape]:
    if layer.kind == "bn" or layer.param("batch_norm_param")("scale_bias", False):
        channels = layer.bottoms[0][1]
        layer.weigh(0, channels)
        layer.weigh(1, channels)
    return layer.bottoms[:1]


@_of("scale", "bias")
def _scale(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param(f"{layer.kind}_param"), layer.bottoms[0]
    axis, count = _axis(x, int(param("axis", 1))), int(param("num_axes", 1))
    shape = x[axis:] if count == -1 else x[axis : axis + count]
    if len(layer.bottoms) > 1:
        shape = layer.bottoms[1]
    else:
        layer.weigh(0, *shape)
    if layer.kind == "scale" and param("bias_term", False):
        layer.weigh(1 if len(layer.bottoms) < 2 else 0, *shape)
    return [x]


@_of("prelu")
def _prelu(layer: Layer) -> Sequence[Shape]:
    layer.weigh(
        0, 1 if layer.param("prelu_param")("channel_shared", False) else layer.bottoms[0][1]
    )
    return layer.bottoms[:1]


@_of("normalize")
def _normalize(layer: Layer) -> Sequence[Shape]:
    if "norm_param" in layer.fields:
        layer.weigh(
            0, 1 if layer.param("norm_param")("channel_shared", True) else layer.bottoms[0][1]
        )
    return layer.bottoms[:1]


@_of("parameter")
def _parameter(layer: Layer) -> Sequence[Shape]:
    shape = tuple(layer.param("parameter_param").dims())
    layer.weigh(0, *shape)
    return [shape]


@_of("concat")
def _concat(layer: Layer) -> Sequence[Shape]:
    param, first = layer.param("concat_param"), layer.bottoms[0]
    if param("per_fla_fuse", False):
        return [(first[0], sum(prod(x[1:]) for x in layer.bottoms), 1, 1)]
    axis = _axis(first, int(param("axis", param("concat_dim", 1))))
    return [(*first[:axis], sum(x[axis] for x in layer.bottoms), *first[axis + 1 :])]


@_of("slice")
def _slice(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("slice_param"), layer.bottoms[0]
    axis = _axis(x, int(param("axis", param("slice_dim", 1))))
    points = [int(point) for point in param.all("slice_point")]
    if not points:
        points = [x[axis] // layer.num_tops * i for i in range(1, layer.num_tops)]
    ends = zip([0, *points], [*points, x[axis]], strict=True)
    return [(*x[:axis], end - begin, *x[axis + 1 :]) for begin, end in ends]


@_of("flatten")
def _flatten(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("flatten_param"), layer.bottoms[0]
    begin, end = _axis(x, int(param("axis", 1))), _axis(x, int(param("end_axis", -1)))
    return [(*x[:begin], prod(x[begin : end + 1]), *x[end + 1 :])]


@_of("reshape")
def _reshape(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("reshape_param"), layer.bottoms[0]
    begin, count = int(param("axis", 0)), int(param("num_axes", -1))
    begin = begin if begin >= 0 else len(x) + begin + 1
    end = len(x) if count == -1 else begin + count
    middle = [x[begin + i] if size == 0 else size for i, size in enumerate(param.dims())]
    shape = [*x[:begin], *middle, *x[end:]]
    left = prod(x) // -prod(shape) if -1 in shape else 0
    return [tuple(left if size == -1 else size for size in shape)]


@_of("permute")
def _permute(layer: Layer) -> Sequence[Shape]:
    x, order = layer.bottoms[0], [int(axis) for axis in layer.param("permute_param").all("order")]
    return [tuple(x[axis] for axis in [*order, *(i for i in range(len(x)) if i not in order)])]


@_of("reorg", "reorganize")
def _reorg(layer: Layer) -> Sequence[Shape]:
    param = layer.param("reorg_param", "reorganize_param")
    stride, (n, c, h, w) = int(param("stride")), layer.bottoms[0]
    if param("reverse", False):
        return [(n, c // stride**2, h * stride, w * stride)]
    return [(n, c * stride**2, h // stride, w // stride)]


@_of("crop")
def _crop(layer: Layer) -> Sequence[Shape]:
    x, reference = layer.bottoms
    axis = _axis(x, int(layer.param("crop_param")("axis", 2)))
    return [(*x[:axis], *reference[axis:])]


@_of("upsample")
def _upsample(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("upsample_param", "upsampling_param"), layer.bottoms[0]
    sizes = []
    for side, whole, size in zip("hw", ("height", "width"), x[2:], strict=True):
        factor = int(param(f"scale_{side}", param("scale", param("stride", 2))))
        grown = size * factor - bool(param(f"pad_out_{side}", False))
        sizes.append(int(param(f"upsample_{side}", param(whole, grown))))
    return [(*x[:2], *sizes)]


@_of("interp")
def _interp(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("interp_param"), layer.bottoms[0]
    if len(layer.bottoms) > 1:
        return [(*x[:2], *layer.bottoms[1][2:])]
    if "height" in param.fields:
        return [(*x[:2], int(param("height")), int(param("width")))]
    shrink, zoom = int(param("shrink_factor", 1)), int(param("zoom_factor", 1))
    pad = int(param("pad_beg", 0)) + int(param("pad_end", 0))
    sizes = [(size + pad - 1) // shrink + 1 for size in x[2:]]
    return [(*x[:2], *(size + (size - 1) * (zoom - 1) for size in sizes))]


@_of("tile")
def _tile(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("tile_param"), layer.bottoms[0]
    axis = _axis(x, int(param("axis", 1)))
    return [(*x[:axis], x[axis] * int(param("tiles")), *x[axis + 1 :])]


@_of("reduction")
def _reduction(layer: Layer) -> Sequence[Shape]:
    x = layer.bottoms[0]
    return [x[: _axis(x, int(layer.param("reduction_param")("axis", 0)))]]


@_of("argmax")
def _arg_max(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("argmax_param"), layer.bottoms[0]
    top = int(param("top_k", 1))
    if "axis" not in param.fields:
        return [(x[0], 1 + bool(param("out_max_val", False)), top)]
    axis = _axis(x, int(param("axis")))
    return [(*x[:axis], top, *x[axis + 1 :])]


@_of("priorbox")
def _prior_box(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("prior_box_param"), layer.bottoms[0]
    ratios = [1.0]
    for ratio in param.all("aspect_ratio"):
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if param("flip", True) else [ratio]
    boxes = len(ratios) * len(param.all("min_size")) + len(param.all("max_size"))
    return [(1, 2, x[2] * x[3] * boxes * 4)]


@_of("proposal", "simplernms", "python.proposallayer", "frcnnproposal")
def _proposal(layer: Layer) -> Sequence[Shape]:
    said = re.search(r"post_nms_topn[^0-9]*(\d+)", str(layer.fields))
    kept = int(said[1]) if said else layer.count.proposals
    rows = layer.bottoms[0][0] * min(kept, prod(layer.bottoms[1][1:]) // 4)
    return [(rows, 5), *[(rows, 1)] * (layer.num_tops - 1)]


@_of("margininnerproduct", "largemargininnerproduct")
def _margin(layer: Layer) -> Sequence[Shape]:
    param = layer.param("margin_inner_product_param", "large_margin_inner_product_param")
    x, outputs = layer.bottoms[0], int(param("num_output"))
    layer.weigh(0, prod(x[1:]), outputs)
    layer.count.multiply_adds += prod(x) * outputs
    return [(x[0], outputs), (1,)]


@_of("centerloss")
def _center_loss(layer: Layer) -> Sequence[Shape]:
    layer.weigh(0, int(layer.param("center_loss_param")("num_output")), prod(layer.bottoms[0][1:]))
    return [(1,)] * layer.num_tops


@_of("denseblock")
def _dense_block(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("denseblock_param"), layer.bottoms[0]
    growth, channels = int(param("growthRate")), x[1]
    for _ in range(int(param("numTransition"))):
        for index, shape in enumerate([(channels,), (channels,), (growth, channels, 3, 3)]):
            layer.weigh(100 + index, *shape)
        layer.count.multiply_adds += prod(x[2:]) * x[0] * growth * channels * 9
        channels += growth
    return [(x[0], channels, *x[2:])]


@_of("correlation")
def _correlation(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("correlation_param"), layer.bottoms[0]
    reach, step = int(param("max_displacement")), int(param("stride_2", 1))
    edge = reach + (int(param("kernel_size")) - 1) // 2 - int(param("pad", 0))
    sizes = [ceil((size - 2 * edge) / int(param("stride_1", 1))) for size in x[2:]]
    return [(x[0], (2 * (reach // step) + 1) ** 2, *sizes)]


@_of("resample", "downsample")
def _resample(layer: Layer) -> Sequence[Shape]:
    x, top = layer.bottoms[0], "top_" if layer.kind == "downsample" else ""
    if len(layer.bottoms) > 1:
        return [(*x[:2], *layer.bottoms[1][2:])]
    param = layer.param(f"{layer.kind}_param")
    return [(*x[:2], int(param(f"{top}height")), int(param(f"{top}width")))]


@_of("spatialtransformer")
def _spatial_transformer(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("st_param"), layer.bottoms[0]
    return [(*x[:2], int(param("output_H", x[2])), int(param("output_W", x[3])))]


@_of("channelnorm")
def _channel_norm(layer: Layer) -> Sequence[Shape]:
    x = layer.bottoms[0]
    return [(x[0], 1, *x[2:])]


@_of("im2col")
def _im2col(layer: Layer) -> Sequence[Shape]:
    param, x = layer.param("convolution_param"), layer.bottoms[0]
    kernels, strides = param.along("kernel_size", 2, None), param.along("stride", 2, 1)
    axes = zip(x[2:], kernels, strides, param.along("pad", 2, 0), strict=True)
    sizes = [(size + 2 * pad - kernel) // stride + 1 for size, kernel, stride, pad in axes]
    return [(x[0], x[1] * prod(kernels), *sizes)]


@_of("transpose")
def _transpose(layer: Layer) -> Sequence[Shape]:
    return [
        tuple(layer.bottoms[0][int(axis)] for axis in layer.param("transpose_param").all("dim"))
    ]


@_of("axpy")
def _axpy(layer: Layer) -> Sequence[Shape]:
    return layer.bottoms[1:2]


@_of("crelu")
def _crelu(layer: Layer) -> Sequence[Shape]:
    x = layer.bottoms[0]
    return [(x[0], 2 * x[1], *x[2:])]


@_of("unpooling")
def _unpooling(layer: Layer) -> Sequence[Shape]:
    size = int(layer.param("unpooling_param")("unpool_size"))
    return [(*layer.bottoms[0][:2], size, size)]


@_of("multistagemeanfield")
def _mean_field(layer: Layer) -> Sequence[Shape]:
    x, param = layer.bottoms[0], layer.param("multi_stage_meanfield_param")
    for i in range(3):
        layer.weigh(i, x[1], x[1])
    layer.count.multiply_adds += int(param("num_iterations", 10)) * 3 * prod(x) * x[1]
    return [x]


@_of("python.proposaltargetlayer", "frcnnproposaltarget")
def _sampled(layer: Layer) -> Sequence[Shape]:
    rows = 128 * layer.count.images
    return [(rows, 5), *[(rows, 1)] * (layer.num_tops - 1)]


@_of("python.stagebridgelayer")
def _stage_bridge(layer: Layer) -> Sequence[Shape]:
    rows = layer.bottoms[0][0]
    return [(rows, 5), *[(rows, 1)] * (layer.num_tops - 1)]


@_of("python.masklayer")
def _mask(layer: Layer) -> Sequence[Shape]:
    rows, places = layer.bottoms[0][0], prod(layer.bottoms[0][1:])
    return [(rows, 1, int(places**0.5), int(places**0.5)), (rows, 1)]


@_of("maskresize")
def _mask_resize(layer: Layer) -> Sequence[Shape]:
    param = layer.param("mask_resize_param")
    size = int(param("output_height")), int(param("output_width"))
    return [(*layer.bottoms[0][:2], *size)]


@_of("python.anchortargetlayer", "frcnnanchortarget", "boxannotatorohem")
def _targets(layer: Layer) -> Sequence[Shape]:
    return [(1,)] * layer.num_tops


@_of("split")
def _split(layer: Layer) -> Sequence[Shape]:
    return layer.bottoms[:1] * layer.num_tops


#: What has no parameters, and one top like its first bottom; or tops that nothing multiplies.
PLAIN = """relu relu6 sigmoid tanh power exp log absval bnll elu threshold dropout softmax eltwise
    lrn mvn reverse shufflechannel channelshuffle swish mish hardswish hswish hsigmoid silu
    flowwarp densecrf maskpooling python.spatialdropoutlayer spatialdropout labelspecificadd
    lrnristretto"""
ENDS = """softmaxwithloss softmaxloss sigmoidcrossentropyloss euclideanloss smoothl1loss hingeloss
    contrastiveloss multinomiallogisticloss infogainloss l1loss accuracy silence hdf5output
    multiboxloss yolodetectionoutput yolov3detectionoutput detectionoutput smoothl1lossohem
    softmaxwithlossohem detectionevaluate tripletloss multilabelaccuracy segaccuracy"""
