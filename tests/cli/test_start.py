"""What a command does when it starts, so that it starts quickly."""

from __future__ import annotations

import os
import subprocess
import sys

import click.testing
import pytest

from paleo.cli import cli


def test_the_collector_leaves_what_the_modules_of_a_command_made_and_goes_on() -> None:
    code = (
        "import gc, click\n"
        "from paleo.cli import cli\n"
        "before = gc.get_freeze_count()\n"
        "first = cli.get_command(click.Context(cli), 'networks')\n"
        "frozen = gc.get_freeze_count()\n"
        "assert gc.isenabled() and frozen > before\n"
        "kept = [[] for _ in range(100)]\n"
        "assert cli.get_command(click.Context(cli), 'networks') is first\n"
        "assert gc.get_freeze_count() == frozen\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("command", "before", "found"),
    [("networks", None, "1"), ("networks", "3", "3"), ("fullpass", None, None)],
)
def test_numpy_starts_no_threads_but_beside_frameworks(
    monkeypatch: pytest.MonkeyPatch, command: str, before: str | None, found: str | None
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    if before:
        environment["OPENBLAS_NUM_THREADS"] = before
    monkeypatch.setattr(os, "environ", environment)
    result = click.testing.CliRunner().invoke(cli, [command, "--help"], prog_name="paleo")
    assert result.exit_code == 0, result.output
    assert os.environ.get("OPENBLAS_NUM_THREADS") == found
