"""`paleo profile`: nets layer by layer, predicted beside measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.files import write_nets
from paleo.cli.measuring import executor_option, measuring_options, write_measured
from paleo.cli.options import Output, choice_option, layers_option, say_no_effect
from paleo.cli.plotting import Plot
from paleo.cli.progress import progress
from paleo.core.errors import results_of
from paleo.measure.executors import EXECUTORS
from paleo.measure.profile import DIRECTIONS, GRADIENTS, convolutions, profile
from paleo.views.answers.measuring import profile_answer
from paleo.views.tables.measuring import profile_table


@click.command("profile", short_help="Time of each layer here: predicted and measured.")
@measuring_options(
    executor_option(
        (),
        f"Also measure each layer on this machine, with {', '.join(EXECUTORS)} or several of them.",
    ),
    what=(
        choice_option(
            "direction",
            DIRECTIONS,
            "forward",
            "The passes: all is a training step, with both gradients and the update.",
        ),
        choice_option(
            "gradient_wrt", GRADIENTS, "data", "With --direction=backward, what the gradient is of."
        ),
    ),
    files=(
        click.option(
            "--extract_conv_dir",
            type=click.Path(),
            metavar="DIR",
            help="Also write each convolution into this folder as a net file. A file there is only "
            "replaced if it is such a net of the same name.",
        ),
    ),
)
@layers_option
def command(
    nets: tuple[str, ...],
    executors: list[str],
    extract_conv_dir: str | None,
    edits: NetEdits,
    output: Output,
    every_layer: bool,
    plot: Plot,
    **settings: Any,
) -> int:
    """Show the time of each layer of each NET, predicted and measured.

    Predictions are for --device. With --executor each layer also runs on this machine, alone
    and on random inputs. Shown are the median, the spread (interquartile range / median) and
    measured / predicted, as "torch / predicted". `paleo calibrate` writes a device file for
    this machine, so that both are of the same device.

    A layer that an executor cannot run is marked. Ctrl-C ends measuring and prints what was
    measured so far. docs/measuring.md says what is run and how.

    \b
    Examples:
      paleo profile alex_v2
      paleo profile nin --device=K80 --direction=backward --gradient_wrt=filter
      paleo profile resnet18 --executor=torch --batch_size=8 --num_iter=20
      paleo profile resnet18 --executor=torch --batch_size=8 --plot=layers.png
      paleo profile vgg16 --device=mymachine.toml --executor=torch --direction=all
      paleo profile vgg16 --extract_conv_dir=convolutions
    """  # noqa: D301 (click takes the control character, not the escape)
    if settings["direction"] != "backward":
        say_no_effect("--direction=backward", "gradient_wrt")
    if not executors:
        say_no_effect("--executor", "place", "num_warmup", "num_iter")
    chosen = edits.applied()
    # Of each net one by layer, and one of points by executor.
    plot.check_number(len(chosen) * (1 + len(set(executors))))
    if extract_conv_dir is not None:
        extracted = results_of(
            lambda net: convolutions(net, settings["batch_size"], settings["importing"]), chosen
        )
        write_nets([net for several in extracted for net in several], Path(extract_conv_dir))
    result = profile(chosen, executors=executors, progress=progress, **settings)
    return write_measured(
        result,
        output,
        plot,
        lambda run: profile_table(run if every_layer else run.folded()),
        lambda charts: charts.of_profiles(
            [run if every_layer else run.folded() for run in result.runs]
        ),
        lambda: profile_answer(result.runs),
        (nets, settings),
        is_measured=bool(executors),
    )
