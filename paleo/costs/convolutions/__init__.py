"""Algorithms for convolutions. Importing this registers all of them."""

from __future__ import annotations

# In the order in which, of equally quick ones, the first is taken.
# isort: off
from paleo.costs.convolutions import gemm, direct, winograd, fft

# isort: on
from paleo.costs.convolutions.base import ALGORITHMS, Algorithm, Counts, Kernel
from paleo.costs.convolutions.libraries import LIBRARIES, Library, check_library
from paleo.costs.convolutions.settings import DEFAULT, ConvolutionChoice, convolution_choice

__all__ = [
    "ALGORITHMS",
    "DEFAULT",
    "LIBRARIES",
    "Algorithm",
    "ConvolutionChoice",
    "Counts",
    "Kernel",
    "Library",
    "check_library",
    "convolution_choice",
]
del direct, fft, gemm, winograd
