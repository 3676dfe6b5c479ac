"""Tables of served models: a row for each load, and the parts of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from paleo.studies.serving.answers import Asked, Phase, Serving
from paleo.views.answers.base import band_said
from paleo.views.answers.serving import (
    bounds_said,
    digits_of,
    goodput_said,
    notes_of,
    where_said,
)
from paleo.views.charts.numbers import counted
from paleo.views.table import Column, Table, plain

_SETTINGS = (
    *("net", "device", "cluster", "server", "dtype", "experts_dtype", "kv_dtype", "num_workers"),
    *("tp", "pp", "cp", "ep", "attention_dp", "copies", "prefill", "decode"),
)
_SPREAD = ("p50", "p90", "p95", "p99")
#: Rows of a table of parts for people, below which nothing is worth a line.
_LEAST = 0.001


def serving_tables(found: Sequence[Serving]) -> list[Table]:
    """Return a table of loads for each place, and one of the parts of its steps."""
    tables = []
    for one in dict.fromkeys(each.asked for each in found):
        own = [each for each in found if each.asked is one]
        tables.append(_loads(one, own))
        parts = _parts(own[-1])
        if parts:
            tables.append(parts)
    return tables


def loads_table(found: Sequence[Serving]) -> list[Table]:
    """Return the tables of loads alone, which share their columns."""
    return [
        _loads(one, [each for each in found if each.asked is one])
        for one in dict.fromkeys(each.asked for each in found)
    ]


def _loads(one: Asked, own: Sequence[Serving]) -> Table:
    first, other = digits_of(one.first_band), digits_of(one.band)
    is_open = own[0].concurrency is None
    has_goodput = any(any(each.limits) for each in own)
    has_tails = is_open or any(each.asked.settings.get("length_cv") for each in own)
    price = one.rates.price
    columns = (
        *plain(*_SETTINGS),
        Column("rate", "requests\n/s" if is_open else ""),
        Column("concurrency", "" if is_open else "at a\ntime"),
        Column("ttft_s", "first\ntoken", "s", digits=first, least_is_best=True),
        *plain("ttft_s_low", "ttft_s_high", "ttft_p50_s", "ttft_p90_s"),
        Column("ttft_p95_s", "95 %" if has_tails else "", "s", digits=first),
        *plain("ttft_p99_s"),
        Column("tpot_s", "each\ntoken", "s", digits=other, least_is_best=True),
        *plain("tpot_s_low", "tpot_s_high", "tpot_p50_s", "tpot_p90_s"),
        Column("tpot_p95_s", "95 % " if has_tails else "", "s", digits=other),
        *plain("tpot_p99_s"),
        Column("latency_s", "whole\nanswer", "s", digits=other, least_is_best=True),
        Column("tokens_per_s", "tokens\n/s", digits=other),
        Column("tokens_per_s_per_gpu", "a\ndevice", digits=other, wide=one.devices == 1),
        Column("tokens_per_s_per_user", "a\nuser", digits=other),
        Column("requests_per_s", "" if is_open else "requests\n/s", digits=other),
        Column("kept", "in the\nlimits" if has_goodput else "", for_people=True, right=True),
        Column("memory_bytes", "memory", "bytes", digits=3, least_is_best=True),
        *plain("weights_bytes", "cache_bytes", "fits", "max_concurrency", "longest_tokens"),
        *plain("stable", "most_rate"),
        Column(
            "cost_per_million_input", f"a million\nin ({price.currency})" if price else "", digits=2
        ),
        Column("cost_per_million_output", f"out\n({price.currency})" if price else "", digits=2),
        Column("energy_per_token_j", "energy\na token", "J", digits=2, wide=True),
        *plain("goodput_share", "goodput_requests_per_s", "prefill_bound", "decode_bound"),
    )
    rows = [each.to_dict() | {"kept": goodput_said(each)} for each in own]
    return Table(
        f"{where_said(one)}, {_how(one)}",
        columns,
        rows,
        footnotes=list(_footnotes(one, own)),
        notes=notes_of(own),
    )


def _how(one: Asked) -> str:
    """Return by which server, on how many devices, and how these share copies."""
    said = one.settings
    ways = [
        f"{name.replace('_', ' ')} {said[name]}"
        for name in ("tp", "pp", "cp", "ep")
        if said[name] > 1
    ]
    if said["attention_dp"] > 1:
        ways.append(f"{said['attention_dp']} groups of attention")
    if one.copies > 1:
        ways.append(f"{one.copies} copies")
    if one.prefill:
        ways.append(f"{said['prefill']} for prompts, {said['decode']} decode")
    devices = counted(one.devices, "device")
    return ", ".join([f"{one.server.title} on {devices}", *ways])


def _footnotes(one: Asked, own: Sequence[Serving]) -> Iterator[str]:
    last = own[-1]
    if said := bounds_said(last):
        yield said
    if last.served is not None:
        load = last.served.load
        yield (
            f"{counted(len(load), 'request')} simulated, of {load.prompt.mean():,.0f} tokens and "
            f"{load.output.mean():,.0f} of answers on average; all at once at the beginning"
            if last.concurrency is not None
            else f"{counted(len(load), 'request')} simulated, of {load.prompt.mean():,.0f} tokens "
            f"and {load.output.mean():,.0f} of answers on average"
        )
    for what, band in (("first tokens", one.first_band), ("each token", one.band)):
        if band is not None:
            yield band_said(what, band)


def _parts(found: Serving) -> Table | None:
    """Return what steps take, part by part."""
    if found.prefill is None or found.decode is None:
        return None
    both: tuple[Phase, Phase] = (found.prefill, found.decode)
    names = dict.fromkeys(name for phase in both for name in phase.parts)
    rows: list[dict[str, Any]] = [
        {
            "part": name,
            **{
                key: phase.parts.get(name, 0.0)
                for key, phase in zip(("prefill_s", "decode_s"), both, strict=True)
            },
        }
        for name in names
        if any(phase.parts.get(name, 0.0) > _LEAST * phase.seconds for phase in both)
    ]
    digits = digits_of(found.asked.band)
    columns = (
        Column("part", "part of a step"),
        Column("prefill_s", "one\nprompt", "s", digits=digits),
        Column("decode_s", "decoding", "s", digits=digits),
    )
    total = {"part": "all", "prefill_s": both[0].seconds, "decode_s": both[1].seconds}
    return Table("steps on one device", columns, rows, total=total)
