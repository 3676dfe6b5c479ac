"""Clusters on the page, in a browser: what stands beside them, tiers, mistakes, and reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import View
from click.testing import CliRunner

from paleo.cli import cli

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

LENET = "net=lenet5"
FIELDS = ("device", "network")


def tiers(page: Any) -> list[str]:
    return [" ".join(text.split()) for text in page.locator("#tiers .tier > p").all_inner_texts()]


def test_a_cluster_takes_the_place_of_device_and_network(view: View) -> None:
    view.open(f"{LENET}&cluster=").shows(LENET, "cluster=")
    shown = [view.page.locator(f"[data-key={key}]") for key in FIELDS]
    assert all(field.is_visible() for field in shown)
    view.page.select_option("#cluster", "dgx1_v100")
    view.shows(LENET, "cluster=dgx1_v100")
    assert not any(field.is_visible() for field in shown)
    assert "V100 SXM2 32GB of dgx1_v100" in view.text("#answer")
    assert "660 V100_SXM2_32GB" in view.text("#cluster-note")
    view.page.select_option("#cluster", "")
    view.shows(LENET, "cluster=")
    assert all(field.is_visible() for field in shown)


@pytest.mark.parametrize("width", [1280, 390])
def test_tiers_are_boxes_in_each_other_that_fit_the_window(
    new_view: Callable[..., View], server: str, width: int
) -> None:
    view = new_view(server, viewport={"width": width, "height": 844})
    query = (LENET, "cluster=dgx1_v100", "workers=16", "batch_size=1")
    view.open("&".join(query)).shows(*query)
    outer, inner = tiers(view.page)
    assert outer.startswith("fabric 2 x node (of 660), each by 4 x infiniband_edr")
    assert inner.startswith("node 8 x V100_SXM2_32GB (of 8), each by ")
    boxes = [box.bounding_box() for box in view.page.locator("#tiers .tier").all()]
    assert boxes[0]["x"] >= 0
    assert boxes[0]["x"] + boxes[0]["width"] <= width
    assert boxes[0]["x"] < boxes[1]["x"]
    assert boxes[0]["y"] < boxes[1]["y"]
    assert boxes[0]["y"] + boxes[0]["height"] > boxes[1]["y"] + boxes[1]["height"]
    assert view.page.evaluate("document.documentElement.scrollWidth") == width


def test_the_tier_that_holds_the_step_back_is_marked(view: View) -> None:
    query = ("net=alex_v2", "cluster=aws_p3dn", "workers=32", "batch_size=4", "scheme=ring")
    view.open("&".join(query)).shows(*query)
    marked = view.page.locator("#tiers .bounds > p").all_inner_texts()
    assert len(marked) == 1
    assert marked[0].startswith("instances ")
    assert "holds exchanges back" in marked[0]
    assert "exposed communication" in [label for label, _ in view.headlines()]


def test_the_page_opens_on_a_cluster_without_notes_and_folds_exchanges(view: View) -> None:
    view.open().shows()
    assert " of dgx_a100 train resnet50_v1_5 " in view.text("#answer")
    assert "behind a link of the inside of nodes" not in view.page.inner_text("#results")
    assert not view.page.locator("#accumulate").is_visible()
    view.page.select_option("#scheme", "parameter_server")
    view.page.click("#box-exchange summary")
    view.page.fill("#num_servers", "3")
    view.shows("scheme=parameter_server", "num_servers=3")
    assert ("scheme", "parameter_server") in [tuple(each) for each in view.headlines()]
    view.page.select_option("#scheme", "")
    view.shows()  # servers are of that scheme alone
    assert not view.page.locator("#num_servers").is_visible()
    view.open(f"{LENET}&jitter=0.1").shows(LENET, "jitter=0.1")
    assert view.page.locator("#jitter").is_visible()  # not folded where something is chosen


def test_more_workers_than_there_are_is_said_at_their_control(view: View) -> None:
    view.refused = True
    view.open(f"{LENET}&cluster=aws_g3&workers=4").shows(LENET, "cluster=aws_g3", "workers=4")
    view.page.fill("#workers", "5")
    view.page.keyboard.press("Tab")
    assert view.text("#error-workers") == "5, but cluster aws_g3 has 4 devices"
    view.page.fill("#workers", "2")
    view.page.keyboard.press("Tab")
    view.shows(LENET, "cluster=aws_g3", "workers=2")


def test_another_cluster_stands_beside(view: View) -> None:
    query = (LENET, "cluster=dgx1_v100", "other_cluster=dgx_a100")
    view.open("&".join(query)).shows(*query)
    assert "dgx_a100 trains about" in view.text("#beside-answer")


def test_a_report_has_a_choice_of_schemes_and_the_tiers(
    new_view: Callable[..., View], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    asked = ["report", "lenet5", "--cluster=dgx1_v100", "--scheme=auto,ring", f"--output={path}"]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    view = new_view(path.as_uri())
    view.page.goto(path.as_uri())
    assert "lenet5 on dgx1_v100" in view.text("#title")
    options = view.page.locator("#scheme option").all_inner_texts()
    assert options == ["the best exact", "auto", "ring"]
    view.page.select_option("#scheme", "ring")
    view.page.locator("#headlines [data-key=scheme] dd", has_text="ring").wait_for()
    assert [text.split()[0] for text in tiers(view.page)] == ["fabric", "node"]
    view.faults = [fault for fault in view.faults if path.name not in fault]


def test_a_report_has_a_choice_of_clusters(new_view: Callable[..., View], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    asked = ["report", "lenet5", "--cluster=dgx1_v100,aws_p3dn", f"--output={path}"]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    view = new_view(path.as_uri())
    view.page.goto(path.as_uri())
    assert view.page.locator("#cluster option").all_inner_texts() == ["dgx1_v100", "aws_p3dn"]
    assert " of dgx1_v100 train" in view.text("#answer")
    view.page.select_option("#cluster", "aws_p3dn")
    view.page.locator("#answer", has_text=" of aws_p3dn train").wait_for()
    assert [text.split()[0] for text in tiers(view.page)] == ["instances", "instance"]
    assert view.page.locator("#beside-table tbody tr").count() == 2
    view.faults = [fault for fault in view.faults if path.name not in fault]
