"""Names of layers, from what exporters write into the nodes of an ONNX file.

PyTorch's first exporter names a node by the path of its module, "/layer1/layer1.0/conv1/Conv";
its second one, "node_conv2d_3", with the path in the node's metadata. Both say the same:
layer1/0/conv1.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

#: Names of graphs that say nothing about the net.
_GENERIC = re.compile(
    r"(main_graph|torch[-_]jit([-_]export)?|graph|model|onnx|main|tf2onnx|tf_graph|test|g)?\Z",
    re.IGNORECASE,
)
_SCOPES = "pkg.torch.onnx.name_scopes"
#: Beyond this, metadata is not read as a list of scopes.
_LONGEST = 4096
#: Nodes that give numbers or views: they do not share a module with the layer beside them.
_QUIET = frozenset({"Constant", "Identity", "Shape", "Cast", "ConstantOfShape"})


def net_name(graph_name: str, stem: str) -> str:
    """Return the name of the net: the graph's, or the file's where that says nothing."""
    name = graph_name.strip()
    return (stem if _GENERIC.match(name) else name) or "net"


def fault_name(proto: Any, index: int) -> str:
    """Return what a node is called in messages: as viewers of such files call it."""
    return proto.name or f"{proto.op_type}_{index}"


def layer_names(live: Sequence[tuple[int, Any]], products: Collection[str]) -> list[str]:
    """Return a name for each node; `products` are those whose bias is a node of its own.

    Names of modules end in an operator only where a module holds several.
    """
    paths = [_path(proto, index) for index, proto in live]
    held: Counter[tuple[str, ...]] = Counter()
    for (_, proto), path in zip(live, paths, strict=True):
        bias = proto.op_type == "Add" and any(name in products for name in proto.input)
        if proto.op_type in _QUIET or bias:
            continue
        for depth in range(1, len(path)):
            held[path[:depth]] += 1
    return [
        "/".join(path[:-1] if len(path) > 1 and _alone(path, proto.op_type, held) else path)
        for (_, proto), path in zip(live, paths, strict=True)
    ]


def _alone(path: tuple[str, ...], op_type: str, held: Counter[tuple[str, ...]]) -> bool:
    """Whether a path ends in a mere operator, which is all that its module holds."""
    return (
        held[path[:-1]] == 1 and re.fullmatch(rf"{re.escape(op_type)}(_\d+)?", path[-1]) is not None
    )


def _path(proto: Any, index: int) -> tuple[str, ...]:
    scopes = _scopes(proto)
    if scopes is not None:
        return (*_shorten(scopes), proto.op_type)
    parts = [part for part in proto.name.split("/") if part]
    return tuple(_shorten(parts)) or (f"{proto.op_type}_{index}",)


def _scopes(proto: Any) -> list[str] | None:
    """Return the modules that a node stands in, where the exporter noted them."""
    text = next((each.value for each in proto.metadata_props if each.key == _SCOPES), "")
    if not text or not isinstance(text, str) or len(text) > _LONGEST:
        return None
    try:
        scopes = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(scopes, list) or not all(isinstance(each, str) for each in scopes):
        return None
    # The last one is the node itself; the path of each module holds those before it.
    modules = [each for each in scopes[:-1] if each and not each.startswith("_")]
    # A convolution that took up the normalization after it is named by its own weight.
    weight = proto.input[1] if len(proto.input) > 1 else ""
    if proto.op_type in ("Conv", "ConvTranspose") and weight.endswith(".weight"):
        modules = [weight.removesuffix(".weight")]
    return modules[-1].split(".") if modules else []


def _shorten(parts: Sequence[str]) -> list[str]:
    """Return the parts of a path, each without the one before it: "layer1", "layer1.0" is 0."""
    result: list[str] = []
    before = ""
    for part in parts:
        own = part.removeprefix(before + ".") if before else part
        if part != before:
            result += [piece for piece in own.split(".") if piece] if "." in part else [part]
        before = part
    return result
