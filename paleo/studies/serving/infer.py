"""Inference of language models: on a server, under loads."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

from paleo.core.checks import listed
from paleo.core.errors import Mistakes, PaleoError
from paleo.core.results import Results
from paleo.net.load import ONE_NET, NetLike
from paleo.step.declarations import check_names, declared
from paleo.step.plan import Plan
from paleo.step.scenario import SimulateSettings, asked
from paleo.step.settings import found_settings
from paleo.studies.serving import disaggregated
from paleo.studies.serving.answers import Asked, Phase, Serving
from paleo.studies.serving.loads import (
    CONCURRENCY,
    FOR_EACH,
    Fixed,
    Lengths,
    Load,
    Lognormal,
    closed_load,
    open_load,
)
from paleo.studies.serving.lots import Lot, Servers
from paleo.studies.serving.placing import (
    OF_PREFILL,
    Model,
    find_model,
    moving_of,
    placed,
    scheduling_of,
    what_would_fit,
)
from paleo.studies.serving.scheduler import Link, serve
from paleo.studies.serving.server import Party
from paleo.studies.serving.settings import DEFAULT_DEVICE, OF_OTHERS, InferSettings
from paleo.studies.serving.steady import saturation

#: Requests that are simulated at a rate.
_AT_RATE = 1000


def infer(nets: NetLike | Iterable[NetLike], **settings: Unpack[InferSettings]) -> Results[Serving]:
    """Predict what language models on a server take for a first token and for each other one.

    Devices, clusters, number types, concurrencies and rates may be several: every combination is
    an answer. Requests are simulated, so that what waits for what is in the seconds. Raises a
    PaleoError with every mistake. A model that does not fit is an answer, too.

    >>> (found,) = paleo.infer("llama3_8b", device="H100_SXM", prompt=512, output=64, concurrency=4)
    >>> found.fits, found.max_concurrency > 4
    (True, True)
    """
    return infer_within(None, nets, **settings)


def infer_within(
    most_events: int | None, nets: NetLike | Iterable[NetLike], **settings: Unpack[InferSettings]
) -> Results[Serving]:
    """Return the same, unless a load has more events to simulate than so many: SettingError then.

    None is any number. Where an answer has to be there soon, this bounds how long it takes.
    """
    mistakes = Mistakes()
    known = declared(InferSettings)
    check_names(known, settings, mistakes)
    given = {name: value for name, value in settings.items() if value is not None}
    many = mistakes.check(listed, "nets", nets, ONE_NET) or []
    specs = [mistakes.check(find_model, net, settings.get("importing")) for net in many]
    found = found_settings(InferSettings, given, mistakes, base=SimulateSettings)
    mistakes.raise_as(PaleoError)
    for name in OF_OTHERS:
        if name in given:
            mistakes.add(f"{name}: is not for language models, which have --concurrency")
    _check_together(found, given, mistakes)
    found |= {"most_events": most_events}
    loads = mistakes.check(_loads, found)
    if loads is None:
        mistakes.raise_as(PaleoError)
    assert loads is not None
    answers: list[Serving] = []
    for spec in specs:
        if spec and (most := spec.positions):
            _check_positions(spec, most, found, loads, mistakes)
        for plan in _plans(spec, given, mistakes):
            for dtype in found["dtype"] or (None,):
                answers += mistakes.check(_answers, spec, plan, dtype, found, loads) or []
    mistakes.raise_as(PaleoError)
    return Results(answers)


def _plans(spec: Model | None, given: Mapping[str, Any], mistakes: Mistakes) -> Iterator[Plan]:
    """Yield the plan of each device or cluster."""
    if spec is None:
        return
    plain = {
        name: given[name]
        for name in ("device", "cluster", "network", "cost_model")
        if name in given
    }
    if "cluster" not in plain:
        plain.setdefault("device", DEFAULT_DEVICE)
    scenarios, _ = asked(spec.net, SimulateSettings, {**plain, "workers": 1}, mistakes)
    for scenario in scenarios:
        yield scenario.plan


def _check_positions(
    model: Model,
    most: int,
    found: Mapping[str, Any],
    loads: Sequence[tuple[int | None, float | None, Load]],
    mistakes: Mistakes,
) -> None:
    """Note where a prompt and its answer are longer than the positions of a model."""
    if found["prompts"] is None:
        where, longest = "prompt: ", found["prompt"] + found["output"]
    else:
        where = f"{found['prompts']}: "
        longest = max(int((load.prompt + load.output).max()) for _, _, load in loads)
    if longest > most:
        mistakes.add(
            f"{where}{longest:,} tokens with the answer are more than the {most:,} positions of "
            f"{model.net.name}"
        )


def _check_together(found: Mapping[str, Any], given: Mapping[str, Any], mistakes: Mistakes) -> None:
    if found["prefill"] is None:
        for name in ("decode", *OF_PREFILL):
            if name in given:
                mistakes.add(
                    f"{name}: is for devices that compute prompts alone: give prefill, too"
                )
    if found["concurrency"] and found["rate"]:
        mistakes.add("rate: requests come at a rate, or there are so many at a time, not both")
    if found["prompts"] is not None:
        for name in ("prompt", "output", "length_cv", "concurrency", "requests", "cv"):
            if name in given:
                mistakes.add(f"{name}: the file of prompts says so: leave out {name}, or prompts")
    for name in ("draft", "acceptance"):
        if name in given and not found["drafts"]:
            mistakes.add(f"{name}: nothing is drafted: give drafts, how many in a step")


def requests_asked(given: Mapping[str, Any]) -> list[int]:
    """Return how many requests are simulated of each load, of settings that may be given or not."""
    count = given.get("requests")
    if given.get("rate"):
        return [count or _AT_RATE] * len(given["rate"])
    return [count or FOR_EACH * each for each in given.get("concurrency") or CONCURRENCY]


def _loads(found: Mapping[str, Any]) -> list[tuple[int | None, float | None, Load]]:
    """Return all loads, each with its concurrency or its rate."""
    if found["prompts"] is not None:
        from paleo.studies.serving.traces import read_trace  # here: others start without

        trace = read_trace(found["prompts"])
        if not found["rate"]:
            return [(None, trace.rate, trace)]
        return [(None, rate, trace.at_rate(rate)) for rate in found["rate"]]
    lengths = [_lengths(found[name], found["length_cv"]) for name in ("prompt", "output")]
    how = {"hit_rate": found["hit_rate"], "seed": found["seed"]}
    counts = requests_asked(found)
    if found["rate"]:
        return [
            (None, rate, open_load(rate, count, *lengths, cv=found["cv"], **how))
            for rate, count in zip(found["rate"], counts, strict=True)
        ]
    return [
        (most, None, closed_load(most, count, *lengths, **how))
        for most, count in zip(found["concurrency"] or CONCURRENCY, counts, strict=True)
    ]


def _lengths(tokens: int, cv: float) -> Lengths:
    return Lognormal(tokens, cv) if cv else Fixed(tokens)


def _answers(
    spec: Model,
    plan: Plan,
    dtype: str | None,
    found: Mapping[str, Any],
    loads: Sequence[tuple[int | None, float | None, Load]],
) -> list[Serving]:
    """Return the answers of a model on devices of one kind, in one type."""
    prefix = spec.prefix
    if prefix:
        loads = [(most, rate, load.behind(prefix)) for most, rate, load in loads]
    longest = max(int((load.prompt + load.output).max()) for _, _, load in loads)
    spec = spec.reading(round(float(loads[0][2].prompt.mean())))
    one = placed(spec, plan, dtype, found, longest)
    limits = (found["ttft"], found["tpot"])
    return [
        _answer(one, concurrency, rate, load, found, limits) for concurrency, rate, load in loads
    ]


def _answer(
    one: Asked,
    concurrency: int | None,
    rate: float | None,
    load: Load,
    found: Mapping[str, Any],
    limits: tuple[float | None, float | None],
) -> Serving:
    length = int((load.prompt + load.output).max())
    serving = functools.partial(Serving, one, concurrency, rate, length, limits=limits)
    if lacking := serving().lacking:
        return serving(missing=tuple(what_would_fit(one, lacking, length)))
    how = found["batching"], found["max_requests"]
    party = Party(one.deployment, scheduling_of(one.deployment, *how), one.copies)
    prefill = link = None
    if one.prefill:
        prefill = Party(one.prefill, scheduling_of(one.prefill, *how), one.prefill_copies)
        link = _link(one)
    most = _most_rate(party, prefill, link, load) if rate is not None else None
    simulate = functools.partial(
        serve, load, party, prefill, link, most_events=found["most_events"]
    )
    served = simulate().behind(float(one.server.first_host))
    prompt = max(round(float((load.prompt - load.cached).mean())), 1)
    of_prompts = one.prefill or one.deployment
    keys = float(load.prompt.mean() + load.output.mean() / 2)
    running = max(served.mean_batch, 1.0) if served.decode_seconds else 1.0
    deployment = one.deployment
    return serving(
        served=served,
        prefill=Phase.of(
            of_prompts.prefill(prompt, int(load.cached.mean())).times, of_prompts.host_seconds(1)
        ),
        decode=Phase.of(
            deployment.decode(running, keys).times, deployment.host_seconds(round(running))
        ),
        most_rate=most,
        simulate=simulate,
    )


def _most_rate(party: Party, prefill: Party | None, link: Link | None, load: Load) -> float:
    """Return the requests a second that are served if there are always some that wait."""
    lot, servers = Lot.of(load), Servers.of(party)
    if prefill is None or link is None:
        return float(saturation(servers, lot))
    moving = link.seconds(round(float(lot.prompt)))
    return float(
        disaggregated.saturation(Servers.of(prefill), servers, lot, moving, lanes=link.lanes)
    )


def _link(one: Asked) -> Link:
    """Return what moves caches from the devices of prompts to those that decode."""
    assert one.prefill is not None
    moving = moving_of(one.plan, one.prefill)
    groups = one.prefill.prices.degrees.attention_dp
    return Link(lambda tokens: float(moving(tokens)), lanes=max(one.prefill_copies * groups, 1))
