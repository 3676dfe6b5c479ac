"""`paleo summary`: the layers of nets, with shapes, parameters, FLOPs and bytes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import click

from paleo.cli.edits import NetEdits, edit_options
from paleo.cli.options import (
    DEVICE,
    NET,
    Output,
    import_options,
    is_verbose,
    output_options,
)
from paleo.cli.plan import (
    CONVOLUTION_KEYS,
    convolution_options,
    cost_model_option,
    dtype_option,
    fuse_option,
    ppp_comp_option,
    say_no_effect,
    say_what_is_used,
    use_pipeline_option,
)
from paleo.costs import Time
from paleo.errors import Mistakes, PaleoError
from paleo.explain import ExplainedLayer, ExplainedOperation
from paleo.importers import ImportOptions
from paleo.report import Column, Table, in_unit
from paleo.summary import NetSummary, summarize
from paleo.tensor import format_shape

_COLUMNS = (
    Column("net"),
    Column("dtype"),
    Column("name", "layer"),
    Column("type", "type"),
    Column("parents"),
    Column("first_parents", "parents", for_people=True),
    Column("output", "output"),
    Column("params", "parameters"),
    Column("forward_flops", "forward", "FLOP"),
    Column("weights_bytes", "weights", "bytes"),
    Column("activations_bytes", "activations", "bytes"),
)
_TIMES = (
    Column("forward_s", "forward", "s"),
    Column("forward_bound", "bound"),
    Column("backward_s", "backward", "s"),
    Column("backward_bound", "bound"),
    *(Column(key) for of in ("forward", "backward") for key in Time().to_dict(of)),
    *map(Column, ("device", "cost_model", "ppp_comp", "use_pipeline", "fuse")),
    *map(Column, CONVOLUTION_KEYS),
)
_EXPLAINED = (
    *map(Column, ("net", "layer", "type")),
    Column("pass"),
    Column("step", "operation", for_people=True),
    Column("operation"),
    Column("counted"),
    Column("algorithm", "algorithm"),
    Column("bound", "bound"),
    Column("compute_s", "compute", "s"),
    Column("memory_s", "memory", "s"),
    Column("overhead_s", "overhead", "s"),
    Column("total_s", "total", "s"),
    Column("flops", "computation", "FLOP"),
    Column("moved", "moved", "bytes", for_people=True),
    *map(Column, ("bytes_read", "bytes_written", "why", "details")),
    *map(Column, ("dtype", "device", "cost_model", "ppp_comp", "use_pipeline", "fuse")),
    *map(Column, CONVOLUTION_KEYS),
)


@click.command("summary", short_help="Layers of nets: shapes, parameters, FLOPs, bytes.")
@click.argument("nets", nargs=-1, required=True, type=NET, metavar="NET...")
@click.option("--batch_size", type=int, help="Samples in a batch.  [default: the file's]")
@click.option(
    "--device_name",
    "--device",
    type=DEVICE,
    help="Add the times of each layer on this device: a name of `paleo devices`, or a TOML file "
    "of your own.",
)
@cost_model_option
@dtype_option
@ppp_comp_option
@use_pipeline_option
@fuse_option
@convolution_options
@click.option(
    "--explain",
    multiple=True,
    metavar="LAYER",
    help="Show instead why this layer takes what it takes, operation by operation: a name, a "
    "block, or a pattern such as 'conv*'. Needs --device. May be repeated.",
)
@edit_options
@import_options
@output_options
def command(
    nets: tuple[str, ...],
    batch_size: int | None,
    device_name: str | None,
    cost_model: str,
    dtype: str,
    ppp_comp: float,
    use_pipeline: bool,
    fuse: bool,
    conv_library: str | None,
    workspace: Any,
    use_only_gemm: bool,
    explain: tuple[str, ...],
    edits: NetEdits,
    importing: ImportOptions,
    output: Output,
) -> None:
    """Show the layers of each NET: output shape, parameters, FLOPs, memory, time on a device.

    One multiply-add is 2 FLOPs, a pooling window 1 an element. Times are those of one training
    step, without the update of the parameters; each is bound by what it takes most of:
    computation, memory traffic, or overhead such as the start of kernels.

    \b
    Examples:
      paleo summary alex_v2
      paleo summary nets/nin.json vgg16 --batch_size=1 --format=csv
      paleo summary resnet50 --device=K40 --ppp_comp=0.62
      paleo summary alex_v2 --device=K40 --explain=conv1 --explain='fc*'
      paleo summary vgg16 --dtype=mixed_fp16
      paleo summary deploy.prototxt model.onnx
      paleo summary nin_227 --set="conv8.filter[3]=1536" --remove=pool3
      paleo summary python:models:resnet18 --input=1x3x224x224
    """  # noqa: D301 (click takes the control character, not the escape)
    if explain and device_name is None:
        raise click.UsageError("--explain needs --device")
    mistakes = Mistakes()
    edited = edits.applied(nets, importing)
    if device_name is None:
        for option in (
            *("cost_model", "ppp_comp", "use_pipeline", "fuse"),
            *("conv_library", "workspace", "use_only_gemm"),
        ):
            say_no_effect(option, "--device")
    asked = functools.partial(
        summarize,
        device=device_name,
        cost_model=cost_model,
        ppp_comp=ppp_comp,
        use_pipeline=use_pipeline,
        dtype=dtype,
        fuse=fuse,
        explain=explain,
        conv_library=conv_library,
        workspace=workspace,
        use_only_gemm=use_only_gemm,
    )
    found = [mistakes.check(asked, net, batch_size, importing) for net in edited]
    mistakes.raise_as(PaleoError)
    summaries = [summary for summary in found if summary is not None]
    if is_verbose():
        say_what_is_used(nets, device_name, None, cost_model, dtype)
    tables = [_table(summary) for summary in summaries]
    if explain:
        tables = [_explanation(each, layer) for each in summaries for layer in each.explained]
    output.write(
        tables,
        lambda: {"nets": [summary.to_dict() for summary in summaries]},
    )


def _short(parents: tuple[str, ...]) -> str:
    """Return the first parents, and how many more there are: a table is to fit a screen."""
    more = f", +{len(parents) - 2}" if len(parents) > 2 else ""
    return ", ".join(parents[:2]) + more


def _table(summary: NetSummary) -> Table:
    timed_on = summary.timed_on
    rows = [
        {
            "net": summary.name,
            "dtype": summary.dtype,
            **layer.to_dict(),
            **(timed_on.to_dict() if timed_on else {}),
            "output": format_shape(layer.output),
            "first_parents": _short(layer.parents),
        }
        for layer in summary.layers
    ]
    total = {
        "name": "total",
        "params": summary.num_params,
        "forward_flops": summary.forward_flops,
        "weights_bytes": summary.weights_bytes,
        "activations_bytes": summary.activations_bytes,
        "forward_s": summary.forward,
        "backward_s": summary.backward,
    }
    plural = "s" * (len(rows) != 1)
    title = f"{summary.name}, {_setting(summary, f'{len(rows)} layer{plural}')}"
    columns: tuple[Column, ...] = _COLUMNS
    if timed_on:
        columns += _TIMES
        for name in ("forward_bound", "backward_bound"):
            total[name] = summary.to_dict()[name]
    footnotes = [f"whole passes {timed_on.band.said}"] if timed_on and timed_on.band else []
    return Table(title, columns, rows, total, footnotes=footnotes, notes=summary.notes)


def _setting(summary: NetSummary, what: str = "") -> str:
    """Return the part of a title that says what the figures are of."""
    parts = [f"batch {summary.batch_size}", summary.dtype, *([what] if what else [])]
    if on := summary.timed_on:
        parts += [f"on {on.device}", on.cost_model, f"ppp_comp {on.ppp_comp:g}"]
        parts += ["pipelined"] * on.use_pipeline + ["fused"] * on.fuse
        parts += [str(on.convolutions)] if str(on.convolutions) else []
    return ", ".join(parts)


def _explanation(summary: NetSummary, layer: ExplainedLayer) -> Table:
    """Return the operations of a layer, with why they take what they take below."""
    timed_on = summary.timed_on
    assert timed_on
    rows = []
    for each in layer.operations:
        values = each.to_dict()
        rows.append(
            {
                "net": summary.name,
                "dtype": summary.dtype,
                "layer": layer.name,
                "type": layer.type_name,
                **timed_on.to_dict(),
                **values,
                "step": _step(each),
                "moved": values["bytes_read"] + values["bytes_written"],
                "details": "; ".join(_details(each, plain=True)),
            }
        )
    footnotes = [
        f"what is not here of its {name} pass runs in the kernel of {other}"
        for name, other in layer.runs_in
    ]
    if not rows and not footnotes:
        footnotes.append("it makes the device do nothing: there is no kernel, no memory traffic")
    for each in layer.operations:
        said = [each.explanation.why] * bool(each.explanation.why) + _details(each)
        said += [f"error band {each.band}"] if each.band else []
        if said:
            footnotes.append(f"{_step(each)}: {'; '.join(said)}")
    footnotes = list(dict.fromkeys(footnotes))
    title = f"{layer.name} ({layer.type_name}) of {summary.name}, {_setting(summary)}"
    total = {"step": "total", **_sums(rows)} if len(rows) > 1 else None
    return Table(
        title,
        _EXPLAINED,
        rows,
        total,
        footnotes=footnotes,
        notes=_left_out(layer, timed_on.cost_model),
    )


def _sums(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    keys = ("compute_s", "memory_s", "overhead_s", "total_s", "flops", "moved")
    return {key: sum(row[key] for row in rows) for key in keys}


def _step(each: ExplainedOperation) -> str:
    return f"{each.direction.value.replace('_', ' ')}: {each.operation.name}"


def _details(each: ExplainedOperation, *, plain: bool = False) -> list[str]:
    """Return what went into the price of an operation, for people or in SI units."""
    found = []
    for name, value, unit in each.explanation.details:
        if isinstance(value, str):
            shown = value
        elif plain:
            shown = f"{value} {unit}".rstrip()
        else:
            shown = in_unit(value, unit)
        found.append(f"{name} {shown}")
    return found


def _left_out(layer: ExplainedLayer, cost_model: str) -> tuple[str, ...]:
    names = dict.fromkeys(each.operation.name for each in layer.operations if not each.is_counted)
    return (f"not counted by {cost_model}: {', '.join(names)}",) if names else ()
