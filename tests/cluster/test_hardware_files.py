"""The files of devices and networks: the predefined ones, and a user's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.cluster import Figure

FOLDER = Path(paleo.__file__).parent / "cluster"

#: From ../shared/reference/paleo2017_equations.md, section 2, "The 2017 figures": clock in
#: MHz, peak in GFLOP/s, memory bandwidth in GB/s.
DEVICES_2017 = {
    "TITAN_X": (1000, 6144, 336.5),
    "K20": (1000, 3520, 208),
    "K20X": (1000, 3935, 250),
    "K40": (745, 4290, 288),
    "K80": (560, 5600, 480),
    "GEFORCE_780_TI": (875, 5040, 336),
    "GEFORCE_750_M": (941, 722.7, 80),
    "CPU_I7": (210000, 289, 68),
}
#: From the same table: Gbit/s.
NETWORKS_2017 = {
    "aws": 2,
    "ethernet": 10,
    "ethernet20": 20,
    "infiniband": 70,
    "pcie2": 64,
    "pcie3": 128,
}
NAMES = {"devices": paleo.device_names(), "networks": paleo.network_names()}
FIND: dict[str, Callable[[Any], Any]] = {
    "devices": paleo.find_device,
    "networks": paleo.find_network,
}
ALL = [(kind, name) for kind in NAMES for name in NAMES[kind]]

DEVICE = """
[figures]
base_clock = "1.5 GHz"
memory_bandwidth = "900 GB/s"
[peak.fp32]
vector = "15 TFLOP/s"
"""
NETWORK = '[figures]\nbandwidth = "100 Gbit/s"\n'


def figures(thing: paleo.Device | paleo.Network) -> Iterator[Figure]:
    yield from thing.figures.values()
    if isinstance(thing, paleo.Device):
        for units in thing.peaks.values():
            yield from units.values()


def refused(kind: str, text: str | bytes) -> list[str]:
    """Return what is said of a file of one's own, my.toml in the working folder."""
    Path("my.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(paleo.HardwareError) as caught:
        FIND[kind]("my.toml")
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.mistakes)
    result = click.testing.CliRunner().invoke(cli, [kind, "my.toml"])
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.splitlines() == [f"paleo: {line}" for line in lines]
    option = f"--{kind.removesuffix('s')}"
    result = click.testing.CliRunner().invoke(cli, ["simulate", "nin", option, "my.toml"])
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    assert result.stderr.splitlines() == [f"paleo: {line}" for line in lines]
    assert all(line.startswith("my.toml: ") for line in lines)
    return [line.removeprefix("my.toml: ") for line in lines]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The predefined ones


def test_there_are_those_of_2017() -> None:
    assert set(paleo.device_names()) >= set(DEVICES_2017)
    assert set(paleo.network_names()) >= set(NETWORKS_2017)


@pytest.mark.parametrize("name", DEVICES_2017)
def test_a_device_has_its_2017_figures(name: str) -> None:
    rates = paleo.find_device(name).rates_2017
    clock, peak, bandwidth = DEVICES_2017[name]
    assert rates.clock == pytest.approx(clock * 1e6, rel=1e-12)
    assert rates.peak == pytest.approx(peak * 1e9, rel=1e-12)
    assert rates.memory_bandwidth == pytest.approx(bandwidth * 1e9, rel=1e-12)


@pytest.mark.parametrize("name", NETWORKS_2017)
def test_a_network_has_its_2017_figure(name: str) -> None:
    expected = NETWORKS_2017[name] * 1e9 / 8
    assert paleo.find_network(name).bandwidth_2017 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", paleo.device_names())
def test_a_device_says_where_2017_differs_from_the_data_sheet(name: str) -> None:
    device = paleo.find_device(name)
    own = device.own_rates_2017
    if own is None:
        return
    pairs = {
        "clock": (own.clock, device.figures["base_clock"].value),
        "peak": (own.peak, device.peak("fp32")),
        "memory bandwidth": (own.memory_bandwidth, device.memory_bandwidth),
    }
    for words, (old, sheet) in pairs.items():
        differs = abs(float(old) / float(sheet) - 1) > 1e-3
        assert (f"The {words} " in own.note) == differs, (words, old, sheet)
    assert bool(own.note) == any(f"The {words} " in own.note for words in pairs)


