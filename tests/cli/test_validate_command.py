"""`paleo validate`: what it prints, in every format, its exit status and its plot."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from validation import call, device_file, hide, write

from paleo.measure.validate import validate
from paleo.views.charts.validation import validation_chart

FOUR = ("rows", "median_error", "mean_error", "bias")


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Return a file of three products that `roofline` says take 2, 4 and 6 us, and an all-reduce.

    Those of stratum "small" were measured at 4 us each, that of "large" at 3 us.
    """
    rows = [
        {
            "quantity": "op_us",
            "value": value,
            "network": "op:gemm",
            "op_shape": json.dumps({"M": m, "N": 100, "K": 100}),
            "device": device_file(tmp_path),
            "stratum": stratum,
        }
        for m, value, stratum in ((100, 4, "small"), (200, 4, "small"), (300, 3, "large"))
    ]
    rows.append({"quantity": "op_us", "value": 9, "network": "op:barrier", "device": "T4"})
    return write(tmp_path, rows)


def as_json(*arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(*arguments, "--format=json").stdout)
    return found


def test_a_table_has_a_line_for_each_group(measured: Path) -> None:
    lines = call(measured, "--cost_model=roofline", "-q").stdout.splitlines()
    assert lines[0] == "3 rows predicted by roofline"
    cells = [line.split() for line in lines[6:8]]
    # Large: 6 of 3 us. Small: -50 % and 0 %; the 90th percentile of 0 and 50 is 45.
    assert cells[0] == ["mine", "large", "1", *["100"] * 5, "mine:4"]
    assert cells[1] == ["mine", "small", "2", "25", "25", "-25", "45", "-50", "mine:2"]
    assert lines[9] == (
        "all rows, roofline: median error 50.0 %, mean 50.0 %, bias +0.0 %, 90th percentile 90.0 %"
    )
    assert lines[10:] == [
        "1 row is not predicted (--unpredicted lists them):",
        "  1  operator 'barrier' is not modelled",
    ]


def test_cost_models_stand_under_each_other(measured: Path) -> None:
    lines = call(measured, "--cost_model=roofline,tiled", "-q").stdout.splitlines()
    assert [line.split()[:3] for line in lines[6:10]] == [
        ["mine", "large", "roofline"],
        ["tiled", "1", lines[7].split()[2]],
        ["mine", "small", "roofline"],
        ["tiled", "2", lines[9].split()[2]],
    ]
    rows = list(
        csv.DictReader(
            io.StringIO(call(measured, "--cost_model=roofline,tiled", "--format=csv").stdout)
        )
    )
    assert [(row["stratum"], row["cost_model"]) for row in rows] == [
        ("large", "roofline"), ("large", "tiled"), ("small", "roofline"), ("small", "tiled"),
    ]  # fmt: skip
    assert "first_source" not in rows[0]
    assert float(rows[2]["median_error"]) == pytest.approx(0.25)


def test_json_has_groups_totals_and_reasons(measured: Path) -> None:
    found = as_json(measured, "--cost_model=roofline", "--by=device")
    assert (found["predicted"], found["not_predicted"], found["by"]) == (3, 1, ["device"])
    (group,) = found["groups"]
    assert group.pop("median_error") == pytest.approx(0.5)
    assert (group["device"], group["count"], group["worst_id"]) == ("round", 3, "mine:4")
    assert found["totals"][0]["p90_error"] == pytest.approx(0.9)
    assert found["unpredicted"] == [
        {
            "reason": "operator 'barrier' is not modelled", "source": "mine", "cost_model": None,
            "count": 1, "ids": ["mine:5"],
        }
    ]  # fmt: skip
    assert "rows" not in found


def test_rows_are_printed_on_request(measured: Path) -> None:
    found = as_json(measured, "--cost_model=roofline,tiled", "--rows")
    row = found["rows"][0]
    assert (row["id"], row["shape"], row["stratum"]) == ("mine:2", "M=100 N=100 K=100", "small")
    assert row["measured_s"] == pytest.approx(4e-6)
    assert row["roofline_s"] == pytest.approx(2e-6)
    assert row["roofline_error"] == pytest.approx(-0.5)
    assert {"tiled_s", "tiled_error"} <= set(row)
    text = call(measured, "--cost_model=roofline", "--rows").stdout
    assert "M=100 N=100 K=100" in text
    (first, *_) = csv.DictReader(io.StringIO(call(measured, "--rows", "--format=csv").stdout))
    assert {"id", "kind", "measured_s", "tiled_s"} <= set(first)


def test_rows_without_a_prediction_are_listed_on_request(measured: Path) -> None:
    lines = call(measured, "--unpredicted", "-q").stdout.splitlines()
    assert lines[0] == "1 row not predicted"
    assert lines[4].split("  ")[-1] == "mine:5"
    text = call(measured, "--unpredicted", "--format=csv").stdout
    assert text.splitlines()[1] == "mine,1,operator 'barrier' is not modelled,,mine:5"


def test_many_reasons_are_summed_up(tmp_path: Path) -> None:
    rows = [
        {"quantity": "step_ms", "value": 1, "network": f"mine{i}", "device": "T4"}
        for i in range(12)
    ]
    result = call(write(tmp_path, rows), status=1)
    assert result.stdout.splitlines()[-2:] == [
        "  1  unknown net 'mine5'",
        "  4  for 4 other reasons",
    ]


