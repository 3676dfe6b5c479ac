"""Pictures: nothing overlaps, all can be told apart in grey, names are text, bytes stay."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click.testing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from validation import hide

import paleo
from paleo.cli import cli
from paleo.views.charts.base import MOST_BARS, Chart, Series
from paleo.views.charts.results import of_simulation
from paleo.views.plots.axis import Axis
from paleo.views.plots.style import context, look, looks
from paleo.views.plots.texts import Ruler

pytest.importorskip("matplotlib", reason="needs Matplotlib")

from matplotlib import colors
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import BarContainer
from matplotlib.text import Text

from paleo.step.memory import fit
from paleo.views import plots
from paleo.views.plots.scatter import scatter

LONG = "block_{:03}/a_rather_long_inner_block/convolution_with_bias_and_activation"


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def bars(count: int, names: str = "layer{:03}", kind: str = "bars", series: int = 2) -> Chart:
    """Return bars of so many layers, of which the longest stand all over the place."""
    layers = tuple(names.format(i) for i in range(count))
    return Chart(
        "time", kind, "Time by layer", "a net, batch 32, fp32, on a device, tiled", "layer",
        "time of a step without the update (ms)",
        tuple(
            Series(f"part {n}", layers, tuple((37 * i) % 101 + n + 0.5 for i in range(count)))
            for n in range(series)
        ),
    )  # fmt: skip


def lines(series: int, counts: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)) -> Chart:
    ideal = Series("ideal", counts, tuple(map(float, counts)), is_reference=True)
    return Chart(
        "speedup", "lines", "Speedup of a net", "on a device", "workers", "speedup over one worker",
        (
            *(
                Series(f"Scheme{n}AllReduce", counts, tuple(k ** (1 / (n + 1)) for k in counts))
                for n in range(series)
            ),
            ideal,
        ),
        True, True,
    )  # fmt: skip


def points(count: int) -> Chart:
    """Return a roofline in which many layers are near each other."""
    x = tuple(0.1 * 1.06 ** ((29 * i) % 150) for i in range(count))
    y = tuple(min(10.0, value) * (0.3 + (i % 7) / 10) for i, value in enumerate(x))
    return Chart(
        "roofline", "points", "Roofline", "a net on a device", "FLOP/B", "reached (TFLOP/s)",
        (
            Series("forward", x, y, tuple(f"res{i // 10}/branch{i}" for i in range(count))),
            Series("roof: 10 TFLOP/s", (0.05, 10, 2000), (0.05, 10.0, 10.0), is_reference=True),
        ),
        True, True,
    )  # fmt: skip


def shown_texts(figure: Any) -> list[tuple[str, Any]]:
    """Return the texts that a picture shows, with the rectangles that they take."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # texts get their places
    return [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip()
    ]


def overlapping(figure: Any) -> list[tuple[str, str]]:
    """Return the pairs of texts that overlap, and those that are not all in the picture."""
    texts = shown_texts(figure)
    found = [
        (a, b)
        for (a, first), (b, second) in itertools.combinations(texts, 2)
        if first.x0 < second.x1 and second.x0 < first.x1
        if first.y0 < second.y1 and second.y0 < first.y1
    ]
    edge = figure.bbox
    outside = [
        (text, "outside")
        for text, box in texts
        if box.x0 < edge.x0 or box.x1 > edge.x1 or box.y0 < edge.y0 or box.y1 > edge.y1
    ]
    return found + outside


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("count", [1, 5, 15, MOST_BARS])
@pytest.mark.parametrize(
    "names", ["layer{:03}", LONG, "汉字/слой_{:03}"], ids=["short", "long", "all"]
)
@pytest.mark.parametrize("kind", ["bars", "grouped"])
def test_no_labels_overlap_whatever_the_number_of_layers(count: int, names: str, kind: str) -> None:
    figure = plots.draw(bars(count, names, kind))
    assert overlapping(figure) == []
    height = figure.get_size_inches()[1]
    assert 1.5 < height < 10
    shown = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    named = [text for text in shown if re.search(r"\d{3}|activation", text)]
    assert len(named) >= count


