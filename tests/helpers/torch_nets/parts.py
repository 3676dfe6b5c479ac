"""What several of the nets are built from."""

from collections import OrderedDict

import torch
from torch import Tensor, nn


def sequence(**layers: nn.Module) -> nn.Sequential:
    """Layers one after the other, with these names."""
    return nn.Sequential(OrderedDict(layers))


class Branches(nn.ModuleDict):
    """Branches side by side, their outputs concatenated along the channels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.values()], dim=1)


class Residual(nn.Sequential):
    """Layers one after the other, their output added to their input."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Dense(nn.Sequential):
    """Layers one after the other, their output appended to their input's channels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, super().forward(x)], dim=1)
