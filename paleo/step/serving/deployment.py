"""One copy of a model on its devices, as a server runs it: the seconds of its steps, its memory.

The seconds of a step are those of its parts (`prices`) and of the host. Loads ask for thousands of
steps, so the parts stand in tables, between whose points they are taken to be straight: of all
tokens of a step, of tokens that are sampled, of requests that decode with so many keys, and of
prompts with so many new tokens behind others.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from paleo.cluster.servers import Server, StepLimits
from paleo.core.errors import SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, np
from paleo.costs.tiled.quantizations import QUANTIZATIONS
from paleo.step.serving.prices import SINGLE, Parts, StepPrices
from paleo.step.serving.program import HALF

#: Points of a table in each doubling: products go up in stairs of tiles, attention nearly straight.
_OF_ROWS, _OF_LENGTHS = 8, 2
#: No step has more tokens, no request more keys.
_MOST = 2**20


class Drafts(NamedTuple):
    """Speculative decoding: so many tokens are drafted, and each is accepted with this chance.

    `prices` are those of the model that drafts; None: one layer of the model itself and its scores,
    as in multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2).
    """

    length: int = 0
    acceptance: float = 0.0
    prices: StepPrices | None = None

    @property
    def tokens(self) -> float:
        """Tokens that a step gives a request on average.

        (1 - a^(k + 1)) / (1 - a) of k drafts (Leviathan et al., arXiv:2211.17192, equation 1).
        """
        a, k = self.acceptance, self.length
        return float(k + 1) if a == 1 else (1 - a ** (k + 1)) / (1 - a)


NO_DRAFTS = Drafts()


@dataclass(frozen=True)
class Memory:
    """What a device holds, in bytes: weights, and what is left for caches.

    `activations` are those of the largest step, with what the server keeps besides. `of_request`
    are the bytes of a request of a length, in whole blocks.
    """

    weights: float
    activations: float
    room: float
    capacity: float
    block: int
    of_request: Callable[[Quantity], Quantity]

    def most_requests(self, length: int) -> int:
        """Return how many requests of so many tokens there is room for; 0: not for one."""
        if self.room <= 0:
            return 0
        size = self.of_request(length)
        return int(self.room / size) if size else _MOST

    def longest(self) -> int:
        """Return the most tokens of one request that there is room for."""
        low, high = 0, 1
        while high < _MOST and self.of_request(high) <= self.room:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.of_request(middle) <= self.room else (low, middle)
        return low


class Deployment:
    """A model on its devices; see the module. An `Engine` of paleo.step.serving.engine.

    `length` is that of a usual request at its end: what a token of the cache takes is a mean over
    it where layers keep no more than a window. `graphs` says whether steps without prompts are
    replayed; else the host hands over each kernel, in `host` seconds.
    """

    def __init__(
        self,
        prices: StepPrices,
        server: Server,
        *,
        length: int,
        token_budget: int,
        graphs: bool = True,
        host: Quantity = 0.0,
        drafts: Drafts = NO_DRAFTS,
    ) -> None:
        self.prices, self.server, self.drafts = prices, server, drafts
        self.length, self.token_budget = length, token_budget
        self.graphs, self.host = graphs, float(host)
        self._rows = _Line(lambda tokens: prices.rows(tokens).seconds, _OF_ROWS)
        self._scores = _Line(lambda rows: prices.scores(rows).seconds, _OF_LENGTHS)
        new = 1 + drafts.length
        self._steps = _Plane(lambda count, keys: prices.steps(count, keys, new).seconds)
        self._prompts = _Plane(
            lambda new, keys: prices.prompts(1, new, new + keys).seconds, least=0
        )

    # What a load asks for.

    @property
    def limits(self) -> StepLimits:
        """What a step holds by the server's own default."""
        return self.server.limits_on(self.prices.device)

    @functools.cached_property
    def capacity(self) -> int:
        """Tokens of caches of all groups that there is room for, of requests of the usual length.

        Raises SettingError if there is no room for one.
        """
        memory = self.memory
        size = memory.of_request(self.length) / self.length
        count = memory.room / size if size else _MOST
        return max(int(count), 0) * self.prices.degrees.attention_dp

    def seconds(self, chunks: Sequence[tuple[int, int]], decodes: int, context: int) -> float:
        """Return the seconds of a step: see `Engine`.

        A step that checks drafts gives several tokens: of decoding it is the seconds of one.
        """
        found = self._seconds(chunks, decodes, context)
        if not (self.drafts.length and decodes):
            return found
        alone = self._seconds((), decodes, context) if chunks else found
        return found - alone * (1 - 1 / self.drafts.tokens)

    def _seconds(self, chunks: Sequence[tuple[int, int]], decodes: int, context: int) -> float:
        degrees = self.prices.degrees
        prompts = sum(self._prompts.at(new, before) for new, before in chunks)
        added = sum(new for new, _ in chunks)
        groups, stages = degrees.attention_dp, degrees.pp
        # Requests are dealt out to groups, and to the micro-batches that fill a pipeline.
        share = groups * stages
        running = max(decodes / share, 1.0) if decodes else 0.0
        tokens = running * (1 + self.drafts.length)
        longest = max((new for new, _ in chunks), default=0)
        tokens += max(added / groups, longest) / stages
        device = self._rows.at(tokens) + prompts / share
        sampled = running * (1 + self.drafts.length) + len(chunks) / share
        device += self._scores.at(sampled)
        if decodes:
            device += self._steps.at(running, context / decodes + 1 + self.drafts.length)
            device += self._drafting(running, context / decodes)
        is_replayed = self.graphs and not chunks and running <= self._most_replayed
        if chunks and self.server.graphs_prompts and self.graphs:
            is_replayed = True
        if not is_replayed:
            device = max(device, self.host * self.prices.program.kernels)
        return device + self.host_seconds(decodes + len(chunks))

    def host_seconds(self, requests: int) -> float:
        """Return the seconds of a step in which the device waits for its host."""
        return float(self.server.step_host + self.server.request_host * requests)

    @property
    def _most_replayed(self) -> int:
        limits = self.limits
        return limits.shared_graphs if self.prices.degrees.tp >= 4 else limits.graphs

    def _drafting(self, requests: float, keys: float) -> float:
        """Return the seconds in which tokens are drafted, one after the other."""
        if not self.drafts.length:
            return 0.0
        once = self.drafts.prices
        if once is None:
            layers = sum(count for _, count in self.prices.program.mixers)
            of_layers = self._rows.at(requests) + self._steps.at(requests, keys + 1)
            return self.drafts.length * (of_layers / layers + self._scores.at(requests))
        parts = once.rows(requests) + once.scores(requests) + once.steps(requests, keys + 1)
        return self.drafts.length * float(parts.seconds)

    # What an answer shows.

    def prefill(self, prompt: int, before: int = 0) -> Parts:
        """Return the parts of a step that computes a prompt alone."""
        prices = self.prices
        return prices.rows(prompt) + prices.scores(1) + prices.prompts(1, prompt, prompt + before)

    def decode(self, requests: float, keys: float) -> Parts:
        """Return the parts of a step of so many requests, each with so many keys."""
        prices, degrees = self.prices, self.prices.degrees
        running = max(requests / (degrees.attention_dp * degrees.pp), 1.0)
        new = 1 + self.drafts.length
        return (
            prices.rows(running * new)
            + prices.scores(running * new)
            + prices.steps(running, keys + new, new)
        )

    @functools.cached_property
    def memory(self) -> Memory:
        """What a device holds."""
        prices, server = self.prices, self.server
        stages = prices.degrees.pp
        weights = weight_bytes(prices) / stages
        program = prices.program
        widest = max(product.columns for product, _ in program.products)
        tokens = self.token_budget
        activations = HALF * tokens * (widest + 2 * program.hidden)
        words = program.words * prices.degrees.of_attention
        activations += (HALF + SINGLE) * min(self.limits.requests, tokens) * words
        activations += sum(
            HALF * tokens * prices.degrees.attention_dp * experts.chosen * experts.hidden
            for experts, _ in program.experts[:1]
        )
        reserved = self.limits.reserved
        room = server.cache_bytes(prices.device, weights + (0.0 if reserved else activations))
        capacity = prices.device.memory_capacity
        assert capacity is not None

        def of_request(length: Quantity) -> Quantity:
            return cache_bytes(prices, length, server.block) / stages

        held = reserved or activations
        return Memory(weights, held, float(room), float(capacity), server.block, of_request)


