"""Nets on this machine, measured beside what a calibration of a minute predicts.

    python benchmarks/calibration.py             calibrate, measure and print the table (10 minutes)
    python benchmarks/calibration.py --write     and write it into docs/calibrate.md
    python benchmarks/calibration.py --check     exit with 1 if a bound is missed
    python benchmarks/calibration.py --device F  predict by a device file that there is already

No net is used to fit: `paleo calibrate` measures single layers and blocks of its own. Beside the
predictions of `tiled` stand those of the model of 2017 at the one percent of peak that is best for
all of these nets, which it could only know from these measurements. Some of the nets were looked
at, operator by operator, while the cost model for CPUs was written; errors of the others stand
apart. Needs PyTorch: pip install -e ".[torch,calibrate]".
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import paleo
from paleo.cluster import Device, find_device
from paleo.core.quantity import Quantity
from paleo.costs import find_cost_model
from paleo.measure.calibrate import calibrate
from paleo.measure.executors import Executor, Timing, find_executor, measure
from paleo.net.graph import Graph, build
from paleo.net.load import load
from paleo.step.estimates import estimate_backward, estimate_forward, estimate_update
from paleo.step.passes import adapter, keep_shape

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "calibrate.md"
#: What --check asks for: the median of all errors, and the worst.
MEDIAN, WORST = 0.10, 0.30

#: Nets and their batch sizes: those that were looked at while the model was written, ...
SEEN = {
    "alexnet_owt": (4, 32),
    "vgg11": (1, 4),
    "googlenet": (2, 8),
    "resnet18": (1, 8),
    "squeezenet1_1": (2, 16),
    "mobilenet_v2": (1, 8),
    "densenet121": (1, 4),
    "bert_base": (1, 2),
    "resnet50": (1, 4),
    "shufflenet_v2_x1_0": (4, 16),
    "mnasnet1_0": (2, 8),
    "dcgan_discriminator": (8, 64),
}
#: ... and the others.
UNSEEN = {
    "nin": (4, 16),
    "inception_bn": (2, 8),
    "wide_resnet50_2": (1, 2),
    "vgg13_bn": (1, 2),
}
#: What is measured of a net: inference, and a training step.
FORWARD, STEP = "forward", "step"
#: A net, its batch size, and one of these.
Key: TypeAlias = tuple[str, int, str]
#: Rounds over all nets, of which the lowest median counts, since what else the machine does only
#: ever makes things slower; seconds for measuring one thing in a round, and runs of it.
ROUNDS, SECONDS, RUNS = 2, 3.0, 9
#: The percents of peak that are tried for the model of 2017.
SHARES = np.linspace(0.02, 1.0, 99)


@dataclass(frozen=True)
class Case:
    """A net at a batch size: seconds measured, predicted, and by the model of 2017.

    `old` has one prediction for each of SHARES; `spread` is that of the measurement.
    """

    net: str
    batch: int
    what: str
    measured: float
    spread: float
    predicted: float
    old: tuple[float, ...]

    @property
    def error(self) -> float:
        """The prediction's, as a share of what was measured."""
        return self.predicted / self.measured - 1

    def error_2017(self, share: int) -> float:
        """That of the model of 2017 at one of SHARES."""
        return self.old[share] / self.measured - 1


def predicted(graph: Graph, device: Device, model: str, what: str, ppp: Quantity = 1.0) -> Any:
    """Return the seconds of a forward pass in inference, or of a training step."""
    training = what == STEP
    forward = estimate_forward(graph, device, cost_model=model, ppp_comp=ppp, training=training)
    if not training:
        return forward.upper
    backward = estimate_backward(graph, device, cost_model=model, ppp_comp=ppp)
    update = estimate_update(graph.num_params, device, cost_model=model, ppp_comp=ppp)
    return forward.upper + backward.upper + update


def measured(nets: Mapping[str, Sequence[int]], executor: Executor) -> dict[Key, Timing]:
    """Return the timing of each net, batch and pass: that of the round with the lowest median."""
    found: dict[Key, Timing] = {}
    for number in range(ROUNDS):
        for net, batches in nets.items():
            for batch in batches:
                running = executor.net(build(load(net), batch, "fp32", keep_shape))
                for what, run in ((FORWARD, running.infer), (STEP, running.step)):
                    timing = measure(
                        run, executor.synchronize, num_warmup=3, num_iter=RUNS, most_seconds=SECONDS
                    )
                    key = (net, batch, what)
                    found[key] = min(found.get(key, timing), timing, key=lambda each: each.median)
                    sys.stderr.write(
                        f"round {number + 1}: {net} {batch} {what}: {1e3 * timing.median:.1f} ms\n"
                    )
    return found


