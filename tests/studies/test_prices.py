"""What `paleo.prices` finds, and what takes its place in metrics and overviews."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.cluster import prices as known
from paleo.cluster.prices import ON_DEMAND, SPOT, predefined_prices
from paleo.studies.overview import overview
from paleo.views.answers.base import device_named
from paleo.views.answers.prices import prices_answer
from paleo.views.tables.prices import amount

OWN = """
[[price]]
device = "T4"
provider = "Us"
amount = "0.25 EUR/h"
date = 2020-02-29
"""


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "today", lambda: datetime.date(2026, 11, 23))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text(OWN)
    return tmp_path / "mine.toml"


def test_all_prices_are_there_the_cheapest_of_a_device_first() -> None:
    found = paleo.prices()
    assert len(found) == sum(map(len, predefined_prices().values()))
    devices = list(dict.fromkeys(each.device for each in found))
    assert devices == sorted(predefined_prices())
    for device in devices:
        mine = [each.price for each in found if each.device == device]
        on_demand = [price.amount for price in mine if price.kind == ON_DEMAND]
        spot = [price.amount for price in mine if price.kind == SPOT]
        assert [price.amount for price in mine] == sorted(on_demand) + sorted(spot)
        (usual,) = [each.price for each in found if each.device == device and each.is_usual]
        assert usual == paleo.find_device(device).newest_price


def test_prices_are_chosen_by_device_provider_kind_and_currency() -> None:
    found = paleo.prices(["T4", "H100_SXM"], provider=["aws", "Google cloud"])
    assert [(each.device, each.price.provider) for each in found] == [
        ("T4", "AWS"),
        ("H100_SXM", "AWS"),
        ("H100_SXM", "Google Cloud"),
    ]
    assert {each.price.kind for each in paleo.prices(kind="spot")} == {"spot"}
    assert paleo.prices("T4", kind="spot") == ()
    assert paleo.prices("T4", currency="usd") == paleo.prices("T4")
    assert paleo.prices(currency="EUR") == ()
    assert paleo.prices(paleo.find_device("CPU_I7"), provider="AWS") == ()


def test_a_file_of_ones_own_takes_the_place_of_what_is_known(own: Path) -> None:
    (each,) = paleo.prices("T4", prices=own)
    assert (each.price.amount, each.price.currency, each.is_usual) == (0.25, "EUR", True)
    assert paleo.prices("L4", prices=own) == paleo.prices("L4")
    assert len({each.device for each in paleo.prices(prices=own)}) == len(predefined_prices())


def test_every_mistake_is_said_in_one_go() -> None:
    settings: Any = {"provider": "awz", "kind": "cheap", "currency": 3, "prices": 5}
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.prices(["T4", "L44"], **settings)
    assert [str(each).partition(";")[0] for each in caught.value.mistakes] == [
        "prices: expected a file, got 5",
        "unknown device 'L44' (did you mean 'L4'?)",
        "kind: expected on demand or spot, got 'cheap'",
        "currency: expected a code such as USD, got 3",
        "unknown provider 'awz' (did you mean 'AWS'?)",
    ]


# What metrics and overviews take

TRAINING: dict[str, Any] = {"cost_model": "roofline", "epochs": 1, "dataset_size": 1000}


def test_metrics_say_which_price_they_take_and_how_old_it_is(own: Path) -> None:
    (found,) = paleo.metrics("nin", device="T4", **TRAINING)
    assert found.price == paleo.find_device("T4").newest_price
    assert found.notes[-1] == (
        "price: 0.526 USD for an hour of a device, AWS, g4dn.xlarge, us-east-1, on demand, "
        "2026-02-09"
    )
    (found,) = paleo.metrics("nin", device="T4", prices=own, **TRAINING)
    assert found.notes[-1] == (
        "price: 0.25 EUR for an hour of a device, Us, on demand, 2020-02-29, 6 years old"
    )
    (found,) = paleo.metrics("nin", device="T4", prices=own, price=3, **TRAINING)
    assert found.price == paleo.Price(3.0, "USD")
    (found,) = paleo.metrics("nin", device="L4", prices=own, **TRAINING)
    assert found.price == paleo.find_device("L4").newest_price


def test_an_overview_takes_the_same_price(own: Path) -> None:
    for others in ({}, {"prices": own}, {"prices": own, "price": "3 GBP/h"}):
        plan: Any = {**TRAINING, "device": "T4", **others}
        (found,) = paleo.metrics("nin", workers=4, **plan)
        assert overview("nin", workers=4, **plan).price == found.price


# In sentences


@pytest.mark.parametrize("devices", [None, "H100_SXM", "B200_SXM", "K80", ["T4", "L4"]])
@pytest.mark.parametrize("kind", [None, "spot"])
def test_the_sentence_says_what_the_values_do(devices: Any, kind: str | None) -> None:
    found = paleo.prices(devices, kind=kind)
    said = " ".join(prices_answer(found))
    if not found:
        assert said.startswith("No such price is known")
        return
    main = [each for each in found if each.price.kind == found[0].price.kind]
    names = {each.device for each in found}
    if len(names) == 1:
        best = next((each for each in main if each.is_usual), main[0])
        assert (
            f" {device_named(best.device)} is {amount(best.price)} an hour: {best.price.origin()}."
            in said
        )
        assert ("cheapest recent" in said) == (best.is_usual and best is not main[0])
    else:
        for end in (min, max):
            each = end(main, key=lambda each: each.price.amount)
            assert (
                f"{amount(each.price)} ({device_named(each.device)}, {each.price.provider})" in said
            )
    assert f"{len(found)} price{'s' * (len(found) > 1)} of {len(names)} device" in said


@pytest.mark.parametrize(
    ("value", "text"),
    [(10, "10.00"), (2.5, "2.50"), (6.155, "6.155"), (0.8048, "0.805"), (1234.5, "1,234.50")],
)
def test_an_amount_has_two_decimals_or_three(value: float, text: str) -> None:
    assert amount(paleo.Price(value, "USD")) == f"{text} USD"
