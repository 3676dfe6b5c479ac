"""Convolutions of groups by kernels without tiles: each lane sums up results by itself.

Libraries have tiles, whose operands many results share, for some sizes of groups and windows alone.
What has none loads two operands for every multiplication, and takes the longer the more of them
there are: R S C / g for each result.
"""

from __future__ import annotations

from typing import Any

from paleo.core.operations import Convolution, Pass
from paleo.core.quantity import Quantity, maximum, minimum, smallest
from paleo.costs.convolutions.direct import is_depthwise
from paleo.costs.convolutions.settings import CHANNELS_LAST, CONTIGUOUS
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import moved
from paleo.costs.times import Time

#: Bytes of the largest elements of which any of this is known.
_HALF = 2
#: Before this generation kernels with tiles, of channels last, are for a few sizes of groups alone:
#: as ResNeXt has them, or so many channels and more, but for the filter's gradient. (8 stands for
#: the last 8.) All others are computed by kernels that profiles call conv2d_grouped_direct_kernel
#: and wgrad2d_grouped_direct_kernel: pytorch/pytorch, issue 34977, where groups of 64 channels
#: take 30 to 40 times as long as in the other order and smaller ones of ResNeXt-101 do not.
_TILED_GROUPS, _LAST_8 = 8.5, 8
_RESNEXT, _MULTIPLE, _WIDE = 32, 32, 128
#: The share of the lanes' rate in these kernels. (Steps of a random half of timm's 26 nets with
#: such groups on the RTX 3090: 5 % off, 14 % the other half.)
_GROUPED = 0.061
#: Elements of the largest window for which there are kernels of single channels that read an image
#: once. Contiguous PyTorch asks cuDNN for windows up to 5 x 5
#: (aten/src/ATen/native/Convolution.cpp, check_cudnn_depthwise_workload_with_filter) and computes
#: others itself (cuda/DepthwiseConv2d.cu). Channels last it asks cuDNN for all, which has them up
#: to 7 x 7.
_WINDOW = {CONTIGUOUS: 25, CHANNELS_LAST: 49}
#: The share of the lanes' rate for others. (Steps of ConvMixer-1536/20 on the RTX 3090. Those of
#: 1024/20 are then off by -3 and +17 %, of 768/32 by -8 and 0, contiguous and channels last, and by
#: -53, -79, -48 and +4 without; three MixNets by 20 to 29 %, by 31 to 43 without.)
_SINGLE = {CONTIGUOUS: 0.038, CHANNELS_LAST: 0.011}


def is_untiled(operation: Convolution, machine: Machine) -> Any:
    """Return whether the library has nothing but these kernels for a convolution.

    An array of that where windows or groups are arrays: of several convolutions.
    """
    no_units = machine.matrix_peak is None or machine.vector_peak is None
    if no_units or operation.element_size > _HALF:
        return False
    is_last = machine.memory_format == CHANNELS_LAST
    library = smallest(machine.library)
    is_old = library < _TILED_GROUPS and library != _LAST_8
    is_large = operation.window_elements > _WINDOW[machine.memory_format]
    is_single = is_depthwise(operation) & is_large & (is_old | (not is_last))
    if not (is_old and is_last):
        return is_single
    groups = operation.groups
    c, k = operation.in_channels // groups, operation.out_channels // groups
    is_resnext = (c == k) & (c <= _RESNEXT) & (c & (c - 1) == 0) & (groups % _MULTIPLE == 0)
    is_wide = (minimum(c, k) >= _WIDE) & (operation.direction is not Pass.WEIGHT_GRADIENT)
    return is_single | ((groups > 1) & (c > 1) & (1 * (is_resnext | is_wide) == 0))


def untiled(operation: Convolution, machine: Machine) -> Time:
    """Return the time of such a kernel."""
    assert machine.vector_peak is not None
    single = 1 * is_depthwise(operation)
    share: Quantity = _GROUPED + single * (_SINGLE[machine.memory_format] - _GROUPED)
    compute = operation.flops / (machine.vector_rate * share)
    memory = moved(operation.work.num_bytes, machine)
    return Time(compute, memory, machine.launch, maximum(compute, memory) + machine.launch)
