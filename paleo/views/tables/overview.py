"""The figures of an overview that stand at its head, and its tables."""

from __future__ import annotations

from typing import Any

from paleo.core.attributes import Ends, at_ends
from paleo.core.units import scale_for
from paleo.step.pieces import Step, WholeStep
from paleo.studies.datasets import takes_images
from paleo.studies.explain_exchange import explain_step
from paleo.studies.overview import Overview
from paleo.views.answers.base import amounts, duration, durations, percent, rounded, spread
from paleo.views.answers.simulation import exchange_said, row_value, run_answer, speed_said
from paleo.views.answers.training import training_said
from paleo.views.charts.base import unit_shown
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import best_said
from paleo.views.table import Table, in_unit
from paleo.views.tables.simulation import simulation_table
from paleo.views.tables.stages import fullest_said, longer_said

_EXPOSED = "exposed communication"
#: Of a step no part is so short but by rounding.
_ROUNDING = 1e-9
#: What more is said of these is no band.
_NOTED = ("exposed", "bubble")
#: From this share of a step on, exposed communication holds it back.
_HOLDS_BACK = 0.05


def overview_table(found: Overview) -> Table:
    """Return the table of the steps, as `paleo simulate` prints it with this scheme."""
    run = found.run if found.scheme is None else found.run.only(found.scheme)
    return simulation_table(run)


def headlines(found: Overview) -> list[dict[str, Any]]:
    """Return for each number of workers its figures as texts: items of key, label and value.

    `band` of an item says where 80 % of measured cases are. `fits` tells whether a worker's batch
    does; None where the memory of the device is not known.
    """
    return [
        {"workers": row.workers, "fits": found.fits(row), "items": _items(found, row)}
        for row in found.rows
    ]


def _items(found: Overview, row: Step) -> list[dict[str, str]]:
    scheme, digits = found.scheme_of(row), found.run.plan.digits
    training, step = found.training(row, scheme), row.whole_step(scheme)
    trainings = at_ends(step.ends, found.trained)

    def ends(values: Ends[str]) -> str:
        return spread(values).strip(" ()")

    times = durations(at_ends(step.ends, lambda end: end.seconds), digits, step.seconds)
    texts = {"step": ("training step", duration(step.seconds, digits), ends(times))}
    if step.tokens_per_s and found.is_mesh:
        slow, quick = amounts(at_ends(step.ends, lambda end: end.tokens_per_s or 0.0), digits)[::-1]
        rate = rounded(step.tokens_per_s, digits)
        texts["tokens"] = ("tokens a second", rate, ends((slow, quick)))
    if step.seconds:
        speedup = rounded(step.speedup, found.run.plan.ratio_digits)
        slow, quick = amounts(at_ends(step.ends, lambda end: end.throughput), digits)[::-1]
        texts |= {
            "throughput": (
                "samples a second", rounded(step.throughput, digits), ends((slow, quick)),
            ),
            "speedup": ("speedup over one worker", speedup, ""),
            "efficiency": ("efficiency", f"{100 * step.efficiency:.1f} %", ""),
        }  # fmt: skip
    if found.is_mesh:
        texts = {key: text for key, text in texts.items() if key not in ("speedup", "efficiency")}
        texts |= _of_mesh(row, step)
    elif row.workers > 1:
        label = "scheme" if found.scheme or len(row.exchanges) == 1 else f"{best_said(row)} scheme"
        texts["scheme"] = (label, scheme, "")
        all_of = f"of {duration(float(row.communication[scheme]), 3)} in all"
        exposed = float(row.exposed_communication(scheme))
        texts["exposed"] = (_EXPOSED, duration(exposed, 3), all_of)
    if training.seconds is not None:
        like = training.seconds
        whole = durations(at_ends(trainings, lambda end: end.seconds or 0.0), digits, like)
        texts["time"] = ("training time", duration(training.seconds, digits), ends(whole))
    if training.cost is not None and training.price:
        currency = training.price.currency
        costs = amounts(at_ends(trainings, lambda end: end.cost or 0.0), digits)
        cost = f"{rounded(training.cost, digits)} {currency}"
        texts["cost"] = ("training cost", cost, ends(costs))
        price = f"{training.price.amount:g} {currency}"
        texts["price"] = ("price of a device-hour", price, "")
    return [
        {"key": key, "label": label, "value": value}
        | ({"note" if key in _NOTED else "band": more} if more else {})
        for key, (label, value, more) in texts.items()
    ]


def _of_mesh(row: Step, step: WholeStep) -> dict[str, tuple[str, str, str]]:
    """Return how well devices of a mesh are used, and what of a step nobody computes."""
    texts = {}
    if step.mfu:
        texts["mfu"] = ("MFU", f"{100 * step.mfu:.0f} %", "")
    for key, label in (("bubble_s", "waiting in the pipeline"), ("exposed", _EXPOSED)):
        seconds = float(row_value(row, "exposed_communication_s" if key == "exposed" else key))
        seconds *= seconds > _ROUNDING * step.seconds
        share = f"{percent(seconds / step.seconds)} of the step" if step.seconds else ""
        texts[key.removesuffix("_s")] = (label, duration(seconds, 3), share)
    return texts


