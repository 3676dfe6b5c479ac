"""The rules by which parameters are updated: what each keeps, and what its update does.

An update goes over all parameters once or several times. Each time is a sweep: of every parameter
it reads and writes elements of so many tensors (weights, gradients, states, what is made on the
way), all in the type of the parameters. Which sweeps there are, and by how many kernels, the code
of a framework decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from paleo.cluster.frameworks import NO_FRAMEWORK, Framework
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import MatMul, Update
from paleo.core.quantity import Quantity, ceil_div, maximum
from paleo.core.registry import Registry
from paleo.step.matrices import Matrix


class Sweep(NamedTuple):
    """What is done to each parameter in one go: elements read and written, and FLOPs."""

    name: str
    reads: int
    writes: int
    flops: int
    #: Bytes besides, of what is in another type than parameters are.
    bytes_read: int = 0
    bytes_written: int = 0

    def update(self, num_params: Quantity, size: int, kernels: Quantity) -> Update:
        """Return what it does to so many parameters of `size` bytes, by so many kernels."""
        read, written = self.reads, self.writes
        if self.bytes_read or self.bytes_written:
            read, written = size * read + self.bytes_read, size * written + self.bytes_written
            size = 1
        return Update(num_params, size, read, written, self.flops, kernels, self.name)


@dataclass(frozen=True)
class Optimizer:
    """A rule by which parameters are updated.

    `states` are tensors of the parameters' size that it keeps from one step to the next;
    `temporaries` those of one layer's size that the update of a layer takes, layer by layer.
    `fused` are the sweeps of a library that does with each parameter in one kernel what it can,
    `steps` those of a framework that takes the formula step by step; without, they are the same.
    Whose code takes many tensors `at_once` does so in every framework, whose code takes `each` by
    itself takes a kernel for each; whose code is `composed` of a framework's functions takes steps
    wherever those are not fused. `of_all` are temporaries of all parameters' size.
    """

    name: str
    summary: str
    states: int
    temporaries: int = 0
    fused: tuple[Sweep, ...] = (Sweep("", 2, 1, 2),)
    steps: tuple[Sweep, ...] = ()
    at_once: bool = False
    composed: bool = False
    each: bool = False
    of_all: int = 0
    #: Whether it matters which matrices parameters are.
    by_matrix: ClassVar[bool] = False

    def added(
        self,
        sums: Sequence[Any],
        num_params: Sequence[int],
        parameter_size: int,
        matrices: Sequence[Matrices] = (),
    ) -> list[Any]:
        """Return the bytes at the points of a step, the last of them the update, with its own.

        `num_params` are the parameters layer by layer, of so many bytes each, and `matrices` those
        that they are, for optimizers `by_matrix`.
        """
        of_layers = zip(num_params, matrices or [()] * len(num_params), strict=True)
        states = sum(self.state_bytes(count, parameter_size, each) for count, each in of_layers)
        *found, last = [each + states for each in sums]
        own = self.temporaries * max(num_params) + self.of_all * sum(num_params)
        return [*found, last + own * parameter_size]

    def state_bytes(self, num_params: int, size: int, matrices: Matrices = ()) -> int:
        """Return the bytes that it keeps of a layer's parameters, which have `size` bytes each."""
        return self.states * size * num_params

    def products(self, matrices: Matrices) -> tuple[MatMul, ...]:
        """Return the matrix products of its update of a layer."""
        return ()

    def sweeps_of(
        self, own: tuple[Sweep, ...], num_params: Quantity, matrices: Matrices
    ) -> tuple[tuple[Sweep, Quantity], ...]:
        """Return the sweeps of an update, each with how many of the parameters it goes over."""
        return tuple((sweep, num_params) for sweep in own)


#: Those of a layer, or of all.
Matrices = Sequence[Matrix]


@dataclass(frozen=True)
class Factored(Optimizer):
    """Keeps of the squares of a matrix means of its rows and of its columns, of others all."""

    by_matrix: ClassVar[bool] = True

    def state_bytes(self, num_params: int, size: int, matrices: Matrices = ()) -> int:
        factored = sum(each.elements for each in matrices)
        kept = sum(each.number * (each.rows + each.columns) for each in matrices)
        return size * (kept + num_params - factored)


@dataclass(frozen=True)
class InBytes(Optimizer):
    """Keeps states of large tensors in a byte each, with a scale in fp32 for each block of them."""

    by_matrix: ClassVar[bool] = True
    block: int = 256
    least: int = 4096

    def state_bytes(self, num_params: int, size: int, matrices: Matrices = ()) -> int:
        large = [each for each in matrices if each.rows * each.columns >= self.least]
        small = num_params - sum(each.elements for each in large)
        blocks = sum(each.number * ceil_div(each.rows * each.columns, self.block) for each in large)
        one = sum(each.elements for each in large) + 4 * blocks
        return int(self.states * (one + 4 * small))


