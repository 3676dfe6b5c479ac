"""A cycle of requests of one length that begin together, under a closed load.

They stay in step: what had its first token in one step has
its last one in one step, and what comes after it comes in one step. So a cycle, in which each of
the requests that run is served once, has some steps with prompts and others without. With

    R  requests that run, n of them decoding in a step with prompts
    D  = output - 1, steps in which a request decodes
    q  tokens of prompts that a step has room for (budget - n where decodes count)
    x  prompts of a step with prompts, and `own` such steps of each prompt: one, or prompt / q
    m  = R / x steps with prompts in a cycle (of `t_p` seconds; others have `t_d`)

steps that mix prompts and decodes have cycles of own + D steps where m is less: the first token
takes own t_p, and the others (m - own) t_p + (D + own - m) t_d. Where m is more, prompts wait for
room in steps, all steps are full, and by Little's law n = D q / prompt and the first token takes
m - D steps. Where prompts go alone (or batches are static), all of a cycle's prompts are computed
first, then all decode: a request's first token waits for half of the prompts, and its second one
for the other half.

Numbers may be arrays, of many deployments; then so are the seconds of a step.
"""

from __future__ import annotations

from typing import Any

from paleo.core.frozen import dataclass
from paleo.core.quantity import ceil_div, maximum, minimum, where
from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.lots import Lot, StepSeconds

#: Rounds in which the number of decodes in a step with prompts is found.
_ROUNDS = 4
#: Prompts that begin together spread by a step a cycle or less, until no two are in one step that
#: has no room for both: where they have to by more than so many steps, and so large a share of
#: them, they do not within a benchmark of some cycles.
_SPREAD = 2
_SLACK = 0.05
#: Of so many prompts, each one's end is looked at.
_FEW = 16
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Cycle:
    """A cycle of `running` requests: its `seconds`, and a request's first and other tokens in it.

    `first` and `between` are means of steady state. Of the first requests, which come at once,
    `burst` is the mean to the first token; of the last, behind which none come, `last` are the
    seconds between tokens. `ragged` is how much longer requests take than so many cycles.
    """

    running: Any
    seconds: Any
    first: Any
    between: Any
    burst: Any
    last: Any
    ragged: Any


def _part(lot: Lot, room: Any) -> tuple[Any, Any]:
    """Return the tokens of the parts of a prompt, and the mean of those before them."""
    tokens = minimum(lot.computed, room)
    return tokens, lot.cached + (lot.computed - tokens) / 2


