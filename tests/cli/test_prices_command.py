"""`paleo prices`, and the option that has a file of one's own prices."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import click.testing
import pytest

from paleo.cli import cli
from paleo.cluster import prices as known

OWN = '[[price]]\ndevice = "T4"\nprovider = "Us"\namount = "0.25 EUR/h"\ndate = 2020-02-29\n'


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "today", lambda: datetime.date(2026, 11, 23))
    monkeypatch.delenv("COLUMNS", raising=False)


def call(*arguments: str, status: int = 0) -> click.testing.Result:
    """Run `paleo` without a process."""
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    return result


def test_the_first_sentence_answers_and_the_table_says_more() -> None:
    text = call("prices", "V100_PCIE_16GB").stdout
    first, second, rest = text.split("\n\n", 2)
    assert " ".join(first.split()) == (
        "The cheapest V100 PCIE 16GB is 3.06 USD an hour: Azure, NC6s_v3, eastus, on demand, "
        "2023-12-18, 2 years old. 2 prices of 1 device at 1 provider."
    )
    head, _, counts, _ = (" ".join(line.split()) for line in second.splitlines())
    assert head == "device USD/h kind provider date, age what from"
    assert counts == ("V100_PCIE_16GB 3.060* on demand Azure 2023, 2 years NC6s_v3, eastus [1]")
    assert "spot       Azure     2022, 4 years  NC6s_v3, best region  [2]" in second
    assert rest.startswith("* what metrics and report take unless --price")
    assert "[1] Azure retail prices of eastus" in rest


def test_no_line_is_wider_than_a_hundred() -> None:
    for arguments in ([], ["--spot"], ["H100_SXM"]):
        text = call("prices", *arguments).stdout
        assert max(map(len, text.splitlines())) <= 100
        (head,) = [line for line in text.splitlines() if line.startswith("device ")]
        assert head.endswith("from")  # no column is left out


def test_programs_get_values_and_no_sentence() -> None:
    keys = "device price_per_device_hour price_currency provider what kind date source is_usual"
    found = json.loads(call("prices", "T4", "--format=json", "--on_demand").stdout)["prices"]
    assert [" ".join(each) for each in found] == [keys] * len(found)
    first, *_ = call("prices", "T4", "--format=csv").stdout.splitlines()
    assert first == (
        "device,price_per_device_hour,price_currency,kind,provider,date,what,source,note,is_usual"
    )
    assert call("prices", "T4", "--quiet").stdout.startswith("device")


def test_what_nobody_lets_has_a_sentence_alone() -> None:
    assert call("prices", "CPU_I7").stdout.startswith("No such price is known; a file of your own")


def test_currencies_do_not_compare(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(OWN)
    text = call("prices", "T4", "L4", f"--prices={tmp_path / 'mine.toml'}").stdout
    assert "price  an hour" in text
    assert "EUR" in text
    assert "USD" in text


@pytest.mark.parametrize("command", ["prices", "metrics", "report"])
def test_a_bad_file_of_prices_is_one_line_for_each_mistake(command: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace("0.25 EUR/h", "0.25").replace('"T4"', '"T44"'))
    others = {"metrics": ["nin"], "report": ["nin", "-o", str(tmp_path / "x.html")]}
    result = call(command, *others.get(command, []), f"--prices={path}", status=1)
    device, amount = result.stderr.splitlines()
    assert device.startswith(f"paleo: {path}: key \"price[0].device\": unknown device 'T44' (did")
    assert amount.startswith(f'paleo: {path}: key "price[0].amount": a price without a currency: ')
    assert not (tmp_path / "x.html").exists()


def test_metrics_and_a_report_take_the_prices_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    plan = ["nin", "--device=T4", "--num_workers=4", "--epochs=1", "--dataset=mnist"]
    text = " ".join(call("metrics", *plan, f"--prices={path}").stdout.split())
    assert "EUR for an hour of a device, Us, on demand, 2020-02-29, 6 years old" in text
    call("report", *plan, f"--prices={path}", "-o", str(tmp_path / "x.html"))
    page = (tmp_path / "x.html").read_text("utf-8")
    assert "0.25 EUR" in page
    assert "0.526 USD" not in page


def test_a_note_says_the_price_of_each_device_once() -> None:
    arguments = ("lenet5", "--device=T4,L4", "--batch_size=1,2", "--inference")
    lines = call("metrics", *arguments).stdout.splitlines()
    assert [line.partition(" USD")[0] for line in lines if "price: " in line] == [
        "note: T4: price: 0.526",
        "note: L4: price: 0.8048",
    ]
