"""Caffe's messages, as far as they say what a net computes, and reading their text format.

The messages are Caffe's by name, repetition and default; their numbers are not, which only
binary files would need. They live in a pool and a package of their own, so that an installed
Caffe is not disturbed. What a message here lacks (fillers, sources of data, solvers' settings)
is skipped where a file has it.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any

__all__ = ["MAX_BYTES", "MAX_LAYERS", "FormatError", "decode", "parse", "upgraded"]

#: Larger files and nets are refused before they are parsed, which would take minutes.
MAX_BYTES = 2**25
MAX_LAYERS = 100_000

_PACKAGE = "paleo.caffe"

#: A message a paragraph: its name, then fields as "type name" or "type name=default", parted by
#: commas. "*" makes a field repeated; types with "|" list the names of an enumeration.
_MESSAGES = """
BlobShape: int* dim

NetState: TRAIN|TEST phase=TEST, int level, string* stage

NetStateRule: TRAIN|TEST phase, int min_level, int max_level, string* stage, string* not_stage

ParamSpec: string name, float lr_mult=1, float decay_mult=1

ResizeParameter: int height, int width

TransformationParameter: int crop_size, int crop_h, int crop_w, float* mean_value,
    bool force_color, bool force_gray, ResizeParameter* resize_param

AccuracyParameter: int top_k=1, int axis=1

ArgMaxParameter: bool out_max_val, int top_k=1, int axis

BatchNormParameter: bool use_global_stats, bool scale_bias

BNParameter: bool frozen

BiasParameter: int axis=1, int num_axes=1

ConcatParameter: int axis=1, int concat_dim=1

ConvolutionParameter: int num_output, bool bias_term=true, int* pad, int* kernel_size,
    int* stride, int* dilation, int pad_h, int pad_w, int kernel_h, int kernel_w, int stride_h,
    int stride_w, int group=1, int axis=1, int* hole, int hole_h, int hole_w,
    int kernel_depth, int temporal_pad, int temporal_stride

CropParameter: int axis=2, int* offset

DataParameter: int batch_size, int crop_size, bool force_encoded_color

DropoutParameter: float dropout_ratio=0.5

DummyDataParameter: BlobShape* shape, int* num, int* channels, int* height, int* width

EltwiseParameter: PROD|SUM|MAX operation=SUM, float* coeff

EmbedParameter: int num_output, int input_dim, bool bias_term=true

FlattenParameter: int axis=1, int end_axis=-1

ImageDataParameter: int batch_size=1, int new_height, int new_width, int new_length=1,
    bool is_color=true, int crop_size

InnerProductParameter: int num_output, bool bias_term=true, int axis=1, bool transpose

InputParameter: BlobShape* shape

InterpParameter: int height, int width, int zoom_factor=1, int shrink_factor=1, int pad_beg,
    int pad_end, string interp_type

LRNParameter: int local_size=5, ACROSS_CHANNELS|WITHIN_CHANNEL norm_region=ACROSS_CHANNELS

MemoryDataParameter: int batch_size, int channels, int height, int width, int* dim

MVNParameter: bool normalize_variance=true, bool across_channels

NormalizeParameter: bool across_spatial=true, bool channel_shared=true

ParameterParameter: BlobShape shape

PermuteParameter: int* order

PoolingParameter: MAX|AVE|STOCHASTIC pool=MAX, int* pad, int pad_h, int pad_w,
    int* kernel_size, int kernel_h, int kernel_w, int* stride, int stride_h, int stride_w,
    int* dilation, bool global_pooling, CEIL|FLOOR round_mode=CEIL, bool ceil_mode=true,
    int kernel_depth, int temporal_pad, int temporal_stride

PowerParameter: float power=1, float scale=1, float shift

PReLUParameter: bool channel_shared

PriorBoxParameter: float* min_size, float* max_size, float* aspect_ratio, bool flip=true

PythonParameter: string module, string layer

RecurrentParameter: int num_output, bool expose_hidden

ReductionParameter: NONE|SUM|ASUM|SUMSQ|MEAN operation=SUM, int axis

ReLUParameter: float negative_slope

ReorgParameter: int stride=1, bool reverse

ReshapeParameter: BlobShape shape, int axis, int num_axes=-1

ROIPoolingParameter: int pooled_h, int pooled_w

PSROIPoolingParameter: int output_dim, int group_size

ScaleParameter: int axis=1, int num_axes=1, bool bias_term

ShuffleChannelParameter: int group=1

SliceParameter: int axis=1, int* slice_point, int slice_dim=1

SoftmaxParameter: int axis=1

SPPParameter: int pyramid_height, MAX|AVE|STOCHASTIC pool=MAX

TileParameter: int axis=1, int tiles

UpsampleParameter: int scale, int scale_h, int scale_w, bool pad_out_h, bool pad_out_w,
    int upsample_h, int upsample_w, int height, int width, int stride

V0LayerParameter: string name, string type, int num_output, bool biasterm=true, int pad,
    int kernelsize, int group=1, int stride=1, MAX|AVE|STOCHASTIC pool=MAX,
    float dropout_ratio=0.5, int local_size=5, int batchsize, int cropsize, int new_height,
    int new_width, int concat_dim=1
