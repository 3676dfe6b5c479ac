"""`--trace`: one of the steps that a command predicts as a file for Perfetto."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paleo.charts.numbers import counted
from paleo.cli.files import check_file, write_file
from paleo.cli.options import Output
from paleo.cli.plotting import Plot
from paleo.errors import SettingError
from paleo.report import in_unit
from paleo.rows import Run
from paleo.simulate import NetLike

if TYPE_CHECKING:
    from paleo.timeline import Timeline

__all__ = ["Trace", "trace_option"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: The name of a file that stands for standard output.
_OUTPUT = "-"


class Trace:
    """What `--trace` asks for. Raises, before anything is computed, if it cannot be written."""

    def __init__(self, target: str | None, output: Output, plot: Plot) -> None:
        self.target = target
        if target == _OUTPUT:
            if output.format != "table" or plot.target is not None:
                other = "--plot" if plot.target is not None else f"--format {output.format}"
                raise click.UsageError(
                    f"--trace {_OUTPUT} prints the trace instead of a table: leave out {other}"
                )
        elif target is not None:
            check_file(target)
            if plot.file is not None and Path(plot.file).resolve() == Path(target).resolve():
                raise click.UsageError(f"--plot and --trace both name {target}")

    def check(self, nets: Sequence[NetLike]) -> None:
        """Raise SettingError if a timeline is asked for of several nets."""
        if self.target is not None and len(nets) > 1:
            raise SettingError(f"--trace: a timeline is of one net, here are {len(nets)}")

    def write(self, net: NetLike, runs: Sequence[Run], settings: Mapping[str, Any]) -> bool:
        """Write the timeline of one step, and tell whether it was printed instead of a table.

        It is that of the first run, with most workers and the best scheme. `settings` are those of
        the runs.
        """
        if self.target is None:
            return False
        from paleo import trace  # here, because most commands print a table alone
        from paleo.timeline import timeline

        run, own = runs[0], dict(settings)
        said = [run.net, f"{run.parallel}-parallel"]
        if run.largest:
            scheme = run.best_scheme
            own |= {"workers": run.largest.workers, "scaling": run.scaling, "scheme": scheme}
            said += [f"{run.scaling} scaling", scheme]
        drawn = timeline(net, **own)
        text = trace.dumps(drawn)
        if self.target == _OUTPUT:
            click.echo(text, nl=False)
        else:
            write_file(self.target, text)
        said += [*_devices(drawn), in_unit(drawn.seconds, "s")]
        where = "standard output" if self.target == _OUTPUT else self.target
        click.echo(f"paleo: {where}: {', '.join(said)}, {len(drawn.events):,} events", err=True)
        return self.target == _OUTPUT


def _devices(drawn: Timeline) -> list[str]:
    """Return how many workers there are and, of a hybrid step, slices; or devices."""
    if "workers" not in drawn.settings:
        return [counted(len(drawn.workers), "device")]
    slices = sum("slice" in name for name in drawn.workers)
    own = [counted(drawn.settings["workers"], "worker")]
    return [*own, counted(slices, "slice")] if slices else own


def trace_option(function: _F) -> _F:
    """Add the option --trace, passed to the command as a `trace`; it needs `output` and `plot`."""

    @click.option(
        "--trace",
        "trace_target",
        metavar="FILE",
        help="Write the timeline of one step, too: a JSON file for Perfetto (ui.perfetto.dev) or "
        "chrome://tracing; - prints it instead of the table. It is a step of the first scaling, "
        "with most workers and the best scheme.",
    )
    @functools.wraps(function)
    def command(trace_target: str | None, output: Output, plot: Plot, **kwargs: Any) -> Any:
        trace = Trace(trace_target, output, plot)
        return function(output=output, plot=plot, trace=trace, **kwargs)

    return command  # type: ignore[return-value]
