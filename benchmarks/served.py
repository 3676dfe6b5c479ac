"""Predicted tokens of servers beside those that others measured.

    python benchmarks/served.py            print the errors by kind, and what is missed
    python benchmarks/served.py --rows     and every row
    python benchmarks/served.py --every=8  of every 8th served point alone
    python benchmarks/served.py --write    write them into docs/accuracy.md
    python benchmarks/served.py --check    exit with 1 if a bound is missed that was met
    python benchmarks/served.py --bands    and write the error bands of tokens and of first tokens
    python benchmarks/served.py --fit      fit what hosts take, to 40 rows of H100, H200 a server,
                                           and to 20 of Splitwise's decodes, and of its prompts

Served points are those of aiconfigurator-core (the extra `validate`), batches those of Splitwise
and llama.cpp (docs/accuracy.md says where they are). Nothing is fitted to a net, nor to any row of
B200, B300, GB200 or GB300: of servers, what --fit prints; of all of them, the drift of devices and
how unequal experts are chosen (paleo/step/serving/prices.py, shares.py).
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from error_bands import COVERAGE, Bands

from paleo.cluster import find_cluster, find_device
from paleo.cluster.servers import SERVERS
from paleo.core.errors import PaleoError
from paleo.costs import COST_MODELS
from paleo.costs.error_bands import FIRST_TOKEN, INFERENCE, TOKEN, Like
from paleo.costs.tiled.backends import Backend, Product
from paleo.costs.tiled.error_bands import known_bands
from paleo.measure.validate.alike import Rows, learned, left_out
from paleo.measure.validate.batches import predicted, prices_of_batch
from paleo.measure.validate.served import (
    FITTED,
    SIMULATED,
    Point,
    measured_rows,
    served,
    server_of,
)
from paleo.measure.validate.served_batches import infersim_cases, read_llama_cpp, read_splitwise
from paleo.measure.validate.serving_rows import AGGREGATED, BatchRow, ServedRow
from paleo.net.load import load
from paleo.step.serving.held import PAGE as OF_DRIVER
from paleo.step.serving.held import held_bytes
from paleo.step.serving.parts import ONCE_A_HOST
from paleo.step.serving.prices import EXCHANGE, Degrees, Kernels, StepPrices
from paleo.studies.serving.placing import program_of

ROOT = Path(__file__).parents[1]
PAGE, HEADING = ROOT / "docs" / "accuracy.md", "## Tokens of servers\n"
FILE = ROOT / "paleo" / "costs" / "tiled" / "errors.toml"
#: Where files of published batches are: PALEO_MEASURED, or a folder beside the project's.
MEASURED = Path(os.environ.get("PALEO_MEASURED", ROOT.parent / "shared" / "measured"))
#: The kernels of DeepSeek's own program: FlashMLA, DeepGEMM, FlashAttention-3 for prompts.
DEEPSEEK = Backend(
    "deepseek", "2025-02", {"fp8_block": Product("group", "deepgemm", "deepseek-ai/DeepGEMM")},
    {}, {}, {}, latents={"Hopper": ("fa3_prefill", "flash_mla")},
    of_experts={"fp8_block": ("deepgemm_fp8_block", "")},
)  # fmt: skip
#: Share of an H800's multiprocessors that compute while prompts' tokens are sent: 132 but the 24 of
#: deepseek-ai/DeepEP (docs/legacy.md, Buffer.set_num_sms; they are as many in its profiles).
COMPUTING = 108 / 132
#: Rows of a server that hosts are fitted to, and requests at a time of them.
ROWS_OF_FIT, MOST_OF_FIT = 40, 64
#: Rows of batches that the host of vLLM of 2023 is fitted to, of decoding and of prompts.
ROWS_OF_BATCHES = 20
#: Bounds of what is fitted: seconds of a step, of a request of it, and before a first token.
MOST_HOST = 3e-3, 1e-4, 0.3


class Kind(NamedTuple):
    """Errors of a kind in percent: mean and median, and those asked for (0: none)."""

    name: str
    errors: np.ndarray
    mean: float
    median: float
    #: What is known to be met, by every 8th row too, for --check.
    held_mean: float
    held_median: float
    beside: str = ""


def batch(row: BatchRow) -> Point:
    """Return what a batch took by what is predicted."""
    if not row.server:
        return in_halves(row)
    prices = prices_of_batch(row)
    return predicted(row, with_step(prices, row.step) if row.step else prices)


def in_halves(row: BatchRow) -> Point:
    """Return what a batch took by what is predicted of DeepSeek's own program.

    (deepseek-ai/profile-data.) Requests are in two halves: while the tokens of one are sent, the
    other computes. So a step takes as long as both compute, or as one computes and is sent. What
    sends many tokens takes 24 of 132 multiprocessors, of few none; experts are chosen equally.
    """
    degrees = Degrees(row.party.attention_dp, 1, row.party.moe_ep, row.party.attention_dp)
    kernels = Kernels(
        DEEPSEEK, row.formats.products, row.formats.experts, exchange=ONCE_A_HOST,
        evens_experts=True,
    )  # fmt: skip
    alone = load(row.net, dims={"seq": 1})
    prices = StepPrices(
        program_of(alone, degrees.of_attention), find_device(row.device), COST_MODELS["tiled"],
        kernels, degrees, find_cluster("dgx_h100"),
    )  # fmt: skip
    half = row.requests / 2
    if row.decode_s is not None:
        step = prices.rows(half) + prices.scores(half)
        step += prices.steps(half, row.prompt + row.output / 2)
    else:
        step = prices.rows(half * row.prompt) + prices.prompts(half, row.prompt, row.prompt)
    sent = float(step.times[EXCHANGE].total)
    computed = float(step.seconds) - sent
    if row.prefill_s is not None:
        seconds = max(2 * computed / COMPUTING, computed / COMPUTING + sent)
        return Point(row, None, seconds / row.prefill_s)
    assert row.decode_s is not None
    return Point(row, max(2 * computed, computed + sent) / row.decode_s, None)


def with_step(prices: StepPrices, kernel: str) -> StepPrices:
    """Return what steps take whose attention of one query is another kernel's."""
    backend = prices.kernels.backend
    assert backend is not None
    backend = backend._replace(step={prices.device.architecture: (kernel, kernel)})
    return StepPrices(
        prices.program, prices.device, prices.cost_model, replace(prices.kernels, backend=backend),
        prices.degrees, prices.cluster,
    )  # fmt: skip


