"""`paleo search`: the best net of a design space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from paleo.cli.edits import NetEdits
from paleo.cli.files import check_file, write_file
from paleo.cli.options import NET, Output, setting_option, setting_options, verbose
from paleo.cli.plotting import Plot, result_options
from paleo.cli.setting_groups import CONVOLUTIONS, KERNELS, UPDATE, say_what_is_used
from paleo.core.errors import SettingError
from paleo.net.spaces import find_design
from paleo.net.writer import dumps
from paleo.step.declarations import declared
from paleo.step.plan import RATED
from paleo.studies.search import search
from paleo.studies.search.settings import SearchSettings
from paleo.views.answers.search import search_answer
from paleo.views.tables.search import search_tables

_SETTINGS = declared(SearchSettings)


@click.command("search", short_help="The best net of a design space, under constraints.")
@click.argument("net", type=NET, metavar="[NET]", required=False)
@setting_options(SearchSettings, "space", "objective")
@setting_option(_SETTINGS["constraint"], multiple=True, show_default=False)
@setting_options(SearchSettings, "front", "exact", "samples", "seed", "batch_size", *RATED)
@setting_options(SearchSettings, "dtype", *KERNELS, *CONVOLUTIONS, *UPDATE, "loss", "recompute")
@setting_options(SearchSettings, "price")
@setting_option(_SETTINGS["prices"], type=click.Path())
@setting_option(_SETTINGS["power"], type=str)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(readable=False),
    help="Write the best net to this net file.",
)
@result_options
def command(
    net: str | None,
    file: str | None,
    edits: NetEdits,
    output: Output,
    plot: Plot,
    **settings: Any,
) -> None:
    """Find the best of all nets that NET becomes by the choices of a design space.

    A space is a predefined one, a file of choices, or what --vary says, in which "none" leaves a
    layer out. Where times and sizes are sums over layers, the best of all nets is found, however
    many there are; else all are evaluated one by one, or so many --samples at random, which is
    said. --set and the like change NET before. Without NET it is the space's own.

    \b
    Examples:
      paleo search nin_227 --space=thesis --constraint="params<4e6" --device=K20X
      paleo search vgg19 --space=thesis --constraint="layers>=12" --front=params
      paleo search vgg16 --space=vgg --objective="most params" --device=T4
      paleo search nin_227 --vary="conv8.filter[3]=192,384,none" --front=params
      paleo search --space=squeezenet --constraint="latency@T4<9 ms"
      paleo search nin_227 --space=mine.toml --exact -o best.json
    """  # noqa: D301 (click takes the control character, not the escape)
    if file is not None:
        check_file(file)
    targets: Sequence[Any] = edits.targets
    if net is None and settings["space"] is not None:
        targets = (find_design(settings["space"]).own_net,)
    nets = replace(edits, targets=targets, vary=()).nets()
    if len(nets) > 1:
        raise SettingError("dim: a search is of one net, and these are several")
    if edits.vary:
        settings["vary"] = list(edits.vary)
    found = search(nets[0] if nets else None, **settings)
    say_what_is_used((net,) if net else (), settings)
    plot.write(
        output,
        search_tables(found, for_people=output.for_people),
        found.to_dict,
        lambda charts: charts.of_search(found),
        answer=lambda: search_answer(found),
    )
    if file is not None:
        write_file(file, dumps(found.best.net))
        verbose(f"{file}: {found.best.net.name}")
