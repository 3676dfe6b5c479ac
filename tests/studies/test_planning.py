"""The best plan of all: the same as one by one, what it costs, and what is said of the others."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.cluster.prices import Price
from paleo.costs.error_bands import Band
from paleo.studies.datasets import Schedule
from paleo.studies.planning import Planning
from paleo.studies.planning.candidates import Candidates
from paleo.studies.planning.question import Limit, Question
from paleo.studies.planning.search import Search
from paleo.studies.planning.sensitivity import changes, sureness
from paleo.studies.planning.space import mesh_axes, worker_counts
from paleo.studies.training import Rates

IMAGENET = 1_281_167
HOUR = 3600


def test_the_best_is_that_of_every_plan_one_by_one() -> None:
    """On a grid that is small enough to simulate each plan by itself."""
    same: dict[str, Any] = {"cluster": "dgx_a100", "workers": 8, "global_batch": 64}
    same |= {"dtype": "bf16", "optimizer": "adamw"}
    axes: dict[str, Any] = {"tp": [1, 2], "pp": [1, 2], "micro_batch": [4, 8], "zero": [0, 1]}
    found = paleo.best_plans(
        "gpt2", 40, **same, **axes, interleave=1, recompute="none", sequence_parallel=False
    )
    one_by_one: dict[Any, dict[str, Any]] = {}
    for values in itertools.product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        (row,) = paleo.simulate("gpt2", **same, **settings, parallel="mesh").runs[0].rows
        one_by_one[values] = row.to_dict()
    best = min(one_by_one, key=lambda values: one_by_one[values]["step_s"])
    assert tuple(found.best.settings[name] for name in axes) == best
    assert found.considered == found.possible == len(one_by_one) == 16
    for plan in found.plans:
        one = one_by_one[tuple(plan.settings[name] for name in axes)]
        own = plan.to_dict()
        assert own["step_s"] == pytest.approx(one["step_s"], rel=1e-12)
        assert own["step_s_high"] == pytest.approx(one["step_s_high"], rel=1e-9)
        assert own["memory_bytes"] == one["memory_bytes"]
        assert own["tokens_per_s"] == pytest.approx(one["tokens_per_s"], rel=1e-12)
        assert own["dp"] == one["dp"]
    scores = [plan.seconds for plan in found.plans]
    assert scores == sorted(scores)


def trained(**settings: Any) -> Planning:
    """Return plans of a training whose arithmetic is easily done again."""
    return paleo.best_plans(
        "alex_v2",
        100,
        cluster="dgx_a100",
        epochs=90,
        dataset="imagenet",
        price="2 USD/h",
        power="400 W",
        workers=[1, 8, 16],
        batch_size=[64, 256],
        **settings,
    )


def test_a_budget_buys_the_quickest_training_that_it_pays() -> None:
    rows = paleo.metrics(
        "alex_v2",
        cluster="dgx_a100",
        epochs=90,
        dataset="imagenet",
        price="2 USD/h",
        power="400 W",
        workers=[1, 8, 16],
        batch_size=[64, 256],
    )
    costs = sorted(row.training_cost or 0.0 for row in rows)
    budget = (costs[2] + costs[3]) / 2  # three of six plans
    affordable = [row for row in rows if (row.training_cost or 0.0) <= budget]
    quickest = min(affordable, key=lambda row: row.training_time or 0.0)
    found = trained(budget=budget)
    assert (found.feasible, found.considered) == (3, 6)
    assert found.best.workers == quickest.workers
    assert found.best.settings["batch_size"] == quickest.worker_batch_size
    assert found.best.time() == pytest.approx(quickest.training_time)
    assert found.best.cost() == pytest.approx(quickest.training_cost)


def test_what_a_training_takes_follows_from_its_steps() -> None:
    found = trained(objective="cost")
    for plan in found.plans:
        own = plan.settings
        samples = own["num_workers"] * own["batch_size"]
        seconds = 90 * IMAGENET / samples * plan.seconds
        values = plan.to_dict()
        assert values["global_batch"] == samples
        assert values["training_time_s"] == pytest.approx(seconds)
        assert values["cost"] == pytest.approx(seconds / HOUR * own["num_workers"] * 2)
        assert values["energy_j"] == pytest.approx(seconds * own["num_workers"] * 400)
        assert values["samples_per_s"] == pytest.approx(samples / plan.seconds)
    costs = [plan.cost() or 0.0 for plan in found.plans]
    assert costs == sorted(costs)
    assert found.to_dict()["cost_of"] == "training"


def test_the_most_devices_and_the_longest_time_are_kept() -> None:
    slow = trained()
    times = {plan.workers: plan.time() for plan in slow.plans[::-1]}  # the quickest of each
    found = trained(max_devices=8)
    assert {plan.workers for plan in found.plans} == {1, 8}
    found = trained(deadline=(times[1] + times[8]) / 2, objective="cost")
    assert all(plan.time() <= (times[1] + times[8]) / 2 for plan in found.plans)
    assert 1 not in {plan.workers for plan in found.plans}


def test_the_cheapest_way_to_serve_is_that_of_metrics_within_the_latency() -> None:
    sizes = [1, 4, 16, 64, 256]
    rows = paleo.metrics("resnet50", device=["T4", "L4", "H100_SXM"], batch_size=sizes)
    quick = [row for row in rows if row.inference <= 0.020]
    best = min(quick, key=lambda row: row.inference_cost_per_million or 0.0)
    found = paleo.best_plans(
        "resnet50",
        device=["T4", "L4", "H100_SXM"],
        batch_size=sizes,
        objective="cost",
        latency="20 ms",
    )
    assert found.best.scenario.plan.device.name == best.device
    assert found.best.batch == best.worker_batch_size
    assert found.best.seconds == pytest.approx(best.inference)
    assert found.best.cost() == pytest.approx(best.inference_cost_per_million)
    assert best.inference_memory is not None
    assert found.best.memory == best.inference_memory.peak
    assert (found.considered, found.feasible) == (15, len(quick))
    assert "latency_s" in found.best.to_dict()


def test_a_batch_of_all_devices_is_divided_in_turns() -> None:
    found = paleo.best_plans(
        "alex_v2", 20, cluster="dgx_a100", workers=8, global_batch=1024, accumulate=[1, 2, 3]
    )
    assert found.refused == {"global_batch: the samples do not divide among devices and turns": 1}
    for plan in found.plans:
        turns = plan.settings["accumulate"]
        step = paleo.simulate(
            "alex_v2",
            cluster="dgx_a100",
            workers=8,
            batch_size=1024,
            scaling="strong",
            accumulate=turns,
        )
        (row,) = step.runs[0].rows
        assert plan.batch == 1024
        assert plan.settings["batch_size"] == 1024 // 8 // turns
        assert plan.seconds == pytest.approx(row.total(row.best_scheme))


def test_a_cluster_that_has_not_so_many_devices_leaves_these_to_others() -> None:
    found = paleo.best_plans(
        "lenet5", cluster=["aws_g3", "dgx_a100"], workers=[4, 8], batch_size=[32, 64]
    )
    assert (found.considered, found.possible) == (8, 6)
    ((reason, times),) = found.refused.items()
    assert reason.startswith("num_workers: 8 devices, but cluster aws_g3 has 4 at most")
    assert times == 2


def test_the_front_is_what_no_plan_beats_in_all() -> None:
    found = trained()
    every = [(plan.time(), plan.cost() or 0.0, plan.memory) for plan in found.plans]

    def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    expected = {own for own in every if not any(beats(other, own) for other in every)}
    front = [(plan.time(), plan.cost() or 0.0, plan.memory) for plan in found.front]
    assert set(front) == expected
    assert front == sorted(front)


BAND = Band(0.8, 1.25, 100, 0.8)
RATES = Rates(Price(2.0, "USD"), 300.0, ())


def made(
    *plans: tuple[float, ...], device: str = "K80", band: Band | None = BAND, price: float = 2.0
) -> Candidates:
    """Return plans on 1, 2, ... devices, of these seconds of computation and communication.

    A third number is seconds of computation behind which communication hides.
    """
    own, sent, hiding = np.array([(*plan, 0.0)[:3] for plan in plans]).T

    def anew(bandwidth: float, places: Any) -> Any:
        return (own + np.maximum(sent / bandwidth - hiding, 0.0))[places]

    seconds = anew(1.0, slice(None))
    ends = (None, None) if band is None else (band.low * seconds, band.high * seconds)
    count = len(plans)
    return Candidates(
        paleo.scenario("nin", device=device),
        RATES._replace(price=Price(price, "USD")),
        {"num_workers": np.arange(1, count + 1)},
        seconds,
        {"computation": own, "exchange": seconds - own},
        seconds - own,
        ends,
        band,
        np.full(count, 10),
        np.full(count, 2**30),
        None,
        count,
        anew=anew,
    )


def searched(*every: Candidates, objective: str = "time", limits: tuple[Limit, ...] = ()) -> Search:
    return Search(Question(objective, limits, Schedule(), False, "USD"), every)


def test_links_that_are_slower_let_a_plan_with_less_communication_be_best() -> None:
    """1 + 1 / b seconds against 2 + 1 / 2 b: the second is less where the bandwidth is half."""
    search = searched(made((1.0, 1.0), (2.0, 0.5)))
    found = {(each.what, each.end): each for each in changes(search, 0)}
    slower = found["bandwidth", 0.25]
    assert slower.factor == pytest.approx(0.5, rel=4e-3)
    assert slower.plan is not None
    assert slower.plan.workers == 2
    assert found["bandwidth", 4.0].factor is None
    # c + 1 against 2 c + 0.5: the second is less where c is below 0.5, which no band reaches.
    assert found["computation", 0.8].factor is None
    assert ("price", 4.0) not in found


def test_messages_that_hide_show_where_links_are_slower() -> None:
    """1 second, and 0.9 of messages that hide behind 0.9 of it, against 1.3 with next to none.

    With b of the bandwidth the first take 1 + 0.9 / b - 0.9, which is 1.3 where b is 0.75. If
    computation takes f times as long it is f + max(0.9 - 0.9 f, 0) against 1.3 f: never more.
    """
    search = searched(made((1.0, 0.9, 0.9), (1.3, 1e-9)))
    found = {(each.what, each.end): each for each in changes(search, 0)}
    assert found["bandwidth", 0.25].factor == pytest.approx(0.75, rel=4e-3)
    assert found["bandwidth", 4.0].factor is None
    assert found["computation", BAND.low].factor is None


def test_messages_that_quicker_links_hide_make_a_plan_best() -> None:
    """1 + max(2 / b - 1, 0) against 1.4: the first is less where b is above 2 / 1.4."""
    search = searched(made((1.4, 0.0), (1.0, 2.0, 1.0)))
    quicker = next(each for each in changes(search, 0) if (each.what, each.end) == ("bandwidth", 4))
    assert quicker.factor == pytest.approx(2 / 1.4, rel=4e-3)
    assert quicker.plan is not None
    assert quicker.plan.workers == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "cluster", "settings"),
    [
        (
            *("vgg16", "aws_p3_16xlarge"),
            {"workers": [1, 8, 16], "global_batch": 1024, "accumulate": 1},
        ),
        (
            *("gpt2_xl", "dgx_a100"),
            {"workers": 16, "global_batch": 64, "dtype": "bf16", "tp": [1, 2], "pp": [1, 2]}
            | {"micro_batch": [1, 2], "zero": [0, 3], "interleave": 1, "recompute": "none"},
        ),
    ],
)
def test_a_bandwidth_from_which_on_another_plan_is_best_is_right(
    net: str, cluster: str, settings: dict[str, Any]
) -> None:
    """On clusters whose links have so much bandwidth, and a bit more, all plans say the same."""
    found = paleo.best_plans(net, cluster=cluster, **settings)
    (slower,) = (each for each in found.changes if (each.what, each.end) == ("bandwidth", 0.25))
    assert slower.factor is not None
    assert slower.plan is not None
    for factor, expected in ((slower.factor, slower.plan), (slower.factor**0.98, found.best)):
        other = paleo.find_cluster(cluster).with_networks(
            lambda network, factor=factor: network.reaching(factor)  # type: ignore[misc]
        )
        assert paleo.best_plans(net, cluster=other, **settings).best.settings == expected.settings


def test_a_dearer_or_slower_device_gives_way_to_another() -> None:
    """An hour at 2 dollars for 1 second, against 1 dollar for 3: the first until it costs 3."""
    search = searched(made((1.0, 0.0)), made((3.0, 0.0), device="K40", price=1.0), objective="cost")
    found = {(each.what, each.end): each for each in changes(search, 0)}
    price = found["price", 4.0]
    assert price.factor == pytest.approx(1.5, rel=1e-3)
    assert price.plan is not None
    assert price.plan.place == "K40"
    assert found["device", 1.25].factor is None  # the band does not reach 1.5


def test_a_limit_that_a_factor_breaks_changes_the_best() -> None:
    limit = Limit("deadline", 1.2e5, lambda plans: 1e5 * plans.seconds)
    search = searched(made((1.0, 0.1), (1.11, 0.0)), limits=(limit,))
    slower = next(
        each for each in changes(search, 0) if each.what == "computation" and each.end == BAND.high
    )
    assert slower.factor is not None
    # Where computation takes 1.1 times as long, 1.1 + 0.1 seconds are the limit, and 1.221 above.
    assert slower.factor == pytest.approx(1.1, rel=1e-3)
    assert slower.plan is None


def test_how_sure_the_best_is_follows_from_the_bands() -> None:
    """Two normal distributions apart by a logarithm: of which one is less in so many cases."""
    search = searched(made((1.0, 0.0), (1.2, 0.0)))
    found = sureness(search)
    assert found.lead == pytest.approx(0.2)
    assert found.rivals == 1  # 1.25 is above 0.8 x 1.2
    spread = math.log(1.25) / 1.2815515655  # of which 80 % are within
    expected = (1 + math.erf(math.log(1.2) / (math.sqrt(2) * spread) / math.sqrt(2))) / 2
    assert found.chance == pytest.approx(expected, abs=1e-6)
    far = sureness(searched(made((1.0, 0.0), (2.0, 0.0))))
    assert far.rivals == 0
    assert sureness(searched(made((1.0, 0.0), (2.0, 0.0), band=None))).chance is None


def test_others_say_which_part_grows_and_what_does_not_fit() -> None:
    plans = made((1.0, 1.0), (1.5, 2.0), (3.0, 0.0))
    (other,) = searched(plans).alternatives(0)
    assert (other.setting, other.part) == ("num_workers", "computation")
    assert other.plan is not None
    assert other.plan.workers == 3
    assert (other.behind, other.more) == (pytest.approx(0.5), pytest.approx(2.0))
    capacity = plans.capacity
    assert capacity is not None
    full = replace(plans, memory=np.array([1, capacity + 1, capacity + 5]))
    (none,) = searched(full).alternatives(0)
    assert (none.plan, none.memory) == (None, capacity + 1)


def test_the_tried_degrees_are_those_of_nodes_heads_and_blocks() -> None:
    scenario = paleo.scenario("llama3_70b", cluster="dgx_h100", dtype="bf16")
    axes = mesh_axes(scenario, [64], {"zero": [1]})
    assert axes["tp"] == [1, 2, 4, 8]  # of nodes of eight, and 64 heads
    assert axes["pp"] == [1, 2, 4, 8, 16]  # divide 64 devices and 80 blocks
    assert axes["micro_batch"] == [1, 2, 4, 8]  # of 4,096 tokens each
    assert axes["zero"] == [1]
    assert axes["recompute"] == ["none", "full"]  # attention is one kernel, which keeps no scores
    assert axes["global_batch"] == [128 * 64]
    in_steps = mesh_axes(paleo.scenario("gpt2", cluster="dgx_a100"), [8], {})
    assert in_steps["recompute"] == ["none", "selective", "full"]
    experts = paleo.scenario("mixtral_8x7b", cluster="dgx_h100", dtype="bf16")
    assert mesh_axes(experts, [16], {})["ep"] == [1, 2, 4, 8]
    assert worker_counts(scenario, 100, on_mesh=True) == [8, 16, 32, 64]
    assert worker_counts(scenario, 100, on_mesh=False) == [1, 2, 4, 8, 16, 32, 64]


def test_positions_that_are_divided_are_asked_of_one_device_where_nothing_else_is() -> None:
    same: dict[str, Any] = {"cluster": "dgx_a100", "workers": 4, "global_batch": 16, "pp": 1}
    same |= {"micro_batch": 4, "zero": 0, "interleave": 1, "recompute": "none", "tp": [1, 2]}
    both = paleo.best_plans("gpt2", **same)
    one = paleo.best_plans("gpt2", sequence_parallel=True, **same)
    assert (both.considered, one.considered) == (3, 2)
    assert {plan.settings["tp"] for plan in one.plans} == {1, 2}


@pytest.mark.slow
def test_a_large_net_on_many_devices_has_the_best_plan_of_paleo_plans() -> None:
    same: dict[str, Any] = {"cluster": "dgx_h100", "workers": 64, "global_batch": 512}
    same |= {"dtype": "bf16", "sequence_parallel": True}
    axes: dict[str, Any] = {"tp": [2, 4, 8], "pp": [1, 2, 4], "micro_batch": [1, 2]}
    axes |= {"zero": [0, 1, 3], "recompute": ["none", "full"], "interleave": 1}
    every = paleo.plans("llama3_70b", **same, **axes)
    (place,) = every.best()
    found = paleo.best_plans("llama3_70b", **same, **axes)
    assert found.best.seconds == every.step_s[place]
    assert (found.possible, found.fitting) == (every.valid.sum(), every.fits.sum())


def test_equal_plans_are_listed_once() -> None:
    search = searched(made((1.0, 0.0)), made((1.0, 0.0), (2.0, 0.0)))
    assert search.ranked() == [0, 2]


MISTAKES = [
    (
        {"tp": [], "latency": "20", "objective": "speed", "budget": "abc", "tq": 1},
        [
            *("tq: unknown setting", "objective: expected", "latency: expected a number with a"),
            *("budget: expected an amount", "tp: expected one or more"),
        ],
    ),
    ({"latency": "20 ms", "tp": 2, "budget": 5}, ["budget: is for training", "tp: is for"]),
    ({"budget": "5 USD"}, ["budget: say how long training is"]),
    ({"objective": "latency"}, ["objective: latency is of inference"]),
    ({"budget": "5 EUR", "epochs": 1, "dataset": "mnist"}, ["budget: prices are in USD, not EUR"]),
    ({"parallel": "data", "zero": 1}, ["zero: is for --parallel=mesh"]),
    ({"inference": True, "device": "CPU_I7", "objective": "cost"}, ["price: none is known"]),
    ({"epochs": 3}, ["epochs: of which dataset?"]),
]


@pytest.mark.parametrize(("settings", "said"), MISTAKES)
def test_every_mistake_is_said_at_once(settings: dict[str, Any], said: list[str]) -> None:
    where: dict[str, Any] = {} if "device" in settings else {"cluster": "dgx_a100"}
    with pytest.raises(paleo.PaleoError) as error:
        paleo.best_plans("gpt2", **where, **settings)
    lines = list(map(str, error.value.mistakes))
    assert len(lines) == len(said)
    for text in said:
        assert any(line.startswith(text) for line in lines), (text, lines)


def test_where_no_plan_can_be_the_most_frequent_reasons_are_counted() -> None:
    with pytest.raises(paleo.PaleoError) as error:
        paleo.best_plans(
            "gpt2",
            cluster="dgx_a100",
            workers=[7, 9],
            tp=[2, 4],
            pp=1,
            micro_batch=1,
            global_batch=63,
            interleave=1,
            zero=0,
            recompute="none",
            sequence_parallel=False,
        )
    assert list(map(str, error.value.mistakes)) == [
        "no plan can be: 4 were considered",
        "1 of them: num_workers: 7 devices do not divide by tp 2",
        "1 of them: num_workers: 9 devices do not divide by tp 2",
        "1 of them: num_workers: 7 devices do not divide by tp 4",
        "1 of them: num_workers: 9 devices do not divide by tp 4",
    ]


def test_where_limits_exclude_all_the_nearest_says_by_how_much() -> None:
    cheapest = trained(objective="cost").best
    cost = cheapest.cost()
    assert cost is not None
    with pytest.raises(paleo.PaleoError) as error:
        trained(budget=cost / 1.25)
    first, second = map(str, error.value.mistakes)
    assert first == "no plan keeps to all limits: of 6, 6 by budget do not"
    assert second.startswith("budget: the nearest needs ")
    assert f"25 % too much: {cheapest.options}" in second


def test_money_in_two_currencies_does_not_compare(tmp_path: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[price]]\ndevice = "T4"\nprovider = "Us"\namount = "0.25 EUR/h"\ndate = 2020-02-29\n'
    )
    with pytest.raises(paleo.PaleoError, match="price: amounts in EUR and USD do not compare"):
        paleo.best_plans("nin", device=["T4", "L4"], inference=True, objective="cost", prices=path)
