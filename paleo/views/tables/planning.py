"""The plans that a search found: a row for each, the best first, or those of the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paleo.studies.planning import FoundPlan, Planning
from paleo.views.answers.base import band_said, device_named, percent, rounded
from paleo.views.charts.numbers import counted
from paleo.views.charts.settings import joined
from paleo.views.table import Column, Table, plain

#: What parts of a step are called in words, where that is not their name.
PARTS = {
    "tensor_parallel": "tensor messages",
    "context_parallel": "position messages",
    "expert_parallel": "expert messages",
    "pipeline_parallel": "stage messages",
    "parameters_gathered": "gathered weights",
    "data_parallel": "gradient exchange",
    "bubble": "pipeline bubble",
    "weight_casts": "casts of weights",
    "forward": "forward pass",
    "backward": "backward pass",
    "first_token": "first token",
    "other_tokens": "other tokens",
}
#: A plan behind by less than this share is as good.
SAME = 0.0005
#: Below this share a tenth of a percent is said.
_FINE = 0.1
_SETTINGS = (
    *("num_workers", "tp", "pp", "dp", "cp", "ep", "micro_batch", "batch_size", "global_batch"),
    *("accumulate", "zero", "interleave", "schedule", "sequence_parallel", "recompute", "scheme"),
    *("attention_dp", "prefill", "kv_dtype", "server", "concurrency", "prompt", "output"),
    *("hit_rate", "token_budget", "max_requests"),
)
#: What is said of a usual value where another has to be told from it.
_USUAL = {
    "interleave": "1 chunk a stage",
    "schedule": "1f1b",
    "cp": "cp 1",
    "ep": "ep 1",
    "sequence_parallel": "positions not divided",
    "accumulate": "summed up once",
    "recompute": "no recomputation",
    "attention_dp": "attention of the same requests",
    "prefill": "prompts beside answers",
}
_WHERE = ("net", "device", "network", "cluster", "cost_model", "dtype")


def settings_said(plan: FoundPlan) -> dict[str, str]:
    """Return the settings of a plan in words, by name, in the order in which they are said."""
    own = plan.settings
    place = plan.scenario.plan
    on = device_named(plan.place)
    said = {"place": on, "dtype": own.get("dtype", place.dtype)}
    if plan.serves_requests:
        return said | _deployment_said(plan)
    if not plan.question.serves:
        said["num_workers"] = counted(plan.workers, "device")
    if "tp" not in own:
        batch = f"batch {own['batch_size']:,}"
        said["batch_size"] = batch if plan.question.serves else f"{batch} each"
        said["accumulate"] = _unless(own.get("accumulate"), 1, "summed up {} times")
        said["recompute"] = _recomputed(own.get("recompute", "none"), usual="")
        return said
    return said | {
        "tp": f"tp {own['tp']}",
        "pp": f"pp {own['pp']}",
        "dp": f"dp {own['dp']}",
        "cp": _unless(own["cp"], 1, "cp {}"),
        "ep": _unless(own["ep"], 1, "ep {}"),
        "global_batch": counted(own["global_batch"], "sample"),
        "micro_batch": f"micro-batch {own['micro_batch']}",
        "zero": f"ZeRO {own['zero']}",
        "interleave": _unless(own["interleave"], 1, "{} chunks a stage"),
        "schedule": _unless(own["schedule"], "1f1b", "{}"),
        "sequence_parallel": "positions divided, too"
        if own["sequence_parallel"] and own["tp"] > 1
        else "",
        "recompute": _recomputed(own["recompute"], usual="no recomputation"),
    }


def _deployment_said(plan: FoundPlan) -> dict[str, str]:
    """Return the settings of a deployment in words."""
    own = plan.settings
    plain = own["dtype"] if own["dtype"] in ("bf16", "fp16") else "bf16"
    return {
        "num_workers": counted(plan.workers, "device"),
        "tp": f"tp {own['tp']}",
        "pp": _unless(own["pp"], 1, "pp {}"),
        "ep": _unless(own["ep"], 1, "ep {}"),
        "attention_dp": _unless(own["attention_dp"], 1, "attention of {} groups"),
        "prefill": _unless(own["prefill"], 0, "{} for prompts"),
        "kv_dtype": _unless(own["kv_dtype"], plain, "cache in {}"),
        "hit_rate": _unless(own.get("hit_rate"), 0, "{:.0%} of prompts cached"),
        "token_budget": _unless(own.get("token_budget"), 0, "{:,} tokens a step"),
        "max_requests": _unless(own.get("max_requests"), 0, "up to {:,} requests"),
        "concurrency": counted(own["concurrency"], "request"),
    }


def _unless(value: Any, usual: Any, text: str) -> str:
    return "" if value in (None, usual) else text.format(value)


def _recomputed(mode: str, usual: str) -> str:
    return usual if mode == "none" else f"{mode} recomputation"


def labels(plans: Sequence[FoundPlan]) -> tuple[list[str], str]:
    """Return a name for each plan, of settings that differ, and what all have."""
    every = [settings_said(plan) for plan in plans]
    differing = [name for name in every[0] if len({said.get(name) for said in every}) > 1]
    differing = differing or [
        name for name in ("num_workers", "tp", "batch_size") if every[0].get(name)
    ]
    names = []
    for own in every:
        said = {name: text for name, text in own.items() if name in differing}
        usual = (_USUAL.get(name, "") for name in said)  # of what is not said of one that has it
        names.append(joined(said.values()) or joined(usual))
    return names, joined(text for name, text in every[0].items() if name not in differing)


def difference(plan: FoundPlan, other: FoundPlan) -> str:
    """Return the settings of a plan in which it differs from another, but for what follows."""
    own, before = settings_said(plan), settings_said(other)
    return joined(
        text or _USUAL.get(name, "")
        for name, text in own.items()
        if text != before.get(name) and name != "dp"
    )


def planning_tables(found: Planning, *, front: bool = False) -> list[Table]:
    """Return the table of the best plans, or of the Pareto front."""
    plans = found.front if front else found.plans
    serves, best = found.question.serves, found.best
    names, common = labels(plans)
    money = found.question.currency
    has_tokens = best.tokens is not None
    things = "tokens" if has_tokens else "samples"
    is_whole = found.question.is_whole
    digits = best.scenario.plan.digits
    behind = {"time": "longer", "cost": "dearer", "energy": "more\nenergy"}
    title = behind.get(found.question.objective, "slower")
    time = "latency_s" if serves else "step_s"
    first, others = ("first\ntoken", "other\ntokens") if best.serves_requests else ("", "")
    columns = (
        *plain(*_WHERE, *_SETTINGS),
        Column("label", "plan", for_people=True),
        Column("behind", "" if front else title, for_people=True, right=True),
        Column(time, time.removesuffix("_s"), "s", digits=digits, least_is_best=True),
        Column("ttft_s", first, "s", digits=digits, least_is_best=True),
        Column("tpot_s", others, "s", digits=digits, least_is_best=True),
        *plain("requests_per_s"),
        *plain("samples_per_s", "tokens_per_s", "samples_per_s_per_device"),
        *plain("tokens_per_s_per_device"),
        Column("rate", f"{things}\n/s/device", for_people=True, right=True),
        Column(
            "training_time_s",
            "training" if is_whole else "",
            "duration",
            digits=digits,
            least_is_best=True,
        ),
        Column("cost", f"cost\n{money}" if money else "", digits=digits, least_is_best=True),
        Column("energy_j", "energy", "J", digits=digits, least_is_best=True, wide=True),
        Column("memory_bytes", "memory", "bytes", digits=3, least_is_best=True),
        *plain("memory_capacity_bytes", "exposed_communication_s"),
        Column("why", "" if front or serves else "most of it", for_people=True),
    )
    rows = [_row(found, plan, name) for plan, name in zip(plans, names, strict=True)]
    heading = "no other is better in time, cost and memory" if front else "best plans"
    return [
        Table(
            f"{heading} of {best.scenario.net.name}: {common}".rstrip(": "),
            columns,
            rows,
            footnotes=list(_footnotes(found, front)),
            notes=found.notes,
        )
    ]


def _row(found: Planning, plan: FoundPlan, name: str) -> Mapping[str, Any]:
    values = plan.to_dict()
    values.pop("parts")
    behind = plan.score / found.best.score - 1
    return {
        **values,
        "label": name,
        "rate": rounded(plan.rate(), plan.scenario.plan.digits),
        "behind": "" if plan is found.best else share_said(behind),
        "why": "" if behind < SAME else part_said(plan.grown(found.best)[0]),
    }


def share_said(share: float) -> str:
    """Return by which share a plan is behind: to a tenth of a percent where that says most."""
    return f"{100 * share:.1f} %" if share < _FINE else percent(share)


def part_said(part: str) -> str:
    """Return what a part of a step is called in words."""
    return PARTS.get(part, part.replace("_", " "))


def _footnotes(found: Planning, front: bool) -> Iterator[str]:
    best = found.best
    if not front:
        yield f"the best as options: {best.options}"
    of = found.cost_of
    has_cost = any(plan.cost() is not None for plan in found.plans)
    if has_cost:
        yield f"cost: of {of}"
    yield (
        f"{counted(found.considered, 'plan')} considered: {found.possible:,} can be, "
        f"{found.fitting:,} fit, {found.feasible:,} keep to all limits"
    )
    yield band_said("times", best.band)
