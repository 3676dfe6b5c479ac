"""Texts in a picture: what they may hold, how large they are, where they break."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from paleo.core.errors import printable
from paleo.core.frozen import NamedTuple
from paleo.views.plots.style import part

#: Dots per inch of a picture made of dots.
DPI = 150
#: Points of an inch.
POINTS = 72
#: The lines of a text stand so far apart, in its size.
_LINE = 1.32
#: A word that is too wide is broken into so many lines at most.
_BROKEN = 4


class Box(NamedTuple):
    """A rectangle, in any unit."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        """Tell whether two rectangles have something in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def within(self, other: Box) -> bool:
        """Tell whether all of it is in another."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )


class _Font:
    """A font of Matplotlib, by the widths of its letters: to lay out every text would take long.

    Kerning is left out; it draws letters together more than apart.
    """

    #: Points at which letters are measured, without hinting, so that widths go with the size.
    _SIZE = 100

    def __init__(self, weight: str) -> None:
        fonts = part("font_manager")
        self._font = fonts.get_font(fonts.findfont(fonts.FontProperties(weight=weight)))
        self._flags = part("ft2font").LoadFlags.NO_HINTING
        self._widths: dict[str, float] = {}

    def has(self, letter: str) -> bool:
        """Tell whether there is such a letter; one that is missing would be an empty box."""
        return bool(self._font.get_char_index(ord(letter)))

    def width(self, letter: str) -> float:
        """Return how wide a letter is, over the size."""
        if letter not in self._widths:
            self._font.set_size(self._SIZE, POINTS)
            glyph = self._font.load_char(ord(letter), flags=self._flags)
            self._widths[letter] = glyph.linearHoriAdvance / 2**16 / self._SIZE
        return self._widths[letter]


class Ruler:
    """Measures texts in inches, as Matplotlib draws them in the style of the context."""

    def __init__(self) -> None:
        self._fonts = {weight: _Font(weight) for weight in ("normal", "bold")}

    def text(self, text: object) -> str:
        """Return a text on one line, with escapes for what the font cannot draw.

        So a picture is the same wherever it is drawn, whatever fonts there are.
        """
        string = printable(text)
        if string.isascii():
            return string
        plain = self._fonts["normal"]
        return "".join(
            c if c.isascii() or plain.has(c) else c.encode("unicode_escape").decode()
            for c in string
        )

    def width(self, text: str, size: float, weight: str = "normal") -> float:
        """Return the inches that a text is wide."""
        font = self._fonts[weight]
        return sum(map(font.width, text)) * size / POINTS

    def widest(self, texts: Iterable[str], size: float) -> float:
        """Return the inches of the widest of these texts, 0 if there are none."""
        return max((self.width(text, size) for text in texts), default=0.0)

    @staticmethod
    def height(size: float, lines: int = 1) -> float:
        """Return the inches of so many lines."""
        return lines * size * _LINE / POINTS

    def cut(self, text: str, size: float, most: float, weight: str = "normal") -> str:
        """Return a text that is not wider; names of layers begin alike, so more of its end stays.

        A third of what is left is of its beginning.
        """
        text = self.text(text)
        if self.width(text, size, weight) <= most:
            return text
        for kept in range(len(text) - 1, 2, -1):
            front = kept // 3
            short = f"{text[:front]}...{text[len(text) - (kept - front) :]}"
            if self.width(short, size, weight) <= most:
                return short
        return "..."

    def wrapped(self, text: str, size: float, most: float, weight: str = "normal") -> list[str]:
        """Return the lines of a text, none wider; a word that is too wide is broken, or cut."""
        lines: list[str] = []
        for word in self.text(text).split():
            for piece in self._broken(word, size, most, weight):
                together = f"{lines[-1]} {piece}" if lines else piece
                if piece is word and lines and self.width(together, size, weight) <= most:
                    lines[-1] = together
                else:
                    lines.append(piece)
        return lines

    def _broken(self, word: str, size: float, most: float, weight: str) -> list[str]:
        """Return the lines of a word: itself if it is not too wide, else up to _BROKEN pieces."""
        if self.width(word, size, weight) <= most:
            return [word]
        left = self.cut(word, size, (_BROKEN - 1) * most, weight)
        found = [""]
        for letter in left:
            if found[-1] and self.width(found[-1] + letter, size, weight) > most:
                found.append("")
            found[-1] += letter
        return found


def apart(places: Sequence[float], sizes: Sequence[float], gap: float) -> bool:
    """Tell whether texts of these sizes, centred on places in order, leave gaps between them."""
    ends = [(place - size / 2, place + size / 2) for place, size in zip(places, sizes, strict=True)]
    return all(a[1] + gap <= b[0] for a, b in itertools.pairwise(ends))