@pytest.mark.slow
@pytest.mark.alike
@pytest.mark.parametrize("series", [1, 4, 9, 25])
def test_no_labels_overlap_whatever_the_number_of_schemes(series: int) -> None:
    assert overlapping(plots.draw(lines(series))) == []
    assert overlapping(plots.draw([lines(series), lines(1), lines(2), lines(series)])) == []


@pytest.mark.parametrize(
    "counts", [(1,), (1, 2), tuple(range(1, 130)), (1, 1000, 1001, 1_000_000), (3, 3_000_000)]
)
def test_no_numbers_along_an_axis_overlap(counts: tuple[int, ...]) -> None:
    figure = plots.draw(lines(2, counts))
    assert overlapping(figure) == []
    (axes,) = figure.axes
    assert len(axes.get_xticks()) >= 1
    assert not any("e" in text.get_text() for text in axes.get_xticklabels())  # no 1e6


def test_markers_of_many_points_stand_apart_and_points_in_order() -> None:
    for counts, least in ((tuple(range(1, 1001)), 10), ((1, 2, 4, 8), 4)):
        (axes,) = plots.draw(lines(2, counts[::-1])).axes
        line = axes.lines[-1]
        assert list(line.get_xdata()) == sorted(counts)
        marked = line.get_markevery()
        assert least <= len(marked) <= 50
        pixels = axes.transData.transform([(counts[i], 1) for i in marked])[:, 0] / axes.figure.dpi
        assert min(b - a for a, b in itertools.pairwise(pixels)) > 0.11  # inches


def test_one_number_of_workers_is_one_tick() -> None:
    for counts, shown in (((1,), ["1"]), ((1, 2), ["1", "2"])):
        (axes,) = plots.draw(lines(2, counts)).axes
        assert [text.get_text() for text in axes.get_xticklabels()] == shown
    (axes,) = plots.draw(lines(2, tuple(range(1, 1001)))).axes
    assert all(float(place) == int(place) for place in axes.get_xticks())


@pytest.mark.slow
def test_a_name_wider_than_its_panel_is_broken() -> None:
    name = "n" * 120
    charts = [replace(bars(3), title=f"Time of {name}", setting=name)] * 2
    figure = plots.draw(charts)
    assert overlapping(figure) == []
    shown = "".join(text for text, _ in shown_texts(figure) if set(text) == {"n"})
    assert shown == 3 * name  # a setting and two titles
    assert overlapping(plots.draw([replace(bars(3), title=name * 20)] * 2)) == []


def test_values_too_small_to_be_seen_are_no_long_numbers() -> None:
    series = Series("old", ("a", "b", "c"), (1.0, 1e-6, 0.0)), Series("new", ("a",) * 3, (1, 2, 3))
    chart = Chart("memory", "grouped", "T", "s", "layer", "memory (GiB)", series)
    beside = [text.get_text() for text in plots.draw(chart).axes[0].texts]
    assert beside == ["1.00", "<0.0001", "0", "1.00", "2.00", "3.00"]


def test_a_legend_is_read_row_by_row() -> None:
    names = tuple(f"a part with a long name, {letter}" for letter in "abcde")
    chart = bars(3, series=5)
    series = tuple(replace(own, name=name) for own, name in zip(chart.series, names, strict=True))
    (legend,) = plots.draw(replace(chart, series=series)).legends
    places = [(text.get_window_extent(), text.get_text()) for text in legend.get_texts()]
    read = [text for _, text in sorted(places, key=lambda own: (-round(own[0].y0), own[0].x0))]
    assert 1 < len({round(box.y0) for box, _ in places}) < 5  # several rows and columns
    assert read == list(names)


def test_well_known_parts_look_the_same_wherever_they_stand() -> None:
    both = looks(["forward", "backward", "weights", "outputs"])
    assert len({(each.colour, each.hatch) for each in both.values()}) == 4
    alone = looks(["outputs"])
    assert alone["outputs"] == both["outputs"] == looks(["a", "activations", "b"])["activations"]
    assert looks(["a", "forward", "b"])["a"] != both["forward"]
    parts = looks(["weights", "gradients", "optimizer state", "activations", "workspace"])
    assert len({(each.colour, each.hatch) for each in parts.values()}) == 5


