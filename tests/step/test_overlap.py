"""Gradients that are exchanged in buckets, beside the backward pass."""

from __future__ import annotations

from typing import Any

import pytest

import paleo
from paleo.core.errors import SettingError
from paleo.core.quantity import np
from paleo.core.units import MIB
from paleo.step.parallelism.overlap import FIRST_BUCKET, Bucket, Made, buckets, overlapped

MADE = [Made(1.0, 10), Made(2.0, 5), Made(3.0, 20), Made(1.0, 0)]


def test_a_bucket_is_full_from_its_size_on_and_the_first_is_smaller() -> None:
    # 10 bytes fill the first; 5 do not fill the second, 25 do; what is left has no gradients.
    assert buckets(MADE, 15, first=10) == (Bucket(1, 10), Bucket(5, 25), Bucket(1, 0))


def test_no_bucket_is_larger_than_asked_because_the_first_is() -> None:
    assert FIRST_BUCKET == MIB
    assert buckets(MADE, 5) == (Bucket(1, 10), Bucket(2, 5), Bucket(3, 20), Bucket(1, 0))
    assert buckets(MADE, 36) == (Bucket(7, 35),)


def test_exchanges_follow_one_another_beside_a_pass_that_they_slow_down() -> None:
    found = overlapped([Bucket(1, 10), Bucket(5, 25), Bucket(1, 0)], lambda size: 0.1 * size, 1.25)
    # The first is sent from 1 to 2 s. Of that second 0.8 are the pass's own, 4.2 follow: 6.2 s.
    # The second is sent from there to 8.7 s; the last second of the pass takes 1.25.
    assert found.spans == (pytest.approx((1, 2, 10)), pytest.approx((6.2, 8.7, 25)))
    assert (found.computed, found.alone) == (pytest.approx(7.45), 7)
    assert found.total == pytest.approx(8.7)
    assert found.exposed == pytest.approx(1.7)
    assert found.busy == pytest.approx(3.5)
    for own, when in [(0, 0), (1, 1), (1.8, 2), (6, 6.2), (6.5, 6.825), (7, 7.45)]:
        assert found.when(own) == pytest.approx(when)


def test_a_bucket_waits_for_the_one_before() -> None:
    found = overlapped([Bucket(1, 10), Bucket(1, 10), Bucket(4, 0)], lambda size: 3.0)
    assert found.spans == ((1, 4, 10), (4, 7, 10))
    assert (found.computed, found.total, found.exposed) == (6, 7, 1)


def test_all_is_hidden_but_what_comes_after_the_last_layer() -> None:
    found = overlapped([Bucket(1, 10), Bucket(9, 10)], lambda size: 2.0)
    assert (found.exposed, found.busy) == (2, 4)


def test_computation_that_takes_longer_hides_more() -> None:
    parts = [Bucket(1, 10), Bucket(1, 0)]
    times = [overlapped(parts, lambda size: 2.0, factor=factor).total for factor in (1, 2, 4)]
    # Sent from 1, 2 and 4 s on; the pass ends after 2, 4 and 8 s.
    assert times == [3, 4, 8]


def test_seconds_may_be_arrays() -> None:
    seconds = np.array([1.0, 3.0])
    parts = [Bucket(seconds, 10), Bucket(1.0, 10)]
    found = overlapped(parts, lambda size: np.array([4.0, 0.5]), 1.5)
    exposed: Any = found.exposed
    busy: Any = found.busy
    first = overlapped([Bucket(1.0, 10), Bucket(1.0, 10)], lambda size: 4.0, 1.5)
    second = overlapped([Bucket(3.0, 10), Bucket(1.0, 10)], lambda size: 0.5, 1.5)
    assert list(exposed) == [first.exposed, second.exposed]
    assert list(busy) == [first.busy, second.busy]


# Exchanges of a step.


