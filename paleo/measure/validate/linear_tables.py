"""Tables of linear attention: `gdn`, `kda` and `mamba2`.

They are of the package `aiconfigurator-core` (read: 0.12.0); what a latency covers is in its
repository, collector/*/collect_gdn.py, collect_kda.py and collect_mamba2.py. A row is a kernel of a
layer, or the few that one call makes: the short convolution, and the delta rule, of prompts, of a
step, or of several guesses of which some may be taken back ("verify"). Of `mamba2` the convolutions
alone were measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from paleo.cluster import Device
from paleo.core.frozen import NamedTuple
from paleo.core.operations import Operation
from paleo.core.quantity import Array, np
from paleo.core.scanning import DeltaRule, ShortConvolution
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading
from paleo.measure.validate.table_kernels import KERNEL

_STATE, _HALF = 4, 2


class _Call(NamedTuple):
    """What a row's call does: which kernel, with states of how many bytes."""

    kernel: str
    is_step: bool = False
    read_size: int = _STATE
    by_feature: bool = False
    each_position: bool = False


def _convolve(letters: Letters, call: _Call, taps: int) -> tuple[Operation, ...]:
    convolution = ShortConvolution(
        letters["batch"], letters["positions"], letters["channels"], taps, call.kernel, call.is_step
    )
    return (convolution,)


def _scan(letters: Letters, call: _Call, taps: int) -> tuple[Operation, ...]:
    rule = DeltaRule(
        letters["batch"], letters["positions"], letters["groups"], letters["heads"],
        letters["depth"], letters["value_depth"], call.kernel, call.read_size,
        each_position=call.each_position, by_feature=call.by_feature,
    )  # fmt: skip
    return (rule,)


#: Kernels that a table's text names, by phase.
_GDN = {
    ("context", "causal_conv1d_fn"): _Call("conv_triton"),
    ("generation", "causal_conv1d_update"): _Call("conv_triton_step", is_step=True),
    ("context", "chunk_gated_delta_rule"): _Call("fla_delta"),
    ("context", "chunk_gated_delta_rule_triton"): _Call("fla_delta"),
    ("context", "chunk_gated_delta_rule_flashinfer"): _Call("flashinfer_delta"),
    ("generation", "fused_recurrent_gated_delta_rule_packed_decode"): _Call("fla_step"),
}
#: TensorRT-LLM's, and SGLang's before 0.5.14: convolutions of the keys alone; the state comes in 2
#: bytes, and goes in 4.
_CUDA = {
    ("context", "causal_conv1d_fn"): _Call("conv_cuda"),
    ("generation", "causal_conv1d_update"): _Call("conv_cuda_step", is_step=True),
    ("context", "chunk_gated_delta_rule"): _Call("trtllm_delta", read_size=0),
    ("generation", "fused_recurrent_gated_delta_rule"): _Call("fla_step", read_size=_HALF),
}
_KDA = {
    ("context", "causal_conv1d_fn_qkv3"): _Call("conv_triton_apart"),
    ("generation", "causal_conv1d_update"): _Call("conv_kda_step", is_step=True),
    ("verify", "causal_conv1d_update"): _Call("conv_kda_step", is_step=True),
    ("context", "chunk_kda"): _Call("fla_kda", by_feature=True),
    ("context", "chunk_kda_with_fused_gate"): _Call("fla_kda", by_feature=True),
    ("context", "flashkda_fwd"): _Call("flash_kda", by_feature=True),
    ("generation", "fused_recurrent_kda_packed_decode"): _Call("kda_step", by_feature=True),
    ("generation", "kda_fused_decode"): _Call("kda_step_fused", by_feature=True),
    ("generation", "fused_kda_decode"): _Call("kda_step_fused", by_feature=True),
    ("verify", "fused_recurrent_kda"): _Call("kda_verify", by_feature=True, each_position=True),
    ("verify", "fused_sigmoid_gating_delta_rule_update"): _Call(
        "sglang_kda_verify", by_feature=True, each_position=True
    ),
    ("verify", "fused_kda_decode_mtp_dspark"): _Call(
        "kda_verify_blackwell", by_feature=True, each_position=True
    ),
}
#: A version of SGLang with the newer kernels.
_NEWER = "0.5.14"


def _calls(table: Table) -> Mapping[tuple[str, str], _Call]:
    if table.operator == "kda":
        return _KDA
    is_old = table.framework == "sglang" and "0.5.10" in table.version
    return _CUDA if table.framework == "trtllm" or is_old else _GDN


def _letters(table: Table, columns: Mapping[str, Array], call: _Call) -> dict[str, Array]:
    """Return the letters of all rows."""
    found = {"batch": columns["batch_size"], "positions": columns["seq_len"]}
    if table.operator == "mamba2":
        states = 2 * columns["n_groups"] * columns["d_state"]
        return found | {"channels": columns["nheads"] * columns["head_dim"] + states}
    groups, heads = columns["num_k_heads"], columns["num_v_heads"]
    depth, values = columns["head_k_dim"], columns["head_v_dim"]
    if call.kernel.startswith("conv_cuda"):
        return found | {"channels": groups * depth}
    if call.kernel.startswith("conv"):
        return found | {"channels": 2 * groups * depth + heads * values}
    return found | {"groups": groups, "heads": heads, "depth": depth, "value_depth": values}


def _parts(table: Table, columns: Mapping[str, Array], rows: Rows, device: Device) -> list[Part]:
    texts, phases, taps = columns[KERNEL], columns["phase"], columns["d_conv"]
    calls = _calls(table)
    is_eager = table.operator == "kda" and table.framework == "vllm"
    found = []
    kinds = set(zip(phases.tolist(), texts.tolist(), taps.tolist(), strict=True))
    for phase, text, count in sorted(kinds):
        mask = rows.left & (phases == phase) & (texts == text) & (taps == count)
        call = calls.get((phase, text))
        if call is None:
            reason = f"{table.operator} by {text or 'an unnamed kernel'} is not modelled"
            rows.leave_out(reason, mask)
            continue
        if is_eager and call.kernel == "conv_triton_apart":
            rows.leave_out("kda: convolutions of vLLM, whose host was timed", mask)
            continue
        places = mask.nonzero()[0]
        make: Callable[..., tuple[Operation, ...]]
        make = _convolve if call.kernel.startswith("conv") else _scan
        letters = {
            name: values[places].astype(np.int64)
            for name, values in _letters(table, columns, call).items()
        }
        found.append(
            Part(places, "bf16", functools.partial(make, call=call, taps=int(count)), letters)
        )
    return found


_SIZES = ("batch_size", "seq_len", "d_conv")
GDN = Reading(
    "linear attention", ("phase",),
    (*_SIZES, "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim"), "", _parts,
)  # fmt: skip
MAMBA2 = GDN._replace(numbers=(*_SIZES, "nheads", "head_dim", "n_groups", "d_state"))