@pytest.mark.parametrize("count", [1, 20, 150])
def test_a_roofline_names_the_first_points_where_there_is_room(count: int) -> None:
    figure = plots.draw(points(count))
    assert overlapping(figure) == []
    named = [text.get_text() for text in figure.axes[0].texts]
    assert named[0] == "res0/branch0"
    assert len(named) == 1 if count == 1 else 8 <= len(named) <= 14


def test_points_on_top_of_each_other_do_not_use_up_the_names() -> None:
    x, y = (1.0,) * 500 + (100.0,), (1.0,) * 500 + (5.0,)
    labels = (*(f"block{i}" for i in range(500)), "head")
    chart = points(1)
    one = replace(chart.series[0], x=x, y=y, labels=labels)
    figure = plots.draw(replace(chart, series=(one, chart.series[1])))
    assert [text.get_text() for text in figure.axes[0].texts] == ["block0", "head"]


def test_a_logarithmic_axis_shows_what_is_above_zero() -> None:
    nan = float("nan")
    shown = Series("a", (1, 2, 4, 8), (3.0, 0.0, None, 5.0), ("one", "two", "four", "eight"))
    for kind, expected in (("lines", [3.0, nan, nan, 5.0]), ("points", [3.0, 5.0])):
        chart = Chart("k", kind, "T", "s", "x", "y", (shown,), True, True)
        (axes,) = plots.draw(chart).axes
        (line,) = axes.lines
        assert list(map(float, line.get_ydata())) == pytest.approx(expected, nan_ok=True)
        names = [text.get_text() for text in axes.texts]
        assert names == (["one", "eight"] if kind == "points" else [])


@pytest.mark.slow
def test_all_in_one_picture_overlap_nowhere() -> None:
    figure = plots.draw([bars(30, LONG), points(60), lines(5), bars(3), bars(9, series=5)])
    assert overlapping(figure) == []


def test_this_test_of_overlaps_can_fail() -> None:
    figure = plots.draw(bars(5))
    figure.text(0.5, 0.5, "in the middle of it")
    figure.text(0.51, 0.5, "of it")
    figure.text(0.99, 0.5, "beyond the edge")
    assert [pair[1] for pair in overlapping(figure)] == ["of it", "outside"]


def luminance(colour: Any) -> float:
    """Return what is left of a colour in grey, 0 to 1 (Rec. ITU-R BT.709)."""
    red, green, blue = colors.to_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_lines_are_told_apart_without_colours() -> None:
    figure = plots.draw(lines(25))
    own = [line for line in figure.axes[0].lines if line.get_marker() != "None"]
    looks = {(vars(line)["_unscaled_dash_pattern"], line.get_marker()) for line in own}
    assert len(own) == len(looks) == 25
    # Of eight, each has its own dashes and its own marker.
    assert len({look(number).dash for number in range(8)}) == 8
    assert len({look(number).marker for number in range(8)}) == 8
    (ideal,) = [line for line in figure.axes[0].lines if line.get_marker() == "None"]
    assert ideal.get_linewidth() < own[0].get_linewidth()


def test_bars_are_told_apart_without_colours() -> None:
    figure = plots.draw(bars(5, series=8))
    own = [each for each in figure.axes[0].containers if isinstance(each, BarContainer)]
    assert len({each.patches[0].get_hatch() for each in own}) == len(own) == 8
    first, second = (luminance(each.patches[0].get_facecolor()) for each in own[:2])
    assert abs(first - second) > 0.25


