"""`--trace`: one of the steps that a command predicts as a file for Perfetto."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paleo.cli.options import Output
from paleo.cli.plotting import Plot
from paleo.cli.printing import say
from paleo.core.errors import SettingError
from paleo.net.load import NetLike
from paleo.step.results import Run
from paleo.views.charts.numbers import counted
from paleo.views.table import in_unit

if TYPE_CHECKING:
    from paleo.step.timeline.values import Timeline

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
            from paleo.cli.files import check_apart, check_file  # here: most write no trace

            check_file(target)
            check_apart("plot", plot.file, "trace", target)

    def check(self, nets: Sequence[NetLike]) -> None:
        """Raise SettingError if a timeline is asked for of several nets."""
        if self.target is not None and len(nets) > 1:
            raise SettingError(f"--trace: a timeline is of one net, here are {len(nets)}")

    def write(self, run: Run) -> bool:
        """Write the timeline of one step, and tell whether it was printed instead of a table.

        It is that of a run with most workers and the best scheme.
        """
        if self.target is None:
            return False
        # Here, because most commands print a table alone.
        from paleo.cli.files import write_text
        from paleo.studies.timeline import timeline
        from paleo.views import trace

        said = [run.net, run.division]
        step: dict[str, Any] = {"workers": 1, "scaling": "weak"}
        if run.plan.other_devices:
            step = {"workers": run.rows[0].workers, "scaling": run.scaling}
        if run.largest:
            scheme = run.best_scheme
            step["workers"] = run.largest.workers
            if run.scaling:
                step["scaling"] = run.scaling
                said.append(f"{run.scaling} scaling")
            if scheme in run.plan.exchange_schemes:
                step["scheme"] = scheme
                said.append(scheme)
        drawn = timeline(run.scenario, **step)
        text = trace.dumps(drawn)
        write_text(text, self.target)
        said += [*_devices(drawn), in_unit(drawn.seconds, "s")]
        where = "standard output" if self.target == _OUTPUT else self.target
        say(f"{where}: {', '.join(said)}, {len(drawn.events):,} events")
        return self.target == _OUTPUT


def _devices(drawn: Timeline) -> list[str]:
    """Return how many workers there are and, of a hybrid step, slices; or devices, or stages."""
    stages = sum("stage" in name for name in drawn.workers)
    if stages:
        return [counted(drawn.settings["workers"], "worker"), counted(stages, "stage")]
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
        help="Also write the timeline of one step, as a JSON file for Perfetto (ui.perfetto.dev) "
        "or "
        "chrome://tracing; - prints it instead of the table. It is the step with most workers, by "
        "the best scheme.",
    )
    @functools.wraps(function)
    def command(trace_target: str | None, output: Output, plot: Plot, **kwargs: Any) -> Any:
        trace = Trace(trace_target, output, plot)
        return function(output=output, plot=plot, trace=trace, **kwargs)

    return command  # type: ignore[return-value]
