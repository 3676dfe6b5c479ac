"""Experts in fp8 by blocks, as versions of vLLM compute them on Hopper.

By vllm-project/vllm, vllm/model_executor/layers: quantization/fp8.py (`get_fp8_moe_backend`, until
0.13), fused_moe/oracle/fp8.py (from 0.14 on), triton_deep_gemm_moe.py, deep_gemm_utils.py.

- 0.11 and 0.12: DeepGEMM's grouped products, in 0.12 where fewer than 8 devices share an expert,
  for any number of tokens (`is_deep_gemm_e8m0_used` is true on Hopper, too, by default). Rows of an
  expert are padded to blocks of 128, and there are places for the worst case, M k + 127 E in all
  (`compute_aligned_M`). Those that stay empty are of expert 0 (`expert_ids` are zeros) and are
  multiplied like others: a step of a few tokens costs as much as one of thousands. (What is not
  empty is priced as Triton's kernel has it: the same weights, and as many small kernels.)
- 0.13 and 0.14: the same, but empty blocks are marked and skipped (-1). Functions and quantizers
  between the products go over all places still.
- 0.15 and 0.16: FlashInfer's CUTLASS kernels, before DeepGEMM in the list.
- from 0.17 on: Triton's where devices share experts, FlashInfer's CUTLASS where each has its own.
"""

from __future__ import annotations

from paleo.core.frozen import NamedTuple
from paleo.core.operations import FusedExperts, Kind, MatMul, Operation, Stream
from paleo.core.quantity import Quantity, ceil_div, maximum, total
from paleo.step.serving.parts import Degrees
from paleo.step.serving.program import HALF

#: Rows that DeepGEMM multiplies at a time.
_BLOCK = 128
#: Devices that share an expert from which on DeepGEMM is not the default.
_SHARED = 8
_CUTLASS = "flashinfer_cutlass_fp8_block"


class How(NamedTuple):
    """How a version has it: whose kernel, "" for the backend's own.

    Whether there are places for the worst case, and whether those that are empty are multiplied.
    """

    kernel: str = ""
    is_padded: bool = False
    is_filled: bool = False


def how_of(version: tuple[int, ...], degrees: Degrees) -> How:
    """Return how a version computes such experts; the last one known where it has no numbers."""
    if not version or version >= (0, 17):
        return How(_CUTLASS if degrees.ep > 1 else "")
    if version >= (0, 15):
        return How(_CUTLASS)
    by_default = version >= (0, 12)
    if version < (0, 11) or (by_default and degrees.tp // degrees.ep >= _SHARED):
        return How()
    return How(is_padded=True, is_filled=version < (0, 13))


def padding(experts: FusedExperts, held: int, how: How) -> tuple[Operation, ...]:
    """Return what a layer of experts does besides, of which a device holds so many."""
    if not how.is_padded:
        return ()
    chosen = experts.tokens * experts.chosen
    places: Quantity = _BLOCK * ceil_div(chosen + held * (_BLOCK - 1), _BLOCK)
    widened, inner = experts.widened, experts.inner
    beside = places - chosen
    found: tuple[Operation, ...] = (
        Stream(
            Kind.ELEMENTWISE, (beside * widened * HALF,), (beside * inner * HALF,),
            label="function of empty places",
        ),
        Stream(
            Kind.ELEMENTWISE, (beside * inner * HALF,), (beside * inner,),
            label="quantizer of empty places",
        ),
    )  # fmt: skip
    if not how.is_filled:
        return found
    used = total(groups * _BLOCK * ceil_div(rows, _BLOCK) for groups, rows in experts.loads)
    empty = maximum(places - used, 1.0 * _BLOCK)
    first = MatMul(empty, widened, experts.hidden, 1, HALF, dtype="fp8", kernel="deepgemm")
    second = MatMul(empty, experts.hidden, inner, 1, HALF, dtype="fp8", kernel="deepgemm")
    return (*found, first, second)
