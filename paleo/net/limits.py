"""How large layers may be: counts that mean something."""

from __future__ import annotations

from paleo.core.checks import MAX_COUNT
from paleo.core.operations import Pass
from paleo.core.quantity import Quantity, largest
from paleo.core.tensor import Shape, Shapes, num_elements
from paleo.net.layers import Layer, ShapeError


def check_size(layer: Layer, inputs: Shapes, output: Shape) -> Quantity:
    """Return the largest count of this layer; raises ShapeError if it is too large."""
    most = largest(output[0])

    def at_most(shape: Shape) -> Shape:
        return (most, *shape[1:])

    counts = [("elements in its output", num_elements(at_most(output)))]
    if inputs:
        shapes = tuple(map(at_most, inputs))
        counts.append(("parameters", layer.num_params(shapes)))
        counts += [
            ("FLOPs or bytes in a pass", operation.magnitude)
            for operation in layer.operations(Pass.FORWARD, shapes, 8)
        ]
    for what, count in counts:
        if count > MAX_COUNT:
            raise ShapeError(f"{float(count):.3g} {what} are too many to mean anything")
    return max(count for _, count in counts)
