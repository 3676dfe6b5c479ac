"""`paleo fullpass`: training steps and inference in one piece, predicted beside measured."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.measuring import executor_option, measuring_options, write_measured
from paleo.cli.options import Output
from paleo.cli.plotting import Plot
from paleo.cli.progress import progress
from paleo.measure.profile import fullpass
from paleo.views.answers.measuring import fullpass_answer
from paleo.views.tables.measuring import fullpass_table


@click.command("fullpass", short_help="Time of a whole step here: predicted and measured.")
@measuring_options(
    executor_option(
        ("torch",), "The framework that runs the net on this machine: torch, tensorflow, or both."
    ),
    what=(
        click.option(
            "--inference",
            is_flag=True,
            help="Measure inference instead: a forward pass.",
        ),
    ),
)
def command(
    nets: tuple[str, ...],
    edits: NetEdits,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> int:
    """Measure whole training steps of each NET on this machine, beside their predictions.

    The step is measured twice: as a whole, and with a wait after each part (forward, loss,
    backward, update). With the waits it may take longer. The loss, a sum of the net's outputs,
    is not predicted.

    Shown are medians, the spread (interquartile range / median) and measured / predicted, as
    "torch / predicted". Predictions are for --device; `paleo calibrate` writes a device file
    for this machine.

    A net that does not fit in memory is named and left out. Ctrl-C ends measuring and prints
    what was measured so far.

    \b
    Examples:
      paleo fullpass resnet18 --batch_size=8 --device=mymachine.toml
      paleo fullpass alexnet vgg16 --batch_size=16 --num_warmup=2 --num_iter=10
      paleo fullpass resnet50 --device=H100_SXM --place=cuda --dtype=bf16
      paleo fullpass mobilenet_v2 --inference --batch_size=1
      paleo fullpass resnet18 resnet50 --batch_size=4 --plot=steps.svg
    """  # noqa: D301 (click takes the control character, not the escape)
    chosen = edits.applied()
    # One of all nets, if there are several or no parts, and one of the parts of each.
    plot.check_number(1 if settings["inference"] else len(chosen) + (len(chosen) > 1))
    result = fullpass(chosen, progress=progress, **settings)
    return write_measured(
        result,
        output,
        plot,
        fullpass_table,
        lambda charts: charts.of_fullpasses(result.runs),
        lambda: fullpass_answer(result.runs),
        (nets, settings),
    )
