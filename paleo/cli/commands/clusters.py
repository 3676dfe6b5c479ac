"""`paleo clusters`: the predefined clusters, or one drawn as tiers of links, with sources."""

from __future__ import annotations

import click

from paleo.cli.options import Names, Output, output_options
from paleo.cluster import cluster_names, find_cluster
from paleo.core.errors import results_of
from paleo.views.answers.listing import clusters_answer
from paleo.views.tables.clusters import cluster_json, cluster_list, cluster_table

_NAME = Names(cluster_names, may_be_file=True)


@click.command("clusters", short_help="List the predefined clusters, with sources.")
@click.argument("names", nargs=-1, type=_NAME, metavar="[NAME]...")
@output_options
def command(names: tuple[str, ...], output: Output) -> None:
    """List all predefined clusters, or draw each NAME as tiers of links, from the inside out.

    A NAME is a cluster, an alias or a TOML file. A tier connects devices, or whole tiers of those
    before it. Bandwidths are those of one direction, after line coding.

    \b
    Examples:
      paleo clusters
      paleo clusters dgx_h100
      paleo clusters --format=json
    """  # noqa: D301 (click takes the control character, not the escape)
    clusters = results_of(find_cluster, names or cluster_names())
    output.write(
        [cluster_table(cluster) for cluster in clusters]
        if output.for_people and names
        else [cluster_list(clusters)],
        lambda: {"clusters": [cluster_json(cluster) for cluster in clusters]},
        lambda: clusters_answer(clusters),
    )
