"""How fast Paleo is, each figure beside a baseline measured in the same run.

    python benchmarks/speed.py            print the table
    python benchmarks/speed.py --check    exit with status 1 if a bound is missed

Wall-clock times differ between machines; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ratios import Figure, best, ratio, report

import paleo
from paleo.views.tables.nets import net_rows

NET = Path(__file__).parents[1] / "nets" / "alex_v2.json"
#: Compiled modules are cached, as those of an installed package are.
CACHING = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def process(*arguments: str) -> Callable[[], object]:
    """Return what runs a Python with these arguments, to its end."""
    command = [sys.executable, *arguments]
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, env=CACHING, check=True)


def start_to_end(cost_model: str, bound: float) -> list[Figure]:
    """Return the whole command over the import of what it is built on.

    `tiled` tries every tile of every product, at some twenty batch sizes for the knees.
    """
    command = process("-m", "paleo", "simulate", str(NET), f"--cost_model={cost_model}")
    name = f"paleo simulate alex_v2 ({cost_model}), start to end / import click, numpy"
    return [(name, ratio(command, process("-c", "import click, numpy"), 20), bound)]


#: One plan of GPT-3 on 1,024 devices, which does not fit, so that what would make it fit is said.
MESH = (
    "--cluster=dgx_a100",
    "--num_workers=1024",
    "--tp=8",
    "--pp=16",
    "--interleave=3",
    "--global_batch=1536",
)


def mesh_start() -> list[Figure]:
    """Return a command of a net of 96 blocks on a mesh, over the import of what it needs."""
    command = process("-m", "paleo", "simulate", "gpt3_175b", *MESH)
    name = "paleo simulate gpt3_175b on a mesh, start to end / import click, numpy"
    return [(name, ratio(command, process("-c", "import click, numpy"), 10), 2.5)]


def listing() -> list[Figure]:
    """Return a table of nets, as `paleo nets` has it of all, over a summary of each."""
    names = paleo.net_names()[::20]

    def summaries() -> object:
        return [paleo.summarize(name, 1) for name in names]

    def table() -> object:
        return net_rows((name, paleo.load(name)) for name in names)

    return [(f"a table of {len(names)} nets / a summary of each", ratio(table, summaries, 2), 0.9)]


def sweep() -> list[Figure]:
    """Return the rate of an array evaluation, and its gain over one by one."""
    net = paleo.load("alex_v2")
    plan = paleo.Plan(
        paleo.find_device("K40"),
        paleo.find_network("ethernet"),
        paleo.find_cost_model("paleo2017"),
    )
    rng = np.random.default_rng(0)
    count = 100_000
    batches, workers = rng.integers(1, 4096, count), rng.integers(1, 1024, count)

    def whole() -> object:
        return paleo.data_parallel(net, plan, batches, workers, "strong").total("TreeAllReduce")

    some = 200
    seconds = best(whole, 5) / count

    def one_by_one() -> list[float]:
        return [
            float(
                paleo.data_parallel(net, plan, int(batch), int(k), "strong").total("TreeAllReduce")
            )
            for batch, k in zip(batches[:some], workers[:some], strict=True)
        ]

    single = best(one_by_one, 3) / some
    assert one_by_one() == np.asarray(whole())[:some].tolist()
    return [
        ("alex_v2, configurations a second as an array / 100,000", 1 / seconds / 100_000, -1.0),
        ("alex_v2, array of 100,000 configurations / one by one", seconds / single, 0.1),
    ]


def deep_summary() -> list[Figure]:
    """Return the summary of a net of 126 blocks, start to end, over the import of what it needs."""
    command = process("-m", "paleo", "summary", "llama3_405b")
    name = "paleo summary llama3_405b, start to end / import click, numpy"
    return [(name, ratio(command, process("-c", "import click, numpy"), 20), 2.0)]


def lengths() -> list[Figure]:
    """Return the rates of pairs of batch and length of Llama 3 8B, and their gain over singles.

    The rates are over those that are to be reached, 20,000 a second by the roofline and 2,000 by
    `tiled`.
    """
    net = paleo.load("llama3_8b")
    device, network = paleo.find_device("H100_SXM"), paleo.find_network("nvlink4")
    rng = np.random.default_rng(0)
    count, few = 10_000, 20
    batches, seq = rng.integers(1, 65, count), 64 * rng.integers(1, 65, count)
    rows: list[Figure] = []
    for model, wanted in (("roofline", 20_000), ("tiled", 2_000)):
        plan = paleo.Plan(device, network, paleo.find_cost_model(model), dtype="bf16")

        def at_once(plan: paleo.Plan = plan) -> Any:
            return paleo.data_parallel(net.with_dims(seq=seq), plan, batches, 1).compute

        def one_by_one(plan: paleo.Plan = plan) -> list[Any]:
            return [
                paleo.data_parallel(net.with_dims(seq=int(length)), plan, int(batch), 1).compute
                for batch, length in zip(batches[:few], seq[:few], strict=True)
            ]

        assert one_by_one() == at_once()[:few].tolist()
        seconds, single = best(at_once, 3) / count, best(one_by_one, 2) / few
        name = f"llama3_8b ({model}), 10,000 pairs of batch and length"
        rows += [
            (f"{name}, a second / {wanted:,}", 1 / seconds / wanted, -1.0),
            (f"{name} at once / one by one", seconds / single, 0.05),
        ]
    return rows


def large_net() -> list[Figure]:
    """Return loading and simulating a random DAG of 2,000 layers, over parsing its JSON."""
    rng = random.Random(0)
    layers: dict[str, dict[str, Any]] = {
        "in": {"type": "Input", "parents": [], "tensor": [8, 16, 16, 8]}
    }
    for i in range(1999):
        recent = list(layers)[-20:]
        window = {"strides": [1, 1, 1, 1], "padding": "SAME"}
        body: dict[str, Any] = rng.choice(
            [
                {"type": "Convolution", "filter": [3, 3, -1, 8], **window},
                {"type": "Pooling", "ksize": [1, 3, 3, 1], **window},
                {"type": "Dropout", "dropout_keep_prob": 0.5},
                {"type": "Elementwise"},
            ]
        )
        parents = rng.sample(recent, min(len(recent), 2 if body["type"] == "Elementwise" else 1))
        layers[f"layer{i}"] = {**body, "parents": parents}
    text = json.dumps({"name": "random", "layers": layers})
    batches = iter(range(97, 1000))  # another each time: what is known of one is no answer
    seconds = best(lambda: paleo.simulate(paleo.loads(text), batch_size=next(batches)), 5)
    baseline = best(process("-c", "import numpy"))
    name = "a DAG of 2,000 layers, load and simulate / start with numpy"
    return [(name, seconds / baseline, 8.0)]


def answers() -> list[Figure]:
    """Return what a page asks of the largest convolutional net, each over a start with numpy.

    The process is warm, the question new: every time it is of another batch size.
    """
    net = paleo.load("densenet201")
    batches = iter(range(97, 1000))

    def strong() -> object:
        run = paleo.simulate(net, device="K40", batch_size=next(batches), scaling="strong").runs[0]
        return run.worth

    def summary() -> object:
        return paleo.summarize(net, next(batches), device="K40")

    def metrics() -> object:
        return paleo.metrics(net, device="K40", batch_size=next(batches), workers=(1, 2, 4, 8, 16))

    baseline = best(process("-c", "import numpy"))
    return [
        (f"densenet201, {name} / start with numpy", best(run, 9) / baseline, bound)
        for name, run, bound in (
            ("strong scaling and its knees", strong, 1.5),
            ("summary with times", summary, 1.0),
            ("metrics of 5 worker counts", metrics, 4.0),
        )
    ]


def deep_net(count: int) -> paleo.NetSpec:
    """Return a chain of so many layers: convolutions, each with what follows it in nets."""
    layers: dict[str, dict[str, object]] = {
        "data": {"type": "Input", "parents": [], "tensor": [8, 16, 16, 64]}
    }
    window = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    bodies: list[dict[str, object]] = [
        {"type": "Convolution", "filter": [3, 3, 64, 64], **window},
        {"type": "BatchNorm"},
        {"type": "Activation", "function": "relu"},
    ]
    while len(layers) < count:
        body = bodies[len(layers) % len(bodies)]
        layers[f"block{len(layers)}"] = {**body, "parents": [list(layers)[-1]]}
    return paleo.loads(json.dumps({"name": "deep", "layers": layers}))


def large_plots() -> list[Figure]:
    """Return the pictures of 5,000 layers as PNG, each over a start with an empty one.

    What is drawn is computed before. Nothing if there is no Matplotlib.
    """
    try:
        from paleo.views import plots

        plots.image(plots.layers(paleo.summarize("lenet5")), "png")
    except paleo.PaleoError:
        return []
    empty = "from matplotlib.figure import Figure; Figure().savefig(open('/dev/null', 'wb'))"
    baseline = best(process("-c", empty), 5)
    net = deep_net(5000)
    summary = paleo.summarize(net, device="K80")
    comparison = paleo.compare(net, device=["K80", "K40"])
    drawn: dict[str, Callable[[], object]] = {
        "summary": lambda: plots.layers(summary),
        "compare": lambda: plots.difference(comparison),
    }
    return [
        (
            f"plot of {name}, 5,000 layers / start with an empty figure",
            best(lambda draw=draw: plots.image(draw(), "png"), 3) / baseline,  # type: ignore[misc]
            3.0,
        )
        for name, draw in drawn.items()
    ]


#: Figures that are met by little: what they are at most on a machine that does other things, too.
MARGINS = {
    "paleo simulate alex_v2 (paleo2017), start to end / import click, numpy": 1.5,
    "paleo simulate alex_v2 (tiled), start to end / import click, numpy": 1.9,
}


def main() -> int:
    """Print a row for each figure; return 1 if one misses its bound and --check is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    check = parser.parse_args().check
    missed = report(
        [
            functools.partial(start_to_end, "paleo2017", 1.4),
            functools.partial(start_to_end, "tiled", 1.6),
            mesh_start,
            deep_summary,
            listing,
            sweep,
            lengths,
            large_net,
            answers,
            large_plots,
        ],
        MARGINS,
    )
    return int(check and missed)


if __name__ == "__main__":
    sys.exit(main())
