"""Where a net ends: what is made smaller in training, and how good it is."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from paleo.core.kinds import READ_WITH_WEIGHTS
from paleo.core.operations import BatchMatMul, Kind, Pass, Role, Stream
from paleo.core.quantity import Quantity, ceil_div, minimum, product, some
from paleo.core.tensor import Shape, Shapes, format_shapes, num_elements
from paleo.net.layers.base import (
    TERMS,
    Divided,
    Layer,
    MemoryNeeds,
    Operations,
    ShapeError,
    are_same,
    batch_of,
    bias_stream,
    is_one,
    layer_type,
    tensor_bytes,
)
from paleo.net.layers.fields import Flag, Name, Whole, key

_LOSSES = (
    "softmax_cross_entropy",
    "sigmoid_cross_entropy",
    "cross_entropy",
    "squared_error",
    "absolute_error",
    "smooth_absolute_error",
    "hinge",
    "contrastive",
    "other",
)

#: Bytes of a number in fp32.
_FULL = 4
#: Those whose labels are classes.
_BY_CLASS = ("softmax_cross_entropy", "cross_entropy", "hinge")
#: Those that need no more than what they compare.
_OF_DIFFERENCES = (
    "sigmoid_cross_entropy",
    "squared_error",
    "absolute_error",
    "smooth_absolute_error",
)


class _Judging(Layer):
    """A number for each sample, from its scores and, if there are some, its labels."""

    num_parents: ClassVar[tuple[int, int | None]] = (1, None)
    is_judge: ClassVar[bool] = True

    @property
    def by_class(self) -> bool:
        """Whether a label may be the number of the class that is right."""
        return True

    def are_classes(self, inputs: Shapes) -> bool:
        """Tell whether labels name a class for each row of scores, not a number for each score."""
        if not self.by_class:
            return False
        return len(inputs) == 1 or some(product(inputs[0][1:]) != product(inputs[1][1:]))

    def index_limit(self, k: int, inputs: Shapes) -> int | None:
        return int(inputs[0][-1]) if k == 1 and self.are_classes(inputs) else None

    def infer_shape(self, inputs: Shapes) -> Shape:
        return (batch_of(inputs), 1)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        if direction is not Pass.FORWARD:
            return ()
        sizes, written = tensor_bytes(inputs, element_size), (element_size * batch_of(inputs),)
        return (Stream(Kind.REDUCTION, sizes, written, label=self.type_name.lower()),)


@layer_type("Loss")
class Loss(_Judging):
    """What training makes smaller: N x 1, of scores and labels."""

    is_loss: ClassVar[bool] = True

    function: str = key(Name(_LOSSES), "which", default="softmax_cross_entropy")
    fused: bool = key(
        Flag(),
        "whether one kernel computes it of each row of scores, and writes no logarithms of them",
        default=False,
    )
    stepwise: bool = key(
        Flag(),
        "whether each step of a softmax is a kernel in fp32, which writes where it read",
        default=False,
    )

    @property
    def by_class(self) -> bool:
        return self.function in _BY_CLASS

    def divided(self, ways: int, inputs: Shapes, axes: tuple[int | None, ...]) -> Divided | None:
        # By words: each device sums up the exponentials of its own (Megatron-LM,
        # tensor_parallel/cross_entropy.py).
        if self.by_class and axes[0] == len(inputs[0]) - 1 and not any(axes[1:]):
            return Divided(self, TERMS)
        rows = range(1, len(inputs[0]) - 1)
        if axes[0] in rows and len(set(axes)) == 1:
            return Divided(self, TERMS)  # by rows
        return super().divided(ways, inputs, axes)

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        (step,) = super().operations(Pass.FORWARD, inputs, element_size)
        assert isinstance(step, Stream)
        if self.stepwise:
            return _in_steps(step, direction, inputs[0], element_size)
        if self.fused:
            return (_of_rows(step, direction, inputs, element_size),)
        if self.function == _LOSSES[0]:
            picked = element_size * num_elements(inputs[0][:-1])
            is_picked = self.are_classes(inputs)
            row = element_size * inputs[0][-1]
            return _by_logarithms(step, direction, row, picked if is_picked else step.reads[0])
        if direction is Pass.FORWARD:
            return (step,)
        # Nothing has been done since the forward pass read the scores.
        roles = (Role.AGAIN, *[Role.KEPT] * (len(inputs) - 1))
        return (replace(step, writes=step.reads[:1], direction=direction, roles=roles),)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        found = tuple(range(len(inputs)))
        if self.function in _OF_DIFFERENCES:
            return MemoryNeeds(inputs=found)
        if self.stepwise:
            # Probabilities in fp32, where the scores have been, and their gradient is.
            return MemoryNeeds(inputs=found[1:], saved=_FULL * num_elements(inputs[0]))
        if self.fused:
            return MemoryNeeds(inputs=found, saved=4 * num_elements(inputs[0][:-1]))
        # The scores' logarithms, and their gradient on the way to that of the scores.
        scores = element_size * num_elements(inputs[0])
        return MemoryNeeds(inputs=found, own=scores, backward=scores)


def _by_logarithms(step: Stream, direction: Pass, row: Quantity, picked: Quantity) -> Operations:
    """Return a softmax cross entropy as PyTorch composes it, of rows of so many bytes.

    Forward, log_softmax reads a row for its largest score, for the sum of exponentials and to write
    logarithms, of which nll_loss reads the `picked` ones (aten/src/ATen/native/cuda/SoftMax.cu,
    cunn_SoftMaxForward; NLLLoss2d.cu and Loss.cu). Backward, nll_loss writes a gradient of all
    logarithms, nearly all 0, which log_softmax reads with these, twice, to write that of the scores
    (cunn_SoftMaxBackward).
    """
    scores, *labels = step.reads
    softmax = Stream(
        Kind.SOFTMAX, (scores,), (scores,), direction=direction, label="log_softmax", row=row,
        passes=3,
    )  # fmt: skip
    if direction is Pass.FORWARD:
        roles = (Role.AGAIN, *[Role.EARLIER_INPUT] * len(labels))
        return (softmax, replace(step, reads=(picked, *labels), roles=roles))
    kept = tuple([Role.KEPT] * len(labels))
    return (
        replace(step, reads=tuple(labels), writes=(scores,), direction=direction, roles=kept),
        replace(softmax, reads=(scores, scores), passes=2, roles=(Role.AGAIN, Role.KEPT)),
    )


def _in_steps(step: Stream, direction: Pass, scores: Shape, element_size: int) -> Operations:
    """Return a softmax cross entropy of scores as Megatron-LM composes it.

    Scores are cast to fp32 (gpt_model.py, output.float()). Of these the largest of a row is found
    and subtracted, exponentials are taken and summed up, and divided by the sum; backward the
    probabilities, but for the right words' less 1, are multiplied by the loss's gradient and cast
    back (megatron/mpu/cross_entropy.py, later core/tensor_parallel/cross_entropy.py).
    """
    count = num_elements(scores)
    half, full, rows = (
        (element_size * count,),
        (_FULL * count,),
        (_FULL * num_elements(scores[:-1]),),
    )
    labels = step.reads[1:]

    def kernel(kind: Kind, reads: Shape, writes: Shape, label: str, role: Role) -> Stream:
        roles = (role, *[Role.KEPT] * (len(reads) - 1))
        return Stream(kind, reads, writes, direction=direction, label=label, roles=roles)

    cast = element_size != _FULL
    if direction is Pass.FORWARD:
        return (
            *([kernel(Kind.COPY, half, full, "cast of scores", Role.AGAIN)] if cast else []),
            kernel(Kind.REDUCTION, full, rows, "largest score", Role.AGAIN),
            kernel(Kind.ELEMENTWISE, full, full, "scores less the largest", Role.AGAIN),
            kernel(Kind.ELEMENTWISE, full, full, "exponentials", Role.AGAIN),
            kernel(Kind.REDUCTION, full, rows, "sum of exponentials", Role.AGAIN),
            kernel(Kind.ELEMENTWISE, full, full, "probabilities", Role.AGAIN),
        )
    return (
        kernel(Kind.ELEMENTWISE, (*full, *labels), full, "gradient of scores", Role.KEPT),
        *([kernel(Kind.COPY, full, half, "cast of the gradient", Role.AGAIN)] if cast else []),
    )


def _of_rows(step: Stream, direction: Pass, inputs: Shapes, element_size: int) -> Stream:
    """Return a loss of rows of scores, the last dimension: one sum, of which there is a gradient.

    A kernel reads a row for its largest score and the sum of exponentials, and writes the logarithm
    of that (Dao et al., FlashAttention, csrc/xentropy); backward it reads the row again.
    """
    scores, *labels = step.reads
    sums = element_size * num_elements(inputs[0][:-1])
    if direction is Pass.FORWARD:
        row = element_size * inputs[0][-1]
        return replace(step, writes=(*step.writes, sums), row=row, passes=2)
    roles = (Role.AGAIN, *[Role.KEPT] * (len(labels) + 1))
    return replace(
        step, reads=(*step.reads, sums), writes=(scores,), direction=direction, roles=roles
    )


@layer_type("LinearCrossEntropy")
class LinearCrossEntropy(_Judging):
    """A language model's head and its loss: N x ... x D and labels of N x ... to N x 1.

    Scores of so many rows at a time are multiplied, and their gradient takes their place before the
    next are (Hsu et al., Liger Kernel, arXiv:2410.10989, section 3.2): scores of all rows are never
    in memory. There are three products, as of a head and a loss that are apart, and the gradient of
    the matrix is a sum over chunks. That of the input is made in the forward pass, and kept.
    """

    num_parents: ClassVar[tuple[int, int | None]] = (2, 2)
    is_loss: ClassVar[bool] = True

    num_outputs: int = key(Whole(), "V, the words that there are")
    use_bias: bool = key(Flag(), "whether each word has a bias, a parameter", default=False)
    chunk: int = key(Whole(), "rows whose scores are in memory at a time", default=1024)

    def split(self, ways: int, inputs: Shapes) -> Divided | None:
        if self.num_outputs % ways:
            return None
        return Divided(self.replace(num_outputs=self.num_outputs // ways), TERMS)

    def padded(self, multiple: int) -> Layer:
        return self.replace(num_outputs=multiple * ceil_div(self.num_outputs, multiple))

    def are_classes(self, inputs: Shapes) -> bool:
        return True

    def index_limit(self, k: int, inputs: Shapes) -> int | None:
        return self.num_outputs if k == 1 else None

    def infer_shape(self, inputs: Shapes) -> Shape:
        if not are_same(inputs[0][1:-1], _places(inputs[1])):
            raise ShapeError(
                "its parents must be N x ... x D and labels of N x ..., got "
                f"{format_shapes(inputs)}"
            )
        return super().infer_shape(inputs)

    def num_params(self, inputs: Shapes) -> int:
        return self.num_outputs * (int(inputs[0][-1]) + self.use_bias)

    def num_tensors(self, inputs: Shapes) -> int:
        return 1 + self.use_bias

    def operations(self, direction: Pass, inputs: Shapes, element_size: int) -> Operations:
        rows, d, v = product(inputs[0][:-1]), inputs[0][-1], self.num_outputs
        sizes = {
            Pass.FORWARD: (rows, v, d),
            Pass.INPUT_GRADIENT: (rows, d, v),
            Pass.WEIGHT_GRADIENT: (d, v, rows),
        }
        # Chunks are large enough to be as quick as one product of all rows.
        work = BatchMatMul(
            "head", 1, *sizes[direction], element_size,
            direction=direction, roles=READ_WITH_WEIGHTS[direction],
        )  # fmt: skip
        if direction is Pass.INPUT_GRADIENT:
            return (work,)
        if direction is Pass.WEIGHT_GRADIENT:
            # But the first, each chunk reads what those before have summed up, and writes it.
            summed = element_size * v * d * (ceil_div(rows, self.chunk) - 1)
            again = Stream(
                Kind.ELEMENTWISE, (summed,), (summed,), direction=direction, label="sum of chunks"
            )
            return (
                work,
                again,
                *bias_stream(direction, (rows, v), v * self.use_bias, element_size),
            )
        row, labels = element_size * v, element_size * rows
        # The bias is added where a row is read.
        loss = Stream(
            Kind.REDUCTION, (row * rows, labels), (row * rows, labels),
            row=row, passes=2, label="loss",
        )  # fmt: skip
        return (work, loss)

    def keeps(self, inputs: Shapes, element_size: int, needed: tuple[bool, ...]) -> MemoryNeeds:
        chunk = minimum(product(inputs[0][:-1]), self.chunk)
        gradient = element_size * num_elements(inputs[0]) * needed[0]
        return MemoryNeeds(saved=gradient, forward=element_size * chunk * self.num_outputs)


def _places(labels: Shape) -> Shape:
    """Return the dimensions of labels but the batch; a label for each sample is N x 1."""
    return () if len(labels) == 2 and is_one(labels[1]) else labels[1:]


@layer_type("Accuracy")
class Accuracy(_Judging):
    """Whether each sample's best score is that of its label: N x 1. It has no gradient."""

    kept: ClassVar[MemoryNeeds | None] = MemoryNeeds(ends=True)
