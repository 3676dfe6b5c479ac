"""Libraries of matrix products that choose one tile by the shape, and do not split K.

The vendor's library (cuBLASLt) tries many tiles and splits; kernels that serving frameworks build
with CUTLASS have a table, which is here as the framework's public code has it. `gemm` prices a
tile as it does any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from paleo.core.errors import HardwareError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, ceil_div, is_array, maximum, np
from paleo.core.registry import Registry
from paleo.costs.tiled.machine import Machine
from paleo.costs.tiled.stream import missed

_ANY = 2**62
#: What elements of K of bytes wait in tiles that fill no multiprocessor, of what the family's do:
#: 1.27 of 1.85 ns with vLLM's kernels on the RTX PRO 6000, of 16 to 128 rows and as many columns.
_WAITING = 0.69
#: The last cache keeps what fits this share of it, as for streams.
_KEPT = 0.65


class Rule(NamedTuple):
    """The tile of products of up to `m` rows and `n` columns that no rule before has."""

    m: int
    n: int
    rows: int
    columns: int


@dataclass(frozen=True)
class ProductKernel:
    """Products by a library: for each architecture its rules, in order.

    Without rules it takes the quickest of the vendor library's tiles, of those of `least_rows` or
    more by architecture. `order` says in which order
    multiprocessors take tiles, by architecture: down the rows of C ("rows"), along its shorter side
    ("short"), or in patches that read little again (not there). `share` is the share of a product's
    speed that the sums allow where they are not the matrix units' own. `waiting` is the share of
    the family's `latency` that its elements of K wait, `writing` how many passes over C, by all
    multiprocessors at once, nothing else goes on beside.
    """

    name: str
    summary: str
    tiles: Mapping[str, tuple[Rule, ...]]
    order: Mapping[str, str]
    share: Mapping[str, float]
    waiting: Mapping[str, float] = field(default_factory=dict)
    writing: Mapping[str, float] = field(default_factory=dict)
    least_rows: Mapping[str, int] = field(default_factory=dict)

    def rules(self, architecture: str) -> tuple[Rule, ...]:
        """Return the rules; raises HardwareError where the library has no kernel."""
        if architecture not in self.tiles:
            known = ", ".join(sorted(self.tiles))
            raise HardwareError(
                f"the product kernel {self.name} does not run on {architecture or 'this device'}; "
                f"it is for {known}"
            )
        return self.tiles[architecture]

    def tile(self, m: Quantity, n: Quantity, machine: Machine) -> tuple[Quantity, Quantity] | None:
        """Return the rows and columns of the tile for C[m, n], None where it has no rules."""
        rules = self.rules(machine.architecture)
        if not rules:
            return None
        if not (is_array(m) or is_array(n)):
            rule = next(rule for rule in rules if m <= rule.m and n <= rule.n)
            return 1.0 * rule.rows, 1.0 * rule.columns
        fits = [(m <= rule.m) & (n <= rule.n) for rule in rules]
        return (
            np.select(fits, [1.0 * rule.rows for rule in rules]),
            np.select(fits, [1.0 * rule.columns for rule in rules]),
        )

    def stored(
        self, sides: tuple[Quantity, Quantity], size: Quantity, shape: tuple[Quantity, ...],
        machine: Machine,
    ) -> tuple[Quantity, Quantity]:  # fmt: skip
        """Return the bytes of A and of B that come from memory, of elements of `size` bytes.

        Where tiles go down one side of C, that side's operand is read again for each column of
        tiles that starts later, unless the cache keeps it.
        """
        m, n, k = shape
        a, b = size * m * k, size * n * k
        order = self.order.get(machine.architecture)
        if order is None:
            return a, b
        down, across = ceil_div(m, sides[0]), ceil_div(n, sides[1])
        again_a = a * _readings(down, across, a, machine)
        again_b = b * _readings(across, down, b, machine)
        if order == "rows":
            return again_a, b
        by_rows = 1.0 * (across > down)
        return (
            by_rows * again_a + (1.0 - by_rows) * a,
            by_rows * b + (1.0 - by_rows) * again_b,
        )


def _readings(quick: Quantity, slow: Quantity, num_bytes: Quantity, machine: Machine) -> Quantity:
    """Return how often the operand of the side `quick` is read from memory."""
    at_once = maximum(machine.multiprocessors / quick, 1.0)
    times = maximum(slow / at_once, 1.0)
    return 1.0 + (times - 1.0) * missed(num_bytes, machine, _KEPT)


PRODUCT_KERNELS: Registry[ProductKernel] = Registry("product kernel")

#: sgl-kernel, csrc/gemm/fp8_gemm_kernel.cu (sgl-project/sglang). Two multiprocessors of Blackwell
#: share a tile of 128 or 256 rows there, so that each has half. The tiles of more than 64 rows on
#: Hopper, and of more than 128 on Blackwell RTX, are of version 0.5.14, as the time of an element
#: of K shows (2.7 and 6.7 ns, those of 128 x 128).
_SGLANG = ProductKernel(
    "cutlass_sglang",
    "SGLang's fp8_scaled_mm: CUTLASS, a scale for each row and column",
    {
        "Ada": (
            Rule(1, 8192, 16, 64), Rule(1, _ANY, 32, 64), Rule(16, 8192, 16, 64),
            Rule(16, 16384, 32, 64), Rule(16, _ANY, 16, 64), Rule(64, 16384, 32, 64),
            Rule(64, _ANY, 16, 64), Rule(128, 16384, 64, 64), Rule(128, _ANY, 32, 64),
            Rule(256, 8192, 128, 64), Rule(256, 16384, 64, 128), Rule(256, _ANY, 128, 64),
            Rule(_ANY, _ANY, 128, 128),
        ),
        "Hopper": (
            Rule(64, _ANY, 64, 64), Rule(128, _ANY, 64, 128), Rule(_ANY, _ANY, 128, 128),
        ),
        "Blackwell": (
            Rule(64, _ANY, 64, 64), Rule(256, _ANY, 64, 128), Rule(_ANY, _ANY, 128, 128),
        ),
        "Blackwell RTX": (Rule(128, 64, 128, 64), Rule(_ANY, _ANY, 128, 128)),
    },
    {"Ada": "rows", "Hopper": "short", "Blackwell": "short", "Blackwell RTX": "short"},
    # OpMultiplyAdd, not OpMultiplyAddFastAccum: partial sums are added on the lanes.
    {"Ada": 0.8},
    {"Ada": _WAITING},
)  # fmt: skip
#: vLLM, csrc/quantization/w8a8/cutlass: scaled_mm_c2x_sm89_fp8_dispatch.cuh (whose tiles go in
#: patches), c3x/scaled_mm_sm90, _sm100 and _sm120_fp8_dispatch.cuh (vllm-project/vllm). Where A and
#: B are exchanged, rows are those of A all the same.
_VLLM = ProductKernel(
    "cutlass_vllm",
    "vLLM's cutlass_scaled_mm: CUTLASS, a scale for each row and column, or one",
    {
        "Ada": (
            Rule(16, 8192, 16, 64), Rule(16, 16384, 16, 128), Rule(16, _ANY, 32, 64),
            Rule(32, 8192, 32, 64), Rule(32, 16384, 32, 128), Rule(32, _ANY, 32, 64),
            Rule(64, 8192, 64, 64), Rule(64, 16384, 64, 128), Rule(64, _ANY, 64, 64),
            Rule(128, 8192, 64, 128), Rule(128, 16384, 128, 128), Rule(128, _ANY, 128, 64),
            Rule(256, 4096, 64, 128), Rule(256, _ANY, 128, 128),
            Rule(_ANY, 4096, 128, 128), Rule(_ANY, 8192, 256, 128), Rule(_ANY, _ANY, 128, 128),
        ),
        "Hopper": (
            Rule(16, _ANY, 16, 64), Rule(64, 1280, 16, 64), Rule(64, _ANY, 64, 64),
            Rule(128, _ANY, 64, 128), Rule(_ANY, _ANY, 128, 128),
        ),
        "Blackwell": (
            Rule(16, _ANY, 32, 64), Rule(64, _ANY, 64, 64), Rule(256, _ANY, 64, 128),
            Rule(_ANY, _ANY, 128, 128),
        ),
        "Blackwell RTX": (
            Rule(16, _ANY, 16, 64), Rule(32, _ANY, 32, 64), Rule(256, _ANY, 64, 64),
            Rule(_ANY, _ANY, 128, 128),
        ),
    },
    {"Hopper": "short", "Blackwell": "short", "Blackwell RTX": "short"},
    {},
    {"Ada": _WAITING, "Blackwell RTX": _WAITING},
    # Epilogues of CUTLASS 2: the tables of the L40S grow with C at 430 to 490 GB/s.
    {"Ada": 1.5},
)  # fmt: skip

#: deepseek-ai/DeepGEMM: scales of 128 numbers each, sums of as many added on the lanes of Hopper.
_DEEPGEMM = ProductKernel(
    "deepgemm",
    "DeepGEMM: a scale for each 128 numbers of a row, and 128 x 128 of the weights",
    {"Hopper": (), "Blackwell": ()},
    {},
    {"Hopper": 0.85},
    # csrc/jit_kernels/heuristics/sm90.hpp: block_m of 64, 128 or 256, what a group of warps
    # multiplies at once and its multiples; A and B are not exchanged.
    least_rows={"Hopper": 64},
)

for _each in (_SGLANG, _VLLM, _DEEPGEMM):
    PRODUCT_KERNELS.add(_each.name, _each)