def test_lines_are_dark_enough_for_paper() -> None:
    assert all(luminance(look(number).colour) < 0.7 for number in range(20))


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "$x_1$ and $y^2$", r"\frac{1}{2}", "слой/層", "a\nb\tc"]
)
def test_names_are_shown_as_they_are(name: str) -> None:
    chart = Chart("k", "bars", name, name, "net", "s", (Series(name, (name, "other"), (1.0, 2.0)),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plots.draw(chart)
        image = plots.image(figure, "svg")
    shown = [text for text, _ in shown_texts(figure)]
    expected = {"слой/層": r"слой/\u5c64", "a\nb\tc": r"a\nb\tc"}.get(name, name)
    assert shown.count(expected) == 3  # title, setting, and beside the bar
    assert not any(text.get_parse_math() for text in figure.findobj(Text))
    assert b"<script>" not in image


@pytest.mark.slow
@pytest.mark.parametrize("ending", plots.IMAGES)
def test_the_same_chart_gives_the_same_bytes(ending: str) -> None:
    first, second = (plots.image(plots.draw(bars(5)), ending) for _ in range(2))
    assert first == second
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    assert not re.search(rb"<dc:date>|CreationDate", first)


@pytest.mark.slow
def test_nothing_of_matplotlib_is_changed_or_looked_at() -> None:
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcParams["axes.grid"] = True
        matplotlib.rcParams["font.size"] = 31
        before = dict(matplotlib.rcParams)
        other = plots.image(plots.draw(lines(3)), "svg")
        assert dict(matplotlib.rcParams) == before
    assert other == plots.image(plots.draw(lines(3)), "svg")
    code = "import sys; sys.path[:0] = ['.', 'tests/helpers']\n"
    code += "from paleo.views import plots; from tests.views.test_plots import bars\n"
    code += "plots.image(plots.draw(bars(3)), 'png'); print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_a_file_has_the_title_of_its_picture() -> None:
    figure = plots.scaling(paleo.simulate("nin", device="K20X", scaling="strong", schemes="all"))
    said = "Speedup of nin, Training step of nin, Efficiency of nin, Parts of a training step by "
    svg = plots.image(figure, "svg").decode()
    assert svg.count("<title>") == 1
    assert f"<title>{said}" in svg
    assert said.encode() in plots.image(figure, "png")[:1000]
    odd = plots.draw(replace(bars(2), setting="a <b>\x1b & 汉"))
    assert "a &lt;b&gt;" in plots.image(odd, "svg").decode()
    assert plots.image(odd, "pdf").startswith(b"%PDF")


def test_units_and_settings_are_in_the_picture() -> None:
    figure = plots.scaling(paleo.simulate("nin", scaling="weak", device="K20X"))
    shown = [text for text, _ in shown_texts(figure)]
    assert "Speedup of nin" in shown
    assert "time of a step (ms)" in shown
    assert "ideal" in shown
    assert any("K20X, ethernet, data-parallel, weak scaling, batch 128" in text for text in shown)


@pytest.mark.slow
def test_each_result_has_its_picture() -> None:
    summary = paleo.summarize("alex_v2", device="K80")
    titles = [
        [text for text, _ in shown_texts(figure) if text[:1].isupper() and " of " in text + " of "]
        for figure in (plots.layers(summary), plots.layers([paleo.summarize("alex_v2")]))
    ]
    assert {"Time by layer", "Weights and outputs by layer", "Roofline"} <= set(titles[0])
    assert {"Weights and outputs by layer", "Computation by layer"} <= set(titles[1])
    for figure in (
        plots.layers(summary),
        plots.difference(paleo.compare("nin", device=["K40", "K80"])),
        plots.memory(fit("vgg16", 32)),
        plots.training(paleo.metrics("nin", epochs=1, dataset="imagenet", workers=[1, 2])),
        plots.scaling(paleo.simulate("alex_v2_4gpu", parallel="model")),
        plots.scaling(paleo.simulate("alex_v2_4gpu", parallel="hybrid", hybrid_workers=4)),
    ):
        assert overlapping(figure) == []


def test_a_validation_is_drawn_around_what_it_is_held_against() -> None:
    points = Series("all (2)", (1e-3, 2e-3), (2e-3, 1e-3))
    same = Series("same", (5e-4, 4e-3), (5e-4, 4e-3), is_reference=True)
    chart = Chart("k", "points", "T", "s", "measured (s)", "predicted (s)", (points, same))
    figure = scatter(chart)
    (axes,) = figure.axes
    assert axes.get_xlim() == axes.get_ylim() == (5e-4, 4e-3)
    (drawn,) = axes.collections
    assert drawn.get_offsets().tolist() == [[1e-3, 2e-3], [2e-3, 1e-3]]
    shown = [text for text, _ in shown_texts(figure)]
    # Title and setting, too, and what the line is.
    assert {"measured (s)", "predicted (s)", "all (2)", "T", "s", "same"} <= set(shown)
    assert overlapping(figure) == []


def test_what_is_below_zero_goes_to_the_left() -> None:
    parts = (("a", 3.0), ("b", -2.0), ("c", 1.0))
    series = tuple(Series(name, ("one",), (value,)) for name, value in parts)
    chart = Chart("k", "bars", "T", "s", "part", "s", series)
    (axes,) = plots.draw(chart).axes
    spans = [
        (bar.get_x(), bar.get_x() + bar.get_width())
        for each in axes.containers
        if isinstance(each, BarContainer)
        for bar in each.patches
    ]
    assert spans == [(0, 3), (0, -2), (3, 4)]
    assert axes.get_xlim()[0] < -2


def test_a_picture_of_nothing_or_of_too_much_is_refused() -> None:
    nothing = Chart("k", "lines", "Cost", "s", "x", "y", (Series("a", (1, 2), (None, None)),))
    for charts in (nothing, [bars(3), nothing]):
        with pytest.raises(paleo.SettingError, match=r"^plot: Cost: there is nothing to draw$"):
            plots.draw(charts)
    with pytest.raises(paleo.SettingError, match=r"^plot: there is nothing to draw$"):
        plots.draw([])
    with pytest.raises(paleo.SettingError, match=r"25 charts are too many .*at most 24"):
        plots.draw([bars(1)] * 25)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "nin"),
        ("simulate", "alex_v2_2gpu", "--parallel=model"),
        ("summary", "nin"),
        ("summary", "nin", "--device=K80"),
        ("compare", "nin", "--set=cccp4.filter[3]=512"),
        ("compare", "nin", "vgg16", "--totals"),
        ("memory", "nin", "alex_v2"),
        ("metrics", "nin"),
    ],
    ids=" ".join,
)
def test_commands_write_a_picture_beside_their_table(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    plain = call(*arguments).stdout
    path = tmp_path / "plot.SVG"
    assert call(*arguments, f"--plot={path}").stdout == plain
    assert path.read_bytes().startswith(b"<?xml")
    assert [each.name for each in tmp_path.iterdir()] == ["plot.SVG"]


def test_what_cannot_be_drawn_is_said_in_one_line_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(target: str, net: str = "no_such_net") -> str:
        result = call("simulate", net, f"--plot={target}", status=1)
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        return result.stderr.removeprefix("paleo: ").rstrip("\n")

    ends = "a plot is a file that ends in one of .png, .svg, .pdf"
    assert said("") == "expected the name of a file to write, got an empty one"
    assert said("plot.jpeg") == f"plot.jpeg: {ends}"
    there_is_none = tmp_path / "none" / "plot.svg"
    assert said(str(there_is_none)).startswith(f"{there_is_none}: cannot be written: ")
    hide(monkeypatch, "matplotlib")
    asked = tmp_path / "plot.svg"
    extra = 'a plot needs Matplotlib; install it with: pip install "paleo[plot]"'
    assert said(str(asked)) == extra
    assert said("plot.txt") == f"plot.txt: {ends}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_link", [False, True])
