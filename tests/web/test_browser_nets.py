"""The best nets on the page, in a browser: asked for where they are looked at."""

from __future__ import annotations

import pytest
from browser import View, violations

pytest_plugins = ("browser_fixtures",)
pytestmark = pytest.mark.slow

SETTINGS = ("net=alexnet", "batch_size=8", "dtype=fp32", "workers=2")


def test_the_best_nets_have_a_tab(view: View) -> None:
    view.open("&".join(SETTINGS)).shows(*SETTINGS)
    assert view.page.text_content("#nets-answer") == ""
    view.page.click("#tab-nets")
    view.shows(*SETTINGS, "view=nets")
    assert view.text("#nets-answer").startswith("The best of 152,587,890,625 nets, exactly, has ")
    assert view.page.locator("#table-chosen tbody tr").count() == 16
    assert view.page.locator("#table-nets tbody tr").count() > 1
    assert view.text("[data-key=front_params] figcaption") == "Best nets of thesis"
    assert "paleo search alexnet --space=thesis" in view.text("#commands")
    assert violations(view.page) == []


def test_why_there_is_no_space_is_said_in_the_tab_alone(view: View) -> None:
    settings = ("net=gpt2", "batch_size=1", "workers=1", "seq_len=64")
    view.refused = True
    view.open("&".join((*settings, "view=nets"))).shows(*settings, "view=nets")
    assert view.text("#nets-answer").startswith("net: no design space suits it")
    for table in ("nets", "chosen"):
        assert not view.page.locator(f"#{table}-table").is_visible()
    assert not view.page.locator("#stale").is_visible()
