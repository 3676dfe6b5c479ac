"""`paleo report`: the views of the demo as one HTML file."""

from __future__ import annotations

from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.files import check_file, write_file
from paleo.cli.options import (
    NET,
    device_option,
    import_options,
    is_verbose,
    message_options,
    network_option,
    number,
    numbers,
    verbose,
)
from paleo.cli.plan import (
    batch_size_option,
    cost_model_option,
    dtype_option,
    fuse_option,
    num_workers_option,
    ppp_comm_option,
    ppp_comp_option,
    say_what_is_used,
    scalings_option,
    use_pipeline_option,
)
from paleo.cli.training import optimizer_option, price_option, schedule_options
from paleo.errors import Mistakes, PaleoError
from paleo.importers import ImportOptions
from paleo.overview import Study, checked_plan
from paleo.simulate import DEFAULT_WORKERS

#: The settings that a study has, and those that a plan has none of.
_OF_STUDY = ("cost_model", "dtype", "ppp_comp", "use_pipeline", "fuse")
_NOT_OF_PLAN = (*_OF_STUDY, "price")


@click.command("report", short_help="One HTML file of a net on a cluster, to look at or send.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(),  # completes names of files
    help="File to write, such as report.html; - is standard output.",
)
@device_option
@network_option
@batch_size_option
@num_workers_option(DEFAULT_WORKERS)
@scalings_option
@ppp_comp_option
@ppp_comm_option
@use_pipeline_option
@cost_model_option
@dtype_option
@fuse_option
@schedule_options
@optimizer_option
@price_option
@edit_options
@import_options
@message_options
def command(
    nets: tuple[str, ...],
    output: str,
    device_name: str,
    network_name: str,
    num_workers: list[str],
    scaling: list[str],
    edits: NetEdits,
    importing: ImportOptions,
    **settings: Any,
) -> None:
    """Write what there is to see of each NET on a cluster into one HTML file.

    It has the views of `paleo serve`: how a training step scales by number of workers and scheme,
    time and cost of a training, the layers with their times, the memory. It needs no network and
    no server: whoever gets the file opens it in a browser.

    \b
    Examples:
      paleo report nin --device=K20X --network=infiniband -o report.html
      paleo report resnet50 vgg16 --device=V100_SXM2_16GB --dtype=mixed_fp16 \\
        --epochs=90 --dataset=imagenet --price=2.5 -o report.html
      paleo report nin_227 --set="conv8.filter[3]=1536" -o edited.html
    """  # noqa: D301 (click takes the control character, not the escape)
    if output != "-":
        check_file(output)
    mistakes = Mistakes()
    edited = mistakes.check(edits.applied, nets, importing) or []
    counts = numbers(num_workers)
    for name, values in (("num_workers", counts), ("scaling", scaling)):
        if not values:
            mistakes.add(f"{name}: expected one or more, got none")
    of_study = {key: settings[key] for key in _OF_STUDY}
    price = settings["price"]
    for each in scaling if counts else ():
        mistakes.check(
            lambda scaling=each: checked_plan(
                network=network_name,
                workers=counts[-1],
                counts=counts,
                scaling=scaling,
                scheme=None,
                price=None if price is None else number(price),
                **{key: value for key, value in settings.items() if key not in _NOT_OF_PLAN},
            )
        )
    studies: dict[str, Study] = {}
    for net in edited:
        found = mistakes.check(
            lambda net=net: Study(net, device=device_name, importing=importing, **of_study)
        )
        name = str(net) if isinstance(net, str) else net.name
        if name in studies:
            mistakes.add(f"{name}: given twice")
        elif found:
            studies[name] = found
    mistakes.raise_as(PaleoError)
    if is_verbose():
        say_what_is_used(nets, device_name, network_name, settings["cost_model"], settings["dtype"])
    # Imported here, where the page is needed: the server's modules take their time.
    from paleo.web.settings import Settings
    from paleo.web.single import report_page

    asked = Settings(
        device=device_name,
        network=network_name,
        # As many as the demo begins with, if there are so many.
        workers=max((count for count in counts if count <= Settings.workers), default=min(counts)),
        num_workers=tuple(counts),
        **{**settings, "price": price or "", "dataset": settings["dataset"] or ""},
    )
    text = report_page(studies, asked, scaling, importing, with_commands=not edits)
    if output == "-":
        click.echo(text, nl=False)
    else:
        write_file(output, text)
        verbose(f"{output}: {', '.join(studies)}")
