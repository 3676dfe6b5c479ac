"""What every result can do in a notebook: show itself in a line or as a page, a table, a picture.

How it is shown stands in a later wing, and is imported when somebody looks.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

#: What shows results: a module with `line`, `html`, `frame` and `figure` of one.
_SHOWN_BY = "paleo.views.notebook"

_R = TypeVar("_R")


class Result:
    """A result: `repr` is its answer in one line, and a notebook shows sentences and a table."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A dataclass would make its own.
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return the answer in one line."""
        line: str = import_module(_SHOWN_BY).line(self)
        return line

    def _repr_html_(self) -> str:
        """Return the answer and a table, as HTML."""
        html: str = import_module(_SHOWN_BY).html(self)
        return html

    def to_pandas(self) -> Any:
        """Return the rows as a pandas.DataFrame, with units in the names of columns.

        Raises PaleoError if pandas is missing.
        """
        return import_module(_SHOWN_BY).frame(self)

    def plot(self) -> Any:
        """Return the picture that `--plot` draws, a matplotlib.figure.Figure.

        Raises PaleoError if Matplotlib is missing, SettingError if there is nothing to draw.
        """
        return import_module(_SHOWN_BY).figure(self)


class Results(tuple[_R, ...], Result):
    """Several results, which are shown together."""

    __slots__ = ()
