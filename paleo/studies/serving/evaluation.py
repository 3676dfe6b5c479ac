"""The evaluation of many deployments: those that can be, group by group, and why others cannot.

A group has one division among devices, one number type and one scheduler: the seconds of its steps
stand in tables, and how many devices, clients and tokens there are, are arrays.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paleo.cluster.frameworks import FRAMEWORKS
from paleo.core.errors import PaleoError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, np
from paleo.step.plan import Plan
from paleo.step.serving.deployment import Deployment
from paleo.step.serving.parts import Degrees, widest
from paleo.step.serving.prices import StepPrices
from paleo.studies.serving.disaggregated import disaggregated
from paleo.studies.serving.loads import FOR_EACH, cached_share
from paleo.studies.serving.lots import Lot, Servers, Steady
from paleo.studies.serving.placing import (
    Model,
    checked_degrees,
    drafts_of,
    kernels_of,
    moving_of,
    plain_cache,
    prices_of,
    scheduling_of,
)
from paleo.studies.serving.steady import closed

#: What deployments of a group have in common, and what is an array in it.
_TYPES, _DEGREES = ("dtype", "kv_dtype"), ("tp", "pp", "ep", "attention_dp")
_OF_PREFILL = ("prefill_tp", "prefill_ep", "prefill_attention_dp")
_STEPS = ("token_budget", "max_requests")
_ARRAYS = ("workers", "prefill", "concurrency", "prompt", "output", "hit_rate")
AXES = (*_TYPES, *_DEGREES, *_OF_PREFILL, *_STEPS, *_ARRAYS)
#: What an axis is where nobody says.
FREE: Mapping[str, Any] = {"prefill": 0, "workers": 1}
_COLUMNS = ("ttft_s", "tpot_s", "latency_s", "requests_per_s", "tokens_per_s", "running")
#: How near a number of prompts is to a whole one.
_ROUNDING = 1e-9


class _Group(NamedTuple):
    """A division: who decodes, who computes prompts if they are others, and where they stand."""

    deployment: Deployment
    prefill: Deployment | None
    most: int | None
    places: tuple[int, ...]


class Evaluation:
    """All combinations of values of axes, evaluated."""

    def __init__(
        self,
        model: Model,
        plans: Sequence[Plan],
        axes: Mapping[str, Sequence[Any]],
        found: Mapping[str, Any],
    ) -> None:
        self.model, self.plans, self.axes, self.found = model, plans, axes, found
        self._shape = (len(plans), *(len(axes[name]) for name in AXES))
        #: The texts of why deployments cannot be, and which of them is that of each.
        self.said: dict[str, int] = {"": 0}
        self.why = np.zeros(self._shape, np.int64)
        self._columns = {name: np.full(self._shape, np.nan) for name in _COLUMNS}
        self._columns["memory_bytes"] = np.full(self._shape, np.nan)
        self._columns["max_concurrency"] = np.zeros(self._shape, np.int64)
        self._columns["preempts"] = np.zeros(self._shape, bool)
        self._types = {name: np.full(self._shape, "", object) for name in _TYPES}
        #: What the arrays of a group are, side by side.
        own = [np.array([*axes[name]]) for name in _ARRAYS]
        grid = np.meshgrid(*own, indexing="ij")
        self._grid = {name: values.ravel() for name, values in zip(_ARRAYS, grid, strict=True)}

    def all(self) -> None:
        """Evaluate every deployment."""
        for group in self._groups():
            try:
                self._evaluate(group)
            except PaleoError as error:
                self._note(group.places, error)

    def settings(self) -> dict[str, Array]:
        """Return what each deployment has by name: 0 where it is as nobody says."""
        found: dict[str, Array] = {}
        indices = np.indices(self._shape, sparse=True)
        found["place"] = self._spread(indices[0])
        for axis, name in enumerate(AXES, 1):
            if name in self._types:
                found[name] = self._types[name].ravel().astype(str)
            else:
                values = np.array([0 if value is None else value for value in self.axes[name]])
                found[name] = self._spread(values[indices[axis]])
        others = np.maximum(found["ep"], found["attention_dp"])
        found["tp"] = np.where(found["tp"] > 0, found["tp"], others)
        found["num_workers"] = found.pop("workers")
        return found

    def columns(self) -> dict[str, Array]:
        """Return what follows of each deployment."""
        return {name: values.ravel() for name, values in self._columns.items()}

    def _spread(self, values: Array) -> Array:
        return np.ravel(np.broadcast_to(values, self._shape))

    def _note(self, places: tuple[Any, ...], error: PaleoError) -> None:
        """Note why the deployments at some places cannot be."""
        text = str(error.mistakes[0])
        own = self.why[places]
        self.why[places] = np.where(own == 0, self.said.setdefault(text, len(self.said)), own)

    # Groups.

    def _groups(self) -> Iterator[_Group]:
        """Yield those that can be; of others say why."""
        for p, plan in enumerate(self.plans):
            for (d, dtype), (k, cache) in self._product(_TYPES):
                weights = dtype or widest(plan.device)
                kept = cache or plain_cache(weights)
                self._types["dtype"][p, d, k] = weights
                self._types["kv_dtype"][p, d, k] = kept
                yield from self._divisions(plan, weights, kept, (p, d, k))

    def _product(self, names: Sequence[str]) -> Iterator[tuple[tuple[int, Any], ...]]:
        return itertools.product(*(enumerate(self.axes[name]) for name in names))

    def _divisions(
        self, plan: Plan, weights: str, cache: str, places: tuple[int, ...]
    ) -> Iterator[_Group]:
        server = self.found["server"]
        try:
            experts = self.found["experts_dtype"] or weights
            kernels = kernels_of(plan.device, server, weights, experts, cache)
        except PaleoError as error:
            self._note(places, error)
            return

        @functools.cache
        def priced(degrees: Degrees) -> StepPrices:
            return prices_of(self.model.alone, plan, kernels, degrees)

        @functools.cache
        def deployed(degrees: Degrees, budget: int) -> Deployment:
            drafts = drafts_of(self.found, plan, kernels, degrees)
            return Deployment(
                priced(degrees), server, length=1, token_budget=budget,
                graphs=not self.found["eager"], host=FRAMEWORKS["pytorch"].host_of(plan.device),
                drafts=drafts,
            )  # fmt: skip

        usual = server.limits_on(plan.device).tokens
        for own in self._product(_DEGREES):
            at = (*places, *(place for place, _ in own))
            tp, pp, ep, groups = (value for _, value in own)
            try:
                degrees = checked_degrees(tp or max(ep, groups), pp, ep, groups)
                priced(degrees)
            except PaleoError as error:
                self._note(at, error)
                continue
            for (b, budget), (m, most) in self._product(_STEPS):
                for first in self._product(_OF_PREFILL):
                    inner = (*at, *(place for place, _ in first), b, m)
                    try:
                        deployment = deployed(degrees, budget or usual)
                        prefill = None
                        if any(self.axes["prefill"]):
                            of_first = _of_prefill(degrees, *(value for _, value in first))
                            prefill = deployed(of_first, budget or usual)
                        yield _Group(deployment, prefill, most, (*inner,))
                    except PaleoError as error:
                        self._note(inner, error)

    # What a group takes.

    def _evaluate(self, group: _Group) -> None:
        """Put what follows of these deployments in its place."""
        grid, plan = self._grid, self.plans[group.places[0]]
        inner = self._shape[len(group.places) :]
        why = np.zeros(math.prod(inner), np.int64)
        deployment, prefill = group.deployment, group.prefill

        def refuse(which: Array, text: str) -> None:
            if which.any():
                why[which & (why == 0)] = self.said.setdefault(text, len(self.said))

        devices = deployment.prices.degrees.devices
        decoding = grid["workers"] - grid["prefill"]
        for count in np.unique(grid["workers"]).tolist():
            try:
                if plan.cluster is not None:
                    plan.group(count)
            except PaleoError as error:
                refuse(grid["workers"] == count, str(error.mistakes[0]))
        refuse(decoding < 1, "prefill: no device is left that decodes")
        refuse(
            decoding % devices != 0,
            f"num_workers: a copy is on {devices} devices, which do not divide them",
        )
        if prefill is not None:
            of_first = prefill.prices.degrees.devices
            text = f"prefill: a copy is on {of_first} devices, which do not divide them"
            refuse(grid["prefill"] % of_first != 0, text)
        text = "prefill: of an answer of one token, nothing is decoded"
        refuse((grid["prefill"] > 0) & (grid["output"] < 2), text)
        positions = self.model.positions
        if positions:
            longer = grid["prompt"] + grid["output"] > positions
            refuse(longer, f"prompt: with its answer it has more than {positions:,} positions")
        self.why[group.places] = why.reshape(inner)
        # Of those that can be: whether they fit, and what they take.
        length = grid["prompt"] + grid["output"]
        copies = np.maximum(decoding // devices, 0)
        groups = deployment.prices.degrees.attention_dp
        room = deployment.memory.requests(length)
        self._put(group, "max_concurrency", np.where(why == 0, room * groups * copies, 0))
        fits = (why == 0) & (room >= 1)
        size = np.asarray(deployment.memory.of_request(length))
        held = deployment.memory.weights + deployment.memory.activations
        # What does not fit lacks as much of what its server leaves it.
        lacking = deployment.memory.capacity - deployment.memory.room + size
        memory = np.where(fits, held + size, lacking)
        for is_apart in (False, True):
            if is_apart and prefill is None:
                continue
            which = fits & ((grid["prefill"] > 0) == is_apart)
            if is_apart and prefill is not None:
                which &= prefill.memory.requests(length) >= 1
            own = np.flatnonzero(which)
            if not len(own):
                continue
            of = {name: values[own] for name, values in grid.items()}
            steady = self._steady(group, plan, of, copies[own], is_apart=is_apart)
            self._put_steady(group, own, steady)
            running = np.maximum(steady.running / (groups * copies[own]), 1.0)
            cache = np.minimum(running * size[own], max(deployment.memory.room, 0.0))
            memory[own] = held + cache
        self._put(group, "memory_bytes", np.where(why == 0, memory, np.nan))

    def _put(self, group: _Group, name: str, values: Array) -> None:
        of_group = self._columns[name][group.places]
        of_group[...] = values.reshape(of_group.shape)

    def _put_steady(self, group: _Group, own: Array, steady: Steady) -> None:
        before = group.deployment.server.first_host
        values = {
            "ttft_s": steady.ttft + before,
            "tpot_s": steady.tpot,
            "latency_s": steady.latency + before,
            "requests_per_s": steady.requests_per_s,
            "tokens_per_s": steady.tokens_per_s,
            "running": steady.running,
            "preempts": steady.preempts,
        }
        for name, found in values.items():
            self._columns[name][group.places].reshape(-1)[own] = found

    def _steady(
        self, group: _Group, plan: Plan, of: Mapping[str, Array], copies: Array, *, is_apart: bool
    ) -> Steady:
        """Return means of these deployments, which fit."""
        cached = np.empty_like(of["prompt"])
        for share in np.unique(of["hit_rate"]).tolist():
            same = of["hit_rate"] == share
            cached[same] = cached_share(of["prompt"][same], share)
        lot = Lot(of["prompt"], of["output"], cached)
        requests = of["concurrency"] * FOR_EACH
        if self.found["requests"]:
            requests = np.full_like(requests, self.found["requests"])
        servers = self._servers(group.deployment, group.most, lot, copies)
        if not is_apart:
            return closed(servers, of["concurrency"], lot, requests=requests)
        assert group.prefill is not None
        of_first = of["prefill"] // group.prefill.prices.degrees.devices
        prefill = self._servers(group.prefill, group.most, lot, of_first)
        return disaggregated(
            prefill, servers, of["concurrency"], lot, moving_of(plan, group.prefill)(lot.prompt),
            lanes=of_first * group.prefill.prices.degrees.attention_dp, requests=requests,
        )  # fmt: skip

    def _servers(
        self, deployment: Deployment, most: int | None, lot: Lot, copies: Array
    ) -> Servers:
        capacity = deployment.memory.tokens(lot.prompt + lot.output)
        capacity = capacity * deployment.prices.degrees.attention_dp
        scheduling = scheduling_of(deployment, self.found["batching"], most)
        return Servers(functools.partial(_step, deployment), scheduling, capacity, copies)


def _of_prefill(degrees: Degrees, tp: int | None, ep: int | None, groups: int | None) -> Degrees:
    """Return how devices that compute prompts share a copy: as the others do, if nobody says."""
    own_ep = ep or degrees.ep
    own_tp = tp or degrees.tp
    return checked_degrees(
        own_tp, degrees.pp, min(own_ep, own_tp), min(groups or degrees.attention_dp, own_tp)
    )


def _step(
    deployment: Deployment, prompts: Any, tokens: Any, past: Any, decodes: Any, context: Any
) -> Any:
    """Return the seconds of many steps, as `step_of` those of one: linear between whole prompts."""
    prompts, tokens, past, decodes, context = np.broadcast_arrays(
        prompts, tokens, past, decodes, context
    )
    whole = np.floor(prompts + _ROUNDING)
    rest = prompts - whole
    places = np.round(decodes)
    cache = np.round(context * places / np.where(decodes > 0, decodes, 1))
    part = np.maximum(1, np.round(tokens)), np.round(past)

    def seconds(count: Array) -> Array:
        found = deployment.alike(count, *part, places, cache)
        nothing = (count == 0) & (places == 0)
        return np.where(nothing, 0.0, found)

    low = seconds(whole)
    between = rest > _ROUNDING
    if not between.any():
        return low
    return np.where(between, low + rest * (seconds(whole + 1) - low), low)
