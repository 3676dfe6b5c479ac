"""Charts as plain text: bars of characters, for a terminal without pictures.

A bar is as long as its value, from 0, whatever the axis of the chart is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from paleo.core.errors import printable
from paleo.core.frozen import NamedTuple
from paleo.views.charts.base import Chart, Series
from paleo.views.charts.numbers import plain, shown
from paleo.views.table import columns_of, cut, wrapped

#: What bars are made of: a character for each layer of a stack, one for references, and what ends a
#: bar, by eighths of a character.
BLOCKS = ("█▓▒░▚", "·", " ▏▎▍▌▋▊▉")
_ASCII = ("#=-+%", ".", "")
#: The end of a bar that is broken off.
_BROKEN = ">"
#: A bar shorter than this says nothing.
_LEAST = 15
#: What stands behind points that are on a reference.
_MARK = "*"
#: So many points of a series are listed.
_POINTS = 20
_GAP = "  "


def text_chart(charts: Chart | Iterable[Chart], width: int = 80, *, unicode: bool = True) -> str:
    """Return charts as lines of at most `width` columns, in ASCII unless `unicode`.

    Raises SettingError if there is nothing to draw.
    """
    drawn = [charts] if isinstance(charts, Chart) else list(charts)
    noted: set[str] = set()  # what was said need not be said again
    texts = []
    for chart in drawn:
        notes = [note for note in chart.notes if note not in noted]
        texts.append(_Text(chart.checked(), max(width, 40), unicode).text(notes))
        noted.update(notes)
    # As tables have it: names may still hold what the terminal does not show.
    return "\n".join(texts) if unicode else "\n".join(texts).replace("(\N{MICRO SIGN}s)", "(us)")


class _Row(NamedTuple):
    """A bar with its name, of this character; it stands for `value`, and is as long as `drawn`."""

    name: str
    value: float | None
    fill: str
    drawn: float | None
    band: tuple[float, float] | None = None


class _Text:
    """One chart as text."""

    def __init__(self, chart: Chart, width: int, unicode: bool) -> None:
        self.chart, self.width = chart, width
        self.fills, self.light, self.eighths = BLOCKS if unicode else _ASCII
        self.full = self.fills[0]
        self.own, self.references = chart.predictions, chart.references
        self.places = range(len(chart.series[0].x))

    def text(self, said: Iterable[str]) -> str:
        """Return it with these notes."""
        chart = self.chart
        kinds: dict[str, Callable[[], list[str]]] = {
            "lines": self._lines,
            "points": self._points,
            "bars": self._bars,
            "grouped": self._grouped,
            "columns": self._bars,
            "schedule": self._schedule,
            "curves": self._points,
        }
        bars = f"bars: {chart.y_label}"
        if chart.kind == "schedule":
            bars = f"{chart.y_label} from left to right, a row for each {chart.x_label}"
        if chart.shaded:
            bars += ", in brackets the ends of its error band"
        if chart.others_scale < 1:
            bars += f"; one that ends in {_BROKEN} is broken off"
        heads = [chart.title, chart.setting, bars]
        lines = [line for head in heads for line in wrapped(head, self.width)]
        body = kinds[chart.kind]()
        notes = [line for note in said for line in wrapped(f"note: {note}", self.width)]
        return "\n".join([*lines, "", *body, *([""] if notes else []), *notes]) + "\n"

    def _bar(self, value: float | None, most: float, room: int, fill: str) -> str:
        """Return a bar of at most `room` characters for the largest value."""
        if not value or value < 0 or not most:
            return ""
        eighths = round(8 * room * min(value / most, 1))
        if fill != self.full or not self.eighths:
            return fill * round(eighths / 8)
        return fill * (eighths // 8) + self.eighths[eighths % 8].strip()

    def _blocks(
        self, blocks: Sequence[tuple[str, Sequence[_Row]]], most: float, between: str | None = None
    ) -> list[str]:
        """Return blocks of lines under headings, all bars on one scale.

        `between` stands between two blocks, None for nothing; a block without a heading is not
        indented.
        """
        every = [row for _, rows in blocks for row in rows]
        indent = _GAP if any(heading for heading, _ in blocks) else ""
        wide = max((columns_of(printable(row.name)) for row in every), default=0)
        left = min(wide, self.width // 2)
        rest = self.width - len(indent) - left - 2 * len(_GAP)
        values = [_value(row.value) for row in every]
        bands = _bands([row.band for row in every])
        wide = max(map(len, bands), default=0)
        if rest - wide - max(map(len, _aligned(values)), default=0) >= _LEAST:
            values = [value + band for value, band in zip(_aligned(values), bands, strict=True)]
        size = max(map(len, values), default=0)
        room = max(0, rest - size)
        found, texts = [], iter(values)
        for number, (heading, rows) in enumerate(blocks):
            found += [between] if number and between is not None else []
            found += wrapped(heading, self.width) if heading else []
            for row in rows:
                bar = _broken(self._bar(row.drawn, most, room, row.fill), row.value != row.drawn)
                name = _filled(row.name, left)
                found.append(f"{indent}{name}{_GAP}{next(texts):>{size}}{_GAP}{bar}".rstrip())
        return found

    def _lines(self) -> list[str]:
        """Return a block of bars for each series, a bar for each number along the axis."""
        every = (*self.own, *self.references)
        size = max(len(plain(x)) for series in every for x in series.x)
        blocks = [
            (
                f"{printable(series.title)}, by {self.chart.x_label}",
                [
                    self._row(series, i, plain(x).rjust(size), self._line_fill(series))
                    for i, x in enumerate(series.x)
                ],
            )
            for series in every
        ]
        return self._blocks(blocks, _most(every), "")

    def _grouped(self) -> list[str]:
        """Return a block for each category, a bar for each series; a line where there is one."""
        most = max(self._drawn(series, i) for series in self.chart.series for i in self.places)
        every = (*self.own, *self.references)
        if len(every) == 1:
            own = every[0]
            rows = [self._row(own, i, str(x), self.full) for i, x in enumerate(own.x)]
            return self._blocks([("", rows)], most)
        blocks = [
            (
                cut(printable(category), self.width),
                [
                    self._row(series, i, series.name, self._fill(series))
                    for series in every
                    if series.y[i] is not None
                ],
            )
            for i, category in enumerate(every[0].x)
        ]
        return self._blocks(blocks, most)

    def _row(self, series: Series, i: int, name: str, fill: str) -> _Row:
        band = series.band.get(i) if series in self.chart.shaded else None
        return _Row(name, series.y[i], fill, self._drawn(series, i), band)

    def _drawn(self, series: Series, i: int) -> float:
        """Return what a bar is as long as: the sum of others may be broken off."""
        return (series.y[i] or 0.0) * (self.chart.others_scale if i == len(series.y) - 1 else 1.0)

    def _line_fill(self, series: Series) -> str:
        return self.light if series.is_reference else self.full

    def _fill(self, series: Series) -> str:
        if series.is_reference:
            return self.light
        return self.fills[self.own.index(series) % len(self.fills)]

    def _bars(self) -> list[str]:
        """Return a line for each category: the values of the series, and their bars in a row."""
        names = [printable(str(name)) for name in self.own[0].x]
        # Of columns the references are what they add up to.
        wholes = self.references if self.chart.kind == "columns" else []
        columns = [
            [
                value + band
                for value, band in zip(
                    _aligned(list(map(_value, series.y))),
                    _bands([series.band.get(i) for i in self.places]),
                    strict=True,
                )
            ]
            for series in (*self.own, *wholes)
        ]
        heads = [
            f"{self.fills[i % len(self.fills)]} {printable(series.name)}"
            for i, series in enumerate(self.own)
        ]
        heads = [*heads, *(printable(series.name) for series in wholes)]
        if len(heads) == 1:
            heads = [""]
        sizes = [
            max(map(columns_of, [head, *column]))
            for head, column in zip(heads, columns, strict=True)
        ]
        left = min(max(map(columns_of, [self.chart.x_label, *names])), self.width // 3)
        room = self.width - left - sum(sizes) - len(_GAP) * (1 + len(sizes))
        if (self.references and not wholes) or room < _LEAST:
            return self._grouped()
        drawn = [[self._drawn(series, i) for series in self.own] for i in self.places]
        most = max(sum(max(y, 0.0) for y in values) for values in drawn)
        found = []
        if any(heads):
            texts = [f"{head:>{size}}" for head, size in zip(heads, sizes, strict=True)]
            found.append(_GAP.join([_filled(self.chart.x_label, left), *texts]))
        for i, name in enumerate(names):
            texts = [f"{column[i]:>{size}}" for column, size in zip(columns, sizes, strict=True)]
            is_broken = self.chart.others_scale < 1 and i == len(names) - 1
            bar = _broken(self._stack(drawn[i], most, room), is_broken)
            found.append(_GAP.join([_filled(name, left), *texts, bar]).rstrip())
        return found

    def _stack(self, values: Sequence[float], most: float, room: int) -> str:
        """Return bars in a row, of which the ends are where the sums are."""
        if len(values) == 1:
            return self._bar(values[0], most, room, self.full)
        bar, reached = "", 0.0
        for i, value in enumerate(values):
            reached += max(value, 0.0)
            cells = round(room * reached / most) if most else 0
            bar += self.fills[i % len(self.fills)] * (cells - len(bar))
        return bar

    def _schedule(self) -> list[str]:
        """Return a line for each row, each character what takes most of its time; then the time."""
        fills = [self.fills[i % len(self.fills)] for i in range(len(self.own))]
        keys = [
            f"{fill} {printable(series.name)}" for fill, series in zip(fills, self.own, strict=True)
        ]
        names = list(dict.fromkeys(str(name) for series in self.own for name in series.x))
        heads = {name: printable(f"{self.chart.x_label} {name}") for name in names}
        left = min(max(map(columns_of, heads.values())), self.width // 3)
        room = self.width - left - len(_GAP)
        end = max(
            start + (length or 0.0)
            for series in self.own
            for start, length in zip(series.starts, series.y, strict=True)
        )
        cell = end / room
        # Of each row and character, how much of its time each series takes.
        shares: dict[str, list[dict[str, float]]] = {
            name: [{} for _ in range(room)] for name in names
        }
        for fill, series in zip(fills, self.own, strict=True):
            for name, start, length in zip(series.x, series.starts, series.y, strict=True):
                until = start + (length or 0.0)
                for i in range(int(start / cell), min(int(until / cell) + 1, room)):
                    own = min(until, (i + 1) * cell) - max(start, i * cell)
                    row = shares[str(name)][i]
                    row[fill] = row.get(fill, 0.0) + own
        lines = [
            f"{_filled(heads[name], left)}{_GAP}"
            + "".join(_most_of(own, cell) for own in shares[name])
            for name in names
        ]
        times = [shown(end * part) for part in (0.25, 0.5, 0.75, 1)]
        axis = "0" + "".join(f"{time:>{self._ends(i, room)}}" for i, time in enumerate(times))
        return [
            *_packed(keys, self.width),
            *(line.rstrip() for line in lines),
            f"{'':{left}}{_GAP}{axis}",
        ]

    @staticmethod
    def _ends(number: int, room: int) -> int:
        """Return how many columns there are from one of four times of an axis to the next."""
        return room * (number + 1) // 4 - (room * number // 4 or 1)

    def _points(self) -> list[str]:
        """Return a block for each series, a bar for each point; the first ones, if many.

        Of curves, what is on a reference is marked.
        """
        is_marked = self.chart.kind == "curves"
        marked = {at for each in self.references for at in zip(each.x, each.y, strict=True)}
        mark = f"{_MARK} " if is_marked else ""
        found = [f"{mark}{printable(series.name)}" for series in self.references]
        found += [""] if found else []
        blocks = []
        for series in self.own:
            labels = series.labels or ("",) * len(series.x)
            at = _aligned([shown(x) for x in series.x[:_POINTS]])
            size = max(map(columns_of, labels[:_POINTS]), default=0)
            rows = [
                self._row(
                    series,
                    i,
                    f"{text}  {_filled(label, size)} {_MARK}"
                    if is_marked and (series.x[i], series.y[i]) in marked
                    else f"{text}  {label}".rstrip(),
                    self.full,
                )
                for i, (text, label) in enumerate(zip(at, labels, strict=False))
            ]
            of = f", {_POINTS} of {len(series.x):,}" if len(series.x) > _POINTS else ""
            name = ", name" if series.labels else ""
            said = f"{self.chart.x_label}{name}, {self.chart.y_label}"
            blocks.append((f"{printable(series.name)}{of}: {said}", rows))
        return [*found, *self._blocks(blocks, _most(self.own), "")]


def _most_of(shares: dict[str, float], cell: float) -> str:
    """Return the character of what takes most of a cell's time, a space where that is nothing."""
    idle = cell - sum(shares.values())
    most = max(shares, key=lambda fill: shares[fill], default=" ")
    return most if shares.get(most, 0.0) > idle else " "


