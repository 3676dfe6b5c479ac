"""Reading single batches of requests: Splitwise, llama.cpp's benchmark, and InferSim's cases.

Rows of Splitwise and of llama.cpp come in the columns of docs/validate.md.

- Splitwise (Patel et al., "Splitwise: efficient generative LLM inference using phase splitting",
  arXiv:2311.18677; Mutinifni/splitwise-sim, data/perf_model.csv): prompts of one length at once,
  then so many tokens each, in fp16 on devices that share tensors, by vLLM of 2023.
  `prefill_ms` is of all prompts, `decode_ms_per_token` of a step on average over the answer,
  `total_ms` their sum; medians of five runs. Notes say how many tokens were answered.
- llama.cpp (XiongjieDai/GPU-Benchmarks-on-LLM-Inference): its llama-bench. `pp N` is a prompt of N
  tokens, `tg N` are N tokens after none. On several devices each has a share of the layers, and a
  request goes from one to the next.
- InferSim (alibaba/InferSim, README.md): tokens a second and device, its `Actual` column. Of
  DeepSeek-V3 they are deepseek-ai/profile-data's on H800: prompts of 4,096 tokens, 16,384 tokens a
  device, with attention on each and experts on 32; and 128 requests a device with experts on 128,
  in two halves that hide each other's messages. Of answers InferSim takes 1,786 tokens
  (example/deepseek-v3): so requests have as many on average as DeepSeek said of its service
  (4,989). Of Qwen3 they are SGLang's on H20, of 4,096 and 2,048 tokens (main.py's defaults), 16,384
  tokens of prompts at once, and 100 and 64 requests a device (example/qwen3-30B-A3B, qwen3-8B).
  Their tokens are FlashInfer's steps, prompts FlashAttention-3's: those are the kernels that the
  tool has measured on H20 (bench_data/mha), and how SGLang is run there, where FlashAttention-3's
  steps take 2.2 to 2.8 times as long (sgl-project/sglang, issues 5630 and 6151).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from paleo.core.errors import UnknownNameError
from paleo.measure.validate.measured import Measurement, read_measurements
from paleo.measure.validate.serving_rows import (
    BatchRow,
    BatchRows,
    Formats,
    LeftOutError,
    Party,
    counted,
)
from paleo.measure.validate.spellings import UnmappedError, device_of

_SPLITWISE_NETS = {"llama2-70b": "llama2_70b", "bloom-176b": "bloom_176b"}
_LLAMA_NETS = {"llama3-8B": "llama3_8b", "llama3-70B": "llama3_70b"}
#: llama.cpp's formats in the words of paleo.cluster.servers.
_LLAMA_FORMATS = {"Q4_K_M": "q4_k_m", "F16": "fp16"}
_ANSWERED = re.compile(r"(\d+) output tokens")
_LAYERS = re.compile(r"layer split x(\d+)")
_HALVES = Formats("fp16", "fp16", "", "fp16")


def read_splitwise(path: str | os.PathLike[str]) -> BatchRows:
    """Return Splitwise's batches, one for the rows of each; raises MeasurementError."""
    batches: dict[tuple[object, ...], dict[str, Measurement]] = {}
    for row in read_measurements(path):
        key = (row.network, row.device, row.n_devices, row.global_batch, row.seq_len, row.notes)
        batches.setdefault(key, {})[row.quantity.name] = row
    rows, reasons = [], []
    for of in batches.values():
        row = next(iter(of.values()))
        try:
            rows.append(_splitwise(row, of))
        except LeftOutError as reason:
            reasons.append(str(reason))
    return BatchRows(tuple(rows), counted(reasons))


def _splitwise(row: Measurement, of: dict[str, Measurement]) -> BatchRow:
    answered = _ANSWERED.search(row.notes)
    if row.network not in _SPLITWISE_NETS or not answered or not row.seq_len:
        raise LeftOutError(f"no batch of Splitwise: {row.network}")
    prefill, decode = of.get("prefill_ms"), of.get("decode_ms_per_token")
    return BatchRow(
        row.row_id, row.source, _SPLITWISE_NETS[row.network], _device(row), "vllm_2023", "",
        int(row.seq_len), int(answered[1]), int(row.global_batch or 1), _HALVES,
        Party(tp=row.n_devices),
        None if prefill is None else prefill.value / 1e3,
        None if decode is None else decode.value / 1e3,
    )  # fmt: skip


def read_llama_cpp(path: str | os.PathLike[str]) -> BatchRows:
    """Return the batches of llama.cpp's rows; raises MeasurementError."""
    rows, reasons = [], []
    for row in read_measurements(path):
        try:
            rows.append(_llama_cpp(row))
        except LeftOutError as reason:
            reasons.append(str(reason))
    return BatchRows(tuple(rows), counted(reasons))


def _llama_cpp(row: Measurement) -> BatchRow:
    name, _, _ = row.network.rpartition(f"-{row.precision}")
    split = _LAYERS.fullmatch(row.parallelism)
    if name not in _LLAMA_NETS or row.precision not in _LLAMA_FORMATS or not row.seq_len:
        raise LeftOutError(f"no net of llama.cpp: {row.network}")
    if row.n_devices > 1 and not split:
        raise LeftOutError("several devices that do not divide layers")
    tokens = int(row.seq_len)
    is_prefill = row.quantity.name == "prefill_tokens_per_s"
    stored = _LLAMA_FORMATS[row.precision]
    return BatchRow(
        row.row_id, row.source, _LLAMA_NETS[name], _device(row), "llama_cpp", "",
        tokens if is_prefill else 0, 0 if is_prefill else tokens, 1,
        Formats(stored, stored, "", "fp16"), Party(pp=int(split[1]) if split else 1),
        tokens / row.value if is_prefill else None, None if is_prefill else 1 / row.value,
    )  # fmt: skip


def _device(row: Measurement) -> str:
    """Return the name of a row's device; raises LeftOutError."""
    try:
        return device_of(row.device).name
    except (UnmappedError, UnknownNameError):
        raise LeftOutError(f"unknown device {row.device!r}") from None


_BLOCKS = Formats("fp8_block", "fp8_block", "fp8_block", "bf16")
_README = "alibaba/InferSim README.md, Simulation Result"


def infersim_cases() -> Iterator[BatchRow]:
    """Yield InferSim's published cases, prompts and tokens apart."""
    wide = ("deepseek_v3", "H800_SXM", "", _BLOCKS, 4096, 1786)
    experts = ("qwen3_30b_a3b", "H20_SXM", "sglang", Formats(*["bf16"] * 4), 4096, 2048)
    dense = (
        "qwen3_8b", "H20_SXM", "sglang", Formats("fp8_block", "fp8_block", "", "bf16"), 4096, 2048,
    )  # fmt: skip
    one = Party()
    for case, phase, requests, party, rate in (
        (wide, "prefill", 4, Party(attention_dp=32, moe_ep=32), 7839),
        (wide, "decode", 128, Party(attention_dp=128, moe_ep=128), 2324),
        (experts, "prefill", 4, one, 16594),
        (experts, "decode", 100, Party(attention_dp=4, moe_ep=4), 2749),
        (dense, "prefill", 4, one, 15061),
        (dense, "decode", 64, one, 2682),
    ):
        net, device, server, formats, prompt, output = case
        is_prefill = phase == "prefill"
        yield BatchRow(
            f"infersim:{net}:{phase}", _README, net, device, server, "", prompt, output, requests,
            formats, party,
            requests * prompt / rate if is_prefill else None,
            None if is_prefill else requests / rate,
            "" if net == "deepseek_v3" else "flashinfer_decode",
        )  # fmt: skip
