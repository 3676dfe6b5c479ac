"""A picture of several charts: groups of one setting below each other, their panels in rows."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from paleo.core.errors import SettingError
from paleo.views.charts.base import OF_LINES, Chart
from paleo.views.plots import style
from paleo.views.plots.bars import Bars, Columns
from paleo.views.plots.panels import Curves, Lines, Panel, Points
from paleo.views.plots.schedule import Turns
from paleo.views.plots.texts import DPI, Ruler

_T = TypeVar("_T")

#: What draws charts of each kind.
_KINDS: dict[str, type[Panel]] = {
    "lines": Lines,
    "points": Points,
    "bars": Bars,
    "grouped": Bars,
    "columns": Columns,
    "schedule": Turns,
    "curves": Curves,
}

#: More charts are no picture any more.
MOST_CHARTS = 24
#: Charts side by side.
_ACROSS = 3
#: Inches around the picture, between panels, between rows and between groups.
EDGE, _BETWEEN, _ROWS, _GROUPS = 0.2, 0.3, 0.25, 0.4
#: Inches of the sample in a legend, and between it, its name and the next sample.
_SAMPLE, _SAMPLE_GAP, _NEXT = 0.42, 0.08, 0.22
#: No side of a picture has more dots.
_MOST_DOTS = 20_000


def draw(charts: Chart | Iterable[Chart]) -> style.Figure:
    """Return the picture of a chart, or of several, as a matplotlib.figure.Figure.

    Charts of one setting that follow each other stand side by side. Raises SettingError if there is
    nothing to draw, or too much; PaleoError without Matplotlib.
    """
    drawn = [charts] if isinstance(charts, Chart) else list(charts)
    if not drawn:
        raise SettingError("plot: there is nothing to draw")
    check_number(len(drawn))
    for chart in drawn:
        chart.checked()
    with style.context():
        picture = _Picture(drawn)
        picture.draw()
        figure = picture.figure
        figure.draw_without_rendering()  # makes the ticks
        for text in figure.findobj(style.part("text").Text):
            text.set_parse_math(False)  # outside of the context, too
    return figure


def check_number(charts: int) -> None:
    """Raise SettingError if a picture cannot have so many charts, which need not be there yet."""
    if charts > MOST_CHARTS:
        raise SettingError(
            f"plot: {charts} charts are too many for one picture (at most {MOST_CHARTS}); "
            "choose fewer nets or settings"
        )


def image(figure: style.Figure, image_format: str) -> bytes:
    """Return a picture as "svg", "png" or "pdf"; the same picture gives the same bytes."""
    target = io.BytesIO()
    # No date, so that nothing but the picture decides on the bytes.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(image_format, {})
    if title := figure.get_label():
        metadata["Title"] = title  # what a screen reader says of it, and a viewer above it
    with style.context():
        dpi = min(DPI, int(_MOST_DOTS / max(figure.get_size_inches())))
        figure.savefig(target, format=image_format, dpi=dpi, metadata=metadata)
    return target.getvalue()


class Sheet:
    """A figure that is filled from top to bottom: only then is it known how high it is."""

    #: Inches from side to side.
    width: float

    def __init__(self, charts: Sequence[Chart]) -> None:
        self.figure, self.ruler = style.part("figure").Figure(dpi=DPI), Ruler()
        titles = dict.fromkeys(chart.title for chart in charts)
        # What a picture is of: its titles, and the first setting.
        self.figure.set_label(self.ruler.text(f"{', '.join(titles)}: {charts[0].setting}"))
        self.pending: list[Callable[[float], None]] = []

    def finish(self, height: float) -> None:
        """Draw what was placed."""
        self.figure.set_size_inches(self.width, height)
        for draw in self.pending:
            draw(height)

    def texts(
        self, text: str, x: float, y: float, most: float, size: float,
        *, weight: str = "normal", colour: str | None = None,
    ) -> float:  # fmt: skip
        """Place a text, broken into lines, and return where it ends."""
        for line in self.ruler.wrapped(text, size, most, weight):

            def draw(height: float, line: str = line, y: float = y) -> None:
                ink = {} if colour is None else {"color": colour}
                self.figure.text(
                    x / self.width, 1 - y / height, line,
                    va="top", size=size, weight=weight, **ink,
                )  # fmt: skip

            self.pending.append(draw)
            y += self.ruler.height(size)
        return y


class _Picture(Sheet):
    """Puts groups into a figure."""

    def __init__(self, charts: Sequence[Chart]) -> None:
        super().__init__(charts)
        alone = len(charts) == 1
        self.groups = [
            self._panels(list(own), alone)
            for _, own in itertools.groupby(charts, key=lambda chart: chart.setting)
        ]
        inner = max(
            sum(_width(panel) for panel in row) + _BETWEEN * (len(row) - 1)
            for group in self.groups
            for row in _rows(group)
        )
        self.inner = max(inner, 4.5)
        self.width = self.inner + 2 * EDGE

    def _panels(self, charts: list[Chart], alone: bool) -> list[Panel]:
        names: dict[bool, list[str]] = {True: [], False: []}  # lines are no bars: each begin anew
        for chart in charts:
            names[chart.kind in OF_LINES] += [series.name for series in chart.predictions]
        found = {are_lines: style.looks(own) for are_lines, own in names.items()}
        widen = 1.35 if alone else 1.0
        panels = [
            kind(chart, found[chart.kind in OF_LINES], self.ruler, widen * kind.axes_width)
            for chart in charts
            for kind in [_KINDS[chart.kind]]
        ]
        for row in _rows(panels):
            _level(row)
        return panels

    def draw(self) -> None:
        """Place the groups, each the panels of one setting, then draw."""
        y = EDGE
        for number, group in enumerate(self.groups):
            y += _GROUPS if number else 0
            y = self._place(group, y)
        self.finish(y + EDGE)

    def _place(self, panels: list[Panel], y: float) -> float:
        """Place panels of one setting below it, and their notes below them."""
        setting = panels[0].chart.setting
        y = self.texts(setting, EDGE, y, self.inner, style.SETTING_SIZE, colour=style.QUIET)
        shared = [panel for panel in panels if panel.chart.kind in OF_LINES]
        shared = shared if len(shared) > 1 else []
        entries = {name: handle for panel in shared for name, handle in panel.entries}
        y = self._legend(list(entries.items()), EDGE, y + 0.04, self.inner)
        y += 0.1
        for number, row in enumerate(_rows(panels)):
            y += _ROWS if number else 0
            y = self._row(row, y, shared)
        size = style.NOTE_SIZE
        for note in dict.fromkeys(note for panel in panels for note in panel.chart.notes):
            y = self.texts(f"note: {note}", EDGE, y + 0.02, self.inner, size, colour=style.QUIET)
        return y

    def _row(self, row: list[Panel], top: float, shared: list[Panel]) -> float:
        """Place panels side by side, their axes beginning at the same height.

        Those that are `shared` have their legend above all.
        """
        heads = []
        x, size = EDGE, style.TITLE_SIZE
        for panel in row:
            y = self.texts(panel.chart.title, x, top, _width(panel), size, weight="bold")
            if panel not in shared:
                y = self._legend(panel.entries, x, y + 0.02, _width(panel))
            heads.append(y + panel.top)
            x += _width(panel) + _BETWEEN
        start, x, end = max(heads), EDGE, 0.0
        for panel in row:
            self._panel(panel, x + panel.left, start)
            end = max(end, start + panel.height + panel.below)
            x += _width(panel) + _BETWEEN
        return end

    def _panel(self, panel: Panel, x: float, y: float) -> None:
        def draw(height: float) -> None:
            place = (
                x / self.width,
                1 - (y + panel.height) / height,
                panel.width / self.width,
                panel.height / height,
            )
            panel.draw(self.figure.add_axes(place))

        self.pending.append(draw)

    def _legend(self, entries: list[tuple[str, Any]], x: float, y: float, most: float) -> float:
        """Place a legend in as many columns as there is room for, and return where it ends."""
        if not entries:
            return y
        own = _SAMPLE + _SAMPLE_GAP + _NEXT
        names = [self.ruler.cut(name, style.LABEL_SIZE, most - own) for name, _ in entries]
        widths = [self.ruler.widest([name], style.LABEL_SIZE) + own for name in names]
        columns = next(
            number
            for number in range(len(names), 0, -1)
            if number == 1 or sum(map(max, _columns(widths, number))) <= most + _NEXT
        )
        lines = -(-len(names) // columns)
        em = style.LABEL_SIZE / 72
        # Matplotlib fills column after column; people read row after row.
        order = list(itertools.chain(*_columns(range(len(names)), columns)))

        def draw(height: float) -> None:
            self.figure.legend(
                [entries[i][1] for i in order], [names[i] for i in order], loc="upper left",
                bbox_to_anchor=(x / self.width, 1 - y / height), ncols=columns, frameon=False,
                fontsize=style.LABEL_SIZE, borderpad=0, borderaxespad=0, handlelength=_SAMPLE / em,
                handletextpad=_SAMPLE_GAP / em, columnspacing=_NEXT / em, labelspacing=0.32,
            )  # fmt: skip

        self.pending.append(draw)
        return y + self.ruler.height(style.LABEL_SIZE, lines) + 0.08


def _rows(panels: list[Panel]) -> list[list[Panel]]:
    """Return panels in as few rows as there have to be, all as long as the first or one less.

    Wide ones stand alone.
    """
    found: list[list[Panel]] = []
    for is_wide, group in itertools.groupby(panels, key=lambda panel: panel.is_wide):
        own = list(group)
        rows = len(own) if is_wide else -(-len(own) // _ACROSS)
        ends = [-(-len(own) * row // rows) for row in range(rows + 1)]
        found += [own[start:end] for start, end in itertools.pairwise(ends)]
    return found


def _level(row: list[Panel]) -> None:
    """Make panels side by side as high as each other, as far as suits them."""
    least, suits, most = zip(*(panel.heights for panel in row), strict=True)
    height = max(*least, min(max(suits), *most)) if len(row) > 1 else suits[0]
    for panel in row:
        panel.stretch(height)


def _width(panel: Panel) -> float:
    return panel.left + panel.width + panel.right


def _columns(values: Sequence[_T], number: int) -> list[Sequence[_T]]:
    """Return values in so many columns, row after row: the first columns may be longer."""
    return [values[start::number] for start in range(number)]