def weight_bytes(prices: StepPrices) -> float:
    """Return the bytes of all weights that a device and those of its other stages hold."""
    kernels, program = prices.kernels, prices.program
    size, of_experts = (
        QUANTIZATIONS[name].weight_size for name in (kernels.weights, kernels.experts)
    )
    found = float(program.other_weights)
    for product, count in program.products:
        found += count * product.features * product.columns * (HALF if product.is_wide else size)
    for mixer, count in program.mixers:
        if mixer.latent:
            found += count * mixer.latent.rank * mixer.latent.made * size
    for experts, count in program.experts:
        held, inner = prices.held(experts)
        numbers = held * experts.hidden * inner * (2 + experts.is_gated)
        found += count * numbers * of_experts
    return found


def cache_bytes(prices: StepPrices, length: Quantity, block: int) -> Quantity:
    """Return the bytes that a device keeps of a request of so many tokens, in whole blocks."""
    rounded = -(-length // block) * block
    found: Quantity = 0.0
    for mixer, count in prices.program.mixers:
        kept = np.minimum(rounded, mixer.window) if mixer.window else rounded
        state = mixer.node.layer.state(mixer.node.inputs)
        found = found + count * (kept * mixer.cached * prices.kernels.cache + state)
    return found


class _Line:
    """A function of one number in a table, straight between its points, made when asked for."""

    def __init__(self, of: Callable[[Any], Any], per_doubling: int) -> None:
        self._of, self._per = of, per_doubling
        self._points: list[float] = []
        self._values: list[float] = []

    def at(self, number: float) -> float:
        """Return the function of a number above 0, of none 0."""
        if number <= 0:
            return 0.0
        if not self._points or number > self._points[-1]:
            self._make(number)
        return _between(self._points, self._values, number)

    def _make(self, most: float) -> None:
        points = points_to(max(most, 256), self._per)
        values = self._of(np.array(points))
        self._points = points
        self._values = np.broadcast_to(values, len(points)).tolist()


class _Plane:
    """The same of two numbers; `least` is the smallest of the second."""

    def __init__(self, of: Callable[[Any, Any], Any], least: int = 1) -> None:
        self._of, self._least = of, least
        self._first: list[float] = []
        self._second: list[float] = []
        self._values: list[list[float]] = []

    def at(self, first: float, second: float) -> float:
        """Return the function of two numbers, the first above 0."""
        if first <= 0:
            return 0.0
        if not self._first or first > self._first[-1] or second > self._second[-1]:
            self._make(first, second)
        places, rows = self._first, self._values
        place, share = _place(places, first)
        low = _between(self._second, rows[place], second)
        if not share:
            return low
        return low + share * (_between(self._second, rows[place + 1], second) - low)

    def _make(self, first: float, second: float) -> None:
        one = points_to(max(first, 64, *self._first[-1:]), _OF_LENGTHS)
        two = points_to(max(second, 4096, *self._second[-1:]), _OF_LENGTHS)
        if not self._least:
            two = [0.0, *two]
        a, b = np.meshgrid(np.array(one), np.array(two), indexing="ij")
        values = self._of(a.ravel(), b.ravel())
        table = np.broadcast_to(values, a.size).reshape(a.shape)
        self._first, self._second, self._values = one, two, table.tolist()


def points_to(most: float, per_doubling: int) -> list[float]:
    """Return whole numbers from 1 to the first power of 2 that is no less, so many a doubling."""
    if most > _MOST:
        raise SettingError(f"{most:,.0f} tokens are more than {_MOST:,}")
    doublings = max(int(most) - 1, 1).bit_length()
    found = {round(2 ** (i / per_doubling)) for i in range(doublings * per_doubling + 1)}
    return [float(each) for each in sorted(found)]


def _place(points: list[float], number: float) -> tuple[int, float]:
    """Return the point before a number, and how far it is on the way to the next."""
    place = min(max(bisect_right(points, number) - 1, 0), len(points) - 1)
    if place == len(points) - 1:
        return place, 0.0
    share = (number - points[place]) / (points[place + 1] - points[place])
    return place, max(share, 0.0)


def _between(points: list[float], values: list[float], number: float) -> float:
    place, share = _place(points, number)
    found = values[place]
    return found + share * (values[place + 1] - found) if share else found
