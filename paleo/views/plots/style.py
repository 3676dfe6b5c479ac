"""How all pictures look: fonts, sizes, colours, and what tells series apart without colours.

The colours are those of M. Okabe and K. Ito, "Color Universal Design" (2002, revised 2008), which
people see apart whatever their colour vision, but for yellow, which is too pale for lines. Each
line also has a dash pattern and a marker of its own, each layer of bars a hatch, for print in grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from paleo.core.frozen import NamedTuple
from paleo.core.optional import extra
from paleo.views.charts.base import looks_of

#: Points of texts: titles, settings, labels of axes and ticks, notes, and ticks of many bars.
TITLE_SIZE, SETTING_SIZE, LABEL_SIZE, NOTE_SIZE, SMALL_SIZE = 11.0, 9.0, 8.5, 8.0, 7.0
#: Text, text that stands back, references and the grid.
DARK, QUIET, REFERENCE, GRID = "#1a1a1a", "#4d4d4d", "#666666", "#dddddd"

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000")
_DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 2),
    (1.2, 1.6),
    (7, 2, 1.2, 2),
    (9, 3),
    (3, 1.5, 1, 1.5, 1, 1.5),
    (2.5, 1.5),
    (11, 2, 3, 2),
)
#: The dash pattern without gaps, as Matplotlib has it.
SOLID: tuple[float, tuple[float, ...]] = (0, ())
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++", "oo")

#: Settings of Matplotlib while a picture is made. Without mathtext, two $ make no formula.
_SETTINGS = {
    "font.family": ["DejaVu Sans"],
    "font.size": LABEL_SIZE,
    "text.color": DARK,
    "text.parse_math": False,
    "text.usetex": False,
    "text.hinting": "none",
    "axes.labelcolor": DARK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.8,
    "axes.labelsize": LABEL_SIZE,
    "axes.facecolor": "white",
    "axes.unicode_minus": True,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.bbox": None,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": DARK,
    "ytick.labelcolor": DARK,
    "hatch.linewidth": 0.6,
    "path.simplify": True,
    "svg.fonttype": "path",
    "svg.hashsalt": "paleo",
}


class Look(NamedTuple):
    """What tells a series from others: by colour, and without."""

    colour: str
    dash: tuple[float, tuple[float, ...]]
    marker: str
    hatch: str


def look(number: int) -> Look:
    """Return the look of a series; dash and marker are unique together, as colour and hatch are."""
    return Look(
        _COLOURS[number % len(_COLOURS)],
        (0, _DASHES[number % len(_DASHES)]),
        _MARKERS[number % len(_MARKERS)],
        _HATCHES[number % len(_HATCHES)],
    )


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the looks of series by name."""
    return {name: look(number) for name, number in looks_of(names).items()}


#: What a picture is: a matplotlib.figure.Figure, whose types are there where Matplotlib is.
Figure: TypeAlias = Any


def part(name: str) -> Any:
    """Return a module of Matplotlib; raises PaleoError without it."""
    return extra(f"matplotlib.{name}", "a plot", "Matplotlib", "plot")


@contextmanager
def context() -> Iterator[None]:
    """Use the style in a block; raises PaleoError without Matplotlib."""
    with part("style").context(["default", _SETTINGS]):  # whatever a matplotlibrc says
        yield
