"""`paleo devices`: the predefined devices, with their figures and sources."""

from __future__ import annotations

import click

from paleo.cli.options import Names, Output, output_options
from paleo.cluster import device_names, find_device
from paleo.core.errors import results_of
from paleo.views.answers.listing import devices_answer
from paleo.views.tables.devices import device_json, device_list, device_tables

_NAME = Names(device_names, may_be_file=True)


@click.command("devices", short_help="List the predefined devices, with sources.")
@click.argument("names", nargs=-1, type=_NAME, metavar="[NAME]...")
@output_options
def command(names: tuple[str, ...], output: Output) -> None:
    """List all predefined devices, or show everything known of each NAME.

    A NAME is a device, an alias or a TOML file. The figures are those of data sheets, with their
    sources and what other sources say. The cost model paleo2017 uses the figures headed 2017,
    the cost model tiled the constants. Separated values have a row for each device.

    \b
    Examples:
      paleo devices
      paleo devices A100_SXM_80GB
      paleo devices H100_SXM H200_SXM --format=csv
    """  # noqa: D301 (click takes the control character, not the escape)
    devices = results_of(find_device, names or device_names())
    if output.for_people and names:
        tables = [table for device in devices for table in device_tables(device)]
    else:
        tables = [device_list(devices, for_people=output.for_people)]
    output.write(
        tables,
        lambda: {"devices": [device_json(device) for device in devices]},
        lambda: devices_answer(devices),
    )