@dataclass(frozen=True)
class Orthogonal(Optimizer):
    """Makes the momentum of each hidden matrix orthogonal by Newton-Schulz iterations.

    All other parameters have the optimizer `other`.
    """

    by_matrix: ClassVar[bool] = True
    other: Optimizer | None = None
    iterations: int = 5

    def state_bytes(self, num_params: int, size: int, matrices: Matrices = ()) -> int:
        assert self.other
        hidden = sum(each.elements for each in matrices if each.is_hidden)
        return self.states * size * hidden + self.other.state_bytes(num_params - hidden, size)

    def products(self, matrices: Matrices) -> tuple[MatMul, ...]:
        """X X^T = A of r x c, r the shorter; b A + c A A; a X + that X: 4 r r c + 2 r r r FLOPs."""
        found: list[MatMul] = []
        for each in matrices:
            r, c = sorted((each.rows, each.columns))
            sizes = ((r, r, c), (r, r, r), (r, c, r)) if each.is_hidden else ()
            once = [MatMul(m, n, k, _HALF, dtype=_NEWTON_SCHULZ) for m, n, k in sizes]
            found += self.iterations * each.number * once
        return tuple(found)

    def sweeps_of(
        self, own: tuple[Sweep, ...], num_params: Quantity, matrices: Matrices
    ) -> tuple[tuple[Sweep, Quantity], ...]:
        assert self.other
        hidden = sum(each.elements for each in matrices if each.is_hidden)
        others = self.other.steps or self.other.fused
        return (
            *((sweep, hidden) for sweep in own),
            *((sweep, num_params - hidden) for sweep in others),
        )


OPTIMIZERS: Registry[Optimizer] = Registry("optimizer")

#: The type that Newton-Schulz iterations are computed in, and its bytes.
_NEWTON_SCHULZ, _HALF = "bf16", 2

#: Steps that several have: a root, and a small number added to it.
_ROOT, _SMALL = Sweep("square root", 1, 1, 1), Sweep("epsilon added", 1, 1, 1)
_DIVIDED = Sweep("quotient added to weights", 3, 1, 3)
_SQUARES = (Sweep("mean of squares scaled", 1, 1, 1), Sweep("squares added", 2, 1, 3))
#: Weights, gradient and both means are read, all but the gradient written.
_ADAM = Sweep("adam", 4, 3, 13)
_ADAM_STEPS = (
    Sweep("mean of gradients", 2, 1, 3),
    *_SQUARES,
    _ROOT,
    Sweep("bias corrected", 1, 1, 1),
    _SMALL,
    _DIVIDED,
)

_ADAMW_STEPS = (Sweep("weight decay", 1, 1, 1), *_ADAM_STEPS)
_ADAMW = Sweep("adamw", 4, 3, 14)
#: PyTorch, torch/optim/_adafactor.py, _single_tensor_adafactor: of a matrix; others have less.
_ADAFACTOR_STEPS = (
    Sweep("norm of weights", 1, 0, 2),
    Sweep("squares of rows", 1, 0, 2),
    Sweep("squares of columns", 1, 0, 2),
    Sweep("rows times columns", 0, 1, 1),
    Sweep("squares scaled", 1, 1, 1),
    Sweep("squares clamped", 1, 1, 1),
    Sweep("inverse root", 1, 1, 1),
    Sweep("update", 2, 1, 1),
    Sweep("norm of the update", 1, 0, 2),
    Sweep("update added to weights", 2, 1, 2),
)
#: google/automl, lion/lion_pytorch.py.
_LION_STEPS = (
    Sweep("weight decay", 1, 1, 1),
    Sweep("momentum scaled", 1, 1, 1),
    Sweep("gradient scaled", 1, 1, 1),
    Sweep("update", 2, 1, 1),
    Sweep("sign", 1, 1, 1),
    Sweep("sign added to weights", 2, 1, 2),
    Sweep("momentum scaled", 1, 1, 1),
    Sweep("gradient added", 2, 1, 2),
)
#: PyTorch, torch/optim/_muon.py: products apart.
_MUON_STEPS = (
    Sweep("momentum", 2, 1, 3),
    Sweep("Nesterov's momentum", 2, 1, 3),
    Sweep("cast", 1, 0, 0, bytes_written=_HALF),
    Sweep("norm", 0, 0, 2, bytes_read=_HALF),
    Sweep("divided by the norm", 0, 0, 1, bytes_read=_HALF, bytes_written=_HALF),
    Sweep("weight decay", 1, 1, 1),
    Sweep("update added to weights", 1, 1, 2, bytes_read=_HALF),
)

