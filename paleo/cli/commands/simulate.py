"""`paleo simulate`: the time of training steps of nets on a cluster."""

from __future__ import annotations

import functools
from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.options import Output, nets_argument, setting_option, setting_options
from paleo.cli.plotting import Plot, result_options
from paleo.cli.setting_groups import (
    CLUSTER,
    MESH,
    PRICING,
    SYNCHRONOUS,
    UPDATE,
    beside_plan,
    say_what_has_no_effect,
    say_what_is_used,
)
from paleo.cli.tracing import Trace, trace_option
from paleo.step.declarations import declared
from paleo.step.parallelism import PARALLELISMS
from paleo.step.plan import SHARES
from paleo.step.plan_keys import TRAINED
from paleo.step.scenario import SimulateSettings
from paleo.studies.simulate import SimulatedSettings, simulate
from paleo.views.answers.simulation import simulation_answer
from paleo.views.tables.simulation import simulation_tables


@click.command("simulate", short_help="Time of a training step, by number of workers.")
@nets_argument
@setting_options(SimulateSettings, *CLUSTER, "scaling", *SHARES)
@setting_option(declared(SimulateSettings)["parallel"], type=click.Choice(list(PARALLELISMS)))
@setting_options(
    SimulateSettings, "hybrid_workers", "other_devices", *PRICING, *UPDATE, *TRAINED, "schemes"
)
@setting_option(declared(SimulateSettings)["plan"], type=click.Path())
@setting_options(SimulateSettings, *MESH)
@setting_option(declared(SimulateSettings)["loader_rate"], type=str)
@setting_options(SimulatedSettings, *SYNCHRONOUS, "tokens", "price")
@setting_option(declared(SimulatedSettings)["prices"], type=click.Path())
@setting_option(declared(SimulatedSettings)["power"], type=str)
@click.option(
    "--explain",
    is_flag=True,
    help="Show instead what bounds each step, and the exchange of gradients on most workers: its "
    "phases on each tier of links, and its buckets; of devices that share a net, what each stage "
    "spends the step on, and its memory.",
)
@result_options
@trace_option
def command(
    nets: tuple[str, ...],
    explain: bool,
    edits: NetEdits,
    output: Output,
    plot: Plot,
    trace: Trace,
    **settings: Any,
) -> None:
    """Predict the training step of each NET on a number of workers.

    A step is the forward pass, backward pass and update on each worker, and the exchange of
    gradients, which goes on beside the backward pass unless --no_overlap is given. Of several
    schemes the one counts that is quickest and exact: after it all workers have the sum of all
    gradients. (Butterfly mixing is not exact.) Speedup is over one worker.

    The knee is the number of workers, up to 65,536, with the largest speedup^2 / workers. More
    workers than that cost more than they gain.

    \b
    Examples:
      paleo simulate alex_v2
      paleo simulate nin --device=K20X --network=infiniband --scaling=strong
      paleo simulate alex_v2_4gpu --parallel=model
      paleo simulate vgg16 --conv_library=cudnn4 --workspace=256MiB
      paleo simulate squeezenet --vary=squeezenet.sr=0.125,0.5,1 --num_workers=1
      paleo simulate inception_v3 --plot=scaling.svg
      paleo simulate nin --scaling=weak --num_workers=4 --trace=step.json
      paleo simulate gpt2 --device=H100_SXM --dtype=bf16 --tokens=300e9
      paleo simulate resnet50_v1_5 --cluster=dgx_a100 --num_workers=8,64 --explain
      paleo simulate llama3_8b --cluster=dgx_h100 --plan=train.sh
    """  # noqa: D301 (click takes the control character, not the escape)
    edited = edits.applied()
    trace.check(edited)
    result = simulate(edited, **beside_plan(settings))
    say_what_is_used(nets, settings)
    say_what_has_no_effect(settings["parallel"])
    if trace.write(max(result.plans[0], key=lambda run: run.step.workers if run.step else 0)):
        return
    several = settings["schemes"] == ["all"] or len(settings["schemes"] or ()) > 1
    values = result.to_dict
    if explain and all(PARALLELISMS[run.parallel].shares_net for run in result.runs):
        from paleo.views.tables.stages import stages_tables, stages_values

        tables, values = stages_tables(result.runs), functools.partial(stages_values, result)
    elif explain and settings["parallel"] == "data":
        # Here, since most commands explain nothing.
        from paleo.studies.explain_exchange import explained_values
        from paleo.views.tables.exchanges import explained_tables

        tables = explained_tables(result.runs, for_people=output.for_people)
        values = functools.partial(explained_values, result)
    else:
        tables = simulation_tables(result, all_schemes=several)
    plot.write(
        output,
        tables,
        values,
        lambda charts: charts.of_simulation(result),
        answer=lambda: simulation_answer(result),
    )
