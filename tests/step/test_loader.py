"""A data loader that is slower than devices: steps wait for it, and say so. By hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paleo
from paleo.step.loader import LOADER, LoaderRate, find_rate
from paleo.step.pieces import TRANSFER, Piece, Step

ON: dict[str, Any] = {"device": "V100_SXM2_16GB", "batch_size": 16, "cost_model": "tiled"}


def step_of(delivered: Any, seconds: Any = 2.0) -> Step:
    exchanges = {"ring": Piece("exchange", TRANSFER, 1.0), "tree": Piece("exchange", TRANSFER, 3.0)}
    return Step(
        1, 8, 8, (Piece("forward", "forward", seconds),), (), exchanges=exchanges,
        delivered=delivered,
    )  # fmt: skip


def test_a_step_waits_as_long_as_data_come_later_than_it_is_done() -> None:
    step = step_of(4.0)
    assert (step.total("ring"), step.loading("ring")) == (4.0, 1.0)  # 2 + 1, and 1 of waiting
    assert (step.total("tree"), step.loading("tree")) == (5.0, 0.0)  # 2 + 3 are more than 4
    names = [(piece.name, piece.seconds, piece.start) for piece in step.under("ring")]
    assert names == [("forward", 2.0, 0.0), ("exchange", 1.0, 2.0), (LOADER, 1.0, 3.0)]
    assert (step.total(), step.loading()) == (4.0, 2.0)
    plain = step_of(0.0)
    assert (plain.total("ring"), plain.loading("ring")) == (3.0, 0.0)
    assert len(plain.under("ring")) == 2


def test_quantities_may_be_arrays() -> None:
    step = step_of(np.array([2.0, 4.0, 9.0]), np.array([2.0, 2.0, 5.0]))
    assert np.array_equal(step.total("ring"), [3.0, 4.0, 9.0])
    assert np.array_equal(step.loading("ring"), [0.0, 1.0, 3.0])
    one, _, last = step.spread((3,))
    assert (one.total("ring"), last.total("ring"), last.loading("ring")) == (3.0, 9.0, 3.0)


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        (2500, LoaderRate(2500.0)),
        ("2500", LoaderRate(2500.0)),
        ("2,500 samples/s", LoaderRate(2500.0)),
        ("300 images/s/device", LoaderRate(300.0, apart=True)),
        (" 5e4 tokens/s", LoaderRate(5e4, tokens=True)),
        ("1e4 tokens/s/worker", LoaderRate(1e4, tokens=True, apart=True)),
        (None, None),
    ],
)
def test_rates_are_numbers_or_texts(given: Any, rate: LoaderRate | None) -> None:
    assert find_rate(given) == rate
    assert find_rate(rate) == rate


@pytest.mark.parametrize("given", [0, -1, "fast", "10 GB/s", "3 tokens", True, [1], float("nan")])
def test_others_are_an_error(given: Any) -> None:
    with pytest.raises(paleo.SettingError, match="loader_rate: expected samples or tokens"):
        find_rate(given)


def test_what_comes_of_all_devices_or_of_each() -> None:
    # 64 samples of 10 tokens on 4 devices.
    assert LoaderRate(32.0).seconds(64, 4, None) == 2.0
    assert LoaderRate(32.0, apart=True).seconds(64, 4, None) == 0.5
    assert LoaderRate(320.0, tokens=True).seconds(64, 4, 10) == 2.0
    assert LoaderRate(320.0, tokens=True, apart=True).seconds(64, 4, 10) == 0.5


def test_steps_of_data_parallelism_wait_and_are_as_quick_as_the_loader() -> None:
    run = paleo.simulate("resnet18", workers=[1, 4], loader_rate="100 samples/s/device", **ON)
    for row, workers in zip(run.to_dict()["runs"][0]["rows"], (1, 4), strict=True):
        assert row["step_s"]["auto"] == pytest.approx(16 / 100)
        assert row["throughput_per_s"]["auto"] == pytest.approx(100 * workers)
        assert row["speedup"]["auto"] == pytest.approx(workers)
        exposed = row["exposed_communication_s"]["auto"]
        assert row["data_loader_s"]["auto"] == pytest.approx(0.16 - row["compute_s"] - exposed)
    quick = paleo.simulate("resnet18", workers=[1], loader_rate=1e9, **ON).to_dict()
    plain = paleo.simulate("resnet18", workers=[1], **ON).to_dict()
    (waits,), (plain_row,) = quick["runs"][0]["rows"], plain["runs"][0]["rows"]
    assert waits["step_s"] == plain_row["step_s"]
    assert waits["data_loader_s"] == {"auto": 0.0}
    assert "data_loader_s" not in plain_row


def test_parts_of_a_mesh_add_up_to_the_loader_s_time() -> None:
    on: dict[str, Any] = {"cluster": "dgx_a100", "workers": 8, "tp": 2, "global_batch": 8}
    net = paleo.load("gpt2").with_dims(seq=128)
    run = paleo.simulate(net, dtype="bf16", loader_rate="2048 tokens/s", **on)
    (row,) = run.to_dict()["runs"][0]["rows"]
    assert row["step_s"] == pytest.approx(8 * 128 / 2048)
    assert sum(row["parts"].values()) == pytest.approx(row["step_s"])
    assert row["parts"][LOADER] == row["data_loader_s"] > 0.3
    assert row["tokens_per_s"] == pytest.approx(2048)


def test_tokens_of_a_net_without_and_other_parallelism_are_errors() -> None:
    with pytest.raises(paleo.PaleoError, match="loader_rate: the net has no tokens"):
        paleo.simulate("lenet5", workers=1, loader_rate="10 tokens/s", **ON)
    with pytest.raises(paleo.PaleoError, match="loader_rate: is for --parallel=data or mesh"):
        paleo.simulate("alex_v2_4gpu", parallel="model", loader_rate=10)
