"""What tests of paleo.measure.validate share: a device of round figures, files, the command."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import click.testing
import pytest

from paleo.cli import cli
from paleo.measure.validate import Cases, cases_of, read_measurements

#: 1 TFLOP/s, in fp16 2 TFLOP/s, and 100 GB/s: a FLOP is 1e-12 s, a byte 1e-11 s.
DEVICE = """
title = "Round"
architecture = "Ampere"
[figures]
base_clock = "1 GHz"
multiprocessors = 10
memory_bandwidth = "100 GB/s"
[peak.fp32]
vector = "1 TFLOP/s"
[peak.fp16]
matrix = "2 TFLOP/s"
"""
HEADER = "quantity,value,network,op_shape,batch_per_device,device"


def device_file(folder: Path, name: str = "round") -> str:
    path = folder / f"{name}.toml"
    path.write_text(DEVICE)
    return str(path)


def write(folder: Path, rows: list[dict[str, Any]], name: str = "mine.csv") -> Path:
    """Write rows under all the columns that any of them has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    path = folder / name
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def cases(folder: Path, *rows: dict[str, Any]) -> Cases:
    """Return the cases of rows, which are of the round device unless they say otherwise."""
    device = device_file(folder)
    plain = {"quantity": "op_ms", "value": 1, "network": "", "op_shape": "", "device": device}
    return cases_of(read_measurements(write(folder, [plain | row for row in rows])))


def reasons(found: Cases) -> dict[str, int]:
    return {each.reason: each.count for each in found.unpredicted}


def call(*arguments: Any, status: int = 0) -> click.testing.Result:
    words = ["validate", *map(str, arguments)]
    result = click.testing.CliRunner().invoke(cli, words, prog_name="paleo")
    assert result.exit_code == status, result.output + result.stderr
    return result


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Let a package be missing."""
    real = importlib.import_module

    def missing(name: str, *arguments: Any) -> ModuleType:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", missing)
