"""Plans as arrays: the same numbers as one by one, and why some cannot be."""

from __future__ import annotations

import gc
import itertools
import random
from typing import Any

import numpy as np
import pytest

import paleo
from paleo.studies.plan_bounds import Bounds
from paleo.studies.plan_evaluation import Evaluation
from paleo.studies.plans import Plans, asked_for, fastest_plans

#: Nets, what they run on, and the axes of their plans: stages of many blocks and of few, chunks of
#: them, blocks that differ, experts.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt2": (
        {"cluster": "dgx_a100", "workers": 24, "dtype": "mixed_bf16", "optimizer": "adamw"},
        {
            "tp": [1, 2],
            "pp": [1, 2, 3, 12],
            "micro_batch": [1, 2],
            "recompute": ["none", "full"],
            "zero": [0, 1, 2, 3],
            "interleave": [1, 2],
            "global_batch": 48,
        },
    ),
    "bert_base": (
        {"cluster": "dgx_a100", "workers": 12, "framework": "pytorch", "schedule": "zero_bubble"},
        {"pp": [1, 2, 3], "micro_batch": [1, 2], "zero": [0, 2, 3], "global_batch": [12, 48]},
    ),
    "resnet50": (
        {"cluster": "dgx_a100", "workers": 8},
        {"pp": [1, 2], "micro_batch": [4, 8], "zero": [0, 1], "global_batch": 256},
    ),
}
#: Hugging Face's models, whose layers are composed of steps: handed over by the host, which prices
#: every block, and recorded as graphs, of which a few stand for all. One has a norm of means and a
#: GELU of its own, the other rotary embeddings and a gate; the latter casts its parameters.
COMPOSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt2": (
        {"cluster": "dgx_a100", "workers": 8, "dtype": "bf16"},
        {
            "tp": [1, 2],
            "pp": [1, 2],
            "micro_batch": [1, 4],
            "recompute": ["none", "full"],
            "zero": [0, 3],
            "global_batch": 32,
        },
    ),
    "llama3_2_1b": (
        {"cluster": "dgx_h100", "workers": 8, "dtype": "mixed_bf16", "graphs": True},
        {
            "tp": [1, 2],
            "pp": [1, 2],
            "micro_batch": [1, 2],
            "recompute": ["none", "full"],
            "zero": [0, 1, 2],
            "interleave": [1, 2],
            "global_batch": 32,
        },
    ),
}
LARGE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt3_175b": (
        {"cluster": "dgx_a100", "workers": 1024, "dtype": "bf16", "schedule": "zero_bubble"},
        {"tp": 8, "pp": [8, 32], "micro_batch": [1, 2], "zero": [0, 1], "global_batch": 1536},
    ),
    "llama3_70b": (
        {"cluster": "dgx_h100", "workers": 512, "dtype": "bf16", "sequence_parallel": True},
        {"tp": 4, "pp": [4, 8], "recompute": ["selective", "full"], "global_batch": 1024},
    ),
    "mixtral_8x7b": (
        {"cluster": "dgx_h100", "workers": 64, "dtype": "bf16", "ep": 4, "schedule": "gpipe"},
        {"tp": [1, 2], "pp": [2, 4], "zero": [1, 3], "micro_batch": 1, "global_batch": 128},
    ),
}


@pytest.mark.parametrize("net", [*CASES])
def test_plans_on_other_links_are_those_of_a_cluster_with_them(net: str) -> None:
    """Nothing is priced twice, and nothing that depends on links is left as it was."""
    fixed, axes = CASES[net]
    axes = axes | {"pp": [1, 3], "micro_batch": 2}
    found = paleo.plans(net, **fixed, **axes)
    halved = paleo.find_cluster(fixed["cluster"]).with_networks(lambda one: one.reaching(0.5))
    other = paleo.plans(net, **{**fixed, "cluster": halved}, **axes)
    places = np.flatnonzero(found.valid)[::3]
    seconds = found.seconds_under(other.scenario.plan, places)
    assert (seconds >= found.step_s[places] * (1 - 1e-12)).all()
    assert (seconds > found.step_s[places] * (1 + 1e-6)).any()
    assert seconds == pytest.approx(other.step_s[places], rel=1e-12)


def assert_equal_one_by_one(
    net: str, fixed: dict[str, Any], axes: dict[str, Any], count: int
) -> Plans:
    found = paleo.plans(net, **fixed, **axes)
    places = random.Random(0).sample(np.flatnonzero(found.valid).tolist(), count)
    for place in places:
        settings = fixed | found.at(place)
        (row,) = paleo.simulate(net, parallel="mesh", **settings).runs[0].rows
        one = row.to_dict()
        assert found.step_s[place] == pytest.approx(one["step_s"], rel=1e-12), settings
        assert found["memory_bytes"][place] == one["memory_bytes"], settings
        assert found.fits[place] == one["fits"]
        assert found["dp"][place] == one["dp"]
        assert found.bubble_s[place] == pytest.approx(one["bubble_s"], rel=1e-9, abs=1e-12)
        exposed = found.exposed_communication_s[place]
        assert exposed == pytest.approx(one["exposed_communication_s"], rel=1e-9, abs=1e-12)
        if one["tokens_per_s"] is not None:
            assert found.tokens_per_s is not None
            assert found.tokens_per_s[place] == pytest.approx(one["tokens_per_s"], rel=1e-12)
        for name, seconds in one["parts"].items():
            assert found[name][place] == pytest.approx(seconds, rel=1e-9, abs=1e-12), name
    return found


