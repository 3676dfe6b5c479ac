"""How many workers are worth it, where communication catches up, and datasets."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_configurations import DIFFERENT

import paleo
from paleo.cli import cli
from paleo.core.quantity import ceil_log2
from paleo.step.memory import largest_batch
from paleo.step.parallelism import DataParallel
from paleo.step.results import Run
from paleo.studies.datasets import DATASETS, Schedule
from paleo.studies.knee import LIMIT, Curve, balance, curve, knee, own_batches

FAST = settings(max_examples=200, deadline=None)
OF_2017 = ("OneToAll", "TreeAllReduce", "ButterflyAllReduce", "ButterflyMixing")


def one_to_all(workers: int) -> float:
    return 2 * (workers - 1)  # a transfer takes a second


def tree(workers: int) -> float:
    return 2 * float(ceil_log2(workers))


def weak(compute: float, communicate: Any) -> Curve:
    return Curve(lambda _: compute, communicate, 1, "weak")


@pytest.mark.parametrize(
    ("compute", "expected"),
    # S = K C / (C + 2 (K - 1) L), so S^2 / K = K C^2 / (C - 2 L + 2 K L)^2. Its derivative is zero
    # where C - 2 L + 2 K L = 4 K L: K = (C - 2 L) / (2 L). With L = 1 s:
    [(42.0, 20), (102.0, 50), (6.0, 2), (4.0, 1), (1.0, 1)],
)
def test_the_knee_of_a_parameter_server_in_weak_scaling(compute: float, expected: int) -> None:
    assert knee(weak(compute, one_to_all)) == expected


def test_a_knee_is_worth_more_than_its_neighbours() -> None:
    # C = 43 s: the optimum is 20.5, between 20 and 21, which are worth 20 / (41 + 40)^2 = 20/6561
    # and 21 / (41 + 42)^2 = 21/6889: the second is more, for 20 * 6889 = 137,780 is less than
    # 21 * 6561 = 137,781.
    assert knee(weak(43.0, one_to_all)) == 21


def test_where_the_curve_grows_to_the_limit_there_is_no_knee() -> None:
    # A tree over 2^d workers: 2^d / (C + 2 d)^2. For C = 1 it is 1, 2/9, 4/25, 8/49, 16/81, so
    # that one worker is best of 16; but 2^16 / 33^2 = 60 of 65,536.
    assert knee(weak(1.0, tree), limit=16) == 1
    assert LIMIT == 65_536
    assert knee(weak(1.0, tree)) is None
    # Mixing takes the same for any number: S^2 / K = K C^2 / (C + 1)^2.
    assert knee(weak(5.0, lambda _: 1.0)) is None
    # 1 / 100, 2 / 144 and 4 / 196 grow, 5 / (10 + 6)^2 = 0.0195 is less than 4 / 196 = 0.0204.
    assert knee(weak(10.0, tree), limit=5) == 4


def test_the_knee_in_strong_scaling_is_among_the_least_workers_for_a_batch() -> None:
    # 12 samples of 1 s, a server: 12, 6 + 2 and 4 + 4 s on 1, 2 and 3 workers. 1 / (T^2 K) is
    # 1/144, 1/128 and 1/192.
    assert knee(Curve(float, one_to_all, 12, "strong")) == 2
    # Without communication 1 / (T^2 K) = K / 144 for K that divide 12, and no more than 12 share.
    assert knee(Curve(float, lambda _: 0.0, 12, "strong")) == 12
    # Only up to 8 are looked at: 2 samples from 6 workers on, of which 7 and 8 gain nothing.
    assert knee(Curve(float, lambda _: 0.0, 12, "strong"), limit=8) == 6
    assert knee(Curve(float, lambda _: 0.0, 12, "strong"), limit=6) is None


def test_where_every_worker_has_one_sample_the_curve_ends_and_does_not_grow_on() -> None:
    # Without communication 1 / (T^2 K) is most where each of the 12 has a sample. More gain
    # nothing, so that 12 is the knee even where it is all that is looked at.
    free = Curve(float, lambda _: 0.0, 12, "strong")
    assert [knee(free, limit) for limit in (12, 13, LIMIT)] == [12, 12, 12]
    # With 11 it is 6 with 2 samples each, 6 / 144, and 11 gain nothing.
    assert knee(free, limit=11) == 6
    assert knee(Curve(float, lambda _: 0.0, 1, "strong"), limit=1) == 1
    assert knee(Curve(float, lambda _: 0.0, LIMIT, "strong")) == LIMIT
    # In weak scaling there is no such end, whatever the batch.
    assert knee(Curve(float, lambda _: 0.0, 12, "weak"), limit=12) is None


def test_a_net_that_takes_no_time_is_worth_one_worker() -> None:
    assert knee(weak(0.0, lambda _: 0.0)) == 1


@st.composite
def curves(draw: Any) -> tuple[Curve, int]:
    """Make a curve whose communication grows by steps, and a limit; computation may, too."""
    steps = st.sampled_from([0, 0, 0, 1, 2, 7, 40])
    batch, limit = draw(st.integers(1, 40)), draw(st.integers(1, 60))
    computing = list(itertools.accumulate(draw(st.lists(steps, min_size=batch, max_size=batch))))
    exchange = list(itertools.accumulate(draw(st.lists(steps, min_size=60, max_size=60))))
    scaling = draw(st.sampled_from(["weak", "strong"]))
    first, grows = draw(st.integers(0, 3)), draw(st.booleans())
    if not grows:
        computing = draw(st.permutations(computing))
    made = Curve(
        lambda own: float(first + computing[own - 1]),
        lambda workers: float(exchange[workers - 1]),
        batch,
        scaling,
        grows,
    )
    return made, limit


@pytest.mark.slow
@FAST
@given(curves())
def test_the_knee_is_that_of_looking_at_every_count(case: tuple[Curve, int]) -> None:
    made, limit = case

    def worth(workers: int) -> float:
        seconds = made.computing(workers) + made.communicate(workers)
        return (workers if made.scaling == "weak" else 1 / workers) / (seconds * seconds)

    counts = range(1, limit + 1)
    if any(made.computing(count) + made.communicate(count) == 0 for count in counts):
        return
    best = max(counts, key=worth)
    at_the_end = best == limit and not (made.scaling == "strong" and limit == made.batch_size)
    assert knee(made, limit) == (None if at_the_end else best)


@pytest.mark.slow
@FAST
@given(curves())
def test_the_balance_is_that_of_looking_at_every_count(case: tuple[Curve, int]) -> None:
    made, limit = case
    counts = (k for k in range(1, limit + 1) if made.communicate(k) >= made.computing(k))
    assert balance(made, limit) == next(counts, None)


def test_a_larger_batch_may_take_less_time() -> None:
    # 4 samples take 3 s, but 2 take 5 s and 1 takes 1 s; a parameter server: 2 (K - 1) s. On 1, 2
    # and 4 workers 3, 5 + 2 and 1 + 6 s: 1 / (T^2 K) is 1/9, 1/98, 1/196.
    seconds = {4: 3.0, 2: 5.0, 1: 1.0}
    made = Curve(seconds.__getitem__, one_to_all, 4, "strong", grows=False)
    assert knee(made) == 1
    # The exchange takes 0, 2, 4 s on 1, 2, 3 workers, computation 3, 5, 5 s; on 4 it is 6 and 1.
    assert balance(made) == 4
    assert balance(made, limit=3) is None
    # Without an exchange it is worth 1/9, 1/50 and 1/4.
    assert knee(Curve(seconds.__getitem__, lambda _: 0.0, 4, "strong", grows=False)) == 4


def test_the_balance_of_a_parameter_server() -> None:
    # 2 (K - 1) >= 10 from K = 6 on.
    assert balance(weak(10.0, one_to_all)) == 6
    assert balance(weak(10.0, one_to_all), limit=5) is None
    # 12 samples of 1 s: 6 + 2, 4 + 4 s on 2 and 3 workers.
    assert balance(Curve(float, one_to_all, 12, "strong")) == 3
    assert balance(weak(1.0, lambda _: 1.0)) == 1


@given(st.integers(1, 3000))
def test_the_batches_of_one_worker_are_all_there(batch: int) -> None:
    expected = sorted({-(-batch // workers) for workers in range(1, batch + 1)}, reverse=True)
    assert own_batches(batch) == expected
    assert len(expected) <= 2 * batch**0.5 + 1


def test_batches_of_more_workers_than_the_limit_are_left_out() -> None:
    # 2^17 samples on 1 to 2^16 workers: at least 2 each.
    found = own_batches(2**17)
    assert (found[0], found[-1]) == (2**17, 2)
    assert found == sorted(set(found), reverse=True)


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("scaling", ["weak", "strong"])
@pytest.mark.parametrize("model", list(paleo.COST_MODELS))
@pytest.mark.parametrize(("net", "batch"), [("alex_v2", 100), ("nin", 1000), ("lenet5", 64)])
def test_the_knees_of_a_net_are_those_of_all_worker_counts(
    net: str, batch: int, model: str, scaling: str
) -> None:
    # Of steps that overlap, and of schemes that are not of 2017, powers of 2 are looked at.
    counts = np.arange(1, LIMIT + 1) if model == "paleo2017" else 2 ** np.arange(17)
    plan = paleo.Plan(
        paleo.find_device("K40"), paleo.find_network("infiniband"), paleo.find_cost_model(model)
    )
    step = paleo.data_parallel(paleo.load(net), plan, batch, counts, scaling)
    samples = batch * counts if scaling == "weak" else np.full(counts.shape, batch)
    (run,) = paleo.simulate(
        net,
        device="K40",
        network="infiniband",
        cost_model=model,
        batch_size=batch,
        scaling=scaling,
        workers=1,
    ).runs
    schemes = plan.exchange_schemes
    assert schemes == (OF_2017 if model == "paleo2017" else ("auto",))
    assert list(run.worth.knee) == list(run.worth.balance) == list(schemes)
    for scheme in schemes:
        speedup = samples / np.asarray(step.total(scheme))
        best = int(counts[(speedup**2 / counts).argmax()])
        assert run.worth.knee[scheme] == (None if best == LIMIT else best)
        caught_up = np.broadcast_to(step.exposed_exchanges[scheme] >= step.compute, counts.shape)
        least = int(counts[caught_up.argmax()]) if caught_up.any() else None
        assert run.worth.balance[scheme] == least


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("name", DIFFERENT)
def test_no_worker_computes_a_larger_batch_in_less_time(name: str) -> None:
    # The search for knees counts on it, where a cost model says so.
    batches = np.arange(1, 65)
    assert [name for name, model in paleo.COST_MODELS.items() if not model.grows] == ["tiled"]
    for model in (each for each in paleo.COST_MODELS.values() if each.grows):
        plan = paleo.Plan(paleo.find_device("K40"), paleo.find_network("aws"), model)
        step = paleo.data_parallel(paleo.load(name), plan, batches, 1, "weak")
        assert (np.diff(np.asarray(step.compute)) >= 0).all()


def test_the_search_looks_at_few_batches_and_counts() -> None:
    plan = paleo.Plan(
        paleo.find_device("K40"),
        paleo.find_network("infiniband"),
        paleo.find_cost_model("paleo2017"),
    )
    data = DataParallel(paleo.load("nin"), plan)
    asked: dict[str, set[int]] = {"batches": set(), "counts": set()}
    for scheme in ("OneToAll", "TreeAllReduce"):
        found = curve(data, 4096, "strong", scheme)

        def compute(own: int, real: Any = found.compute) -> float:
            asked["batches"].add(own)
            return float(real(own))

        def communicate(workers: int, real: Any = found.communicate) -> float:
            asked["counts"].add(workers)
            return float(real(workers))

        assert knee(Curve(compute, communicate, 4096, "strong")) == knee(found)
    assert len(asked["batches"]) < len(own_batches(4096)) == 127
    assert len(asked["counts"]) < 200


def test_batches_computed_at_once_are_those_computed_one_by_one() -> None:
    plan = paleo.Plan(
        paleo.find_device("K40"),
        paleo.find_network("aws"),
        paleo.find_cost_model("paleo2017"),
        use_pipeline=True,
    )
    net = paleo.load("squeezenet")
    at_once, singly = DataParallel(net, plan), DataParallel(net, plan)
    at_once.computations.prepare([100, 50, 7, 1])
    for batch in (100, 50, 7, 1):
        assert at_once.computing(batch) == singly.computing(batch)
        assert at_once.step(batch, 3) == singly.step(batch, 3)


@pytest.mark.parametrize("scaling", ["weak", "strong"])
@pytest.mark.parametrize(
    "how", [{}, {"cluster": "dgx_a100"}, {"compress": "onebit"}, {"jitter": 0.1}]
)
def test_exchanges_of_doubled_counts_at_once_are_those_one_by_one(
    scaling: str, how: dict[str, Any]
) -> None:
    device: dict[str, Any] = {} if "cluster" in how else {"device": "A100_SXM_80GB"}
    (run,) = paleo.simulate("vgg16", batch_size=256, scaling=scaling, **device, **how).runs
    assert run.data
    for scheme in run.plan.exchange_schemes:
        found = curve(run.data, 256, scaling, scheme)
        assert not found.steady
        for count in (1, 2, 3, 8, 64, 4096):
            if count <= found.most:
                worker = run.data.worker(count, found.own(count))
                assert found.communicate(count) == float(worker.added(scheme))


def test_curves_are_found_only_for_who_asks_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = paleo.simulate("alex_v2", scaling="strong").runs
    monkeypatch.setattr(importlib.import_module("paleo.studies.simulate"), "curve", None)
    assert run.worth.largest_batch == run.only(run.best_scheme).worth.largest_batch
    with pytest.raises(TypeError):
        run.only(run.best_scheme).worth.knee  # noqa: B018 (found when it is asked for)


# In `paleo simulate`


def runs(**settings: Any) -> tuple[Run, ...]:
    return paleo.simulate("alex_v2", **settings).runs


def test_knees_do_not_depend_on_the_counts_that_are_shown() -> None:
    few, many = runs(workers=1), runs(workers=[2, 64])
    assert [run.worth.knee for run in few] == [run.worth.knee for run in many]
    assert [run.worth.balance for run in few] == [run.worth.balance for run in many]
    (run,) = runs(schemes="TreeAllReduce", scaling="weak")
    assert list(run.worth.knee) == ["TreeAllReduce"]


def test_the_largest_batch_is_that_of_the_device() -> None:
    for run in runs():
        assert run.memory_capacity == 12 * 2**30
        assert run.worth.largest_batch == largest_batch("alex_v2", 12 * 2**30)
    half = runs(device="K20X")[0].worth.largest_batch
    assert half is not None
    assert half == largest_batch("alex_v2", 6 * 2**30)


def test_where_the_memory_is_not_known_there_is_no_largest_batch() -> None:
    own = paleo.Device.from_rates("own", clock=1e9, peak=1e12, memory_bandwidth=1e11)
    run = runs(device=own)[0]
    assert (run.memory_capacity, run.worth.largest_batch) == (None, None)
    assert run.to_dict()["largest_batch_size"] is None


@pytest.mark.parametrize("parallel", ["data", "model", "hybrid"])
def test_split_nets_have_a_largest_batch_where_a_worker_has_all_slices(parallel: str) -> None:
    run = paleo.simulate("alex_v2_2gpu", parallel=parallel, hybrid_workers=2).runs[0]
    assert (run.worth.largest_batch is not None) == (parallel == "data")
    assert bool(run.worth.knee) == bool(run.worth.balance) == (parallel == "data")
    values = run.to_dict()
    assert (values["knee"] == {}) == (values["balance_workers"] == {}) == (parallel != "data")


def test_large_nets_are_evaluated_as_arrays_with_the_same_knees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_by_one = [(run.worth.knee, run.worth.balance) for run in runs(batch_size=100)]
    module = importlib.import_module("paleo.studies.simulate")
    monkeypatch.setattr(module, "_WORTH_ARRAYS", 0)
    assert [(run.worth.knee, run.worth.balance) for run in runs(batch_size=100)] == one_by_one


def test_the_table_says_what_is_worth_it_and_the_json_too() -> None:
    arguments = ["simulate", "nin", "--device=K40", "--network=infiniband"]
    arguments.append("--cost_model=paleo2017")

    def call(*more: str) -> str:
        result = click.testing.CliRunner().invoke(cli, [*arguments, *more])
        assert result.exit_code == 0, result.output
        return result.stdout

    weak, strong = json.loads(call("--scaling=weak,strong", "--format=json"))["runs"]
    assert weak["knee"] == {
        "OneToAll": weak["knee"]["OneToAll"],
        "TreeAllReduce": None,
        "ButterflyAllReduce": None,
        "ButterflyMixing": None,
    }
    samples = weak["largest_batch_size"]
    assert samples == strong["largest_batch_size"] == largest_batch("nin", 12 * 2**30)
    for run in (weak, strong):
        scaling = f"--scaling={run['scaling']}"
        text = call(scaling, "--scheme=all", "--wide")
        knees = run["knee"].items()
        none = "none up to 65,536"
        what = "knee, beyond which more workers waste more than they gain"
        counts = ", ".join(f"{count or none} by {scheme}" for scheme, count in knees)
        assert f"\n{what}: {counts}\n" in text
        said = (
            f"largest batch that fits 12 GiB of one K40: {samples:,} samples in training with sgd"
        )
        assert f"\n{said}\n" in text
        # Of one scheme if nobody asks for more, and of none where nothing is exchanged.
        (line,) = (line for line in call(scaling).splitlines() if line.startswith("knee"))
        assert line == f"{what}: {run['knee']['ButterflyAllReduce'] or none} by ButterflyAllReduce"
        assert "knee" not in call(scaling, "--num_workers=1")


def test_a_device_may_be_too_small_for_one_sample(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(
        '[figures]\nbase_clock = "1 GHz"\nmemory_bandwidth = "1 GB/s"\nmemory_capacity = "1 MB"\n'
        '[peak.fp32]\nvector = "1 GFLOP/s"\n'
    )
    assert runs(device=path)[0].worth.largest_batch == 0
    result = click.testing.CliRunner().invoke(cli, ["simulate", "alex_v2", f"--device={path}"])
    assert "of one small: 0 samples in training with sgd" in result.stdout.replace("\n  ", " ")
    assert "It does not fit, not even one sample does: training needs" in " ".join(
        result.stdout.split()
    )


# Datasets


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_has_its_size_and_a_source(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    assert isinstance(dataset.num_samples, int)
    assert dataset.num_samples > 0
    assert any(str(year) in dataset.source for year in range(1990, 2030))
    assert Schedule(2, name).num_samples == 2 * dataset.num_samples


def test_the_size_of_imagenet_is_that_of_the_challenge() -> None:
    assert DATASETS["imagenet"].num_samples == 1_281_167
    assert Schedule(dataset="imagenet").size == 1_281_167
    assert Schedule(epochs=90).num_samples is None
    assert Schedule(epochs=0.5, dataset_size=1000).num_samples == 500


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"epochs": 0}, ["epochs: expected a number above 0, got 0"]),
        ({"epochs": float("nan")}, ["epochs: expected a number above 0, got NaN"]),
        ({"epochs": True}, ["epochs: expected a number above 0, got true"]),
        ({"dataset_size": 0}, ["dataset_size: expected a whole number of 1 or more, got 0"]),
        ({"dataset_size": 1.5}, ["dataset_size: expected a whole number of 1 or more, got 1.5"]),
        ({"dataset": "imagnet"}, ["unknown dataset 'imagnet' (did you mean 'imagenet'?)"]),
        ({"dataset": "mnist", "dataset_size": 3}, ["dataset: give it or dataset_size, not both"]),
        (
            {"epochs": -1, "dataset": "mnist", "dataset_size": -3},
            [
                "epochs: expected a number above 0, got -1",
                "dataset_size: expected a whole number of 1 or more, got -3",
                "dataset: give it or dataset_size, not both",
            ],
        ),
    ],
)
def test_a_schedule_says_all_that_is_wrong(arguments: Any, said: list[str]) -> None:
    with pytest.raises(paleo.PaleoError) as caught:
        Schedule(**arguments)
    assert [mistake.message for mistake in caught.value.mistakes] == said
