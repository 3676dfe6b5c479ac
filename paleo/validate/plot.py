"""A scatter plot: predicted against measured times, both on logarithmic axes."""

from __future__ import annotations

import io
import os
from pathlib import Path

from paleo.errors import SettingError
from paleo.quantity import Array
from paleo.validate.extras import extra
from paleo.validate.report import Report

__all__ = ["IMAGES", "image_format", "scatter"]

#: The kinds of image, by the end of the file's name.
IMAGES = ("png", "svg", "pdf")

#: So many groups have a colour of their own.
_COLOURS = 10


def image_format(path: str | os.PathLike[str]) -> str:
    """Return the kind of image that a file's name asks for; raises SettingError if none."""
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in IMAGES:
        ends = ", ".join(f".{each}" for each in IMAGES)
        raise SettingError(f"{os.fspath(path)}: a plot is a file that ends in one of {ends}")
    return suffix


def scatter(report: Report, image: str) -> bytes:
    """Return the plot as an image of this format.

    Colours tell cost models apart, where there are several, else the groups of the report.
    Raises PaleoError without Matplotlib, SettingError if there is nothing to draw.
    """
    import numpy as np

    figures = extra("matplotlib.figure", "a plot", "Matplotlib")
    series = _series(report)
    if not series:
        raise SettingError("plot: no row could be predicted")
    figure = figures.Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    low = min(min(x.min(), y.min()) for _, x, y in series)
    high = max(max(x.max(), y.max()) for _, x, y in series)
    ends = np.array([low / 1.5, high * 1.5])
    for name, x, y in series:
        size = 12 if len(x) < 1000 else 3
        axes.scatter(
            x, y, s=size, alpha=0.5, linewidths=0, label=f"{name} ({len(x):,})", rasterized=True
        )
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured (s)",
        ylabel="predicted (s)",
    )  # fmt: skip
    axes.legend(fontsize="small")
    target = io.BytesIO()
    # No date: the same rows give the same file.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(image, {})
    figure.savefig(target, format=image, dpi=150, metadata=metadata)
    return target.getvalue()


def _series(report: Report) -> list[tuple[str, Array, Array]]:
    """Return names, measured and predicted seconds of what has a colour of its own."""
    measured = report.cases.measured
    found = []
    if len(report.cost_models) > 1:
        found = [(name, measured, report.predicted[name]) for name in report.cost_models]
    else:
        predicted = report.predicted[report.cost_models[0]]
        found = [(name, measured[own], predicted[own]) for name, own in _places(report)]
    drawn = [(name, y > 0, x, y) for name, x, y in found]  # not NaN
    return [(name, x[known], y[known]) for name, known, x, y in drawn if known.any()]


def _places(report: Report) -> list[tuple[str, Array]]:
    """Return the groups of a report with the places of their cases, small ones as one."""
    import numpy as np

    columns = [report.cases.labels[key].tolist() for key in report.by]
    named = [", ".join(filter(None, texts)) for texts in zip(*columns, strict=True)]
    names = np.array(named or ["all"] * len(report.cases), object).astype(str)
    kinds, counts = np.unique(names, return_counts=True)
    own = kinds.tolist()
    if len(kinds) > _COLOURS:
        own = sorted(kinds[np.argsort(-counts, kind="stable")][: _COLOURS - 1].tolist())
    found = [(name or "all", (names == name).nonzero()[0]) for name in own]
    rest = (~np.isin(names, own)).nonzero()[0]
    return [*found, (f"{len(kinds) - len(own)} others", rest)] if len(rest) else found