def mixed(step: StepSeconds, running: Any, lot: Lot, scheduling: Scheduling) -> Cycle:
    """Return the cycle where steps have prompts and decodes."""
    budget: Any = scheduling.token_budget
    shared: Any = scheduling.shared_budget
    count, computed = lot.decodes, lot.computed
    if not scheduling.chunked:
        large = computed > budget  # which has a step's prompts to itself
        shared = where(large, 0, shared)
        budget = maximum(budget, computed)
        # Others wait until there are few enough decodes.
        running = where(shared, minimum(running, budget - computed + 1), running)

    def with_prompts(prompts: Any, decodes: Any) -> Any:
        return step(prompts, tokens, past, decodes, decodes * lot.context)

    # Where steps are full, n = D q / prompt.
    most = budget * count / (computed + count * shared)
    decodes: Any = 0
    for _ in range(_ROUNDS):
        room = maximum(budget - minimum(decodes, most) * shared, 1)
        length = computed / room  # steps of a prompt that has them to itself
        # Whole prompts in each step, or whole steps of each prompt,
        group = minimum(running, maximum(room // computed, 1))
        apart = where(length <= 1, 1 / group, ceil_div(length, 1))
        # unless that takes so much longer that those who began together stay packed.
        packed = (running * (apart - length) > _SPREAD) & (length < (1 - _SLACK) * apart)
        packed = packed & scheduling.chunked
        decodes = running - where(packed, maximum(1 / length, 1), group)
        decodes = maximum(decodes, 0)
    full = running * length >= maximum(apart, 1) + count
    decodes = where(full, minimum(most, running), decodes)
    packed = packed | full
    steps = where(packed, running * length, ceil_div(running * apart, 1))
    own = where(packed, (running - 1 + ceil_div(running * length, 1)) / running, maximum(apart, 1))
    own = where(full, maximum(running * length - count, own), own)
    parts = where(packed, maximum(1 / length, 1), group)
    tokens = where(packed, minimum(computed, room), computed / maximum(apart, 1))
    past = lot.cached + (computed - tokens) / 2
    in_prompts = with_prompts(parts, decodes)
    # The last group may be smaller.
    rest = where(packed | (length > 1), 0, running % group)
    in_rest = with_prompts(rest, running - rest) * (rest > 0)
    without = step(0, 1, 0, running, running * lot.context)
    first = where(
        rest > 0, ((running - rest) * in_prompts + rest * in_rest) / running, own * in_prompts
    )
    prompts = where(rest > 0, (steps - 1) * in_prompts + in_rest, steps * in_prompts)
    several = maximum(count, 1)
    waits = minimum(maximum(steps - own, 0), count)
    shorter = minimum(waits / maximum(steps - own, _ROUNDING), 1)
    between = ((prompts - first) * shorter + (count - waits) * without) / several
    between = where(full, in_prompts, between)
    # At the beginning nothing decodes.
    early = minimum(most, running) / 2
    early = early * (2 - minimum(1, count * (budget - early * shared) / (running * computed)))
    room = maximum(budget - early * shared, 1)
    tokens = minimum(computed, room)
    past = lot.cached + (computed - tokens) / 2
    parts = minimum(room / tokens, running)
    window = running * computed / (parts * tokens)
    burst = step(parts, tokens, past, early, early * lot.prompt)
    burst = burst * mean_end(running, computed / room)
    # They come again as closely, but then there are decodes, too.
    burst = burst + where(full, 0, maximum(steps - window, 0) / 2 * in_prompts)
    last = between - ((prompts - first) / steps - without) * waits / (2 * several)
    one = step(0, 1, 0, 1, lot.context)
    return Cycle(
        running=running,
        seconds=first + between * count,
        first=first,
        between=between,
        burst=burst,
        last=where(full, between, last),
        ragged=where(full, count, maximum(window - 1, 0)) * one,
    )


def mean_end(running: Any, length: Any) -> Any:
    """Return after how many full steps prompts that take `length` of one end, on average.

    The last step has only what is left: running * length steps are enough.
    """
    steps = running * length
    whole = steps // 1
    few: Any = 0
    for number in range(1, _FEW + 1):
        few = few + minimum(ceil_div(number * length - _ROUNDING, 1), steps) * (number <= running)
    # Of many, ends are spread over the steps in which they are.
    in_last = running - (whole / length) // 1
    many = length * (running + 1) / 2 + (1 - minimum(length, 1 / running)) / 2
    many = many - in_last / running * (ceil_div(steps, 1) - steps)
    return where(steps <= 1, 1, where(running <= _FEW, few / running, minimum(many, steps)))


def alone(step: StepSeconds, running: Any, lot: Lot, scheduling: Scheduling) -> Cycle:
    """Return the cycle where prompts go in steps of their own, before decodes."""
    budget, computed = scheduling.token_budget, lot.computed
    whole = maximum(budget // computed, 1) * computed
    room = budget if scheduling.chunked else whole
    tokens, past = _part(lot, room)
    full = step(room / tokens, tokens, past, 0, 0)
    total = running * computed
    rest = total % room
    tokens = minimum(computed, maximum(rest, 1))
    window = total // room * full + step(rest / tokens, tokens, past, 0, 0)
    decode = step(0, 1, 0, running, running * lot.context)
    first = where(rest == total, window, full * mean_end(running, computed / room))
    between = (window - first + lot.decodes * decode) / maximum(lot.decodes, 1)
    return Cycle(
        running=running,
        seconds=window + lot.decodes * decode,
        first=first,
        between=between,
        burst=first,
        last=between,
        ragged=0,
    )
