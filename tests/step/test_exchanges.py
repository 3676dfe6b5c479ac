"""Exchanges as software makes them: in buckets, in cycles, at once; what they take meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paleo
from paleo.cluster.gradient_exchange import EXCHANGES, Exchange
from paleo.step.parallelism.overlap import Made, exchanged, sent_in_cycles
from paleo.step.parallelism.slowdown import slowdown

#: A processor that is no GPU computes on beside exchanges.
CPU = paleo.find_device("XEON_8280")


def byte_by_byte(num_bytes: Any) -> Any:
    """Return the seconds of an exchange that takes 1 ms a byte."""
    return 1e-3 * num_bytes


def test_software_sends_in_its_buckets() -> None:
    made = [Made(4e-3, 10), Made(4e-3, 10), Made(4e-3, 10), Made(0.0, 0)]

    def spans(**facts: Any) -> list[tuple[float, float]]:
        software = Exchange("mine", "a test", **facts)
        found = exchanged(software, made, byte_by_byte, CPU, 4)
        assert found.alone == pytest.approx(12e-3)
        ends = ((float(sent.start), float(sent.end)) for sent in found.spans)
        return [(round(1e3 * start, 9), round(1e3 * end, 9)) for start, end in ends]

    # Each by itself, one after the other; two together and the third; all at the end.
    assert spans(bucket=0) == [(4, 14), (14, 24), (24, 34)]
    assert spans(bucket=20) == [(8, 28), (28, 38)]
    assert spans(bucket=20, first=10) == [(4, 14), (14, 34)]
    assert spans(bucket=None) == [(12, 42)]
    # All that is there when links are free: at 4 ms one, at the end two.
    assert spans(bucket=64, cycle=2e-3) == [(4, 14), (15, 35)]
    # A pass that takes three times as long makes its gradients at 12, 24 and 36 ms.
    slow = exchanged(Exchange("mine", "", bucket=0), made, byte_by_byte, CPU, 4, factor=3.0)
    assert slow.exposed == pytest.approx(46e-3 - 36e-3)


def test_a_gpu_is_slower_beside_its_exchanges() -> None:
    v100 = paleo.find_device("V100_SXM2_16GB")
    made = [Made(5e-3, 1 << 20), Made(5e-3, 1 << 20)]

    def exchange(num_bytes: Any) -> Any:
        return num_bytes / 60e9

    found = exchanged(EXCHANGES["kvstore"], made, exchange, v100, 8)
    slower = slowdown(v100, 2 << 20, (2 << 20) / 60e9, 8)
    beside = (1 << 20) / 60e9  # while the first is on its way
    assert found.computed == pytest.approx(10e-3 + beside * (1 - 1 / slower))


def test_copies_pass_memory_twice_each() -> None:
    v100 = paleo.find_device("V100_SXM2_16GB")
    # Into buckets and out of them, read and written: 4 x 90 MB at 900 GB/s.
    assert EXCHANGES["ddp"].copying(90e6, v100) == pytest.approx(0.4e-3)
    assert EXCHANGES["kvstore"].copying(90e6, v100) == 0


@pytest.mark.parametrize("name", EXCHANGES)
def test_facts_of_software_have_a_source(name: str) -> None:
    software = EXCHANGES[name]
    assert software.name == name
    assert len(software.source) > 40
    assert software.overlaps == (software.bucket is not None)


def test_gradients_are_sent_when_links_are_free() -> None:
    # Each layer takes 4 ms for 10 bytes, a byte 1 ms.
    def exchange(num_bytes: Any) -> Any:
        return 1e-3 * num_bytes

    made = [Made(4e-3, 10), Made(4e-3, 10), Made(4e-3, 10), Made(4e-3, 10)]
    found = sent_in_cycles(made, exchange, 1e-3)
    # At 4 ms 10 bytes leave, until 14. At 16 ms the other 30 do, after the cycle: until 46.
    assert [sent[:2] for sent in found.spans] == [(4e-3, 14e-3), (16e-3, 46e-3)]
    assert found.alone == pytest.approx(16e-3)
    assert found.exposed == pytest.approx(30e-3)
    # A longer cycle leaves all to the end, where half of one is waited for.
    late = sent_in_cycles(made, exchange, 20e-3)
    assert late.exposed == pytest.approx(10e-3 + 40e-3)
    # Computation takes twice as long beside an exchange: the second layer 8 ms, the third 2 and 3,
    # after which 20 bytes leave, at 17 ms, and the last 8 again.
    slow = sent_in_cycles(made, exchange, 1e-3, slowdown=2.0)
    assert slow.computed == pytest.approx(25e-3)
    assert slow.spans[1][:2] == pytest.approx((17e-3, 37e-3))


def test_gradients_that_are_arrays_are_sent_as_single_ones() -> None:
    times = np.array([4e-3, 1e-3, 30e-3])
    made: list[Any] = [Made(times, 10), Made(2 * times, 5), Made(times, 0), Made(times, 7)]

    def exchange(num_bytes: Any) -> Any:
        return 1e-4 + 1e-3 * num_bytes

    found: Any = sent_in_cycles(made, exchange, 2e-3, 1.25)
    for place, seconds in enumerate(times.tolist()):
        one = [made_one._replace(seconds=made_one.seconds[place]) for made_one in made]
        alone = sent_in_cycles(one, exchange, 2e-3, 1.25)
        assert found.total[place] == pytest.approx(alone.total, rel=1e-12)
        assert seconds * 5 == pytest.approx(alone.alone)


def test_an_exchange_takes_multiprocessors_and_memory() -> None:
    v100 = paleo.find_device("V100_SXM2_16GB")  # 80 multiprocessors, 900 GB/s
    # 8 workers at 60 GB/s: 105 GB/s on the bus are 8.75 multiprocessors of 80; memory has to read
    # and write 120 of 900 GB/s, which is more.
    assert slowdown(v100, 60e6, 1e-3, 8) == pytest.approx(1 / (1 - 120 / 900))
    # A slow link takes two multiprocessors.
    assert slowdown(v100, 1e6, 1e-3, 8) == pytest.approx(80 / 78)
    # None, alone; and an exchange that nothing could keep up with, half.
    assert slowdown(v100, 60e6, 1e-3, 1) == 1
    assert slowdown(v100, 0, 1e-3, 8) == 1
    assert slowdown(v100, 1e12, 1e-3, 8) == 2
    both = slowdown(v100, np.array([60e6, 1e6]), 1e-3, np.array([8, 1]))
    assert both.tolist() == pytest.approx([1 / (1 - 120 / 900), 1])  # type: ignore[union-attr]
    assert slowdown(paleo.find_device("XEON_8280"), 60e6, 1e-3, 8) == 1
