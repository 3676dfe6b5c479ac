"""Which layers a net's mixed precision computes in 4 bytes, and what is cast in between.

PyTorch's autocast ("Automatic Mixed Precision package", Autocast Op Reference) gives products their
operands in halves, a bias that was computed among them, and a list of functions theirs in fp32,
whatever they come in: what is of the other type is cast by a kernel of its own. Every other
function takes what comes; of several types it takes the widest, as it reads. Parameters and inputs
are fp32. So what passes through a normalization, a softmax or a sum with a parameter has 4 bytes an
element until the next product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from paleo.core.frozen import NamedTuple
from paleo.core.kinds import AUTOCAST, Autocast
from paleo.core.operations import PRODUCTS, Kind, Operation, Pass, Stream
from paleo.core.tensor import Shape, Shapes, num_elements
from paleo.net.layers import Layer
from paleo.net.layers.losses import Loss
from paleo.net.layers.normalization import LRN, GroupNorm, L2Norm, LayerNorm, RMSNorm
from paleo.net.layers.pointwise import Softmax

#: Bytes of an element of fp32, in which parameters are.
FULL = 4
#: Layers that are always computed in fp32. (Batch normalizations take halves.)
_IN_FULL = (Loss, LRN)
_SOFTMAX = (Softmax,)
#: Those that are unless a fast norm computes them as they come, and those that it computes: group
#: normalizations, which timm has as its own layers, and other layers that are not PyTorch's.
_NORMS = (GroupNorm, L2Norm, LayerNorm, RMSNorm)
_FAST_NORMS = (GroupNorm,)
#: Functions of each element that are.
_FUNCTIONS_IN_FULL = frozenset({"exp", "log", "power", "reciprocal", "rsqrt", "softplus"})


class Elements(NamedTuple):
    """Bytes of an element of each input of a layer as it comes, and of what it computes with.

    `casts` tells whether a kernel of its own brings inputs of another size to that.
    """

    inputs: tuple[int, ...]
    computing: int
    casts: bool

    @property
    def num_casts(self) -> int:
        """How many kernels cast inputs before those of the layer in its forward pass."""
        return sum(size != self.computing for size in self.inputs) if self.casts else 0


def elements_of(
    layer: Layer, inputs: Shapes, sizes: Sequence[int], half: int, lists: Autocast = AUTOCAST
) -> Elements:
    """Return the sizes of the elements of a layer whose inputs have these, under autocast."""
    if not sizes:
        return Elements((), FULL, False)
    own = tuple(sizes)
    if any(isinstance(each, PRODUCTS) for each in layer.operations(Pass.FORWARD, inputs, half)):
        return Elements(own, half, True)
    function = getattr(layer, "function", "")
    if isinstance(layer, _NORMS):
        is_own = isinstance(layer, _FAST_NORMS) or getattr(layer, "custom", False)
        is_fast = lists.half_norms or (lists.fast_norms and is_own)
        return Elements(own, half if is_fast else FULL, True)
    is_listed = layer.is_pointwise and function in _FUNCTIONS_IN_FULL
    is_softmax = isinstance(layer, _SOFTMAX) and lists.full_softmax
    if isinstance(layer, _IN_FULL) or is_listed or is_softmax or function in lists.functions:
        return Elements(own, FULL, True)
    if getattr(layer, "adds_to_product", False):
        return Elements(own, own[0], True)
    return Elements(own, max(own), False)


def operations(
    inputs: Shapes,
    elements: Elements,
    direction: Pass,
    found: Sequence[Operation],
    needed: Sequence[bool] | None = None,
) -> Iterator[Operation]:
    """Yield what a layer does in a pass: its own operations at `elements.computing`, and casts.

    The gradient of an input, of those that are `needed`, has the input's type at last
    (torch/csrc/autograd/engine.cpp, validate_outputs).
    """
    computing = elements.computing
    other = [i for i, size in enumerate(elements.inputs) if size != computing]
    if not other:
        yield from found
        return
    cast = [(elements.inputs[i], inputs[i]) for i in other] if elements.casts else []
    if direction is Pass.FORWARD:
        for size, shape in cast:
            yield _cast(shape, size, computing, direction)
    for operation in found:
        yield operation if elements.casts else _as_read(operation, elements, direction)
    if direction is Pass.INPUT_GRADIENT:
        for i in other:
            if needed is None or needed[i]:
                yield _cast(inputs[i], computing, elements.inputs[i], direction)


def _cast(shape: Shape, size: int, to: int, direction: Pass) -> Stream:
    count = num_elements(shape)
    return Stream(Kind.COPY, (size * count,), (to * count,), direction=direction, label="cast")


def _as_read(operation: Operation, elements: Elements, direction: Pass) -> Operation:
    """Return an operation of inputs of several sizes, each read as it is."""
    inputs, computing = elements.inputs, elements.computing
    forward = direction is Pass.FORWARD and isinstance(operation, Stream)
    if not forward or len(operation.reads) != len(inputs):
        return operation
    assert isinstance(operation, Stream)
    reads = tuple(
        num_bytes * size // computing
        for num_bytes, size in zip(operation.reads, inputs, strict=True)
    )
    return replace(operation, reads=reads)
