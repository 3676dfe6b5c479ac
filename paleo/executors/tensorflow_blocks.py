"""What a layer is made of in TensorFlow, and the registry of those who make it.

`tensorflow_layers.py` has layers with windows, products and recurrent ones, and
`tensorflow_elements.py` the others. Tensors are in Paleo's order, which is TensorFlow's: channels
last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from paleo.layers import Layer
from paleo.layers.parts import made_of

__all__ = [
    "EPSILON",
    "Block",
    "Parameter",
    "Scene",
    "Sizes",
    "UnbuildableError",
    "aligned",
    "block_of",
    "builds",
    "of_all",
    "of_one",
]

#: A shape of whole numbers.
Sizes = tuple[Any, ...]

#: What is added to a variance before it divides.
EPSILON = 1e-5
#: A prime, so that fixed places lie apart.
_SPREAD = 7919


class UnbuildableError(ValueError):
    """Why TensorFlow has nothing for a layer."""


class Parameter(NamedTuple):
    """A tensor of parameters: random, for sums of `fan_in` terms; all `start` if that is 0."""

    shape: Sizes
    fan_in: int = 0
    start: float = 0.0


@dataclass(frozen=True)
class Scene:
    """Where operators are added to a graph: TensorFlow, the element type, training or not.

    `updates` takes the operations that keep statistics, which a step of training runs too.
    """

    tf: Any
    dtype: Any
    training: bool
    updates: list[Any] = field(default_factory=list)

    def cast(self, tensor: Any) -> Any:
        """Return a tensor in the type that layers compute in."""
        return self.tf.cast(tensor, self.dtype)

    def indices(self, tensor: Any, limit: int) -> Any:
        """Return whole numbers from 0 up to below `limit`, of whatever a tensor has."""
        tf = self.tf
        if tensor.dtype.is_integer:
            return tensor
        return tf.math.floormod(tf.cast(tensor, tf.int64), limit)

    def fixed(self, count: int, limit: int) -> Any:
        """Return `count` whole numbers from 0 up to below `limit`, the same in each run."""
        tf = self.tf
        return tf.math.floormod(tf.range(count, dtype=tf.int64) * _SPREAD, limit)


@dataclass(frozen=True)
class Block:
    """A layer as TensorFlow runs it.

    `run` adds its operators: of the inputs, the parameters and the statistics, the output. On the
    way there it makes tensors of `makes` elements.
    """

    run: Callable[[Scene, Sequence[Any], Sequence[Any], Sequence[Any]], Any]
    parameters: tuple[Parameter, ...] = ()
    statistics: tuple[Parameter, ...] = ()
    makes: int = 0


_Builder = Callable[[Any, tuple[Sizes, ...]], Block]
_BUILDERS: dict[str, _Builder] = {}

_B = TypeVar("_B", bound=_Builder)


def builds(*type_names: str) -> Callable[[_B], _B]:
    """Register what makes the block of a layer of these types and the shapes of its inputs."""

    def register(builder: _B) -> _B:
        _BUILDERS.update(dict.fromkeys(type_names, builder))
        return builder

    return register


def block_of(layer: Layer, inputs: tuple[Sizes, ...]) -> Block:
    """Return what a layer is for inputs of these shapes; raises UnbuildableError."""
    blocks = []
    for part in made_of(layer):
        if part.type_name not in _BUILDERS:
            raise UnbuildableError("TensorFlow has no operator for it")
        blocks.append(_BUILDERS[part.type_name](part, inputs))
        inputs = (part.infer_shape(inputs),)
    return blocks[0] if len(blocks) == 1 else _chain(blocks)


def _chain(blocks: Sequence[Block]) -> Block:
    """Return blocks of which each takes the output of the one before."""

    def run(scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        for block in blocks:
            num_own, num_kept = len(block.parameters), len(block.statistics)
            xs = [block.run(scene, xs, ws[:num_own], states[:num_kept])]
            ws, states = ws[num_own:], states[num_kept:]
        return xs[0]

    return Block(
        run,
        sum((block.parameters for block in blocks), ()),
        sum((block.statistics for block in blocks), ()),
    )


def of_one(function: Callable[[Any, Any], Any]) -> Block:
    """Return a block of a function of TensorFlow and the one input."""
    return Block(lambda scene, xs, ws, states: function(scene.tf, xs[0]))


def of_all(function: Callable[..., Any]) -> Block:
    """Return a block of a function of TensorFlow and all inputs."""
    return Block(lambda scene, xs, ws, states: function(scene.tf, *xs))


def aligned(shape: Sizes, rank: int) -> Sizes:
    """Return a shape of this rank, with dimensions of 1 behind the batch."""
    return (shape[0], *(1,) * (rank - len(shape)), *shape[1:])
