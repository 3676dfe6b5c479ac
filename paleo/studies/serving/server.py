"""One server: what waits and runs, what its cache holds, and what each step has.

Blocks of a request's prompt are taken when it is let in; those of its output one by one. Nothing
here is looked for among all that runs: what decodes is counted (requests, tokens in caches, which
of them need a block next), so that a step costs as much with one request as with a thousand.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

from paleo.core.frozen import dataclass
from paleo.step.serving.engine import Engine
from paleo.step.serving.scheduling import Scheduling

#: Steps are taken together while caches grow by at most one part in so many.
_GROWTH = 4


@dataclass(frozen=True)
class Party:
    """Servers that are alike: `replicas` of an engine, each with its own queue and cache."""

    engine: Engine
    scheduling: Scheduling = Scheduling()
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a server that are alike: `count` of them, one after the other, from `start` on.

    Of each: `prompts` parts of prompts with `prompt_tokens` in all, and `decodes` requests that get
    a token, whose caches hold `context` tokens before the first one. `waiting` requests are queued,
    and the server's cache has blocks of `cached` tokens taken before the first step makes more.
    """

    server: int
    start: float
    seconds: float
    count: int
    prompts: int
    prompt_tokens: int
    decodes: int
    context: int
    waiting: int
    cached: int


class Requests:
    """All requests while they are served; lists by the number of a request. -1: not yet."""

    def __init__(self, prompt: list[int], output: list[int], cached: list[int]) -> None:
        none = [-1.0] * len(prompt)
        self.prompt, self.output, self.cached = prompt, output, cached
        self.arrival, self.start = none.copy(), none.copy()
        self.first, self.finish = none.copy(), none.copy()
        #: Tokens of its output that a request had when it last was let in or preempted.
        self.made = [0] * len(prompt)
        self.preemptions = 0


