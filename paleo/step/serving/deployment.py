"""One copy of a model on its devices, as a server runs it: the seconds of its steps, its memory.

The seconds of a step are those of its parts (`prices`) and of the host. Loads ask for thousands of
steps, so the parts stand in tables (`tables`), and what is asked of them holds for numbers and for
arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from paleo.cluster.servers import Server, StepLimits
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.quantity import Quantity, is_array, maximum, minimum, np, where
from paleo.costs.tiled.quantizations import QUANTIZATIONS
from paleo.step.serving.held import renewing_seconds
from paleo.step.serving.prices import SINGLE, Parts, StepPrices
from paleo.step.serving.program import HALF
from paleo.step.serving.tables import MOST


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
        return int(self.requests(length))

    def requests(self, length: Quantity) -> Any:
        """Return the same of a length, or of an array of them."""
        return self._fitting(self.of_request(length))

    def tokens(self, length: Quantity) -> Any:
        """Return how many tokens there is room for, of requests that are so long at their end."""
        return self._fitting(self.of_request(length) / length)

    def _fitting(self, size: Quantity) -> Any:
        room = max(self.room, 0.0)
        if is_array(size):
            return np.where(size > 0, room / np.maximum(size, 1e-9), MOST * (room > 0)) // 1
        return int(room / size) if size else MOST * (room > 0)

    def longest(self) -> int:
        """Return the most tokens of one request that there is room for."""
        low, high = 0, 1
        while high < MOST and self.of_request(high) <= self.room:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.of_request(middle) <= self.room else (low, middle)
        return low


class _Prompts(NamedTuple):
    """The prompts of a step: how many parts, their tokens, the longest, seconds of attention."""

    count: Any = 0
    tokens: Any = 0
    longest: Any = 0
    attention: Any = 0.0


_NO_PROMPTS = _Prompts()


class Deployment:
    """A model on its devices; see the module. An `Engine` of paleo.step.serving.engine.

    `length` is that of a usual request at its end: what a token of the cache takes is a mean over
    it where layers keep no more than a window. `graphs` says whether steps without prompts are
    replayed; else the host hands over each kernel, in `host` seconds or the server's own.
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
        self.graphs, self.host = graphs, float(server.kernel_host or host)
        #: A model that drafts computes as often as it drafts, one new token at a time.
        self._tables = prices.tables(1 + drafts.length)
        self._once = drafts.prices.tables(1) if drafts.prices else None
        self._prefills: dict[tuple[int, int], Parts] = {}

    # What a load asks for.

    @functools.cached_property
    def limits(self) -> StepLimits:
        """What a step holds by the server's own default."""
        return self.server.limits_on(self.prices.device)

    @functools.cached_property
    def capacity(self) -> int:
        """Tokens of caches of all groups that there is room for, of requests of the usual length.

        Raises SettingError if there is no room for one.
        """
        return int(self.memory.tokens(self.length)) * self.prices.degrees.attention_dp

    def seconds(self, chunks: Sequence[tuple[int, int]], decodes: int, context: int) -> float:
        """Return the seconds of a step: see `Engine`.

        A step that checks drafts gives several tokens: of decoding it is the seconds of one.
        """
        prompts = _NO_PROMPTS
        if chunks:
            each = {chunk: self._tables.prompts.at(*chunk) for chunk in {*chunks}}  # few differ
            tokens = [new for new, _ in chunks]
            attention = sum(each[chunk] for chunk in chunks)
            prompts = _Prompts(len(chunks), sum(tokens), max(tokens), attention)
        return float(self._of_one(prompts, decodes, context))

    def alike(
        self, count: Quantity, new: Quantity, past: Quantity, decodes: Quantity, context: Quantity
    ) -> Any:
        """Return the seconds of steps with so many parts of prompts, each as long as the others.

        Each has `new` tokens to compute and `past` before them. Numbers may be arrays, of many
        steps, with decodes, prompts, or both.
        """
        in_prompts = where(count > 0, new, 0)
        prompts = _Prompts(
            count, count * new, in_prompts, count * self._tables.prompts.at(in_prompts, past)
        )
        return self._of_one(prompts, decodes, context)

    def _of_one(self, prompts: _Prompts, decodes: Any, context: Any) -> Any:
        """Return the seconds of a step, of decoding those of one of its tokens."""
        found = self._seconds(prompts, decodes, context)
        if not self.drafts.length:
            return found
        alone = self._seconds(_NO_PROMPTS, decodes, context)
        return found - where(decodes > 0, alone * (1 - 1 / self.drafts.tokens), 0.0)

    def _seconds(self, prompts: _Prompts, decodes: Any, context: Any) -> Any:
        degrees, tables, new = self.prices.degrees, self._tables, 1 + self.drafts.length
        groups, stages = degrees.attention_dp, degrees.pp
        # Requests are dealt out to groups, and to the micro-batches that fill a pipeline.
        share = groups * stages
        decoding = decodes > 0
        running = where(decoding, maximum(decodes / share, 1.0), 0.0)
        keys = context / maximum(decodes, 1)
        added = maximum(prompts.tokens / groups, prompts.longest)
        if self.prices.program.encoded:  # its prompts have one token to begin with
            added = prompts.count / groups
        tokens = running * new + added / (stages * degrees.cp)
        device = tables.rows.at(tokens) + prompts.attention / share
        device = device + tables.scores.at(running * new + prompts.count / share)
        device = device + tables.steps.at(running, keys + new)
        if self.drafts.length:
            device = device + self._drafting(running, keys)
        few = running <= self._most_replayed
        is_replayed = where(prompts.count > 0, self.server.graphs_prompts, few) & self.graphs
        handed_over = maximum(device, self.host * self.prices.program.kernels)
        device = where(is_replayed, device, handed_over)
        if self.server.holds_reduced:
            free = self.server.left_free(self.prices.device)
            device = device + renewing_seconds(self.prices, tokens, free)
        return device + self.host_seconds(decodes + prompts.count)

    def host_seconds(self, requests: Quantity) -> Any:
        """Return the seconds of a step in which devices wait for their hosts.

        Each group of attention has a scheduler of its own for its share of the requests.
        """
        own = maximum(requests / self.prices.degrees.attention_dp, minimum(requests, 1))
        return self.server.step_host + self.server.request_host * own

    @functools.cached_property
    def _most_replayed(self) -> int:
        limits = self.limits
        return limits.shared_graphs if self.prices.degrees.tp >= 4 else limits.graphs

    def _drafting(self, requests: Quantity, keys: Quantity) -> Any:
        """Return the seconds in which tokens are drafted, one after the other."""
        tables, once = self._tables, self._once
        if once is None:
            layers = sum(count for _, count in self.prices.program.mixers)
            of_layers = tables.rows.at(requests) + tables.steps.at(requests, keys + 1)
            return self.drafts.length * (of_layers / layers + tables.scores.at(requests))
        steps = once.steps.at(requests, keys + 1)
        return self.drafts.length * (once.rows.at(requests) + once.scores.at(requests) + steps)

    # What an answer shows.

    def prefill(self, prompt: int, before: int = 0) -> Parts:
        """Return the parts of a step that computes a prompt alone, found once: loads share it."""
        key = prompt, before
        if key not in self._prefills:
            self._prefills[key] = self._prefill(prompt, before)
        return self._prefills[key]

    def _prefill(self, prompt: int, before: int) -> Parts:
        prices = self.prices
        tokens = 1 if prices.program.encoded else prompt
        share = -(-tokens // prices.degrees.cp)
        return prices.rows(share) + prices.scores(1) + prices.prompts(1, prompt, prompt + before)

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
            return cache_bytes(prices, length, server.block) / (stages * prices.degrees.cp)

        held = reserved or activations
        return Memory(weights, held, float(room), float(capacity), server.block, of_request)


def weight_bytes(prices: StepPrices) -> float:
    """Return the bytes of all weights that a device and those of its other stages hold."""
    kernels, program = prices.kernels, prices.program
    size, of_attention, of_experts = (
        QUANTIZATIONS[name].weight_size
        for name in (kernels.weights, kernels.attention or kernels.weights, kernels.experts)
    )
    found = float(program.other_weights)
    for product, count in program.products:
        own = of_attention if product.is_of_attention else size
        found += count * product.features * product.columns * (HALF if product.is_wide else own)
    for mixer, count in program.mixers:
        if mixer.latent:
            found += count * mixer.latent.rank * mixer.latent.made * of_attention
    for experts, count in program.experts:
        held, inner = prices.held(experts)
        numbers = held * experts.hidden * inner * (2 + experts.is_gated)
        found += count * numbers * of_experts
    return found


def cache_bytes(prices: StepPrices, length: Quantity, block: int) -> Quantity:
    """Return the bytes that a device keeps of a request of so many tokens, in whole blocks."""
    rounded = -(-length // block) * block
    found: Quantity = 0.0
    own = np.maximum(rounded - prices.program.encoded, block)
    for mixer, count in prices.program.mixers:
        if mixer.span:
            found = found + count * mixer.span * mixer.cached * prices.kernels.cache
            continue
        kept = np.minimum(own, mixer.window) if mixer.window else own
        state = mixer.node.layer.state(mixer.node.inputs)
        found = found + count * (kept * mixer.cached * prices.kernels.cache + state)
    return found
