"""Training with products in fp8: how tensors are cast for them, with scales.

NVIDIA's Transformer Engine has these recipes, and Megatron-LM their names (--fp8-recipe): operands
of products of linear layers are cast to 8 bits where they are multiplied, sums and all else stay
in 2 bytes (Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433). A product
reads an operand along the dimension that it sums over, and each operand is in two products that
sum over different ones: so a cast writes it twice, along its rows and along its columns
(Transformer Engine, "Low precision training": Hopper's matrix units take no other order, and
scales of blocks differ by direction).
"""

from __future__ import annotations

from paleo.core.frozen import NamedTuple

#: The element type of the operands.
FP8 = "fp8"
#: Copies of an operand, by rows and by columns.
COPIES = 2
#: A product's sides are multiples of so many numbers, or it stays in 2 bytes (Transformer Engine,
#: pytorch/utils.py, assert_dim_for_fp8_exec).
SIDE = 16


class Scaling(NamedTuple):
    """A recipe: `block` numbers share a scale of `scale_size` bytes; 0: all of a tensor.

    `looks_first` are recipes whose scale is found by a kernel that reads all numbers before.
    `architectures` are those whose matrix units take it, all that know fp8 where none is named.
    """

    name: str
    summary: str
    block: int = 0
    scale_size: int = 4
    looks_first: bool = False
    architectures: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """Bytes of a number with its part of a scale, in one copy."""
        return 1 + self.scale_size / self.block if self.block else 1.0


#: By the names of element types that stand for them.
SCALINGS = {
    "mixed_fp8_delayed": Scaling("delayed", "a scale for each tensor, from steps before"),
    "mixed_fp8_tensorwise": Scaling(
        "tensorwise", "a scale for each tensor, of its largest number", looks_first=True
    ),
    # DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437, section 3.3.2: 1 x 128 of
    # activations and gradients. (Of weights 128 x 128, whose scales are fewer still.)
    "mixed_fp8_blockwise": Scaling("blockwise", "a scale for each 128 numbers", 128),
    # Open Compute Project, Microscaling formats specification 1.0, table 1.
    "mixed_mxfp8": Scaling(
        "mxfp8", "a scale of 8 bits for each 32 numbers", 32, 1,
        architectures=("Blackwell", "Blackwell RTX"),
    ),
}  # fmt: skip


class Scaled(NamedTuple):
    """What of a node is cast to fp8, and where.

    A product `casts` its input unless another did before it; it casts the gradient of its output
    before the product of its input's gradient, if anybody `learns` before it, else before that of
    its weights'. Where devices gather the input, or the gradient, each casts its part before: one
    of `gathered`, or of `scattered`. An exchange of such parts `sends` them in fp8, and is no
    product.
    """

    scaling: Scaling
    casts: bool = False
    learns: bool = True
    gathered: int = 1
    scattered: int = 1
    sends: bool = False

    @property
    def num_casts(self) -> int:
        """How many kernels cast the input before the product of the forward pass."""
        return (1 + self.scaling.looks_first) * self.casts
