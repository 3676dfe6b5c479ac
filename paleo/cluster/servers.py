"""What programs that serve language models do: scheduling, cache, formats, and time of the host.

A server is data, each figure with its source. Steps: a server repeats one forward pass of all
requests that it has admitted; what a step may hold is its own default, as is what it keeps of the
device's memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paleo.cluster.device import Device
from paleo.core.checks import shown
from paleo.core.errors import HardwareError, SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity
from paleo.core.registry import Registry
from paleo.core.units import GIB, MIB

#: How much of the cache a request must find free before it is admitted.
RESERVES = {
    "prompt": "the blocks of its prompt; where an answer finds none, a request is computed again",
    "part": "its prompt's, and a share of the longest answers of all that run",
    "whole": "those of its prompt and its longest answer, so that nobody loses any",
}


class StepLimits(NamedTuple):
    """What a step holds by default, on devices of at least `memory` GiB.

    `tokens` in all, of `requests`. CUDA graphs are captured for steps of up to `graphs` tokens, and
    of `shared_graphs` where four or more devices share tensors. `reserved` bytes of a device are
    for activations, graphs and the runtime. `but` are architectures that have the limits before.
    """

    memory: float
    tokens: int
    requests: int
    graphs: int
    shared_graphs: int
    reserved: float = 0.0
    but: tuple[str, ...] = ()


@dataclass(frozen=True)
class Server:
    """A program that serves language models, of one version, as `source` says.

    `backend` is the name in paleo.costs.tiled.backends whose kernels it runs, "" for its own.
    `limits` are those of steps, of the least memory first. It `chunks` a prompt that is longer than
    a step's tokens, `mixes` prompts and single tokens in one step, and where it `decodes_first`,
    running requests get their tokens before prompts; else prompts that fit go first.

    `reserve` is one of RESERVES, with `answers` the share that `part` keeps at first. The cache has
    blocks of `block` tokens, of which the share `watermark` stays free when a request is admitted.
    Weights and cache have `memory_share` of a device's memory, less the reserved bytes; where it
    `shares_rest`, the cache has that share of what weights and reserved bytes leave.

    `graphs_prompts` tells whether steps with prompts run as graphs, too, but for their attention.
    `weights` are element types or names of paleo.net.layers.matrices.STORED, `caches` element
    types; llama.cpp has its own. `all_reduces` are its kernels inside a node (names of
    paleo.cluster.collectives.custom, "" for NCCL's) by the first version that has them. Tokens
    reach experts by `experts` among devices that share tensors, and by `spread_experts` where
    attention is data parallel.

    `step_host` are seconds a step that no kernel hides, `request_host` those of each of its
    requests, `first_host` those of a request besides its steps until its first token (of the
    frontend: HTTP, tokens of its text), as `host_source` says (0 where nothing is known). Where it
    `overlaps`, a step is scheduled while the one before runs; before the version `overlaps_since`
    it was not, and the host took `alone_host` a step and `alone_request` a request of it.

    On architectures in `fused_on` a kernel of an all-reduce adds and normalizes, too
    (TensorRT-LLM's allreduce_fusion, which FlashInfer has for others).

    Where no step is a graph its host hands over a kernel in `kernel_host` seconds (0: in those of
    PyTorch on the device). It `holds_reduced` where PyTorch keeps the memory of what was reduced
    (paleo.step.serving.held).
    """

    name: str
    title: str
    version: str
    source: str
    backend: str
    limits: tuple[StepLimits, ...]
    chunks: bool
    mixes: bool
    decodes_first: bool
    reserve: str
    block: int
    memory_share: float
    weights: tuple[str, ...]
    caches: tuple[str, ...]
    all_reduces: Mapping[tuple[int, ...], str]
    experts: str
    spread_experts: str
    overlaps: bool
    step_host: Quantity
    request_host: Quantity
    host_source: str
    answers: float = 0.0
    watermark: float = 0.0
    shares_rest: bool = False
    graphs_prompts: bool = False
    first_host: Quantity = 0.0
    alone_host: Quantity = 0.0
    alone_request: Quantity = 0.0
    overlaps_since: tuple[int, ...] = ()
    fused_on: tuple[str, ...] = ()
    kernel_host: Quantity = 0.0
    holds_reduced: bool = False

    def of_version(self, version: str) -> Server:
        """Return the server as a version of it was, as it is where no numbers are known."""
        numbers = numbers_of(version)
        if not numbers or numbers >= self.overlaps_since:
            return self
        return replace(
            self, version=version, overlaps=False, step_host=self.alone_host,
            request_host=self.alone_request,
        )  # fmt: skip

    def limits_on(self, device: Device) -> StepLimits:
        """Return what a step holds on a device; the least where its memory is not known."""
        memory = (device.memory_capacity or 0) / GIB
        found = self.limits[0]
        for limits in self.limits:
            if memory >= limits.memory and device.architecture not in limits.but:
                found = limits
        return found

    def cache_bytes(self, device: Device, weights: Quantity) -> Quantity:
        """Return the bytes that the cache has beside so many of weights; below 0: they do not fit.

        Raises HardwareError where a device's memory is not known.
        """
        whole = _whole(device)
        reserved = self.limits_on(device).reserved
        if self.shares_rest:
            return self.memory_share * (whole - reserved - weights)
        return self.memory_share * whole - reserved - weights

    def left_free(self, device: Device) -> Quantity:
        """Return the bytes of a device that neither weights nor a cache nor a profiled step has.

        Raises HardwareError where a device's memory is not known.
        """
        return (1 - self.memory_share) * _whole(device)

    def all_reduce_of(self, version: str = "") -> str:
        """Return the kernels of all-reduces of a version, of its own where no numbers are known."""
        numbers = numbers_of(version) or numbers_of(self.version)
        return [kernels for since, kernels in self.all_reduces.items() if numbers >= since][-1]

    def check_formats(self, weights: str, cache: str) -> None:
        """Raise SettingError where it has no kernels for weights or a cache of such formats."""
        for what, name, known in (
            ("weights", weights, self.weights),
            ("cache", cache, self.caches),
        ):
            if name not in known:
                raise SettingError(
                    f"server: {self.title} has no {what} in {name} (it has: {', '.join(known)})"
                )


def _whole(device: Device) -> Quantity:
    if device.memory_capacity is None:
        raise HardwareError(f"device {device.name} has no memory_capacity")
    return device.memory_capacity


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: (1, 2, 0) of 1.2.0rc4, none of others."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


#: What NCCL's own kernels are called.
_NCCL = ""
SERVERS: Registry[Server] = Registry("server")

for _each in (
    Server(
        "vllm",
        "vLLM",
        "0.14",
        "vllm-project/vllm, vllm/engine/arg_utils.py (get_batch_defaults: 8192 tokens and 1024 "
        "requests from 70 GiB on but for A100, else 2048 and 256; chunked prefill is on), "
        "vllm/v1/core/sched/scheduler.py (running requests first, then waiting ones, in one step; "
        "without blocks the request that came last is computed again), vllm/config/cache.py "
        "(block_size 16, gpu_memory_utilization 0.9, what a profiled step takes among it), "
        "vllm/config/compilation.py and vllm.py (graphs up to twice max_num_seqs and 512 tokens, "
        "FULL_AND_PIECEWISE), vllm/config/parallel.py (all2all_backend allgather_reducescatter), "
        "csrc/custom_all_reduce.cuh",
        backend="vllm",
        limits=(
            StepLimits(0, 2048, 256, 512, 512),
            StepLimits(70, 8192, 1024, 512, 512, but=("Ampere",)),
        ),
        chunks=True,
        mixes=True,
        decodes_first=True,
        reserve="prompt",
        block=16,
        memory_share=0.9,
        weights=(
            "bf16",
            "fp16",
            "fp8",
            "fp8_dynamic",
            "fp8_block",
            "nvfp4",
            "mxfp4",
            "int8",
            "int4",
        ),
        caches=("bf16", "fp16", "fp8"),
        all_reduces={(0,): "barriers"},
        experts="all_reduce",
        spread_experts="all_gather",
        graphs_prompts=True,
        overlaps=True,
        step_host=0.0,
        request_host=12e-6,
        host_source="vllm-project/vllm, issue 10634: between two steps of Llama 2 7B with 256 "
        "requests 5 to 6 ms pass, and 200 to 300 us by asynchronous scheduling, the default from "
        "0.14 on; values by benchmarks/served.py --fit",
        first_host=0.05,
        alone_host=1.4e-3,
        alone_request=16e-6,
        overlaps_since=(0, 14),
        fused_on=("Blackwell",),
    ),
    Server(
        "vllm_2023",
        "vLLM of 2023",
        "0.2.0",
        "vllm-project/vllm 0.2.0, vllm/config.py (max_num_batched_tokens is max_model_len and at "
        "least 2048: 4096 of Llama 2), vllm/engine/arg_utils.py (256 requests, "
        "gpu_memory_utilization 0.9, block_size 16), vllm/core/scheduler.py (whole prompts, alone, "
        "before decodes) and block_manager.py (watermark 0.01), "
        "vllm/model_executor/parallel_utils/tensor_parallel/mappings.py "
        "(torch.distributed.all_reduce); no graphs before 0.2.6",
        backend="vllm",
        limits=(StepLimits(0, 4096, 256, 0, 0),),
        chunks=False,
        mixes=False,
        decodes_first=False,
        reserve="prompt",
        block=16,
        memory_share=0.9,
        weights=("bf16", "fp16", "int4"),
        caches=("bf16", "fp16"),
        all_reduces={(0,): _NCCL},
        experts="",
        spread_experts="",
        overlaps=False,
        step_host=11e-3,
        request_host=400e-6,
        host_source="Python between two steps (scheduling, Ray's workers, sampling, text): "
        "vllm-project/vllm, issue 10634, of later versions; values by benchmarks/served.py --fit, "
        "of 20 of Splitwise's rows of decoding",
        watermark=0.01,
        kernel_host=42e-6,
        holds_reduced=True,
    ),
    Server(
        "sglang",
        "SGLang",
        "0.5.9",
        "sgl-project/sglang, python/sglang/srt/server_args.py (chunked_prefill_size and "
        "cuda_graph_max_bs by memory; mem_fraction_static is what 512 MiB, 1.5 MiB a token of a "
        "chunk, 2 MiB a request of a graph and 1 GiB for eight devices leave; page_size 1; "
        "enable_mixed_chunk is off), managers/scheduler.py (a batch of prompts goes before the "
        "running one; overlap is on), managers/schedule_policy.py and environ.py "
        "(SGLANG_INIT_NEW_TOKEN_RATIO 0.7), "
        "managers/tp_worker.py (up to 4096 requests)",
        backend="sglang",
        limits=(
            StepLimits(0, 2048, 4096, 8, 8, 3728 * MIB),
            StepLimits(20, 2048, 4096, 24, 80, 3760 * MIB),
            StepLimits(35, 4096, 4096, 32, 160, 6848 * MIB),
            StepLimits(60, 8192, 4096, 256, 512, 13440 * MIB),
            StepLimits(160, 16384, 4096, 512, 512, 26240 * MIB),
        ),
        chunks=True,
        mixes=False,
        decodes_first=False,
        reserve="part",
        answers=0.7,
        block=1,
        memory_share=1.0,
        weights=(
            "bf16",
            "fp16",
            "fp8",
            "fp8_dynamic",
            "fp8_block",
            "nvfp4",
            "mxfp4",
            "int8",
            "int4",
        ),
        caches=("bf16", "fp16", "fp8"),
        all_reduces={(0,): "barriers", (0, 5, 12): "pushed"},
        experts="all_reduce",
        spread_experts="all_to_all",
        overlaps=True,
        step_host=0.0,
        request_host=28e-6,
        host_source="LMSYS, SGLang v0.4, https://lmsys.org/blog/2024-12-04-sglang-v0-4: with the "
        "scheduler one batch ahead a profile of five steps shows no idle time of the GPU; what is "
        "left by benchmarks/served.py --fit",
        first_host=0.145,
        fused_on=("Blackwell",),
    ),
    Server(
        "trtllm",
        "TensorRT-LLM",
        "1.2",
        "NVIDIA/TensorRT-LLM, tensorrt_llm/llmapi/llm_args.py and commands/serve.py "
        "(max_num_tokens 8192, max_batch_size 2048, tokens_per_block 32, free_gpu_memory_fraction "
        "0.9 of what weights and a profiled step leave, CudaGraphConfig up to 128 requests, "
        "enable_chunked_prefill is off, capacity_scheduler_policy GUARANTEED_NO_EVICT), "
        "_torch/pyexecutor/scheduler (contexts and generation in one step, generation first), "
        "_torch/modules/fused_moe (experts of data-parallel attention: NVLink one-sided "
        "all-to-all, else all-gather and reduce-scatter)",
        backend="trtllm",
        limits=(StepLimits(0, 8192, 2048, 128, 128),),
        chunks=False,
        mixes=True,
        decodes_first=True,
        reserve="whole",
        block=32,
        memory_share=0.9,
        shares_rest=True,
        weights=(
            "bf16",
            "fp16",
            "fp8",
            "fp8_dynamic",
            "fp8_block",
            "nvfp4",
            "mxfp4",
            "int8",
            "int4",
        ),
        caches=("bf16", "fp16", "fp8", "nvfp4", "int8"),
        all_reduces={(0,): "pushed"},
        experts="all_reduce",
        spread_experts="all_to_all",
        overlaps=True,
        step_host=200e-6,
        request_host=22e-6,
        host_source="NVIDIA, TensorRT-LLM, docs/source/features/overlap-scheduler.md: a step is "
        "launched before the host has seen what the one before gave, after SGLang's scheduler; "
        "what is left by benchmarks/served.py --fit",
        first_host=0.055,
        fused_on=("Ampere", "Ada", "Hopper", "Blackwell"),
    ),
    Server(
        "tgi",
        "Text Generation Inference",
        "3.3",
        "huggingface/text-generation-inference, launcher/src/main.rs (max_batch_prefill_tokens "
        "4096, max_concurrent_requests 128, waiting_served_ratio 0.3, max_waiting_tokens 20, "
        "cuda_graphs 1 to 32, prefill chunking), backends/v3/src/block_allocator.rs (blocks of a "
        "prompt and its whole answer at once), server/text_generation_server/models/globals.py "
        "(TGI_WIGGLE_ROOM 0.9 of the free memory, FlashInfer, blocks of one token)",
        backend="vllm",
        limits=(StepLimits(0, 4096, 128, 32, 32),),
        chunks=True,
        mixes=True,
        decodes_first=True,
        reserve="whole",
        block=1,
        memory_share=0.9,
        shares_rest=True,
        weights=("bf16", "fp16", "fp8", "fp8_dynamic", "int8", "int4"),
        caches=("bf16", "fp16", "fp8"),
        all_reduces={(0,): _NCCL},
        experts="all_reduce",
        spread_experts="",
        overlaps=False,
        step_host=0.0,
        request_host=0.0,
        host_source="",
    ),
    Server(
        "llama_cpp",
        "llama.cpp",
        "6000",
        "ggml-org/llama.cpp, common/common.h (n_batch 2048, n_ubatch 512, n_parallel 1, cache_type "
        "f16), tools/server/server.cpp (slots that decode come before prompts in one batch, "
        "cont_batching), src/llama-kv-cache.cpp (a cell a token, all of the context at the start), "
        "ggml/src/ggml-cuda/ggml-cuda.cu (graphs of steps of one token)",
        backend="",
        limits=(StepLimits(0, 512, 1, 1, 1),),
        chunks=True,
        mixes=True,
        decodes_first=True,
        reserve="whole",
        block=1,
        memory_share=1.0,
        weights=("fp16", "bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "mxfp4"),
        caches=("fp16", "bf16", "q8_0", "q4_0"),
        all_reduces={(0,): _NCCL},
        experts="",
        spread_experts="",
        overlaps=False,
        step_host=0.0,
        request_host=0.0,
        host_source="",
    ),
):
    SERVERS.add(_each.name, _each)
SERVERS.built_in = tuple(SERVERS)


def find_server(value: Any) -> Server:
    """Return a server, also of its name; raises UnknownNameError or SettingError."""
    if isinstance(value, str):
        return SERVERS[value]
    if not isinstance(value, Server):
        raise SettingError(f"server: expected a server, got {shown(value)}")
    return value
