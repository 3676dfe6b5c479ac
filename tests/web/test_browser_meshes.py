"""Devices that share a net on the page, in a browser: settings, the schedule, stages, reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import View, violations, violations_in_both
from click.testing import CliRunner

from paleo.cli import cli

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

MESH = (
    "net=gpt2", "workers=16", "tp=2", "pp=4", "global_batch=16", "dtype=bf16", "seq_len=128",
    "dataset=",
)  # fmt: skip
WIDTH = "document.documentElement.scrollWidth"
BARS = "[data-key=schedule] g[aria-label=bar] rect"


def opened(view: View, *more: str) -> View:
    view.open("&".join((*MESH, *more))).shows(*MESH, *more)
    return view


def test_settings_of_a_mesh_are_out_of_sight_without_a_cluster(view: View) -> None:
    view.open("net=lenet5&cluster=").shows("net=lenet5", "cluster=")
    box = view.page.locator("#box-mesh")
    assert not box.is_visible()
    view.page.select_option("#cluster", "dgx_a100")
    view.shows("net=lenet5")
    assert box.is_visible()
    assert box.get_attribute("open") is None
    # What is set stays in sight, so that it can be taken back.
    view.open("net=lenet5&cluster=&pp=2").shows("net=lenet5", "cluster=", "pp=2")
    assert box.get_attribute("open") == ""
    assert view.page.input_value("#pp") == "2"


def test_the_keyboard_cuts_a_net_into_stages(view: View) -> None:
    view.open("net=gpt2&seq_len=128&batch_size=8").shows("net=gpt2", "seq_len=128", "batch_size=8")
    view.page.focus("#box-mesh summary")
    view.page.keyboard.press("Enter")
    view.page.keyboard.press("Tab")
    assert view.page.evaluate("document.activeElement.id") == "tp"
    view.page.keyboard.press("Tab")
    view.page.keyboard.type("4")
    view.page.keyboard.press("Tab")
    view.shows("net=gpt2", "seq_len=128", "batch_size=8", "pp=4")
    assert view.text("[data-key=schedule] figcaption") == "Schedule of 4 stages of gpt2 seq=128"
    view.page.focus("#schedule")
    view.page.keyboard.press("ArrowDown")
    view.shows("net=gpt2", "seq_len=128", "batch_size=8", "pp=4", "schedule=gpipe")
    assert view.page.locator("#table-stages tbody tr").count() == 4


@pytest.mark.parametrize("width", [1280, 390])
def test_a_schedule_fits_the_window_and_axe_finds_nothing(
    new_view: Callable[..., View], server: str, width: int
) -> None:
    view = new_view(server, viewport={"width": width, "height": 844})
    opened(view)
    assert view.page.evaluate(WIDTH) <= width
    # 8 micro-batches go forward and back on 4 stages, each of which updates; gradients may be
    # exchanged beside the backward pass.
    bars = view.page.locator(BARS)
    assert bars.count() in (4 * 8 * 2 + 4, 4 * 8 * 2 + 8)
    picture = view.page.locator("[data-key=schedule] .picture svg").bounding_box()
    assert picture["x"] >= 0
    assert picture["x"] + picture["width"] <= width
    rows = view.page.locator("[data-key=schedule] [aria-label='y-axis tick label'] text")
    assert rows.all_text_contents() == [f"stage {i}" for i in range(4)]
    left = view.page.locator("[data-key=schedule] svg [aria-label=bar]").bounding_box()["x"]
    for box in (text.bounding_box() for text in rows.all()):
        assert box["x"] >= picture["x"]
        assert box["x"] + box["width"] <= left
    assert violations_in_both(view.page) == []
    view.page.click("#tab-memory")
    view.shows(*MESH, "view=memory")
    assert view.page.locator("[data-key=stage_memory] g[aria-label=bar] rect").count() >= 8
    assert view.page.evaluate(WIDTH) <= width
    assert violations_in_both(view.page) == []


def test_a_schedule_says_what_it_shows(view: View) -> None:
    opened(view)
    picture = view.page.locator("[data-key=schedule] [role=img]")
    said = str(picture.get_attribute("aria-label"))
    assert said.startswith("Schedule of 4 stages of gpt2 seq=128: what each stage does over time")
    assert "forward, backward" in said
    assert "gaps are waiting" in said
    assert picture.get_attribute("aria-describedby") == "table-stages"
    legend = view.page.locator("[data-key=schedule] .legend li").all_text_contents()
    assert legend[:2] == ["forward", "backward"]
    colours = "all => [...new Set(all.map(each => each.getAttribute('fill')))]"
    assert len(view.page.locator(BARS).evaluate_all(colours)) == len(legend)


def test_a_mistake_stands_below_its_control_and_opens_its_group(view: View) -> None:
    view.refused = True
    opened(view)
    view.page.fill("#micro_batch", "3")
    view.page.keyboard.press("Tab")
    said = "8 samples of a share of the data do not divide by 3"
    assert said in view.text("#error-micro_batch")
    assert violations(view.page) == []


def test_what_does_not_fit_is_said_with_plans_that_would(view: View) -> None:
    query = (
        "net=llama3_8b", "cluster=dgx_h100", "workers=16", "micro_batch=1", "batch_size=4",
        "dtype=mixed_bf16", "optimizer=adamw", "dataset=", "view=memory",
    )  # fmt: skip
    view.open("&".join(query)).shows(*query)
    assert view.text("#answer").startswith("It does not fit: ")
    assert view.cells("table-fitting")[0][0].startswith("--zero=")
    assert "--zero=" in dict(view.headlines())["what would fit"]
    assert violations(view.page) == []
    view.page.fill("#zero", "3")
    view.page.keyboard.press("Tab")
    view.shows(*query, "zero=3")
    assert not view.page.locator("#fitting-table").is_visible()


def test_a_report_has_the_same_without_a_server(
    new_view: Callable[..., View], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    line = "report gpt2 --cluster=dgx_a100 --dtype=bf16 --seq_len=128 --tp=2 --pp=4 --num_workers=8"
    result = CliRunner().invoke(cli, [*line.split(), "--global_batch=8", "-o", str(path)])
    assert result.exit_code == 0, result.output
    view = new_view(path.as_uri(), viewport={"width": 390, "height": 844})
    view.open()
    view.page.wait_for_selector("#headlines dd")
    bars: Any = view.page.locator(BARS)
    assert bars.count() >= 4 * 8 * 2
    view.page.click("#tab-memory")
    assert len(view.cells("table-memory")) == 4
    assert view.page.evaluate(WIDTH) <= 390
    assert violations(view.page) == []
