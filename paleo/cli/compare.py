"""`paleo compare`: nets, or settings, against the first of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.options import (
    NET,
    Names,
    Output,
    import_options,
    is_verbose,
    numbers,
    output_options,
)
from paleo.cli.plan import (
    CONV_LIBRARY_HELP,
    DTYPE_HELP,
    fuse_option,
    say_what_is_used,
    use_only_gemm_option,
    use_pipeline_option,
    workspace_option,
)
from paleo.compare import Change, Comparison, Difference, Settings, Variant, compare
from paleo.costs import COST_MODELS, DEFAULT_COST_MODEL
from paleo.costs.convolutions import LIBRARIES
from paleo.errors import Mistakes, PaleoError
from paleo.hardware import device_names
from paleo.importers import ImportOptions
from paleo.load import load
from paleo.memory import OPTIMIZERS
from paleo.report import Column, Table
from paleo.tensor import PRECISIONS, format_shape

#: Names in a footnote before the rest is a number.
_FEW = 20


@click.command("compare", short_help="Nets, or settings, against the first: factors.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@click.option(
    "--device_name",
    "--device",
    type=Names(device_names),
    default="TITAN_X",
    show_default=True,
    metavar="NAME,...",
    help="Devices: names of `paleo devices`, or TOML files of your own.",
)
@click.option(
    "--batch_size",
    type=Names(()),
    metavar="N,...",
    help="Samples in a batch.  [default: the first net's own]",
)
@click.option(
    "--cost_model",
    type=Names(COST_MODELS),
    default=DEFAULT_COST_MODEL,
    show_default=True,
    metavar="NAME,...",
    help=f"Cost models: {', '.join(COST_MODELS)}.",
)
@click.option(
    "--ppp_comp",
    type=Names(()),
    default="1.0",
    show_default=True,
    metavar="SHARE,...",
    help="Shares of the device's peak that are reached, above 0, up to 1.",
)
@click.option(
    "--optimizer",
    type=Names(OPTIMIZERS),
    default="sgd",
    show_default=True,
    metavar="NAME,...",
    help=f"Optimizers, for the memory of training: {', '.join(OPTIMIZERS)}.",
)
@click.option(
    "--dtype",
    type=Names(PRECISIONS),
    default="fp32",
    show_default=True,
    metavar="NAME,...",
    help=f"Types ({', '.join(PRECISIONS)}) {DTYPE_HELP}",
)
@click.option("--conv_library", type=Names(LIBRARIES), metavar="NAME,...", help=CONV_LIBRARY_HELP)
@workspace_option
@use_only_gemm_option
@use_pipeline_option
@fuse_option
@click.option(
    "--totals", is_flag=True, help="Compare totals alone: the nets need have no layer in common."
)
@click.option("--changed", is_flag=True, help="Leave out layers that are the same in everything.")
@edit_options
@import_options
@output_options
def command(
    nets: tuple[str, ...],
    device_name: list[str],
    batch_size: list[str] | None,
    cost_model: list[str],
    ppp_comp: list[str],
    dtype: list[str],
    changed: bool,
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
    **settings: Any,
) -> None:
    """Compare every NET with the first, layer by layer and in total.

    Output, parameters, FLOPs of a forward pass, time of a training step on one device and
    memory of training, each with its factor. Layers are those of one name. One net may be
    compared with itself under several settings, separated by commas; several nets are compared
    under each of them. Edits are of all nets but the first; with one net, it is compared with
    itself as edited.

    A change is local if it alters dimensions of the edited layers and a few behind them, and
    global if all that follows gets another height and width.

    \b
    Examples:
      paleo compare vgg13 vgg19 --batch_size=64
      paleo compare vgg16 --device=K40,K80
      paleo compare vgg16 --cost_model=paleo2017 --conv_library=cudnn4,cudnn7
      paleo compare vgg16 --device=K40 --cost_model=roofline --dtype=fp32,fp64
      paleo compare nin_227 --set="conv8.filter[3]=1536" --changed
      paleo compare nin_227 --vary=scale_input=2,3,4 --totals
    """  # noqa: D301 (click takes the control character, not the escape)
    mistakes = Mistakes()
    compared: list[Any] = list(nets)
    if edits:
        reference = mistakes.check(load, nets[0], importing)
        compared = [reference, *(mistakes.check(edits.nets, nets[1:] or nets, importing) or [])]
        mistakes.raise_as(PaleoError)
    found = compare(
        compared,
        device=device_name,
        batch_size=None if batch_size is None else numbers(batch_size),
        cost_model=cost_model,
        ppp_comp=numbers(ppp_comp),
        dtype=dtype,
        importing=importing,
        **settings,
    )
    if is_verbose():
        say_what_is_used(nets, None, None, DEFAULT_COST_MODEL)
        for each in itertools.product(device_name, cost_model, dtype):
            say_what_is_used((), each[0], None, *each[1:])
    if changed:
        found = found.only_changed()
    tables = []
    if not settings["totals"]:
        tables += [_layer_table(found.reference, difference) for difference in found.differences]
    if settings["totals"] or not output.separator:
        tables.append(_total_table(found, with_notes=not tables))
    output.write(tables, found.to_dict)


def _settings(prefix: str = "") -> tuple[Column, ...]:
    """Return the columns of a variant's settings, which are for programs alone."""
    return tuple(Column(f"{prefix}{name}") for name in ("net", *Settings.keys()))


#: What is compared: the key, the title, the dimension, and the factor's key and title.
_COMPARED = (
    ("output_bytes", "output", "bytes", "output_factor", "output\nfactor"),
    ("params", "parameters", "", "params_factor", "params\nfactor"),
    ("forward_flops", "forward", "FLOP", "forward_flops_factor", "forward\nfactor"),
    ("time_s", "time", "s", "time_factor", "time\nfactor"),
    ("memory_bytes", "memory", "bytes", "memory_factor", "memory\nfactor"),
)


