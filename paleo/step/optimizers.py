"""The rules by which parameters are updated: what each keeps, and what its update does.

Which sweeps over parameters (paleo.step.sweeps) an update takes, and by how many kernels, the code
of a framework decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from paleo.cluster.frameworks import NO_FRAMEWORK, Framework
from paleo.core.checks import check_choice
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.operations import MatMul, Update
from paleo.core.quantity import Quantity, ceil_div, maximum
from paleo.core.registry import Registry
from paleo.step import sweeps
from paleo.step.matrices import Matrix
from paleo.step.sweeps import Sweep

#: How PyTorch computes an update, by the arguments of torch.optim: one kernel of many tensors, step
#: by step of many tensors at once (its default on GPUs), or step by step and tensor by tensor.
FUSED, FOREACH, FORLOOP = KERNELS = ("fused", "foreach", "forloop")


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

    `kernels` are those of KERNELS that PyTorch has of it. Its foreach code takes so many `lists` of
    temporaries, each of all parameters' size, and the sweeps of `listed`, by default `steps`.
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
    kernels: tuple[str, ...] = ()
    lists: int = 0
    listed: tuple[Sweep, ...] = ()
    #: The sweeps of a framework whose kernel of it leaves out the decay of weights.
    apart: tuple[Sweep, ...] = ()
    #: Whether it matters which matrices parameters are.
    by_matrix: ClassVar[bool] = False

    def by(self, kernels: str | None) -> Optimizer:
        """Return the optimizer computed by one of KERNELS, None for as its framework does it.

        Raises SettingError for kernels that it does not have.
        """
        if kernels is None:
            return self
        checked_kernels(kernels)
        if kernels not in self.kernels:
            has = f"has {' or '.join(self.kernels)}" if self.kernels else "has no choice of them"
            raise SettingError(f"optimizer_kernels: {self.name} {has}, got {kernels!r}")
        own = replace(self, steps=(), apart=())
        if kernels == FUSED:
            return replace(own, temporaries=0, at_once=True)
        steps = self.steps or self.fused
        if kernels == FORLOOP:
            return replace(own, fused=steps, each=True)
        found = replace(own, temporaries=0, at_once=True, each=False)
        return replace(found, fused=self.listed or steps, of_all=self.lists)

    def kernels_of(self, software: Framework, on_gpu: bool) -> str | None:
        """Return FOREACH where a framework takes it by itself and it needs memory of its own."""
        is_default = software.updates_in_steps and not software.updates_each and on_gpu
        return FOREACH if self.lists and is_default and not self.each else None

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
        states, own = self.at_update(num_params, parameter_size, matrices)
        *found, last = [each + states for each in sums]
        return [*found, last + own]

    def at_update(
        self, num_params: Sequence[int], parameter_size: int, matrices: Sequence[Matrices] = ()
    ) -> tuple[int, int]:
        """Return the bytes that it keeps, and those that its update takes besides."""
        of_layers = zip(num_params, matrices or [()] * len(num_params), strict=True)
        states = sum(self.state_bytes(count, parameter_size, each) for count, each in of_layers)
        own = self.temporaries * max(num_params) + self.of_all * sum(num_params)
        return states, own * parameter_size

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
        large = [each for each in matrices if each.elements >= self.least]
        small = num_params - sum(each.elements for each in large)
        blocks = sum(ceil_div(each.elements, self.block) for each in large)
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
            once = [MatMul(m, n, k, sweeps.HALF, dtype=sweeps.NEWTON_SCHULZ) for m, n, k in sizes]
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


def checked_kernels(kernels: str | None) -> str | None:
    """Return one of KERNELS, or None; raises SettingError for others."""
    return None if kernels is None else str(check_choice("optimizer_kernels", kernels, KERNELS))


def find_optimizer(name: str, kernels: str | None = None) -> Optimizer:
    """Return an optimizer computed by these kernels; raises UnknownNameError or SettingError."""
    return OPTIMIZERS[name].by(kernels)


for _each in (
    Optimizer("sgd", "gradient descent, without momentum", 0, kernels=KERNELS),
    # Polyak, Some methods of speeding up the convergence of iteration methods, 1964.
    Optimizer(
        "momentum",
        "gradient descent with a velocity",
        1,
        fused=(sweeps.MOMENTUM,),
        steps=sweeps.MOMENTUM_STEPS,
        kernels=KERNELS,
    ),
    # Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5, 2012. It divides
    # by a root, and so do the following: it is a tensor of its own.
    Optimizer(
        "rmsprop",
        "a running mean of squared gradients",
        1,
        1,
        fused=(Sweep("rmsprop", 3, 2, 9),),
        steps=sweeps.RMSPROP_STEPS,
        kernels=(FOREACH, FORLOOP),
        lists=1,
    ),
    # Duchi, Hazan and Singer, Adaptive Subgradient Methods, JMLR 12, 2011. Scaled gradients of all
    # parameters are a list, too.
    Optimizer(
        "adagrad",
        "a sum of squared gradients",
        1,
        1,
        fused=(Sweep("adagrad", 3, 2, 7),),
        steps=sweeps.ADAGRAD_STEPS,
        kernels=KERNELS,
        lists=2,
    ),
    # Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015. Its root is
    # corrected for its bias, into another tensor.
    Optimizer(
        "adam",
        "running means of gradients and of their squares",
        2,
        2,
        fused=(sweeps.ADAM,),
        steps=sweeps.ADAM_STEPS,
        kernels=KERNELS,
        lists=1,
    ),
    # NVIDIA apex, csrc/multi_tensor_adam.cu: in any framework.
    Optimizer(
        "fused_adam",
        "Adam in one kernel, as apex's, and PyTorch's with fused=True",
        2,
        fused=(sweeps.ADAM,),
        at_once=True,
        kernels=(FUSED,),
    ),
    # Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
    Optimizer(
        "adamw",
        "Adam, with weight decay apart from the gradient",
        2,
        2,
        fused=(sweeps.ADAMW,),
        steps=sweeps.ADAMW_STEPS,
        kernels=KERNELS,
        lists=1,
        apart=sweeps.DECAY_APART,
    ),
    # No correction of biases, each function a kernel unless a compiler joins them.
    Optimizer(
        "bert_adam",
        "Adam as BERT's own code composes it, with weight decay apart from the gradient",
        2,
        2,
        fused=(Sweep("adamw", 4, 3, 12),),
        steps=sweeps.BERT_ADAM_STEPS,
        composed=True,
    ),
    # Shazeer and Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost, ICML 2018,
    # without a mean of gradients. PyTorch takes it tensor by tensor unless told otherwise.
    Factored(
        "adafactor",
        "means of squared gradients by row and column",
        0,
        1,
        fused=sweeps.ADAFACTOR_STEPS,
        each=True,
        kernels=(FOREACH, FORLOOP),
        lists=1,
        listed=sweeps.ADAFACTOR_LISTED,
    ),
    # X. Chen et al., Symbolic Discovery of Optimization Algorithms, NeurIPS 2023.
    Optimizer(
        "lion",
        "the sign of a running mean of gradients",
        1,
        3,
        fused=(Sweep("lion", 3, 2, 9),),
        steps=sweeps.LION_STEPS,
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
        fused=sweeps.MUON_STEPS,
        each=True,
        other=Optimizer("adamw", "", 2, 2, fused=(sweeps.ADAMW,), steps=sweeps.ADAMW_STEPS),
    ),
    # You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, ICLR
    # 2020, as in apex.
    Optimizer(
        "lamb",
        "Adam, with a rate for each layer by the norms of its weights and of their update",
        2,
        fused=sweeps.LAMB,
        at_once=True,
    ),
):
    OPTIMIZERS.add(_each.name, _each)
OPTIMIZERS.built_in = tuple(OPTIMIZERS)

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
    def before(self) -> tuple[Sweep, ...]:
        """What is done to all gradients first."""
        return (*sweeps.UNSCALING * self.unscaled, *sweeps.CLIPPING * self.clipped)

    @property
    def own(self) -> tuple[Sweep, ...]:
        """The sweeps of the optimizer."""
        rule = self.optimizer
        is_composed = rule.composed and self.software.name and not self.software.compiles
        in_steps = self.software.updates_in_steps or is_composed
        apart = self.software.decays_apart and rule.apart
        return (in_steps and rule.steps) or apart or rule.fused

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """What is done, one after the other."""
        return (*self.before, *self.own)

    def operations(
        self, num_params: Quantity, size: int, tensors: Quantity = 1, matrices: Matrices = ()
    ) -> tuple[Update | MatMul, ...]:
        """Return what a device does to so many parameters of `size` bytes, in so many tensors.

        `matrices` are those that they are, for optimizers `by_matrix`.
        """
        rule, of_each = self.optimizer, maximum(tensors, 1)
        done = [(sweep, num_params) for sweep in self.before]
        done += rule.sweeps_of(self.own, num_params, matrices)
        is_plain = len(done) == 1 and not (rule.states or rule.at_once)
        kernels: Quantity = 1  # of plain descent, whose ever it is
        if rule.each or (self.software.updates_each and not (rule.at_once or is_plain)):
            kernels = of_each
        elif self.software.name and not is_plain:
            kernels = maximum(ceil_div(num_params, _ELEMENTS), ceil_div(tensors, _TENSORS))
        updates = (
            sweep.update(count, size, of_each if sweep.by_tensor else kernels)
            for sweep, count in done
        )
        return (*updates, *rule.products(matrices))


#: Plain gradient descent.
PLAIN = Rule(OPTIMIZERS["sgd"])
