"""Caffe's messages, as far as they say what a net computes, and reading their text format.

They stand in `messages.txt` and are Caffe's by name, repetition and default; their numbers are
not, which only binary files would need. They live in a pool and a package of their own, so that
an installed Caffe is not disturbed. What a message here lacks (fillers, sources of data, solvers'
settings) is skipped where a file has it.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

#: Larger files and nets are refused before they are parsed, which would take minutes.
MAX_BYTES = 2**25
MAX_LAYERS = 100_000

_PACKAGE = "paleo.caffe"


def _read_messages() -> dict[str, tuple[list[str], list[str]]]:
    """Return each message of `messages.txt`: the fields of a layer that hold one, and its own."""
    text = Path(__file__).with_name("messages.txt").read_text("utf-8")
    messages = {}
    for paragraph in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        head, _, fields = paragraph.partition(":")
        name, *holders = head.split()
        messages[name] = (holders, fields.split(","))
    return messages


_MESSAGES = _read_messages()
#: The types of old `layers`.
_V1_TYPES = _MESSAGES.pop("V1Types")[1][0].split()
_HOLDERS = {field for fields, _ in _MESSAGES.values() for field in fields}
#: What data layers of forks say is said as those of images have it.
_DATA = "ImageDataParameter"
_TYPES = {"int": 3, "float": 1, "bool": 8, "string": 9}  # int64 and double, to hold any number
_MESSAGE_TYPE, _ENUM_TYPE = 11, 14

#: What a message may quote of the file.
_MOST_QUOTED = 160


class FormatError(ValueError):
    """Text that is no net; the message is one line, without the file."""


def _add_field(message: Any, text: str) -> None:
    """Add a field, such as "int* pad" or "bool bias_term=true", to a message's descriptor."""
    kind, rest = text.split()
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
def _net_class(more_types: tuple[str, ...], more_data: tuple[str, ...]) -> Any:
    """Return the class of a whole net, with further types of old `layers` and data layers."""
    pb2 = importlib.import_module("google.protobuf.descriptor_pb2")
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    factory = importlib.import_module("google.protobuf.message_factory")
    file = pb2.FileDescriptorProto(name="paleo_caffe.proto", package=_PACKAGE, syntax="proto2")
    messages = {name: fields for name, (_, fields) in _MESSAGES.items()}
    holders = [f"{name} {field}" for name, (fields, _) in _MESSAGES.items() for field in fields]
    holders += [f"{_DATA} {field}" for field in more_data]
    layer = [*messages.pop("Layer"), *holders]
    types = "|".join((*_V1_TYPES, *more_types))
    messages["LayerParameter"] = ["string type", "ParamSpec* param", *layer]
    oldest = ["string* param", "V0LayerParameter layer"]
    messages["V1LayerParameter"] = [f"{types} type", *oldest, *layer]
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for text in fields:
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
    data = set(re.findall(r"\b(\w+data_param)\s*:?\s*\{", text))
    own = tuple(sorted(found.difference(_V1_TYPES))), tuple(sorted(data.difference(_HOLDERS)))
    net = _net_class(*own)()
    try:
        text_format.Parse(text, net, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise FormatError(_said(error, text)) from None
    except RecursionError:
        raise FormatError("it is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise FormatError(f"it is no prototxt: {_cut(str(error))}") from None
    return net


#: What says of a layer that it has parameters of its own, in fields that are not read here.
_WEIGHTED = re.compile(r"\bnum_output|filler\b|\bblobs_lr\b", re.IGNORECASE)


def weighted_types(text: str) -> set[str]:
    """Return the words that may be types of layers with parameters of their own.

    They are all that stand behind a "type" in a layer whose text has a filler or says how many
    outputs there are.
    """
    text = re.sub(r"#.*", "", text)
    found: set[str] = set()
    for layer in re.split(r"\blayers?\s*:?\s*\{", text)[1:]:
        if _WEIGHTED.search(layer):
            found.update(re.findall(r"\b(?:type|layer)\s*:\s*[\"']?([\w.]+)", layer))
    return found


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
