"""A cycle of requests that are spread over it: lengths differ a little, so that none are in step.

Each of R requests is at any place of its cycle of S steps, whatever the others do. So a step has a
prompt of each with a chance of own / S, where `own` are the steps that a prompt is in: a share of
1 - (1 - own / S)^R of steps have prompts, with R prompt / S tokens of them on average over all.
A request sees the R - 1 others so, in the steps in which it decodes and in those of its prompt.

Prompts that find no room in a step wait, as in an M/D/1 queue whose service is L steps, what a
prompt takes of the room of a step: W = u L / (2 (1 - u)) steps, with u = R L / S. With c steps
besides, S = c + W has the solution S = (c + R L + sqrt((c - R L)^2 + 2 R L^2)) / 2, which is c for
few prompts, and R L, of steps that are full, for many.
"""

from __future__ import annotations

from typing import Any

from paleo.core.quantity import ceil_div, maximum, minimum, root
from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.cycles import Cycle, alone, mixed
from paleo.studies.serving.lots import Lot, StepSeconds

#: Rounds in which the number of decodes in a step with prompts is found.
_ROUNDS = 6


def spread_mixed(step: StepSeconds, running: Any, lot: Lot, scheduling: Scheduling) -> Cycle:
    """Return the cycle where steps have prompts and decodes."""
    begin = mixed(step, running, lot, scheduling)
    running = begin.running
    count, computed = lot.decodes, lot.computed
    budget: Any = scheduling.token_budget
    if not scheduling.chunked:
        budget = maximum(budget, computed + scheduling.shared_budget)
    decodes: Any = maximum(running - 1, 0)
    for _ in range(_ROUNDS):
        room = maximum(budget - decodes * scheduling.shared_budget, 1)
        length = computed / room
        own = ceil_div(length, 1)
        busy = running * length
        least = own + count
        steps = (least + busy + root((least - busy) ** 2 + 2 * busy * length)) / 2
        steps = maximum(steps, least)
        # (Where all wait for prompts, the mean of what was found keeps it from swinging.)
        decodes = (decodes + running * count / steps) / 2
    tokens = computed / own
    past = lot.cached + (computed - tokens) / 2

    def seconds(prompt_tokens: Any) -> Any:
        parts = minimum(prompt_tokens, maximum(room, tokens)) / tokens
        return step(parts, tokens, past, decodes, decodes * lot.context)

    others = (running - 1) * computed / steps
    share = 1 - (1 - minimum(own / steps, 1)) ** (running - 1)
    share = maximum(maximum(share, minimum(others / room, 1)), 1e-12)
    without = step(0, 1, 0, running, running * lot.context)
    # Only in the last step of a prompt is there room for others; where it waits, all is theirs.
    first = own * seconds(tokens + others / own) + (steps - least) * seconds(room)
    between = share * seconds(others / share) + (1 - share) * without
    return Cycle(
        running=running,
        seconds=first + between * count,
        first=first,
        between=between,
        burst=begin.burst,
        last=begin.last - begin.between + between,
        ragged=begin.ragged,
    )


def spread_alone(step: StepSeconds, running: Any, lot: Lot, scheduling: Scheduling) -> Cycle:
    """Return the cycle where prompts go in steps of their own, before decodes.

    Those that are done after the same step of decodes have their prompts computed together.
    """
    begin = alone(step, running, lot, scheduling)
    count, computed = maximum(lot.decodes, 1), lot.computed
    whole = maximum(scheduling.token_budget // computed, 1) * computed
    room = scheduling.token_budget if scheduling.chunked else whole
    tokens = minimum(computed, room)
    past = lot.cached + (computed - tokens) / 2

    def seconds(prompts: Any) -> Any:
        total = prompts * computed
        full = total // room
        rest = total - full * room
        part = minimum(tokens, maximum(rest, 1))
        time = step(rest / part, part, past, 0, 0)
        return time + full * step(room / tokens, tokens, past, 0, 0)

    others = (running - 1) / count
    share = maximum(1 - (1 - 1 / count) ** (running - 1), 1e-12)
    decode = step(0, 1, 0, running, running * lot.context)
    # Of those that come together, some have their first token in each of so many steps.
    ends = maximum((1 + others) * minimum(computed / room, 1), 1)
    first = seconds(1 + others) * (ends + 1) / (2 * ends)
    between = decode + share * seconds(others / share)
    return Cycle(
        running=running,
        seconds=first + between * lot.decodes,
        first=first,
        between=between,
        burst=begin.burst,
        last=begin.between,
        ragged=0,
    )