# Steps are those of PyTorch, torch/optim: `_multi_tensor_*` of sgd.py, rmsprop.py, adagrad.py and
# adam.py, a kernel each (for many tensors) with the defaults of momentum and weight decay. Fused
# are its `_fused_*`, TensorFlow's ResourceApply* (core/kernels/training_ops_gpu.cu.cc) and MXNet's
# src/operator/optimizer_op-inl.h.
for _each in (
    Optimizer("sgd", "gradient descent, without momentum", 0),
    # Polyak, Some methods of speeding up the convergence of iteration methods, 1964.
    Optimizer(
        "momentum",
        "gradient descent with a velocity",
        1,
        fused=(Sweep("momentum", 3, 2, 4),),
        steps=(
            Sweep("velocity scaled", 1, 1, 1),
            Sweep("gradient added", 2, 1, 2),
            Sweep("weights", 2, 1, 2),
        ),
    ),
    # Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5, 2012. It divides
    # by a root, and so do the following: it is a tensor of its own.
    Optimizer(
        "rmsprop",
        "a running mean of squared gradients",
        1,
        1,
        fused=(Sweep("rmsprop", 3, 2, 9),),
        steps=(*_SQUARES, _ROOT, _SMALL, _DIVIDED),
    ),
    # Duchi, Hazan and Singer, Adaptive Subgradient Methods, JMLR 12, 2011.
    Optimizer(
        "adagrad",
        "a sum of squared gradients",
        1,
        1,
        fused=(Sweep("adagrad", 3, 2, 7),),
        steps=(
            Sweep("squares added", 2, 1, 2),
            _ROOT,
            _SMALL,
            Sweep("gradient scaled", 1, 1, 1),
            Sweep("quotient added to weights", 3, 1, 2),
        ),
    ),
    # Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015. Its root is
    # corrected for its bias, into another tensor.
    Optimizer(
        "adam",
        "running means of gradients and of their squares",
        2,
        2,
        fused=(_ADAM,),
        steps=_ADAM_STEPS,
    ),
    # Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
    Optimizer(
        "adamw",
        "Adam, with weight decay apart from the gradient",
        2,
        2,
        fused=(_ADAMW,),
        steps=_ADAMW_STEPS,
    ),
    # google-research/bert, optimization.py, AdamWeightDecayOptimizer: no correction of biases, each
    # function a kernel unless a compiler joins them.
    Optimizer(
        "bert_adam",
        "Adam as BERT's own code composes it, with weight decay apart from the gradient",
        2,
        2,
        fused=(Sweep("adamw", 4, 3, 12),),
        steps=(
            Sweep("mean of gradients scaled", 1, 1, 1),
            Sweep("gradient scaled", 1, 1, 1),
            Sweep("mean of gradients", 2, 1, 1),
            Sweep("mean of squares scaled", 1, 1, 1),
            Sweep("gradient squared", 1, 1, 1),
            Sweep("squares scaled", 1, 1, 1),
            Sweep("mean of squares", 2, 1, 1),
            _ROOT,
            _SMALL,
            Sweep("quotient", 2, 1, 1),
            Sweep("weight decay", 1, 1, 1),
            Sweep("weight decay added", 2, 1, 1),
            Sweep("rate", 1, 1, 1),
            Sweep("new weights", 2, 1, 1),
            Sweep("weights kept", 1, 1, 0),
            Sweep("mean of gradients kept", 1, 1, 0),
            Sweep("mean of squares kept", 1, 1, 0),
        ),
        composed=True,
    ),
    # PyTorch, torch.optim.Adam with fused=True; NVIDIA apex, csrc/multi_tensor_adam.cu.
    Optimizer(
        "fused_adam",
        "Adam in one kernel, as PyTorch's with fused=True and apex's",
        2,
        fused=(_ADAM,),
        at_once=True,
    ),
    Optimizer("fused_adamw", "AdamW in one kernel", 2, fused=(_ADAMW,), at_once=True),
    Optimizer(
        "fused_momentum",
        "momentum in one kernel, as PyTorch's SGD with fused=True",
        1,
        fused=(Sweep("momentum", 3, 2, 4),),
        at_once=True,
    ),
    # PyTorch's foreach=True, its default on GPUs: a root of all parameters is there at once.
    *(
        Optimizer(
            f"foreach_{name}",
            f"{title} step by step, many tensors at once, as PyTorch's with foreach=True",
            2,
            fused=steps,
            at_once=True,
            of_all=1,
        )
        for name, title, steps in (("adam", "Adam", _ADAM_STEPS), ("adamw", "AdamW", _ADAMW_STEPS))
    ),
    # With foreach=False, tensor by tensor.
    *(
        Optimizer(
            f"forloop_{name}",
            f"{title} step by step and tensor by tensor, as PyTorch's with foreach=False",
            2,
            2,
            fused=steps,
            each=True,
        )
        for name, title, steps in (("adam", "Adam", _ADAM_STEPS), ("adamw", "AdamW", _ADAMW_STEPS))
    ),
    # Shazeer and Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost, ICML 2018,
    # without a mean of gradients.
    Factored(
        "adafactor",
        "means of squared gradients by row and column",
        0,
        1,
        fused=_ADAFACTOR_STEPS,
        each=True,
    ),
    # X. Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023.
    Optimizer(
        "lion",
        "the sign of a running mean of gradients",
        1,
        3,
        fused=(Sweep("lion", 3, 2, 9),),
        steps=_LION_STEPS,
    ),
    # T. Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022, as in
    # bitsandbytes: blocks of 256, tensors of fewer than 4,096 elements in fp32.
    InBytes(
        "adam_8bit",
        "Adam with means in a byte each, as bitsandbytes'",
        2,
        fused=(Sweep("adam in bytes", 2, 1, 13, bytes_read=2, bytes_written=2),),
        each=True,
    ),
    # K. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024.
    Orthogonal(
        "muon",
        "orthogonal momenta of hidden matrices by 5 Newton-Schulz iterations, AdamW of all else",
        1,
        2,
        fused=_MUON_STEPS,
        each=True,
        other=Optimizer("adamw", "", 2, 2, fused=(_ADAMW,), steps=_ADAMW_STEPS),
    ),
    # You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, ICLR
    # 2020, as in NVIDIA apex, csrc/multi_tensor_lamb.cu and multi_tensor_l2norm_kernel.cu: the norm
    # of all gradients; Adam's update of each parameter, in its gradient's place; the norms of
    # weights and updates; the update.
    Optimizer(
        "lamb",
        "Adam, with a rate for each layer by the norms of its weights and of their update",
        2,
        fused=(
            Sweep("norm of gradients", 1, 0, 2),
            Sweep("update of each", 4, 3, 16),
            Sweep("norms of weights", 1, 0, 2),
            Sweep("norms of updates", 1, 0, 2),
            Sweep("weights", 2, 1, 2),
        ),
        at_once=True,
    ),
):
    OPTIMIZERS.add(_each.name, _each)
