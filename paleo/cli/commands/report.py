"""`paleo report`: the views of the demo as one HTML file."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import click

from paleo.cli.edits import NetEdits, net_options
from paleo.cli.files import check_file, write_text
from paleo.cli.options import (
    message_options,
    nets_argument,
    setting_option,
    setting_options,
    verbose,
)
from paleo.cli.setting_groups import KERNELS, MESH, SCHEDULE, SYNCHRONOUS, Several, say_what_is_used
from paleo.core.checks import number
from paleo.core.errors import Mistakes, PaleoError
from paleo.net.importers import ImportOptions
from paleo.step.declarations import declared
from paleo.step.plan import COMPUTED, SHARES
from paleo.step.scenario import SimulateSettings
from paleo.studies.overview import OverviewSettings, Study, StudySettings, checked_plan
from paleo.studies.training import TrainingSettings, checked_prices


class _OnePlan(StudySettings, OverviewSettings, total=False):
    """Of what a study and its overview have one value."""


#: The settings that a study has, and a plan has none of.
_OF_STUDY = declared(StudySettings)
_OF_TRAINING = declared(TrainingSettings)


@click.command("report", short_help="All about a net on a cluster in one HTML file.")
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(),  # completes names of files
    help="The file to write, such as report.html; - is standard output.",
)
@nets_argument
@setting_options(SimulateSettings, "cluster", "device")
@setting_options(_OnePlan, "network")
@setting_options(SimulateSettings, "batch_size", "workers", "scaling")
@setting_options(_OnePlan, *SHARES, *KERNELS, "cost_model", "dtype")
@setting_options(_OnePlan, "schemes", *SYNCHRONOUS, *SCHEDULE, "tokens", *COMPUTED, *MESH)
@setting_option(declared(_OnePlan)["loader_rate"], type=str)
@setting_option(_OF_TRAINING["price"], type=str)
@setting_option(_OF_TRAINING["prices"], type=click.Path())
@net_options
@message_options
def command(
    nets: tuple[str, ...],
    output: str,
    cluster: list[str] | None,
    device: list[str],
    batch_size: list[Any],
    workers: list[Any],
    scaling: list[str],
    edits: NetEdits,
    importing: ImportOptions,
    prices: str | None,
    schemes: list[str] | None,
    **settings: Any,
) -> None:
    """Write all about each NET on a cluster into one HTML file.

    It has the views of `paleo serve`: how a training step scales, time and cost of a training,
    the layers with their times, and the memory; of devices that share a net (--tp, --pp, ...) also
    the schedule of the stages, and time and memory of each. Several nets, devices, clusters or
    batch sizes are first compared in a table, and of several schemes there is a choice. Clusters
    have devices and networks of their own; there is one --network. It opens in any browser,
    without a server.

    \b
    Examples:
      paleo report nin --device=K20X --network=infiniband -o report.html
      paleo report resnet50 vgg16 --device=V100_SXM2_16GB --dtype=mixed_fp16 \\
        --epochs=90 --dataset=imagenet --price=2.5 -o report.html
      paleo report nin --cluster=dgx_a100,aws_p4d --scheme=auto,ring -o two.html
      paleo report resnet50 --device=T4,A100 --batch_size=32,128 -o compared.html
      paleo report nin_227 --set="conv8.filter[3]=1536" -o edited.html
      paleo report llama3_8b --cluster=dgx_h100 --num_workers=64 --tp=4 --pp=4 \\
        --global_batch=128 -o mesh.html
    """  # noqa: D301 (click takes the control character, not the escape)
    # Imported here, where the page is needed: the server's modules take their time.
    from paleo.web.report_page import report_page, shown_first, studies_of

    if output != "-":
        check_file(output)
    mistakes = Mistakes()
    edited = mistakes.check(edits.applied) or []
    several = Several(cluster, device, batch_size, workers, scaling)
    devices, workers, scaling = several.checked(settings, mistakes)
    of_study = {key: value for key, value in settings.items() if key in _OF_STUDY}
    of_plan = {key: value for key, value in settings.items() if key not in _OF_STUDY}
    price = of_plan["price"]
    asked = None if price is None else number(price)
    of_plan |= {"price": asked, "counts": workers, "schemes": schemes}
    for name, size in itertools.product(scaling, batch_size) if workers else ():
        mistakes.check(functools.partial(checked_plan, scaling=name, batch_size=size, **of_plan))
    make = functools.partial(Study, importing=importing, **of_study)
    own = mistakes.check(checked_prices, prices)
    studies = {name: studies_of(edited, one, make, mistakes, own) for name, one in devices.items()}
    mistakes.raise_as(PaleoError)
    say_what_is_used(nets, settings | {"device": device, "cluster": cluster})
    shown = shown_first(settings | {"cluster": next(iter(cluster or ()), None)}, workers, schemes)
    plain = not edits and prices is None  # commands know neither what was edited nor other prices
    page = report_page(studies, shown, scaling, batch_size, importing, with_commands=plain)
    write_text(page, output)
    if output != "-":
        verbose(f"{output}: {', '.join(next(iter(studies.values())))}")