def cases(found: Mapping[Key, Timing], device: Device) -> Iterable[Case]:
    """Yield measurements beside predictions."""
    for (net, batch, what), timing in found.items():
        graphs = {
            model: build(load(net), batch, "fp32", adapter(find_cost_model(model)))
            for model in ("tiled", "paleo2017")
        }
        old = predicted(graphs["paleo2017"], device, "paleo2017", what, SHARES)
        new = predicted(graphs["tiled"], device, "tiled", what)
        yield Case(net, batch, what, timing.median, timing.spread, float(new), tuple(old.tolist()))


def best_share(found: Sequence[Case]) -> int:
    """Return the place in SHARES at which the model of 2017 errs least, by the median."""
    return min(
        range(len(SHARES)),
        key=lambda share: statistics.median(abs(each.error_2017(share)) for each in found),
    )


def summary(title: str, found: Sequence[Case], share: int) -> list[str]:
    """Return the lines of the errors of some of the cases."""
    lines = []
    for what in (FORWARD, STEP, "all"):
        own = [each for each in found if what in (each.what, "all")]
        new = sorted(abs(each.error) for each in own)
        old = sorted(abs(each.error_2017(share)) for each in own)
        lines.append(
            f"| {title} | {what} | {len(own)} | {100 * statistics.median(new):.1f} | "
            f"{100 * new[-1]:.1f} | {100 * statistics.median(old):.1f} | {100 * old[-1]:.1f} |"
        )
    return lines


def page(seen: Sequence[Case], unseen: Sequence[Case], device: Device) -> str:
    """Return the tables in Markdown."""
    found = [*seen, *unseen]
    share = best_share(found)
    record = device.calibration
    where = f"{record.hardware}, {record.source}, {record.date}" if record else device.title
    lines = [
        f"Measured on: {where}. The model of 2017 is at {100 * SHARES[share]:.0f} % of peak.",
        "",
        "| nets | what | cases | median error (%) | worst (%) | 2017: median (%) | worst (%) |",
        "|---|---|--:|--:|--:|--:|--:|",
        *summary("looked at while the model was written", seen, share),
        *summary("never looked at", unseen, share),
        *summary("all", found, share),
        "",
        "| net | batch | what | measured (ms) | spread (%) | predicted (ms) | (%) | 2017 | (%) |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {each.net} | {each.batch} | {each.what} | {1e3 * each.measured:.1f} | "
        f"{100 * each.spread:.0f} | {1e3 * each.predicted:.1f} | {100 * each.error:+.1f} | "
        f"{1e3 * each.old[share]:.1f} | {100 * each.error_2017(share):+.1f} |"
        for each in found
    ]
    return "\n".join(lines) + "\n"


def write(text: str) -> None:
    """Put the tables between the marks of the page."""
    before = PAGE.read_text("utf-8")
    marks = "<!-- begin benchmarks/calibration.py -->\n", "<!-- end benchmarks/calibration.py -->"
    pattern = re.compile(f"({re.escape(marks[0])}).*?({re.escape(marks[1])})", re.DOTALL)
    if not pattern.search(before):
        raise SystemExit(f"{PAGE.name}: the marks for the tables are missing")
    PAGE.write_text(pattern.sub(lambda found: found[1] + text + found[2], before), "utf-8")


def main() -> None:
    """Calibrate, measure, print; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the tables into the docs")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--device", help="a device file, instead of calibrating")
    parser.add_argument("--seconds", type=float, default=60, help="for calibrating")
    parser.add_argument("--nets", help="only these, separated by commas")
    arguments = parser.parse_args()
    if arguments.device:
        device = find_device(arguments.device)
    else:
        text = calibrate("torch", seconds=arguments.seconds, name="here", force=True).to_toml()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "here.toml")
            file.write_text(text, "utf-8")
            device = paleo.find_device(file)
    executor = find_executor("torch", "cpu")
    only = arguments.nets.split(",") if arguments.nets else [*SEEN, *UNSEEN]
    groups = []
    for nets in (SEEN, UNSEEN):
        own = {net: batches for net, batches in nets.items() if net in only}
        groups.append(list(cases(measured(own, executor), device)))
    seen, unseen = groups
    errors = sorted(abs(each.error) for each in (*seen, *unseen))
    if all(groups):
        tables = page(seen, unseen, device)
        sys.stdout.write(tables)
        if arguments.write:
            write(tables)
    median, worst = statistics.median(errors), errors[-1]
    sys.stderr.write(
        f"{len(errors)} cases: median error {100 * median:.1f} %, worst {100 * worst:.1f} %\n"
    )
    if arguments.check and (median > MEDIAN or worst > WORST):
        raise SystemExit(f"bounds: {100 * MEDIAN:.0f} % and {100 * WORST:.0f} %")


if __name__ == "__main__":
    main()