def step(**settings: object) -> paleo.Step:
    given: dict[str, object] = {"device": "V100_SXM2_16GB", "network": "ethernet25", "workers": 8}
    found = paleo.simulate("vgg16", **given | settings)  # type: ignore[arg-type]
    return found.runs[0].rows[0]


def test_one_bucket_of_everything_hides_nothing() -> None:
    row = step(bucket="1 GiB")  # vgg16 has 0.55 GB: the first bucket, of 1 MiB, is its last layer
    alone = step(overlap=False)
    (scheme,) = row.exchanges
    assert row.compute == pytest.approx(alone.compute)
    # The last layer's 16 MB are sent while the others are computed.
    assert row.total(scheme) < alone.total(scheme)
    hidden = row.communication[scheme] - row.exposed_exchanges[scheme]
    assert 0 < hidden < 0.1 * row.communication[scheme]


def test_smaller_buckets_hide_more() -> None:
    exposed = [step(bucket=f"{size} MiB").exposed_exchanges["auto"] for size in (1000, 200, 25)]
    assert exposed[0] > exposed[1] > exposed[2] > 0


def test_what_overlaps_is_never_quicker_than_either_part() -> None:
    for network in ("ethernet", "ethernet25", "nvlink2"):
        row = step(network=network)
        backward = row["backward"]
        whole = row.communication["auto"]
        assert row.total("auto") >= row.compute
        assert row.total("auto") >= row["forward"] + row["update"] + max(backward, whole)
        assert row.total("auto") == pytest.approx(row.compute + row.exposed_exchanges["auto"])


def test_a_worker_alone_exchanges_nothing() -> None:
    row = step(workers=1)
    assert (row.communication, row.exposed_exchanges) == ({"auto": 0}, {"auto": 0})


def test_the_model_of_2017_exchanges_after_the_backward_pass() -> None:
    settings = {"cost_model": "paleo2017", "schemes": "TreeAllReduce"}
    row, asked = step(**settings), step(**settings, overlap=True)
    assert row.exposed_exchanges == row.communication
    assert asked.communication["TreeAllReduce"] == pytest.approx(row.communication["TreeAllReduce"])
    assert asked.exposed_exchanges["TreeAllReduce"] < row.communication["TreeAllReduce"]


def test_a_band_knows_that_slower_computation_hides_more() -> None:
    row = step(network="ethernet")  # most is exposed
    low, high = row.ends
    assert low is not None
    assert high is not None
    assert low.exposed_exchanges["auto"] > row.exposed_exchanges["auto"]
    assert high.exposed_exchanges["auto"] < row.exposed_exchanges["auto"]


def test_many_worker_counts_at_once_are_as_one_by_one() -> None:
    counts = tuple(range(1, 600))
    many = paleo.simulate("lenet5", device="A100_SXM_40GB", network="ethernet25", workers=counts)
    for row in many.runs[0].rows[::97]:
        alone = paleo.simulate(
            "lenet5", device="A100_SXM_40GB", network="ethernet25", workers=row.workers
        )
        (other,) = alone.runs[0].rows
        assert row.total("auto") == pytest.approx(other.total("auto"))
        assert row.communication["auto"] == pytest.approx(other.communication["auto"])


@pytest.mark.parametrize("bucket", [0, -1, "0 MiB", "x"])
def test_buckets_of_nothing(bucket: object) -> None:
    with pytest.raises(SettingError, match=r"^bucket: expected"):
        step(bucket=bucket)


def test_both_ends_of_a_band_ask_for_no_message_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    communication = paleo.Plan.communication

    def counted(plan: paleo.Plan, *arguments: Any) -> Any:
        asked.append(arguments)
        return communication(plan, *arguments)

    monkeypatch.setattr(paleo.Plan, "communication", counted)
    row = step()
    once = len(asked)
    assert once == len(set(asked)) > 1
    low, high = row.ends
    assert low is not None
    assert high is not None
    assert low.exchanges != high.exchanges
    assert len(asked) == once
