"""What a layer is made of in TensorFlow, and the registry of those who make it.

`layers.py` has layers with windows, products and recurrent ones, and
`elementwise.py` the others. Tensors are in Paleo's order, which is TensorFlow's: channels
last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, TypeVar

from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.tensor import format_shape
from paleo.measure.executors.shapes import Sizes
from paleo.net.layers import Layer

#: What is added to a variance before it divides.
EPSILON = 1e-5
#: A prime, so that fixed places lie apart.
_SPREAD = 7919


class UnbuildableError(ValueError):
    """Why TensorFlow has nothing for a layer."""


class Parameter(NamedTuple):
    """A tensor of parameters: random, for sums of `fan_in` terms; all `start` if that is 0.

    One that does not learn is of statistics.
    """

    shape: Sizes
    fan_in: int = 0
    start: float = 0.0
    learns: bool = True


@dataclass(frozen=True)
class Scene:
    """Where operators are added to a graph: TensorFlow, the element type, training or not.

    `updates` takes the operations that keep statistics, which a step of training runs too;
    `makes` the elements of large tensors that a layer makes besides its output.
    """

    tf: Any
    dtype: Any
    training: bool
    updates: list[Any] = field(default_factory=list)
    makes: list[int] = field(default_factory=list)

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
class Call:
    """A layer whose operators are added: what it reads, in which shapes, and what it is to give.

    `held` gives the tensors that it holds, in the order in which it asks for them.
    """

    scene: Scene
    layer: Any
    xs: Sequence[Any]
    inputs: tuple[Sizes, ...]
    output: Sizes
    held: Callable[[Parameter], Any]

    @property
    def tf(self) -> Any:
        """TensorFlow."""
        return self.scene.tf

    @property
    def x(self) -> Any:
        """The first input."""
        return self.xs[0]

    def hold(self, *shape: Any, **kind: Any) -> Any:
        """Return a tensor that the layer holds, in the type that it learns in."""
        return self.held(Parameter(shape, **kind))

    def weight(self, *shape: Any, **kind: Any) -> Any:
        """Return a tensor of parameters in the type that layers compute in."""
        return self.scene.cast(self.hold(*shape, **kind))

    def affine(self, *shape: Any, terms: int) -> list[Any]:
        """Return what a normalized tensor is scaled by and, as second term, what is added."""
        return [self.weight(*shape, start=start) for start in (1.0, 0.0)[:terms]]

    def biased(self, y: Any, has_bias: bool) -> Any:
        """Return y with a parameter added to each channel, if the layer has biases."""
        return self.tf.nn.bias_add(y, self.weight(y.shape[-1])) if has_bias else y

    def repeated(self, x: Any, batch: int) -> Any:
        """Return an input as often as there are samples, if it is there only once."""
        return x if x.shape[0] == batch else self.tf.broadcast_to(x, (batch, *x.shape[1:]))

    def reshaped(self) -> Any:
        """Return the first input in the shape of the output; raises UnbuildableError."""
        if self.x.shape.num_elements() != self.tf.TensorShape(self.output).num_elements():
            raise UnbuildableError(
                f"{format_shape(self.inputs[0])} has other elements than "
                f"{format_shape(self.output)}"
            )
        return self.tf.reshape(self.x, self.output)


#: Adds the operators of a layer, and returns its output.
Builder = Callable[[Call], Any]
BUILDERS: dict[str, Builder] = {}

_B = TypeVar("_B", bound=Builder)


def builds(*type_names: str) -> Callable[[_B], _B]:
    """Register what adds the operators of layers of these types."""

    def register(builder: _B) -> _B:
        BUILDERS.update(dict.fromkeys(type_names, builder))
        return builder

    return register


def _added(layer: Layer, scene: Scene, xs: Sequence[Any], held: Callable[[Parameter], Any]) -> Any:
    """Add the operators of a layer, part by part, and return its output."""
    for part in layer.parts:
        if part.type_name not in BUILDERS:
            raise UnbuildableError("TensorFlow has no operator for it")
        inputs = tuple(tuple(x.shape) for x in xs)
        output = part.infer_shape(inputs)
        made = BUILDERS[part.type_name](Call(scene, part, xs, inputs, output, held))
        if tuple(made.shape) != tuple(output):
            gives, wanted = format_shape(tuple(made.shape)), format_shape(output)
            raise UnbuildableError(f"TensorFlow gives {gives}, the net format {wanted}")
        xs = [made]
    return xs[0]


@dataclass(frozen=True)
class Block:
    """A layer as TensorFlow runs it, and what it holds.

    On the way to its output it makes tensors of `makes` elements.
    """

    layer: Layer
    parameters: tuple[Parameter, ...]
    statistics: tuple[Parameter, ...]
    makes: int

    def run(self, scene: Scene, xs: Sequence[Any], ws: Sequence[Any], states: Sequence[Any]) -> Any:
        """Add its operators: of the inputs, the parameters and the statistics, the output."""
        tensors = {True: iter(ws), False: iter(states)}
        return _added(self.layer, scene, xs, lambda wanted: next(tensors[wanted.learns]))


def block_of(tf: Any, dtype: Any, layer: Layer, inputs: tuple[Sizes, ...]) -> Block:
    """Return what a layer is for inputs of these shapes, by a graph that nobody runs.

    Raises UnbuildableError, or what TensorFlow does.
    """
    scene = Scene(tf, dtype, training=False)
    wanted: list[Parameter] = []

    def stand_in(parameter: Parameter) -> Any:
        wanted.append(parameter)
        return tf.compat.v1.placeholder(dtype, parameter.shape)

    def function(*xs: Any) -> None:
        _added(layer, scene, xs, stand_in)

    tf.compat.v1.wrap_function(function, [tf.TensorSpec(shape, dtype) for shape in inputs])
    parameters, statistics = (
        tuple(each for each in wanted if each.learns is learns) for learns in (True, False)
    )
    return Block(layer, parameters, statistics, sum(scene.makes))
