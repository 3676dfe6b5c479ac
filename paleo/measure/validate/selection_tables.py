"""Tables of single kernels of sparse attention: scores, selections, attention to what is selected.

They are of the package `aiconfigurator-core` (read: 0.12.0), `dsv4_paged_mqa_logits_module`,
`glm5_mqa_logits_module`, `glm5_topk_module`, `dsv4_csa_topk_calib`, `glm5_dsa_attn_module` and
`dsv4_hca_attn_module`; what a latency covers is in its repository,
collector/sglang/glm5_dsa_sparse_modules.py, deepseekv4_sparse_modules.py. A latency of 0 is of a
row that has nothing to select. `score_mode` says which of SGLang's kernels selects, and from which
scores: all of them equal ("flat"), or the last ones the best.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from paleo.cluster import Device
from paleo.core.operations import Operation
from paleo.core.quantity import Array, np
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.measure.validate.sparse_tables import DEEPGEMM
from paleo.measure.validate.table_files import Rows, Table
from paleo.measure.validate.table_groups import Letters, Part, Reading

#: GLM-5's index heads and DeepSeek-V4's, their features; keys that GLM-5 selects.
_GLM_HEADS, _HEADS, _DEPTH, _CHOSEN = 32, 64, 128, 2048
_WINDOW = 128
#: The column of the scores.
_MODE = "score_mode"
#: DeepSeek-V4's selected keys, by a part of the model's name.
_MODELS = {"Flash": 512, "Pro": 1024}


def _make(
    letters: Letters, operator: str, framework: str, chosen: int, mode: str
) -> tuple[Operation, ...]:
    batch, tokens, keys = letters["batch"], letters["tokens"], letters["keys"]
    vllm = "_vllm" * (framework == "vllm")
    if operator == "dsv4_paged_mqa_logits_module":
        return (IndexScores(batch, tokens, keys / 4, _HEADS, _DEPTH, f"paged_scores{vllm}"),)
    if operator == "glm5_mqa_logits_module":
        return (IndexScores(batch, tokens, keys, _GLM_HEADS, _DEPTH, "dsa_blocks_sglang"),)
    if operator == "glm5_topk_module":
        return (Select(tokens, keys, _CHOSEN, f"dsa_topk_{mode}"),)
    if operator == "dsv4_csa_topk_calib":
        return (Select(tokens, keys / 4, chosen, f"topk_{mode}"),)
    heads, kept = letters["heads"], letters["all"] * batch
    if operator == "glm5_dsa_attn_module":
        attention = SelectedAttention(
            tokens, heads, _CHOSEN + 0 * tokens, kept, 576, 512, "flash_mla_alone"
        )
    else:
        attention = SelectedAttention(
            tokens, heads, np.minimum(keys, _WINDOW) + keys / 128, kept / 128, 512, 512,
            "flash_mla_vllm_alone", 1,
        )  # fmt: skip
    return (attention,)


def _parts(table: Table, columns: Mapping[str, Array], rows: Rows, device: Device) -> list[Part]:
    if device.architecture not in DEEPGEMM:
        rows.leave_out(f"{table.operator} on {device.architecture} is not modelled", rows.left)
    models = columns["model"]
    modes = columns.get(_MODE, np.full(len(models), "", object))
    found = []
    kinds = zip(models[rows.left].tolist(), modes[rows.left].tolist(), strict=True)
    for model, mode in sorted(set(kinds)):
        places = (rows.left & (models == model) & (modes == mode)).nonzero()[0]
        batch, isl, step = (columns[key][places] for key in ("batch_size", "isl", "step"))
        letters = {
            "batch": batch.astype(float),
            "tokens": (batch * isl).astype(float),
            "keys": step + (isl + 1) / 2,
            "all": (step + isl).astype(float),
            "heads": columns["num_heads"][places].astype(np.int64),
        }
        chosen = next((number for key, number in _MODELS.items() if key in model), _CHOSEN)
        make = functools.partial(
            _make, operator=table.operator, framework=table.framework, chosen=chosen, mode=mode
        )
        found.append(Part(places, "fp8", make, letters))
    return found


KERNELS = Reading(
    "sparse attention", ("model", "gemm_type"), ("num_heads", "batch_size", "isl", "step"),
    "gemm_type", _parts,
)  # fmt: skip
SELECTIONS = KERNELS._replace(texts=(*KERNELS.texts, _MODE))
READINGS = {
    "dsv4_paged_mqa_logits_module": KERNELS,
    "glm5_mqa_logits_module": KERNELS,
    "glm5_topk_module": SELECTIONS,
    "dsv4_csa_topk_calib": SELECTIONS,
    "glm5_dsa_attn_module": KERNELS,
    "dsv4_hca_attn_module": KERNELS,
}
