"""`paleo plan`: the best ways to train a net on a cluster, or to run it on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from paleo.cli.edits import NetEdits, net_options
from paleo.cli.options import NET, Output, ranked_options, setting_option, setting_options
from paleo.cli.plotting import Plot, plot_option
from paleo.cli.setting_groups import SCHEDULE, say_what_is_used
from paleo.core.errors import SettingError
from paleo.step.declarations import declared
from paleo.studies.planning import COUNT, PlanningSettings, best_plans
from paleo.studies.planning.settings import DEPLOYED, LIMITS, OF_ALL, OF_MESH, PRICED
from paleo.views.answers.planning import planning_answer
from paleo.views.tables.planning import planning_tables

_SETTINGS = declared(PlanningSettings)
#: --output is of answers here; the command has the word for what is printed.
_ANSWER = replace(_SETTINGS["output"], name="answer", options=("--output",))
_DEPLOYED = [name for name in DEPLOYED if name not in ("ttft", "tpot", "output")]


@click.command("plan", short_help="The best plan of all: devices, degrees, batches.")
@click.argument("net", type=NET, metavar="NET")
@setting_options(PlanningSettings, "cluster", "device", "network", "workers", "objective")
@setting_option(_SETTINGS["latency"], type=str)
@setting_option(_SETTINGS["budget"], type=str)
@setting_option(_SETTINGS["deadline"], type=str)
@setting_options(PlanningSettings, *LIMITS, "inference", "batch_size", "global_batch")
@setting_options(PlanningSettings, "serve")
@setting_option(_SETTINGS["ttft"], type=str)
@setting_option(_SETTINGS["tpot"], type=str)
@setting_options(PlanningSettings, *_DEPLOYED)
@setting_option(_ANSWER)
@setting_options(PlanningSettings, "parallel", *OF_MESH, *OF_ALL)
@setting_options(PlanningSettings, *SCHEDULE, "tokens", "price")
@setting_option(_SETTINGS["prices"], type=click.Path())
@setting_option(_SETTINGS["power"], type=str)
@setting_options(PlanningSettings, *PRICED)
@click.option(
    "--front",
    is_flag=True,
    help="Show instead the plans that no other beats in time, cost and memory at once.",
)
@net_options
@ranked_options
@plot_option
def command(
    net: str, front: bool, edits: NetEdits, output: Output, plot: Plot, **settings: Any
) -> None:
    """Find the best plan for training NET, or for running it, of all that there are.

    Devices of a cluster share a language model by tensors, stages, shards and data, in every way
    that makes sense; other nets are trained data-parallel. Every combination is predicted as arrays
    and the best that fits and keeps to the limits comes first, with why others are behind, what
    would change that, and how sure it is. An option of what plans differ in, such as --tp, takes
    the place of the values that would be tried.

    \b
    Examples:
      paleo plan gpt2 --cluster=dgx_a100 --num_workers=8 --global_batch=64
      paleo plan llama3_8b --cluster=dgx_h100 --num_workers=16 --tp=2,4 --zero=1
      paleo plan resnet50 --device=T4,L4 --objective=cost --latency="20 ms"
      paleo plan resnet50_v1_5 --cluster=aws_p4d --budget="500 USD" --epochs=90
      paleo plan llama3_70b --serve --tpot="30 ms" --objective=cost
    """  # noqa: D301 (click takes the control character, not the escape)
    edited = edits.applied()
    if len(edited) > 1:
        raise SettingError("vary: a plan is of one net")
    settings["output"] = settings.pop("answer")
    found = best_plans(edited[0], output.arrangement.top or COUNT, **settings)
    say_what_is_used([net], settings)
    plot.write(
        output,
        planning_tables(found, front=front),
        found.to_dict,
        lambda charts: charts.of_planning(found),
        answer=lambda: planning_answer(found),
    )
