"""The operators of language models in serving frameworks' tables: which, and what is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paleo.core.errors import PaleoError
from paleo.measure.validate import Cases, Selection, join, operator_cases

PACKAGE = "aiconfigurator_core"
#: Systems, and which kernels' constants were fitted there.
SYSTEMS = {
    "a100_sxm": "nothing",
    "h100_sxm": "kernels of Hopper",
    "h200_sxm": "nothing",
    "l40s": "kernels of neither, CUTLASS",
    "rtx_pro_6000_server": "nothing",
    "gb200": "kernels of Blackwell",
    "b200_sxm": "nothing",
    "b300_sxm": "nothing",
    "gb300": "SGLang's encoders",
}
FRAMEWORKS = ("trtllm", "sglang", "vllm")
#: Tables by what they are called on the page.
TABLES = {
    "layers of experts": ("moe",),
    "latent attention, prefill": ("context_mla",),
    "latent attention, decode": ("generation_mla",),
    "latent attention, products": ("mla_bmm",),
    "attention of encoders": ("encoder_attention",),
    "quantization": ("scale_matrix", "computescale"),
    "linear attention": ("gdn", "kda", "mamba2"),
    "modules of latent attention": ("mla_context_module", "mla_generation_module"),
    "sparse attention, prefill": (
        "dsa_context_module", "dsv4_csa_context_module", "dsv4_hca_context_module",
        "msa_context_module",
    ),
    "sparse attention, decode": (
        "dsa_generation_module", "dsv4_csa_generation_module", "dsv4_hca_generation_module",
        "msa_generation_module",
    ),
    "sparse attention, single kernels": (
        "dsv4_paged_mqa_logits_module", "glm5_mqa_logits_module", "glm5_topk_module",
        "dsv4_csa_topk_calib", "glm5_dsa_attn_module", "dsv4_hca_attn_module",
    ),
}  # fmt: skip
#: Versions that have the whole of a table where the newest has a part.
_VERSIONS = {("trtllm", "moe"): ("1.3.0rc20", "1.0.0")}
#: Percent of the median error that is wanted of each.
WANTED = 12

#: Of which the median is known to be above that: how the names of figures begin.
MISSED = (
    *(f"layers of experts, {each}" for each in ("a100", "l40s", "rtx")),
    *(f"latent attention, prefill, {each}" for each in ("a100", "l40s", "rtx")),
    *(f"latent attention, decode, {each}" for each in ("a100", "rtx", "b300")),
    "latent attention, products, gb200",
    *(f"attention of encoders, {each}" for each in ("l40s", "rtx")),
    *(f"quantization, {each}" for each in ("gb200", "gb300")),
    "linear attention, a100",
    *(f"modules of latent attention, {each}" for each in ("gb200", "b300", "all")),
    *(f"sparse attention, single kernels, {each}" for each in ("b", "gb300", "all")),
)


def cases_by_system(
    place: str, tables: tuple[str, ...], systems: Iterable[str] = SYSTEMS, sample: int = 0
) -> Iterator[tuple[str, str, Cases]]:
    """Yield a system, a framework and its cases of these tables, `sample` rows of each if not 0."""
    for system in systems:
        for framework in FRAMEWORKS:
            found = []
            for table in tables:
                for version in (*_VERSIONS.get((framework, table), ()), ""):
                    selection = Selection(
                        systems=(system,), operators=(table,), frameworks=(framework,),
                        versions=(version,) if version else (), sample=sample,
                    )  # fmt: skip
                    try:
                        found.append(operator_cases(place, selection))
                        break
                    except PaleoError:
                        continue
            cases = join(found)
            if len(cases):
                yield system, framework, cases