@pytest.mark.parametrize("net", CASES)
def test_plans_are_those_of_one_plan_at_a_time(net: str) -> None:
    fixed, axes = CASES[net]
    found = assert_equal_one_by_one(net, fixed, axes, 8)
    sizes = [len(value) if isinstance(value, list) else 1 for value in axes.values()]
    assert len(found) == np.prod(sizes)


@pytest.mark.slow
@pytest.mark.parametrize("net", COMPOSED)
def test_plans_of_transformers_are_those_of_one_plan_at_a_time(net: str) -> None:
    fixed, axes = COMPOSED[net]
    fixed = fixed | {"optimizer": "adamw", "framework": "transformers"}
    found = assert_equal_one_by_one(net, fixed, axes, 4)
    # What is composed keeps more, which shows where activations are what is most.
    plain = paleo.plans(net, **fixed | {"framework": "pytorch"}, **axes)
    assert (found.memory_bytes >= plain.memory_bytes)[found.valid].all()
    large = found.valid & (found["recompute"] == "none") & (found["micro_batch"] > 1)
    assert (found.memory_bytes > plain.memory_bytes)[large & (found["pp"] == 1)].all()


@pytest.mark.slow
@pytest.mark.parametrize("net", LARGE)
def test_plans_of_large_nets_are_those_of_one_plan_at_a_time(net: str) -> None:
    assert_equal_one_by_one(net, *LARGE[net], 3)


def test_plans_that_cannot_be_say_why() -> None:
    found = paleo.plans(
        "gpt2",
        cluster="dgx_a100",
        workers=[16, 12],
        tp=[1, 5],
        pp=[1, 16],
        global_batch=[16],
        interleave=1,
    )
    by_plan = {
        (int(found["tp"][i]), int(found["pp"][i]), int(found["workers"][i])): str(reason)
        for i, reason in enumerate(found.reasons)
    }
    assert by_plan[1, 1, 16] == ""
    assert by_plan[5, 1, 16] == "num_workers: 16 devices do not divide by tp 5"
    assert by_plan[1, 16, 16] == "pp: gpt2 has 12 blocks, too few for 16 stages"
    assert by_plan[1, 1, 12].startswith("global_batch: 16 samples do not divide among 12")
    assert by_plan[1, 16, 12] == "num_workers: 12 devices do not divide by pp 16"
    assert found.valid.sum() == 1
    assert np.isnan(found.step_s[~found.valid]).all()
    assert found.best(5) == [int(np.flatnonzero(found.valid)[0])]


def test_groups_that_divide_are_for_plans_that_divide_something() -> None:
    fixed: dict[str, Any] = {"cluster": "dgx_a100", "workers": 8, "shard_degree": 2}
    found = assert_equal_one_by_one("gpt2", fixed, {"zero": [0, 3], "global_batch": 16}, 1)
    assert found.valid.tolist() == [False, True]
    assert found.reasons[0].startswith("shard_degree: nothing is divided")


def test_the_best_is_the_quickest_that_fits() -> None:
    found = paleo.plans(
        "gpt2", cluster="dgx_a100", workers=8, tp=[1, 2, 4], micro_batch=[1, 4], global_batch=64
    )
    best = found.best(2)
    rates = found.samples_per_s[found.fits]
    assert found.samples_per_s[best[0]] == rates.max()
    assert found.samples_per_s[best[1]] <= found.samples_per_s[best[0]]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"offload": "optimizer"}, "offload"),
        ({"stages": "balanced", "pp": 2}, "stages"),
        ({"schedule": "dualpipe", "pp": 2}, "schedule"),
        ({"loader_rate": 100}, "loader_rate"),
        ({"zero": [0, 7]}, "zero"),
    ],
)
def test_what_plans_as_arrays_do_not_know_is_an_error(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(paleo.PaleoError, match=f"^{said}: "):
        paleo.plans("gpt2", cluster="dgx_a100", workers=8, global_batch=64, **settings)


#: Grids of which the best are looked for: with stages of few blocks, one that does not divide, and
#: chunks.
GRIDS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "cluster": "dgx_a100",
        "workers": 16,
        "tp": [1, 2, 5],
        "pp": [1, 2, 4],
        "micro_batch": [None, 2],
        "interleave": [1, 2],
        "zero": [0, 3],
        "recompute": ["none", "full"],
        "global_batch": [48, 64],
    },
    "megatron_7_5b": {
        "cluster": "dgx_a100",
        "workers": 64,
        "dtype": "mixed_bf16",
        "optimizer": "adamw",
        "tp": [2, 8],
        "pp": [1, 2, 8],
        "micro_batch": [1, 2, 4],
        "zero": [0, 1, 2],
        "global_batch": 256,
        "schedule": "zero_bubble",
    },
    "bert_large": {
        "cluster": "dgx_a100",
        "workers": 32,
        "framework": "pytorch",
        "schedule": "gpipe",
        "pp": [1, 2, 3, 4],
        "micro_batch": [2, 4],
        "zero": [0, 2],
        "global_batch": [256],
    },
}


