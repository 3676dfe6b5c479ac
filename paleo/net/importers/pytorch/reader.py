"""Reads PyTorch modules: found by a target, exported by `torch.export`.

The first axis of the inputs is taken for the batch (the second, where a recurrent layer or
attention that has steps first says so). The module is traced with a prime number in the
batch's place, so that the batch can be told from other sizes. Where the samples cannot be kept
apart in that trace, one sample is traced alone; it stands for all if the work of a batch is that
of so many samples.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from paleo.core.errors import Mistakes, NetSpecError, near
from paleo.core.frozen import dataclass
from paleo.core.tensor import format_shape
from paleo.net.importers.base import (
    PRIMES,
    PYTHON,
    ImportOptions,
    OperatorError,
    first_of,
    missing_library,
    prime_batch,
)
from paleo.net.importers.builder.builder import Builder
from paleo.net.importers.pytorch import packages, targets
from paleo.net.importers.pytorch.running import first_line, guarded, place_of, quietly
from paleo.net.spec import NetSpec

Shape = tuple[int, ...]


def require_torch(target: str) -> None:
    """Raise NetSpecError where PyTorch is not installed."""
    try:
        available = importlib.util.find_spec("torch") is not None
    except ValueError:  # a module of that name without a spec: it has been put there by hand
        available = "torch" in sys.modules
    if not available:
        raise missing_library(target, "PyTorch", "torch")


def require_input(target: str, options: ImportOptions) -> None:
    """Raise NetSpecError where the inputs of a module are not said."""
    if not options.input:
        raise NetSpecError(
            f"{target}: say what it takes, one --input for each argument: --input 1x3x224x224"
        )


def read(target: str, options: ImportOptions) -> NetSpec:
    """Return the net of a PyTorch module that a target names; raises NetSpecError."""
    is_python = target.startswith(PYTHON)
    if is_python:
        targets.parts(target)
    require_torch(target)
    if is_python:
        require_input(target, options)
    # What a module prints is not the command's result.
    with quietly(), contextlib.redirect_stdout(sys.stderr):
        if is_python:
            with targets.import_path():
                return read_module(target, *targets.find(target), options)
        name, module, shapes = packages.find(target)
        given = options.input or tuple((None, shape) for shape in shapes)
        return read_module(target, name, module, replace(options, input=given))


def read_module(target: str, name: str, module: Any, options: ImportOptions) -> NetSpec:
    """Return the net of a module that is there, called `name`; messages call it `target`.

    Raises NetSpecError.
    """
    with quietly(), contextlib.redirect_stdout(sys.stderr):
        return Reader(target, name, module, options).read()


# ---- The module --------------------------------------------------------------------------------


#: How far the work of a batch may be from that of its samples, for what is done once for all.
_EQUAL_WORK = 0.005


@dataclass(frozen=True)
class Traced:
    """A program, its parameters' names, and where which batch is in its inputs."""

    program: Any
    identities: Mapping[str, str]
    batch: int
    axis: int
    is_alone: bool = False
    #: How many are taken where data decide, if they do.
    bounds: Any = None


def _alone_note(mistakes: Mistakes) -> str:
    """Return what a net says whose samples could not be kept apart in a batch."""
    first = mistakes.found[0]
    where = f', for layer "{first.layer}"' if first.layer else ""
    return f"each sample is read by itself{where}: {first.message}"


