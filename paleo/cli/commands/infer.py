"""`paleo infer`: what language models take to answer, and other nets for a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from paleo.cli.batches import show_batches
from paleo.cli.edits import NetEdits
from paleo.cli.options import Output, nets_argument, setting_option, setting_options
from paleo.cli.plotting import Plot
from paleo.cli.setting_groups import say_what_is_used
from paleo.cli.tracing import ServingTrace, serving_result_options
from paleo.core.errors import SettingError
from paleo.net.load import load
from paleo.net.spec import NetSpec
from paleo.step.declarations import declared
from paleo.studies.serving.infer import infer
from paleo.studies.serving.placing import is_served
from paleo.studies.serving.settings import InferSettings

_SETTINGS = declared(InferSettings)
_DEGREES = ("tp", "pp", "cp", "ep", "attention_dp", "prefill", "decode")
_OF_PREFILL = ("prefill_tp", "prefill_ep", "prefill_attention_dp")
_SERVER = ("server", "batching", "token_budget", "max_requests", "eager")
_LOAD = ("length_cv", "concurrency", "rate", "cv")
#: --output is of answers here; the command has the word for what is printed.
_ANSWER = replace(_SETTINGS["output"], name="answer", options=("--output",))
_MORE = ("requests", "hit_rate", "seed", "drafts", "acceptance")


@click.command("infer", short_help="First token, next token, how many users: inference.")
@nets_argument
@setting_options(InferSettings, "cluster", "device", "network", "workers", "dtype")
@setting_options(InferSettings, "experts_dtype", "kv_dtype", *_DEGREES, *_OF_PREFILL, *_SERVER)
@setting_options(InferSettings, "prompt")
@setting_option(_ANSWER)
@setting_options(InferSettings, *_LOAD)
@setting_option(_SETTINGS["prompts"], type=click.Path())
@setting_options(InferSettings, *_MORE)
@setting_option(_SETTINGS["draft"], type=str)
@setting_option(_SETTINGS["ttft"], type=str)
@setting_option(_SETTINGS["tpot"], type=str)
@setting_options(InferSettings, "batch_size", "framework", "cost_model", "price")
@setting_option(_SETTINGS["prices"], type=click.Path())
@setting_option(_SETTINGS["power"], type=str)
@serving_result_options
def command(
    nets: tuple[str, ...],
    edits: NetEdits,
    output: Output,
    plot: Plot,
    trace: ServingTrace,
    **settings: Any,
) -> None:
    """Show how quickly each NET answers, how many users it can have, and what that costs.

    Of a language model: the time to a first token and for each other one, tokens a second, memory
    and money, for so many requests at a time (--concurrency) or a second (--rate), on devices that
    share copies of it, as a serving program runs them. Requests are simulated one by one: what
    waits for what is in the times. Of any other net: the time of a batch.

    \b
    Examples:
      paleo infer llama3_8b --device=H100_SXM
      paleo infer llama3_70b --cluster=dgx_h100 --num_workers=4 --tp=4 --dtype=fp8
      paleo infer llama3_8b --device=L40S --rate=2,4 --ttft="500 ms"
      paleo infer llama3_8b --prompts=trace.csv --trace=serving.json
      paleo infer resnet50 --device=T4,L4 --batch_size=1,32 --dtype=int8
    """  # noqa: D301 (click takes the control character, not the escape)
    edited = [load(net) for net in edits.applied()]
    served = [is_served(net) for net in edited]
    if len(set(served)) > 1:
        raise SettingError("nets: language models and others have other answers: ask apart")
    # What was not asked for is not passed on: some settings are for others alone.
    context = click.get_current_context()
    given = {
        {"answer": "output"}.get(name, name): value
        for name, value in settings.items()
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    if served[0]:
        trace.check(edited)
        _serving(edited, output, plot, trace, given)
    else:
        trace.refuse("there is none of nets that are no language models")
        show_batches(edited, output, plot, given)
    say_what_is_used(nets)


def _serving(
    edited: list[NetSpec], output: Output, plot: Plot, trace: ServingTrace, given: dict[str, Any]
) -> None:
    """Print what language models take on a server."""
    from paleo.views.answers.serving import serving_answer
    from paleo.views.tables.serving import loads_table, serving_tables

    found = infer(edited, **given)
    if trace.write_load(found):
        return
    plot.write(
        output,
        serving_tables(found) if output.for_people else loads_table(found),
        lambda: {"rows": [each.to_dict() for each in found]},
        lambda charts: charts.of_serving(found),
        answer=lambda: serving_answer(found),
    )
