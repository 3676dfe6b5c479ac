"""What is predicted of single batches of requests (`served_batches`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from paleo.cluster.servers import SERVERS, Server
from paleo.core.errors import SettingError
from paleo.measure.validate.served import Point, prices_of
from paleo.measure.validate.serving_rows import BatchRow
from paleo.step.serving.deployment import Deployment
from paleo.step.serving.prices import Degrees, StepPrices


def predicted(
    row: BatchRow, prices: StepPrices | None = None, server: Server | None = None
) -> Point:
    """Return what a batch took by what is predicted; raises a PaleoError where nothing is.

    `prices` and `server` are the row's, or the same with other kernels or constants.

    A server that reserves no answers cannot have what its cache has no room for at once: some of
    its requests wait, or are computed again, and nothing is said of them as of one batch.
    """
    server = server or SERVERS[row.server]
    prices = prices or prices_of_batch(row)
    found = _handed_over(prices, row, server) if server.kernel_host else _alone(prices, row)
    tokens, prompts = found
    return Point(
        row,
        None if row.decode_s is None else tokens() / row.decode_s,
        None if row.prefill_s is None else prompts() / row.prefill_s,
    )


def prices_of_batch(row: BatchRow) -> StepPrices:
    """Return what steps of a batch's server take."""
    party = row.party
    degrees = Degrees(party.tp * party.attention_dp, party.pp, party.moe_ep, party.attention_dp)
    return prices_of(row.net, row.device, row.server, row.formats, row.version, degrees)


#: How the seconds of a token, and of all prompts, are found.
_Found: TypeAlias = "tuple[Callable[[], float], Callable[[], float]]"


def _alone(prices: StepPrices, row: BatchRow) -> _Found:
    """Return what devices take, with no host."""
    many, length = row.requests, row.prompt

    def tokens() -> float:
        step = prices.rows(many) + prices.scores(many)
        return float((step + prices.steps(many, length + row.output / 2)).seconds)

    def prompts() -> float:
        step = prices.rows(many * length) + prices.scores(many)
        return float((step + prices.prompts(many, length, length)).seconds)

    return tokens, prompts


def _handed_over(prices: StepPrices, row: BatchRow, server: Server) -> _Found:
    """Return the same where a host hands over kernels; raises SettingError for too many."""
    many, whole = row.requests, row.prompt + row.output
    deployment = Deployment(prices, server, length=whole, token_budget=many * row.prompt)
    most = deployment.memory.most_requests(whole)
    if most < many:
        raise SettingError(f"the cache has room for {most} requests of {many}: they are no batch")
    before = round(many * (row.prompt + row.output / 2 - 1))
    return (
        lambda: deployment.seconds((), many, before),
        lambda: deployment.seconds([(row.prompt, 0)] * many, 0, 0),
    )
