"""The live demo and the report for everybody: accessibility, narrow windows, colours, keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import NET, View, net_file, violations, violations_in_both

from paleo.views.charts.base import MOST_BARS

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

STATIC = Path(__file__).parents[2] / "paleo/web/static"
LENET = "net=lenet5"
LIBRARIES = ("d3.min.js", "plot.umd.min.js")


@pytest.mark.parametrize("shown", ["workers", "layers", "memory"])
def test_axe_finds_nothing(view: View, shown: str) -> None:
    query = [LENET, *([f"view={shown}"] if shown != "workers" else [])]
    view.open("&".join(query)).shows(*query)
    assert violations_in_both(view.page) == []


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_narrow_window_scrolls_in_one_direction_only(
    new_view: Callable[..., View], server: str, width: int
) -> None:
    view = new_view(server, viewport={"width": width, "height": 740})
    query = ["net=vgg16", "view=layers"]
    view.open("&".join(query)).shows(*query)
    for tab in ("layers", "memory", "workers"):
        view.page.click(f"#tab-{tab}")
        view.page.wait_for_timeout(60)
        sizes = "[document.documentElement.scrollWidth, document.body.scrollWidth]"
        assert max(view.page.evaluate(sizes)) <= width
    assert violations(view.page) == []


#: Texts of the charts that are shown which begin left of their picture.
CUT_OFF = """() => [...document.querySelectorAll(".picture > svg")].flatMap(svg => {
    const left = svg.getBoundingClientRect().left;
    return [...svg.querySelectorAll("text")]
        .filter(text => text.getBoundingClientRect().left < left).map(text => text.textContent);
})"""
#: The names at the bars of the first chart of layers.
BARS = "#layers-charts figure:first-child [aria-label='y-axis tick label'] text"


@pytest.mark.parametrize("width", [360, 1280])
def test_names_of_layers_are_inside_their_chart_and_tell_layers_apart(
    new_view: Callable[..., View], server: str, width: int
) -> None:
    view = new_view(server, viewport={"width": width, "height": 800})
    view.open("net=inception_v3&view=layers").shows("net=inception_v3", "view=layers")
    assert view.page.evaluate(CUT_OFF) == []
    names = view.page.locator(BARS).all_text_contents()
    assert "Conv2d_1a_3x3" in names  # short enough for any width
    # All but the input take time; the longest have bars, the others are one.
    layers = view.page.locator("#table-layers tbody tr:not(.block)").count() - 1
    assert (len(names), names[-1]) == (MOST_BARS, f"{layers - MOST_BARS + 1} others")
    assert len(set(names)) == len(names)


def test_the_bar_of_a_net_of_one_layer_has_its_name(view: View) -> None:
    view.open(f"{LENET}&view=layers").shows(LENET, "view=layers")
    layers = {name: NET["layers"][name] for name in ("data", "conv")}
    view.upload("one.json", net_file(name="one", layers=layers))
    view.shows("view=layers", file="one.json")
    assert view.page.locator(BARS).all_text_contents() == ["conv"]
    assert view.page.locator("#memory-bar [aria-label='y-axis tick label']").count() == 0


LONG = "a" * 120
#: How wide the page is, in pixels.
WIDTH = "document.documentElement.scrollWidth"


@pytest.mark.parametrize("width", [320, 1280])
def test_a_long_name_of_a_net_widens_no_page(
    new_view: Callable[..., View], server: str, tmp_path: Path, width: int
) -> None:
    view = new_view(server, viewport={"width": width, "height": 800})
    view.open(LENET).shows(LENET)
    view.upload(f"{LONG}.json", net_file(name=LONG))
    view.shows(file=f"{LONG}.json")
    for tab in ("layers", "memory", "workers"):
        view.page.click(f"#tab-{tab}")
        assert view.page.evaluate(WIDTH) <= width
    (tmp_path / "long.json").write_bytes(net_file(name=LONG))
    made = opened(
        new_view,
        written(tmp_path, str(tmp_path / "long.json")),
        viewport={"width": width, "height": 800},
    )
    assert LONG in made.text("#heading")
    assert made.page.evaluate(WIDTH) <= width


def test_without_scripts_the_page_says_so_and_shows_no_controls(
    new_view: Callable[..., View], server: str
) -> None:
    view = new_view(server, java_script_enabled=False).open()
    assert "JavaScript" in view.text(".message.bad:visible")
    assert not view.page.locator("#settings").is_visible()


def test_axe_finds_nothing_where_there_is_an_error_an_upload_or_an_open_list(view: View) -> None:
    view.refused = True
    view.open(LENET).shows(LENET)
    view.upload("mine.json", net_file())
    view.shows(file="mine.json")
    view.page.fill("#batch_size", "-1")
    view.text("#error-batch_size")
    assert violations(view.page) == []
    view.page.click("#own-remove")
    view.page.fill("#batch_size", "128")
    view.page.select_option("#cluster", "")
    view.page.click("#device")
    assert view.page.locator("#box-cluster [role=option]").count() > 90
    assert violations(view.page) == []


def test_colours_follow_the_system_or_the_readers_choice(
    new_view: Callable[..., View], server: str
) -> None:
    view = new_view(server, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    line = (
        "getComputedStyle(document.querySelector('#workers-charts [stroke=\"var(--s0)\"]')).stroke"
    )
    view.open(LENET).shows(LENET)
    dark = view.page.evaluate(ground), view.page.evaluate(line)
    view.page.select_option("#theme", "light")
    light = view.page.evaluate(ground), view.page.evaluate(line)
    assert (dark, light) == (
        ("rgb(15, 19, 24)", "rgb(86, 180, 233)"),
        ("rgb(244, 246, 249)", "rgb(0, 114, 178)"),
    )
    assert violations(view.page) == []
    view.page.reload()
    view.shows(LENET)
    assert view.page.input_value("#theme") == "light"
    assert view.page.evaluate(ground) == light[0]
    view.page.select_option("#theme", "system")
    assert view.page.evaluate(ground) == dark[0]


def test_the_keyboard_reaches_and_works_everything(view: View) -> None:
    view.open(f"{LENET}&cluster=").shows(LENET, "cluster=")
    press = view.page.keyboard.press

    def focus() -> str:
        found = "document.activeElement.id || document.activeElement.dataset.export || ''"
        return str(view.page.evaluate(found))

    seen: list[str] = []
    press("Tab")
    assert view.page.evaluate("document.activeElement.className") == "skip"
    for _ in range(80):
        press("Tab")
        seen.append(focus())
        if seen[-1] == "memory.json":
            break
    controls = (
        "theme net file device price network workers-slider workers scheme batch_size-slider "
        "batch_size cost_model dtype optimizer use_pipeline fuse software ppp_comp-slider ppp_comp "
        "ppp_comm-slider ppp_comm dataset dataset_size epochs reset tab-workers "
        "simulate.csv simulate.json summary.csv memory.json"
    )
    order = [name for name in seen if name in controls.split()]
    assert order == [name for name in controls.split() if name in order]
    assert set(controls.split()) <= set(seen)

    view.page.focus("#net")
    press("ArrowDown")
    assert view.page.get_attribute("#net", "aria-expanded") == "true"
    assert view.page.locator("#box-net .active").inner_text() == "lenet5"
    press("Escape")
    assert view.page.get_attribute("#net", "aria-expanded") == "false"
    view.page.focus("#workers-slider")
    press("End")
    view.shows(LENET, "cluster=", "workers=128")
    view.page.focus("[name=scaling][value=weak]")
    press("ArrowDown")
    view.shows(LENET, "cluster=", "workers=128", "scaling=strong")
    view.page.focus("#fuse")
    press("Space")
    view.shows(LENET, "cluster=", "workers=128", "scaling=strong", "fuse=true")
    view.page.focus("#tab-workers")
    press("ArrowRight")
    assert focus() == "tab-layers"
    view.shows(LENET, "cluster=", "workers=128", "scaling=strong", "fuse=true", "view=layers")
    press("End")
    assert focus() == "tab-infer"
    view.shows(LENET, "cluster=", "workers=128", "scaling=strong", "fuse=true", "view=infer")
    press("ArrowRight")
    assert focus() == "tab-workers"


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_the_answer_comes_first_on_a_phone_and_beside_the_settings_elsewhere(
    new_view: Callable[..., View], server: str, width: int
) -> None:
    view = new_view(server, viewport={"width": width, "height": 844})
    view.open().shows()
    box = view.page.locator("#headlines").bounding_box()
    form = view.page.locator("#settings").bounding_box()
    assert box
    assert form
    if width == 390:
        assert box["y"] + box["height"] < 844  # on the first screen
        assert box["y"] < form["y"] < view.page.locator("#tab-workers").bounding_box()["y"]
    else:
        assert form["x"] + form["width"] <= box["x"]
    assert view.page.evaluate(WIDTH) <= width
    assert violations_in_both(view.page) == []


def test_a_window_that_is_turned_keeps_its_settings(view: View) -> None:
    view.open(LENET).shows(LENET)
    view.page.fill("#epochs", "7")
    among_the_results = view.page.locator("#results #settings")
    view.page.set_viewport_size({"width": 390, "height": 844})
    among_the_results.wait_for(state="attached")  # a media query reports a change a frame later
    view.page.set_viewport_size({"width": 1280, "height": 844})
    among_the_results.wait_for(state="detached")
    assert view.page.input_value("#epochs") == "7"
    assert view.page.locator("details[open]").count() == 3  # as it was, "Compare with" folded
    view.shows(LENET, "epochs=7")


def test_the_skip_link_leads_to_the_results(view: View) -> None:
    view.open(LENET).shows(LENET)
    view.page.keyboard.press("Tab")
    view.page.keyboard.press("Enter")
    assert view.page.evaluate("document.activeElement.id") == "results"


def test_the_headlines_are_said_once_a_change_is_over(view: View) -> None:
    view.open(LENET).shows(LENET)
    view.page.select_option("#scheme", "OneToAll")
    view.page.locator("#live", has_text="scheme: OneToAll").wait_for(state="attached")
    said = str(view.page.text_content("#live"))
    assert said.endswith(", ".join(f"{label}: {value}" for label, value in view.headlines()))
    assert view.page.get_attribute("#live", "aria-live") == "polite"


def test_charts_say_what_they_show_and_where_its_numbers_are(view: View) -> None:
    view.open(f"{LENET}&view=layers").shows(LENET, "view=layers")
    pictures = view.page.locator("[role=img]")
    labels = [pictures.nth(i).get_attribute("aria-label") for i in range(pictures.count())]
    shown = [label for label in labels if label]
    assert len(shown) >= 6  # speedup, step, efficiency, time, memory, layers, roofline
    assert any("speedup over one worker against workers" in label for label in shown)
    for i, label in enumerate(labels):
        if label:
            table = pictures.nth(i).get_attribute("aria-describedby")
            assert view.page.locator(f"table#{table}").count() == 1


def test_a_printed_page_has_all_rows_and_no_buttons(view: View) -> None:
    view.open("net=vgg16&view=layers").shows("net=vgg16", "view=layers")
    view.page.emulate_media(media="print")
    assert not view.page.locator("#exports").is_visible()
    heights = "e => [e.clientHeight, e.scrollHeight]"
    inner, whole = view.page.locator("#layers-table .scroll").evaluate(heights)
    assert inner >= whole - 1


@pytest.mark.parametrize("tab", ["workers", "layers", "memory"])
def test_a_printed_sheet_has_all_columns_and_totals_come_last(view: View, tab: str) -> None:
    parts = ["net=vgg16"] + [f"view={tab}"] * (tab != "workers")
    view.page.set_viewport_size({"width": 720, "height": 1000})  # of A4, without the margins
    view.open("&".join(parts)).shows(*parts)
    view.page.emulate_media(media="print")
    width = "e => [document.documentElement.clientWidth, document.documentElement.scrollWidth]"
    sheet, whole = view.page.locator("html").evaluate(width)
    assert whole <= sheet
    table = view.page.locator(f"#{tab}-table table").bounding_box()
    last = view.page.locator(f"#{tab}-table tr").last.bounding_box()
    assert table
    assert last
    assert last["y"] + last["height"] == pytest.approx(table["y"] + table["height"], abs=2)


def test_all_ticks_of_a_logarithmic_axis_have_their_number(view: View) -> None:
    for query in (f"{LENET}&workers=48", "net=vgg16&device=K80&view=layers"):
        view.open(query).shows(*query.split("&"))
        charts = "[data-key=roofline]" if "layers" in query else "[data-key=speedup]"
        for axis in ("x", "y"):
            group = f"{charts} g[aria-label='{axis}-axis tick"
            ticks = view.page.locator(f"{group}'] path").count()
            texts = view.page.locator(f"{group} label'] text").all_text_contents()
            assert len(texts) == ticks >= 3
            assert all(texts)


def test_lines_are_explained_once_and_the_best_is_the_strongest(view: View) -> None:
    several = (LENET, "cost_model=paleo2017")  # which has several schemes by itself
    view.open("&".join(several)).shows(*several)
    group = view.page.locator(".of-group:has(+ #workers-charts)")
    assert group.locator("li").all_text_contents()[-1] == "ideal"
    own = "#workers-charts figure:has([aria-label=line]) .legend"
    assert view.page.locator(own).count() >= 3
    assert view.page.locator(f"{own}:visible").count() == 0
    widths = "all => all.map(e => [parseFloat(e.getAttribute('stroke-width')), e.innerHTML])"
    for key in ("speedup", "step", "efficiency"):
        lines = view.page.locator(f"[data-key={key}] g[aria-label=line]").evaluate_all(widths)
        *others, best = [width for width, _ in lines]  # the last one lies above all
        assert best > 2 * max(others)
    assert view.page.locator("[data-key=parts] g[aria-label=bar]").is_visible()
    view.open(LENET).shows(LENET)  # of a cost model whose errors are known
    assert view.page.locator("[data-key=step] g[aria-label=area] path").count() == 1  # its band


def test_a_roofline_names_no_layer_twice(view: View) -> None:
    query = ("net=vgg16", "device=K80", "view=layers")
    view.open("&".join(query)).shows(*query)
    names = view.page.locator("[data-key=roofline] svg text.name").all_text_contents()
    assert len(names) >= 6
    assert len(set(names)) == len(names)


def test_the_style_that_plot_writes_is_the_one_that_is_allowed(view: View) -> None:
    view.open(LENET).shows(LENET)
    written = set(view.page.locator("svg style").all_text_contents())
    assert written == {(STATIC / "vendor/plot-style.css").read_text("utf-8")}


def test_the_page_has_nothing_inline_and_names_no_other_host() -> None:
    text = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", text)
    assert re.findall(r"<script(?! defer src=)(?! type=\"application/json\")", text) == []
    for path in STATIC.iterdir():
        if path.suffix in (".html", ".js", ".css"):
            found = re.findall(r"https?://[^\s\"']+", path.read_text("utf-8"))
            assert [each for each in found if "www.w3.org/2000/svg" not in each] == []
            assert "innerHTML" not in path.read_text("utf-8")
            assert len(path.read_text("utf-8").splitlines()) < 600
    names = {path.name for path in (STATIC / "vendor").iterdir()}
    assert {*LIBRARIES, "d3.LICENSE", "plot.LICENSE"} <= names


# The report: the same page without a server.


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("report"), "lenet5", "alex_v2")


def written(folder: Path, *nets: str) -> Path:
    """Return the path of a report on these nets."""
    from click.testing import CliRunner

    from paleo.cli import cli

    path = folder / "report.html"
    said = ["report", *nets, "--device=K20X", "--scaling=weak,strong", "-o", str(path)]
    said.append("--scheme=auto,OneToAll")
    result = CliRunner().invoke(cli, said, prog_name="paleo")
    assert result.exit_code == 0, result.output
    return path


def opened(new_view: Callable[..., View], report: Path, **options: Any) -> View:
    view = new_view(report.as_uri(), **options)
    view.open()
    view.page.wait_for_selector("#headlines dd")
    return view


def test_a_report_answers_without_a_server(new_view: Callable[..., View], report: Path) -> None:
    view = opened(new_view, report)
    assert view.page.locator("#upload, #reset, #copy-link, #batch_size").count() == 0
    first = view.headlines()
    view.page.click("#net")
    view.page.fill("#net", "alex_v2")
    view.page.keyboard.press("Enter")
    assert "alex_v2 on K20X" in view.text("#heading")
    assert view.headlines() != first
    view.page.check("[name=scaling][value=strong]")
    assert "strong scaling" in view.text("#heading")
    view.page.select_option("#scheme", "OneToAll")
    assert dict(view.headlines())["scheme"] == "OneToAll"
    view.page.focus("#workers-slider")
    view.page.keyboard.press("Home")
    view.page.locator("#headlines", has_text="1.00").wait_for()
    assert dict(view.headlines())["speedup over one worker"] == "1.00"
    assert view.text("#heading").endswith(", 1\u00a0worker")
    view.page.select_option("#workers", "32")
    view.page.locator("#heading", has_text="32\u00a0workers").wait_for()
    assert view.page.locator("#workers option").all_inner_texts() == (
        ["1", "2", "4", "8", "16", "32", "64", "128"]
    )
    view.page.click("#tab-layers")
    assert view.page.locator("#table-layers tbody tr").count() > 10
    name, data = view.download('[data-export="simulate.csv"]')
    assert name == "alex_v2-simulate.csv"
    assert data.startswith(b"net,device,")
    assert data.count(b"\nalex_v2,K20X,") >= 8


def test_axe_finds_nothing_in_a_report(new_view: Callable[..., View], report: Path) -> None:
    view = opened(new_view, report)
    assert violations_in_both(view.page) == []


def test_a_report_fits_a_narrow_window(new_view: Callable[..., View], report: Path) -> None:
    view = opened(new_view, report, viewport={"width": 320, "height": 700})
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 320
    assert violations(view.page) == []
