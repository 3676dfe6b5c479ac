"""Reading `systems/silicon_sample.csv` of aiconfigurator-core: 5,221 served points.

What its columns mean, as far as the table, its package and what it was made of say:

- Most rows are of InferenceX (SemiAnalysisAI/InferenceX, once InferenceMAX): `db-dump/...` of a
  dump of its database, `2026-03-25.csv` and `2026-04-06.csv` of its page. Its client
  (utils/bench_serving/benchmark_serving.py) keeps `silicon_concurrency` requests on their way, ten
  times as many in all, the first ones at once, after a warm-up. Lengths are drawn evenly from 0.8
  of `isl` and `osl` to them (random-range-ratio), and every answer has its length.
  `..._gap_analysis` are rounded rows of the same. `aic-auto-gap-analysis/data/...` are NVIDIA's
  own, of exact lengths; how many requests they sent is not said, and ten times the concurrency
  assumed.
- `silicon_ttft_ms` and `silicon_tpot_ms` are means over requests (`mean_ttft` and `mean_tpot` in
  aiconfigurator's comparison with the same database, `silicon_ttft_avg` in its other tables); that
  of tokens is the time after the first token by the tokens after it. Both are seen by the client,
  to whom servers send every 10th to 50th token.
- The same measurement stands in up to three files: 5,221 rows are 3,903 measurements.
- Nine rows of gpt-oss on H100 (December 2025, all of these days) say 512 requests at a time, which
  their client had on the way. Their server took as many as the script's CONC (--max-num-seqs), of
  which ten times as many were sent in all: first tokens come after 4.2 to 4.8 whole answers, and
  all being sent at once, tenths wait for (0 + 1 + ... + 9) / 10 = 4.5. CONC is not stated: see
  QUEUED. (In other rows of servers that take as many as are sent that is 0.01 to 0.3; 1.2 in one
  whose cache is full.)
- `batch_size` is the concurrency by `attention_dp_size`.
- One server: rows of 2026-03-25 have the degrees that were set. In those of 2026-04-06 and of the
  dump experts' degree has got into `tp_size` and `attention_dp_size`: the same measurement has tp
  8, moe_ep 8 in one and tp 64, moe_tp 8, moe_ep 8 in the other (trtllm, sglang), or attention_dp 4
  and moe_ep 16 for tp 4 with moe_ep 4 (vllm, whose scripts set --enable-expert-parallel and no data
  parallelism). So where both of experts' degrees are above 1 there, moe_tp is the devices and
  moe_ep is moe_ep; where vllm's attention_dp is above 1, tp is the devices.
- Two servers: rows of the dump have workers and degrees. Those of the page's files have tp as the
  devices of a worker, of decode the experts' degree of prefill, and neither workers nor whether
  attention is data parallel. They are understood where the dump has the same measurement. Those of
  GB200 with 12 to 72 in every degree have the devices of all workers.
- DeepSeek's rows of some runs are with its head for the next tokens (multi-token prediction), which
  no column says: runs of InferenceX's `*-mtp` configurations (pull request 392 and later ones), by
  their dates. They are 0.5 to 0.85 times as long as those of the same configuration without. Rows
  of two servers without twins in the dump are of both sorts.
- `fp4` of gpt-oss is mxfp4 of experts, of others NVIDIA's checkpoints in nvfp4, which leave
  attention in bf16; `int4` of Kimi is its own checkpoint's experts. `fp8` of DeepSeek, GLM, MiniMax
  and Qwen's experts is by blocks of 128 x 128 (their quantization_config), whatever
  `gemm_quant_mode` says.
- Of a cache's format, and of what a step may hold, InferenceX's scripts tell (benchmarks/*.sh): see
  SCRIPTS. Versions of dynamo's images are not those of the server and left out.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from paleo.core.errors import MeasurementError, Mistakes
from paleo.core.files import read_text
from paleo.core.frozen import NamedTuple
from paleo.measure.validate.serving_rows import (
    AGGREGATED,
    DISAGGREGATED,
    Formats,
    LeftOutError,
    Party,
    ServedRow,
    ServedRows,
    counted,
)

#: Predefined nets of the models, whatever their numbers are stored in.
NETS = {
    "deepseek-ai/DeepSeek-R1": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek_v3",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek_v3",
    "MiniMaxAI/MiniMax-M2.5": "minimax_m2",
    "openai/gpt-oss-120b": "gpt_oss_120b",
    "meta-llama/Llama-3.1-70B": "llama3_70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3_8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama3_8b",
    "Qwen/Qwen3-32B": "qwen3_32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3_32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3_235b_a22b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3_5_397b",
    "moonshotai/Kimi-K2.5": "kimi_k2",
    "zhipuai/GLM-5": "glm_5",
}
DEVICES = {
    "h100_sxm": "H100_SXM",
    "h200_sxm": "H200_SXM",
    "b200_sxm": "B200_SXM",
    "b300_sxm": "B300_SXM",
    "gb200": "GB200",
    "gb300": "GB300",
}
_BLOCKS = ("fp8_block", "fp8_block", "fp8_block")
#: Formats of attention, other products and experts, by net and precision: what checkpoints'
#: quantization_config and hf_quant_config.json have (aiconfigurator_core/model_configs).
FORMATS: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("deepseek_v3", "fp8"): _BLOCKS,
    # Of attention the last product, too, from the second version on.
    ("deepseek_v3", "fp4"): ("bf16", "nvfp4", "nvfp4"),
    ("glm_5", "fp8"): _BLOCKS,
    ("glm_5", "fp4"): ("bf16", "nvfp4", "nvfp4"),
    ("kimi_k2", "int4"): ("bf16", "bf16", "int4"),
    ("kimi_k2", "fp4"): ("bf16", "nvfp4", "nvfp4"),
    ("minimax_m2", "fp8"): _BLOCKS,
    ("minimax_m2", "fp4"): ("bf16", "bf16", "nvfp4"),
    ("qwen3_5_397b", "bf16"): ("bf16", "bf16", "bf16"),
    ("qwen3_5_397b", "fp8"): _BLOCKS,
    ("qwen3_5_397b", "fp4"): ("bf16", "bf16", "nvfp4"),
    ("qwen3_235b_a22b", "fp8"): _BLOCKS,
    ("gpt_oss_120b", "fp4"): ("bf16", "bf16", "mxfp4"),
    ("llama3_70b", "fp8"): ("fp8", "fp8", ""),
    ("llama3_70b", "fp4"): ("nvfp4", "nvfp4", ""),
    ("llama3_8b", ""): ("bf16", "bf16", ""),
    ("llama3_8b", "fp8"): ("fp8", "fp8", ""),
    ("qwen3_32b", ""): ("bf16", "bf16", ""),
    # Its checkpoint is in bf16: the server quantizes it, and has no scales of what comes in.
    ("qwen3_32b", "fp8"): ("fp8_dynamic", "fp8_dynamic", ""),
    ("qwen3_32b", "fp4"): ("nvfp4", "nvfp4", ""),
}


class Load(NamedTuple):
    """What limits of a script depend on."""

    prompt: int
    output: int
    concurrency: int
    tp: int


class Script(NamedTuple):
    """What a script says of a server: the cache, and tokens and requests of a step.

    It is of these devices and precisions, of versions from `since` on; all where empty. So many
    times the concurrency are its requests (`rounds`).
    """

    net: str
    server: str
    file: str
    cache: str
    tokens: Callable[[Load], int | None] = lambda _: None
    requests: Callable[[Load], int | None] = lambda _: None
    devices: tuple[str, ...] = ()
    precision: str = ""
    since: tuple[int, ...] = ()
    rounds: int = 10


_HOPPER = ("H100_SXM", "H200_SXM")


def _concurrency(load: Load) -> int:
    return load.concurrency


def _whole(load: Load) -> int:
    """Both lengths and 200 tokens more, as utils/matrix_logic has max-model-len."""
    return load.prompt + load.output + 200


def _rounded(load: Load) -> int:
    """A prompt and a token of each request, in 64s."""
    return max(8192, -(-(load.concurrency + load.prompt + 64) // 64) * 64)


#: By net and server; the first that holds of a row is its own. (InferenceX, benchmarks/ and
#: benchmarks/single_node/.)
SCRIPTS: tuple[Script, ...] = (
    Script(
        "llama3_70b", "vllm", "70b_fp8_h100_slurm.sh", "fp8",
        lambda _: 8192, _concurrency, _HOPPER,
    ),
    Script("llama3_70b", "vllm", "70b_fp8_b200_docker.sh", "fp8", lambda _: 8192, lambda _: 512),
    Script("llama3_70b", "trtllm", "70b_fp8_h200_trt_slurm.sh", "fp8", _whole),
    Script(
        "gpt_oss_120b", "vllm", "gptoss_fp4_h100.sh", "bf16",
        lambda _: 8192, _concurrency, _HOPPER,
    ),
    Script(
        "gpt_oss_120b", "vllm", "gptoss_fp4_b200.sh", "fp8", lambda _: 8192, lambda _: 512,
        since=(0, 11, 2),
    ),
    Script(
        "gpt_oss_120b", "vllm", "gptoss_fp4_b200.sh before pull request 273", "bf16",
        lambda _: 8192, lambda _: 512,
    ),
    Script(
        "gpt_oss_120b", "trtllm", "gptoss_fp4_h200_trt.sh", "bf16",
        lambda _: 20000, _concurrency, _HOPPER,
    ),
    Script(
        "gpt_oss_120b", "trtllm", "gptoss_fp4_b200_trt.sh", "fp8",
        lambda _: 20000, lambda _: 512,
    ),
    Script("deepseek_v3", "trtllm", "dsr1_fp8_h200_trt.sh, dsr1_fp4_b200_trt.sh", "fp8", _rounded),
    Script(
        "deepseek_v3", "sglang", "dsr1_fp8_h200.sh", "bf16", lambda _: 32768,
        lambda load: 512 if load.prompt == load.output else 256, _HOPPER,
    ),
    Script(
        "deepseek_v3", "sglang", "dsr1_fp8_b200.sh", "fp8",
        lambda load: 32768 if load.tp == 8 else 8192, lambda load: 128 if load.tp == 8 else 32,
        precision="fp8",
    ),
    Script(
        "deepseek_v3", "sglang", "dsr1_fp4_b200.sh", "fp8", lambda _: 16384, lambda _: 256,
        precision="fp4",
    ),
    Script(
        "minimax_m2", "vllm", "minimaxm2.5_fp8_b300.sh", "fp8", lambda load: 2 * load.prompt,
        precision="fp8", since=(0, 19),
    ),
    Script(
        "minimax_m2", "vllm", "minimaxm2.5_fp8_h100.sh", "bf16", requests=lambda _: 256,
        devices=("H100_SXM",),
    ),
    Script("minimax_m2", "vllm", "minimaxm2.5_fp8_b200.sh", "bf16", precision="fp8"),
    # A cache in fp8 is what the checkpoint asks for.
    Script("minimax_m2", "vllm", "minimaxm2.5_fp4_b200.sh", "fp8", requests=_concurrency),
    Script(
        "kimi_k2", "vllm", "kimik2.5_fp4_b200.sh", "fp8", requests=_concurrency, precision="fp4",
    ),
    Script(
        "kimi_k2", "vllm", "kimik2.5_int4_h200.sh", "bf16", requests=_concurrency, devices=_HOPPER,
    ),
    Script("kimi_k2", "vllm", "kimik2.5_int4_b200.sh", "bf16"),
    Script("kimi_k2", "trtllm", "kimik2.5_fp4_gb200_dynamo-trt", "fp8"),
    Script(
        "qwen3_5_397b", "sglang", "qwen3.5_fp8_h200.sh", "fp8", lambda _: 16384, lambda _: 128,
        _HOPPER,
    ),
    Script(
        "qwen3_5_397b", "sglang", "qwen3.5_bf16_b200.sh", "bf16", lambda _: 32768, lambda _: 128,
        precision="bf16",
    ),
    Script(
        "qwen3_5_397b", "sglang", "qwen3.5_fp8_b200.sh", "fp8", lambda _: 32768, lambda _: 128,
        precision="fp8",
    ),
    Script(
        "qwen3_5_397b", "sglang", "qwen3.5_fp4_b200.sh", "fp8", lambda _: 32768,
        lambda load: max(load.concurrency, 128),
    ),
    Script("glm_5", "sglang", "glm5_fp8_h200.sh", "bf16", devices=_HOPPER, rounds=5),
    Script("glm_5", "sglang", "glm5_fp8_b200.sh", "fp8", lambda _: 32768, _concurrency),
)  # fmt: skip
#: NVIDIA's own rows with a cache in fp8, as the checkpoints ask for; others have it in bf16.
_NARROW = {("qwen3_32b", "fp8", "trtllm"), ("llama3_8b", "fp8", "vllm")}

#: Runs of `*-mtp` configurations of one server, by device, server, precision and day.
SPECULATIVE = {
    ("B200_SXM", "trtllm", "fp4", "2026-01-14"),
    ("B200_SXM", "trtllm", "fp4", "2026-02-06"),
    ("B200_SXM", "trtllm", "fp8", "2026-01-14"),
    ("B200_SXM", "trtllm", "fp8", "2026-02-05"),
    ("H200_SXM", "trtllm", "fp8", "2026-01-14"),
}
#: A run that has both: on eight devices (dsr1_fp8_b200_mtp.sh) what the dump lacks has drafts.
_MIXED = ("B200_SXM", "sglang", "fp8", "2026-03-25")
#: Tokens that are drafted at a time, without and with data parallel attention
#: (dsr1_fp4_b200_trt_mtp.sh: num_nextn_predict_layers; dsr1_fp8_b200_mtp.sh:
#: speculative-num-steps).
_DRAFTS = {"trtllm": (3, 1), "sglang": (2, 2)}

#: Runs that sent more requests than their server took, by net, device, server and day.
QUEUED = {
    ("gpt_oss_120b", "H100_SXM", "vllm", "2025-12-05"),
    ("gpt_oss_120b", "H100_SXM", "vllm", "2025-12-08"),
}

#: Devices of a node, beyond which one server of these rows does not go.
_OF_NODE = 8
_COLUMNS = (
    "id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision",
    "mode", "isl", "osl", "gemm_quant_mode", "batch_size", "tp_size", "pp_size",
    "attention_dp_size", "moe_tp_size", "moe_ep_size", "prefill_num_workers", "decode_num_workers",
    "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip
#: So many mistakes of a file are shown.
_SHOWN = 20
_INFLATED = re.compile(r"db-dump|2026-04-06\.csv")
_DATABASE = re.compile(r"^db-dump")
_OWN = re.compile(r"source_file=/")
_CONCURRENCY = re.compile(r"silicon_concurrency=(\d+)")
_DAY = re.compile(r"measured=([\d-]{10})")


def read_served(path: str | os.PathLike[str]) -> ServedRows:
    """Return the loads of a table of served points; raises MeasurementError for another file."""
    file = os.fspath(path)
    reader = csv.DictReader(io.StringIO(read_text(file, MeasurementError), newline=""))
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise MeasurementError(f"{file}: no table of served points: it lacks {', '.join(missing)}")
    entries = list(reader)
    mistakes = Mistakes(file)
    for entry in entries:
        for column, known in (("model_path", NETS), ("system", DEVICES)):
            if entry[column] not in known:
                mistakes.add(f"row {entry['id']!r}: unknown {column} {entry[column]!r}")
    mistakes.raise_as(MeasurementError, _SHOWN)
    same: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for entry in entries:
        same.setdefault(_measurement(entry), []).append(entry)
    rows, reasons = [], []
    for entry in entries:
        try:
            rows.append(_row(entry, same[_measurement(entry)]))
        except LeftOutError as reason:
            reasons.append(str(reason))
        except ValueError as error:
            raise MeasurementError(f"{file}: row {entry['id']!r}: {error}") from None
    return ServedRows(tuple(rows), counted(reasons))


def _measurement(entry: Mapping[str, str]) -> tuple[str, ...]:
    """Return what tells a measurement from others: two rows of one agree to six digits."""
    times = (f"{float(entry[f'silicon_{name}_ms']):.6g}" for name in ("ttft", "tpot"))
    return (entry["system"], NETS[entry["model_path"]], *times)


def _row(entry: Mapping[str, str], same: list[dict[str, str]]) -> ServedRow:
    """Return a row, `same` being those of its measurement; raises LeftOutError."""
    said = entry["silicon_data_source"]
    found = _CONCURRENCY.search(said)
    if not found:
        raise LeftOutError("no concurrency is stated")
    net, device = NETS[entry["model_path"]], DEVICES[entry["system"]]
    server, precision = entry["backend"], entry["precision"]
    day = _DAY.search(said)
    if day and (net, device, server, day[1]) in QUEUED:
        raise LeftOutError("more requests were sent than the server took, a number not stated")
    concurrency, prompt, output = int(found[1]), int(entry["isl"]), int(entry["osl"])
    is_own = bool(_OWN.match(said))
    stated = [other for other in same if _DATABASE.match(other["silicon_data_source"])]
    if entry["mode"] == "agg":
        mode = AGGREGATED
        prefill = decode = _party_of_one(entry, concurrency, is_own)
    else:
        mode = DISAGGREGATED
        if not (entry["prefill_num_workers"] or stated):
            raise LeftOutError("disaggregated: neither workers nor degrees of attention are stated")
        prefill, decode = _parties(entry if entry["prefill_num_workers"] else stated[0])
    try:
        attention, products, experts = FORMATS[net, precision]
    except KeyError:
        raise LeftOutError(f"{entry['model_path']} in {precision or 'no precision'}") from None
    if "dynamo" in said or "tensorrtllm-runtime" in said or mode == DISAGGREGATED:
        version = ""
    else:
        version = entry["backend_version"]
    load = Load(prompt, output, concurrency, prefill.tp * prefill.attention_dp)
    row = ServedRow(
        entry["id"], said, net, device, server, version, mode, prompt, output,
        1.0 if is_own else 0.8, concurrency, 10 * concurrency,
        Formats(attention, products, experts, "bf16"), prefill, decode,
        float(entry["silicon_ttft_ms"]) / 1e3, float(entry["silicon_tpot_ms"]) / 1e3,
        drafts=0 if stated else _drafts(said, net, device, server, precision, prefill, mode),
        twins=tuple(other["id"] for other in same if other["id"] != entry["id"]),
    )  # fmt: skip
    if is_own:
        cache = "fp8" if (net, precision, server) in _NARROW or precision == "fp4" else "bf16"
        return replace(row, formats=row.formats._replace(cache=cache))
    script = _script(row, precision)
    row = replace(
        row,
        formats=row.formats._replace(cache=script.cache),
        requests=script.rounds * concurrency,
    )
    if mode == DISAGGREGATED:  # its servers have settings of their own
        return row
    return replace(row, step_tokens=script.tokens(load), step_requests=script.requests(load))


def _party_of_one(entry: Mapping[str, str], concurrency: int, is_own: bool) -> Party:
    """Return the degrees of a row of one server; raises LeftOutError."""
    tp, pp, groups, moe_tp, moe_ep = (
        int(float(entry[name] or 1))
        for name in ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    )
    if is_own:
        groups = max(groups, 1)
        if round(float(entry["batch_size"]) * groups) != concurrency:
            raise LeftOutError("several servers or groups of attention, of a number not stated")
        party = Party(1, tp, pp, groups, max(moe_tp, 1), max(moe_ep, 1))
        return _checked(party, entry)
    if _INFLATED.search(entry["silicon_data_source"]):
        if entry["backend"] == "vllm" and groups > 1:
            groups, moe_tp, moe_ep = 1, 1, tp
        elif moe_tp > 1 and moe_ep > 1:
            groups = moe_tp if groups > 1 else 1
            tp, moe_tp = moe_tp // groups, moe_tp // moe_ep
    party = Party(1, tp, pp, groups, moe_tp, moe_ep)
    if party.devices > _OF_NODE:
        raise LeftOutError("one server of the devices of several nodes")
    return _checked(party, entry)


_WITH_EXPERTS = {net for (net, _), formats in FORMATS.items() if formats[2]}


def _checked(party: Party, entry: Mapping[str, str]) -> Party:
    """Return degrees whose experts are on the devices of attention; raises LeftOutError."""
    if NETS[entry["model_path"]] not in _WITH_EXPERTS:
        return party._replace(moe_tp=1, moe_ep=1)
    if party.moe_tp * party.moe_ep != party.tp * party.attention_dp:
        raise LeftOutError("experts on other devices than attention")
    return party


def _parties(entry: Mapping[str, str]) -> tuple[Party, Party]:
    """Return the degrees of both servers of a row that states them."""

    def party(name: str) -> Party:
        return Party(
            *(
                max(int(float(entry[f"{name}_{key}"])), 1)
                for key in (
                    "num_workers", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size",
                    "moe_ep_size",
                )
            )
        )  # fmt: skip

    return party("prefill"), party("decode")


def _drafts(
    said: str, net: str, device: str, server: str, precision: str, party: Party, mode: str
) -> int:
    """Return how many tokens a run drafts at a time, by its day."""
    day = _DAY.search(said)
    if net != "deepseek_v3" or mode == DISAGGREGATED or not day:
        return 0
    run = (device, server, precision, day[1])
    is_speculative = run in SPECULATIVE or (run == _MIXED and party.devices == _OF_NODE)
    return _DRAFTS[server][party.attention_dp > 1] if is_speculative else 0


def _script(row: ServedRow, precision: str) -> Script:
    """Return the script of a row; raises LeftOutError where none is known."""
    version = re.match(r"\d+(?:\.\d+)*", row.version)
    numbers = tuple(map(int, version[0].split("."))) if version else ()
    for script in SCRIPTS:
        if (
            (script.net, script.server) == (row.net, row.server)
            and (not script.devices or row.device in script.devices)
            and script.precision in ("", precision)
            and numbers >= script.since
        ):
            return script
    raise LeftOutError(f"{row.net} on {row.server}: no script is known")
