"""Well-known nets, and small odd ones, as PyTorch modules: what Paleo's importer is tested with.

`NETS` has the well-known ones by name, `published_nets.py` what they take and what is known;
`SMALL_NETS` has the small ones with their inputs. The well-known ones are written from their
publications, in training form, their modules named as their authors named the layers.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from published_nets import COUNTED, INPUTS, PUBLISHED, VOCABULARY, Published
from torch import nn

from . import (
    classic,
    compact,
    inception,
    mobile,
    others,
    pyramids,
    residual,
    resnets,
    small_sequence,
    small_vision,
    transformer_xl,
    transformers,
)

__all__ = [
    "COUNTED",
    "INPUTS",
    "NETS",
    "PUBLISHED",
    "SMALL_NETS",
    "VOCABULARY",
    "Published",
    "SmallNet",
]

_MODULES = (
    classic, compact, inception, mobile, residual, resnets, others, pyramids, transformers,
    transformer_xl,
)  # fmt: skip

NETS: dict[str, Callable[[], nn.Module]] = {
    name: next(getattr(module, name) for module in _MODULES if hasattr(module, name))
    for name in INPUTS
}


class SmallNet(NamedTuple):
    """A net, and the shape (batch 2) and type of what it takes."""

    factory: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    vocabulary: int | None = None  # integers must be below this


SMALL_NETS: dict[str, SmallNet] = {
    "mlp": SmallNet(small_vision.mlp, (2, 64)),
    "conv_1d": SmallNet(small_vision.conv_1d, (2, 4, 256)),
    "conv_3d": SmallNet(small_vision.conv_3d, (2, 1, 8, 32, 32)),
    "odd_convolutions": SmallNet(small_vision.odd_convolutions, (2, 3, 48, 40)),
    "deconvolution": SmallNet(small_vision.deconvolution, (2, 20)),
    "squeeze_excite": SmallNet(small_vision.SqueezeExciteNet, (2, 3, 32, 32)),
    "convnext": SmallNet(small_vision.ConvNeXt, (2, 3, 32, 32)),
    "shufflenet": SmallNet(small_vision.ShuffleNet, (2, 3, 32, 32)),
    "upsampled_unet": SmallNet(small_vision.UpsampledUNet, (2, 1, 32, 48)),
    "norms": SmallNet(small_vision.norms, (2, 3, 32, 32)),
    "encoder": SmallNet(small_sequence.Encoder, (2, 16), torch.int64, 1000),
    "stock_encoder": SmallNet(small_sequence.StockEncoder, (2, 20, 40)),
    "gpt": SmallNet(small_sequence.GPT, (2, 24), torch.int64, 1000),
    "vit": SmallNet(small_sequence.ViT, (2, 3, 32, 32)),
    "tagger": SmallNet(small_sequence.Tagger, (2, 12), torch.int64, 500),
    "swin": SmallNet(small_sequence.Swin, (2, 3, 32, 32)),
    "einsum_attention": SmallNet(small_sequence.EinsumAttention, (2, 10, 48)),
}
