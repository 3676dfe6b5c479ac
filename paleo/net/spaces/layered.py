"""A space of nets by its layers: every net is a way through states.

What a layer computes depends on the layer and on what it reads: not on how that came about. So
before each layer of the net there are but few states, of which each is: the shapes of the tensors
that are still to be read, whether somebody needs their gradients, how many gradients of each are to
be summed up, and what was chosen that later layers ask for, too. A step from one state to the next
is what one layer does, a `Situation`. 5^16 nets are some hundreds of situations, and what
is a sum over layers is a sum along a way: the least is that of a shortest one (R. Bellman, Dynamic
Programming, 1957).

The sum of gradients of a tensor belongs to the layer that makes it, but who reads it comes later.
Where readers may be left out a state promises how many will want a gradient, and ways that do not
keep it end nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from paleo.core.errors import Mistakes, NetSpecError, SettingError
from paleo.core.frozen import NamedTuple, dataclass
from paleo.core.tensor import Shape, Shapes
from paleo.net.edit import Editor
from paleo.net.graph import Node, infer_nodes
from paleo.net.layer_settings import EditError, LayerSetting, edited
from paleo.net.layers import Layer, ShapeError
from paleo.net.limits import check_size
from paleo.net.spaces.space import Space

#: More states before a layer, or steps in all, are no less than the nets themselves.
MOST_STATES, MOST_STEPS = 20_000, 1_000_000


class NotAdditiveError(SettingError):
    """Why what is asked of a space is no sum over few states of its layers."""


class Situation(NamedTuple):
    """What a layer does in some nets: the node, gradients of which inputs, and sums of gradients.

    `sums` are how many gradients of its output are added to the first. `is_extra` tells whether it
    is no part of the net itself, but of its training.
    """

    node: Node
    needed: tuple[bool, ...]
    sums: int
    is_extra: bool = False


class _Tensor(NamedTuple):
    """What a later layer asks of a tensor.

    `trained`: whether somebody needs its gradient; `samples`: whether it comes into the net;
    `promised`: how many gradients of it there will be, None if no more than one can be; `given`:
    how many there are; `in_parts`: whether one of them is of parts.
    """

    shape: Shape
    trained: bool
    samples: bool
    promised: int | None
    given: int = 0
    in_parts: bool = False


#: Tensors; which of them is each layer's output that is still to be read; options, by choice.
_State = tuple[tuple[_Tensor, ...], tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
_START: _State = ((), (), ())


class Step(NamedTuple):
    """From one state to another.

    `situation` is None where the layer is left out; `chosen` are the choices made here, each with
    the place of its option.
    """

    before: int
    after: int
    situation: int | None
    chosen: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layered:
    """The steps at each layer, all situations, and how many nets fit.

    `states` are how many there are before each layer, and at the end; there is one at the start.
    """

    names: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]
    states: tuple[int, ...]
    situations: tuple[Situation, ...]
    valid: int

    def places(self, ways: Sequence[Step], choices: int) -> tuple[int, ...]:
        """Return the places of the options of a way, those that nobody asked for at 0."""
        found = [0] * choices
        for step in ways:
            for choice, option in step.chosen:
                found[choice] = option
        return tuple(found)


def layered(
    space: Space,
    batch: int | None = None,
    adapt: Callable[[Layer], Layer] | None = None,
    *,
    first_convolutions_skip: bool = False,
    extra: Collection[str] = (),
) -> Layered:
    """Return a space by its layers, at a batch size (None: the net's own).

    `adapt` may put another layer in the place of each; with `first_convolutions_skip` only
    convolutions of what comes in need no gradient of it. Layers of these `extra` names are of the
    training. Raises NotAdditiveError where there are
    too many states, or where layers share parameters that are chosen, NetSpecError for options that
    are wrong or of which none fits.
    """
    if space.generated:
        raise NotAdditiveError(
            f"space {space.name}: metaparameters of the generator {space.generated[0]} change all "
            "layers at once: it is not additive"
        )
    return _Walk(space, batch, adapt, first_convolutions_skip, extra).found()


class _Walk:
    """Goes from layer to layer, from the states before each to those behind."""

    def __init__(
        self,
        space: Space,
        batch: int | None,
        adapt: Callable[[Layer], Layer] | None,
        first_convolutions_skip: bool,
        extra: Collection[str],
    ) -> None:
        self.space, self.adapt, self.skip = space, adapt, first_convolutions_skip
        self.extra = extra
        self.mistakes = Mistakes(space.net.file or space.net.name)
        net = space.net if batch is None else space.net.with_batch(batch)
        self.nodes = infer_nodes(net, self.mistakes)
        self.mistakes.raise_as(NetSpecError)
        self.place = {node.name: node.index for node in self.nodes}
        self.shares = {spec.name: spec.shares for spec in net.layers if spec.shares}
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for parent in node.parents:
                self.readers[parent].append(node.index)
        #: By node and choice, what each option sets in it; and whether it leaves it out.
        self.set: list[dict[int, dict[int, list[LayerSetting]]]] = [{} for _ in self.nodes]
        self.left_out: list[dict[int, set[int]]] = [{} for _ in self.nodes]
        self._match(Editor(net, self.mistakes))
        self.mistakes.raise_as(NetSpecError)
        self.last = [-1] * len(space.choices)
        for index in range(len(self.nodes)):
            for choice in (*self.set[index], *self.left_out[index]):
                self.last[choice] = index
        self.potential = self._potential()
        self.known: dict[Any, tuple[Layer, Shape] | None] = {}
        self.situations: dict[Any, int] = {}
        self.every: list[Situation] = []
        #: What does not fit, for where nothing does.
        self.misfits: dict[str, ShapeError] = {}

    def _match(self, editor: Editor) -> None:
        """Find which layers options are about; a mistake is noted once."""
        for number, choice in enumerate(self.space.choices):
            for place, option in enumerate(choice.options):
                for setting in option.settings:
                    for name in editor.matching(setting.layer, key=setting.key):
                        self._check_setting(self.nodes[self.place[name]], setting)
                        own = self.set[self.place[name]].setdefault(number, {})
                        own.setdefault(place, []).append(setting)
                for pattern in option.remove:
                    for name in editor.matching(pattern):
                        self.left_out[self.place[name]].setdefault(number, set()).add(place)
        self.mistakes.say_once(0)

    def _check_setting(self, node: Node, setting: LayerSetting) -> None:
        """Note a setting that a layer does not take, whatever it reads."""
        try:
            edited(node, node.inputs, [setting])
        except ShapeError:  # it may fit other inputs
            pass
        except EditError as error:
            self.mistakes.add(str(error), node.name, error.key)

    def _potential(self) -> list[int]:
        """Return how many layers may read each one's output, behind such as may be left out."""
        found = [0] * len(self.nodes)
        for node in reversed(self.nodes):
            for reader in self.readers[node.index]:
                found[node.index] += max(1, found[reader] * bool(self.left_out[reader]))
        return found

    def _settled(self, node: Node, layer: Layer, *, trained: bool) -> int | None:
        """Return how many gradients of a layer's output there are; None if that is to be chosen."""
        readers = [self.nodes[reader] for reader in self.readers[node.index]]
        if any(self.left_out[reader.index] for reader in readers):
            return None
        count, in_parts = 0, False
        for reader in readers:
            own = reader.layer
            reads_samples = own.is_convolution and not own.is_transposed and layer.is_input
            wanted = not reads_samples if self.skip else trained
            if wanted and not (own.takes_part and in_parts):
                count += 1
                in_parts |= own.takes_part
        return count

    def found(self) -> Layered:
        """Return all layers."""
        states: dict[_State, int] = {_START: 0}
        ways = [1]
        steps, counts, total = [], [1], 0
        for node in self.nodes:
            after: dict[_State, int] = {}
            here: list[Step] = []
            many: list[int] = []
            for state, before in states.items():
                for reached, situation, chosen in self._steps(node, state):
                    place = after.setdefault(reached, len(after))
                    if place == len(many):
                        many.append(0)
                    many[place] += ways[before]
                    here.append(Step(before, place, situation, chosen))
                total_steps = total + len(here)
                if len(after) > MOST_STATES or total_steps > MOST_STEPS:
                    raise NotAdditiveError(
                        f'space {self.space.name}: before layer "{node.name}" there are more than '
                        f"{MOST_STATES:,} states to tell apart: it is not additive enough"
                    )
            total += len(here)
            self.mistakes.raise_as(NetSpecError)
            if not after:
                self._raise_misfits()
            states, ways = after, many
            steps.append(tuple(here))
            counts.append(len(after))
        free = self.space.count
        for number, last in enumerate(self.last):
            if last >= 0:
                free //= len(self.space.choices[number].options)
        return Layered(
            tuple(node.name for node in self.nodes),
            tuple(steps),
            tuple(counts),
            tuple(self.every),
            free * sum(ways),
        )

    def _raise_misfits(self) -> None:
        for name, error in self.misfits.items():
            self.mistakes.add(f"fits with no option: {error}", name, error.key)
        self.mistakes.raise_as(NetSpecError)
        raise NetSpecError(f"{self.space.net.name}: no net of the space {self.space.name} fits")

    def _steps(
        self, node: Node, state: _State
    ) -> Iterator[tuple[_State, int | None, tuple[tuple[int, int], ...]]]:
        """Yield what a node does from a state: the next state, the situation, what is chosen."""
        tensors, names, chosen = state
        of_name = dict(names)
        inputs = [of_name[parent] for parent in node.parents]
        known = dict(chosen)
        asked = dict.fromkeys((*self.set[node.index], *self.left_out[node.index]))
        new = [choice for choice in asked if choice not in known]
        for options in self._options(new):
            now = known | dict(options)
            kept = tuple((c, o) for c, o in sorted(now.items()) if self.last[c] > node.index)
            if any(now[choice] in out for choice, out in self.left_out[node.index].items()):
                distinct = set(inputs)
                if self.readers[node.index] and len(distinct) != 1:
                    said = (
                        "cannot be left out: what reads it would have to read several, or nothing"
                    )
                    self.mistakes.add(said, node.name)
                    continue
                place = inputs[0] if inputs else None
                for reached in self._behind(node, tensors, names, place, kept):
                    yield reached, None, options
                continue
            settings = [
                setting
                for choice, by_option in sorted(self.set[node.index].items())
                for setting in by_option.get(now[choice], ())
            ]
            fitted = self._fitted(node, tuple(tensors[i].shape for i in inputs), settings)
            if fitted is None:
                continue
            layer, output = fitted
            yield from (
                (reached, situation, options)
                for reached, situation in self._done(node, layer, output, state, inputs, kept)
            )

    def _options(self, choices: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
        """Yield every combination of options of these choices."""
        if not choices:
            yield ()
            return
        first, *others = choices
        for place in range(len(self.space.choices[first].options)):
            for rest in self._options(others):
                yield ((first, place), *rest)

    def _fitted(
        self, node: Node, shapes: Shapes, settings: Sequence[LayerSetting]
    ) -> tuple[Layer, Shape] | None:
        """Return a layer as it is with these settings and inputs, and its output; None if none."""
        key = (node.index, shapes, tuple(setting.text for setting in settings))
        if key not in self.known:
            self.known[key] = None
            try:
                layer = edited(node, shapes, settings)
                layer = self.adapt(layer) if self.adapt else layer
                output = layer.infer_shape(shapes)
                check_size(layer, shapes, output)
                self.known[key] = layer, output
            except ShapeError as error:
                self.misfits.setdefault(node.name, error)
            except EditError as error:  # of several settings of one key together
                self.mistakes.add(str(error), node.name, error.key)
        return self.known[key]

    def _done(
        self,
        node: Node,
        layer: Layer,
        output: Shape,
        state: _State,
        inputs: Sequence[int],
        kept: tuple[tuple[int, int], ...],
    ) -> Iterator[tuple[_State, int]]:
        """Yield the state behind a layer, and its situation, for each promise of readers."""
        tensors, names, _ = state
        shapes = tuple(tensors[i].shape for i in inputs)
        made = replace(node, layer=layer, inputs=shapes, output=output, parents=())
        self._check_shared(node, made)
        trained = tuple(tensors[i].trained for i in inputs)
        needed = trained
        if self.skip:
            reads_samples = (
                layer.is_convolution and not layer.is_transposed and tensors[inputs[0]].samples
            )
            needed = (not reads_samples,) * len(inputs)
        read = list(tensors)
        for i, wanted in zip(inputs, needed, strict=True):
            tensor = read[i]
            if wanted and not (layer.takes_part and tensor.in_parts):
                in_parts = tensor.in_parts or layer.takes_part
                read[i] = tensor._replace(given=tensor.given + 1, in_parts=in_parts)
        if any(t.promised is not None and t.given > t.promised for t in read):
            return
        most = self.potential[node.index]
        is_trained = any(trained) or made.is_trained or layer.wants_gradient
        settled = self._settled(node, layer, trained=is_trained)
        counts = range(most + 1) if settled is None and most > 1 else [settled or 0]
        for count in counts:
            promised = None if len(counts) == 1 else count
            one = _Tensor(output, is_trained, layer.is_input, promised)
            sums = max(0, count - 1)
            situation = self._situation(made, needed, sums)
            for reached in self._behind(node, (*read, one), names, len(read), kept):
                yield reached, situation

    def _behind(
        self,
        node: Node,
        tensors: tuple[_Tensor, ...],
        names: tuple[tuple[int, int], ...],
        place: int | None,
        kept: tuple[tuple[int, int], ...],
    ) -> Iterator[_State]:
        """Yield the state behind a node whose output is the tensor at a place, if it is one.

        Tensors that nobody reads any more go; none is yielded where one of them broke its promise.
        """
        alive = [(n, i) for n, i in names if self.readers[n][-1] > node.index]
        if place is not None and self.readers[node.index]:
            alive.append((node.index, place))
        order = list(dict.fromkeys(i for _, i in alive))
        dead = (tensor for i, tensor in enumerate(tensors) if i not in order)
        if any(t.promised is not None and t.given != t.promised for t in dead):
            return
        where = {i: new for new, i in enumerate(order)}
        renamed = tuple((n, where[i]) for n, i in alive)
        # A single reader's gradient is no sum: whether it is there makes no difference behind.
        left = (tensors[i] for i in order)
        plain = (t if t.promised is not None else t._replace(given=0, in_parts=False) for t in left)
        yield tuple(plain), renamed, kept

    def _situation(self, node: Node, needed: tuple[bool, ...], sums: int) -> int:
        """Return the number of a situation, which many states and some nodes share."""
        is_extra = node.name in self.extra
        key = (node.layer, node.inputs, node.dtype, node.shared_params, needed, sums, is_extra)
        if key not in self.situations:
            self.situations[key] = number = len(self.every)
            numbered = replace(node, index=number, like=number)
            self.every.append(Situation(numbered, needed, sums, is_extra))
        return self.situations[key]

    def _check_shared(self, node: Node, made: Node) -> None:
        """Raise NotAdditiveError where parameters that layers share are not always as many."""
        name = node.name
        if name not in self.shares and name not in self.shares.values():
            return
        if made.layer.num_params(made.inputs) != node.layer.num_params(node.inputs):
            raise NotAdditiveError(
                f'space {self.space.name}: layer "{name}" shares parameters, which are chosen: it '
                "is not additive"
            )
