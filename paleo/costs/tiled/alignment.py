"""What it costs if matrices do not lie in memory as matrix units take them.

The pitches of a product are the elements of a row, as they lie in memory, of its matrices: those
of A, B and C are two numbers, whatever is transposed.
"""

from __future__ import annotations

from typing import TypeAlias

from paleo.core.operations import BatchMatMul, MatMul, Pass
from paleo.core.quantity import Quantity, minimum, some

#: Elements of a row of each of two matrices: the third has rows of one of these lengths.
Pitches: TypeAlias = tuple[Quantity, Quantity]

#: Matrix units take rows of operands in pieces of so many bytes; others take several loads, which
#: come at this share of the rate.
_PIECE, _LOADED = 16, 0.5
#: Bytes of a word. Kernels of CUTLASS for Ampere copy rows of whole words to shared memory past the
#: registers (cp.async: 4, 8 or 16 bytes); of other rows each element is loaded by itself.
_WORD = 4
#: From Hopper on, a copy engine brings tiles to the matrix units, from rows that start at whole
#: pieces (CUDA Driver API, cuTensorMapEncodeTiled: globalStrides are multiples of 16). The library
#: computes others by kernels of Ampere, and of Turing where rows are no whole words: as profiles
#: of PyTorch 2.11 (CUDA 13.0) name them on an H100 and an H200, "cutlass_80_tensorop_s16816gemm"
#: and "cutlass_75_tensorop_s1688gemm_..._align1". These are the shares of a product's speed that
#: they reach there in bf16: 235 to 270 and 90 to 145 TFLOP/s, where aligned ones do 600 to 750. On
#: Blackwell none was measured: they are taken to be as quick as on Hopper, a clock of a
#: multiprocessor, where the others are twice as quick.
_OF_WORDS = {"Hopper": 0.35, "Blackwell": 0.17}
_OF_ELEMENTS = {"Hopper": 0.175, "Blackwell": 0.09}
#: On Ampere (and Ada, which has its kernels) rows of no whole words have those of Turing, too:
#: a profile of an A100 names "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x64_tn_align1" for 248,077
#: columns (pegainfer-project/pegainfer, pull request 1046). They are half as quick as Ampere's own,
#: as on Hopper. (Of many products in one kernel nothing is known.)
_OF_TURING = _OF_ELEMENTS["Hopper"] / _OF_WORDS["Hopper"]
_COPYING = ("Ampere", "Ada")
#: Its matrix units take tf32 along K alone (PTX ISA, wgmma.mma_async: only operands of 2 bytes may
#: be transposed), so that a weight gradient, both of whose operands lie along the other dimension,
#: has kernels that turn them: 220 TFLOP/s there, where others do 340.
_TURNED = {"Hopper": 0.65}


def load_share(sizes: tuple[float, float], rows: Pitches, architecture: str) -> Quantity:
    """Return the share of the rate at which operands of so many bytes an element are loaded."""
    if architecture in _OF_WORDS:
        return 1.0
    return _shared(_LOADED, sizes, rows, _PIECE)


def share_of(operation: MatMul, architecture: str) -> Quantity:
    """Return the share of its speed that the library reaches in a layer's product as it lies."""
    size = operation.element_size
    if architecture in _COPYING:
        return _shared(_OF_TURING, (size, size), pitches(operation), _WORD)
    turned: Quantity = 1.0
    if operation.direction is Pass.WEIGHT_GRADIENT and size == _WORD:
        turned = _TURNED.get(architecture, 1.0)
    return minimum(turned, speed_share(size, pitches(operation), architecture))


def speed_share(size: float, rows: Pitches, architecture: str) -> Quantity:
    """Return the share of an aligned product's speed that the library's kernel reaches."""
    if architecture not in _OF_WORDS:
        return 1.0
    words = _shared(_OF_WORDS[architecture], (size, size), rows, _PIECE)
    elements = _OF_ELEMENTS[architecture] / _OF_WORDS[architecture]
    return words * _shared(elements, (size, size), rows, _WORD)


def pitches(operation: MatMul | BatchMatMul) -> Pitches:
    """Return the pitches of a layer's product: all but the rows of its inputs."""
    if operation.direction is Pass.WEIGHT_GRADIENT:
        return operation.m, operation.n
    return operation.k, operation.n


def _shared(share: float, sizes: tuple[float, float], rows: Pitches, piece: int) -> Quantity:
    """Return a share where a row of either matrix is no whole number of pieces, else 1."""
    (first, second), (size_a, size_b) = rows, sizes
    odd = (first * size_a % piece != 0) | (second * size_b % piece != 0)
    return 1.0 - (1.0 - share) * odd if some(odd) else 1.0
