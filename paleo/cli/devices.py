"""`paleo devices`: the predefined devices, with their figures and sources."""

from __future__ import annotations

import click

from paleo.cli.hardware import describe, figures_json, find_all, sourced_table
from paleo.cli.options import DEVICE, Output, output_options
from paleo.hardware import device_names, find_device
from paleo.report import Column

_COLUMNS = (
    Column("name", "device"),
    Column("title", "title"),
    Column("fp32_peak_flop_per_s", "fp32 peak", "FLOP/s"),
    Column("memory_bandwidth_bytes_per_s", "bandwidth", "bytes/s"),
    Column("memory_capacity_bytes", "memory", "bytes"),
    Column("base_clock_hz", "clock", "Hz"),
    Column("multiprocessors", "multi-\nprocessors"),
    Column("power_w", "power", "W"),
    Column("paleo2017_peak_flop_per_s", "2017 peak", "FLOP/s"),
    Column("paleo2017_memory_bandwidth_bytes_per_s", "2017\nbandwidth", "bytes/s"),
    Column("paleo2017_clock_hz", "2017 clock", "Hz"),
    Column("price", "newest\nprice", for_people=True, right=True),
    Column("price_per_device_hour"),
    Column("price_currency"),
    Column("price_date"),
    Column("aliases"),
    Column("cited", "cited", for_people=True),
    Column("sources"),
)


@click.command("devices", short_help="The predefined devices, their figures and sources.")
@click.argument("names", nargs=-1, type=DEVICE, metavar="[NAME]...")
@output_options
def command(names: tuple[str, ...], output: Output) -> None:
    """List devices: each NAME (a name, an alias or a TOML file), or all predefined ones.

    The figures are the data sheets'; those headed 2017 are what the cost model paleo2017
    uses. The price is the newest that is known for an hour of one device. JSON has the
    source of every single figure, and all prices with their dates.
    """
    devices = find_all(names or device_names(), find_device)
    rows = []
    for device in devices:
        figures = {name: figure.value for name, figure in device.figures.items()}
        old, price = device.own_rates_2017, device.newest_price
        rows.append(
            {
                "name": device.name,
                "title": device.title,
                "fp32_peak_flop_per_s": device.peak("fp32") if "fp32" in device.peaks else None,
                "memory_bandwidth_bytes_per_s": figures.get("memory_bandwidth"),
                "memory_capacity_bytes": figures.get("memory_capacity"),
                "base_clock_hz": figures.get("base_clock"),
                "multiprocessors": figures.get("multiprocessors"),
                "power_w": figures.get("power"),
                "paleo2017_peak_flop_per_s": old and old.peak,
                "paleo2017_memory_bandwidth_bytes_per_s": old and old.memory_bandwidth,
                "paleo2017_clock_hz": old and old.clock,
                "price": price and f"{price.amount:g} {price.currency}/h",
                "price_per_device_hour": price and price.amount,
                "price_currency": price and price.currency,
                "price_date": price and price.date,
                "aliases": "; ".join(device.aliases),
            }
        )
    table = sourced_table(
        _COLUMNS,
        rows,
        [list(device.sources.values()) for device in devices],
        [device.own_rates_2017.note if device.own_rates_2017 else "" for device in devices],
    )
    output.write(
        [table],
        lambda: {
            "devices": [
                {
                    **describe(device.name, device.title, device.aliases, device.figures),
                    "kind": device.kind,
                    "architecture": device.architecture,
                    "peak_flop_per_s": {
                        dtype: figures_json(units) for dtype, units in device.peaks.items()
                    },
                    "paleo2017": device.own_rates_2017
                    and {
                        "clock_hz": device.own_rates_2017.clock,
                        "peak_flop_per_s": device.own_rates_2017.peak,
                        "memory_bandwidth_bytes_per_s": device.own_rates_2017.memory_bandwidth,
                        "note": device.own_rates_2017.note,
                    },
                    "prices": [price.to_dict() for price in device.prices],
                }
                for device in devices
            ]
        },
    )
