"""`paleo report`: one HTML file that has everything in it, and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import paleo
from paleo.cli import cli
from paleo.web.page import data_block


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["report", *arguments])


class Page(HTMLParser):
    """Collects the elements of a page with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in self.texts:
            self._inside = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside][-1] += data

    @property
    def report(self) -> dict[str, Any]:
        scripts = [attrs for tag, attrs in self.elements if tag == "script"]
        (place,) = [i for i, attrs in enumerate(scripts) if attrs.get("id") == "report"]
        found: dict[str, Any] = json.loads(self.texts["script"][place])
        return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("report") / "nin.html"
    done = run(
        "nin", "lenet5", "--device=K20X", "--network=infiniband", "--num_workers=1,8",
        "--scaling=weak,strong",
        "--epochs=47", "--dataset=imagenet", "--price=0.9", "-o", str(path),
    )  # fmt: skip
    assert (done.exit_code, done.output) == (0, "")
    return Page(path.read_text("utf-8"))


def _view(report: dict[str, Any], net: str, scaling: str) -> Any:
    """Return where the answers are of the first device and batch."""
    (of_device,) = report["views"][net].values()
    (of_batch,) = of_device.values()
    return of_batch[scaling]


def answer(page: Page, net: str, scaling: str, kind: str, choice: str) -> dict[str, Any]:
    report = page.report
    found: dict[str, Any] = report["answers"][_view(report, net, scaling)[kind][choice]]
    return found


@pytest.mark.slow
def test_it_names_no_address_but_its_own_namespaces(page: Page) -> None:
    for tag, attrs in page.elements:
        for key in ("src", "href", "action", "data", "poster", "srcset"):
            assert not (attrs.get(key) or "").startswith(("http", "//", "static")), (tag, attrs)
    assert {tag for tag, attrs in page.elements if attrs.get("src")} == set()
    assert not [tag for tag, _ in page.elements if tag in ("iframe", "object", "embed", "base")]
    assert "@import" not in "".join(page.texts["style"])
    assert "url(http" not in "".join(page.texts["style"])


