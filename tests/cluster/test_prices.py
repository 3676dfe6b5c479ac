"""Prices of devices: those of clouds, how old they are, which counts, and files of one's own."""

from __future__ import annotations

import datetime
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paleo
from paleo.cluster import Price, parse_price, prices
from paleo.cluster.price_files import read_price_file
from paleo.cluster.prices import KINDS, ON_DEMAND, SPOT, predefined_prices, usual_price
from paleo.core.errors import Mistakes

PREDEFINED = [(device, price) for device, known in predefined_prices().items() for price in known]
#: No device of a cloud is cheaper or dearer than this, in dollars an hour.
LEAST, MOST = 0.1, 25
#: The day on which the prices were looked up.
LOOKED_UP = datetime.date(2026, 11, 23)


# Those of clouds


@pytest.mark.parametrize(("device", "price"), PREDEFINED)
def test_a_price_says_what_it_is_of_and_where_it_is_from(device: str, price: Price) -> None:
    assert device in paleo.device_names()
    assert price.currency == "USD"
    assert LEAST < price.amount < MOST
    assert price.kind in KINDS
    assert price.provider
    assert price.what
    assert "2016" <= price.date <= LOOKED_UP.isoformat()
    assert re.search(r": https?://\S+\w", price.source)
    # The source is of the date: it names the year at least.
    assert price.date[:4] in price.source or price.date[:7].replace("-", "/") in price.source


def test_there_are_prices_of_what_large_clouds_let() -> None:
    assert len(predefined_prices()) >= 40
    providers = {price.provider for _, price in PREDEFINED}
    assert providers >= {"AWS", "Azure", "Google Cloud", "Oracle Cloud"}
    several = [each for each in predefined_prices().values() if len({p.provider for p in each}) > 1]
    assert len(several) >= 10
    assert len({device for device, price in PREDEFINED if price.kind == SPOT}) >= 8


def test_spot_is_cheaper_than_on_demand_of_the_same() -> None:
    for device, spot in PREDEFINED:
        for _, other in [each for each in PREDEFINED if each[0] == device]:
            same = (other.provider, other.what) == (spot.provider, spot.what)
            if same and (spot.kind, other.kind) == (SPOT, ON_DEMAND):
                assert spot.amount < other.amount


def test_a_device_has_the_prices_of_its_name_or_those_of_its_file(tmp_path: Path) -> None:
    device = paleo.find_device("H100_SXM")
    assert device.prices == predefined_prices()["H100_SXM"]
    assert device.own_prices == ()
    # 55.04 USD for the eight of an instance.
    (price,) = [each for each in device.prices if each.provider == "AWS"]
    assert (price.amount, price.what) == (pytest.approx(6.88), "p5.48xlarge, us-east-1")
    text = """
[figures]
memory_bandwidth = "1 TB/s"
[peak.fp32]
vector = "1 TFLOP/s"
"""
    (tmp_path / "T4.toml").write_text(text)
    assert paleo.find_device(tmp_path / "T4.toml").prices == predefined_prices()["T4"]
    own = '[[price]]\nprovider = "Us"\namount = "3 EUR/h"\ncount = 4\ndate = 2026-01-02\n'
    (tmp_path / "T4.toml").write_text(text + own)
    assert paleo.find_device(tmp_path / "T4.toml").prices == (
        Price(0.75, "EUR", "Us", date="2026-01-02", source="the file itself"),
    )
    assert paleo.find_device("CPU_I7").newest_price is None


def test_who_asks_for_no_price_reads_none() -> None:
    predefined_prices.cache_clear()
    paleo.simulate("lenet5", device="H100_SXM", cost_model="roofline")
    assert predefined_prices.cache_info().misses == 0


# Their age


