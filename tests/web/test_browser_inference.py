"""Inference on the page, in a browser: asked for where it is looked at."""

from __future__ import annotations

import pytest
from browser import View, violations

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

SETTINGS = (
    "net=llama3_2_1b", "device=H100_SXM", "workers=1", "batch_size=1", "dataset=",
    "infer_prompt=256", "infer_output=16", "infer_concurrency=1%2C4",
)  # fmt: skip


def test_inference_has_a_tab_with_its_curve_and_settings(view: View) -> None:
    view.open("&".join(SETTINGS)).shows(*SETTINGS)
    assert view.page.text_content("#infer-answer") == ""
    view.page.click("#tab-infer")
    view.shows(*SETTINGS, "view=infer")
    assert view.text("#infer-answer").startswith("First token ")
    assert view.page.locator("#table-infer tbody tr").count() == 2
    assert view.text("[data-key=serving] figcaption") == "Throughput and latency of llama3_2_1b"
    names = view.page.locator("[data-key=serving] svg text.name").all_text_contents()
    assert sorted(names) == ["1", "4"]
    assert "paleo infer llama3_2_1b" in view.text("#commands")
    assert view.page.locator("#box-infer[open]").count() == 1
    view.page.fill("#infer_output", "8")
    view.page.press("#infer_output", "Tab")
    view.shows(*SETTINGS[:6], "infer_output=8", SETTINGS[7], "view=infer")
    assert "--output=8" in view.text("#commands")
    assert violations(view.page) == []


def test_why_there_is_no_inference_is_said_in_the_tab_alone(view: View) -> None:
    settings = (*SETTINGS, "infer_decode=2")
    view.refused = True
    view.open("&".join((*settings, "view=infer"))).shows(*settings, "view=infer")
    assert view.text("#infer-answer").startswith("decode: is for devices that compute prompts")
    assert not view.page.locator("#infer-table").is_visible()
    assert not view.page.locator("#stale").is_visible()
