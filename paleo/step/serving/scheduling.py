"""How a server puts requests together to steps: what its scheduler's settings and rules come to."""

from __future__ import annotations

import functools

from paleo.core.checks import check_choice, is_number, shown, whole_number
from paleo.core.errors import Mistakes, SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import ceil_div


@dataclass(frozen=True)
class Scheduling:
    """How a server chooses what is in a step. Requests wait in the order in which they came.

    What servers do, by their code (2025; a preset's own settings are with its server):

    - vLLM V1 (`vllm/v1/core/sched/scheduler.py`): what runs comes first, each decode a token of
      the budget (`max_num_batched_tokens`), then prompts, which are cut to what is left; a step
      holds both. A prompt is let in where its blocks (of 16 tokens) are free
      (`scheduler_reserve_full_isl`), with no thought of its output, and not in a step that had to
      preempt. Where a decode finds no block, the request that was let in last loses its cache, goes
      back to the head of the queue, and its prompt and what it had made are computed again.
    - SGLang (`srt/managers/scheduler.py`, `schedule_policy.py`): prompts go alone, and before
      decodes, in steps of at most `chunked_prefill_size` tokens, unless `enable_mixed_chunk`. A
      prompt is let in where there is room for it and for a share of the output that all running
      ones still have to make (`new_token_ratio`: 0.7 at the start, down to 0.098 in 600 steps).
      Blocks are of 1 token.
    - TensorRT-LLM (`capacityScheduler`, `microBatchScheduler`): decodes, then prompts up to
      `max_num_tokens`. GUARANTEED_NO_EVICT, its default, lets a request in where all that it
      will ever need is free (`reserve` 1); MAX_UTILIZATION goes without and pauses the last.
    - TGI, vLLM V0 without chunks: whole prompts, alone, before decodes; TGI reserves all output.
    - llama.cpp (`server`): decodes, then prompts up to `n_batch`, as many requests as slots.
    - static batching: requests that wait are taken together when none runs, and the next ones when
      the last of them is done; those that are done earlier keep their places in the steps.
    """

    #: "continuous" or "static".
    batching: str = "continuous"
    #: Most tokens that a step computes: of prompts alone where steps are not `mixed`.
    token_budget: int = 8192
    #: Most requests that run at once.
    max_requests: int = 256
    #: Whether prompts are cut to what is left of the budget. Else a prompt that is larger than
    #: the budget goes in a step without other prompts.
    chunked: bool = True
    #: Whether a step may have prompts and decodes. Else prompts go first, alone.
    mixed: bool = True
    #: In mixed steps: whether decodes count towards the budget, before prompts. Else it is the
    #: prompts' own.
    decode_first: bool = True
    #: Tokens of a block of the cache.
    block: int = 16
    #: The share of blocks that have to stay free when a request is let in.
    watermark: float = 0.0
    #: What happens to a request whose cache is taken: its tokens are computed again.
    preempt: str = "recompute"
    #: The share of the output still to come, of all requests that run, that room is kept for when
    #: a request is let in. With 1 none is ever preempted.
    reserve: float = 0.0

    def __post_init__(self) -> None:
        """Raise SettingError with all mistakes."""
        mistakes = Mistakes()
        mistakes.check(check_choice, "batching", self.batching, ("continuous", "static"))
        mistakes.check(check_choice, "preempt", self.preempt, ("recompute",))
        before = len(mistakes.found)
        for name in ("token_budget", "max_requests", "block"):
            try:
                whole_number(getattr(self, name))
            except ValueError as error:
                mistakes.add(f"{name}: {error}")
        for name in ("watermark", "reserve"):
            share = getattr(self, name)
            if not (is_number(share) and 0 <= share <= 1):
                mistakes.add(f"{name}: expected a share from 0 to 1, got {shown(share)}")
        counted = len(mistakes.found) == before
        if counted and self.shared_budget and self.token_budget < self.max_requests:
            mistakes.add(
                f"token_budget: {self.token_budget} tokens of a step are not enough for "
                f"{self.max_requests} requests that get one each"
            )
        mistakes.raise_as(SettingError)

    @functools.cached_property
    def is_static(self) -> bool:
        """Whether requests are taken together and wait for one another."""
        return self.batching == "static"

    @functools.cached_property
    def is_mixed(self) -> bool:
        """Whether a step may have prompts and decodes."""
        return self.mixed and not self.is_static

    @functools.cached_property
    def shared_budget(self) -> bool:
        """Whether decodes take of the tokens that prompts may have in a step."""
        return self.is_mixed and self.decode_first

    def blocks(self, tokens: int) -> int:
        """Return the blocks that so many tokens of a request take."""
        return ceil_div(tokens, self.block)
