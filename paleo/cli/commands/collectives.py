"""`paleo collectives`: what all-reduces and the like take on a cluster."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.options import Output, output_options, setting_options
from paleo.cli.plotting import Plot, plot_option
from paleo.studies.collectives import CollectiveSettings, collectives
from paleo.views.answers.collectives import collectives_answer
from paleo.views.tables.collectives import collectives_table, phases_tables


@click.command("collectives", short_help="Time of all-reduces and the like on a cluster.")
@setting_options(CollectiveSettings, "cluster", "workers", "num_bytes", "collective", "schemes")
@setting_options(CollectiveSettings, "device", "network", "ppp_comm", "nccl", "stride", "explain")
@output_options
@plot_option
def command(output: Output, plot: Plot, **settings: Any) -> None:
    """Show how long workers of a cluster take for an all-reduce and other collectives.

    Without --cluster there is one --device behind one --network for each worker. Every
    combination of clusters, collectives, schemes, workers and sizes has a row, which says which
    algorithm was taken and what bounds it: latency, or the links of a tier (`paleo clusters`).

    \b
    Examples:
      paleo collectives --cluster=dgx_h100 --num_workers=8,64
      paleo collectives --cluster=aws_p4d --collective=all_reduce --scheme=all
      paleo collectives --cluster=dgx_a100 --num_workers=12 --explain
      paleo collectives --cluster=dgx_h100 --collective=all_reduce --plot=time.svg
      paleo collectives --device=K20X --network=infiniband --bytes=64MiB
    """  # noqa: D301 (click takes the control character, not the escape)
    found = collectives(**settings)
    explained = settings["explain"] and output.for_people
    plot.write(
        output,
        [
            collectives_table(found, for_people=output.for_people),
            *(phases_tables(found) if explained else []),
        ],
        lambda: {"rows": [each.to_dict() for each in found]},
        lambda charts: charts.of_collectives(found),
        answer=lambda: collectives_answer(found),
    )