class Reader:
    """Reads a module: finds its inputs, exports it and says what its operators are."""

    def __init__(self, target: str, name: str, module: Any, options: ImportOptions) -> None:
        self.target = target
        self.name = name
        self.module = module
        self.options = options
        self.shapes = [shape for _, shape in options.input]
        #: The argument that each input is passed as, None where its place says which it is.
        self.names: list[str | None] = []
        #: What each input is called in the net.
        self.labels: list[str] = []
        #: What is to be said of the module itself.
        self.said = ""
        #: Which of the module's parts are quantized.
        self.quantized: frozenset[str] = frozenset()
        self._assign_inputs()

    def _fail(self, message: str) -> NetSpecError:
        return NetSpecError(f"{self.target}: {message}")

    def _assign_inputs(self) -> None:
        """Find the argument of the module's forward that each input is."""
        given = [name for name, _ in self.options.input]
        forward = guarded(
            self.target, "its forward", lambda: inspect.signature(self.module.forward)
        )
        takes = list(forward.parameters.values())
        positional = [p for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        known = [p.name for p in takes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in takes)
        any_name = any(p.kind is p.VAR_KEYWORD for p in takes)
        for i, name in enumerate(given):
            if name is not None and name not in known and not any_name:
                raise self._fail(
                    f"its forward has no argument {name!r}{near(name, known)}; it takes "
                    f"{', '.join(known) or 'none'}"
                )
            if name is not None and name in given[:i]:
                raise self._fail(f"two inputs for its argument {name!r}")
        free = [p for p in positional if p.name not in given]
        unnamed = given.count(None)
        if unnamed > len(free) and not open_ended:
            taken = ", ".join(p.name for p in positional) or "nothing"
            raise self._fail(f"its forward takes {taken}; --input is given {len(given)} times")
        needed = [*positional, *(p for p in takes if p.kind is p.KEYWORD_ONLY)]
        needed_names = [p.name for p in needed if p.default is p.empty]
        passed = {*given, *(p.name for p in free[:unnamed])}
        if missing := [name for name in needed_names if name not in passed]:
            raise self._fail(
                f"its forward needs {', '.join(needed_names)}; no --input for {', '.join(missing)}"
            )
        places = iter(free)
        for i, (name, shape) in enumerate(self.options.input, 1):
            place = next(places, None) if name is None else None
            label = name or (place.name if place else f"data_{i}")
            by_name = unnamed < len(given) and place and place.kind is not place.POSITIONAL_ONLY
            self.names.append(label if name or by_name else None)
            is_plain = label in ("input", "data_1") and len(given) == 1
            self.labels.append("data" if is_plain else label)
            if any(size < 1 for size in shape):
                raise self._fail(f"the input {name or ''} has a size below 1".replace("  ", " "))

    # ---- Tracing -------------------------------------------------------------------------------

    def read(self) -> NetSpec:
        """Return the net: of a batch, or of one sample where a batch is not understood."""
        traced = self._export()
        mistakes = Mistakes(self.target)
        net = self._build(traced, mistakes)
        if net is not None:
            return net
        alone, note = self._alone(traced), _alone_note(mistakes)
        if alone is not None:
            of_one = Mistakes(self.target)
            net = self._build(alone, of_one, note)
            # What goes wrong with a batch and with one sample is not the batch's fault.
            mistakes.found = [m for m in mistakes.found if m in of_one.found] or of_one.found
        if net is None and self.options.unknown == "zero":
            mistakes = Mistakes(self.target)
            net = self._build(alone or traced, mistakes, note, zero=True)
        if net is None:
            mistakes.raise_as(NetSpecError)
        assert net is not None
        return net

    def _alone(self, traced: Traced) -> Traced | None:
        """Return the trace of one sample; None unless a batch is as much work as its samples."""
        from paleo.net.importers.pytorch.export import OpenEndedError, work_of

        if traced.batch == 1:  # the module takes no other: it is one sample as it is
            return None if traced.is_alone else replace(traced, is_alone=True)
        try:
            alone = self._one_sample(traced.axis)
            if alone.bounds is not None:  # its sizes are known for one sample only
                return alone
            products, elements = work_of(alone.program)
            of_all, elements_of_all = work_of(traced.program)
        except OpenEndedError as error:
            raise self._failure(error) from error
        except (Exception, SystemExit):  # noqa: BLE001  # the batch is what was asked for
            return None
        if abs(of_all - traced.batch * products) > _EQUAL_WORK * of_all:
            return None
        if elements_of_all > (1 + _EQUAL_WORK) * traced.batch * elements:
            return None
        return alone

    def _one_sample(self, axis: int) -> Traced:
        """Return the trace of one sample, in which what data decide on is bounded."""
        from paleo.net.importers.pytorch.bounded import Bounds

        bounds = Bounds(self.options.proposals)
        program, identities = self._run(1, axis, bounds.taken)
        while bounds.asked and bounds.narrow(program.graph):
            program, identities = self._run(1, axis, bounds.taken)
        held = bounds if bounds.asked else None
        return Traced(program, identities, 1, axis, is_alone=True, bounds=held)

    def _run(
        self, batch: int, axis: int, taken: Callable[[], Any] = contextlib.nullcontext
    ) -> tuple[Any, Mapping[str, str]]:
        """Return the program of the module on such a batch, and its parameters' names."""
        from paleo.net.importers.pytorch.export import export

        training = self.options.phase == "train"
        found: tuple[Any, Mapping[str, str]] = export(
            self.module, self.names, self._traced(batch, axis), training, taken
        )
        return found

    def _sizes(self) -> set[int]:
        """Return the sizes that a batch should not be mistaken for."""
        sizes = {size for shape in self.shapes for size in shape}
        for held in (*self.module.parameters(), *self.module.buffers()):
            if not type(held).__name__.startswith("Uninitialized"):
                sizes.update(held.shape)
        return sizes

    def _traced(self, batch: int, axis: int) -> list[Shape]:
        """Return the shapes of the inputs with another batch."""
        own = self._batch(axis)
        return [
            (*shape[:axis], batch, *shape[axis + 1 :])
            if len(shape) > axis and shape[axis] == own
            else shape
            for shape in self.shapes
        ]

    def _batch(self, axis: int) -> int:
        """Return the batch that the user gave."""
        return next((shape[axis] for shape in self.shapes if len(shape) > axis), 1)

    def _export(self) -> Traced:
        """Return the program of the module on a batch of a prime number, or of its own."""
        from paleo.net.importers.pytorch.export import OpenEndedError, materialized, take_lists
        from paleo.net.importers.pytorch.mixtures import join_turns
        from paleo.net.importers.pytorch.quantized import plain

        self.module, self.said, self.quantized = guarded(
            self.target, "its forward", lambda: plain(self.module)
        )
        self.module = guarded(
            self.target, "its forward", lambda: materialized(self.module, self.names, self.shapes)
        )
        prime = prime_batch(self._sizes()) or PRIMES[0]
        axis = 0
        tries = [(prime, 0), (self._batch(0), 0)]
        if any(take_lists(self.module, self.names)):
            tries = []  # the images of a list are looked at one by one
        while tries:
            batch, axis = tries.pop(0)
            try:
                program, identities = self._run(batch, axis)
            except OpenEndedError:
                mixture = self._as_mixture(batch, axis)
                if mixture is not None:
                    return mixture
                break
            except (Exception, SystemExit) as error:
                if tries:
                    continue
                raise self._failure(error) from error
            if not program.graph_signature.user_outputs:
                raise self._fail("it returns no tensor")
            matrices = all(len(shape) > 1 for shape in self.shapes)
            if matrices and axis == 0 and batch == prime and _steps_first(program.graph, batch):
                tries = [(prime, 1), (self._batch(1), 1)]
                continue
            join_turns(program, batch)
            return Traced(program, identities, batch, axis)
        try:
            return self._one_sample(axis)
        except (Exception, SystemExit) as error:
            raise self._failure(error) from error

    def _as_mixture(self, batch: int, axis: int) -> Traced | None:
        """Return the trace where all that the module asks of data is how many rows experts have."""
        from paleo.net.importers.pytorch.mixtures import evenly, join_turns

        try:
            program, identities = self._run(batch, axis, evenly)
        except (Exception, SystemExit):  # noqa: BLE001  # it asks for more
            return None
        joined = join_turns(program, batch)
        return Traced(program, identities, batch, axis) if joined else None

    def _failure(self, error: BaseException) -> NetSpecError:
        """Return what to say of an error in the module's forward."""
        from paleo.net.importers.pytorch.export import OpenEndedError

        if isinstance(error, SystemExit):
            return self._fail(f"its forward exits: SystemExit: {error.code}")
        where = place_of(error)
        if isinstance(error, OpenEndedError):
            first = first_line(error).partition(": ")[2]
            return self._fail(f"branches on data, which an export cannot follow{where}: {first}")
        shapes = ", ".join(format_shape(shape) for shape in self.shapes)
        said = first_line(error)
        # Detectors need what they are trained with, which nobody can give here.
        is_of_training = self.options.phase == "train" and "train" in said.lower()
        advice = "; --phase=test reads it as it is used after training" if is_of_training else ""
        return self._fail(f"its forward fails on {shapes}{where}: {said}{advice}")

    # ---- Building ------------------------------------------------------------------------------

    def _build(
        self, traced: Traced, mistakes: Mistakes, note: str = "", zero: bool = False
    ) -> NetSpec | None:
        """Return the net; None, with mistakes noted, if there are any."""
        from paleo.net.importers.pytorch.export import PREFIX
        from paleo.net.importers.pytorch.graph import ProgramTranslator
        from paleo.net.importers.pytorch.names import placeholders, shape_of
        from paleo.net.importers.pytorch.operators import is_value

        program, axis = traced.program, traced.axis
        builder = Builder(self.name, self.target, self._batch(axis))
        known = traced.batch if traced.batch in PRIMES else None
        translator = ProgramTranslator(builder, PREFIX, known, mistakes, zero)
        translator.quantized = self.quantized
        values = []
        shapes = iter(self._traced(traced.batch, axis))
        labels = iter(self.labels)
        nodes = {node.name: node for node in placeholders(program.graph)}
        for spec in program.graph_signature.input_specs:
            held = nodes[spec.arg.name].meta.get("val")
            if spec.kind.name == "USER_INPUT":
                values.append(self._input(builder, next(labels), next(shapes), traced))
            elif (key := self._parameter(program, spec)) and held.numel():
                key = traced.identities.get(key, key)
                # A frozen one counts as any other: a net-spec does not know frozen layers.
                values.append(builder.parameter(key.replace(".", "/"), tuple(held.shape)))
            else:
                values.append(translator.constant(shape_of(held)))
        outputs = translator.run(program.graph, values)
        if traced.bounds is not None:
            for text in traced.bounds.notes(program.graph, translator.names.of):
                builder.note(text)
        for operator, names in translator.unknown.items():
            mistakes.add(
                f"the operator {operator} is not understood (in {first_of(names, 3)}); "
                "--unknown=zero lets it cost nothing"
            )
        kept = [value for value in outputs if is_value(value) and not value.is_constant]
        if not mistakes and not kept:
            mistakes.add("nothing that it returns depends on its input")
        if mistakes:
            return None
        for text in (note if traced.is_alone else "", self.said):
            if text:
                builder.note(text)
        net = builder.finish(kept)
        counted, most = builder.num_params(net), self._num_params(program, traced.identities)
        if counted > most:
            mistakes.add(f"{counted:,} parameters would be counted of {most:,} that it reads")
            return None
        return net.with_batch(self._batch(axis)) if traced.is_alone else net

    def _parameter(self, program: Any, spec: Any) -> str:
        """Return the name of the parameter that an input of a program is, "" if it is none.

        Objects that are no modules may hold a module's parameters too, as Keras's variables do; the
        export finds nothing but a constant there.
        """
        from paleo.net.importers.pytorch.export import PREFIX

        if spec.kind.name == "PARAMETER":
            return str(spec.target.removeprefix(f"{PREFIX}."))
        found = getattr(program, "constants", {}).get(spec.target)
        if spec.kind.name != "CONSTANT_TENSOR" or found is None:
            return ""
        return self._places.get((found.untyped_storage()._cdata, found.shape), "")

    @functools.cached_property
    def _places(self) -> Mapping[tuple[int, Any], str]:
        """The names of the module's parameters, by where their numbers are and their shapes."""
        named = [*self.module.named_parameters()]
        return {(p.untyped_storage()._cdata, p.shape): name for name, p in reversed(named)}

    def _num_params(self, program: Any, identities: Mapping[str, str]) -> int:
        """Return how many parameters are read by anything, tied ones counted once."""
        from paleo.net.importers.pytorch.names import placeholders

        nodes = {node.name: node for node in placeholders(program.graph)}
        sizes = {}
        for spec in program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if node.users and (key := self._parameter(program, spec)):
                sizes[identities.get(key, key)] = prod(node.meta["val"].shape)
        return sum(sizes.values())

    def _input(self, builder: Any, label: str, shape: Shape, traced: Traced) -> Any:
        """Return an input; one without the batch is data that costs nothing to have."""
        axis = traced.axis
        has_batch = len(shape) > axis and shape[axis] == traced.batch
        try:
            if traced.is_alone and has_batch:
                return builder.sample(label, shape)
            return builder.input(label, shape, axis if has_batch else None)
        except OperatorError as fault:
            raise self._fail(f"input {label}: {fault}") from None


def _steps_first(graph: Any, batch: int) -> bool:
    """Say whether what was taken for the batch turns out to be the steps of sequences."""
    for node in _all_nodes(graph):
        name = getattr(getattr(node.target, "_schema", None), "name", "").partition("::")[2]
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        attends = stack and str(stack[-1][1]).endswith("MultiheadAttention")
        is_recurrent = name in ("lstm", "gru", "rnn_tanh", "rnn_relu") and not node.args[-1]
        if is_recurrent or (name == "linear" and attends):  # here both have the steps first
            shape = tuple(node.args[0].meta["val"].shape)
            if len(shape) == 3 and shape[0] == batch and shape[1] % batch:
                return True
    return False


def _all_nodes(graph: Any) -> Iterator[Any]:
    for node in graph.nodes:
        if node.op == "call_function":
            yield node
        elif node.op == "get_attr":
            inner: Any = getattr(graph.owning_module, node.target, None)
            if hasattr(inner, "graph"):
                yield from _all_nodes(inner.graph)
