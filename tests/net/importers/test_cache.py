"""Imported nets in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import paleo
from paleo.core.errors import NetSpecError
from paleo.net.importers import ImportOptions, cache, read

pytest.importorskip("google.protobuf", reason="needs protobuf")

NET = """name: "small" input: "data" input_shape {{ dim: 2 dim: 3 dim: 4 dim: 4 }}
layer {{ name: "scores" type: "InnerProduct" bottom: "data" top: "scores"
         inner_product_param {{ num_output: {} }} }}
"""


def params(outputs: int) -> int:
    return 3 * 4 * 4 * outputs + outputs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a cache folder of this test's own, and the working directory beside it."""
    monkeypatch.setenv("PALEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text(NET.format(5))
    # It counts as written just now, however long the test takes.
    os.utime("net.prototxt", (2**32, 2**32))
    return tmp_path / "cache"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List what importers read."""
    done = list[str]()

    def listed(importer: str, target: str, options: ImportOptions) -> paleo.NetSpec:
        done.append(target)
        return read(importer, target, options)

    monkeypatch.setattr("paleo.net.load.read", listed)
    return done


def kept(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_the_second_time_nothing_is_imported(folder: Path, reads: list[str]) -> None:
    first, second = paleo.load("net.prototxt"), paleo.load("net.prototxt")
    assert reads == ["net.prototxt"]
    assert first == second
    assert paleo.build(second).num_params == params(5)
    assert second.file == "net.prototxt"
    assert len(kept(folder)) == 1
    assert not folder.stat().st_mode & 0o077  # nobody else's


def test_a_copy_elsewhere_is_the_same_net(folder: Path, reads: list[str]) -> None:
    paleo.load("net.prototxt")
    Path("elsewhere").mkdir()
    Path("elsewhere/net.prototxt").write_bytes(Path("net.prototxt").read_bytes())
    assert paleo.load("elsewhere/net.prototxt").file == "elsewhere/net.prototxt"
    assert len(reads) == 1


def test_content_options_and_name_decide(folder: Path, reads: list[str]) -> None:
    assert paleo.build(paleo.load("net.prototxt")).num_params == params(5)
    Path("net.prototxt").write_text(NET.format(7))
    assert paleo.build(paleo.load("net.prototxt")).num_params == params(7)
    Path("net.prototxt").write_text(NET.format(5))
    assert paleo.build(paleo.load("net.prototxt")).num_params == params(5)
    assert len(reads) == 2
    paleo.load("net.prototxt", ImportOptions(phase="test"))
    Path("net.prototxt").rename("other.prototxt")
    paleo.load("other.prototxt")
    assert len(reads) == len(kept(folder)) == 4


@pytest.mark.parametrize(
    "version", ["paleo.net.importers.cache._own_code", "paleo.net.importers.cache._version"]
)
def test_versions_decide(
    version: str, folder: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paleo.load("net.prototxt")
    monkeypatch.setattr(version, lambda *_: "another")
    paleo.load("net.prototxt")
    assert len(reads) == 2


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List files whose content is looked at."""
    done = list[str]()
    digest = hashlib.file_digest

    def listed(opened: Any, name: str) -> Any:
        done.append(Path(opened.name).name)
        return digest(opened, name)

    monkeypatch.setattr("hashlib.file_digest", listed)
    return done


def aged(path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float = 5.0) -> None:
    """Have it be so much later than when a file was written."""
    found = path.stat()
    now = max(found.st_mtime_ns, found.st_ctime_ns) + int(seconds * 1e9)
    monkeypatch.setattr("time.time_ns", lambda: now)


def test_a_file_that_is_as_it_was_is_not_read_through(
    folder: Path, reads: list[str], hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path("net.prototxt")
    aged(path, monkeypatch)
    first, second = paleo.load("net.prototxt"), paleo.load(str(path.absolute()))
    assert len(hashed) == len(reads) == 1
    assert first.layers == second.layers
    # The same size and the same time as before: when it was changed tells.
    before = path.stat()
    path.write_text(NET.format(7))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    aged(path, monkeypatch)
    assert paleo.build(paleo.load("net.prototxt")).num_params == params(7)
    assert len(hashed) == len(reads) == 2


def test_what_was_written_just_now_is_read_through(
    folder: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Written again within what its times tell apart, it would look the same.
    for seconds in (0.0, 1.0, -60.0):
        aged(Path("net.prototxt"), monkeypatch, seconds)
        paleo.load("net.prototxt")
    assert len(hashed) == 3
    assert len(kept(folder)) == 1


def test_without_the_cache_nothing_is_kept(
    folder: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        paleo.load("net.prototxt", ImportOptions(cache=False))
    monkeypatch.setenv("PALEO_CACHE", "")
    paleo.load("net.prototxt")
    assert len(reads) == 3
    assert not kept(folder)


def test_a_net_that_is_refused_is_not_kept(folder: Path) -> None:
    Path("net.prototxt").write_text(NET.format(5).replace("InnerProduct", "Unheard"))
    for _ in range(2):
        with pytest.raises(NetSpecError, match="Unheard"):
            paleo.load("net.prototxt")
    assert not kept(folder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data.replace(b"5", b"6"),
        lambda data: b"\xff" * len(data),
    ],
    ids=["empty", "cut", "changed", "no text"],
)
def test_a_damaged_file_is_as_none(
    damage: Callable[[bytes], bytes], folder: Path, reads: list[str]
) -> None:
    paleo.load("net.prototxt")
    (path,) = kept(folder)
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert paleo.build(paleo.load("net.prototxt")).num_params == params(5)
    assert len(reads) == 2
    assert path.read_bytes() == good


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(importer: str, target: str, options: ImportOptions) -> paleo.NetSpec:
        Path(target).write_text(NET.format(700))
        return read(importer, target, options)

    monkeypatch.setattr("paleo.net.load.read", changing)
    paleo.load("net.prototxt")
    assert not kept(folder)


def test_what_is_used_last_remains(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[Path] = []
    for i in range(4):
        Path(f"net{i}.prototxt").write_text(NET.format(5))
    for i in range(3):
        paleo.load(f"net{i}.prototxt")
        files += set(kept(folder)) - set(files)
        os.utime(files[i], (i, i))
    monkeypatch.setattr(cache, "MOST", sum(file.stat().st_size for file in files) + 10)
    paleo.load("net0.prototxt")  # the oldest is used again
    paleo.load("net3.prototxt")
    assert len(kept(folder)) == 3
    assert [file.exists() for file in files] == [True, False, True]


def test_many_at_once_leave_whole_files(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        nets = list(pool.map(paleo.load, ["net.prototxt"] * 24))
    assert {paleo.build(net).num_params for net in nets} == {params(5)}
    assert len(kept(folder)) == 1


def test_a_folder_that_cannot_be_made_is_no_error(
    folder: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALEO_CACHE", str(Path("net.prototxt").absolute() / "x"))
    for _ in range(2):
        assert paleo.build(paleo.load("net.prototxt")).num_params == params(5)
    assert len(reads) == 2


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "~/.cache/paleo"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/paleo"),
        ("linux", {"XDG_CACHE_HOME": "caches"}, "~/.cache/paleo"),
        ("linux", {"PALEO_CACHE": "here"}, "here"),
        ("darwin", {}, "~/Library/Caches/paleo"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/paleo/Cache"),
        ("win32", {}, "~/AppData/Local/paleo/Cache"),
    ],
)
def test_the_folder_is_where_the_system_has_caches(
    platform: str,
    environment: dict[str, str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PALEO_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache.folder() == Path(expected.replace("~", str(tmp_path)))


def test_a_package_is_kept_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    monkeypatch.setenv("PALEO_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    about = tmp_path / "timm-1.2.dist-info"
    about.mkdir()

    def place(version: str, **more: Any) -> Path | None:
        (about / "METADATA").write_text(f"Name: timm\nVersion: {version}\n")
        found = cache.entry("pytorch", "timm:net", ImportOptions(**more))
        return found.path if found else None

    first = place("1.2")
    assert first is not None
    assert first == place("1.2")
    assert len({first, place("1.3"), place("1.2", phase="test")}) == 3
    (about / "direct_url.json").write_text(
        '{"url": "file:///timm", "dir_info": {"editable": true}}'
    )
    assert place("1.2") is None  # who changes it does not change its version


@pytest.mark.parametrize("target", ["python:models:net", "torchvision:alexnet", "net.dense"])
def test_what_content_does_not_decide_is_not_kept(
    target: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("net.dense").write_text("of an importer of another package")
    monkeypatch.setattr(
        cache, "_version", lambda library: None if library == "torchvision" else "1"
    )
    importer = "dense" if target == "net.dense" else "pytorch"
    assert cache.entry(importer, target, ImportOptions()) is None


def test_a_command_does_without_the_library(folder: Path) -> None:
    program = "import sys; from paleo.cli import cli; cli(standalone_mode=False); print({})"
    words = [sys.executable, "-c", program.format("'google.protobuf' in sys.modules")]
    said = []
    for more in ([], [], ["--no_cache"]):
        done = subprocess.run(
            [*words, "summary", "net.prototxt", *more], capture_output=True, text=True, check=True
        )
        said.append(done.stdout.splitlines())
    assert [lines[-1] for lines in said] == ["True", "False", "True"]
    assert said[0][:-1] == said[1][:-1] == said[2][:-1]
    assert len(kept(folder)) == 1
