from __future__ import annotations

import numpy as np
import pytest

from paleo.studies.serving.loads import Load
from paleo.studies.serving.served import Percentiles, Served

ONES = np.array([10, 10, 10, 10])
#: Four requests; the last one has one token alone.
SERVED = Served(
    load=Load(ONES, np.array([11, 21, 11, 1]), 0 * ONES, np.array([0.0, 1, 2, 3])),
    arrival=np.array([0.0, 1, 2, 3]),
    start=np.array([0.0, 1, 3, 4]),
    first=np.array([1.0, 2, 6, 8]),
    finish=np.array([2.0, 6, 8, 8]),
    preemptions=2,
    steps=9,
    busy=8.0,
    decode_seconds=12.0,
)


def test_times_of_requests() -> None:
    assert SERVED.ttft.tolist() == [1, 1, 4, 5]
    assert np.allclose(SERVED.tpot, [1 / 10, 4 / 20, 2 / 10])
    assert SERVED.latency.tolist() == [2, 5, 6, 5]


def test_rates_and_means() -> None:
    assert SERVED.seconds == 8
    assert SERVED.requests_per_s == 0.5
    assert SERVED.tokens_per_s == 44 / 8
    assert SERVED.mean_batch == 1.5
    assert SERVED.mean_queue == (1 + 1) / 8
    assert SERVED.mean_running == (2 + 5 + 5 + 4) / 8


def test_percentiles_are_between_the_nearest() -> None:
    points = Percentiles.of(np.arange(101) / 10)  # 0 to 10
    assert points is not None
    assert points.to_dict() == {
        "mean": pytest.approx(5),
        "p50": pytest.approx(5),
        "p90": pytest.approx(9),
        "p95": pytest.approx(9.5),
        "p99": pytest.approx(9.9),
    }
    assert Percentiles.of(np.array([])) is None


def test_goodput_counts_those_that_keep_all_limits() -> None:
    assert SERVED.keeps().all()
    assert SERVED.keeps(ttft=4).tolist() == [True, True, True, False]
    # A request of one token has no time between tokens that it could exceed.
    assert SERVED.keeps(tpot=0.15).tolist() == [True, False, False, True]
    assert SERVED.keeps(ttft=4, tpot=0.2).tolist() == [True, True, True, False]
    assert SERVED.goodput(ttft=1) == 2 / 8


def test_as_a_dictionary() -> None:
    said = SERVED.to_dict()
    assert said["ttft_s"]["mean"] == 2.75
    assert said["latency_s"]["p50"] == 5
    assert (said["requests"], said["preemptions"], said["mean_queue"]) == (4, 2, 0.25)
    assert "goodput_share" not in said
    limited = SERVED.to_dict(ttft=1)
    assert (limited["goodput_share"], limited["goodput_requests_per_s"]) == (0.5, 0.25)