def _packed(texts: Iterable[str], width: int) -> list[str]:
    """Return texts in lines, as many as each holds; none is broken."""
    lines: list[str] = []
    for text in texts:
        together = f"{lines[-1]}{_GAP}{text}" if lines else text
        if lines and columns_of(together) <= width:
            lines[-1] = together
        else:
            lines.append(text)
    return lines


def _broken(bar: str, is_broken: bool) -> str:
    return bar[:-1] + _BROKEN if bar and is_broken else bar


def _bands(bands: Sequence[tuple[float, float] | None]) -> list[str]:
    """Return the ends of bands in brackets, as wide as each other; nothing if there is none."""
    said = [f" ({shown(band[0])} to {shown(band[1])})" if band else "" for band in bands]
    wide = max(map(len, said), default=0)
    return [f"{text:{wide}}" for text in said]


def _most(every: Iterable[Series]) -> float:
    return max((y for series in every for y in series.y if y is not None), default=0.0)


def _value(value: float | None) -> str:
    return "" if value is None else shown(value)


def _aligned(values: Sequence[str]) -> list[str]:
    """Return numbers filled up so that their points stand below each other."""
    parts = [value.partition(".") for value in values]
    before = max((len(whole) for whole, _, _ in parts), default=0)
    after = max((len(point + rest) for _, point, rest in parts), default=0)
    return [f"{whole:>{before}}{point + rest:{after}}" for whole, point, rest in parts]


def _filled(text: str, size: int) -> str:
    """Return a text cut or filled up to so many columns."""
    short = cut(printable(text), size)
    return short + " " * (size - columns_of(short))