def points(rows: Sequence[Any], of: Any, missing: dict[str, int]) -> Iterator[Point]:
    """Yield the points of rows, counting those that cannot be."""
    for row in rows:
        try:
            yield of(row)
        except PaleoError as error:
            missing[re.sub(r"[\d,.]+", "#", str(error))[:90]] += 1


def kinds(found: Sequence[Point], batches: Sequence[Point]) -> list[Kind]:
    """Return the errors of each kind, with what is asked."""

    def errors(of: Sequence[Point], name: str) -> np.ndarray:
        values = [getattr(point, name) for point in of]
        return np.array([value - 1 for value in values if value is not None])

    apart = [point for point in found if point.row.mode != AGGREGATED]
    found = [point for point in found if point.row.mode == AGGREGATED]
    fitted = [point for point in found if point.row.device in FITTED]
    others = [point for point in found if point.row.device not in FITTED]
    cases = [point for point in batches if point.row.row_id.startswith("infersim")]
    splitwise = [point for point in batches if point.row.server == "vllm_2023"]
    llama = [point for point in batches if point.row.server == "llama_cpp"]
    both = np.concatenate([errors(splitwise, "tpot"), errors(splitwise, "ttft")])
    return [
        Kind("a token, H100 and H200", errors(fitted, "tpot"), 12, 8, 12, 8),
        Kind("a token, B200, B300, GB200 (held out)", errors(others, "tpot"), 18, 12, 18, 12),
        Kind("a token, prompts computed apart (held out)", errors(apart, "tpot"), 18, 12, 20, 14),
        Kind(
            f"first token, up to {SIMULATED} requests", errors(found, "ttft"), 0, 25, 0, 27,
            "aiconfigurator 45 to 55 %",
        ),
        Kind("Splitwise, prefill and decode", both, 8, 0, 8, 0),
        Kind("llama.cpp, decode", errors(llama, "tpot"), 0, 12, 0, 12, "one share a model: 17 %"),
        Kind(
            "InferSim's cases (8 % each)", np.concatenate([errors(cases, "tpot"),
            errors(cases, "ttft")]), 8, 0, 10, 0, "its own 3 to 15 %",
        ),
    ]  # fmt: skip


