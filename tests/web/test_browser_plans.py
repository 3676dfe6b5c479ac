"""The best plans on the page, in a browser: asked for where they are looked at."""

from __future__ import annotations

import pytest
from browser import View, violations

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

SETTINGS = ("net=lenet5", "workers=4", "dataset=mnist")


def test_the_best_plans_have_a_tab(view: View) -> None:
    view.open("&".join(SETTINGS)).shows(*SETTINGS)
    assert view.page.text_content("#plans-answer") == ""
    view.page.click("#tab-plans")
    view.shows(*SETTINGS, "view=plans")
    assert view.text("#plans-answer").startswith("Best: dgx a100, 4 devices, batch ")
    assert view.page.locator("#table-plans tbody tr").count() == 10
    said = view.text("[data-key=plan_memory] figcaption")
    assert said == "Memory of a device against time of lenet5"
    assert "paleo plan lenet5" in view.text("#commands")
    assert violations(view.page) == []


def test_why_there_is_no_plan_is_said_in_the_tab_alone(view: View) -> None:
    settings = ("net=llama3_70b", "workers=1", "batch_size=1", "dtype=fp32", "dataset=")
    view.refused = True
    view.open("&".join((*settings, "view=plans"))).shows(*settings, "view=plans")
    assert view.text("#plans-answer").startswith("no plan keeps to all limits")
    assert not view.page.locator("#plans-table").is_visible()
    assert not view.page.locator("#stale").is_visible()
