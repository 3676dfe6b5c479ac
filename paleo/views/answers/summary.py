"""What a summary says: how large a net is, how long it takes, and which layers that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paleo.core.attributes import Ends
from paleo.core.quantity import is_array
from paleo.studies.explain import ExplainedLayer
from paleo.studies.grouping import Group, by_type
from paleo.studies.summary import LayerSummary, NetSummary
from paleo.views.answers.base import (
    device_named,
    duration,
    durations,
    listed,
    percent,
    rounded,
    spread,
)
from paleo.views.table import in_unit

_DIGITS = 3


def summary_answer(summaries: Sequence[NetSummary]) -> list[str]:
    """Return the sentences of summaries; none of arrays of batch sizes."""
    return [
        sentence
        for summary in summaries
        if not is_array(summary.batch_size)
        for sentence in _of_one(summary)
    ]


def _of_one(summary: NetSummary) -> list[str]:
    flops = in_unit(
        float(summary.forward_flops) / int(summary.batch_size), "FLOP of a sample", _DIGITS
    )
    size = f"{_counted(summary.num_params)} parameters in {len(summary.layers):,} layers"
    sentences = [f"{summary.name} has {size}; a forward pass is {flops} a sample."]
    groups = by_type(summary)
    if summary.timed_on is None:
        return [*sentences, *_most_computed(summary, groups)]
    plan = summary.timed_on.plan
    seconds = float((summary.forward or 0.0) + (summary.backward or 0.0))
    if not seconds:
        return sentences
    ends: Ends[Any] = plan.band.around(seconds) if plan.band else (None, None)
    texts = durations(ends, plan.digits, seconds)
    about = "about " if plan.band else ""
    sentences.append(
        f"On one {device_named(plan.device.name)} a batch of {summary.batch_size:,} takes {about}"
        f"{duration(seconds, plan.digits)} forward and backward{spread(texts, plan.band)}."
    )
    longest = max(summary.layers, key=_seconds)
    kind = max(groups, key=lambda group: float(group.time or 0.0))
    sentences.append(
        f"{kind.name} layers are {percent(float(kind.time or 0.0) / seconds)} of that; the "
        f"longest layer is {longest.name}, {percent(_seconds(longest) / seconds)}."
    )
    return sentences


def _most_computed(summary: NetSummary, groups: Sequence[Group]) -> list[str]:
    if not summary.forward_flops or not summary.num_params:
        return []
    flops = max(groups, key=lambda group: float(group.forward_flops))
    params = max(groups, key=lambda group: group.num_params)
    of_flops = percent(float(flops.forward_flops) / float(summary.forward_flops))
    of_params = percent(params.num_params / summary.num_params)
    of_flops, of_params = f"{of_flops} of the FLOPs", f"{of_params} of the parameters"
    if flops is params:
        return [f"{flops.name} layers have {of_flops} and {of_params}."]
    return [f"{flops.name} layers have {of_flops}, {params.name} layers {of_params}."]


def _seconds(layer: LayerSummary) -> float:
    return float((layer.forward or 0.0) + (layer.backward or 0.0))


def _counted(number: int) -> str:
    """Return a number of parameters in millions, as they are spoken of."""
    for factor, name in ((1e9, "billion"), (1e6, "million")):
        if number >= factor:
            return f"{rounded(number / factor, _DIGITS)} {name}"
    return f"{number:,}"


def explanation_answer(explained: Sequence[tuple[NetSummary, ExplainedLayer]]) -> list[str]:
    """Return of each explained layer how long it takes, and what bounds its longest operation."""
    return [sentence for summary, layer in explained for sentence in _why(summary, layer)]


def _why(summary: NetSummary, layer: ExplainedLayer) -> list[str]:
    timed_on = summary.timed_on
    times = [(float(each.explanation.time.total), each) for each in layer.operations]
    seconds = float(layer.total)
    if not timed_on or not seconds:
        return [f"{layer.name} takes no time: the device does nothing for it."]
    most, longest = max(times, key=lambda pair: pair[0])
    digits, bound = timed_on.plan.digits, longest.explanation.bound
    doing = {"compute": "computation", "memory": "memory traffic"}.get(bound, bound)
    device = device_named(timed_on.plan.device.name)
    kinds = listed(list(dict.fromkeys(each.operation.name for _, each in times)))
    what = f"{longest.direction.value.replace('_', ' ')}'s {longest.operation.name}"
    sentences = [
        f"{layer.name} takes {duration(seconds, digits)} of a step on one {device} ({kinds}).",
        f"{percent(most / seconds)} of it is the {what}, which {doing} holds back.",
    ]
    if layer.waits:
        waits = percent(float(layer.waits) / seconds)
        sentences.append(f"For {waits} the device waits for the host to hand kernels over.")
    return sentences
