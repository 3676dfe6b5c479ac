"""The notebooks of the documentation run from the first cell to the last."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
pytestmark = [pytest.mark.alike, pytest.mark.slow]


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3


# Libraries that run kernels warn of what they themselves do.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_results(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("ipykernel", "pandas", "matplotlib"):
        pytest.importorskip(library, reason=f"needs {library}")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    stored = [cell.get("outputs") for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(stored), "outputs are made anew, and not kept"
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    shown = [
        output["data"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert pages
    assert all(len(page) < 100_000 for page in pages)
    assert any("80 % of measured cases" in page for page in pages)
