"""Recurrent layers over sequences: RNN, GRU, LSTM.

Letters: N batch, T steps, D features in, H hidden units, G gates (1, 3, 4). Each step
multiplies its input, N x D, and the state before, N x H, by matrices of all G gates. The
inputs of all steps are multiplied together; the states, one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, TypeAlias

from paleo.core.operations import BatchMatMul, Kind, Pass, Role, Stream
from paleo.core.quantity import Quantity, product, total
from paleo.core.tensor import Shape, Shapes, format_shape
from paleo.net.layers.base import (
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    layer_type,
    parameter_stream,
    stream,
)
from paleo.net.layers.fields import Flag, Whole, key

#: Of products: how many, M, N and K.
_Sizes: TypeAlias = "tuple[Quantity, Quantity, Quantity, Quantity]"


@layer_type("RNN")
class RNN(Layer):
    """N x T x D to N x T x H by a simple recurrent network."""

    gates: ClassVar[int] = 1
    #: Whether each step adds to the gradient of the states' matrix, or all are done as one.
    goes_step_by_step: ClassVar[bool] = True
    #: Tensors of state that a step hands on.
    states: ClassVar[int] = 1
    #: Features that the output of each step is brought down to; 0 for none.
    projection: int = 0

    num_outputs: int = key(Whole(), "H, the hidden units of each direction")
    num_layers: int = key(Whole(), "layers on top of each other", default=1)
    bidirectional: bool = key(
        Flag(), "whether another network runs backwards; their outputs are joined", default=False
    )
    num_biases: int = key(
        Whole(minimum=0),
        "biases of each gate: 2 (for input and state, as in cuDNN, PyTorch and ONNX), 1 or 0",
        default=2,
    )

    def _product(self, sizes: _Sizes, element_size: int, *, dependent: bool = False) -> BatchMatMul:
        """Return products by weights."""
        label, roles = self.type_name.lower(), (Role.INPUT, Role.WEIGHT)
        return BatchMatMul(label, *sizes, element_size, dependent, roles=roles)

    @property
    def parts(self) -> tuple[Layer, ...]:
        return (self.replace(num_layers=1),) * self.num_layers

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _out(self) -> int:
        """The features that one direction hands on."""
        return self.projection or self.num_outputs

    def infer_shape(self, inputs: Shapes) -> Shape:
        if len(inputs[0]) < 3:
            raise ShapeError(f"its input must be N x T x D, got {format_shape(inputs[0])}")
        if self.num_biases > 2:
            raise ShapeError(f"a gate has at most 2 biases, not {self.num_biases}", "num_biases")
        return (*inputs[0][:-1], self._directions * self._out)

    @staticmethod
    def _sequences(inputs: Shapes) -> tuple[Quantity, Quantity]:
        """Return how many sequences there are, in the batch and beside it, and their steps."""
        return product(inputs[0][:-2]), inputs[0][-2]

    def _features(self, inputs: Shapes) -> tuple[int, ...]:
        """Return the features that come into each layer."""
        later = self._directions * self._out
        return (int(inputs[0][-1]), *[later] * (self.num_layers - 1))

    def num_params(self, inputs: Shapes) -> int:
        units = self.gates * self.num_outputs
        return self._directions * sum(
            units * (features + self._out + self.num_biases) + self.projection * self.num_outputs
            for features in self._features(inputs)
        )

    def num_tensors(self, inputs: Shapes) -> int:
        return self.num_layers * self._directions * (2 + self.num_biases + (self.projection > 0))

    def _recurrence(self, n: Quantity, t: Quantity, element_size: int) -> tuple[BatchMatMul, ...]:
        """Return the products of one layer and direction, step after step, the state's first."""
        out, units = self._out, self.num_outputs
        step = self._product((t, n, self.gates * units, out), element_size, dependent=True)
        if not self.projection:
            return (step,)
        return step, self._product((t, n, out, units), element_size, dependent=True)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        n, t = self._sequences(inputs)
        units = self.gates * self.num_outputs
        found: Operations = ()
        for layer, features in enumerate(self._features(inputs)):
            incoming = self._product((1, n * t, units, features), element_size)
            own: Operations
            if direction is Pass.FORWARD:
                steps = self._recurrence(n, t, element_size)
                own = (incoming, *steps, self._gates_stream(n, t, element_size))
            elif direction is Pass.INPUT_GRADIENT:
                # Of the layers above the first, others need it whatever is below.
                own = (incoming.gradients()[0],) if layer == 0 else ()
            else:
                own = (*self._backward(n, t, element_size), incoming.gradients()[1])
                if layer > 0:
                    own += (incoming.gradients()[0],)
                if self.num_biases:
                    gradients = (n * t, units)
                    own += parameter_stream(
                        Kind.REDUCTION, gradients, units * self.num_biases, element_size,
                        label=incoming.name,
                    )  # fmt: skip
            found += own * self._directions
        return found

    def _kept_of(self, t: Quantity, features: int) -> Quantity:
        """Return how many numbers of a sample one layer and direction keeps."""
        return t * self.num_outputs  # the state of each step, of which the output is a copy

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        n, t = self._sequences(inputs)
        kept = total(self._kept_of(t, features) for features in self._features(inputs))
        saved = element_size * n * self._directions * kept
        matrix = element_size * self.gates * self.num_outputs * self._out
        return MemoryNeeds(
            inputs=(0,), output=True, saved=saved, backward=matrix * self.goes_step_by_step
        )

    def _backward(self, n: Quantity, t: Quantity, element_size: int) -> Operations:
        """Return the way back through time, and the gradients of the states' matrices.

        It is needed for the parameters' gradients, so it belongs to that pass, which is never
        skipped. Nobody needs the gradient of the state before the first step. The matrices'
        gradients of all steps are summed in one product.
        """
        found: Operations = ()
        for i, each in enumerate(self._recurrence(n, t, element_size)):
            back, weights = each.gradients()
            found += (
                replace(back, count=t - 1) if i == 0 else back,
                replace(weights, count=1, k=weights.k * t),
            )
        gates, label = (n * t, self.gates * self.num_outputs), self.type_name.lower()
        back_to_gates = stream(
            Kind.GATES, Pass.INPUT_GRADIENT, gates, element_size, reads=2, label=label
        )
        return (*found, *back_to_gates)

    def _gates_stream(self, n: Quantity, t: Quantity, element_size: int) -> Stream:
        """Return the pass that makes gates and states from both products, and keeps them."""
        one = element_size * n * t * self.num_outputs
        gates, states = self.gates * one, self.states * one
        label = self.type_name.lower()
        return Stream(Kind.GATES, (gates, gates, states), (gates, states), label=label)


@layer_type("GRU")
class GRU(RNN):
    """N x T x D to N x T x H by gated recurrent units."""

    gates: ClassVar[int] = 3

    def _kept_of(self, t: Quantity, features: int) -> Quantity:
        # Gates and state; the candidate before and after the reset; what the state differs by.
        return t * (self.gates + 4) * self.num_outputs


@layer_type("LSTM")
class LSTM(RNN):
    """N x T x D to N x T x H by long short-term memory."""

    gates: ClassVar[int] = 4
    goes_step_by_step: ClassVar[bool] = False
    states: ClassVar[int] = 2

    projection: int = key(
        Whole(minimum=0), "features that the output is brought down to; 0 for none", default=0
    )

    def _kept_of(self, t: Quantity, features: int) -> Quantity:
        # The workspace of oneDNN (src/cpu/rnn/rnn_utils.cpp): gates and the hidden state; and both
        # states and three gradients, each below and above the layer, and before the first step.
        rows = 5 * 2 * (t + 1) * max(features, self.num_outputs)
        return t * (self.gates + 1) * self.num_outputs + rows
