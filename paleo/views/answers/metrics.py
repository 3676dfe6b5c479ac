"""What metrics say: how long training or inference takes, at what cost, and the best of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paleo.core.attributes import Ends, at_ends
from paleo.core.frozen import dataclass
from paleo.step.memory import Footprint
from paleo.studies.metrics import Metrics
from paleo.views.answers.base import (
    device_named,
    duration,
    durations,
    misfits,
    rounded,
    samples_of,
    spread,
    used,
    which,
)
from paleo.views.answers.simulation import speed_said
from paleo.views.answers.training import training_said


@dataclass(frozen=True)
class Purpose:
    """What a net is asked about for: its figures in metrics. `time` heads those of `seconds`."""

    name: str
    time: str
    seconds: Callable[[Metrics], float]
    rate: Callable[[Metrics], float | None]
    memory: Callable[[Metrics], Footprint | None]
    cost: Callable[[Metrics], float | None]
    said: Callable[[Metrics], str]

    def fits(self, metrics: Metrics) -> bool | None:
        """Return whether the memory is there, None where that is not known."""
        memory, capacity = self.memory(metrics), metrics.memory_capacity
        return None if memory is None or capacity is None else bool(memory.peak <= capacity)

    def samples(self, metrics: Metrics) -> str:
        """Return what the net takes: images, or samples of anything else."""
        return samples_of(metrics.scenario.net)


def metrics_answer(found: Sequence[Metrics], purpose: Purpose | None = None) -> list[str]:
    """Return the sentences of metrics; of several, of the quickest and of the cheapest."""
    if len(found) > 1:
        return _best(found, purpose or TRAINING)
    (metrics,) = found
    if purpose:
        return [purpose.said(metrics), *_misfit(metrics, purpose)]
    return [TRAINING.said(metrics), INFERENCE.said(metrics), *_misfit(metrics, TRAINING)]


def _training_said(metrics: Metrics) -> str:
    """Return how long a whole training takes and what it costs, or how quick steps are."""
    if metrics.training_time is None:
        return speed_said(metrics, metrics.step)
    device = device_named(metrics.device)
    who = f"{metrics.workers:,} x {device}" if metrics.workers > 1 else f"one {device}"
    ends = at_ends(metrics.ends, lambda end: end.training)
    return training_said(metrics, metrics.training, ends, net=metrics.net, who=who)


def _inference_said(metrics: Metrics) -> str:
    """Return how long a batch takes in inference on one device, and what a million samples cost."""
    digits, what = metrics.plan.digits, samples_of(metrics.scenario.net)
    count = metrics.worker_batch_size
    batch = f"a batch of {count:,} {what}" if count > 1 else f"one {what.removesuffix('s')}"
    ends = spread(_times(metrics, lambda end: end.inference), metrics.plan.inference_band)
    taken = f"{_about(metrics)}{duration(metrics.inference, digits)}{ends}"
    device = device_named(metrics.device)
    parts = [f"Inference of {batch} with {metrics.net} on one {device} takes {taken}"]
    if metrics.inference_throughput:
        parts.append(f"{rounded(metrics.inference_throughput, digits)} {what}/s")
    if metrics.inference_cost_per_million is not None and metrics.price:
        amount = rounded(metrics.inference_cost_per_million, digits)
        parts.append(f"{amount} {metrics.price.currency} a million")
    return f"{', '.join(parts)}."


def _times(metrics: Metrics, seconds: Callable[[Metrics], float | None]) -> Ends[str]:
    digits, like = metrics.plan.digits, seconds(metrics)
    return durations(at_ends(metrics.ends, lambda end: seconds(end) or 0.0), digits, like or 0.0)


def _about(metrics: Metrics) -> str:
    return "about " if metrics.plan.band else ""


def _misfit(metrics: Metrics, purpose: Purpose) -> list[str]:
    memory = purpose.memory(metrics)
    if purpose.fits(metrics) is not False or not memory:
        return []
    most = f"{metrics.largest_batch:,} samples do" if metrics.largest_batch else "no batch does"
    taken = used(float(memory.peak), metrics.memory_capacity)
    in_training = f"; in training {most}" if purpose is TRAINING else ""
    return [f"It does not fit: {purpose.name} takes {taken}{in_training}."]


def _best(found: Sequence[Metrics], purpose: Purpose) -> list[str]:
    """Return which is the quickest and which the cheapest, of those that fit."""
    fitting = [each for each in found if purpose.fits(each) is not False]
    left = len(found) - len(fitting)
    sentences = misfits(left, len(found))
    if not fitting:
        return sentences
    quickest = max(fitting, key=lambda each: purpose.rate(each) or 0.0)
    names = (
        "dtype",
        "cost_model",
        *(() if purpose is INFERENCE else ("cluster", "network", "batch_size")),
    )
    name = which(quickest, fitting, *names)
    best = f"The quickest of {len(fitting):,}{name}" if len(fitting) > 1 else "The one that fits"
    sentences.append(f"{best}: {purpose.said(quickest)}")
    priced = [each for each in fitting if purpose.cost(each) is not None]
    if len(priced) < 2 or len({each.price.currency for each in priced if each.price}) > 1:
        return sentences
    cheapest = min(priced, key=lambda each: purpose.cost(each) or 0.0)
    if cheapest is quickest:
        return [*sentences, "It is the cheapest, too."]
    name = which(cheapest, fitting, *names)
    return [*sentences, f"The cheapest{name}: {purpose.said(cheapest)}"]


TRAINING = Purpose(
    "training",
    "step",
    lambda metrics: metrics.step.seconds,
    lambda metrics: metrics.step.throughput,
    lambda metrics: metrics.training_memory,
    lambda metrics: metrics.training_cost_per_million,
    _training_said,
)
INFERENCE = Purpose(
    "inference",
    "latency",
    lambda metrics: metrics.inference,
    lambda metrics: metrics.inference_throughput,
    lambda metrics: metrics.inference_memory,
    lambda metrics: metrics.inference_cost_per_million,
    _inference_said,
)
