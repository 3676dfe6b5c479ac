"""Engines whose seconds are a formula, and a scheduler that looks at every request each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paleo.step.serving.scheduling import Scheduling
from paleo.studies.serving.loads import Load


@dataclass
class LinearEngine:
    """`a` seconds a step, `b` a token, `c` a token in caches, `d` a token and token before it."""

    a: float = 5e-3
    b: float = 2e-5
    c: float = 2e-8
    d: float = 1e-9
    capacity: int | None = None

    def seconds(self, chunks: Sequence[tuple[int, int]], decodes: int, context: int) -> float:
        assert chunks or decodes
        assert decodes or not context
        seconds = self.a + self.b * decodes + self.c * context
        for tokens, past in chunks:
            assert tokens > 0
            seconds += self.b * tokens + self.d * tokens * (past + tokens / 2)
        return seconds


@dataclass
class RooflineEngine:
    """A step waits for weights and caches, or for its products, whichever takes longer."""

    weights: float = 8e-3
    token: float = 2e-5
    cached: float = 2e-8
    capacity: int | None = None

    def seconds(self, chunks: Sequence[tuple[int, int]], decodes: int, context: int) -> float:
        tokens = decodes + sum(tokens for tokens, _ in chunks)
        return max(self.weights, self.token * tokens) + self.cached * context


@dataclass
class Plain:
    """When requests came, were let in, had their first and last token; and what caches held."""

    arrival: list[float]
    start: list[float]
    first: list[float]
    finish: list[float]
    preemptions: int
    #: Blocks that are taken in each step.
    blocks: list[int]


def plainly_served(load: Load, engine: LinearEngine | RooflineEngine, of: Scheduling) -> Plain:
    """Serve a load on one server, step by step, each request a row of its own."""
    count = len(load)
    prompt, output, cached = load.prompt.tolist(), load.output.tolist(), load.cached.tolist()
    arrival = [math.inf] * count if load.arrival is None else load.arrival.tolist()
    for number in range(min(count, load.concurrency or 0)):
        arrival[number] = 0.0
    sent = load.concurrency or 0
    start, first, finish = ([-1.0] * count for _ in range(3))
    made = [0] * count
    waiting: list[int] = []
    running: list[int] = []
    tokens: dict[int, int] = {}  # computed, in the cache
    target: dict[int, int] = {}  # to be computed before the next token
    come: set[int] = set()
    taken: dict[int, int] = {}  # blocks
    held: list[int] = []
    preemptions = 0
    room = math.inf if engine.capacity is None else engine.capacity // of.block
    static = of.batching == "static"
    mixed = of.mixed and not static
    now = 0.0

    def blocks(number: int) -> int:
        return math.ceil(number / of.block)

    def decoding() -> list[int]:
        return [one for one in running if target[one] == tokens[one] and made[one] < output[one]]

    def preempt() -> int:
        times = 0
        while sum(blocks(tokens[r] + 1) - taken[r] for r in decoding()) > room - sum(
            taken.values()
        ):
            last = running.pop()
            del tokens[last], target[last], taken[last]
            waiting.insert(0, last)
            times += 1
        return times

    def may_enter(request: int) -> bool:
        if len(running) >= of.max_requests:
            return False
        if not running:
            return True
        now_taken = sum(taken.values())
        if mixed:
            now_taken += sum(blocks(tokens[r] + 1) - taken[r] for r in decoding())
        taken_then = now_taken + blocks(prompt[request] + made[request])
        last = sum(blocks(prompt[r] + output[r] - 1) for r in (*running, request))
        kept = of.watermark if room == math.inf else int(of.watermark * room)
        share = 1.0 if static else of.reserve
        return taken_then + share * (last - taken_then) <= room - kept

    def enter() -> None:
        request = waiting.pop(0)
        running.append(request)
        tokens[request] = cached[request]
        target[request] = prompt[request] + made[request]
        taken[request] = blocks(target[request])
        if start[request] < 0:
            start[request] = now

    while len([time for time in finish if time >= 0]) < count:
        new = [r for r in range(count) if r not in come and arrival[r] <= now]
        come |= set(new)
        waiting += sorted(new, key=lambda r: (arrival[r], r))
        if not waiting and not running:
            now = min(arrival[r] for r in range(count) if r not in come)
            continue
        times = preempt() if mixed else 0
        preemptions += times
        budget = of.token_budget - (len(decoding()) if mixed and of.decode_first else 0)
        step: list[tuple[int, int, int]] = []  # request, tokens, before

        def part(request: int, budget: int, step: list[tuple[int, int, int]]) -> int:
            """Return the tokens of a prompt that go into a step."""
            left: int = target.get(request, prompt[request] + made[request]) - tokens.get(
                request, cached[request]
            )
            if of.chunked:
                return min(left, budget)
            return left if left <= budget or (not step and left > of.token_budget) else 0

        if static and not running:
            while waiting and may_enter(waiting[0]):
                enter()
        stopped = False
        for request in [r for r in running if tokens[r] < target[r]]:
            size = part(request, budget, step) if budget > 0 and not stopped else 0
            if size:
                step.append((request, size, tokens[request]))
                budget -= size
            else:
                stopped = True
        while not (static or times or stopped) and waiting and budget > 0:
            if not may_enter(waiting[0]) or not part(waiting[0], budget, step):
                break
            size = part(waiting[0], budget, step)
            enter()
            step.append((running[-1], size, tokens[running[-1]]))
            budget -= size
        decodes: list[int] = []
        places = 0
        if mixed or not step:
            if not mixed:
                preemptions += preempt()
            decodes = decoding()
            places = sum(finish[r] >= 0 for r in running)
        context = sum(tokens[r] for r in decodes)
        if static and decodes:
            context += sum(tokens[r] for r in running if finish[r] >= 0)
        now += engine.seconds(
            [(size, before) for _, size, before in step], len(decodes) + places, context
        )
        for request in decodes:
            tokens[request] += 1
            target[request] += 1
            taken[request] = blocks(tokens[request])
            made[request] += 1
        held.append(sum(taken.values()))
        for request, size, _ in step:
            tokens[request] += size
            if tokens[request] == target[request]:
                made[request] += 1
                if first[request] < 0:
                    first[request] = now
        done = [r for r in running if made[r] == output[r] and finish[r] < 0]
        for request in done:
            finish[request] = now
            if not static:
                running.remove(request)
                del tokens[request], target[request], taken[request]
            if load.concurrency and sent < count:
                arrival[sent] = now
                sent += 1
        if static and all(finish[r] >= 0 for r in running):
            running.clear()
            tokens.clear()
            target.clear()
            taken.clear()
    return Plain(arrival, start, first, finish, preemptions, held)