def test_its_policy_allows_its_own_scripts_and_styles_alone(page: Page) -> None:
    (policy,) = [
        str(attrs["content"])
        for tag, attrs in page.elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    scripts = [attrs for tag, attrs in page.elements if tag == "script"]
    for attrs, text in zip(scripts, page.texts["script"], strict=True):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert ("type" in attrs) != (f"'sha256-{digest}'" in policy)
    for text in page.texts["style"]:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_its_numbers_are_those_of_the_commands(page: Page) -> None:
    on: dict[str, Any] = {"device": "K20X", "network": "infiniband"}
    for net in ("nin", "lenet5"):
        for scaling in ("weak", "strong"):
            found = answer(page, net, scaling, "scaling", "")
            run = paleo.simulate(net, workers=[1, 8], scaling=scaling, **on).runs[0]
            series, *_ = found["charts"]["speedup"]["series"]
            rows: Any = run.rows
            assert series["y"] == [row.whole_step("auto").speedup for row in rows]
    report = page.report
    place = _view(report, "nin", "strong")["exports"]["summary.csv"]["8"]
    # 128 samples on 8 workers are 16 each.
    command = ["summary", "nin", "--device=K20X", "--batch_size=16", "--format=csv"]
    assert report["texts"][place] == CliRunner().invoke(cli, command).stdout


def test_its_commands_print_what_it_shows(page: Page) -> None:
    command, *_ = answer(page, "nin", "strong", "scaling", "")["commands"]
    assert command["text"].startswith("paleo simulate nin ")
    shown = CliRunner().invoke(cli, [*command["text"].split()[1:], "--format=csv"]).stdout
    report = page.report
    place = _view(report, "nin", "strong")["exports"]["simulate.csv"][""]
    assert report["texts"][place] == shown


def test_equal_answers_are_there_once(page: Page) -> None:
    weak = _view(page.report, "nin", "weak")
    assert weak["layers"]["1"] == weak["layers"]["8"]  # a worker has 128 samples in both
    strong = _view(page.report, "nin", "strong")
    assert strong["layers"]["1"] == weak["layers"]["1"]
    assert strong["layers"]["8"] != strong["layers"]["1"]


def test_what_stays_is_said(page: Page) -> None:
    report = page.report
    said = {each["label"]: each["value"] for each in report["said"]}
    assert said["Device"] == "K20X"
    assert said["Price"] == "0.9 USD a device-hour"
    assert said["Share of peak, network"] == "1"
    assert "Fused" not in said
    assert report["choices"]["workers"] == [1, 8]
    assert report["title"] == "nin, lenet5 on K20X"
    assert page.texts["title"] == ["nin, lenet5 on K20X - Paleo"]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A report of two nets on two devices with two batches, of which T4 does not hold one."""
    path = tmp_path_factory.mktemp("several") / "report.html"
    done = run(
        "nin", "vgg16", "--device=T4,A100", "--batch_size=32,4096", "--dtype=mixed_fp16",
        "--num_workers=1,4", "--epochs=10", "--dataset=imagenet", "-o", str(path),
    )  # fmt: skip
    assert (done.exit_code, done.output) == (0, "")
    return Page(path.read_text("utf-8")).report


def test_several_devices_and_batches_are_compared_first(several: dict[str, Any]) -> None:
    assert several["choices"]["device"] == ["T4", "A100"]
    assert several["choices"]["batch_size"] == [32, 4096]
    assert several["title"] == "nin, vgg16 on T4, A100_SXM_80GB"
    found = several["compare"]
    places = [
        (net, device, size)
        for net in ("nin", "vgg16") for device in ("T4", "A100_SXM_80GB") for size in (32, 4096)
    ]  # fmt: skip
    assert found["names"] == [f"{net}, {device}, batch {size:,}" for net, device, size in places]
    assert [row[0] for row in found["table"]["rows"]] == found["names"]
    heads = [column["title"] for column in found["table"]["columns"]]
    for (net, device, size), row, fits in zip(
        places, found["table"]["rows"], found["fits"], strict=True
    ):
        (one,) = paleo.simulate(
            net, device=device, batch_size=size, dtype="mixed_fp16", workers=[1, 4]
        ).runs
        step = one.rows[1].whole_step(one.rows[1].best_scheme)
        shown = float(row[heads.index("samples/s")].replace(",", ""))
        assert shown == pytest.approx(step.throughput, rel=0.06)
        assert fits == (size <= (one.worth.largest_batch or 0))
    assert not all(found["fits"])
    assert "does not fit" in found["answer"][0]
    said = {each["label"] for each in several["said"]}
    assert not {"Device", "Batch size"} & said


def test_each_of_several_devices_and_batches_has_its_own_view(several: dict[str, Any]) -> None:
    for device in ("T4", "A100"):
        for size in ("32", "4096"):
            view = several["views"]["vgg16"][device][size]["weak"]
            answer = several["answers"][view["scaling"][""]]
            assert answer["settings"]["device"] == device
            assert answer["settings"]["batch_size"] == int(size)
            assert f"--device={device}" in answer["commands"][0]["text"]


def test_one_of_everything_is_compared_with_nothing(tmp_path: Path) -> None:
    done = run("lenet5", "--num_workers=1", "-o", str(tmp_path / "x.html"))
    assert done.exit_code == 0
    assert Page((tmp_path / "x.html").read_text("utf-8")).report["compare"] is None


def test_names_do_not_end_the_data(tmp_path: Path) -> None:
    net = json.loads(Path("nets/lenet5.json").read_text("utf-8"))
    net["name"] = "</script><script>alert(1)</script>"
    (tmp_path / "<b>.json").write_text(json.dumps(net))
    done = run(str(tmp_path / "<b>.json"), "--num_workers=1", "-o", str(tmp_path / "out.html"))
    assert (done.exit_code, done.output) == (0, "")
    text = (tmp_path / "out.html").read_text("utf-8")
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "<b>" not in text
    page = Page(text)
    assert page.report["answers"][0]["table"]["title"].startswith(net["name"])
    assert page.texts["title"][0].endswith("<b>.json on TITAN_X - Paleo")


def test_data_cannot_end_its_element() -> None:
    value = {"a": "</script>&amp;<!--"}
    assert not re.search("[<>&]", data_block(value))
    assert json.loads(data_block(value)) == value


def test_an_edited_net_has_no_commands_that_would_print_something_else(tmp_path: Path) -> None:
    path = tmp_path / "edited.html"
    options = ["--num_workers=1", "--scaling=weak", "-o", str(path)]
    assert run("lenet5", "--scale_input=2", *options).exit_code == 0
    page = Page(path.read_text("utf-8"))
    (net,) = page.report["choices"]["net"]
    assert answer(page, net, "weak", "scaling", "")["commands"] == []


def test_it_goes_to_standard_output_too() -> None:
    done = run("lenet5", "--num_workers=1", "-o", "-")
    assert done.stdout.startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope", "-o", "x.html"], ["unknown net 'nope'"]),
        (
            ["nin", "-o", "no/such/x.html"],
            ["no/such/x.html: cannot be written: there is no folder"],
        ),
        (["nin", "nin", "-o", "x.html"], ["nin: given twice"]),
        (
            ["nin", "--num_workers=", "-o", "x.html"],
            ["num_workers: expected one or more"],
        ),
        (["nin", "--num_workers=a", "-o", "x.html"], ["num_workers: expected a whole"]),
        (["nin", "--scaling=", "-o", "x.html"], ["scaling: expected one or more"]),
        (["nin", "--scaling=big", "-o", "x.html"], ["scaling: "]),
        (["nin", "--device=X", "-o", "x.html"], ["unknown device 'X'"]),
        (["nin", "--device=T4,X", "-o", "x.html"], ["unknown device 'X'"]),
        (["nin", "--device=T4,T4", "-o", "x.html"], ["device: one is given twice"]),
        (["nin", "--device=", "-o", "x.html"], ["device: expected one or more, got none"]),
        (["nin", "--batch_size=8,a", "-o", "x.html"], ["batch_size: expected a whole number"]),
        (["nin", "--batch_size=8,8", "-o", "x.html"], ["batch_size: one is given twice"]),
        (["nin", "--network=X", "-o", "x.html"], ["unknown network 'X'"]),
        (["nin", "--price=X", "-o", "x.html"], ["price: expected a number"]),
        (["nin", "--epochs=-1", "-o", "x.html"], ["epochs: expected a number above 0"]),
    ],
)
def test_mistakes_are_one_line_each_and_leave_no_file(
    arguments: list[str], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == len(said)
    for line, start in zip(lines, said, strict=True):
        assert line.startswith(f"paleo: {start}")
    assert list(tmp_path.iterdir()) == []


def test_all_mistakes_are_told_together(tmp_path: Path) -> None:
    done = run(
        "nonet", "lenet5", "--device=nodevice", "--cost_model=nomodel", "--network=nonetwork",
        "--price=xx", "--epochs=-1", "--dataset=foo", "--optimizer=q", "--num_workers=0",
        "-o", str(tmp_path / "x.html"),
    )  # fmt: skip
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    for said in (
        "unknown net 'nonet'", "unknown device 'nodevice'", "unknown cost model 'nomodel'",
        "unknown network 'nonetwork'", "price: ", "epochs: ", "unknown dataset 'foo'",
        "unknown optimizer 'q'", "num_workers: ",
    ):  # fmt: skip
        assert len([line for line in lines if line.startswith(f"paleo: {said}")]) == 1, said
    assert len(lines) == 9


def test_it_begins_with_eight_workers_or_fewer(page: Page) -> None:
    assert page.report["settings"]["workers"] == 8


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    done = run("lenet5", "-o", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr == f"paleo: {tmp_path}: cannot be written: it names a folder\n"


def test_where_to_is_asked_for() -> None:
    assert run("nin").exit_code == 2


@pytest.mark.slow
def test_it_needs_no_extra(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('flask', 'waitress', 'matplotlib'): sys.modules[name] = None\n"
        "from paleo.cli import cli\n"
        f"cli(['report', 'lenet5', '--num_workers=1', '-o', {str(tmp_path / 'x.html')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