@pytest.mark.parametrize("net", GRIDS)
def test_the_best_are_those_of_all(net: str) -> None:
    grid = GRIDS[net]
    found = paleo.plans(net, **grid)
    places = found.best(7)
    best = fastest_plans(net, count=7, **grid)
    assert len(best) == len(places) == 7
    for number, place in enumerate(places):
        assert best.at(number) == found.at(place)
        assert best.step_s[number] == found.step_s[place]
        assert best.memory_bytes[number] == found.memory_bytes[place]
    assert best.fits.all()


@pytest.mark.parametrize("net", GRIDS)
def test_no_plan_is_below_its_bounds(net: str) -> None:
    assert held_to_bounds(net, GRIDS[net]) >= 8


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_of_any_grid_is_below_its_bounds(seed: int) -> None:
    chance = random.Random(seed)
    schedule = chance.choice(["1f1b", "1f1b", "gpipe", "zero_bubble"])
    net = chance.choice(["gpt2", "bert_large", "llama3_8b", "mixtral_8x7b"])
    grid = {
        "cluster": "dgx_a100",
        "workers": chance.choice([16, 32, 64]),
        "tp": [chance.choice([1, 2, 4])],
        "pp": chance.sample([1, 2, 3, 4, 8], 3),
        "micro_batch": chance.sample([1, 2, 3, 4], 2),
        "interleave": [1, 2] if schedule == "1f1b" else [1],
        "zero": [0, 1, 2, 3],
        "recompute": ["none", "selective", "full"],
        "global_batch": [chance.choice([64, 192]), 256],
        "dtype": chance.choice(["fp32", "bf16", "mixed_bf16", "mixed_fp16"]),
        "optimizer": chance.choice(["sgd", "adamw", "muon"]),
        "framework": chance.choice([None, "pytorch", "megatron", "torchtitan"]),
        "schedule": schedule,
    }
    assert held_to_bounds(net, grid) > 0


def held_to_bounds(net: str, grid: dict[str, Any]) -> int:
    """Hold all bounds of plans to what they take; return how many there were."""
    asked = dict(grid)
    evaluation = Evaluation(*asked_for(net, asked.pop("workers"), asked))
    evaluation.all()
    columns = evaluation.columns
    seconds: Any = sum(of for name, of in columns.items() if name != "memory_bytes")
    looked_at = 0
    for group in evaluation.groups:
        try:
            bounds = Bounds(evaluation.divided(group), evaluation.plan, group)
        except paleo.PaleoError:
            continue
        dealt = evaluation.dealt(group)
        meant = evaluation.meant(dealt.divided).items()
        every = itertools.product(group.blocks, meant, group.zeros.items())
        for (batches, places), (recompute, same), (zero, z) in every:
            own = places[same, z][:, batches.can_be]
            memory = columns["memory_bytes"][own]
            for of_some in (bounds.memory, bounds.memory_on_the_way):
                assert (memory >= of_some(recompute, zero, batches)[batches.can_be]).all()
            assert (memory >= bounds.lasting(zero)).all()
            least = [
                bounds.seconds(recompute, batches)[batches.can_be],
                *(
                    bounds.seconds(recompute, batches, zero, besides)[batches.can_be]
                    for besides in (dealt.dividing(zero), dealt.besides(zero))
                ),
            ]
            assert (least[0] <= least[1]).all()
            assert (least[1] <= least[2]).all()
            assert (seconds[own] >= least[2] * (1 - 1e-9)).all()
            looked_at += own.size
    return looked_at


def test_the_best_of_none_that_fits_is_none() -> None:
    found = fastest_plans(
        "gpt3_175b", cluster="dgx_a100", workers=8, tp=[1, 2], dtype="bf16", global_batch=8
    )
    assert len(found) == 0


def test_garbage_is_looked_for_as_before() -> None:
    was_enabled = gc.isenabled()
    try:
        for is_enabled in (True, False):
            (gc.enable if is_enabled else gc.disable)()
            fastest_plans("gpt2", 8, cluster="dgx_a100", global_batch=8)
            assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
