"""`paleo metrics`: what running and training nets takes, from operations to money."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.options import Output, nets_argument, setting_option, setting_options
from paleo.cli.plotting import Plot, result_options
from paleo.cli.setting_groups import (
    CLUSTER,
    PRICING,
    SCHEDULE,
    SYNCHRONOUS,
    UPDATE,
    say_what_has_no_effect,
    say_what_is_used,
)
from paleo.step.declarations import declared
from paleo.step.plan import SHARES
from paleo.step.plan_keys import TRAINED
from paleo.studies.metrics import PARALLELISMS, MetricsSettings, metrics
from paleo.views.answers.metrics import INFERENCE, TRAINING, metrics_answer
from paleo.views.tables.metrics import metrics_table
from paleo.views.tables.ranking import is_ranking, ranking_table

_SETTINGS = declared(MetricsSettings)


@click.command("metrics", short_help="Time, cost, energy and memory of training and inference.")
@nets_argument
@setting_options(MetricsSettings, *CLUSTER, "scaling", "scheme", *SYNCHRONOUS)
@setting_option(_SETTINGS["parallel"], type=click.Choice(PARALLELISMS))
@setting_options(MetricsSettings, "hybrid_workers", *SHARES, *PRICING, *SCHEDULE, "tokens")
@setting_options(MetricsSettings, "weight_bits", "sparsity", "index_bits", *UPDATE, *TRAINED)
@setting_option(_SETTINGS["loader_rate"], type=str)
@setting_options(MetricsSettings, "price")
@setting_option(_SETTINGS["prices"], type=click.Path())
@setting_option(_SETTINGS["power"], type=str)
@click.option("--inference", is_flag=True, help="Show inference alone, on one device.")
@result_options
def command(
    nets: tuple[str, ...],
    inference: bool,
    edits: NetEdits,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> None:
    """Show what running and training each NET takes.

    Inference and memory are of one device with one worker's batch. A training step is that of
    `paleo simulate`; a whole training is epochs * dataset_size / batch steps. Energy is an upper
    bound: board power times time. "Computation equals communication" gives the number of workers
    at which the exchange of gradients first takes as long as the computation.

    \b
    Examples:
      paleo metrics vgg16 --device=K40 --batch_size=32
      paleo metrics nin --epochs=47 --dataset=imagenet --num_workers=1,8,32
      paleo metrics squeezenet --weight_bits=6 --sparsity=0.67 --index_bits=4
      paleo metrics alex_v2 --device=K80 --epochs=90 --dataset=imagenet
      paleo metrics alex_v2_8gpu --parallel=hybrid --hybrid_workers=8
    """  # noqa: D301 (click takes the control character, not the escape)
    found = metrics(edits.applied(), **settings)
    say_what_is_used(nets, settings)
    say_what_has_no_effect(settings["parallel"])
    purpose = INFERENCE if inference else TRAINING if is_ranking(found) else None
    plot.write(
        output,
        [ranking_table(found, purpose) if purpose else metrics_table(found)],
        lambda: {"metrics": [each.to_dict() for each in found]},
        lambda charts: charts.of_metrics(found),
        answer=lambda: metrics_answer(found, purpose),
    )