@pytest.mark.parametrize("name", paleo.network_names())
def test_a_network_says_where_2017_differs_from_the_data_sheet(name: str) -> None:
    network = paleo.find_network(name)
    ratio = float(network.bandwidth_2017) / float(network.bandwidth)
    assert bool(network.note_2017) == (abs(ratio - 1) > 1e-3)


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_file_is_named_as_what_it_holds(kind: str, name: str) -> None:
    found = FIND[kind](FOLDER / kind / f"{name}.toml")
    assert found == FIND[kind](name)
    assert found.name == name
    assert found.title
    assert FIND[kind](found) is found


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_figure_is_positive_and_has_a_declared_source(kind: str, name: str) -> None:
    found = FIND[kind](name)
    for figure in figures(found):
        assert figure.value > 0
        assert figure.source in found.sources.values()
    for text in found.sources.values():
        assert len(text) > 20  # a title, not a word


def test_a_whole_k80_costs_what_two_of_its_dies_do() -> None:
    # A p2.xlarge has one of the two dies, as has a "K80" of Google Cloud.
    prices = {(price.date, price.amount) for price in paleo.find_device("K80").prices}
    assert prices == {
        *(("2016-11", 2 * 0.90), ("2017-07", 2 * 0.745), ("2017-11-28", 2 * 0.4975)),
        ("2026-02-09", 2 * 0.90),
    }
    assert [price.amount for price in paleo.find_device("K80_DIE").prices] == [0.90]


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_names_and_aliases_are_exact_and_unique(kind: str) -> None:
    things = [FIND[kind](name) for name in NAMES[kind]]
    owners: dict[str, str] = {}
    for thing in things:
        spellings = [thing.name, *thing.aliases]
        assert len(set(spellings)) == len(spellings)
        for spelling in spellings:  # of two things, none differ in case alone
            assert owners.setdefault(spelling.lower(), thing.name) == thing.name, spelling
    for thing in things:
        for alias in thing.aliases:
            assert FIND[kind](alias) == thing
            with pytest.raises(paleo.UnknownNameError):
                FIND[kind](alias + "!")


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_a_name_misspelt_is_told_the_nearest(kind: str, name: str) -> None:
    what = kind.removesuffix("s")
    aliases = FIND[kind](name).aliases  # some are the name in lower case
    for wrong in {name.swapcase(), f"{name}!"}.difference(aliases):
        with pytest.raises(paleo.UnknownNameError) as caught:
            FIND[kind](wrong)
        assert str(caught.value) == (
            f"unknown {what} {wrong!r} (did you mean {name!r}?); "
            f"`paleo {kind}` lists them, a .toml file of your own works too"
        )


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_that_resembles_none_is_told_all(kind: str) -> None:
    with pytest.raises(paleo.UnknownNameError) as caught:
        FIND[kind]("?")
    assert f"(there are: {', '.join(sorted(NAMES[kind]))})" in str(caught.value)


# One's own


def test_an_own_device_and_network_work_wherever_a_name_does(folder: Path) -> None:
    (folder / "hardware").mkdir()
    device, network = folder / "hardware" / "mine.toml", folder / "hardware" / "link.toml"
    device.write_text(DEVICE)
    network.write_text(NETWORK)
    rates = paleo.find_device(device).rates_2017
    assert (rates.clock, rates.peak, rates.memory_bandwidth) == (1.5e9, 15e12, 900e9)
    assert paleo.find_network(network).bandwidth_2017 == 12.5e9

    relative = ("hardware/mine.toml", "./hardware/link.toml")
    for names in (relative, (str(device), str(network)), (device, network)):
        (run,) = paleo.simulate("nin", device=names[0], network=names[1], scaling="weak").runs
        assert (run.device, run.network) == ("mine", "link")
    arguments = ["--device", relative[0], "--network", relative[1], "--scaling=weak"]
    for command in (
        ["simulate", "nin", *arguments, "--format=json"],
        ["devices", relative[0], "--format=json"],
        ["networks", relative[1], "--format=json"],
    ):
        result = click.testing.CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        if command[0] == "simulate":
            assert found["runs"] == [json.loads(json.dumps(run.to_dict()))]
        else:
            figure = next(iter(found[command[0]][0]["figures"].values()))
            assert figure["source"] == "the file itself"


