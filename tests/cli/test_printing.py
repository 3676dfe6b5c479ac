"""Texts of files on the terminal: no command lets them move the cursor or fake a line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.core import files
from paleo.views.table import FORMATS

#: Clears the screen (by ESC, by C1), fakes a line, turns the direction of writing, is a formula.
EVIL = "=1+1\x1b[2J\x9b2J\npaleo: all is well\u202e\u2066\x7f\r\u2028"


@pytest.fixture
def evil(tmp_path: Path) -> str:
    def conv(parent: str) -> dict[str, object]:
        return {
            "type": "Convolution", "parents": [parent], "filter": [3, 3, 3, 4],
            "strides": [1, 1, 1, 1], "padding": "SAME",
        }  # fmt: skip

    layers = {
        f"@{EVIL}": {"type": "Input", "parents": [], "tensor": [2, 8, 8, 3]},
        f"-{EVIL}": conv(f"@{EVIL}"),
    }
    path = tmp_path / "evil.json"
    path.write_text(json.dumps({"name": EVIL, "source": EVIL, "layers": layers}))
    return str(path)


def printed(*arguments: str, status: int = 0) -> tuple[str, str]:
    """Return what a command prints, and assert that all of it can be seen."""
    result = click.testing.CliRunner().invoke(cli, arguments, prog_name="paleo")
    assert result.exit_code == status, result.output
    for text in (result.stdout, result.stderr):
        assert not [c for c in text if not c.isprintable() and c not in "\n\t"], arguments
        assert not any(line.startswith("paleo: all is well") for line in text.splitlines())
    return result.stdout, result.stderr


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "command",
    [
        ["summary"], ["simulate"], ["simulate", "--parallel=model", "--cost_model=paleo2017"],
        ["memory"], ["metrics"], ["compare", "--device=K40,K80"], ["profile"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_names_of_nets_and_layers_can_be_seen(evil: str, command: list[str], name: str) -> None:
    out, _ = printed(command[0], evil, *command[1:], f"--format={name}", "--verbose")
    if name == "json":
        json.loads(out)
    if name in ("csv", "tsv"):
        rows = list(csv.reader(io.StringIO(out), delimiter="," if name == "csv" else "\t"))
        assert len({len(row) for row in rows}) == 1
        assert "=1+1" in out
        for cell in (cell for row in rows for cell in row if cell and cell[0] in "=+-@"):
            float(cell)  # else it is a formula


def test_what_is_written_says_so_in_one_line(evil: str, tmp_path: Path) -> None:
    out, said = printed("convert", evil, "--verbose")
    assert json.loads(out)["name"] == EVIL
    assert len(said.splitlines()) == 1
    file = tmp_path / "trace.json"
    _, said = printed("simulate", evil, f"--trace={file}")
    assert len(said.splitlines()) == 1
    assert json.loads(file.read_text("utf-8"))["otherData"]["net"] == EVIL
    out, _ = printed("simulate", evil, "--trace=-")
    assert json.loads(out)["otherData"]["net"] == EVIL
    printed("simulate", evil, "--plot=-")
    printed("summary", evil, "--plot=-", "--format=markdown")


def test_errors_and_their_tracebacks_can_be_seen(evil: str) -> None:
    _, said = printed("summary", evil, "--batch_size=0", "--debug", status=1)
    assert "Traceback" in said
    printed("summary", EVIL, "--debug", status=1)
    printed("summary", evil, f"--device={EVIL}", status=1)
    printed("summary", evil, f"--{EVIL}", status=2)


@pytest.mark.parametrize("separator", ["\x1b", "\n", "\r", "\x9b", "\u2028", "\u202e"])
def test_a_separator_can_be_seen(separator: str) -> None:
    _, said = printed("summary", "nin", f"--separator={separator}", status=2)
    assert "--separator: expected one character" in said


@pytest.mark.parametrize("columns", ["1", "0", "-5", "x", "3", "9" * 5000, "\u0661"])
def test_any_width_of_a_terminal_is_good(
    evil: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words in (["summary", evil], ["simulate", evil, "--plot=-"], ["metrics", evil]):
        out, _ = printed(*words)
        assert "1+1" in out


def test_a_file_without_end_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("needs a file without end")
    monkeypatch.setattr(files.read_bytes, "__defaults__", (1 << 20,))
    for option, ending in (("", "json"), ("--device=", "toml"), ("--network=", "toml")):
        link = tmp_path / f"zero.{ending}"
        if not link.exists():
            link.symlink_to(endless)
        words = (
            ["simulate", f"{option}{link}"]
            if not option
            else ["simulate", "nin", option + str(link)]
        )
        _, said = printed(*words, status=1)
        assert said == f"paleo: {link}: more than 1 MiB: too large to be read\n"
    _, said = printed("validate", str(endless), status=1)
    assert said == "paleo: /dev/zero: more than 1 MiB: too large to be read\n"


@pytest.mark.parametrize(
    "words",
    [
        ["summary", "a\0b.json"], ["summary", "nin", "--device=a\0.toml"],
        ["simulate", "nin", "--network=a\0.toml"], ["simulate", "nin", "--trace=\0"],
        ["summary", "nin", "--plot=a\0.svg"], ["convert", "nin", "-o", "a\0"],
        ["report", "nin", "-o", "a\0.html"], ["validate", "a\0.csv"],
        ["calibrate", "--from=a\0", "-o", "x.toml"], ["calibrate", "-o", "a\0"],
        ["profile", "nin", "--extract_conv_dir=a\0"], ["serve", "--host=\0"],
    ],
    ids=repr,
)  # fmt: skip
def test_a_nul_is_one_clear_line(words: list[str]) -> None:
    out, said = printed(*words, status=1)
    odd = next(word for word in words if "\0" in word).replace("\0", r"\x00")
    assert out == ""
    assert said == (
        f"paleo: {odd}: a NUL character is in no name of a file, and in no other argument\n"
    )


def test_a_nul_in_a_path_is_said_by_the_library_too() -> None:
    for ask in (paleo.find_device, paleo.find_network):
        with pytest.raises(paleo.HardwareError, match=r"^a\\x00\.toml: embedded null byte$"):
            ask("a\0.toml")
    with pytest.raises(paleo.PaleoError, match=r"^a\\x00\.json: no such file$"):
        paleo.load("a\0.json")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(
    ("words", "status"),
    [(["summary", "nin", "--nope"], 2), (["summary", "lenet5", "--verbose"], 0)],
)
def test_a_standard_error_that_is_full_changes_no_answer(words: list[str], status: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "paleo", *words],
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert done.returncode == status
    assert bool(done.stdout) == (status == 0)
