"""Charts of served models: curves, their front and bands, in characters and as a picture."""

from __future__ import annotations

import json
from typing import Any

import pytest

import paleo
from paleo.core.errors import SettingError
from paleo.costs.error_bands import Band
from paleo.views.charts.base import Chart, Series
from paleo.views.charts.results import of_serving
from paleo.views.charts_in_text import text_chart

LOAD: dict[str, Any] = {"prompt": 256, "output": 16, "concurrency": [8, 1]}
#: Ends of a band that are exact in floating point.
BAND = Band(0.5, 2.0, 10, 0.8)

CURVES = Chart(
    "k", "curves", "Curve", "a net", "x", "y",
    (
        Series("one", (4.0, 2.0), (1.0, 8.0), ("1", "8")),
        Series("other", (3.0, 1.0), (0.5, 2.0), ("1", "8")),
        Series("front", (2.0, 4.0), (8.0, 1.0), is_reference=True),
    ),
    notes=("numbers at points: requests at a time",),
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Any:
    """Return two places of which no band is known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paleo.studies.serving.answers.served_band", lambda *_: None)
        found = paleo.infer("llama3_8b", device=["H100_SXM", "L40S"], **LOAD)
        for each in found:  # which find their bands when they are asked for them
            assert each.asked.band is each.asked.first_band is None
        return found


def test_a_curve_has_a_line_for_each_place_from_the_smallest_load_on(found: Any) -> None:
    curve, first = of_serving(found)
    rows = [each.to_dict() for each in found]
    assert [series.name for series in curve.series] == ["H100 SXM", "L40S", "Pareto front"]
    assert curve.setting == "llama3_8b, 1 device, bf16, vLLM"
    for chart, key, other, factor in (
        (curve, "tokens_per_s_per_user", "tokens_per_s_per_gpu", 1),
        (first, "requests_per_s", "ttft_s", 1000),
    ):
        for series, own in zip(chart.predictions, (rows[1::-1], rows[:1:-1]), strict=True):
            assert series.labels == ("1", "8")
            assert series.x == tuple(row[key] for row in own)
            assert series.y == pytest.approx([factor * row[other] for row in own])
            assert not series.low
    assert first.y_label == "mean time to first token (ms)"


def test_the_front_is_of_all_places(found: Any) -> None:
    curve, first = of_serving(found)
    for chart, sign in ((curve, 1), (first, -1)):
        every: list[Any] = [
            at for one in chart.predictions for at in zip(one.x, one.y, strict=True)
        ]
        best = {
            at
            for at in every
            if not any(
                other != at and other[0] >= at[0] and sign * other[1] >= sign * at[1]
                for other in every
            )
        }
        (front,) = chart.references
        assert list(zip(front.x, front.y, strict=True)) == sorted(best)
    # The quicker device is ahead at either load.
    assert set(curve.references[0].x) == set(curve.predictions[0].x)


def test_the_band_of_a_rate_is_along_both_axes(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "paleo.studies.serving.answers.served_band", lambda plan, server, kind: BAND
    )
    again = paleo.infer("llama3_8b", device=["H100_SXM", "L40S"], **LOAD)
    curve, first = of_serving(again)
    line, before = curve.predictions[0], of_serving(found)[0].predictions[0]
    assert (line.x, line.y) == (before.x, before.y)
    # Half the time is twice the rate.
    assert line.low_x == tuple(x / 2 for x in line.x)
    assert line.high == tuple(2 * y for y in line.y if y)
    (x, other_x), (y, other_y) = line.x, line.y
    assert y is not None
    assert other_y is not None
    assert line.outline == [
        (x / 2, y / 2), (other_x / 2, other_y / 2), (2 * other_x, 2 * other_y), (2 * x, 2 * y),
    ]  # fmt: skip
    time = first.predictions[0]
    assert (time.low_x, time.low) == ((), tuple(y / 2 for y in time.y if y))
    assert curve.shaded == curve.predictions
    assert any(note.startswith("error band of each token: ") for note in curve.notes)
    assert any(note.startswith("error band of first tokens: ") for note in first.notes)
    assert json.loads(json.dumps(curve.to_dict()))["series"][0]["outline"][0] == [x / 2, y / 2]


def test_what_does_not_fit_or_grows_without_end_is_no_point() -> None:
    found = paleo.infer(
        "llama3_8b", device=["H100_SXM", "T4"], prompt=64, output=8, rate=[4, 1e5], requests=50,
        dtype=["fp16"],
    )  # fmt: skip
    curve, _ = of_serving(found)
    assert [series.labels for series in curve.predictions] == [("4/s",), ()]
    assert curve.notes[:2] == (
        "H100 SXM: the queue grows without end at 100,000/s, which is not drawn",
        "T4: what does not fit is not drawn",
    )
    with pytest.raises(SettingError, match="nothing to draw"):
        of_serving(found[2:])


def test_answers_of_one_token_have_first_tokens_alone() -> None:
    charts = of_serving(
        paleo.infer("llama3_8b", device="H100_SXM", prompt=64, output=1, concurrency=2)
    )
    assert [chart.key for chart in charts] == ["first_token"]


def test_curves_in_characters_mark_the_front() -> None:
    # 40 columns less an indent of 2, names of 10 ("4.00  1 *"), values of 5 and two gaps.
    assert text_chart(CURVES, 40, unicode=False).splitlines() == [
        "Curve", "a net", "bars: y", "",
        "* front",
        "",
        "one: x, name, y",
        "  4.00  1 *  1.00   ##",
        "  2.00  8 *  8.00   ####################",
        "",
        "other: x, name, y",
        "  3.00  1    0.500  #",
        "  1.00  8    2.00   #####",
        "",
        "note: numbers at points: requests at a",
        "  time",
    ]  # fmt: skip


def test_curves_as_a_picture_name_the_points_of_each_line() -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    from paleo.views.plots import draw

    (axes,) = draw(CURVES).axes
    assert [text.get_text() for text in axes.texts].count("8") == 2
    lines = [[tuple(at) for at in line.get_xydata()] for line in axes.lines]
    # In the order of the loads, whichever way they go; the front below.
    assert [(4.0, 1.0), (2.0, 8.0)] in lines
    front = lines.index([(2.0, 8.0), (4.0, 1.0)])
    assert axes.lines[front].get_zorder() < 2