def test_an_own_file_may_have_sources_notes_and_2017_figures(folder: Path) -> None:
    (folder / "my.toml").write_text(
        'name = "mine"\ntitle = "Mine"\nkind = "cpu"\naliases = ["my own"]\n'
        + DEVICE.replace('"1.5 GHz"', '{ value = "1.5 GHz", source = "sheet", note = "turbo" }')
        + '[sources]\nsheet = "The data sheet"\n'
        + '[paleo2017]\nclock = "1 GHz"\npeak = "2 TFLOP/s"\nmemory_bandwidth = "3 GB/s"\n'
    )
    device = paleo.find_device("my.toml")
    assert (device.name, device.title, device.kind) == ("mine", "Mine", "cpu")
    assert device.figures["base_clock"] == Figure(1.5e9, "Hz", "The data sheet", "turbo")
    assert device.rates_2017 == paleo.cluster.Rates2017(1e9, 2e12, 3e9)
    assert device.memory_bandwidth == 900e9


def test_a_device_or_network_can_be_made_in_a_program() -> None:
    device = paleo.Device.from_rates("mine", clock=745e6, peak=4.29e12, memory_bandwidth=288e9)
    network = paleo.Network.from_bandwidth("link", 1.25e9)
    asked: dict[str, Any] = {"scaling": "weak", "cost_model": "paleo2017"}
    (mine,) = paleo.simulate("nin", device=device, network=network, **asked).runs
    (k40,) = paleo.simulate("nin", device="K40", network="ethernet", **asked).runs
    assert (mine.device, mine.network) == ("mine", "link")
    assert mine.rows == k40.rows
    assert all("program" in figure.source for figure in (*figures(device), *figures(network)))


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_rate_that_means_nothing_is_refused(rate: float) -> None:
    right = {"clock": 1e9, "peak": 1e12, "memory_bandwidth": 1e11}
    for name in right:
        with pytest.raises(paleo.PaleoError, match=name):
            paleo.Device.from_rates("mine", **(right | {name: rate}))
    with pytest.raises(paleo.PaleoError, match="bandwidth"):
        paleo.Network.from_bandwidth("link", rate)


PRICE = """
[[price]]
provider = "Somebody"
what = "by the hour"
amount = "0.90 EUR/h"
date = "2019-12"
[[price]]
provider = "Somebody else"
amount = "0 USD/h"
date = 2020-02-29
source = "list"
note = "a gift"
[sources]
list = "The list"
"""


def test_an_own_device_may_have_prices(folder: Path) -> None:
    (folder / "my.toml").write_text(DEVICE + PRICE)
    device = paleo.find_device("my.toml")
    first, second = device.prices
    assert (first.amount, first.currency, first.provider, first.what, first.date) == (
        0.9,
        "EUR",
        "Somebody",
        "by the hour",
        "2019-12",
    )
    assert (first.source, first.note) == ("the file itself", "")
    assert (second.amount, second.date, second.source) == (0.0, "2020-02-29", "The list")
    assert device.newest_price == second
    (found,) = json.loads(
        click.testing.CliRunner().invoke(cli, ["devices", "my.toml", "--format=json"]).stdout
    )["devices"]
    assert found["prices"] == [
        {
            "price_per_device_hour": 0.9,
            "price_currency": "EUR",
            "provider": "Somebody",
            "what": "by the hour",
            "kind": "on demand",
            "date": "2019-12",
            "source": "the file itself",
        },
        {
            "price_per_device_hour": 0.0,
            "price_currency": "USD",
            "provider": "Somebody else",
            "what": "",
            "kind": "on demand",
            "date": "2020-02-29",
            "source": "The list",
            "note": "a gift",
        },
    ]
    table = click.testing.CliRunner().invoke(cli, ["devices", "my.toml"]).stdout
    assert "0 USD/h" in table