def test_a_trace_does_not_replace_the_picture(
    is_link: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = "link.json" if is_link else "x.svg"
    if is_link:
        Path(trace).symlink_to("x.svg")
    result = call("simulate", "nin", "--plot=./x.svg", f"--trace={trace}", status=2)
    assert result.stdout == ""
    assert result.stderr == (
        f"paleo: --plot and --trace both name {trace} (see paleo simulate --help)\n"
    )
    assert not Path("x.svg").exists()


def test_too_many_nets_are_said_before_anything_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    result = call("simulate", *["nin"] * 9, "--scaling=weak", f"--plot={path}", status=1)
    assert result.stdout == ""
    assert result.stderr == (
        "paleo: plot: 36 charts are too many for one picture (at most 24); choose fewer nets or "
        "settings\n"
    )
    assert not path.exists()


def test_the_charts_of_runs_stand_in_groups() -> None:
    charts = of_simulation(paleo.simulate("nin", workers=(1, 2), scaling=("weak", "strong")))
    assert [chart.key for chart in charts] == ["speedup", "step", "efficiency", "parts"] * 2


@settings(deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(3, 1e9), st.floats(3.1, 5.0), st.booleans())
def test_a_logarithmic_axis_has_three_labels_or_more(
    low: float, factor: float, length: float, upright: bool
) -> None:
    with context():
        axis = Axis.around([low, low * factor], is_log=True)
        ticks = axis.ticks(Ruler(), 8.5, length, upright=upright)
    assert len(ticks.places) == len(ticks.texts) >= 3
    assert all(axis.low <= place <= axis.high for place in ticks.places)
    assert len(set(ticks.texts)) == len(ticks.texts)


def strength(line: Any) -> float:
    """Return how much ink a line has for its length: as wide, as dark, without its gaps."""
    _, dashes = vars(line)["_unscaled_dash_pattern"]
    inked = sum(dashes[::2]) / sum(dashes) if dashes else 1.0
    alpha = 1.0 if line.get_alpha() is None else line.get_alpha()
    ink: float = line.get_linewidth() * inked * alpha * (1 - luminance(line.get_color()))
    return ink


@pytest.mark.parametrize("place", range(8))
def test_the_line_to_look_at_is_the_strongest(place: int) -> None:
    chart = lines(8)
    series = list(chart.series)
    series[place] = replace(series[place], chosen="the best")
    (axes,) = plots.draw(replace(chart, series=tuple(series))).axes
    own = {line.get_marker(): line for line in axes.lines if line.get_marker() != "None"}
    first, *others = sorted(own.values(), key=strength, reverse=True)
    assert first.get_marker() == look(place).marker
    assert strength(first) > 1.3 * max(map(strength, others))
    patterns = {vars(line)["_unscaled_dash_pattern"] for line in own.values()}
    assert len(patterns) == 8


@pytest.mark.parametrize("count", [1, 20, 150])
def test_the_names_of_a_roofline_keep_off_points_and_roof(count: int) -> None:
    (axes,) = (figure := plots.draw(points(count))).axes
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    *series, roof = sorted(axes.lines, key=lambda line: line.get_marker() == "None")
    half = series[0].get_markersize() / 72 / 2 * figure.dpi
    centres = [xy for line in series for xy in axes.transData.transform(line.get_xydata())]
    path = axes.transData.transform(roof.get_xydata())
    for text in axes.texts:
        box = text.get_window_extent()
        for x, y in centres:
            beside = box.x1 <= x - half or x + half <= box.x0
            assert beside or box.y1 <= y - half or y + half <= box.y0, text
        for (x, y), (to_x, to_y) in itertools.pairwise(path):
            for i in range(201):
                at = (x + (to_x - x) * i / 200, y + (to_y - y) * i / 200)
                assert not box.contains(*at), text


def test_bands_are_shaded_around_the_line_to_look_at() -> None:
    chart = lines(3)
    banded = [
        replace(
            own, low=tuple(0.9 * y for y in own.y if y), high=tuple(1.5 * y for y in own.y if y)
        )
        for own in chart.predictions
    ]
    chosen = [replace(banded[0], chosen="the best"), *banded[1:]]
    for series, shades in ((banded[:1], 1), (banded[:2], 2), (banded, 0), (chosen, 1)):
        (axes,) = plots.draw(replace(chart, series=tuple(series))).axes
        assert len(axes.collections) == shades
    assert axes.get_ylim()[1] > 1.5 * 128  # of the first line, which is ideal


def test_a_bar_that_would_dwarf_all_others_is_broken_off() -> None:
    names = (*"abc", "97 others")
    series = Series("a", names, (4.0, 2.0, 1.0, 900.0)), Series("b", names, (0.0, 1.0, 0.0, 100.0))
    chart = Chart("k", "bars", "T", "s", "layer", "ms", series, others=97)
    assert chart.others_scale == pytest.approx(1.25 * 4 / 1000)
    (axes,) = plots.draw(chart).axes
    assert axes.get_xlim()[1] < 10
    assert [text.get_text() for text in axes.texts] == ["1,000"]
    near = replace(chart, series=(replace(series[0], y=(4.0, 2.0, 1.0, 4.5)),))
    assert near.others_scale == 1
    assert list(plots.draw(near).axes[0].texts) == []


def test_panels_side_by_side_are_as_high_as_each_other() -> None:
    for count in (3, MOST_BARS):
        charts = [replace(each, setting="s") for each in (bars(count), points(20), lines(3))]
        heights = [axes.get_position().height for axes in plots.draw(charts).axes]
        assert min(heights) > 0.5 * max(heights)
    tops = [round(axes.get_position().y1, 3) for axes in plots.draw([bars(3)] * 4).axes]
    assert [tops.count(top) for top in dict.fromkeys(tops)] == [2, 2]  # not three and one