"""

#: What layers of either format have, besides their parameters.
_SHARED = """
    string name, string* bottom, string* top, NetStateRule* include, NetStateRule* exclude,
    TransformationParameter transform_param"""

#: The parameter messages of a layer whose field is not named like the message.
_FIELDS = {
    "NormalizeParameter": "norm_param",
    "BNParameter": "bn_param",
    "SPPParameter": "spp_param",
    "LRNParameter": "lrn_param",
    "MVNParameter": "mvn_param",
    "PReLUParameter": "prelu_param",
    "ReLUParameter": "relu_param",
    "ROIPoolingParameter": "roi_pooling_param",
    "PSROIPoolingParameter": "psroi_pooling_param",
    "ArgMaxParameter": "argmax_param",
    "DataParameter": "data_param",
}

#: Fields with a message that another field has too.
_MORE_FIELDS = """
    ImageDataParameter video_data_param, ImageDataParameter dense_image_data_param,
    ImageDataParameter window_data_param, DataParameter hdf5_data_param,
    ConvolutionParameter convolution3d_param, PoolingParameter pooling3d_param,
    ROIPoolingParameter roi_align_param,
    ReorgParameter reorganize_param, UpsampleParameter upsampling_param"""

#: No parameters of a layer, by themselves.
_PARTS = (
    "BlobShape",
    "NetState",
    "NetStateRule",
    "ParamSpec",
    "ResizeParameter",
    "TransformationParameter",
    "V0LayerParameter",
)

#: The types of old `layers`.
_V1_TYPES = """
    NONE ABSVAL ACCURACY ARGMAX BNLL CONCAT CONTRASTIVE_LOSS CONVOLUTION DATA DECONVOLUTION
    DROPOUT DUMMY_DATA EUCLIDEAN_LOSS ELTWISE EXP FLATTEN HDF5_DATA HDF5_OUTPUT HINGE_LOSS
    IM2COL IMAGE_DATA INFOGAIN_LOSS INNER_PRODUCT LRN MEMORY_DATA MULTINOMIAL_LOGISTIC_LOSS MVN
    POOLING POWER RELU SIGMOID SIGMOID_CROSS_ENTROPY_LOSS SILENCE SOFTMAX SOFTMAX_LOSS SPLIT
    SLICE TANH WINDOW_DATA THRESHOLD"""

#: Fields of a solver's file tell it from a net's.
_NET = """
    string name, string* input, BlobShape* input_shape, int* input_dim, NetState state,
    LayerParameter* layer, V1LayerParameter* layers, string net, string train_net,
    string* test_net, float base_lr, string lr_policy"""

_TYPES = {"int": 3, "float": 1, "bool": 8, "string": 9}  # int64 and double, to hold any number
_MESSAGE_TYPE, _ENUM_TYPE = 11, 14

#: What a message may quote of the file.
_MOST_QUOTED = 160


class FormatError(ValueError):
    """Text that is no net; the message is one line, without the file."""


def _field_name(message: str) -> str:
    """Return the name that a layer's field has for one of its parameter messages."""
    if message in _FIELDS:
        return _FIELDS[message]
    words = re.findall(r"[A-Z][a-z]+", message.removesuffix("Parameter"))
    return "_".join(word.lower() for word in (*words, "param"))


def _add_field(message: Any, text: str) -> None:
    """Add a field, such as "int* pad" or "bool bias_term=true", to a message's descriptor."""
    kind, _, rest = text.strip().partition(" ")
    name, _, default = rest.partition("=")
    field = message.field.add(name=name, number=len(message.field) + 1)
    field.label = 3 if kind.endswith("*") else 1
    kind = kind.removesuffix("*")
    if default:
        field.default_value = default
    if kind in _TYPES:
        field.type = _TYPES[kind]
    elif "|" in kind:
        enumeration = message.enum_type.add(name=f"{name}_names")
        for number, value in enumerate(kind.split("|")):
            enumeration.value.add(name=value, number=number)
        field.type = _ENUM_TYPE
        field.type_name = f".{_PACKAGE}.{message.name}.{enumeration.name}"
    else:
        field.type = _MESSAGE_TYPE
        field.type_name = f".{_PACKAGE}.{kind}"


@lru_cache(maxsize=4)
def _net_class(more_types: tuple[str, ...]) -> Any:
    """Return the class of a whole net, with further types of old `layers`."""
    pb2 = importlib.import_module("google.protobuf.descriptor_pb2")
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    factory = importlib.import_module("google.protobuf.message_factory")
    file = pb2.FileDescriptorProto(name="paleo_caffe.proto", package=_PACKAGE, syntax="proto2")
    tables = dict(each.split(":", 1) for each in _MESSAGES.strip().split("\n\n"))
    params = [f"{name} {_field_name(name)}" for name in tables if name not in _PARTS]
    layer = ",".join([_SHARED, _MORE_FIELDS, *params])
    types = "|".join((*_V1_TYPES.split(), *more_types))
    tables["LayerParameter"] = f"string type, ParamSpec* param, {layer}"
    tables["V1LayerParameter"] = f"{types} type, string* param, V0LayerParameter layer, {layer}"
    tables["NetParameter"] = _NET
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        for text in fields.split(","):
            _add_field(message, text)
    pool.Add(file)
    return factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.NetParameter"))