AMOUNT = 'expected an amount, a currency and the hour, such as "0.90 USD/h", got '
PRICE_MISTAKES = [
    ("0.90 EUR/h", "0.90 EUR", f'price[0].amount: {AMOUNT}"0.90 EUR"'),
    ("0.90 EUR/h", "EUR 0.90/h", f'price[0].amount: {AMOUNT}"EUR 0.90/h"'),
    ('"0.90 EUR/h"', "0.9", f"price[0].amount: a price without a currency: {AMOUNT}0.9"),
    ("0.90 EUR/h", "-0.90 EUR/h", "price[0].amount: expected a price of 0 or more, up to 1e+12, "),
    ("0.90 EUR/h", "1e400 EUR/h", "price[0].amount: expected a price of 0 or more, up to 1e+12, "),
    ('amount = "0.90 EUR/h"', "", "price[0].amount: missing"),
    ("provider", "from", "price[0].provider: missing"),
    ("what", "wat", "price[0].wat: unknown key (did you mean 'what'?)"),
    ('"by the hour"', "3", "price[0].what: expected a text, got 3"),
    ("2019-12", "2019-13", 'price[0].date: expected a date such as 2016-11-28 or "2016-11", got'),
    ('"2019-12"', "2019", "price[0].date: expected a date such as 2016-11-28"),
    ("2020-02-29", "2020-02-29T07:00:00", "price[1].date: expected a date such as 2016-11-28"),
    ('date = "2019-12"', "", "price[0].date: missing"),
    ('source = "list"', 'source = "lst"', "price[1]: no such source: 'lst' is not in [sources]"),
]


@pytest.mark.parametrize(("old", "new", "message"), PRICE_MISTAKES)
@pytest.mark.usefixtures("folder")
def test_a_mistake_in_a_price_is_named(old: str, new: str, message: str) -> None:
    assert old in PRICE
    lines = refused("devices", DEVICE + PRICE.replace(old, new, 1))
    key, _, text = message.partition(": ")
    assert any(line.startswith(f'key "{key}": {text}') for line in lines)
    assert len(lines) == 1 + (old == "provider")  # "from" is an unknown key too


@pytest.mark.parametrize("text", ["price = 3\n", "price = [3]\n", 'price = "0.90 EUR/h"\n'])
@pytest.mark.usefixtures("folder")
def test_prices_are_entries(text: str) -> None:
    (line,) = refused("devices", text + DEVICE)
    assert line == 'key "price": expected entries, each headed [[price]]'


UNIT = "expected a number with a unit, such as"
BYTES_A_SECOND = '"10 GB/s" or "10 Gbit/s"'
#: What a device's file has in the place of what, and the key and the message.
DEVICE_MISTAKES = [
    ("[figures]", "titel = 3\n[figures]", "titel: unknown key (did you mean 'title'?)"),
    ("base_clock", "clock", "figures.clock: unknown key (did you mean 'base_clock'?)"),
    ("fp32", "fp33", "peak.fp33: unknown key (did you mean 'fp32'?)"),
    ("vector", "vectors", "peak.fp32.vectors: unknown key (did you mean 'vector'?)"),
    (
        "900 GB/s",
        "900 GW/s",
        f'figures.memory_bandwidth: {UNIT} "10 GB/s" or "10 Gbit/s", got \'900 GW/s\'',
    ),
    (
        "900 GB/s",
        "900 GB",
        f'figures.memory_bandwidth: {UNIT} "10 GB/s" or "10 Gbit/s", got \'900 GB\'',
    ),
    ("1.5 GHz", "1.5", f"figures.base_clock: {UNIT} \"10 MHz\", got '1.5'"),
    ("1.5 GHz", "fast", f"figures.base_clock: {UNIT} \"10 MHz\", got 'fast'"),
    ("1.5 GHz", "nan GHz", f"figures.base_clock: {UNIT} \"10 MHz\", got 'nan GHz'"),
    ("1.5 GHz", "-1.5 GHz", "figures.base_clock: expected a positive number, got '-1.5 GHz'"),
    ("1.5 GHz", "0 GHz", "figures.base_clock: expected a positive number, got '0 GHz'"),
    ("1.5 GHz", "1e400 GHz", "figures.base_clock: "),
    ("900 GB/s", "1e-320 B/s", "figures.memory_bandwidth: "),  # would make times infinite
    ('"1.5 GHz"', "1.5", "figures.base_clock: expected a text with a unit, such as "),
    ('memory_bandwidth = "900 GB/s"', "", "figures.memory_bandwidth: missing"),
    ('vector = "15 TFLOP/s"', "", "peak: missing: a device needs a peak, such as [peak.fp32]"),
    (
        '"1.5 GHz"',
        '{ value = "1.5 GHz", source = "sheet" }',
        "figures.base_clock: no such source: 'sheet' is not in [sources]",
    ),
    ('"1.5 GHz"', '{ note = "?" }', "figures.base_clock: a figure needs a value"),
    ("[figures]", 'kind = "npu"\n[figures]', 'kind: expected "gpu", "cpu" or "tpu", got \'npu\''),
    ("[figures]", "name = 3\n[figures]", "name: expected a text, got 3"),
    ("[figures]", 'aliases = "mine"\n[figures]', "aliases: expected a list of texts"),
    ("[figures]", "sources = 3\n[figures]", "sources: expected a table"),
    ("[peak", "multiprocessors = 1.5\n[peak", "figures.multiprocessors: expected a whole number, "),
    ("[peak", f"multiprocessors = {10**400}\n[peak", "figures.multiprocessors: "),
]