OPTIMIZERS.built_in = tuple(OPTIMIZERS)

#: By torch.nn.utils.clip_grad_norm_: the norms of all gradients, which are then scaled.
_CLIPPING = (Sweep("norm of gradients", 1, 0, 2), Sweep("gradients clipped", 1, 1, 1))
#: By torch.amp.GradScaler, aten/src/ATen/native/cuda/AmpKernels.cu: it looks for infinities, too.
_UNSCALING = (Sweep("gradients unscaled", 1, 1, 2),)
#: PyTorch's aten/src/ATen/native/cuda/MultiTensorApply.cuh: a kernel has up to 320 blocks, each of
#: 65,536 elements of a tensor, and as many tensors if they are in three lists; apex's are alike.
_ELEMENTS, _TENSORS = 320 * 65536, 48


@dataclass(frozen=True)
class Rule:
    """How parameters are updated: the optimizer, by whose code, and what is done before.

    Gradients are `clipped` to a norm over all of them, and `unscaled` where the loss was scaled.
    """

    optimizer: Optimizer
    software: Framework = NO_FRAMEWORK
    clipped: bool = False
    unscaled: bool = False

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """What is done to all parameters, one after the other."""
        rule = self.optimizer
        is_composed = rule.composed and self.software.name and not self.software.compiles
        in_steps = self.software.updates_in_steps or is_composed
        own = (in_steps and rule.steps) or rule.fused
        return (*_UNSCALING * self.unscaled, *_CLIPPING * self.clipped, *own)

    def operations(
        self, num_params: Quantity, size: int, tensors: Quantity = 1, matrices: Matrices = ()
    ) -> tuple[Update | MatMul, ...]:
        """Return what a device does to so many parameters of `size` bytes, in so many tensors.

        `matrices` are those that they are, for optimizers `by_matrix`.
        """
        sweeps = self.sweeps
        kernels: Quantity = 1
        if self.optimizer.each:
            kernels = maximum(tensors, 1)
        elif (
            len(sweeps) > 1 or self.optimizer.states
        ):  # plain descent is a kernel, whose ever it is
            if self.software.updates_each and not self.optimizer.at_once:
                kernels = maximum(tensors, 1)
            elif self.software.name:
                kernels = maximum(ceil_div(num_params, _ELEMENTS), ceil_div(tensors, _TENSORS))
        return (
            *(
                sweep.update(count, size, kernels)
                for sweep, count in self.optimizer.sweeps_of(sweeps, num_params, matrices)
            ),
            *self.optimizer.products(matrices),
        )


#: Plain gradient descent.
PLAIN = Rule(OPTIMIZERS["sgd"])