def fit(rows: Sequence[ServedRow]) -> None:
    """Print what hosts take a step, a request of it and before a first token.

    Those of a grid within bounds that make the mean error of a token least, and then that of the
    first one, of random rows of a server: each net has as many as the others, while there are any.
    """
    generator = np.random.default_rng(0)
    groups: Any = defaultdict(lambda: defaultdict(list))
    for row in rows:
        is_alone = row.mode == AGGREGATED
        if is_alone and row.device in FITTED and row.concurrency <= MOST_OF_FIT:
            groups[row.server, server_of(row).overlaps][row.net].append(row)
    for (name, overlaps), nets in sorted(groups.items()):
        shuffled = [generator.permutation(np.array(of, object)).tolist() for of in nets.values()]
        dealt = [row for turn in itertools.zip_longest(*shuffled) for row in turn if row]
        missing: dict[str, int] = defaultdict(int)
        found = list(points(dealt[:ROWS_OF_FIT], _without_host, missing))
        token = np.array([point.row.tpot_s for point in found])
        alone = np.array([point.tpot for point in found])
        count = np.array([point.row.concurrency for point in found])
        errors = {
            (step, request): float(np.mean(abs(alone + (step + request * count) / token - 1)))
            for step in np.arange(0, MOST_HOST[0], 5e-5)
            for request in np.arange(0, MOST_HOST[1], 2e-6)
        }
        step, request = min(errors, key=errors.__getitem__)
        seen = [point for point in found if point.ttft]
        of_first = np.array([point.row.ttft_s for point in seen])
        bare = np.array([point.ttft for point in seen])
        first = min(
            np.arange(0, MOST_HOST[2], 5e-3),
            key=lambda seconds: float(np.mean(abs(bare + seconds / of_first - 1))),
        )
        print(
            f"{name} ({'overlapped' if overlaps else 'alone'}), {len(found)} rows: step "
            f"{step * 1e3:.2f} ms, request {request * 1e6:.0f} us, first {first:.3f} s"
        )


def _without_host(row: ServedRow) -> Point:
    server = replace(server_of(row), step_host=0.0, request_host=0.0, first_host=0.0)
    return served(row, server)