@pytest.mark.parametrize(
    ("date", "day", "age"),
    [
        ("2017-11-28", "2026-11-27", "8 years old"),
        ("2017-11-28", "2026-11-28", "9 years old"),
        ("2025-11-24", "2026-11-23", ""),
        ("2025-11-23", "2026-11-23", "1 year old"),
        ("2026-02", "2027-01-31", ""),
        ("2026-02", "2027-02-01", "1 year old"),
        ("2026-02", "2026-01-31", ""),  # a clock that is wrong
        ("", "2026-01-31", ""),
    ],
)
def test_an_old_price_says_how_old_it_is(date: str, day: str, age: str) -> None:
    price = Price(1, "USD", "Us", "a box", date)
    assert price.age(datetime.date.fromisoformat(day)) == age
    origin = price.origin(datetime.date.fromisoformat(day))
    assert origin == ", ".join(filter(None, ("Us", "a box", "on demand", date, age)))


def test_ages_go_by_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "today", lambda: datetime.date(2030, 1, 1))
    assert Price(1, "USD", date="2026-01-01").age() == "4 years old"


# Which counts


def of(amount: float, date: str, provider: str = "A", **others: Any) -> Price:
    return Price(amount, others.pop("currency", "USD"), provider, date=date, **others)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], None),
        ([of(3, "2026-01"), of(2, "2026-01", "B")], 2),
        # Older by a year than the newest: left out.
        ([of(3, "2026-01-02"), of(2, "2025-01-02", "B")], 3),
        ([of(3, "2026-01-02"), of(2, "2025-01-03", "B")], 2),
        # What a provider asked before does not count.
        ([of(3, "2026-01"), of(2, "2025-10"), of(4, "2026-01", "B")], 3),
        ([of(2, "2025-10"), of(3, "2026-01")], 3),
        # Spot prices count where there are no others.
        ([of(3, "2026-01"), of(1, "2026-02", "B", kind=SPOT)], 3),
        ([of(1, "2026-01", kind=SPOT), of(2, "2026-02", "B", kind=SPOT)], 1),
        # Currencies do not compare: those of the newest.
        ([of(3, "2026-02"), of(2, "2026-01", "B", currency="EUR")], 3),
    ],
)
def test_the_cheapest_recent_price_on_demand_counts(
    known: list[Price], expected: float | None
) -> None:
    found = usual_price(known)
    assert (found and found.amount) == expected


PRICES = st.builds(
    Price,
    amount=st.floats(0, 1e6),
    currency=st.sampled_from(["USD", "EUR"]),
    provider=st.sampled_from("AB"),
    date=st.dates(datetime.date(2015, 1, 1), datetime.date(2030, 1, 1)).map(str),
    kind=st.sampled_from(KINDS),
)


@given(st.lists(PRICES, min_size=1))
def test_the_price_that_counts_is_one_of_them(known: list[Price]) -> None:
    found = usual_price(known)
    assert found in known
    assert found is not None
    assert found.kind == min((price.kind for price in known), key=KINDS.index)
    newest = max(price.date for price in known if price.kind == found.kind)
    assert Price(1, "USD", date=found.date).years_old(datetime.date.fromisoformat(newest)) == 0


# Files of one's own

OWN = """
[sources]
offer = "Their offer of 1 October 2026: https://example.org/offer"
[[price]]
device = "H100_SXM"
provider = "Us"
what = "a node of eight"
amount = "20 EUR/h"
count = 8
date = 2026-10-01
source = "offer"
[[price]]
device = "tesla_t4"
provider = "Us"
amount = "0.1 EUR/h"
date = "2026-10"
kind = "spot"
note = "at night"
"""


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "mine.toml").write_text(text, "utf-8")
        return tmp_path / "mine.toml"

    return write


def test_a_file_of_ones_own_has_prices_by_device(own: Callable[[str], Path]) -> None:
    alias = paleo.find_device("T4").aliases[0]
    offer = "Their offer of 1 October 2026: https://example.org/offer"
    assert read_price_file(own(OWN.replace("tesla_t4", alias))) == {
        "H100_SXM": (Price(2.5, "EUR", "Us", "a node of eight", "2026-10-01", offer),),
        "T4": (Price(0.1, "EUR", "Us", "", "2026-10", "the file itself", "at night", SPOT),),
    }


