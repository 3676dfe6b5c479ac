"""Settings of inference: a model on a server, how devices share it, and what is asked of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from paleo.cluster import Price
from paleo.cluster.servers import SERVERS, Server, find_server
from paleo.core.checks import MAX_COUNT, is_number, is_whole, python_int, shown
from paleo.core.errors import SettingError
from paleo.core.frozen import TypedDict
from paleo.core.tensor import DTYPES
from paleo.core.units import parse
from paleo.costs.tiled.quantizations import QUANTIZATIONS
from paleo.net.importers import ImportOptions
from paleo.step.declarations import Setting, choice, declared, listing
from paleo.step.mesh_settings import MeshSettings
from paleo.step.settings import BATCH_SIZE, COST_MODEL, FRAMEWORK, DeviceLike, GridSettings
from paleo.studies.training import PowerSettings, TrainingSettings

#: What caches are kept in, and the bytes of a number.
CACHES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
}
#: By so much lengths differ where nobody says, so that requests do not begin and end in step for
#: ever: no load of users does, and it decides how long some wait.
LENGTH_CV = 0.02
#: More seconds, or requests a second, mean nothing.
_MOST = 1e9
#: No sequence has more tokens.
MOST_TOKENS = 2**20


def counted(name: str, most: int = MAX_COUNT, least: int = 1) -> Callable[[Any], int]:
    """Return the check of a whole number."""

    def check(value: Any) -> int:
        found = python_int(value)
        if is_whole(found) and least <= found <= most:
            return int(found)
        raise SettingError(
            f"{name}: expected a whole number from {least:,} to {most:,}, got {shown(value)}"
        )

    return check


def _number(name: str, least: float, most: float, *, above: bool = False) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if is_number(value) and least <= value <= most and not (above and value == least):
            return float(value)
        words = f"above {least:g}, up to {most:g}" if above else f"from {least:g} to {most:g}"
        raise SettingError(f"{name}: expected a number {words}, got {shown(value)}")

    return check


def _share(name: str) -> Callable[[Any], float]:
    return _number(name, 0, 1)


def checked_seconds(name: str) -> Callable[[Any], float]:
    """Return the check of a time: seconds, or a text with a unit."""

    def check(value: Any) -> float:
        try:
            seconds = parse(value, "s") if isinstance(value, str) else value
        except ValueError as error:
            raise SettingError(f"{name}: {error}") from None
        if is_number(seconds) and 0 < seconds <= _MOST:
            return float(seconds)
        raise SettingError(
            f'{name}: expected seconds above 0, or a text such as "500 ms", got {shown(value)}'
        )

    return check


def _asked(setting: Setting) -> Setting:
    """Return a setting that may not be given."""
    return setting.with_default(None)


def _whole(name: str, text: str, default: int | None, **changes: Any) -> Setting:
    found = Setting(default=1, check=counted(name), help=text, is_number=True, **changes)
    return found.with_default(default)


_GRID, _MESH, _LONG = declared(GridSettings), declared(MeshSettings), declared(TrainingSettings)
_TYPES = {**QUANTIZATIONS, **dict.fromkeys(DTYPES)}

DTYPE = Setting(
    default=None,
    check=lambda value: None if value is None else choice("dtype", tuple(_TYPES))(value),
    help="Numbers in which products multiply. bf16 and fp16 are as they are; fp8, fp8_block, nvfp4 "
    "and int8 have weights and activations of fewer bits, int4, mxfp4 and GGUF's q8_0 and q4_k_m "
    "weights alone.",
    choices=lambda: _TYPES,
    shown_default="bf16, or fp16 where the device has no bf16; of other nets fp32",
    label="Data type of products",
)


#: Language models are of younger devices than the paper's.
DEFAULT_DEVICE = "H100_SXM"
DEVICES = replace(_GRID["device"], default=(DEFAULT_DEVICE,))


class InferSettings(TypedDict, total=False):
    """Of how a model is served, and at what load."""

    cluster: Annotated[Any, _GRID["cluster"]]
    device: Annotated[DeviceLike | Sequence[DeviceLike], DEVICES]
    network: Annotated[Any, _GRID["network"]]
    cost_model: Annotated[str, COST_MODEL]
    workers: Annotated[
        int | None,
        replace(
            _whole("num_workers", "Devices in all.", None, options=("--num_workers",)),
            shown_default="those of one copy",
            label="Devices",
        ),
    ]
    dtype: Annotated[str | Sequence[str] | None, listing("dtype", DTYPE)]
    experts_dtype: Annotated[
        str | None,
        replace(
            DTYPE,
            help="The same of experts, where theirs are others.",
            shown_default="--dtype",
            metavar="NAME",
            label="Data type of experts",
        ),
    ]
    kv_dtype: Annotated[
        str | None,
        Setting(
            default=None,
            check=lambda value: None if value is None else choice("kv_dtype", tuple(CACHES))(value),
            help="Numbers of keys and values in the cache.",
            choices=lambda: CACHES,
            shown_default="2 bytes each",
            label="Data type of the cache",
        ),
    ]
    tp: Annotated[
        int | None,
        _whole(
            "tp",
            "Devices that share each layer of one copy of the model; those that share experts or "
            "have attention of different requests are among them.",
            None,
            shown_default="those of --ep, or as few as hold the model",
            label="Tensor parallel",
        ),
    ]
    pp: Annotated[
        int,
        _whole(
            "pp",
            "Stages of layers of one copy.",
            1,
            label="Pipeline parallel",
        ),
    ]
    cp: Annotated[
        int,
        _whole(
            "cp",
            "Devices that share the positions of a request, and its cache.",
            1,
            label="Context parallel",
        ),
    ]
    ep: Annotated[
        int,
        _whole(
            "ep",
            "Devices among those of --tp that have different experts.",
            1,
            label="Expert parallel",
        ),
    ]
    attention_dp: Annotated[
        int,
        _whole(
            "attention_dp",
            "Groups among the devices of --tp that have different requests; they share experts "
            "alone.",
            1,
            label="Groups of attention",
        ),
    ]
    prefill: Annotated[
        int | None,
        _whole(
            "prefill",
            "Devices that compute prompts alone; the others decode, and caches are moved.",
            None,
            label="Devices for prompts",
        ),
    ]
    decode: Annotated[
        int | None,
        _whole(
            "decode",
            "Devices that decode alone, with --prefill.",
            None,
            label="Devices that decode",
        ),
    ]
    prefill_tp: Annotated[
        int | None,
        _whole(
            "prefill_tp",
            "--tp of those.",
            None,
            label="Tensor parallel, prompts",
        ),
    ]
    prefill_ep: Annotated[
        int | None,
        _whole(
            "prefill_ep",
            "--ep of those.",
            None,
            label="Expert parallel, prompts",
        ),
    ]
    prefill_attention_dp: Annotated[
        int | None,
        _whole(
            "prefill_attention_dp",
            "--attention_dp of those.",
            None,
            label="Groups of attention, prompts",
        ),
    ]
    server: Annotated[
        str | Server,
        Setting(
            default="vllm",
            check=find_server,
            help="The program that serves: its scheduler, kernels and host.",
            choices=lambda: SERVERS,
            label="Server",
        ),
    ]
    batching: Annotated[
        str,
        Setting(
            default="continuous",
            check=choice("batching", ("continuous", "static")),
            help="Requests come and go step by step, or batch by batch.",
            choices=lambda: ("continuous", "static"),
            label="Batching",
        ),
    ]
    token_budget: Annotated[
        int | None,
        _whole(
            "token_budget",
            "The most tokens of a step.",
            None,
            shown_default="the server's",
            label="Tokens of a step",
        ),
    ]
    max_requests: Annotated[
        int | None,
        _whole(
            "max_requests",
            "The most requests at once.",
            None,
            shown_default="the server's",
            label="Requests at once",
        ),
    ]
    eager: Annotated[
        bool,
        Setting(
            default=False,
            check=bool,
            help="The host hands over each kernel; else steps that decode are CUDA graphs.",
            label="Without CUDA graphs",
        ),
    ]
    prompt: Annotated[
        int,
        Setting(
            default=1024, check=counted("prompt", MOST_TOKENS), help="Tokens of a prompt.",
            is_number=True, label="Tokens of a prompt",
        ),
    ]  # fmt: skip
    output: Annotated[
        int,
        Setting(
            default=256, check=counted("output", MOST_TOKENS), help="Tokens of an answer.",
            is_number=True, label="Tokens of an answer",
        ),
    ]  # fmt: skip
    length_cv: Annotated[
        float,
        Setting(
            default=LENGTH_CV,
            check=_number("length_cv", 0, 10),
            help="How lengths of prompts and answers differ: their standard deviation over their "
            "mean, of a lognormal distribution. Requests that are all alike stay in step.",
            label="Variation of lengths",
        ),
    ]
    concurrency: Annotated[
        int | Sequence[int] | None,
        listing(
            "concurrency",
            _whole(
                "concurrency",
                "Requests at a time.",
                1,
                label="Requests at a time",
            ),
        ).with_default(None, shown_default="1,8,32,128"),
    ]
    rate: Annotated[
        float | Sequence[float] | None,
        listing(
            "rate",
            Setting(
                default=1.0,
                check=_number("rate", 0, _MOST, above=True),
                help="Requests a second that come, whether or not others are done.",
                is_number=True,
                label="Requests a second",
            ),
        ).with_default(None, type=float),
    ]
    cv: Annotated[
        float,
        Setting(
            default=1.0,
            check=_number("cv", 0, 100),
            help="How evenly requests come: 1 at random (Poisson), 0 as a clock, more in bursts "
            "(gamma).",
            label="Variation of arrivals",
        ),
    ]
    prompts: Annotated[
        str | os.PathLike[str] | None,
        Setting(
            default=None,
            check=lambda value: value,
            help="A file of requests: CSV with arrival, prompt and output, the format of Azure's "
            "traces, or JSON lines as Mooncake's. With --rate they come quicker or slower.",
            metavar="FILE",
        ),
    ]
    requests: Annotated[
        int | None,
        _whole(
            "requests", "How many requests are simulated.", None,
            shown_default="10 for each at a time; 1000 at a rate",
            label="Requests that are simulated",
        ),
    ]  # fmt: skip
    hit_rate: Annotated[
        float,
        Setting(
            default=0.0,
            check=_share("hit_rate"),
            help="The share of a prompt that the prefix cache has.",
            label="Hit rate of the prefix cache",
        ),
    ]
    seed: Annotated[
        int,
        Setting(
            default=0, check=counted("seed", least=0), is_number=True,
            help="What chance begins with: the same number gives the same requests.",
            label="Seed",
        ),
    ]  # fmt: skip
    drafts: Annotated[
        int,
        Setting(
            default=0,
            check=counted("drafts", 64, least=0),
            help="Speculative decoding: tokens that are drafted in each step.",
            is_number=True,
            label="Drafted tokens",
        ),
    ]
    acceptance: Annotated[
        float,
        Setting(
            default=0.7,
            check=_share("acceptance"),
            help="The chance that a draft is accepted.",
            label="Accepted drafts",
        ),
    ]
    draft: Annotated[
        Any,
        Setting(
            default=None,
            check=lambda value: value,
            help="The net that drafts.",
            metavar="NET",
            shown_default="a layer of the model, as multi-token prediction",
            label="Net that drafts",
        ),
    ]
    ttft: Annotated[
        float | str | None,
        Setting(
            default=None,
            check=lambda value: None if value is None else checked_seconds("ttft")(value),
            help='The most time to a first token, such as "500 ms".',
            metavar="TIME",
            label="Limit of the first token",
        ),
    ]
    tpot: Annotated[
        float | str | None,
        Setting(
            default=None,
            check=lambda value: None if value is None else checked_seconds("tpot")(value),
            help='The most time for each other token, such as "30 ms".',
            metavar="TIME",
            label="Limit of each other token",
        ),
    ]
    batch_size: Annotated[
        int | Sequence[int] | None,
        listing("batch_size", BATCH_SIZE, "Of other nets, images at a time.").with_default(None),
    ]
    framework: Annotated[
        str | None,
        FRAMEWORK.with_default(None, help="Of other nets, what runs them.", describes=False),
    ]
    price: Annotated[float | str | Price | None, _LONG["price"]]
    prices: Annotated[str | os.PathLike[str] | None, _LONG["prices"]]
    power: Annotated[float | str | None, declared(PowerSettings)["power"]]
    importing: ImportOptions | None


#: Settings of language models alone, and of other nets alone.
OF_OTHERS = ("batch_size", "framework")
