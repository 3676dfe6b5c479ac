"""Deployments as arrays: every combination of degrees, number types, loads and lengths at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from paleo.core.errors import Mistakes, PaleoError
from paleo.core.frozen import dataclass
from paleo.core.quantity import Array, np
from paleo.net.load import NetLike
from paleo.step.declarations import check_names, declared, found_setting
from paleo.step.plan import Plan
from paleo.step.scenario import SimulateSettings, asked
from paleo.step.settings import found_settings
from paleo.studies.combinations import Combinations
from paleo.studies.serving.evaluation import AXES, FREE, Evaluation
from paleo.studies.serving.loads import CONCURRENCY
from paleo.studies.serving.placing import Model, find_model
from paleo.studies.serving.settings import OF_OTHERS, InferSettings
from paleo.studies.training import HOUR, Rates, rates_of

#: Settings of loads that no closed form is of, and of what is no deployment.
_NOT = ("rate", "cv", "prompts", "length_cv", "seed", "decode", "ttft", "tpot", *OF_OTHERS)
#: What each scenario is of.
PLACES = ("device", "cluster", "network", "cost_model")
_MILLION = 1e6


@dataclass(frozen=True, eq=False)
class Deployments(Combinations):
    """Every deployment that was asked for, in the order of the last axis quickest.

    `settings` are by name what each has, `place` that of its plan in `plans`. `columns` are arrays
    of what follows, in SI units: `ttft_s` and `tpot_s` (means), `latency_s`, `requests_per_s` and
    `tokens_per_s` of all devices, `memory_bytes` of a device (of those that decode), `running`
    requests, `max_concurrency` and whether servers `preempts` requests, which makes the times too
    good. NaN, and 0, of deployments that cannot be, or do not fit. `valid` tells which can be;
    `reasons` are texts of why others cannot, `said` all of these texts after an empty one, `why`
    the place of each deployment's in them.
    """

    net: str
    plans: tuple[Plan, ...] = field(repr=False)
    rates: tuple[Rates, ...] = field(repr=False)
    settings: Mapping[str, Array]
    columns: Mapping[str, Array] = field(repr=False)
    why: Array = field(repr=False)
    said: tuple[str, ...] = field(repr=False)

    @property
    def fits(self) -> Array:
        """Which deployments can be and have room for a request."""
        found: Array = self.valid & (self["max_concurrency"] > 0)
        return found

    @property
    def tokens_per_s_per_gpu(self) -> Array:
        """Tokens of answers a second of a device."""
        found: Array = self["tokens_per_s"] / self["num_workers"]
        return found

    @property
    def cost_per_million(self) -> Array:
        """Money for a million tokens of answers, prompts included; NaN where no price is known."""
        hourly = [own.price.amount if own.price else np.nan for own in self.rates]
        price = np.array(hourly)[self["place"]]
        found: Array = _MILLION * price / HOUR / self.tokens_per_s_per_gpu
        return found

    def best(self, count: int = 1) -> list[int]:
        """Return the places of those that fit with most tokens a second of a device, best first."""
        rate = np.where(self.fits, self.tokens_per_s_per_gpu, -np.inf)
        order = np.argsort(-rate, kind="stable")[:count]
        return [int(i) for i in order if self.fits[i]]

    def at(self, place: int) -> dict[str, Any]:
        """Return the settings of one deployment, as `paleo.infer` takes them."""
        own = {name: values[place].item() for name, values in self.settings.items()}
        plan = self.plans[own.pop("place")]
        where: dict[str, Any] = {"device": plan.device.name}
        if plan.cluster is not None:
            where = {"cluster": plan.cluster.name}
        own["workers"] = own.pop("num_workers")
        return where | {name: value for name, value in own.items() if value != 0}


def deployments(net: NetLike, **settings: Any) -> Deployments:
    """Return all deployments of a language model with these settings, as arrays.

    Settings are those of `paleo.infer`, of closed loads of equal requests. Devices, clusters,
    `workers`, `dtype`, `kv_dtype`, `tp`, `pp`, `ep`, `attention_dp`, `prefill`, `prefill_tp`,
    `prefill_ep`, `prefill_attention_dp`, `token_budget`, `max_requests`, `concurrency`, `prompt`,
    `output` and `hit_rate` may be one value or several: there is a deployment for each combination.
    `workers` is 1 unless given; where `tp` is not, it is `ep` or `attention_dp`. `prefill` 0 is the
    same devices for prompts and answers.

    Times are closed forms (paleo.studies.serving.steady), of as many requests as `paleo.infer`
    simulates. Raises a PaleoError with every mistake; deployments that cannot be are no error: see
    `Deployments`.

    >>> found = paleo.deployments("llama3_8b", device="H100_SXM", concurrency=[1, 8], prompt=512)
    >>> len(found), bool(found.fits.all()), bool(found["tpot_s"][0] < found["tpot_s"][1])
    (2, True, True)
    """
    mistakes = Mistakes()
    check_names(declared(InferSettings), settings, mistakes)
    given = {name: value for name, value in settings.items() if value is not None}
    model = mistakes.check(find_model, net, given.get("importing"))
    axes = found_axes(given, mistakes)
    for name in _NOT:
        if name in given:
            mistakes.add(f"{name}: deployments as arrays are of closed loads of equal requests")
    alone = {name: value for name, value in given.items() if name not in axes}
    found = found_settings(InferSettings, alone, mistakes, base=SimulateSettings)
    mistakes.raise_as(PaleoError)
    assert model is not None
    where = {name: given[name] for name in PLACES if name in given}
    scenarios, _ = asked(model.net, SimulateSettings, {**where, "workers": 1}, mistakes)
    mistakes.raise_as(PaleoError)
    return evaluated(model, [each.plan for each in scenarios], axes, found)


def found_axes(given: Mapping[str, Any], mistakes: Mistakes) -> dict[str, list[Any]]:
    """Return the values of every axis, checked; what is wrong is noted."""
    known, axes = declared(InferSettings), {}
    for name in AXES:
        value = given.get(name, CONCURRENCY if name == "concurrency" else None)
        several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        axes[name] = [
            mistakes.check(_checked, known[name], each) for each in (value if several else [value])
        ]
        if several and not len(value):
            mistakes.add(f"{name}: expected one value at least")
    return axes


def _checked(setting: Any, value: Any) -> Any:
    """Return a value of an axis; none is what the setting stands for."""
    if value is None:
        return FREE.get(setting.name, setting.default)
    if setting.name == "prefill" and value == 0:
        return 0
    found = found_setting(setting, value)
    return found[0] if isinstance(found, list | tuple) else found


def evaluated(
    model: Model, plans: Sequence[Plan], axes: Mapping[str, list[Any]], found: Mapping[str, Any]
) -> Deployments:
    """Return all deployments of a model on the devices of some plans."""
    evaluation = Evaluation(model, plans, axes, found)
    evaluation.all()
    rates = [
        rates_of(each.device, found["price"], found["prices"], found["power"]) for each in plans
    ]
    return Deployments(
        model.net.name, tuple(plans), tuple(rates), evaluation.settings(), evaluation.columns(),
        evaluation.why.ravel(), tuple(evaluation.said),
    )  # fmt: skip
