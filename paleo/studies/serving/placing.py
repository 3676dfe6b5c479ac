"""Where a model is served: how devices share copies of it, in which numbers, and what fits."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from paleo.cluster import Device
from paleo.cluster.frameworks import FRAMEWORKS
from paleo.cluster.servers import Server, numbers_of
from paleo.core.errors import Mistakes, PaleoError, SettingError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Quantity
from paleo.costs.tiled.backends import BACKENDS
from paleo.costs.tiled.quantizations import QUANTIZATIONS
from paleo.net.division import divided
from paleo.net.graph import cached_for_net
from paleo.net.heads import with_repeated_heads
from paleo.net.lengths import DECODER_SEQ, SEQ, positions_of
from paleo.net.load import NetLike, load
from paleo.net.spec import NetSpec
from paleo.step.plan import Plan
from paleo.step.serving.deployment import NO_DRAFTS, Deployment, Drafts
from paleo.step.serving.parts import ALL_GATHER, Degrees, Kernels, widest
from paleo.step.serving.prices import StepPrices
from paleo.step.serving.program import Program, read_program
from paleo.step.serving.scheduling import Scheduling
from paleo.step.shortened import Shortened, shortened
from paleo.studies.serving.answers import Asked, Missing
from paleo.studies.serving.settings import CACHES
from paleo.studies.training import rates_of

#: No copy of a model is on more devices.
_MOST_DEVICES = 1024
#: The settings by which devices share a copy of a model, in the order in which they are said.
_DEGREES = ("tp", "pp", "cp", "ep", "attention_dp")
#: The same of devices that compute prompts alone.
OF_PREFILL = ("prefill_tp", "prefill_ep", "prefill_attention_dp")


class Model(NamedTuple):
    """A language model: its net, and the same with one position a sample."""

    net: NetSpec
    alone: NetSpec

    @property
    def prefix(self) -> int:
        """Positions that an image has before a prompt."""
        if sum(each.layer.is_input for each in self.net.few.layers) < 2:
            return 0
        return cached_for_net(program_of, self.alone, 1).prefix

    def reading(self, prompt: int) -> Model:
        """Return the model where prompts have so many tokens, which only an encoder cares for."""
        if DECODER_SEQ not in (self.net.dims or {}):
            return self
        return self._replace(alone=load(self.net, dims={SEQ: prompt, DECODER_SEQ: 1}))

    @property
    def positions(self) -> int | None:
        """The most positions that it was made for, None where its file does not say."""
        return positions_of(self.net.notes)


def is_served(net: NetSpec) -> bool:
    """Tell whether a net is a language model: its tokens see earlier ones, and have scores."""
    causal = any(getattr(each.layer, "causal", False) for each in net.few.layers)
    kinds = {each.layer.serves_as for each in net.few.layers}
    length = (net.dims or {}).get(SEQ)
    # Attention in steps has a mask of its own, which nothing trains.
    masks = any(
        not each.layer.is_input and getattr(each.layer, "shape", None) == (length, length)
        for each in net.few.layers
    )
    return length is not None and (causal or "scan" in kinds or (masks and "match" in kinds))


def find_model(net: NetLike, importing: Any) -> Model:
    """Return a language model; raises a PaleoError if it is none."""
    spec = load(net, importing)
    if not is_served(spec):
        raise SettingError(
            f"{spec.name}: it is no language model: no causal attention, or no dimension {SEQ!r}"
        )
    return Model(spec, load(spec, dims={SEQ: 1}))


def placed(
    spec: Model, plan: Plan, dtype: str | None, found: Mapping[str, Any], longest: int
) -> Asked:
    """Return how a model is served on devices of one kind; raises a PaleoError."""
    server: Server = found["server"]
    device = plan.device
    weights = dtype or widest(plan.device)
    experts = found["experts_dtype"] or weights
    cache = found["kv_dtype"] or plain_cache(weights)
    kernels = kernels_of(device, server, weights, experts, cache)
    budget = found["token_budget"] or server.limits_on(device).tokens
    make = functools.partial(
        _deployment, spec.alone, plan, kernels, server=server, length=longest, token_budget=budget,
        graphs=not found["eager"], drafts=functools.partial(drafts_of, found, plan, kernels),
    )  # fmt: skip
    workers, notes = found["workers"], []
    prefill, prefill_copies = None, 0
    own = {name: found[name] for name in _DEGREES}
    if found["prefill"] is not None:
        decode = found["decode"] or (workers or 0) - found["prefill"]
        if workers is not None and found["prefill"] + decode > workers:
            raise SettingError(
                f"prefill: {found['prefill']} devices and {decode} that decode are more than "
                f"num_workers {workers}"
            )
        if decode < 1:
            raise SettingError("decode: no device is left that decodes: give num_workers or decode")
        first = own | {
            name.removeprefix("prefill_"): found[name] for name in OF_PREFILL if found[name]
        }
        first["ep"] = min(first["ep"], found["prefill"])
        first["attention_dp"] = min(first["attention_dp"], first["tp"] or first["ep"])
        degrees, _ = _degrees(first, found["prefill"], make, "prefill")
        prefill, prefill_copies = make(degrees), found["prefill"] // degrees.devices
        workers = decode
    degrees, chosen = _degrees(own, workers, make, "num_workers")
    workers = workers or degrees.devices
    deployment = make(degrees)
    if chosen:
        notes.append(
            f"tp {degrees.tp}: the fewest devices that hold the model and a request; --tp says "
            "otherwise"
        )
    if plan.cluster is None and degrees.devices > 1:
        notes.append(
            f"devices of a copy exchange over {plan.network.name}: --cluster or --network says "
            "otherwise"
        )
    if weights != experts:
        own["experts_dtype"] = experts
    said = {
        "device": device.name,
        "cluster": plan.cluster.name if plan.cluster else None,
        "server": server.name,
        "dtype": weights,
        "experts_dtype": experts,
        "kv_dtype": cache,
        "num_workers": workers + (found["prefill"] or 0),
        **{name: getattr(degrees, name) for name in _DEGREES},
        "copies": workers // degrees.devices,
    }
    if prefill:
        said |= {"prefill": found["prefill"], "decode": workers}
        said |= {name: getattr(prefill.prices.degrees, name[8:]) for name in OF_PREFILL}
    rates = rates_of(device, found["price"], found["prices"], found["power"])
    return Asked(
        spec.net, plan, server, said, deployment, workers // degrees.devices, rates, prefill,
        prefill_copies, tuple(notes), alone=spec.alone,
    )  # fmt: skip


#: Schemes of all-reduces by what servers call their kernels.
_REDUCES = {"barriers": "custom_all_reduce", "pushed": "pushed_all_reduce", "": "auto"}


def kernels_of(
    device: Device,
    server: Server,
    weights: str,
    experts: str,
    cache: str,
    *,
    attention: str = "",
    version: str = "",
) -> Kernels:
    """Return whose kernels run in numbers of these types; raises a PaleoError where none do.

    `attention` is the type of products before and behind attention where it is another. Kernels are
    those of a `version` where its numbers are known, else of the newest.
    """
    mistakes = Mistakes()
    for name in (weights, experts):
        if name not in QUANTIZATIONS:
            mistakes.add(
                f"dtype: language models are not served in {name}; there are: "
                f"{', '.join(QUANTIZATIONS)}"
            )
    mistakes.raise_as(PaleoError)
    mistakes.check(server.check_formats, weights, cache)
    for name in (weights, experts):
        mistakes.check(check_peak, device, name)
    mistakes.raise_as(PaleoError)
    backend = BACKENDS[server.backend] if server.backend else None
    is_fused = device.architecture in server.fused_on
    reduces = "pushed" if is_fused else server.all_reduce_of(version)
    return Kernels(
        backend, weights, experts, CACHES[cache], _REDUCES[reduces], is_fused,
        attention if attention != weights else "", server.spread_experts or ALL_GATHER,
        version=numbers_of(version),
    )  # fmt: skip


def plain_cache(weights: str) -> str:
    """Return in what a cache is kept where nobody says."""
    return "fp16" if weights == "fp16" else "bf16"


def check_peak(device: Device, name: str) -> None:
    """Raise a PaleoError where a device does not multiply such numbers."""
    device.peak(QUANTIZATIONS[name].dtype)


def _degrees(
    own: Mapping[str, Any], devices: int | None, make: Any, name: str
) -> tuple[Degrees, bool]:
    """Return how so many devices share copies, and whether tp was chosen; raises SettingError.

    Where nobody says how many there are, they are those of one copy.
    """
    pp, cp, ep, groups = (own[key] for key in _DEGREES[1:])
    if own["tp"] is None and ep == groups == 1:
        one = Degrees(1, pp, cp=cp)
        return _smallest(devices or one.devices, one, make, name), (devices or 0) > one.devices
    tp = own["tp"] or max(ep, groups)
    degrees = checked_degrees(tp, pp, ep, groups, cp)
    _check_devices(devices or degrees.devices, degrees, name)
    return degrees, False


def _check_devices(devices: int, degrees: Degrees, name: str) -> None:
    """Raise SettingError where so many devices are no whole copies."""
    if devices % degrees.devices:
        ways = [f"{key} {getattr(degrees, key)}" for key in ("tp", "pp", "cp")]
        said = " x ".join([ways[0], *(way for way in ways[1:] if not way.endswith(" 1"))])
        raise SettingError(f"{name}: {devices} devices do not divide by {said}")


def checked_degrees(tp: int, pp: int, ep: int, groups: int, cp: int = 1) -> Degrees:
    """Return how devices share a copy; raises SettingError where degrees do not go together."""
    if tp % groups:
        raise SettingError(f"attention_dp: {groups} groups do not divide tp {tp}")
    if tp % ep:
        raise SettingError(f"ep: {ep} devices of experts do not divide tp {tp}")
    return Degrees(tp, pp, ep, groups, cp)


def _smallest(devices: int, one: Degrees, make: Any, name: str) -> Degrees:
    """Return the fewest devices, a power of two, that hold the model, or all of them."""
    _check_devices(devices, one, name)
    tp, found = 1, one
    while devices % (tp * one.devices) == 0 and tp <= _MOST_DEVICES:
        degrees = replace(one, tp=tp)
        try:
            deployment: Deployment = make(degrees)
        except SettingError:
            if tp == 1:
                raise
            break
        found = degrees
        if deployment.memory.most_requests(deployment.length) >= 1:
            break
        tp *= 2
    return found


def _deployment(
    spec: NetSpec,
    plan: Plan,
    kernels: Kernels,
    degrees: Degrees,
    *,
    drafts: Any,
    **settings: Any,
) -> Deployment:
    prices = prices_of(spec, plan, kernels, degrees)
    host = FRAMEWORKS["pytorch"].host_of(plan.device)
    return Deployment(prices, host=host, drafts=drafts(degrees), **settings)


def prices_of(spec: NetSpec, plan: Plan, kernels: Kernels, degrees: Degrees) -> StepPrices:
    """Return the seconds of steps of a copy; raises a PaleoError where it does not divide so."""
    program = cached_for_net(program_of, spec, degrees.of_attention)
    for experts, _ in program.experts:
        if experts.experts % degrees.ep:
            raise SettingError(f"ep: {experts.experts} experts do not divide {degrees.ep} ways")
    if degrees.ep > 1 and not program.experts:
        raise SettingError(f"ep: {spec.name} has no experts")
    cluster = plan.reached if degrees.devices > 1 else None
    if cluster is not None:
        cluster.group(degrees.devices, 1)
    return StepPrices(program, plan.device, plan.cost_model, kernels, degrees, cluster)


def scheduling_of(deployment: Deployment, batching: str, most: int | None) -> Scheduling:
    """Return how its server puts requests together, `most` at once."""
    server, limits = deployment.server, deployment.limits
    groups = deployment.prices.degrees.attention_dp
    budget = deployment.token_budget * groups
    reserve = {"prompt": 0.0, "part": server.answers, "whole": 1.0}[server.reserve]
    return Scheduling(
        batching=batching, token_budget=budget,
        max_requests=min(most or limits.requests * groups, budget),
        chunked=server.chunks, mixed=server.mixes, decode_first=server.decodes_first,
        block=server.block, watermark=server.watermark, reserve=reserve,
    )  # fmt: skip


def moving_of(plan: Plan, prefill: Deployment) -> Callable[[Quantity], Quantity]:
    """Return the seconds in which caches of so many tokens move to devices that decode.

    Each device of a request's group sends its part, over links of its own.
    """
    group = plan.reached.group(2, prefill.prices.degrees.devices)
    bandwidth = float(group.link_bandwidth)
    return lambda tokens: prefill.memory.of_request(tokens) / bandwidth


def program_of(spec: NetSpec, tp: int) -> Program:
    """Return what one of `tp` devices computes of a net of one position a sample."""
    short = cached_for_net(_shortened, spec) or Shortened(spec)
    return read_program(divided(with_repeated_heads(short.net, tp), tp, norms=True), short.like)


def _shortened(spec: NetSpec) -> Shortened | None:
    """Return a net without most of its equal blocks, None if that is the net itself."""
    short = shortened(spec)
    return short if short.like else None


def drafts_of(found: Mapping[str, Any], plan: Plan, kernels: Kernels, degrees: Degrees) -> Drafts:
    """Return what drafts, on the same devices."""
    if not found["drafts"]:
        return NO_DRAFTS
    prices = None
    if found["draft"] is not None:
        model = find_model(found["draft"], None)
        program = cached_for_net(program_of, model.alone, degrees.of_attention)
        cluster = plan.reached if degrees.devices > 1 else None
        prices = StepPrices(program, plan.device, plan.cost_model, kernels, degrees, cluster)
    return Drafts(found["drafts"], found["acceptance"], prices)


def what_would_fit(one: Asked, deployment: Deployment, length: int) -> Iterator[Missing]:
    """Yield what would make a model and one request fit into these servers, each by itself."""
    prices = deployment.prices
    own, most = "tp", 64
    if deployment is one.prefill:
        own, most = "prefill_tp", prices.degrees.tp * one.prefill_copies
    longest = deployment.memory.longest() if deployment.memory.room > 0 else 0
    if longest:
        yield Missing("prompt", f"{longest:,} tokens with its answer")
    for name in ("fp8", "int4", "nvfp4"):
        try:
            one.server.check_formats(name, one.settings["kv_dtype"])
            check_peak(one.plan.device, name)
        except PaleoError:
            continue
        smaller = replace(prices.kernels, weights=name, experts=name, attention="")
        if _fits(one, smaller, prices.degrees, length):
            yield Missing("dtype", name)
            break
    for tp in itertools.takewhile(
        lambda n: n <= most, (prices.degrees.tp * 2**i for i in range(1, 7))
    ):
        degrees = replace(prices.degrees, tp=tp)
        try:
            if _fits(one, prices.kernels, degrees, length):
                yield Missing(own, str(tp))
                break
        except SettingError:
            break


def _fits(one: Asked, kernels: Kernels, degrees: Degrees, length: int) -> bool:
    """Tell whether a model would fit so; raises SettingError where it does not divide."""
    assert one.alone is not None
    program = cached_for_net(program_of, one.alone, degrees.of_attention)
    prices = StepPrices(program, one.plan.device, one.plan.cost_model, kernels, degrees, None)
    deployment = Deployment(
        prices, one.server, length=length, token_budget=one.deployment.token_budget
    )
    return deployment.memory.most_requests(length) >= 1
