"""Deployments of a language model to choose from: copies on devices, number types, requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from paleo.cluster.servers import Server
from paleo.core.attributes import at_ends
from paleo.core.errors import Mistakes, PaleoError
from paleo.core.quantity import np
from paleo.costs.error_bands import TOKEN
from paleo.net.graph import typical
from paleo.step.scenario import Scenario, SimulateSettings
from paleo.step.serving.parts import widest
from paleo.step.settings import found_settings
from paleo.studies.planning.candidates import FIRST, OTHERS, Candidates, none_of
from paleo.studies.planning.settings import OF_SERVING
from paleo.studies.planning.space import experts_of, node_size, powers
from paleo.studies.serving.answers import served_band
from paleo.studies.serving.deployments import PLACES, Deployments, evaluated, found_axes
from paleo.studies.serving.placing import Model, find_model, kernels_of, plain_cache
from paleo.studies.serving.settings import InferSettings
from paleo.studies.training import Rates

__all__ = ["PLACES", "USUAL_CLUSTERS", "find_model", "serving"]

#: Where models are served unless told otherwise: hosts of eight that many rent.
USUAL_CLUSTERS = ("dgx_a100", "dgx_h100", "hgx_h200", "hgx_b200")

#: So many devices share a copy at most where links are all alike, and stages of one.
_ALIKE, _STAGES = 8, 4
#: Requests at a time: so many at most, and how many numbers of them in a doubling.
_MOST_REQUESTS, _IN_DOUBLING = 2048, 4
#: Copies that compute prompts, and that decode, where they are others.
_APART = ((1, 1), (1, 2), (1, 3), (2, 1), (3, 1))
#: What each deployment has, by the names of options: some only where they are asked for.
_SETTINGS = (
    *("num_workers", "dtype", "kv_dtype", "tp", "pp", "ep", "attention_dp", "prefill"),
    *("concurrency", "prompt", "output", "hit_rate", "token_budget", "max_requests"),
)
_ALWAYS = _SETTINGS[:11]
_PREEMPTS = "concurrency: caches grow beyond the memory, and servers compute requests again"


def serving(
    model: Model, scenario: Scenario, rates: Rates, found: Mapping[str, Any]
) -> list[Candidates]:
    """Return the deployments of a model on devices of one kind, of settings given or usual.

    Where nobody says how many devices there are, they are those of one copy; on clusters prompts
    are also computed by copies of their own. Raises a PaleoError with every mistake.
    """
    mistakes = Mistakes()
    server = {} if found["server"] is None else {"server": found["server"]}
    asked = found_settings(InferSettings, server, mistakes, base=SimulateSettings)
    most, every = found["max_devices"], []
    for tp, pp in _divisions(scenario, found):
        if most is None or tp * pp <= most:
            axes = found_axes(_axes(model, scenario, found, asked["server"], tp, pp), mistakes)
            mistakes.raise_as(PaleoError)
            every.append((axes, evaluated(model, [scenario.plan], axes, asked)))
    return [
        _of_deployments(scenario, rates, deployments, found, axes, asked["server"].name)
        for axes, deployments in every
    ]


def _divisions(scenario: Scenario, found: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield over how many devices, and stages, a copy may be spread."""
    inner = node_size(scenario)
    limit = inner if inner > 1 else _ALIKE
    for tp in found["tp"] or powers(limit):
        for pp in found["pp"] or powers(_STAGES):
            yield tp, pp


def _axes(
    model: Model, scenario: Scenario, found: Mapping[str, Any], server: Server, tp: int, pp: int
) -> dict[str, list[Any]]:
    """Return the values of every axis of copies on so many devices."""
    given = {
        name: list(values) if isinstance(values, tuple) else [values]
        for name in (*OF_SERVING, "workers", "dtype", "ep")
        if (values := found[name]) is not None
    }
    experts = experts_of(typical(model.alone, "bf16"))
    shared = [1, tp] if experts and tp > 1 else [1]
    usual: dict[str, list[Any]] = {
        "dtype": list(_types(scenario, server)),
        "ep": [ep for ep in shared if not experts or not experts % ep],
        "attention_dp": shared,
        "concurrency": _requests(),
    }
    copies = tp * pp
    if found["workers"] is None:
        apart = _APART if scenario.plan.cluster is not None else ()
        usual["workers"] = sorted({copies, *(copies * (own + others) for own, others in apart)})
        usual["prefill"] = sorted({0, *(copies * own for own, _ in apart)})
    return {**usual, **given, "tp": [tp], "pp": [pp]}


def _types(scenario: Scenario, server: Server) -> Iterator[str]:
    """Yield numbers of 2 bytes, and fp8 where a device and its server have that."""
    plan = scenario.plan
    yield widest(plan.device)
    try:
        kernels_of(plan.device, server, "fp8", "fp8", plain_cache("fp8"))
    except PaleoError:
        return
    yield "fp8"


def _requests() -> list[int]:
    """Return numbers of requests at a time, some in each doubling."""
    doublings = _MOST_REQUESTS.bit_length() - 1
    found = {round(2 ** (i / _IN_DOUBLING)) for i in range(_IN_DOUBLING * doublings + 1)}
    return sorted(found)


def _of_deployments(
    scenario: Scenario,
    rates: Rates,
    found: Deployments,
    asked: Mapping[str, Any],
    axes: Mapping[str, list[Any]],
    server: str,
) -> Candidates:
    """Return deployments as plans: requests are samples, whose latency is the time of a step.

    By Little's law as many as there are at a time are served in that.
    """
    tried = _tried(found, asked)
    refused = Counter(map(str, found.reasons[tried & ~found.valid].tolist()))
    valid = found.valid & tried
    preempts = valid & found["preempts"]
    if preempts.any():
        refused[_PREEMPTS] = int(preempts.sum())
    own = valid & ~preempts
    if not own.any():
        return none_of(scenario, rates, int(tried.sum()), refused)
    # What does not fit has no times: it is memory alone that it lacks.
    first, whole = (np.nan_to_num(found[name][own]) for name in ("ttft_s", "latency_s"))
    band = served_band(scenario.plan, server, TOKEN)
    settings = {
        name: found[name][own] for name in _SETTINGS if name in _ALWAYS or found[name].any()
    }
    settings["server"] = np.full(int(own.sum()), server)
    return Candidates(
        scenario,
        rates,
        settings,
        whole,
        {FIRST: first, OTHERS: whole - first},
        np.zeros(len(whole)),
        at_ends(band.ends if band else (None, None), lambda factor: factor * whole),
        band,
        found["concurrency"][own],
        np.ceil(found["memory_bytes"][own]).astype(np.int64),
        int(axes["output"][0]),
        int(tried.sum()),
        refused,
    )


def _tried(found: Deployments, asked: Mapping[str, Any]) -> Any:
    """Tell which deployments are meant: of one copy, or of those apart, where nobody says."""
    if asked["workers"] is not None:
        return np.full(len(found), True)
    devices = found["tp"] * found["pp"]
    prefill = found["prefill"] // devices
    decode = (found["num_workers"] - found["prefill"]) // devices
    kept = (prefill == 0) & (decode == 1)
    for own, others in _APART:
        kept |= (prefill == own) & (decode == others)
    if asked["max_devices"] is not None:
        kept &= found["num_workers"] <= asked["max_devices"]
    return kept