def decode(data: bytes) -> str:
    """Return the text of a file; raises FormatError if it is none, or another format's."""
    if not data.strip():
        raise FormatError("it is empty")
    # Tabs, line ends and form feeds are all that a text has of these.
    if re.search(rb"[\x00-\x08\x0e-\x1f]", data):
        raise FormatError(
            "it is binary, perhaps a .caffemodel: give the text that describes the net (.prototxt)"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if text.lstrip()[0] in "{[":
        raise FormatError("it is no prototxt, but looks like JSON")
    if text.lstrip()[0] == "<":
        raise FormatError("it is no prototxt, but looks like XML or HTML")
    return text


def parse(text: str) -> Any:
    """Return the NetParameter that a text describes.

    Raises FormatError if it cannot be read, ImportError if protobuf is not installed.
    """
    text_format = importlib.import_module("google.protobuf.text_format")
    layers = len(re.findall(r"\blayers?\s*:?\s*\{", text))
    if layers > MAX_LAYERS:
        raise FormatError(f"it has {layers:,} layers, and more than {MAX_LAYERS:,} are not read")
    # Forks have types of their own in old `layers`, which the parser would not take.
    found = set(re.findall(r"\btype\s*:\s*([A-Z][A-Z0-9_]*)", text))
    net = _net_class(tuple(sorted(found.difference(_V1_TYPES.split()))))()
    try:
        text_format.Parse(text, net, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise FormatError(_said(error, text)) from None
    except RecursionError:
        raise FormatError("it is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise FormatError(f"it is no prototxt: {_cut(str(error))}") from None
    return net


def _said(error: Any, text: str) -> str:
    """Return the parser's message, without the line that it quotes, which may be long."""
    line, column = error.GetLine(), error.GetColumn()
    message = re.sub(r"^\d+:\d+ : ", "", str(error)).replace(f"{_PACKAGE}.", "")
    if not line:
        return f"it is no prototxt: {_cut(message)}"
    lines = text.split("\n", line)
    if line <= len(lines):
        message = message.removeprefix(f"'{lines[line - 1]}': ")
    return f"it is no prototxt: line {line}, column {column}: {_cut(message)}"


def _cut(text: str) -> str:
    """Return a message that quotes the file, short enough for one line."""
    return text if len(text) <= _MOST_QUOTED else f"{text[: _MOST_QUOTED - 3]}..."


#: What the types of the oldest format are called since.
_V0_TYPES = {"conv": "Convolution", "pool": "Pooling", "images": "ImageData"}
_V0_READS = "batchsize=batch_size cropsize=crop_size"
#: Where the parameters of each type go, by their old names and, if they changed, the new.
_V0_FIELDS = {
    "conv": (
        "convolution_param",
        "num_output pad group stride kernelsize=kernel_size biasterm=bias_term",
    ),
    "pool": ("pooling_param", "pool pad stride kernelsize=kernel_size"),
    "innerproduct": ("inner_product_param", "num_output biasterm=bias_term"),
    "dropout": ("dropout_param", "dropout_ratio"),
    "lrn": ("lrn_param", "local_size"),
    "concat": ("concat_param", "concat_dim"),
    "data": ("data_param", _V0_READS),
    "images": ("image_data_param", f"{_V0_READS} new_height new_width"),
    "window_data": ("window_data_param", _V0_READS),
    "hdf5_data": ("hdf5_data_param", "batchsize=batch_size"),
}


def upgraded(net: Any) -> Any:
    """Return a net whose `layers` have a `layer` inside, the oldest format, as one of today.

    Padding was a layer of its own then; it goes into the convolution that reads it.
    """
    result = type(net)()
    result.CopyFrom(net)
    result.ClearField("layers")
    padded: dict[str, tuple[str, int]] = {}
    for outer in net.layers:
        old = outer.layer
        if old.type == "padding" and outer.bottom and outer.top:
            padded[outer.top[0]] = (outer.bottom[0], old.pad)
            continue
        new = result.layer.add(name=old.name or outer.name)
        new.type = _V0_TYPES.get(old.type, old.type)
        new.top.extend(outer.top)
        param, fields = _V0_FIELDS.get(old.type, ("", ""))
        for field in fields.split():
            name, _, today = field.partition("=")
            if old.HasField(name):
                _put(getattr(new, param), today or name, getattr(old, name))
        for bottom in outer.bottom:
            source, pad = padded.get(bottom, (bottom, 0))
            new.bottom.append(source)
            if pad and old.type in ("conv", "pool"):
                _put(getattr(new, param), "pad", pad)
    return result


def _put(message: Any, field: str, value: Any) -> None:
    """Set a field, or the one number of a repeated field."""
    if hasattr(getattr(message, field), "extend"):
        message.ClearField(field)
        getattr(message, field).append(value)
    else:
        setattr(message, field, value)