def _in_unit(value: float, dimension: str) -> str:
    """Return a figure that stands alone in the largest unit of which it is one or more."""
    scale = scale_for([[value / 10]], dimension)  # a tenth of a unit suits it, too
    return f"{_rate(value / scale.factor)} {unit_shown(scale.unit)}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def memory_headline(found: Overview) -> list[dict[str, Any]]:
    """Return the memory of training on one device as items of key, label and value.

    `is_warning` of an item tells whether it is to stand out: what does not fit cannot be trained.
    """
    if found.is_mesh:
        return _stages_headline(found)
    fit = found.fit
    peak = _in_unit(float(fit.footprint.peak), "bytes")
    capacity = fit.device.memory_capacity if fit.device else None
    items = {"memory": ("memory in training", peak)}
    if capacity is not None:
        fits = "fits in" if fit.fits else "does not fit in"
        items["fits"] = ("memory of the device", f"{fits} {in_unit(capacity, 'bytes')}")
        items["largest_batch"] = ("largest batch that fits", f"{fit.largest_batch:,}")
    return [
        {"key": key, "label": label, "value": value, "is_warning": key == "fits" and not fit.fits}
        for key, (label, value) in items.items()
    ]


def _stages_headline(found: Overview) -> list[dict[str, Any]]:
    """Return the memory of the fullest stage, and whether it fits."""
    label = "memory of the fullest stage" if len(found.stages) > 1 else "memory of a device"
    size, which = fullest_said(found.stages)
    items = [("memory", label, size, False, which)]
    fits, capacity = found.fits(found.row), found.run.memory_capacity
    if fits is not None:
        does = "fits in" if fits else "does not fit in"
        said = f"{does} {in_unit(capacity, 'bytes')}"
        items.append(("fits", "memory of the device", said, not fits, ""))
    if found.remedies:
        first = found.remedies[0]
        what = f"{in_unit(float(first.memory), 'bytes', 3)}, a step {longer_said(first)}"
        items.append(("remedy", "what would fit", first.options, False, what))
    return [
        {"key": key, "label": label, "value": value, "is_warning": warns}
        | ({"note": note} if note else {})
        for key, label, value, warns, note in items
    ]


def tiers(found: Overview) -> list[dict[str, str]]:
    """Return the tiers between devices as the workers looked at use them, from the outside in.

    `bound` of one is not "" where its links hold the step back.
    """
    cluster, row = found.run.plan.topology, found.row
    group = found.run.plan.group(row.workers)
    explained = explain_step(found.run, row, found.scheme_of(row))
    bound = ""
    if explained and explained.exposed > _HOLDS_BACK * float(row.total(explained.scheme)):
        bound = explained.exchange_bound
    drawn = []
    for i, level in enumerate(group.levels):
        tier, network = level.tier, level.tier.network
        member = cluster.tiers[i - 1].name if i else cluster.device.name
        of = "" if found.run.plan.cluster is None else f" (of {tier.size:,})"
        rate = in_unit(float(level.bandwidth), "bytes/s", 3)
        links = f"{float(level.links):g} x " if level.links != 1 else ""
        latency = f", {duration(float(network.latency), 3)}" if network.latency else ""
        drawn.append(
            {
                "name": tier.name,
                "members": f"{int(level.members):,} x {member}{of}",
                "links": f"each by {links}{network.name}: {rate}{latency}",
                "bound": "holds exchanges back" if tier.name == bound else "",
            }
        )
    return drawn[::-1]


def hints(found: Overview) -> list[str]:
    """Return what to give for the figures that are missing, or cannot be meant."""
    dataset = found.schedule.dataset
    if dataset and not takes_images(found.study.net):
        return [f"{dataset} is of images, and {found.run.net} takes none", *_missing(found)]
    return _missing(found)


def answered(found: Overview) -> list[str]:
    """Return the answer in sentences, of which the first is a heading."""
    row, scheme = found.row, found.scheme_of(found.row)
    step = row.whole_step(scheme)
    if found.is_mesh:
        said = run_answer(found.run, row, scheme, remedied=False)  # `remedies` are with the memory
        return [*said, *_trained(found, step)]
    said = _unfit(found)
    if step.seconds:
        said.append(speed_said(found.run, step))
        share = float(row.compute) / step.seconds
        if row.workers > 1:
            explained = explain_step(found.run, row, scheme)
            said += exchange_said(explained, found.run.plan.digits) if explained else []
            said.append(f"{percent(share)} of the step is computation.")
        said += _trained(found, step)
    return said


def _trained(found: Overview, step: WholeStep) -> list[str]:
    """Return what the whole training takes, where that is known."""
    training = found.trained(step)
    if training.seconds is None:
        return []
    return [training_said(found.run, training, at_ends(step.ends, found.trained))]


def _unfit(found: Overview) -> list[str]:
    """Return what there is to say first, that the memory does not hold it; nothing if it does."""
    largest = largest_batch(found)
    if largest is None or found.worker_batch_size <= largest:
        return []
    device, batch = found.study.device, counted(found.worker_batch_size, "sample")
    capacity = in_unit(device.memory_capacity, "bytes")
    return [
        f"{found.run.net} with a batch of {batch} does not fit in the {capacity} of {device.name}.",
        f"The largest batch that fits has {counted(largest, 'sample')}."
        if largest
        else "Not even one sample fits.",
    ]


def largest_batch(found: Overview) -> int | None:
    """Return the largest batch of one worker that is trained in the memory of its device."""
    return found.run.worth.largest_batch


def _missing(found: Overview) -> list[str]:
    training = found.training(found.row, found.scheme_of(found.row))
    if training.seconds is None:
        reads = found.row.sample is not None and found.row.sample.tokens
        tokens = "tokens, or " if reads else ""
        return [
            f"for time and cost of a training give {tokens}the epochs, and a dataset or its size"
        ]
    if training.price is None:
        return [f"for a cost give a price: none of {found.run.device} is known"]
    return []