def test_the_status_is_1_where_a_median_is_above_the_limit(measured: Path) -> None:
    model = "--cost_model=roofline"
    assert call(measured, model, "--fail_above=100.1").stderr == ""
    result = call(measured, model, "--fail-above=30", "-q", status=1)
    assert result.stdout.startswith("3 rows predicted")  # printed all the same
    assert result.stderr == "paleo: mine, large: the median error is 100.0 %, above 30 %\n"
    result = call(measured, model, "--fail_above=10", "--by=", status=1)
    assert result.stderr == "paleo: all rows: the median error is 50.0 %, above 10 %\n"
    assert len(call(measured, model, "--fail_above=1", status=1).stderr.splitlines()) == 2
    # The first cost model alone decides.
    worse = call(measured, "--cost_model=tiled,roofline", "--fail_above=1e9")
    assert worse.stderr == ""
    result = call(measured, "--fail_above=-1", status=1)
    assert result.stderr == "paleo: fail_above: expected a number of 0 or more, got -1.0\n"


def test_without_any_prediction_the_status_is_1(tmp_path: Path) -> None:
    row = {"quantity": "step_ms", "value": 1, "network": "vgg16", "device": "H1000"}
    result = call(write(tmp_path, [row]), "--fail_above=99", status=1)
    assert result.stderr == "paleo: no row could be predicted\n"
    assert "unknown device 'H1000'" in result.stdout


def test_wrong_usage_has_status_2(measured: Path) -> None:
    assert call(measured, "--split=sideways", status=2).stderr
    assert call(measured, "--fail_above=much", status=2).stderr
    assert call(status=1).stderr == (
        "paleo: nothing to validate: no files, no operator tables and no served points\n"
    )
    result = call(measured, "--by=devise", status=1)
    assert result.stderr == "paleo: by: unknown label 'devise' (did you mean 'device'?)\n"


def test_options_without_effect_are_noted(measured: Path) -> None:
    assert call(measured, "--system=h100_sxm", "--folds=3").stderr.splitlines() == [
        "paleo: note: --system is for --operators, it has no effect here",
        "paleo: note: --folds is for --fit, it has no effect here",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_plot_is_written_whole(
    ending: str, begins: bytes, measured: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    path = tmp_path / f"plot.{ending}"
    call(measured, f"--plot={path}", "--cost_model=roofline,tiled")
    assert path.read_bytes().startswith(begins)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(
        ["mine.csv", path.name, "round.toml"]
    )


def test_a_plot_has_a_colour_for_each_group_or_cost_model(measured: Path, tmp_path: Path) -> None:
    chart = validation_chart(validate(measured, cost_models="roofline"))
    *one, same = chart.series
    assert [(series.name, series.x, series.y) for series in one] == [
        ("mine, large (1)", pytest.approx((3,)), pytest.approx((6,))),
        ("mine, small (2)", pytest.approx((4, 4)), pytest.approx((2, 4))),
    ]
    assert same.is_reference
    assert same.x == same.y == pytest.approx((2 / 1.5, 6 * 1.5))
    assert (chart.x_label, chart.y_label) == (
        "measured (\u00b5s)", "predicted by roofline (\u00b5s)",
    )  # fmt: skip
    assert chart.setting == "cost model roofline"
    several = validation_chart(validate(measured, cost_models=("tiled", "roofline")))
    assert several.setting == "cost models tiled, roofline"
    *two, _ = several.series
    assert [(series.name, len(series.x)) for series in two] == [
        ("tiled (3)", 3), ("roofline (3)", 3),
    ]  # fmt: skip
    rows = [
        {
            "quantity": "op_ms", "value": 1, "network": "op:gelu", "device": "T4",
            "op_shape": '{"cols":1}', "stratum": f"s{i:02}",
        }
        for i in (*range(12), 11)
    ]  # fmt: skip
    *many, _ = validation_chart(validate(write(tmp_path, rows, "many.csv"), by="stratum")).series
    # The largest, s11, and eight of the others have a colour of their own.
    assert len(many) == 10
    assert (many[8].name, many[9].name) == ("s11 (2)", "3 others (3)")


def test_a_plot_with_another_ending_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    result = call(tmp_path / "none.csv", "--plot=plot.jpeg", status=1)
    said = "paleo: plot.jpeg: a plot is a file that ends in one of .png, .svg, .pdf\n"
    assert result.stderr == said


def test_a_missing_package_names_the_extra(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, option, what, extra in (
        ("matplotlib", f"--plot={tmp_path / 'plot.png'}", "a plot needs Matplotlib", "plot"),
        ("scipy", "--fit=launch", "fitting needs SciPy", "validate"),
    ):
        with monkeypatch.context() as patch:
            hide(patch, package)
            result = call(measured, option, status=1)
        assert result.stdout == ""
        assert result.stderr == f'paleo: {what}; install it with: pip install "paleo[{extra}]"\n'
    assert not (tmp_path / "plot.png").exists()


def test_verbose_says_how_many_rows_there_are(measured: Path) -> None:
    assert call(measured, "--verbose").stderr == "paleo: 3 rows predicted, 1 not\n"


def test_a_fit_prints_both_errors(measured: Path) -> None:
    pytest.importorskip("scipy", reason="needs SciPy")
    text = call(measured, "--fit=launch", "--folds=3").stdout
    lines = text.splitlines()
    assert lines[0] == "constants of tiled, fitted"
    assert [line.split("  ")[0] for line in lines[6:8]] == ["Ampere", "Ampere"]
    assert "these rows" in lines[6]
    assert "rows left out" in lines[7]
    assert lines[-1] == "Ampere: 3 folds by shape"
    (found,) = as_json(measured, "--fit=launch", "--folds=3")["fits"]
    assert set(found) == {
        "of", "cost_model", "split", "folds", "constants", "on_bound", "in_sample", "held_out",
    }  # fmt: skip
    alone = call(measured, "--fit=launch", "--split=device", "--fit_per=device").stdout
    assert "round: only one device, so that none can be left out" in alone
