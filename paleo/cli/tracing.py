"""`--trace`: one of the steps, or some seconds, that a command predicts as a file for Perfetto."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from paleo.cli.options import Output
from paleo.cli.plotting import Plot, result_options
from paleo.cli.printing import say
from paleo.core.errors import SettingError
from paleo.net.load import NetLike
from paleo.views.charts.numbers import counted
from paleo.views.table import in_unit

if TYPE_CHECKING:
    from paleo.step.results import Run
    from paleo.step.timeline.values import Timeline
    from paleo.studies.serving.answers import Serving

_F = TypeVar("_F", bound=Callable[..., Any])

#: The name of a file that stands for standard output.
_OUTPUT = "-"
#: What opens a trace.
_VIEWERS = "as a JSON file for Perfetto (ui.perfetto.dev) or chrome://tracing"
#: Seconds of serving that are shown.
_SECONDS = 10.0


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
        said += [*_devices(drawn), in_unit(drawn.seconds, "s"), f"{len(drawn.events):,} events"]
        return self._written(trace.dumps(drawn), said)

    def _written(self, text: bytes, said: Sequence[str]) -> bool:
        """Write a trace, say what it shows, and tell whether it was printed."""
        from paleo.cli.files import write_text

        assert self.target is not None
        write_text(text, self.target)
        is_printed = self.target == _OUTPUT
        say(f"{'standard output' if is_printed else self.target}: {', '.join(said)}")
        return is_printed


class ServingTrace(Trace):
    """What `--trace` asks for of servers: the first `seconds` of a load."""

    def __init__(self, target: str | None, seconds: float, output: Output, plot: Plot) -> None:
        super().__init__(target, output, plot)
        self.seconds = seconds

    def refuse(self, why: str) -> None:
        """Raise SettingError if there is no trace of what is asked."""
        if self.target is not None:
            raise SettingError(f"--trace: {why}")

    def write_load(self, found: Sequence[Serving]) -> bool:
        """Write the largest load that is served, and tell whether it was printed instead.

        It is on the first device or cluster.
        """
        if self.target is None:
            return False
        from paleo.studies.serving.timeline import serving_timeline
        from paleo.views import serving_trace
        from paleo.views.answers.serving import load_said, where_said

        own = [each for each in found if each.asked is found[0].asked]
        shown = max(own, key=lambda each: (each.is_stable, each.concurrency or each.rate or 0))
        drawn = serving_timeline(shown, self.seconds)
        said = [where_said(shown.asked), load_said(shown), in_unit(drawn.seconds, "s")]
        said += [f"{len(drawn.steps):,} events of steps", counted(len(drawn.requests), "request")]
        return self._written(serving_trace.dumps(drawn), said)


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
        help=f"Also write the timeline of one step, {_VIEWERS}; - prints it instead of the table. "
        "It is the step with most workers, by the best scheme.",
    )
    @functools.wraps(function)
    def command(trace_target: str | None, output: Output, plot: Plot, **kwargs: Any) -> Any:
        trace = Trace(trace_target, output, plot)
        return function(output=output, plot=plot, trace=trace, **kwargs)

    return command  # type: ignore[return-value]


def serving_result_options(function: _F) -> _F:
    """Add the options of results, and --trace and --trace_seconds, passed on as a `trace`."""

    @result_options
    @click.option(
        "--trace",
        "trace_target",
        metavar="FILE",
        help=f"Also write the first seconds of serving, {_VIEWERS}; - prints it instead of the "
        "table. They are of the largest load that is served, on the first device or cluster.",
    )
    @click.option(
        "--trace_seconds",
        type=float,
        default=_SECONDS,
        show_default=f"{_SECONDS:g}",
        help="How many seconds are in it.",
    )
    @functools.wraps(function)
    def command(
        trace_target: str | None, trace_seconds: float, output: Output, plot: Plot, **kwargs: Any
    ) -> Any:
        trace = ServingTrace(trace_target, trace_seconds, output, plot)
        return function(output=output, plot=plot, trace=trace, **kwargs)

    return command  # type: ignore[return-value]
