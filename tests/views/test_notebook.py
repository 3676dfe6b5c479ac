"""Results in notebooks: a line, HTML, a frame of pandas, a picture."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import click.testing
import pytest

import paleo
from paleo.cli import cli
from paleo.core.errors import PaleoError
from paleo.core.results import Result, Results

RESULTS: dict[str, Callable[[], Any]] = {
    "simulation": lambda: paleo.simulate("lenet5", device="T4", workers=[1, 4]),
    "run": lambda: paleo.simulate("lenet5", device="T4", workers=[1, 4]).runs[0],
    "passes": lambda: paleo.simulate("alex_v2_2gpu", parallel="model"),
    "hybrid": lambda: paleo.simulate("alex_v2_2gpu", parallel="hybrid", hybrid_workers=2),
    "grid": lambda: paleo.simulate("lenet5", device=["T4", "L4"], batch_size=[8, 16]),
    "metrics": lambda: paleo.metrics("lenet5", device="T4"),
    "one of the metrics": lambda: paleo.metrics("lenet5", device="T4")[0],
    "ranking": lambda: paleo.metrics("lenet5", device=["T4", "L4"], batch_size=[1, 32]),
    "memory": lambda: paleo.memory("lenet5", device="T4"),
    "fits": lambda: paleo.memory("lenet5", device=["T4", "L4"]),
    "footprint": lambda: paleo.footprint("lenet5"),
    "summary": lambda: paleo.summarize("lenet5"),
    "timed summary": lambda: paleo.summarize("lenet5", device="T4"),
    "serving": lambda: paleo.infer("llama3_8b", device="L40S", prompt=64, output=8, concurrency=2),
    "comparison": lambda: paleo.compare(["vgg11", "vgg13"], device="T4"),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {name: make() for name, make in RESULTS.items()}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_one_line_and_a_page_of_sentences_and_tables(
    results: dict[str, Any], name: str
) -> None:
    result = results[name]
    assert isinstance(result, Result)
    line = repr(result)
    assert re.fullmatch(r"<\w+: [A-Zl0-9].*\.>", line), line
    assert len(line) < 300
    page = result._repr_html_()
    assert page.startswith("<p>")
    assert page.count("<table>") == page.count("</table>") >= 1
    assert len(page) < 30_000
    assert line[line.index(": ") + 2 : -2] in page


@pytest.mark.parametrize("name", RESULTS)
def test_a_frame_has_a_row_for_each_and_units_in_the_names(
    results: dict[str, Any], name: str
) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    frame = results[name].to_pandas()
    assert len(frame) >= 1
    assert len(set(frame.columns)) == len(frame.columns)
    assert not [key for key in frame.columns if not re.fullmatch(r"[A-Za-z0-9_]+", key)]
    assert not any(isinstance(value, list | dict | tuple) for value in frame.to_numpy().ravel())


def test_a_frame_has_the_values_of_the_json_with_their_bands(results: dict[str, Any]) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    found = results["ranking"]
    frame = found.to_pandas()
    assert frame.inference_s.tolist() == [each.inference for each in found]
    low = [each.to_dict()["inference_s_low"] for each in found]
    assert frame.inference_s_low.tolist() == low
    (first, _) = results["run"].rows
    steps = results["run"].to_pandas()
    scheme = first.best_scheme
    assert steps.step_s_high[0] == pytest.approx(first.to_dict()["step_s_high"][scheme])


@pytest.mark.parametrize(
    "name", ["simulation", "metrics", "memory", "summary", "comparison", "serving"]
)
def test_a_plot_is_the_picture_of_the_command(results: dict[str, Any], name: str) -> None:
    pytest.importorskip("matplotlib", reason="needs Matplotlib")
    assert type(results[name].plot()).__name__ == "Figure"


def test_nothing_of_a_file_is_markup() -> None:
    text = json.dumps(
        {
            "name": "<script>alert(1)</script>",
            "layers": {
                "data": {"type": "Input", "tensor": [1, 8]},
                "<b>": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 3},
            },
        }
    )
    page = paleo.summarize(paleo.loads(text))._repr_html_()
    assert "<script>" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;" in page


def test_many_rows_are_a_number() -> None:
    page = paleo.summarize("resnet50")._repr_html_()
    assert page.count("<tr>") < 70
    assert "169 more rows" in page  # of 229, 60 are shown


def test_names_of_the_api_answer_what_the_commands_of_these_names_do() -> None:
    done = click.testing.CliRunner().invoke(
        cli, ["memory", "lenet5", "--device=T4,L4", "--batch_size=8,16", "--format=json"]
    )
    found = paleo.memory("lenet5", device=["T4", "L4"], batch_size=[8, 16])
    assert isinstance(found, tuple)
    assert json.loads(done.stdout)["nets"] == json.loads(
        json.dumps([each.to_dict() for each in found])
    )


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, results: dict[str, Any]) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PaleoError, match=r'pip install "paleo\[notebook\]"'):
        results["memory"].to_pandas()
    with pytest.raises(TypeError, match="no view"):
        Results[Any]()._repr_html_()
    assert repr(Results[Any]()) == "<Results>"
