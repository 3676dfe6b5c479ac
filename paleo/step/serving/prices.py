"""What a step of a server takes: the time of each of its parts, as functions of how much there is.

All tokens of a step go through the same products, attention through the requests one kind after the
other, scores are of the tokens that are sampled. So the seconds of any step are a sum of functions
of few numbers, each of which is evaluated for arrays of them at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from paleo.cluster.collectives import COLLECTIVES, Collective
from paleo.cluster.collectives import Operation as Collecting
from paleo.cluster.collectives.custom import PUSHED
from paleo.cluster.device import Device
from paleo.cluster.topology import Cluster, Group
from paleo.core.operations import (
    Attention,
    BatchMatMul,
    FusedExperts,
    Kind,
    Operation,
    Pass,
    Stream,
)
from paleo.core.quantity import Quantity, ceil_div, is_array, maximum, minimum, np, where
from paleo.core.scanning import DeltaRule, ShortConvolution
from paleo.core.selection import IndexScores, Select, SelectedAttention
from paleo.costs import CostModel, Target, Time
from paleo.costs.tiled.backends import BACKENDS
from paleo.costs.tiled.quantizations import QUANTIZATIONS, ROWS_OF_LANES, by_lanes, product
from paleo.step.passes import exchange_time, priced
from paleo.step.serving.block_experts import How, how_of, padding
from paleo.step.serving.parts import (
    ALL_GATHER,
    ALL_TO_ALL,
    ONCE_A_HOST,
    Degrees,
    Kernels,
    Parts,
    Tables,
    widest,
)
from paleo.step.serving.program import (
    ATTENTION,
    EXPERTS,
    HALF,
    SCORES,
    Experts,
    Message,
    Mixer,
    Product,
    Program,
    Row,
    Streams,
)
from paleo.step.serving.shares import above, loads_of
from paleo.step.serving.tables import OF_LENGTHS, OF_ROWS, Line, Plane

#: The part of messages, in tables.
EXCHANGE = "exchange"
#: That of what encodes images, sound or prompts.
ENCODER = "encoder"
#: How far devices drift apart from one all-reduce to the next, which waits for the last of them:
#: the deviation of one. (TensorRT-LLM's steps of Llama 3.1 8B and 70B on H100 and H200 take 4, 5
#: and 8 us longer for each all-reduce among 2, 4 and 8 devices than its kernels by themselves.)
_DRIFT = 3.5e-6
#: Tokens of a device beyond which DeepEP's kernels are not those of low latency, which send each
#: copy of a token by itself (deepseek-ai/DeepEP, docs/legacy.md: decoding batches below 256).
_MANY_TOKENS = 256
#: Kernels of attention to chosen keys take so many heads at a time.
_TILE = 64
#: Bytes of a number that is sampled from.
SINGLE = 4


#: Operations of a part of a step, with how often.
_Made: TypeAlias = "tuple[str, tuple[Operation, ...], Quantity]"


class StepPrices:
    """Seconds of the parts of a step on one device, for one net, cluster and division."""

    def __init__(
        self,
        program: Program,
        device: Device,
        cost_model: CostModel,
        kernels: Kernels,
        degrees: Degrees,
        cluster: Cluster | None,
    ) -> None:
        self.program = program
        self.device = device
        self.cost_model = cost_model
        self.kernels = kernels
        self.degrees = degrees
        self.cluster = cluster
        #: The two bytes of what is not quantized: halves where weights are multiplied as such.
        is_half = QUANTIZATIONS[kernels.weights].dtype == "fp16"
        self.plain = "fp16" if is_half else widest(device)
        self.target = Target(device, self.plain, training=False)
        self._tables: dict[int, Tables] = {}

    def tables(self, new: int = 1) -> Tables:
        """Return the parts as tables, for steps that decode `new` tokens of each request."""
        if new not in self._tables:
            self._tables[new] = Tables(
                Line(lambda tokens: self.rows(tokens).seconds, OF_ROWS),
                Line(lambda rows: self.scores(rows).seconds, OF_LENGTHS),
                Plane(lambda count, keys: self.steps(count, keys, new).seconds),
                Plane(lambda new, keys: self.prompts(1, new, new + keys).seconds, least=0),
            )
        return self._tables[new]

    # The parts.

    def rows(self, tokens: Quantity) -> Parts:
        """Return what is computed of so many tokens, and what is exchanged of them."""
        found = self._priced(self._made_of(self.program.rows, tokens))
        exchange: Quantity = 0.0
        if self.degrees.attention_dp > 1:
            for of, count in self.program.experts:
                exchange = exchange + count * self._tokens_to_experts(of, tokens)
        for message, count in self.program.messages:
            exchange = exchange + count * self._message(message, tokens)
        if self.degrees.pp > 1:
            sent = HALF * self.program.hidden * tokens
            seconds = self._sending(self._neighbours, sent, Collecting.POINT_TO_POINT)
            exchange = exchange + (self.degrees.pp - 1) * seconds
        return found + Parts({EXCHANGE: Time(overhead=exchange, total=exchange)})

    def scores(self, rows: Quantity) -> Parts:
        """Return what the scores of words take of so many tokens, and a choice among them."""
        made = [(SCORES, self._operations(row, rows), n) for row, n in self.program.scores]
        words = self.program.words * self.degrees.of_attention
        chosen = (
            Stream(Kind.COPY, (HALF * rows * words,), (SINGLE * rows * words,), label="to fp32"),
            Stream(Kind.REDUCTION, (SINGLE * rows * words,), (rows * 8,), label="choice"),
        )
        found = self._priced([*made, (SCORES, chosen, 1)])
        if self.degrees.of_attention > 1:
            gathered = HALF * rows * words
            seconds = self._sending(self._group, gathered, Collecting.ALL_GATHER)
            found += Parts({EXCHANGE: Time(overhead=seconds, total=seconds)})
        return found

    def steps(self, requests: Quantity, keys: Quantity, new: Quantity = 1) -> Parts:
        """Return attention of requests that have so many keys each, of which `new` are new.

        `requests` may be a mean, but not below one.
        """
        made = [
            (ATTENTION, self._mixed(mixer, requests, new, keys, is_step=True), count)
            for mixer, count in self.program.mixers
        ]
        found = self._priced(made)
        if self.degrees.cp == 1:
            return found
        # Each device has found a part of every sum of values, in halves.
        sent = HALF * requests * new * self._summed
        return found + self._shared(sent, Collecting.ALL_REDUCE)

    def prompts(self, requests: Quantity, new: Quantity, keys: Quantity) -> Parts:
        """Return attention of prompts, of whose keys so many are `new`, each with a query.

        What encodes images, sound or the prompt of a request is in it, with its first token.
        """
        if self.program.encoded:  # the prompt is the encoder's: there is one token to begin with
            new = keys = 1 + 0 * new
        made = [
            (ATTENTION, self._mixed(mixer, requests, new, keys, is_step=False), count)
            for mixer, count in self.program.mixers
        ]
        is_first = where(keys == new, 1, 0)
        fixed = [(ENCODER, own(requests), count * is_first) for own, count in self.program.fixed]
        found = self._priced([*made, *fixed])
        ways = self.degrees.cp
        if ways == 1:
            return found
        # Devices have early and late queries alike, and keys pass all of them while they compute.
        found = found.times_of(1 / ways)
        exchange = self._shared(HALF * requests * keys * self._passed, Collecting.ALL_GATHER)
        hidden = found.times[ATTENTION].total
        seconds = maximum(exchange.seconds - hidden, 0.0)
        return found + Parts({EXCHANGE: Time(overhead=seconds, total=seconds)})

    @functools.cached_property
    def _summed(self) -> int:
        """Numbers of a token that attention of all layers makes on a device."""
        attentions = [(each.node, n) for each, n in self.program.mixers if each.is_attention]
        return sum(n * int(node.output[1] * node.output[-1]) for node, n in attentions)

    @functools.cached_property
    def _passed(self) -> int:
        """Numbers that the devices of a request keep of a position."""
        return sum(count * mixer.cached for mixer, count in self.program.mixers)

    def _shared(self, num_bytes: Quantity, operation: Collecting) -> Parts:
        """Return what devices that share positions exchange of so many bytes of all layers."""
        assert self.cluster is not None
        layers = sum(count for mixer, count in self.program.mixers if mixer.is_attention)
        group = self.cluster.group(self.degrees.cp, self.degrees.tp)
        seconds = layers * self._sending(group, num_bytes / layers, operation)
        return Parts({EXCHANGE: Time(overhead=seconds, total=seconds)})

    # How they are priced.

    def _made_of(self, rows: Iterable[tuple[Row, int]], tokens: Quantity) -> list[_Made]:
        """Return the operations of rows, each with how often; of two ways to do it one is never."""
        found: list[_Made] = []
        for row, count in rows:
            of, often = row.of, count * self._left(row, tokens)
            if isinstance(of, Product) and self.kernels.backend is None:
                few = where(tokens <= ROWS_OF_LANES, 1, 0)
                one, weights = by_lanes(tokens, of.columns, of.features, self._numbers(of), count)
                found += [(row.part, (one,), often * few), (row.part, (weights,), few)]
                often = often * (1 - few)
            found.append((row.part, self._operations(row, tokens), often))
        return found

    def _left(self, row: Row, tokens: Quantity) -> Quantity:
        """Return 0 for a norm that the all-reduce before it computes, else 1."""
        is_folded = self.kernels.folds_norms and self.degrees.of_attention > 1
        if not (is_folded and isinstance(row.of, Streams) and row.of.adds):
            return 1
        left: Quantity = where(HALF * self.program.hidden * tokens < PUSHED.limit, 0, 1)
        return left

    def _priced(self, made: Sequence[_Made]) -> Parts:
        operations = [each for _, own, _ in made for each in own]
        times = iter(priced(operations, self.target, self.cost_model))
        found: dict[str, Time] = {}
        for part, own, count in made:
            time = sum((next(times) for _ in own), Time())
            found[part] = found.get(part, Time()) + time.times(count)
        return Parts(found)

    def _operations(self, row: Row, tokens: Quantity) -> tuple[Operation, ...]:
        of = row.of
        if isinstance(of, Product):
            return self._product(of, tokens)
        if isinstance(of, Experts):
            return self._experts(of, tokens)
        return of(tokens)

    def _product(self, of: Product, tokens: Quantity) -> tuple[Operation, ...]:
        return product(
            tokens, of.columns, of.features, self._numbers(of), self.device.architecture,
            self.kernels.backend,
        )  # fmt: skip

    def _numbers(self, of: Product) -> str:
        """Return the quantization of a product."""
        if of.is_wide:
            return self.plain
        return (of.is_of_attention and self.kernels.attention) or self.kernels.weights

    def held(self, of: Experts) -> tuple[int, int]:
        """Return how many experts a device holds, and the columns of each."""
        degrees = self.degrees
        return (
            of.experts // degrees.ep,
            of.inner * degrees.of_attention * degrees.ep // degrees.tp,
        )

    def _experts(self, of: Experts, tokens: Quantity) -> tuple[Operation, ...]:
        kind = QUANTIZATIONS[self.kernels.experts]
        everyone = tokens * self.degrees.attention_dp
        held, inner = self.held(of)
        backend = self.kernels.backend
        kernel, how = "", How()
        if backend is not None:
            kernel = backend.experts(self.device, self.kernels.experts, held, inner)
        if kernel == "vllm_triton_fp8_block":
            how = how_of(self.kernels.version, self.degrees)
        loads = loads_of(of, everyone, held)
        if self.kernels.evens_experts:
            loads = ((held, everyone * of.chosen / of.experts),)
        fused = FusedExperts(
            everyone, of.chosen, of.hidden, inner, loads, kind.size, kind.weight_size, of.is_gated,
            kind.dtype, how.kernel or kernel,
        )  # fmt: skip
        return (fused, *padding(fused, held, how))

    def _mixed(
        self, mixer: Mixer, requests: Quantity, new: Quantity, keys: Quantity, *, is_step: bool
    ) -> tuple[Operation, ...]:
        """Return what a layer that takes positions together does for a group of requests."""
        if mixer.node.layer.serves_as == "select":
            return self._chosen(mixer, requests, new, keys, is_step)
        if not mixer.is_attention:
            return self._scanned(mixer, requests, new, is_step=is_step)
        heads = int(mixer.node.inputs[0][1])
        if is_step:  # of the keys that this device has
            keys = maximum(keys / self.degrees.cp, new) if self.degrees.cp > 1 else keys
        if mixer.span:
            return self._plain(mixer, requests, new, mixer.span, is_step)
        keys = maximum(keys - self.program.encoded, new)
        written = HALF * requests * new * mixer.cached
        stored = Stream(
            Kind.COPY, (written,), (self.kernels.cache * requests * new * mixer.cached,),
            label="cache",
        )  # fmt: skip
        if mixer.chosen and mixer.latent is not None:
            return (stored, *self._best(mixer, heads, requests, new, keys, is_step))
        if mixer.latent is not None:
            latent = self._absorbed if is_step else self._made
            return (stored, *latent(mixer, heads, requests, new, keys))
        return (stored, *self._plain(mixer, requests, new, keys, is_step))

    def _plain(
        self, mixer: Mixer, requests: Quantity, new: Quantity, keys: Quantity, is_step: bool
    ) -> tuple[Operation, ...]:
        """Return attention to keys and values as they are."""
        query, *others = mixer.node.inputs
        inputs = (
            (requests, *query[1:-2], new, query[-1]),
            *((requests, *shape[1:-2], keys, shape[-1]) for shape in others[:2]),
        )
        layer = mixer.node.layer
        sharing = int(query[1]) // int(others[0][1])
        return tuple(
            self._by_kernel(each, is_step, sharing)
            for each in layer.operations(Pass.FORWARD, inputs, HALF)
        )

    @property
    def _is_narrow(self) -> bool:
        return self.kernels.cache < HALF

    def _by_kernel(self, operation: Operation, is_step: bool, sharing: int) -> Operation:
        """Return attention by the kernel of the program that serves."""
        if not isinstance(operation, Attention):
            return operation
        backend = self.kernels.backend
        kernel = ""
        if backend is not None:
            kernel = backend.attention(
                self.device.architecture, is_step=is_step, is_narrow=self._is_narrow,
                sharing=sharing,
            )  # fmt: skip
        found = replace(operation, kernel=kernel)
        return self._narrowed(found) if self._is_narrow else found

    def _narrowed(self, operation: Attention) -> Attention:
        """Return attention to a cache of one byte: some kernels multiply what was quantized."""
        if operation.kernel.startswith(("trtllm_gen", "trtllm_fmha")):
            return replace(operation, element_size=1, dtype="fp8")
        return replace(operation, kv_size=1)

    def _absorbed(
        self, mixer: Mixer, heads: int, requests: Quantity, new: Quantity, keys: Quantity
    ) -> tuple[Operation, ...]:
        """Return attention to latents, with products of each head before and behind."""
        latent = mixer.latent
        assert latent is not None
        tokens, width = requests * new, latent.rank + latent.shared
        attention = Attention(
            Pass.FORWARD, requests * heads, heads, new, keys, width, latent.rank, HALF,
            causal=True, values_in_keys=True, kernel=self._latent_kernel(is_step=True),
        )  # fmt: skip
        if self._is_narrow:
            attention = self._narrowed(attention)
        return (
            BatchMatMul("absorbed", heads, tokens, latent.rank, latent.plain, HALF),
            attention,
            BatchMatMul("values", heads, tokens, latent.values, latent.rank, HALF),
        )

    def _chosen(
        self, mixer: Mixer, requests: Quantity, new: Quantity, keys: Quantity, is_step: bool
    ) -> tuple[Operation, ...]:
        """Return the choice of keys: scores of the indexer, and the best of them."""
        owner = self.kernels.backend.name if self.kernels.backend else "sglang"
        queries = mixer.node.inputs[0]
        tokens, where_kept = requests * new, "paged" if is_step else "blocks"
        seen = keys if is_step else keys - (new - 1) / 2  # by a query of a prompt on average
        return (
            IndexScores(
                requests, tokens, seen, int(queries[1]), int(queries[-1]),
                f"dsa_{where_kept}_{owner}",
            ),
            Select(tokens, seen, mixer.chosen, f"dsa_topk_{owner}"),
        )  # fmt: skip

    def _best(
        self, mixer: Mixer, heads: int, requests: Quantity, new: Quantity, keys: Quantity,
        is_step: bool,
    ) -> tuple[Operation, ...]:  # fmt: skip
        """Return attention to those latents that were chosen, in prompts as in steps."""
        latent, backend = mixer.latent, self.kernels.backend
        assert latent is not None
        tokens, width = requests * new, latent.rank + latent.shared
        kernel = backend.best(self.device.architecture, is_step=is_step) if backend else ""
        return (
            BatchMatMul("absorbed", heads, tokens, latent.rank, latent.plain, HALF),
            SelectedAttention(
                tokens, max(heads, _TILE), minimum(keys, mixer.chosen), requests * keys, width,
                latent.rank, kernel or "dsa_vllm", 1 if self._is_narrow else HALF,
            ),
            BatchMatMul("values", heads, tokens, latent.values, latent.rank, HALF),
        )  # fmt: skip

    def _made(
        self, mixer: Mixer, heads: int, requests: Quantity, new: Quantity, keys: Quantity
    ) -> tuple[Operation, ...]:
        """Return attention to keys and values that are made of all latents."""
        latent = mixer.latent
        assert latent is not None
        rows = requests * keys
        moved = HALF * rows * heads
        width = latent.plain + latent.shared
        made = product(
            rows, latent.made, latent.rank, self.kernels.attention or self.kernels.weights,
            self.device.architecture, self.kernels.backend,
        )  # fmt: skip
        attention = Attention(
            Pass.FORWARD, requests * heads, 1, new, keys, width, latent.values, HALF, causal=True,
            kernel=self._latent_kernel(is_step=False),
        )  # fmt: skip
        copied = Stream(Kind.COPY, (moved * latent.plain,), (moved * width,), label="keys")
        return (*made, copied, attention)

    def _latent_kernel(self, *, is_step: bool) -> str:
        backend = self.kernels.backend
        return backend.latent(self.device.architecture, is_step=is_step) if backend else ""

    def _scanned(
        self, mixer: Mixer, requests: Quantity, new: Quantity, *, is_step: bool
    ) -> tuple[Operation, ...]:
        """Return a scan of so many positions, from states that are kept and to them."""
        node = mixer.node
        layer, first = node.layer, node.inputs[0]
        suffix = "_step" * is_step
        if layer.is_convolution:
            taps = int(layer.filters(node.inputs)[-1])
            kernel = f"conv_triton{suffix}"
            return (ShortConvolution(requests, new, int(first[-1]), taps, kernel, is_step),)
        if "resumes" in layer.keys:
            values, decays = node.inputs[2], node.inputs[3]
            rule = DeltaRule(
                requests, new, int(first[2]), int(values[2]), int(first[3]), int(values[3]),
                "fla_step" if is_step else "fla_delta", by_feature=len(decays) > 3,
            )  # fmt: skip
            return (rule,)
        found = layer.operations(Pass.FORWARD, mixer.shapes(requests, new), HALF)
        kept = requests * layer.state(node.inputs)
        states = Stream(Kind.COPY, (kept,), (kept,), label="states that are kept")
        return (*found, states)

    # Messages.

    @functools.cached_property
    def _group(self) -> Group:
        """Devices that share a request's attention."""
        assert self.cluster is not None
        return self.cluster.group(self.degrees.of_attention, 1)

    @functools.cached_property
    def _all(self) -> Group:
        """Devices that share the experts."""
        assert self.cluster is not None
        return self.cluster.group(self.degrees.tp, 1)

    @functools.cached_property
    def _neighbours(self) -> Group:
        assert self.cluster is not None
        return self.cluster.group(2, self.degrees.tp * self.degrees.cp)

    def _message(self, message: Message, tokens: Quantity) -> Quantity:
        """Return the seconds of a message of so many tokens."""
        degrees, num_bytes = self.degrees, message.num_bytes * tokens
        if message.is_of_experts and degrees.attention_dp > 1:
            return 0.0 * tokens  # moved by `_tokens_to_experts`
        operation = Collecting(message.operation)
        group = self._all if message.is_of_experts else self._group
        seconds = self._sending(group, num_bytes, operation)
        if operation is Collecting.ALL_REDUCE:
            seconds = seconds + _DRIFT * above(int(group.workers))
        return seconds

    def _tokens_to_experts(self, of: Experts, tokens: Quantity) -> Quantity:
        """Return the seconds in which tokens reach the experts of a layer, and sums come back.

        All devices gather all tokens and scatter sums; or each sends a token to those that hold
        its experts alone, at most as many as there are, and they send back what each has made; or
        where they are many, to their hosts.
        """
        everyone = self.degrees.attention_dp * tokens
        kind = QUANTIZATIONS[self.kernels.experts]
        # Tokens go as experts read them; where that is as weights alone are, in two bytes.
        out, back = kind.size * of.hidden * everyone, HALF * of.hidden * everyone
        if self.kernels.exchange in (ALL_TO_ALL, ONCE_A_HOST):
            holders: Quantity = self.degrees.ep
            if self.kernels.exchange == ONCE_A_HOST:
                hosts = ceil_div(holders, self._all.levels[0].members)
                holders = where(tokens > _MANY_TOKENS, hosts, holders)
            reached = holders * (1 - (1 - 1 / holders) ** of.chosen) / self.degrees.tp
            return self._sending(self._all, reached * out, Collecting.ALL_TO_ALL) + self._sending(
                self._all, reached * back, Collecting.ALL_TO_ALL
            )
        return self._sending(self._all, out, Collecting.ALL_GATHER) + self._sending(
            self._all, back, Collecting.REDUCE_SCATTER
        )

    def _sending(self, group: Group, num_bytes: Quantity, operation: Collecting) -> Quantity:
        scheme = self.kernels.reduces if operation is Collecting.ALL_REDUCE else "auto"
        collective: Collective = COLLECTIVES[scheme]

        def seconds(size: Any) -> Quantity:
            return exchange_time(size, group, collective, self.cost_model, operation)

        return _each(seconds, num_bytes) if is_array(num_bytes) else seconds(num_bytes)


def _each(seconds: Callable[[Any], Quantity], sizes: Any) -> Quantity:
    """Return the seconds of each of an array of sizes, equal ones once."""
    distinct, places = np.unique(sizes, return_inverse=True)
    found: Any = np.array([seconds(size) for size in distinct.tolist()])
    return found[places].reshape(sizes.shape)  # type: ignore[no-any-return]


def total_of(parts: Iterable[Parts]) -> Parts:
    """Return the parts of several together."""
    return functools.reduce(lambda first, second: first + second, parts, Parts({}))


__all__ = [
    "ALL_GATHER",
    "BACKENDS",
    "EXCHANGE",
    "EXPERTS",
    "Degrees",
    "Kernels",
    "Parts",
    "StepPrices",
    "loads_of",
]
