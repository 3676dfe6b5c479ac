"""The rules by which parameters are updated: what each keeps, and what its update does.

An update goes over all parameters once or several times. Each time is a sweep: of every parameter
it reads and writes elements of so many tensors (weights, gradients, states, what is made on the
way), all in the type of the parameters. Which sweeps there are, and by how many kernels, the code
of a framework decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.cluster.frameworks import NO_FRAMEWORK, Framework
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.operations import Update
from paleo.core.quantity import Quantity, ceil_div, maximum
from paleo.core.registry import Registry


class Sweep(NamedTuple):
    """What is done to each parameter in one go: elements read and written, and FLOPs."""

    name: str
    reads: int
    writes: int
    flops: int


@dataclass(frozen=True)
class Optimizer:
    """A rule by which parameters are updated.

    `states` are tensors of the parameters' size that it keeps from one step to the next;
    `temporaries` those of one layer's size that the update of a layer takes, layer by layer.
    `fused` are the sweeps of a library that does with each parameter in one kernel what it can,
    `steps` those of a framework that takes the formula step by step; without, they are the same.
    Whose code takes many tensors `at_once` does so in every framework; whose code is `composed` of
    a framework's functions takes steps wherever those are not fused.
    """

    name: str
    summary: str
    states: int
    temporaries: int = 0
    fused: tuple[Sweep, ...] = (Sweep("", 2, 1, 2),)
    steps: tuple[Sweep, ...] = ()
    at_once: bool = False
    composed: bool = False

    def added(
        self, sums: Sequence[Any], num_params: Sequence[int], parameter_size: int
    ) -> list[Any]:
        """Return the bytes at the points of a step, the last of them the update, with its own.

        `num_params` are the parameters layer by layer, of so many bytes each.
        """
        states = self.states * parameter_size * sum(num_params)
        *found, last = [each + states for each in sums]
        return [*found, last + self.temporaries * parameter_size * max(num_params)]


OPTIMIZERS: Registry[Optimizer] = Registry("optimizer")

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
        fused=(Sweep("adamw", 4, 3, 14),),
        steps=(Sweep("weight decay", 1, 1, 1), *_ADAM_STEPS),
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
        self, num_params: Quantity, size: int, tensors: Quantity = 1
    ) -> tuple[Update, ...]:
        """Return what a device does to so many parameters of `size` bytes, in so many tensors."""
        sweeps = self.sweeps
        kernels: Quantity = 1
        if len(sweeps) > 1 or self.optimizer.states:  # plain descent is a kernel, whose ever it is
            if self.software.updates_each and not self.optimizer.at_once:
                kernels = maximum(tensors, 1)
            elif self.software.name:
                kernels = maximum(ceil_div(num_params, _ELEMENTS), ceil_div(tensors, _TENSORS))
        return tuple(
            Update(num_params, size, each.reads, each.writes, each.flops, kernels, each.name)
            for each in sweeps
        )


#: Plain gradient descent.
PLAIN = Rule(OPTIMIZERS["sgd"])
