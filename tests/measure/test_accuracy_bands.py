"""What `benchmarks/accuracy.py --bands` writes and counts: the file of bands, and rows inside."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest
from benchmark_modules import benchmark_of

from paleo.costs.error_bands import INFERENCE, NET, Band, Like
from paleo.measure.validate.alike import Rows

benchmark = benchmark_of("error_bands")
NETS = Like(NET, INFERENCE, 16, "timm", "Ada")
PRODUCTS = Like("gemm", bits=8, software="", architecture="Ada")


def bands() -> Any:
    """Return bands of 250 rows of nets, 3 of 4 inside, and of 2 of products of two sources."""
    which = np.repeat([0, 1], [250, 2])
    sources = np.array(["one"] * 251 + ["two"])
    rows = Rows(np.zeros(252), (NETS, PRODUCTS), which, sources, sources)
    inside = np.array([1.0, 1.0, 1.0, 0.0] * 62 + [1.0, 0.0] + [1.0, np.nan])
    found = {NETS: Band(0.5, 2.0, 250, 0.8, sources=1), Like(NET): Band(0.25, 4, 250, 0.8)}
    return benchmark.Bands(found, rows, inside)


def test_the_file_of_bands_says_what_each_is_of() -> None:
    root = tomllib.loads(bands().file())
    assert root["coverage"] == benchmark.COVERAGE
    own, net = root["band"]
    assert own == {
        "kind": "net", "direction": "inference", "bits": 16, "software": "timm",
        "architecture": "Ada", "low": 0.5, "high": 2.0, "count": 250, "sources": 1,
    }  # fmt: skip
    assert net == {"kind": "net", "low": 0.25, "high": 4.0, "count": 250, "sources": 0}


def test_rows_inside_are_counted_and_each_source_once() -> None:
    found = bands()
    every, products, nets = found.totals
    # Of nets 62 x 3 + 1 of 250 rows; of products one row has no band.
    assert (every.name, every.rows) == ("all kinds", 251)
    assert nets.inside == pytest.approx(187 / 250)
    assert (products.rows, products.inside) == (1, 1.0)
    assert every.inside == pytest.approx(188 / 251)
    (part,) = found.parts  # the others have few rows
    assert (part.name, part.rows) == ("nets on Ada", 250)
    reached = {name: (value, is_met) for name, value, _, is_met in benchmark.figures(found)}
    assert reached["inside error bands, net"] == ("75 % of 250 rows", True)
    assert reached["inside error bands, all kinds"] == ("75 % of 251 rows", False)
    assert reached["inside error bands, nets on Ada"] == ("75 % of 250 rows", True)
    (row,) = found.table()  # without the wider one
    assert row[0] == "nets in inference in 16 bits by timm on Ada"
    assert row[1:] == ("250", "1", "-50 %", "+100 %", "75 %")
