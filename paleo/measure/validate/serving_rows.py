"""Measured serving as values: a load on a server, and single batches.

What files say of a row is in `served_samples` and `served_batches`. A row that is not understood is
left out, with its reason counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from paleo.core.frozen import NamedTuple, dataclass

#: One server for prompts and tokens, or one for each.
AGGREGATED, DISAGGREGATED = "aggregated", "disaggregated"


class Party(NamedTuple):
    """So many `workers`, each a server of its own, and the degrees of each.

    Attention is on `tp` devices that share tensors, in `attention_dp` groups with requests of their
    own, in `pp` stages. Experts are divided among `moe_ep` groups, each of them among `moe_tp`
    devices; both are 1 where there are none.
    """

    workers: int = 1
    tp: int = 1
    pp: int = 1
    attention_dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1

    @property
    def devices(self) -> int:
        """Of all workers."""
        return self.workers * self.tp * self.pp * self.attention_dp


class Formats(NamedTuple):
    """In what numbers are stored: projections of attention, other products, experts, the cache.

    Names are element types and those of `paleo.net.layers.matrices.STORED`, `fp8_block` for fp8
    with scales for 128 x 128 weights, and llama.cpp's.
    """

    attention: str
    products: str
    experts: str
    cache: str


@dataclass(frozen=True)
class ServedRow:
    """A closed load on a server, measured at the client.

    `concurrency` requests are on their way at any time, the first of them sent at once; `requests`
    are sent in all. Prompts have up to `prompt` tokens, answers up to `output`, of lengths drawn
    evenly from `shortest` of it on. `ttft_s` is the mean over requests of the seconds until the
    first token, `tpot_s` that of the seconds from it to the last, by the tokens after the first.

    `step_tokens` and `step_requests` are a step's limits, None for the server's own. With `drafts`,
    so many tokens are proposed by the net's own heads at a time. `twins` have the same measurement.
    """

    row_id: str
    source: str
    net: str
    device: str
    server: str
    version: str
    mode: str
    prompt: int
    output: int
    shortest: float
    concurrency: int
    requests: int
    formats: Formats
    prefill: Party
    decode: Party
    ttft_s: float
    tpot_s: float
    step_tokens: int | None = None
    step_requests: int | None = None
    drafts: int = 0
    twins: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """Of both parties."""
        others = self.decode.devices if self.mode == DISAGGREGATED else 0
        return self.prefill.devices + others

    @property
    def mean_prompt(self) -> float:
        return self.prompt * (1 + self.shortest) / 2

    @property
    def mean_output(self) -> float:
        return self.output * (1 + self.shortest) / 2


@dataclass(frozen=True)
class BatchRow:
    """A single batch of requests of the same length, all at once: nobody joins or leaves.

    `requests` is how many a group of attention has. `prefill_s` are the seconds of its prompts,
    `decode_s` of a token after them on average; None where it was not measured. `step` is the
    kernel of attention of one query, "" for the server's own.
    """

    row_id: str
    source: str
    net: str
    device: str
    server: str
    version: str
    prompt: int
    output: int
    requests: int
    formats: Formats
    party: Party
    prefill_s: float | None
    decode_s: float | None
    step: str = ""


@dataclass(frozen=True)
class ServedRows:
    """The loads of a file, and how many rows were left out, by reason."""

    rows: tuple[ServedRow, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class BatchRows:
    """The batches of a file, and how many rows were left out, by reason."""

    rows: tuple[BatchRow, ...]
    left_out: Mapping[str, int]


class LeftOutError(Exception):
    """Why a row is not understood."""


def counted(reasons: list[str]) -> dict[str, int]:
    """Return how often each reason was given, the most frequent first."""
    return dict(Counter(reasons).most_common())
