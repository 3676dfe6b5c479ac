"""`--plot`: a picture of a result, or a chart of characters below its table.

What draws is imported where something is drawn: most commands print a table alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paleo.cli.edits import net_options
from paleo.cli.options import Output, output_options, several, terminal_width
from paleo.cli.printing import show
from paleo.views.table import Table

if TYPE_CHECKING:
    from paleo.views.charts.base import Chart

_F = TypeVar("_F", bound=Callable[..., Any])

#: The name of a file that stands for a chart of characters.
_TEXT = "-"
#: Columns of a chart where there is no terminal.
_WIDTH = 80


class Plot:
    """What `--plot` asks for: `write` prints a result, and draws it if that was asked for.

    Raises a PaleoError, before anything is computed, for a file that is no image or that cannot be
    written, and if Matplotlib is missing.
    """

    def __init__(self, target: str | None, output: Output) -> None:
        self.target = target
        if target == _TEXT:
            if not output.for_people:
                raise click.UsageError(f"--plot {_TEXT} goes with tables only")
        elif target is not None:
            from paleo.cli.files import check_file
            from paleo.core.optional import extra
            from paleo.views.plots.formats import image_format

            check_file(target)
            self.format = image_format(target)
            extra("matplotlib", "a plot", "Matplotlib", "plot")

    @property
    def file(self) -> str | None:
        """The file that is written, if any."""
        return None if self.target == _TEXT else self.target

    def check_number(self, charts: int) -> None:
        """Raise SettingError if a picture cannot have so many charts: before they are measured."""
        if self.file is not None:
            from paleo.views.plots import check_number

            check_number(charts)

    def write(
        self,
        output: Output,
        tables: Sequence[Table],
        values: Callable[[], Any],
        charts: Callable[[Any], Sequence[Chart]],
        figure: Callable[[Sequence[Chart]], Any] | None = None,
        answer: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Print `answer()` and tables, or `values()` as JSON, and draw what `charts` finds.

        It is called with the module paleo.views.charts.results. Drawing comes first, so that
        nothing is printed where it cannot be. `figure` makes the picture of the charts, if
        `paleo.views.plots.draw` is not to.
        """
        if self.target is None:
            output.write(tables, values, answer)
            return
        from paleo.views.charts import results

        if self.target == _TEXT:
            drawn = _as_text(charts(results))
            output.write(tables, values, answer)
            is_markdown = output.format == "markdown"
            show(f"\n```text\n{drawn}```\n" if is_markdown else f"\n{drawn}")
            return
        from paleo.cli.files import write_file
        from paleo.views.plots import draw, image

        picture = image((figure or draw)(charts(results)), self.format)
        output.write(tables, values, answer)
        write_file(self.target, picture)


def _as_text(charts: Sequence[Chart]) -> str:
    from paleo.views.charts_in_text import BLOCKS, text_chart

    try:
        "".join(BLOCKS).encode(sys.stdout.encoding or "ascii")
        has_blocks = True
    except UnicodeEncodeError:
        has_blocks = False
    return text_chart(charts, terminal_width() or _WIDTH, unicode=has_blocks)


def scattered(charts: Sequence[Chart]) -> Any:
    """Return the picture of a chart of many points around a line."""
    from paleo.views.plots.scatter import scatter

    return scatter(*charts)


def plot_option_of(what: str) -> Callable[[_F], _F]:
    """Return what adds the option --plot, passed on as a `plot`; it needs `output`.

    `what` is drawn, in the words of the help.
    """

    def add(function: _F) -> _F:
        @click.option(
            "--plot",
            type=click.Path(allow_dash=True),  # completes names of files
            metavar="FILE",
            help=f"Also draw {what}, into a .svg, .png or .pdf file; - draws with characters "
            "below the table.",
        )
        @functools.wraps(function)
        def command(plot: str | None, output: Output, **kwargs: Any) -> Any:
            return function(output=output, plot=Plot(plot, output), **kwargs)

        return command  # type: ignore[return-value]

    return add


plot_option = plot_option_of("the result")
#: How nets are read and edited, and how the result of them is shown.
result_options = several((net_options, output_options, plot_option))
