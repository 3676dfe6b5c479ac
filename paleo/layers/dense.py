"""InnerProduct: a matrix product with the flattened input."""

from __future__ import annotations

from paleo.layers.base import Layer, Operations, layer_type, parameter_stream, share, stream
from paleo.layers.keys import Whole, key
from paleo.quantity import product
from paleo.tensor import Shape
from paleo.work import MatMul, Pass

__all__ = ["InnerProduct"]


@layer_type("InnerProduct")
class InnerProduct(Layer):
    """N x D to N x K by a matrix of D x K, and a bias; the input is flattened to N x D."""

    num_outputs: int = key(Whole(), "K, the outputs of each sample")

    def infer_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        return (inputs[0][0], self.num_outputs)

    def num_params(self, inputs: tuple[Shape, ...]) -> int:
        features: int = product(inputs[0][1:])
        return features * self.num_outputs + self.num_outputs

    def operations(
        self, direction: Pass, inputs: tuple[Shape, ...], element_size: int
    ) -> Operations:
        n, d, k = inputs[0][0], product(inputs[0][1:]), self.num_outputs
        output = (n, k)
        if direction is Pass.FORWARD:
            return (MatMul(n, k, d, element_size), *stream("bias", output, element_size))
        if direction is Pass.INPUT_GRADIENT:
            return (MatMul(n, d, k, element_size),)
        return (
            MatMul(d, k, n, element_size),
            *parameter_stream("bias", output, k, element_size),
        )

    def shard(self, splits: int) -> Layer:
        return self.replace(num_outputs=share(self.num_outputs, splits, "num_outputs"))