@pytest.mark.parametrize(("old", "new", "message"), DEVICE_MISTAKES)
@pytest.mark.usefixtures("folder")
def test_a_mistake_in_an_own_device_is_named(old: str, new: str, message: str) -> None:
    assert old in DEVICE
    (line,) = refused("devices", DEVICE.replace(old, new, 1))
    key, _, text = message.partition(": ")
    assert line.startswith(f'key "{key}": {text}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'key "figures.bandwidth": missing'),
        (NETWORK + "[peak]\n", 'key "peak": unknown key; there are: name, '),
        ("name = 3\n" + NETWORK, 'key "name": expected a text, got 3'),
        (NETWORK.replace("100 Gbit/s", "100 Gbit"), f'key "figures.bandwidth": {UNIT} "10 GB/s"'),
        (NETWORK.replace("100 G", "1e-320 "), 'key "figures.bandwidth": '),
        (NETWORK.replace("100", "0"), 'key "figures.bandwidth": expected a positive number'),
        (NETWORK + '[paleo2017]\nnote = "?"\n', 'key "paleo2017.bandwidth": '),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_in_an_own_network_is_named(text: str, message: str) -> None:
    (line,) = refused("networks", text)
    assert line.startswith(message)


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize(
    "text",
    ["[figures", b'name = "\xff"', DEVICE + DEVICE, "a = " + "[" * 100_000, f"a = {'9' * 5000}"],
    ids=["half a file", "invalid UTF-8", "a table twice", "100000 brackets", "5000 digits"],
)
@pytest.mark.usefixtures("folder")
def test_a_file_that_is_not_toml_says_so(kind: str, text: str | bytes) -> None:
    (line,) = refused(kind, text)
    assert re.match("not a TOML file: |.*too large to mean anything", line)


@pytest.mark.usefixtures("folder")
def test_all_mistakes_of_an_own_file_are_said_together() -> None:
    lines = refused("devices", 'kind = "npu"\n[figures]\nbase_clok = "3"\npower = "3"\n')
    assert sorted(lines) == [
        "key \"figures.base_clok\": unknown key (did you mean 'base_clock'?)",
        'key "figures.memory_bandwidth": missing',
        f'key "figures.power": {UNIT} "10 W", got \'3\'',
        'key "kind": expected "gpu", "cpu" or "tpu", got \'npu\'',
        'key "peak": missing: a device needs a peak, such as [peak.fp32] vector = "5 TFLOP/s"',
    ]


@pytest.mark.parametrize("kind", NAMES)
def test_a_file_that_cannot_be_read_is_named(kind: str, folder: Path) -> None:
    (folder / "folder.toml").mkdir()
    result = click.testing.CliRunner().invoke(cli, [kind, "gone.toml", "folder.toml", "no/K40"])
    assert (result.exit_code, result.stdout) == (1, "")
    gone, directory, path = result.stderr.splitlines()
    assert gone == "paleo: gone.toml: No such file or directory"
    assert directory == "paleo: folder.toml: Is a directory"
    assert path == "paleo: no/K40: No such file or directory"


@pytest.mark.parametrize(
    ("old", "message"),
    [('base_clock = "1.5 GHz"', "has no base_clock"), ("fp32", "has no peak for fp32; it has: fp")],
)
def test_a_device_without_a_figure_that_is_needed_says_so(
    folder: Path, old: str, message: str
) -> None:
    (folder / "my.toml").write_text(DEVICE.replace(old, "fp16" if old == "fp32" else ""))
    with pytest.raises(paleo.PaleoError) as caught:
        paleo.simulate("nin", device="my.toml", cost_model="paleo2017")
    (mistake,) = caught.value.mistakes
    assert message in str(mistake)
