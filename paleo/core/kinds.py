"""What operations are: kinds, passes, and the roles of what they read and write."""

from __future__ import annotations

from enum import Enum

from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity


class Fusion(Enum):
    """Which pointwise operations run in the kernel before them."""

    #: None.
    NONE = "none"
    #: Biases in the products that they follow, as the product's library offers it.
    BIAS = "bias"
    #: In batch normalizations alone.
    NORMS = "norms"
    #: Biases in products, and all in kernels that are no products.
    STREAMS = "streams"
    #: All.
    ALL = "all"


class Autocast(NamedTuple):
    """What a framework's mixed precision does otherwise than PyTorch's autocast.

    With `fast_norms` a group normalization takes halves, with `half_norms` every one; `functions`
    are computed in fp32 besides, a softmax if it is `full_softmax`.
    """

    fast_norms: bool = False
    functions: tuple[str, ...] = ()
    full_softmax: bool = True
    half_norms: bool = False


#: PyTorch's own.
AUTOCAST = Autocast()


class Pass(Enum):
    """The three passes over the layers in a training step, and the update, once for the net."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    UPDATE = "update"


#: The passes over the layers.
LAYER_PASSES = (Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT)


class Kind(Enum):
    """What an operation is, as far as a cost model may tell it from others.

    The value is what it is called in output where nobody has called it otherwise.
    """

    MATMUL = "matmul"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    MAX_POOLING = "max_pooling"
    AVERAGE_POOLING = "average_pooling"
    #: The sum with a vector of a number for each channel.
    BIAS = "bias"
    #: A function of each element: see `Stream.function`.
    FUNCTION = "function"
    #: A function of an element of each of several tensors.
    ELEMENTWISE = "elementwise"
    DROPOUT = "dropout"
    SOFTMAX = "softmax"
    BATCH_NORM = "batchnorm"
    LAYER_NORM = "layernorm"
    LOCAL_RESPONSE_NORM = "lrn"
    #: Any other normalization.
    NORMALIZATION = "normalization"
    #: The gates and states of a recurrent layer.
    GATES = "gates"
    #: Elements moved, repeated, picked or changed in size or type.
    COPY = "copy"
    #: Sums, largest elements and the like, losses among them.
    REDUCTION = "reduction"
    UPDATE = "update"
    #: What nobody prices.
    UNKNOWN = "unknown"


class Role(Enum):
    """What an operand is to the operation that reads or writes it."""

    #: What the layer before has just made.
    INPUT = "input"
    #: An input of the layer that was made earlier: a shortcut, indices, keys and values.
    EARLIER_INPUT = "earlier_input"
    WEIGHT = "weight"
    #: What the forward pass has kept for the backward pass.
    KEPT = "kept"
    #: What this kernel, or the one before it, has read or written already.
    AGAIN = "again"
    OUTPUT = "output"
    OUTPUT_GRADIENT = "output_gradient"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"


class Operand(NamedTuple):
    """A tensor that an operation reads or writes: its role and its bytes."""

    role: Role
    num_bytes: Quantity


#: The roles of what an operation reads in a pass unless it says otherwise: the first, the others.
READ = {
    Pass.FORWARD: (Role.INPUT, Role.EARLIER_INPUT),
    Pass.INPUT_GRADIENT: (Role.OUTPUT_GRADIENT, Role.KEPT),
    Pass.WEIGHT_GRADIENT: (Role.OUTPUT_GRADIENT, Role.KEPT),
    Pass.UPDATE: (Role.WEIGHT_GRADIENT, Role.WEIGHT),
}
#: Those of the two operands of a product with weights.
READ_WITH_WEIGHTS = {
    Pass.FORWARD: (Role.INPUT, Role.WEIGHT),
    Pass.INPUT_GRADIENT: (Role.OUTPUT_GRADIENT, Role.WEIGHT),
    Pass.WEIGHT_GRADIENT: (Role.KEPT, Role.OUTPUT_GRADIENT),
}
#: The role of what is written in a pass.
WRITTEN = {
    Pass.FORWARD: Role.OUTPUT,
    Pass.INPUT_GRADIENT: Role.INPUT_GRADIENT,
    Pass.WEIGHT_GRADIENT: Role.WEIGHT_GRADIENT,
    Pass.UPDATE: Role.WEIGHT,
}
