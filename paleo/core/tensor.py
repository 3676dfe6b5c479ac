"""Shapes and element types of tensors.

A shape is a tuple of dimensions, batch first: N, H, W, C for images, N, D for vectors.
The batch dimension may be a NumPy array; everything computed from it then is one too.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from paleo.core.errors import SettingError, near
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity, is_array, product
from paleo.core.scaling import FP8, SCALINGS, Scaling

Shape: TypeAlias = tuple[Quantity, ...]
Shapes: TypeAlias = tuple[Shape, ...]

#: Bytes of one element. Products of tf32 round their operands, which have 4 bytes in memory.
DTYPES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}


class Precision(NamedTuple):
    """The element types of a step: `computing` what layers read and write, `learning` the rest.

    In mixed precision (Micikevicius et al., arXiv:1710.03740) activations, their gradients and
    the weights that the layers read are halves; the parameters themselves, their gradients once
    a layer has made them, the update, the optimizer's state and what workers exchange are fp32.
    So it is in PyTorch: its autocast keeps fp32 parameters, casts copies of them for a step, and
    gives gradients in the parameters' type, in which DistributedDataParallel sums them up. (In
    PyTorch some operators, such as softmax, go on in fp32; here all halve their bytes.) With a
    `scaling` products of linear layers take their operands in fp8: see paleo.core.scaling.
    """

    computing: str
    learning: str
    scaling: Scaling | None = None

    @property
    def is_mixed(self) -> bool:
        """Whether layers read copies of the parameters in another type."""
        return self.computing != self.learning

    @property
    def multiplying(self) -> str:
        """The element type of most products' operands."""
        return FP8 if self.scaling else self.computing

    @property
    def element_size(self) -> int:
        """Bytes of an element of an activation, and of a weight as a layer reads it."""
        return DTYPES[self.computing]

    @property
    def parameter_size(self) -> int:
        """Bytes of a parameter, and of its gradient when workers exchange it."""
        return DTYPES[self.learning]


#: What a net can compute in: one type, or two.
PRECISIONS = {
    **{name: Precision(name, name) for name in DTYPES},
    "mixed_fp16": Precision("fp16", "fp32"),
    "mixed_bf16": Precision("bf16", "fp32"),
    **{name: Precision("bf16", "fp32", scaling) for name, scaling in SCALINGS.items()},
}


def find_precision(dtype: str) -> Precision:
    """Return the types that `dtype` stands for; raises SettingError if it is unknown."""
    try:
        return PRECISIONS[dtype]
    except (KeyError, TypeError):
        raise SettingError(
            f"unknown dtype {dtype!r}{near(dtype, PRECISIONS)}; there are: {', '.join(PRECISIONS)}"
        ) from None


def element_size(dtype: str) -> int:
    """Return the bytes of an element of an activation; raises SettingError if it is unknown."""
    return find_precision(dtype).element_size


def num_elements(shape: Shape) -> Quantity:
    """Return the number of elements of a tensor of this shape."""
    batch, *others = shape
    return product(others) * batch  # which alone may be an array


def format_shapes(shapes: Shapes) -> str:
    """Return shapes as text, the first few of them where there are many."""
    texts = [format_shape(shape) for shape in shapes[:8]]
    return ", ".join(texts) + (f" ... ({len(shapes)} in all)" if len(shapes) > 8 else "")


def format_shape(shape: Shape) -> str:
    """Return the shape as text, such as "128x54x54x64"."""
    return "x".join(str(dimension) for dimension in shape)


def one_object(size: Any, known: dict[Any, Any]) -> Any:
    """Return an array that has these numbers, the same one for all: shapes are compared by it."""
    return known.setdefault((size.shape, size.tobytes()), size) if is_array(size) else size


def by_identity(shape: Shape) -> tuple[Any, ...]:
    """Return what two shapes share that have equal numbers, and the same arrays."""
    return tuple(("array", id(size)) if is_array(size) else size for size in shape)


def are_identical(shapes: Shapes, others: Shapes) -> bool:
    """Tell whether shapes have equal numbers, and the same arrays."""
    # Those of nodes that are alike are one object, as a rule.
    return len(shapes) == len(others) and all(
        shape is other or by_identity(shape) == by_identity(other)
        for shape, other in zip(shapes, others, strict=True)
    )
