"""What a served model answers: the first token, the next ones, how many users, at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paleo.costs.error_bands import MOST_DIGITS, Band
from paleo.studies.serving.answers import Asked, Serving
from paleo.studies.training import ENERGY_BOUND
from paleo.views.answers.base import (
    NO_BAND,
    device_named,
    duration,
    durations,
    listed,
    percent,
    rounded,
    spread,
    used,
)
from paleo.views.charts.numbers import counted
from paleo.views.table import in_unit

#: Digits of what follows from a time without a band: more would say more than is known.
_DIGITS = 2
#: What most of a phase waits for.
BOUND = {
    "compute": "by computation",
    "memory": "by memory bandwidth",
    "overhead": "by starts of kernels",
    "exchange": "by messages between devices",
    "host": "by the host",
}


def digits_of(band: Band | None) -> int:
    """Return the digits of a time with this band."""
    return min(band.digits if band else _DIGITS, MOST_DIGITS)


def serving_answer(found: Sequence[Serving]) -> list[str]:
    """Return the sentences of models that are served: of each place one, of its largest load."""
    said = []
    for one in dict.fromkeys(each.asked for each in found):
        own = [each for each in found if each.asked is one]
        said += list(_of_place(one, own, len({each.asked for each in found}) > 1))
    return said


def _of_place(one: Asked, own: Sequence[Serving], is_one_of_many: bool) -> Iterator[str]:
    where = f"{where_said(one)}: " if is_one_of_many else ""
    if not own[0].fits:
        yield f"{where}{_misfit(own[0])}"
        return
    stable = [each for each in own if each.is_stable] or own[:1]
    best = stable[-1] if len(stable) > 1 else stable[0]
    yield f"{where}{_served(best)}"
    for each in own:
        if not each.is_stable and each.most_rate is not None:
            yield (
                f"At {each.rate:,g} requests/s the queue grows without end: up to about "
                f"{rounded(each.most_rate, _DIGITS)} a second are served."
            )


def where_said(one: Asked) -> str:
    """Return on what a model is served, and in which numbers."""
    name = one.plan.cluster.name if one.plan.cluster else device_named(one.plan.device.name)
    return f"{one.net.name} on {name}, {one.settings['dtype']}"


def load_said(found: Serving) -> str:
    """Return the load of an answer: requests at a time, or a second."""
    if found.concurrency is not None:
        return f"{counted(found.concurrency, 'concurrent request')}"
    return f"{found.rate:,.4g} requests/s" if found.rate else "the requests of the file"


def _served(found: Serving) -> str:
    """Return the first token, the next ones, the rate and the room, in a sentence."""
    asked, served = found.asked, found.served
    assert served is not None
    assert found.ttft is not None
    first, band = found.ttft.mean, asked.band
    parts = [f"first token {_seconds(found, 'ttft', first)}"]
    if found.tpot is not None:
        parts.append(f"then {_seconds(found, 'tpot', found.tpot.mean)} a token")
    rate = found.tokens_per_s
    assert rate is not None
    room = max(found.memory.room, 0.0)
    digits = digits_of(band)
    cache = f"cache {in_unit(found.cache_bytes, 'bytes', 2)} of {in_unit(room, 'bytes', 2)}"
    most = f"at most {counted(found.max_concurrency, 'request')} fit"
    return (
        f"{parts[0][0].upper()}{', '.join(parts)[1:]} at {load_said(found)}; "
        f"{rounded(rate, digits)} tokens/s; {cache}, {most}."
    )


def _seconds(found: Serving, name: str, seconds: float) -> str:
    """Return a time with its band."""
    band = found.asked.first_band if name == "ttft" else found.asked.band
    digits = digits_of(band)
    about = "about " if band else ""
    ends = durations(found.ends(name, seconds), digits, seconds)
    return f"{about}{duration(seconds, digits)}{spread(ends, band)}"


def _misfit(found: Serving) -> str:
    """Return by how much a model does not fit, and what would make it."""
    lacking = found.lacking
    assert lacking is not None
    memory = lacking.memory
    whose = ", of the servers of prompts," if lacking is found.asked.prefill else ""
    needed = memory.weights + memory.activations + memory.of_request(found.length)
    said = (
        f"it does not fit: weights, a step and the cache of one request of {found.length:,} tokens"
        f"{whose} need {used(float(needed), int(memory.capacity))}"
    )
    options = [
        f"--{each.setting}={each.value}" for each in found.missing if each.setting != "prompt"
    ]
    shorter = [each.value for each in found.missing if each.setting == "prompt"]
    would = [*options, *(f"requests of up to {each.partition(' ')[0]} tokens" for each in shorter)]
    return f"{said[0].upper()}{said[1:]}." + (
        f" It would with {listed(would, 'or')}." if would else ""
    )


def notes_of(found: Sequence[Serving]) -> list[str]:
    """Return what there is to know of the answers, each once."""
    notes: dict[str, None] = {}
    for one in dict.fromkeys(each.asked for each in found):
        # Energy is in no column but one that is asked for.
        notes |= dict.fromkeys(
            each for each in (*one.notes, *one.rates.notes) if each != ENERGY_BOUND
        )
    if not any(each.asked.band for each in found):
        notes[NO_BAND] = None
    if any(each.served and each.served.preemptions for each in found):
        count = sum(each.served.preemptions for each in found if each.served)
        notes[
            f"{counted(count, 'request')} lost the cache for want of room and were computed again"
        ] = None
    return list(notes)


def bounds_said(found: Serving) -> str:
    """Return what bounds the two phases."""
    if found.prefill is None or found.decode is None:
        return ""
    return f"prompts are bound {BOUND[found.prefill.bound]}, decoding {BOUND[found.decode.bound]}"


def goodput_said(found: Serving) -> str:
    """Return the share of requests that keep the limits, "" without any."""
    if found.served is None or not any(found.limits):
        return ""
    kept = found.served.keeps(*found.limits)
    return percent(float(kept.mean()))