def test_the_file_on_the_page_is_read(own: Callable[[str], Path]) -> None:
    page = Path(paleo.__file__).parents[1] / "docs" / "prices.md"
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (first,), (second,) = read_price_file(own(text)).values()
    assert (first.amount, first.currency, first.kind) == (1.8, "EUR", ON_DEMAND)
    assert (second.amount, second.currency, second.kind) == (0.21, "USD", SPOT)


def test_every_mistake_of_a_file_is_said_in_one_go(own: Callable[[str], Path]) -> None:
    path = own("""
currency = "USD"
[[price]]
device = "H100_SMX"
amount = 2.5
provider = "Us"
date = 2026-10-01
kind = "spots"
count = 0
[[price]]
amount = "1.5"
dat = 2026
source = "nowhere"
""")
    with pytest.raises(paleo.HardwareError) as caught:
        read_price_file(path)
    unknown = "unknown device 'H100_SMX' (did you mean 'H100_SXM'?); `paleo devices` lists them"
    without = (
        "a price without a currency: expected an amount, a currency and the hour, such as "
        '"0.90 USD/h", got'
    )
    assert str(caught.value).replace(f"{path}: ", "").splitlines() == [
        'key "currency": unknown key; there are: price, sources',
        f'key "price[0].device": {unknown}',
        f'key "price[0].amount": {without} 2.5',
        'key "price[0].count": expected 1 or more, got 0',
        'key "price[0].kind": expected "on demand" or "spot", got "spots"',
        "key \"price[1].dat\": unknown key (did you mean 'date'?)",
        'key "price[1].device": missing',
        'key "price[1].provider": missing',
        'key "price[1].date": missing',
        f'key "price[1].amount": {without} "1.5"',
        "key \"price[1]\": no such source: 'nowhere' is not in [sources]",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'key "price": missing: expected entries, each headed [[price]]'),
        ("price = 3", 'key "price": expected entries, each headed [[price]]'),
        ("price = [3]", 'key "price": expected entries, each headed [[price]]'),
        ("price =", "not a TOML file: Invalid value (at end of document)"),
    ],
)
def test_what_is_no_file_of_prices_is_refused(
    text: str, said: str, own: Callable[[str], Path]
) -> None:
    path = own(text)
    with pytest.raises(paleo.HardwareError) as caught:
        read_price_file(path)
    assert f"{path}: {said}" in str(caught.value).splitlines()


KEYS = ("device", "amount", "count", "kind", "date", "provider", "what", "note", "x")
VALUES = (
    *('"T4"', '"1 USD/h"', '"1"', "1", "-1", "0", "nan", "1e400", "2026-01-02", '"2026-01"', '""'),
    *("true", "[]", "{}", '"spot"', '"on demand"', "2026-01-02T03:04:05"),
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)))
def test_an_entry_is_read_or_refused_with_its_place(entry: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine.toml")
        path.write_text("\n".join(["[[price]]", *(f"{key} = {entry[key]}" for key in entry)]))
        mistakes = Mistakes()
        found = mistakes.check(read_price_file, path)
    assert bool(found) != bool(mistakes)
    assert all(str(each).startswith(f'{path}: key "price[0]') for each in mistakes.found)
    for (price,) in (found or {}).values():
        assert price.amount >= 0
        assert price.kind in KINDS
        assert price.date


@pytest.mark.parametrize("text", ["1", "1.5", " 2 /h", "3/h", "1e3", 2, 2.5])
def test_a_price_without_a_currency_is_called_that(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^a price without a currency: expected .*, got "):
        parse_price(text)


@pytest.mark.parametrize("text", ["1 USD", "USD/h", "1 usd/h", "1 USD/d", "", None, True, "-/h"])
def test_what_is_no_price_is_not(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected an amount, a currency and the hour"):
        parse_price(text)
