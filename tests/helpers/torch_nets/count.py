"""FLOPs of a net by PyTorch's own counter, to compare Paleo's with.

What `torch.utils.flop_counter.FlopCounterMode` of PyTorch 2.13.0 counts: matrix products (mm,
addmm, bmm, baddbmm), convolutions and fused attention, a multiply-add as two. No bias, activation,
pooling, normalization, softmax or other elementwise work; padding as if it were data.

Where it is wrong, and what is done here about it:

- The weights' gradient of a convolution in g groups is counted g times: its formula takes no
  notice of the groups. AlexNet's backward pass is 2.42 times its forward pass by it (1.85), that of
  MobileNet v1 9.47 times (1.98), of MobileNet v2 19.4 times (1.96). `flops` counts without this
  error, `raw_flops` with it. (Forward passes and the inputs' gradients are right, for the weights'
  shape already has the groups.)
- LSTM and GRU are counted through the matrix products they decompose into, as they do on the meta
  device (the GRU on a CPU too), from which the first step's gradient of the initial state is
  missing: nobody needs it. Where they are one operation they count nothing: the LSTM on a CPU
  (mkldnn_rnn_layer), both on a GPU (_cudnn_rnn).
- Fused attention is one operation without a formula on a CPU and counts nothing there; the meta
  device decomposes it, so that the two matrix products count, and twice as much backward. A GPU's
  has formulas, whose backward pass is 2.5 times the forward pass, since it computes the scores
  again. A causal mask saves nothing anywhere.
- Products of a matrix and a vector (mv, addmv, dot) and `nn.Bilinear` count nothing.

Counting is on the meta device, which has shapes only: nothing is computed, so it is quick.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

aten = torch.ops.aten

# Operations that compute products and for which FlopCounterMode has no formula.
UNCOUNTED = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_cudnn_rnn",
    "mkldnn_rnn_layer",
    "mv",
    "addmv",
    "dot",
    "_trilinear",
)

Factory = Callable[[], nn.Module]


def _convolution_backward(
    grad_out: Sequence[int],
    x: Sequence[int],
    weight: Sequence[int],
    _bias: object,
    _stride: object,
    _padding: object,
    _dilation: object,
    transposed: bool,
    _output_padding: object,
    _groups: int,
    output_mask: Sequence[bool],
    out_shape: object,
    **_: object,
) -> int:
    """Count a convolution's backward pass: each of its two gradients costs what forward does."""
    forward = conv_flop_count(list(x), list(weight), list(grad_out), transposed=transposed)
    return forward * sum(output_mask[:2])


CORRECTED = {aten.convolution_backward: _convolution_backward}


def build(factory: Factory, shape: Sequence[int], dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    """Make a net for training and an input of this shape, both without data."""
    with torch.device("meta"):
        net = factory().train()
        x = torch.empty(tuple(shape), dtype=dtype)
    return net, x


def total(output: Any) -> Tensor:
    """Add up whatever a net returns."""
    if isinstance(output, Tensor):
        return output.sum()
    return sum((total(part) for part in output), start=torch.zeros((), device="meta"))


def _count(
    factory: Factory,
    shape: Sequence[int],
    batch: int,
    dtype: torch.dtype,
    mapping: Mapping[Any, Any] | None,
) -> tuple[int, int]:
    net, x = build(factory, (batch, *shape[1:]), dtype)
    with FlopCounterMode(display=False, custom_mapping=dict(mapping or {})) as forward:
        loss = total(net(x))
    with FlopCounterMode(display=False, custom_mapping=dict(mapping or {})) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def flops(
    factory: Factory,
    shape: Sequence[int],
    *,
    batch: int = 2,
    dtype: torch.dtype = torch.float32,
) -> tuple[int, int]:
    """Count a training step of `batch` samples: its forward pass, and its backward pass.

    The first dimension of `shape` is replaced by `batch`. The input needs no gradient, so the
    first layer's backward pass is that of its weights alone. Grouped convolutions count right.
    """
    return _count(factory, shape, batch, dtype, CORRECTED)


def raw_flops(
    factory: Factory,
    shape: Sequence[int],
    *,
    batch: int = 2,
    dtype: torch.dtype = torch.float32,
) -> tuple[int, int]:
    """Count as `flops` does, with PyTorch's own formula for grouped convolutions."""
    return _count(factory, shape, batch, dtype, None)


def flops_by_module(
    factory: Factory,
    shape: Sequence[int],
    *,
    batch: int = 2,
    dtype: torch.dtype = torch.float32,
) -> dict[str, int]:
    """Count the forward pass of each module that has no modules inside and does count something.

    What a module with others inside computes by itself, such as a product of two matrices in its
    `forward`, is under its own name, without what is inside.
    """
    net, x = build(factory, (batch, *shape[1:]), dtype)
    with FlopCounterMode(display=False) as counter:
        net(x)
    root = type(net).__name__
    inclusive = {
        "" if name in ("Global", root) else name.removeprefix(f"{root}."): sum(counts.values())
        for name, counts in counter.get_flop_counts().items()
    }
    own = {}
    for name, module in net.named_modules():
        children = [f"{name}.{child}" if name else child for child, _ in module.named_children()]
        rest = inclusive.get(name, 0) - sum(inclusive.get(child, 0) for child in children)
        if rest:
            own[name] = rest
    return own


def parameters(factory: Factory) -> int:
    """Count a net's parameters; those used twice count once."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in factory().parameters())
