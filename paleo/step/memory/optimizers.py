"""The rules by which parameters are updated, and what each keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.core.frozen import dataclass
from paleo.core.registry import Registry


@dataclass(frozen=True)
class Optimizer:
    """A rule by which parameters are updated.

    `states` are tensors of the parameters' size that it keeps from one step to the next;
    `temporaries` those of one layer's size that the update of a layer takes, layer by layer.
    """

    name: str
    summary: str
    states: int
    temporaries: int = 0

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

for _each in (
    Optimizer("sgd", "gradient descent, without momentum", 0),
    # Polyak, Some methods of speeding up the convergence of iteration methods, 1964.
    Optimizer("momentum", "gradient descent with a velocity", 1),
    # Tieleman and Hinton, Neural Networks for Machine Learning, lecture 6.5, 2012. It divides
    # by a root, and so do the following: it is a tensor of its own.
    Optimizer("rmsprop", "a running mean of squared gradients", 1, 1),
    # Duchi, Hazan and Singer, Adaptive Subgradient Methods, JMLR 12, 2011.
    Optimizer("adagrad", "a sum of squared gradients", 1, 1),
    # Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015. Its root is
    # corrected for its bias, into another tensor.
    Optimizer("adam", "running means of gradients and of their squares", 2, 2),
    # Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
    Optimizer("adamw", "Adam, with weight decay apart from the gradient", 2, 2),
):
    OPTIMIZERS.add(_each.name, _each)