def _figures(times: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of what is compared, each with its factor; `times` are its parts."""
    shown = []
    for key, title, dimension, factor, factor_title in _COMPARED:
        shown += [
            Column(key, title, dimension),
            Column(f"reference_{key}"),
            Column(factor),
            Column(f"{factor}_text", factor_title, for_people=True, right=True),
        ]
    return (*shown, *(Column(f"{side}{key}") for side in ("", "reference_") for key in times))


def _layer_table(reference: Variant, difference: Difference) -> Table:
    change, other = difference.change, difference.other
    same = {**_flat(other), **_flat(reference, "reference_"), "reach": change.reach}
    rows = []
    for layer in difference.layers:
        values = layer.to_dict()
        for side, of in (("", layer.other), ("reference_", layer.reference)):
            values[f"{side}output"] = format_shape(of.output) if of else None
        values["dimensions"] = format_shape(layer.other.output[1:]) if layer.other else None
        rows.append({**same, **values, **_texts(layer.factors())})
    columns = (
        *_settings(),
        *_settings("reference_"),
        Column("reach"),
        Column("name", "layer"),
        Column("change", "change" if any(row["change"] for row in rows) else ""),
        Column("type"),
        Column("reference_type"),
        Column("output"),
        Column("reference_output"),
        Column("dimensions", "dimensions", for_people=True),
        *_figures(("forward_s", "backward_s")),
    )
    (here, there), common = _labels([other, reference])
    return Table(
        f"{here} against {there}: {common}",
        columns,
        rows,
        {"name": "total", **difference.total(), **_texts(difference.factors())},
        footnotes=_said_of(change),
        notes=_notes(reference, other),
    )


def _total_table(found: Comparison, with_notes: bool) -> Table:
    """Return the table of totals: a row for each variant, the reference first."""
    variants = [found.reference, *(difference.other for difference in found.differences)]
    labels, common = _labels(variants)
    same = Difference(found.reference, Change(None, 0), (), found.reference.total)
    rows = [
        {
            **_flat(variant),
            "reach": difference.change.reach,
            "label": label,
            **difference.total(),
            **_texts(difference.factors()),
        }
        for difference, variant, label in zip(
            (same, *found.differences), variants, labels, strict=True
        )
    ]
    columns = (
        *_settings(),
        Column("label", "net", for_people=True),
        Column("reach", "reach" if any(row["reach"] for row in rows) else ""),
        *_figures(("forward_s", "backward_s", "update_s")),
    )
    notes = _notes(*variants) if with_notes else ()
    footnote = (
        "forward: FLOPs of a forward pass; time: a training step on one device, in total with "
        "the update; memory: what training keeps of a layer, in total the peak"
    )
    return Table(f"totals: {common}", columns, rows, footnotes=[footnote], notes=notes)


def _flat(variant: Variant, prefix: str = "") -> dict[str, Any]:
    values = {"net": variant.net, **variant.settings.to_dict()}
    return {f"{prefix}{key}": value for key, value in values.items()}


def _labels(variants: Sequence[Variant]) -> tuple[list[str], str]:
    """Return a name for each variant, with the settings that differ, and what all have."""
    texts = [
        {
            "device": settings.device,
            "batch_size": f"batch {settings.batch_size}",
            "dtype": settings.dtype,
            "cost_model": settings.cost_model,
            "ppp_comp": f"ppp_comp {settings.ppp_comp:g}",
            "optimizer": settings.optimizer,
            "use_pipeline": "pipelined" if settings.use_pipeline else "",
            "fuse": "fused" if settings.fuse else "",
            "convolutions": str(settings.convolutions),
        }
        for settings in (variant.settings for variant in variants)
    ]
    differing = [name for name in texts[0] if len({each[name] for each in texts}) > 1]
    labels = [
        ", ".join([variant.net, *(each[name] for name in differing)])
        for variant, each in zip(variants, texts, strict=True)
    ]
    common = (text for name, text in texts[0].items() if text and name not in differing)
    return labels, ", ".join(common)


def _texts(factors: Mapping[str, float | None]) -> dict[str, str | None]:
    return {f"{key}_text": _short(value) for key, value in factors.items()}


def _short(factor: float | None) -> str | None:
    """Return a factor in about three digits: 1x, 1.33x, 12.5x; 1.00x is one that is not quite 1."""
    if factor is None or factor == 1:
        return None if factor is None else "1x"
    if factor < 0.01:
        return f"{factor:.1g}x"
    return f"{factor:,.{2 if factor < 9.995 else 1 if factor < 99.95 else 0}f}x"


def _said_of(change: Change) -> list[str]:
    """Return what a reader is told of a change: how far it reaches, and which layers it is in."""
    said = {
        "none": "the nets are the same",
        "local": "a local change: the last layers see the same height and width",
        "global": "a global change: the last layers too see another height and width",
        None: "other nets: less than half of their layers are in both",
    }[change.reach]
    listed = {
        "edited": change.edited,
        "added": change.added,
        "removed": change.removed,
        "other dimensions": change.changed,
    }
    return [said, *(f"{what}: {_few(names)}" for what, names in listed.items() if names)]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _notes(*variants: Variant) -> tuple[str, ...]:
    """Return the notes; of several nets, those that are not of all say of which they are."""
    counts = Counter(note for variant in variants for note in dict.fromkeys(variant.notes))
    one = len({variant.net for variant in variants}) == 1
    return tuple(
        dict.fromkeys(
            note if one or counts[note] == len(variants) else f"{variant.net}: {note}"
            for variant in variants
            for note in variant.notes
        )
    )
