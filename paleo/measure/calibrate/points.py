"""What is measured: nets of one layer, by kind of operation, and small nets of common blocks."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paleo.core.frozen import dataclass
from paleo.core.operations import LAYER_PASSES, Operation, Pass, Update
from paleo.core.tensor import Shape, format_shapes
from paleo.costs import find_cost_model
from paleo.measure.executors.executor import INFERENCE, STEP, UPDATE
from paleo.net.graph import Graph, Node, build
from paleo.net.load import loads
from paleo.step.passes import BACKWARD, FORWARD, keep_shape, kernels

#: The kinds that give a device its peaks and its memory bandwidth, where no data sheet does.
PRODUCT, COPY = "product", "copy"
_FORWARD = (Pass.FORWARD.value,)
#: Forward, and the gradient of what comes in.
_BOTH = (*_FORWARD, Pass.INPUT_GRADIENT.value)
#: Forward, and the gradient of the parameters.
_OF_FIRST = (*_FORWARD, Pass.WEIGHT_GRADIENT.value)
#: All passes of a layer with parameters.
_ALL = tuple(step.value for step in LAYER_PASSES)


@dataclass(frozen=True)
class Point:
    """A net of one layer, to be measured in some of its passes (`parts`), or one of several.

    `layer` has the layer's keys as JSON, without parents; `inputs` the shapes that it reads,
    batch first. A part is the value of a Pass, or UPDATE. Instead there may be a whole `net` as
    JSON, whose parts are INFERENCE and STEP, a training step. Points of one `kind` are reported
    together. A `reference` is measured several times, to see whether the machine is steady.
    `sets` is how many sets of operands are used in turn, so that one is found in the cache only
    where all fit.
    """

    kind: str
    layer: str
    inputs: tuple[Shape, ...]
    parts: tuple[str, ...] = _FORWARD
    reference: bool = False
    sets: int = 1
    net: str = ""

    def graph(self, dtype: str = "fp32") -> Graph:
        """Return the net; raises NetSpecError if layer and inputs do not fit."""
        if self.net:
            return _whole(self.net, dtype)
        return _graph(self.layer, self.inputs, dtype)

    @property
    def what(self) -> str:
        """The layer and what it reads, or the net, in one line."""
        if self.net:
            graph = self.graph()
            return f"{graph.name}: {len(graph.nodes) - 1} layers on {format_shapes(self.inputs)}"
        keys: Mapping[str, Any] = json.loads(self.layer)
        rest = [
            f"{name}={json.dumps(value).replace(' ', '').strip(chr(34))}"
            for name, value in keys.items()
            if name != "type"
        ]
        return " ".join([str(keys["type"]), *rest, "of", format_shapes(self.inputs)])

    def operations(self, part: str, dtype: str) -> tuple[Operation, ...]:
        """Return what a device does in this part."""
        graph = self.graph(dtype)
        if self.net:
            return _of_net(graph, part)
        return operations_of(graph, graph.nodes[-1], part, self.needed)

    @property
    def needed(self) -> tuple[bool, ...]:
        """Of which inputs the gradient is computed: all."""
        return (True,) * len(self.inputs)


def operations_of(
    graph: Graph, node: Node, part: str, needed: tuple[bool, ...]
) -> tuple[Operation, ...]:
    """Return what a device does in a pass of a node, or in its update."""
    if part == UPDATE:
        return (Update(node.num_params, graph.precision.parameter_size),)
    return graph.operations(node, Pass(part), needed)


def _of_net(graph: Graph, part: str) -> tuple[Operation, ...]:
    """Return what a device does in inference, or in a training step."""
    training = part == STEP
    model = find_cost_model("tiled")
    found = [
        operation
        for directions in ((FORWARD, BACKWARD) if training else (FORWARD,))
        for operations in kernels(graph, directions, model, training=training).of
        for _, operation in operations
    ]
    if training:
        found.append(Update(graph.num_params, graph.precision.parameter_size))
    return tuple(found)


@functools.lru_cache(maxsize=64)
def _whole(net: str, dtype: str) -> Graph:
    return build(loads(net), None, dtype, keep_shape)


@functools.lru_cache(maxsize=1024)
def _graph(layer: str, inputs: tuple[Shape, ...], dtype: str) -> Graph:
    names = [f"input{i}" for i in range(len(inputs))]
    layers: dict[str, Any] = {
        name: {"type": "Input", "parents": [], "tensor": list(shape)}
        for name, shape in zip(names, inputs, strict=True)
    }
    layers["layer"] = {**json.loads(layer), "parents": names}
    return build(loads(json.dumps({"name": "point", "layers": layers})), None, dtype, keep_shape)


def _point(kind: str, layer: Mapping[str, Any], *inputs: Shape, **how: Any) -> Point:
    return Point(kind, json.dumps(layer), inputs, **how)


#: M rows (the batch), N outputs, K inputs of products.
_PRODUCTS = (
    (128, 1024, 1024), (8, 4096, 4096), (512, 768, 768), (256, 256, 256), (16, 512, 2048),
    (1, 4096, 4096), (197, 3072, 768), (64, 1000, 4096), (2048, 64, 64), (32, 1000, 2048),
    (2, 4096, 9216), (1000, 2000, 500),
)  # fmt: skip
#: Images, height and width, channels, filters, filter's side, stride, groups of convolutions.
_CONVOLUTIONS = (
    (4, 56, 64, 64, 3, 1, 1), (4, 56, 256, 64, 1, 1, 1), (4, 28, 192, 192, 3, 1, 192),
    (8, 14, 256, 256, 3, 1, 1), (2, 112, 16, 96, 1, 1, 1), (4, 28, 128, 128, 3, 2, 1),
    (8, 7, 512, 2048, 1, 1, 1), (8, 56, 96, 96, 3, 2, 96), (4, 28, 256, 512, 1, 2, 1),
    (1, 14, 512, 512, 3, 1, 1), (2, 27, 96, 32, 5, 1, 1), (4, 28, 256, 256, 3, 1, 32),
    (8, 14, 1024, 256, 1, 1, 1), (4, 28, 128, 128, 3, 1, 1), (8, 14, 240, 240, 5, 1, 240),
    (4, 56, 64, 256, 1, 1, 1), (1, 7, 512, 512, 3, 1, 1), (1, 7, 160, 960, 1, 1, 1),
)  # fmt: skip
#: The same of the first layers of nets, which need no gradient of their images.
_FIRST = ((2, 224, 3, 64, 7, 2, 1), (2, 224, 3, 32, 3, 2, 1), (1, 227, 3, 96, 11, 4, 1))
#: Elements of copies.
_COPIES = (2**24, 2**25, 2**16, 2**20, 2**22, 2**18)
#: Images, height and width, channels of what passes over memory.
_IMAGES = ((8, 112, 64), (2, 28, 128), (8, 56, 256), (1, 14, 64))
#: Rows, and their length, of what normalizes rows.
_ROWS = ((128, 768), (1536, 128), (4096, 768))
#: Samples, steps, inputs and units of recurrent layers.
_RECURRENT = ((8, 20, 256, 256), (16, 10, 650, 650))
#: Images, height and width, channels and blocks of nets: convolutions of each channel by itself
#: between two of one element, and residual blocks of 3 x 3. Small ones are mostly overhead.
_NETS = (
    ("separable", 2, 14, 32, 12),
    ("residual", 2, 14, 32, 12),
    ("residual", 4, 56, 64, 2),
    ("separable", 4, 56, 32, 2),
    ("separable", 1, 7, 160, 6),
    ("residual", 1, 14, 64, 8),
)
#: How many times more rows or images a GPU gets.
_MORE = 16
#: The parts of a net find their weights in the cache only if all of them fit; what a convolution
#: reads, the layer before wrote.
_SETS, _SETS_OF_IMAGES = 6, 2


def points(place: str) -> tuple[Point, ...]:
    """Return what to measure at a place ("cpu", "cuda", "mps"), the most telling first.

    Kinds take turns, so that a measurement that ends early has covered all of them.
    """
    more = 1 if place == "cpu" else _MORE
    found = [
        _point(
            PRODUCT, {"type": "InnerProduct", "num_outputs": n}, (m * more, k),
            parts=_ALL, reference=not i, sets=_SETS,
        )
        for i, (m, n, k) in enumerate(_PRODUCTS)
    ]  # fmt: skip
    found += [
        _convolution(case, more, parts=_ALL, reference=not i)
        for i, case in enumerate(_CONVOLUTIONS)
    ]
    found += [_convolution(case, more, parts=_OF_FIRST) for case in _FIRST]
    found += [
        _point(COPY, _function("relu"), (more, size), reference=not i)
        for i, size in enumerate(_COPIES)
    ]
    for images, side, channels in _IMAGES:
        shape: Shape = (images * more, side, side, channels)
        found += [
            _point(kind, layer, shape, parts=_BOTH, sets=_SETS_OF_IMAGES)
            for kind, layer in (
                ("pointwise", _function("relu")),
                ("pointwise", _function("hard_swish")),
                ("normalization", {"type": "BatchNorm"}),
                ("pooling", _window("Pooling", 2, 2)),
                ("pooling", _window("Pooling", 3, 2)),
                ("pooling", _window("AvgPool", 2, 2)),
            )
        ]
        found += [_point("pointwise", {"type": "Elementwise"}, shape, shape, sets=_SETS_OF_IMAGES)]
    for rows, length in _ROWS:
        shape = (rows * more, length)
        found += [
            _point("normalization", {"type": "LayerNorm"}, (more, rows, length), parts=_BOTH),
            _point("normalization", {"type": "Softmax", "dim": 1}, shape, parts=_BOTH),
            _point("pointwise", _function("gelu"), shape, parts=_BOTH),
            _point("pointwise", {"type": "Dropout", "dropout_keep_prob": 0.5}, shape),
        ]
    found += [
        _point(
            "recurrent", {"type": "LSTM", "num_outputs": units}, (samples * more, steps, inputs),
            parts=_FORWARD,
        )
        for samples, steps, inputs, units in _RECURRENT
    ]  # fmt: skip
    found += [_net(*case, more) for case in _NETS]
    small = (1, 64)
    found += [
        _point("launch", _function("relu"), small),
        _point("launch", {"type": "Elementwise"}, small, small),
        _point("launch", _function("hard_swish"), small),
    ]
    return tuple(in_turn(found))


def _net(kind: str, images: int, side: int, channels: int, blocks: int, more: int) -> Point:
    """Return a net of residual blocks, each convolution normalized, as published ones have it."""
    shape = (images * more, side, side, channels)
    layers: dict[str, Any] = {"input": {"type": "Input", "parents": [], "tensor": list(shape)}}
    last = "input"

    def add(name: str, layer: Mapping[str, Any], *parents: str) -> None:
        nonlocal last
        layers[name] = {**layer, "parents": list(parents or (last,))}
        last = name

    for block in range(blocks):
        first = last
        wide = 4 * channels
        filters: tuple[tuple[int, int, int, int], ...] = (
            ((1, channels, wide, 1), (3, 1, wide, wide), (1, wide, channels, 1))
            if kind == "separable"
            else ((3, channels, channels, 1), (3, channels, channels, 1))
        )
        for number, (width, read, made, groups) in enumerate(filters):
            own = f"block{block}/{number}"
            add(f"{own}/convolution", {**_filter(width, read, made, groups), "use_bias": False})
            add(f"{own}/normalization", {"type": "BatchNorm"})
            if number + 1 < len(filters):
                add(f"{own}/relu", _function("relu"))
        add(f"block{block}/sum", {"type": "Elementwise"}, first, last)
        add(f"block{block}/relu", _function("relu"))
    text = json.dumps({"name": f"{kind} blocks", "layers": layers})
    return Point("net", "", (shape,), (INFERENCE, STEP), net=text)


def _function(name: str) -> dict[str, Any]:
    return {"type": "Activation", "function": name}


def _window(kind: str, width: int, stride: int) -> dict[str, Any]:
    sizes = {"ksize": [1, width, width, 1], "strides": [1, stride, stride, 1]}
    return {"type": kind, **sizes, "padding": "SAME"}


def _filter(width: int, read: int, made: int, groups: int, stride: int = 1) -> dict[str, Any]:
    sizes = {"filter": [width, width, read, made], "strides": [1, stride, stride, 1]}
    several = {"groups": groups} if groups > 1 else {}
    return {"type": "Convolution", **sizes, "padding": "SAME", **several}


def _convolution(case: tuple[int, ...], more: int, **how: Any) -> Point:
    images, side, channels, filters, width, stride, groups = case
    layer = _filter(width, channels // groups, filters, groups, stride)
    shape = (images * more, side, side, channels)
    return _point("convolution", layer, shape, sets=_SETS_OF_IMAGES, **how)


def in_turn(found: Iterable[Point]) -> Iterator[Point]:
    """Yield points such that the first of every kind come first, then the second, and so on."""
    kinds: dict[str, list[Point]] = {}
    for point in found:
        kinds.setdefault(point.kind, []).append(point)
    for place in range(max(map(len, kinds.values()), default=0)):
        yield from (own[place] for own in kinds.values() if place < len(own))
