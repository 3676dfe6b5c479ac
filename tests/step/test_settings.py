"""Settings: declared once, refused where they are misspelt, found and checked together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import paleo
from paleo.step.declarations import declared
from paleo.step.estimates import estimate_forward
from paleo.step.scenario import SimulateSettings
from paleo.step.settings import SummarySettings
from paleo.studies.metrics import MetricsSettings
from paleo.studies.overview import OverviewSettings, Study
from paleo.studies.timeline import TimelineSettings

ASKED: list[Callable[..., Any]] = [
    lambda **settings: paleo.simulate("nin", **settings),
    lambda **settings: paleo.summarize("nin", **settings),
    lambda **settings: paleo.compare(["nin", "nin"], **settings),
    lambda **settings: paleo.metrics("nin", **settings),
    lambda **settings: paleo.timeline("nin", **settings),
    lambda **settings: Study("nin", **settings),
    lambda **settings: estimate_forward(paleo.build(paleo.load("nin")), "K80", **settings),
]


@pytest.mark.parametrize("ask", ASKED)
def test_an_unknown_setting_is_one_clear_line(ask: Callable[..., Any]) -> None:
    with pytest.raises(paleo.SettingError) as caught:
        ask(ppp_camp=0.5)
    (mistake,) = caught.value.mistakes
    assert mistake.message == "ppp_camp: unknown setting (did you mean 'ppp_comp'?)"


def test_every_kind_has_the_same_default_for_scaling() -> None:
    kinds = (SimulateSettings, MetricsSettings, TimelineSettings, OverviewSettings)
    assert {declared(kind)["scaling"].default for kind in kinds} == {"weak"}
    assert {declared(kind)["batch_size"].default for kind in kinds[:3]} == {128}
    assert declared(SummarySettings)["batch_size"].default is None


def test_a_declaration_knows_its_name_and_the_type_of_a_value() -> None:
    settings = declared(SimulateSettings)
    types = {"fuse": bool, "batch_size": int, "ppp_comp": float, "device": str, "workers": int}
    for name, kind in types.items():
        assert (settings[name].name, settings[name].type) == (name, kind)


def test_settings_given_with_a_scenario_take_the_place_of_its_own() -> None:
    scenario = paleo.scenario("nin", device="K80", batch_size=32, workers=4)
    changed = scenario.changed(workers=[2, 8])
    assert (scenario.workers, changed.workers) == ((4,), (2, 8))
    assert (changed.plan, changed.batch_size) == (scenario.plan, 32)
    assert paleo.simulate(scenario) == paleo.simulate("nin", device="K80", batch_size=32, workers=4)
    assert paleo.simulate(scenario, workers=[2, 8]) == paleo.simulate(changed)
