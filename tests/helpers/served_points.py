"""A row of a table of served points, and what steps of a server take."""

from __future__ import annotations

from paleo.measure.validate.served import prices_of
from paleo.step.serving.prices import Degrees, StepPrices

DEGREES = (
    "num_workers", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_BLANK = dict.fromkeys(f"{role}_{name}" for role in ("prefill", "decode") for name in DEGREES)
#: A row of one server of the page's older file.
ONE = {
    "id": "one",
    "silicon_data_source": "source_file=2026-03-25.csv; silicon_concurrency=64; "
    "measured=2026-03-25T00:00:00Z",
    "backend": "sglang",
    "backend_version": "0.5.9",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "h200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "8192",
    "osl": "1024",
    "gemm_quant_mode": "fp8",
    "batch_size": "64.0",
    "tp_size": "8.0",
    "pp_size": "1.0",
    "attention_dp_size": "1.0",
    "moe_tp_size": "1.0",
    "moe_ep_size": "8.0",
    "silicon_ttft_ms": "500.0",
    "silicon_tpot_ms": "20.0",
    **dict.fromkeys(_BLANK, ""),
}
DUMP = "db-dump/2026-04-27; config_id=1; silicon_concurrency=64"


def prices_on(net: str, tp: int) -> StepPrices:
    """Return the prices of a net in fp16 on so many A100, by vLLM of 2023."""
    halves = ("fp16", "fp16", "", "fp16")
    return prices_of(net, "A100_SXM_80GB", "vllm_2023", halves, "", Degrees(tp))