def fit_batches(rows: Sequence[BatchRow]) -> None:
    """Print what the host of vLLM of 2023 takes, and its driver to renew a page of 2 MiB.

    Those of a grid that make the mean error least: of decoding, of random rows, what a kernel, a
    step and a request of it take; with these, of as many rows of prompts, the pages.
    """
    generator = np.random.default_rng(0)
    server = SERVERS["vllm_2023"]
    bare = replace(server, kernel_host=1e-12, step_host=0.0, request_host=0.0, holds_reduced=False)
    missing: dict[str, int] = defaultdict(int)
    found = list(points(rows, lambda row: predicted(row, server=bare), missing))
    kernels = np.array([prices_of_batch(point.row).program.kernels for point in found])
    many = np.array([point.row.requests for point in found])

    def times(name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return what was measured of a kind, and what devices alone are predicted to take."""
        of = "decode_s" if name == "tpot" else "prefill_s"
        measured = np.array([getattr(point.row, of) for point in found])
        return measured, measured * np.array([getattr(point, name) for point in found])

    def hosted(device: np.ndarray, kernel: float, step: float, request: float) -> np.ndarray:
        found: np.ndarray = np.maximum(device, kernel * kernels) + step + request * many
        return found

    def error(predicted_s: np.ndarray, measured: np.ndarray) -> float:
        return float(np.mean(abs(predicted_s / measured - 1)[chosen]))

    chosen = generator.permutation(len(found))[:ROWS_OF_BATCHES]
    decode, device = times("tpot")
    grid = np.arange(20e-6, 60e-6, 1e-6), np.arange(0, 20e-3, 1e-3), np.arange(0, 6e-4, 5e-5)
    host = min(
        itertools.product(*grid), key=lambda constants: error(hosted(device, *constants), decode)
    )
    chosen = generator.permutation(len(found))[:ROWS_OF_BATCHES]
    prefill, device = times("ttft")
    free = np.array([server.left_free(find_device(point.row.device)) for point in found])
    held = np.array(
        [
            held_bytes(prices_of_batch(point.row), point.row.requests * point.row.prompt)
            for point in found
        ]
    )
    pages = np.maximum(held - free, 0) / OF_DRIVER
    page = min(
        np.arange(0, 300e-6, 2e-6),
        key=lambda each: error(hosted(device, *host) + each * pages, prefill),
    )
    print(
        f"vLLM of 2023: kernel {host[0] * 1e6:.0f} us, step {host[1] * 1e3:.0f} ms, request "
        f"{host[2] * 1e6:.0f} us, page {page * 1e6:.0f} us"
    )


def bands(found: Sequence[Point]) -> Bands:
    """Return the bands of tokens and of first tokens, by server and architecture.

    Nothing is fitted to a net: each is left out in turn as if it were a source, since nearly all
    points were published by one.
    """
    logs, likes, nets = [], [], []
    for kind, name in ((TOKEN, "tpot"), (FIRST_TOKEN, "ttft")):
        for point in found:
            ratio = getattr(point, name)
            if ratio:
                architecture = find_device(point.row.device).architecture
                likes.append(Like(kind, INFERENCE, None, point.row.server, architecture))
                logs.append(-np.log(ratio))
                nets.append(f"{point.row.net}, {kind}")
    distinct = {like: place for place, like in enumerate(dict.fromkeys(likes))}
    which, of = np.array([distinct[like] for like in likes]), np.array(nets)
    rows = Rows(np.array(logs), tuple(distinct), which, of, of, fitted=False)
    return Bands(learned(rows, COVERAGE), rows, left_out(rows, COVERAGE))


def table(found: Sequence[Kind]) -> str:
    lines = ["| on | rows | mean | asked | median | asked | bias | beside |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for kind in found:
        if not len(kind.errors):
            continue
        mean, median = (100 * float(of(abs(kind.errors))) for of in (np.mean, np.median))
        asked = [f"{each} %" if each else "" for each in (kind.mean, kind.median)]
        bias = 100 * float(np.median(kind.errors))
        lines.append(
            f"| {kind.name} | {len(kind.errors):,} | {mean:.1f} % | {asked[0]} | {median:.1f} % | "
            f"{asked[1]} | {bias:+.1f} % | {kind.beside} |"
        )
    return "\n".join(lines)


def by_deployment(found: Sequence[Point]) -> str:
    groups: dict[tuple[str, ...], list[Any]] = defaultdict(list)
    for point in found:
        row = point.row
        if point.tpot is None or row.mode != AGGREGATED:
            continue
        formats = row.formats.experts or row.formats.products
        groups[row.net, row.server, formats, row.device].append((point.tpot - 1, point.ttft))
    lines = ["| net | server | numbers | device | rows | a token: median | bias | first: median |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for key, values in sorted(groups.items()):
        errors = 100 * np.array([value for value, _ in values])
        first = [100 * abs(value - 1) for _, value in values if value is not None]
        shown = f"{np.median(first):.0f} %" if first else ""
        lines.append(
            f"| {' | '.join(key)} | {len(values)} | {np.median(abs(errors)):.0f} % | "
            f"{np.median(errors):+.0f} % | {shown} |"
        )
    return "\n".join(lines)


def write(text: str) -> None:
    """Write what was found into the page, in the place of what is there."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(HEADING)
    after = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
    PAGE.write_text(
        f"{before.rstrip()}\n\n{HEADING}\n{text}\n\n{after}".rstrip() + "\n", encoding="utf-8"
    )


TEXT = """\
`python benchmarks/served.py` prints these. Served points are those of aiconfigurator-core 0.12.0
(`systems/silicon_sample.csv`) without drafts, each measurement once: most of them
InferenceX's, of lengths from 0.8 of the stated ones to them. Up to {most} requests at a time are
simulated, others by closed forms. What hosts take was fitted to 40 rows of H100 and H200 a server,
and devices' drift (Llama 3.1 of TensorRT-LLM, few requests) and the spread of experts' shares
to those devices' rows; nothing to a net. No constant was fitted to served points of other devices,
but which kernels run was looked at on all of them, and products in nvfp4 by themselves were fitted
to operator tables of the GB200: what is held out here is not blind.

{table}

By net, server and device:

{details}

What is far off and known: Llama 3.1 8B of vLLM 0.12 is quicker than its prompts can be computed
(its prefix cache is on). Nine rows of gpt-oss on the H100 are left out, which say 512 requests at a
time while their server took fewer, a number not stated: first tokens come after 4.5 whole answers.
With them the mean of H100 and H200 is about 14 %. Experts in fp8 by blocks on Hopper are those of
the version (paleo/step/serving/block_experts.py): vLLM 0.11 and 0.12 multiply places for the worst
case, which is most of a token of Qwen3 235B.

Where prompts are computed apart, tokens alone are predicted, by closed forms, of rows that say how
many servers there are and in which degrees; 992 do not. None says that it drafts, and all are taken
not to. With thousands of requests on 32 devices predictions are up to twice as long as what was
measured. Three rows have weights that leave no room for a cache.

Splitwise's are of vLLM of 2023 (`--server=vllm_2023`), whose host hands over each kernel: 42 us a
kernel, 11 ms a step and 0.4 ms a request of it are fitted to 20 of its rows of decoding. Up to
version 0.2.5 what was reduced held its memory to a step's end. Prompts of 4,096 tokens and more
reduce more than the tenth of a device that is free, so that PyTorch gives memory back to the driver
and takes it again: vAttention (arXiv:2405.04437) has timed these calls, 126 us together for 2 MiB;
20 of its rows of prompts give 124. One batch is left out, for which the cache has no room.

InferSim's Qwen3 8B on the H20 is 5.6 and 6.3 % too quick (prompts, tokens), its Qwen3 30B 3.7 and
6.6 %, by FlashInfer's kernel for one query: InferSim's own tables of the H20 are of that, though it
does not say what ran. DeepSeek-V3 on the H800, of two halves of a batch that hide each other's
messages behind what they compute, is 17.0 and 11.6 % too quick: halves are priced as if they did
not slow each other down."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("rows", "write", "check", "bands", "fit"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    rows = measured_rows("aiconfigurator_core")[0][:: args.every]
    if args.fit:
        fit(rows)
        if (MEASURED / "splitwise.csv").exists():
            fit_batches(read_splitwise(MEASURED / "splitwise.csv").rows)
        return
    missing: dict[str, int] = defaultdict(int)
    found = list(points(rows, served, missing))
    batches: list[BatchRow] = []
    for name, read in (("splitwise.csv", read_splitwise), ("xdai_llamacpp.csv", read_llama_cpp)):
        if (MEASURED / name).exists():
            batches += read(MEASURED / name).rows
    batches += infersim_cases()
    of_batches = list(points(batches, batch, missing))
    if args.rows:
        for point in (*found, *of_batches):
            print(point.row.row_id, point.tpot, point.ttft)
    of_kinds = kinds(found, of_batches)
    print(table(of_kinds), by_deployment(found), sep="\n\n")
    for point in of_batches:
        if point.row.row_id.startswith("infersim"):
            print(f"{point.row.row_id}: {100 * ((point.tpot or point.ttft or 0) - 1):+.1f} %")
    print("left out:", dict(missing))
    if args.bands:
        held = bands(found)
        for line in held.table():
            print(" | ".join(line))
        for each in held.totals:
            print(f"{each.name}: {each.percent} of {each.rows} inside, their net left out")
        FILE.write_text(held.file(known_bands()), "utf-8")
    if args.write:
        write(TEXT.format(most=SIMULATED, table=table(of_kinds), details=by_deployment(found)))
    missed = []
    for kind in of_kinds:
        for of, most in ((np.mean, kind.held_mean), (np.median, kind.held_median)):
            if most and len(kind.errors) and 100 * of(abs(kind.errors)) > most:
                missed.append(f"{kind.name}: {of.__name__} above {most} %")
    if args.check and missed:
        sys.exit("serving: " + "; ".join(missed))


if __name__ == "__main__":
    main()
