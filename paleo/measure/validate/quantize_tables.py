"""Tables of kernels that quantize: `scale_matrix` and `computescale`.

They are of the package `aiconfigurator-core` (read: 0.12.0); what a latency covers is in its
repository, collector/*/collect_computescale.py: five calls one after another in a CUDA graph, with
no product behind them. `scale_matrix` has a known scale; in SGLang it is four operations of
PyTorch. `computescale` is the difference between a call that finds the scale and one that knows
it: that is modelled of TensorRT-LLM. With SGLang there is none above 0, with vLLM it is of two
kernels that differ by less than they scatter.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from paleo.cluster import Device
from paleo.core.operations import Operation
from paleo.core.quantity import Array, np
from paleo.core.quantization import Quantize
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading

#: The quantizers with a known scale, and those that find it, by framework.
_STATIC = {"vllm": "static", "trtllm": "static_trtllm", "sglang": "static_eager"}
_DYNAMIC = {"trtllm": "tensor_trtllm"}


def _make(letters: Letters, quantizer: str) -> tuple[Operation, ...]:
    return (Quantize(letters["M"], letters["K"], 1, quantizer, alone=True),)


def _parts(table: Table, columns: Mapping[str, Array], rows: Rows, device: Device) -> list[Part]:
    is_difference = table.operator == "computescale"
    framework = table.framework
    if is_difference and framework not in _DYNAMIC:
        rows.leave_out(f"computescale of {framework} is not modelled", rows.left)
    words = columns["quant_dtype"]
    rows.leave_out(f"{table.operator} in other types than fp8", words != "fp8")
    places = rows.left.nonzero()[0]
    if not len(places):
        return []
    letters = {
        "M": columns["m"][places].astype(np.int64),
        "K": columns["k"][places].astype(np.int64),
    }
    static = functools.partial(_make, quantizer=_STATIC[framework])
    if not is_difference:
        return [Part(places, "fp8", static, letters)]
    dynamic = functools.partial(_make, quantizer=_DYNAMIC[framework])
    return [Part(places, "fp8", dynamic, letters, static)]


QUANTIZE = Reading("quantize", ("quant_dtype",), ("m", "k"), "quant_dtype", _parts)