class Server:
    """One of a party. `hands_over`: prompts are computed here, and decoded elsewhere."""

    def __init__(
        self,
        number: int,
        party: Party,
        requests: Requests,
        *,
        hands_over: bool = False,
        exact: bool = False,
        log: list[Steps] | None = None,
    ) -> None:
        scheduling, capacity = party.scheduling, party.engine.capacity
        self.number, self.engine, self.scheduling = number, party.engine, scheduling
        self.clock = 0.0
        #: Whether it has something to do at `clock`.
        self.awake = False
        # Requests that were sent here and are not done at `clock`, and those that are done then.
        self._here = self._leaving = 0
        self.waiting: deque[int] = deque()
        #: Seconds in which it computes, and those times the requests that decode.
        self.busy = self.decode_seconds = 0.0
        self.steps = 0
        self._of = requests
        self._hands_over, self._exact, self._log = hands_over, exact, log
        self._limited = capacity is not None
        self._blocks = (capacity or 0) // scheduling.block
        self._watermark = int(scheduling.watermark * self._blocks)
        self._reserve = 1.0 if scheduling.is_static else scheduling.reserve
        #: Requests whose caches have come over the link.
        self._moved: set[int] = set()
        #: What runs, in the order in which it was let in.
        self._running: dict[int, None] = {}
        #: Prompts that are computed: [request, tokens that the cache has, tokens to compute].
        self._parts: deque[list[int]] = deque()
        # What decodes: how many, tokens in their caches, steps so far, and places in the steps of
        # a static batch that those who are done still have.
        self._decodes = self._context = self._count = self._places = 0
        #: Of each that decodes: the count of steps and the tokens in its cache when it began.
        self._began: dict[int, tuple[int, int]] = {}
        #: Of each that decodes: the count of steps at which it is done; and those by that count.
        self._end: dict[int, int] = {}
        self._ends: dict[int, list[int]] = {}
        self._next_ends: list[int] = []
        #: How many need another block in a step: by the count of steps before it, modulo the block.
        self._phases = [0] * scheduling.block
        #: Blocks taken, and how many it would be if all that run made all of their output.
        self._used = self._final = 0

    def requests_here(self, now: float) -> int:
        """Return how many requests were sent here, or are on their way, and are not done now."""
        return self._here + (self._leaving if self.clock > now else 0)

    def expect(self) -> None:
        """Count a request that is sent here."""
        self._here += 1

    def send(self, request: int, *, moved: bool = False) -> None:
        """Queue a request; of one that is `moved`, the cache has its prompt, computed elsewhere."""
        self.waiting.append(request)
        if moved:
            self._moved.add(request)

    def release(self, request: int) -> None:
        """Free the cache of a request that was handed over."""
        blocks = self.scheduling.blocks(self._of.prompt[request])
        self._used -= blocks
        self._final -= blocks
        self._here -= 1

    def advance(self, horizon: float) -> tuple[list[int], list[int]] | None:
        """Do the next step; return requests that are to be handed over, and those that are done.

        Steps in which nothing but the lengths of caches changes are done together, as long as they
        begin before the `horizon`, when something may come. None if there is nothing to do.
        """
        mixed = self.scheduling.is_mixed
        preempted = mixed and self._make_room()
        chunks, computed = self._prompts(admit=not preempted)
        decodes = self._decodes + self._places if mixed or not chunks else 0
        if not chunks and not decodes:
            return None
        if decodes and not mixed:
            self._make_room()
            decodes = self._decodes + self._places
        context = self._context if decodes else 0
        start, count = self.clock, 1
        if chunks:
            seconds = self.engine.seconds(chunks, decodes, context)
        else:
            count, seconds = self._alike(decodes, horizon)
        self.clock = start + seconds
        self.busy += seconds
        self.decode_seconds += seconds * decodes
        self.steps += count
        if self._log is not None:
            tokens = sum(tokens for tokens, _ in chunks)
            waiting = len(self.waiting)
            self._log.append(
                Steps(
                    self.number, start, seconds, count, len(chunks), tokens, decodes, context,
                    waiting, self._used * self.scheduling.block,
                )
            )  # fmt: skip
        done: list[int] = []
        if decodes:
            self._grow(count)
            done = self._ended()
        moving = self._after_prompts(computed, done)
        self._leaving = len(done)
        self._here -= self._leaving
        return moving, done

    # What is in a step.

    def _prompts(self, *, admit: bool) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the parts of prompts in the next step, and requests whose prompts they end."""
        scheduling = self.scheduling
        budget = scheduling.token_budget
        if scheduling.shared_budget:
            budget -= self._decodes
        chunks: list[tuple[int, int]] = []
        computed: list[int] = []
        if scheduling.is_static:
            admit = False
            if not self._running:
                while self.waiting and self._may_admit():
                    self._admit()
        index = 0
        while budget > 0:
            if index == len(self._parts):
                # What is cut is not let in, unless it is in this step.
                if not (admit and self.waiting and self._may_admit()):
                    break
                if not self._goes(self._to_compute(self.waiting[0]), budget, chunks):
                    break
                if not self._admit():  # it decodes
                    budget -= scheduling.shared_budget
                    continue
            part = self._parts[index]
            if not self._goes(part[2], budget, chunks):
                break
            tokens = min(part[2], budget) if scheduling.chunked else part[2]
            chunks.append((tokens, part[1]))
            part[1] += tokens
            part[2] -= tokens
            budget -= tokens
            if part[2]:
                index += 1
            else:
                computed.append(part[0])
                del self._parts[index]
        return chunks, computed

    def _goes(self, tokens: int, budget: int, chunks: list[tuple[int, int]]) -> bool:
        """Tell whether some of a prompt of so many tokens goes into a step with such chunks."""
        if self.scheduling.chunked or tokens <= budget:
            return True
        return not chunks and tokens > self.scheduling.token_budget

    def _to_compute(self, request: int) -> int:
        if request in self._moved:
            return 0
        of = self._of
        return of.prompt[request] + of.made[request] - of.cached[request]

    def _held(self, request: int) -> int:
        """Return the tokens in the cache of a request when it begins to decode."""
        of = self._of
        return of.prompt[request] + (0 if request in self._moved else of.made[request])

    def _last(self, request: int) -> int:
        """Return the tokens in the cache when a request is done: its last one is in none."""
        of = self._of
        return of.prompt[request] + (0 if self._hands_over else of.output[request] - 1)

    def _may_admit(self) -> bool:
        """Tell whether the request that waits longest can be let in."""
        if len(self._running) >= self.scheduling.max_requests:
            return False
        if not self._limited or not self._used:
            return True
        request = self.waiting[0]
        blocks = self.scheduling.blocks
        # What is moved decodes in the same step.
        needed = blocks(self._held(request) + (request in self._moved))
        last = self._final + blocks(self._last(request))
        taken = self._used + needed
        if self.scheduling.is_mixed:  # a step's decodes come first
            taken += self._phases[self._count % self.scheduling.block]
        most = self._blocks - self._watermark
        return taken + self._reserve * max(last - taken, 0) <= most

    def _admit(self) -> bool:
        """Let in the request that waits longest; tell whether it has something to compute."""
        request = self.waiting.popleft()
        of = self._of
        held, tokens = self._held(request), self._to_compute(request)
        self._running[request] = None
        self._used += self.scheduling.blocks(held)
        self._final += self.scheduling.blocks(self._last(request))
        if of.start[request] < 0:
            of.start[request] = self.clock
        if not tokens:
            self._moved.discard(request)
            self._decode(request, held)
            return False
        self._parts.append([request, of.cached[request], tokens])
        return True

    # What decodes.

    def _decode(self, request: int, tokens: int) -> None:
        """Have a request decode from the next step on, with so many tokens in its cache."""
        end = self._count + self._of.output[request] - self._of.made[request]
        self._began[request] = self._count, tokens
        self._end[request] = end
        if end in self._ends:
            self._ends[end].append(request)
        else:
            self._ends[end] = [request]
            heapq.heappush(self._next_ends, end)
        self._decodes += 1
        self._context += tokens
        self._phases[(self._count - tokens) % self.scheduling.block] += 1

    def _stop(self, request: int) -> int:
        """Have a request decode no longer; return the tokens in its cache, which it keeps."""
        began, tokens = self._began.pop(request)
        del self._end[request]
        self._decodes -= 1
        self._phases[(began - tokens) % self.scheduling.block] -= 1
        return tokens + self._count - began

    def _free(self, request: int, tokens: int) -> None:
        del self._running[request]
        self._used -= self.scheduling.blocks(tokens)
        self._final -= self.scheduling.blocks(self._last(request))

    def _make_room(self) -> bool:
        """Preempt until all that decode can go on; tell whether any was."""
        preempted = False
        while self._limited and self._needed(1) > self._blocks - self._used:
            request = next(reversed(self._running))
            of = self._of
            if request in self._end:
                end = self._end[request]
                of.made[request] = of.output[request] - (end - self._count)
                self._ends[end].remove(request)
                tokens = self._stop(request)
                self._context -= tokens
            else:
                self._parts.pop()
                tokens = self._held(request)
            self._free(request, tokens)
            self.waiting.appendleft(request)
            of.preemptions += 1
            preempted = True
        return preempted

    def _needed(self, count: int) -> int:
        """Return the blocks that decodes take in so many steps."""
        block = self.scheduling.block
        rounds, rest = divmod(count, block)
        blocks = rounds * self._decodes
        for step in range(self._count, self._count + rest):
            blocks += self._phases[step % block]
        return blocks

    def _room(self, count: int) -> int:
        """Return for how many steps, of so many, there are blocks."""
        free = self._blocks - self._used
        if self._needed(count) <= free:
            return count
        rounds = free // self._decodes  # in each of which all need a block
        free -= rounds * self._decodes
        steps = rounds * self.scheduling.block
        while steps < count:
            free -= self._phases[(self._count + steps) % self.scheduling.block]
            if free < 0:
                break
            steps += 1
        return steps

    def _alike(self, decodes: int, horizon: float) -> tuple[int, float]:
        """Return how many steps of decodes alone are alike, and their seconds.

        The seconds of a step are taken to be linear in the tokens of caches between the first and
        the last of them: exact where the engine's are, off by what they bend in a growth of 25 %.
        """
        first = self.engine.seconds((), decodes, self._context)
        live = self._decodes
        if self._exact or self.clock + first >= horizon:
            return 1, first
        most = self._next_ends[0] - self._count
        most = min(most, 2 + self._context // (_GROWTH * live))
        if self._limited:
            most = self._room(most)
        if most == 1:
            return 1, first
        last = self.engine.seconds((), decodes, self._context + live * (most - 1))
        slope = (last - first) / (most - 1)
        count = min(most, _steps_before(horizon - self.clock, first, slope))
        return count, count * first + slope * count * (count - 1) / 2

    def _grow(self, count: int) -> None:
        """Let so many steps of decodes pass."""
        if self._limited:
            self._used += self._needed(count)
        self._count += count
        self._context += self._decodes * count

    def _ended(self) -> list[int]:
        """Return the requests that are done after the last step, and free their caches."""
        count = self._count
        if not self._next_ends or self._next_ends[0] != count:
            return []
        heapq.heappop(self._next_ends)
        done = self._ends.pop(count)
        for request in done:
            self._of.finish[request] = self.clock
            self._leave(request, self._stop(request))
        return done

    def _after_prompts(self, computed: list[int], done: list[int]) -> list[int]:
        """Note first tokens; return what is handed over, and add to what is done."""
        of = self._of
        moving = []
        for request in computed:
            held = self._held(request)
            of.made[request] += 1
            if of.first[request] < 0:
                of.first[request] = self.clock
            if of.made[request] == of.output[request]:
                of.finish[request] = self.clock
                done.append(request)
                self._context += held
                self._leave(request, held)
            elif self._hands_over:
                del self._running[request]
                moving.append(request)
            else:
                self._decode(request, held)
        if self.scheduling.is_static and not self._decodes and not self._parts:
            self._end_batch()
        return moving

    def _leave(self, request: int, tokens: int) -> None:
        """Free the cache of a request that is done; in a static batch, it keeps its place."""
        if self.scheduling.is_static:
            self._places += 1
        else:
            self._context -= tokens
            self._free(request, tokens)

    def _end_batch(self) -> None:
        """Free the caches of a static batch, of which all are done."""
        self._running.clear()
        self._used = self._final = self._context = self._places = 0


def _steps_before(seconds: float, first: float, slope: float) -> int:
    """Return how many steps begin before so many seconds, each longer than the last by `slope`."""
    if seconds == math.inf:
        return 2**62
    half = slope / 2
    linear = first - half
    # k steps take half k^2 + linear k: the positive root, written so that slope 0 is no exception.
    reached = linear**2 + 4 * half * seconds
    if reached < 0:  # shorter and shorter steps never get there
        return 2**62
    return max(1, math.ceil(2 * seconds / (linear + math.sqrt(reached))))
