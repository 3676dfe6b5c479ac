"""Edits of nets: what if a layer had more filters, a pooling went, the images were larger.

An edit changes keys of layers, removes layers or scales the inputs. What followed from the
old shapes then follows from the new ones (`Layer.following`): the channels that a filter
takes, a pooling over the whole image, the classes of a softmax. What does not fit any more
is an error that names the layer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from paleo.core.checks import MAX_SIZE, is_number, number, python_int, shown
from paleo.core.errors import Mistakes, NetSpecError, SettingError, near
from paleo.core.frozen import dataclass
from paleo.core.tensor import Shape
from paleo.net.graph import infer_nodes
from paleo.net.importers import ImportOptions
from paleo.net.layer_settings import EditError, LayerSetting, edited, parsed_setting
from paleo.net.layers import ShapeError
from paleo.net.load import NetLike, load
from paleo.net.spec import LayerSpec, NetSpec

#: The most nets that one series may have.
MAX_SERIES = 1000


@dataclass(frozen=True)
class Edits:
    """Edits of a net, applied together.

    `set` has entries "LAYER.KEY=VALUE" or, for one or several entries of a list,
    "LAYER.KEY[INDEX]=VALUE" and "LAYER.KEY[FROM:TO]=VALUE"; values are written as in a net
    file, names with or without quotes. A layer's name may be a pattern ("fire*/squeeze1x1").
    Where the net is what a generator makes without arguments, LAYER.KEY may be
    GENERATOR.METAPARAMETER ("squeezenet.sr"). `remove` has names or patterns of layers or
    blocks: what read them then reads what they read. `scale_input` multiplies the dimensions
    of inputs between batch and channels, rounded to whole numbers.
    """

    set: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    scale_input: float | None = None

    def __bool__(self) -> bool:
        return bool(self.set or self.remove or self.scale_input is not None)

    def __str__(self) -> str:
        words = [*self.set, *(f"without {name}" for name in self.remove)]
        if self.scale_input is not None:
            words.append(f"input x{self.scale_input}".removesuffix(".0"))
        return ", ".join(words)

    def apply(self, net: NetSpec) -> NetSpec:
        """Return the edited net, whose name says how.

        Raises NetSpecError with every edit that is wrong or, if none is, every layer that no
        longer fits; SettingError for metaparameters out of range.
        """
        if not self:
            return net
        mistakes = Mistakes(net.of_numbers().file or net.name)
        settings = [found for text in self.set if (found := parsed_setting(text, mistakes))]
        scale = _checked_scale(self.scale_input, mistakes)
        layers = {spec.name for spec in net.layers}
        of_generator = [s for s in settings if s.layer not in layers and s.metaparameters]
        made = _made_again(net, of_generator, mistakes)
        settings = [setting for setting in settings if setting not in of_generator]
        changed = Editor(made, mistakes).edit(settings, self.remove, scale)
        source = f"edited: {net.source}" if net.source else ""
        return replace(changed, name=f"{net.name} {self}", source=source)


def edit(
    net: NetLike,
    *,
    set: str | Sequence[str] = (),  # noqa: A002 (the option's name)
    remove: str | Sequence[str] = (),
    scale_input: float | None = None,
    importing: ImportOptions | None = None,
) -> NetSpec:
    """Return a net with edits, as `Edits` describes them; `importing` is as in `load`.

    Raises NetSpecError, SettingError or UnknownNameError.

    >>> net = paleo.edit("alex_v2", set="fc8.filter[3]=10", remove="dropout*")
    >>> [layer.name for layer in net.layers][-4:]
    ['fc6', 'fc7', 'fc8', 'softmax']
    >>> paleo.summarize(net).layers[-1].output
    (128, 10)
    """
    edits = Edits(_texts("set", set), _texts("remove", remove), scale_input)
    return edits.apply(load(net, importing))


def series(
    net: NetLike, vary: str | Sequence[str], *, importing: ImportOptions | None = None
) -> tuple[NetSpec, ...]:
    """Return a net in the variations that `variations` makes of `vary`.

    Raises NetSpecError, SettingError or UnknownNameError.
    """
    spec = load(net, importing)
    mistakes = Mistakes()
    nets = mistakes.check_all(lambda edits: edits.apply(spec), variations(_texts("vary", vary)))
    mistakes.raise_as(NetSpecError)
    return tuple(nets)


def _texts(name: str, values: Any) -> tuple[str, ...]:
    """Return one text, or several, as a tuple; raises SettingError for anything else."""
    found = (values,) if isinstance(values, str) else values
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise SettingError(f"{name}: expected a text, or several, got {shown(values)}")
    return tuple(found)


def variations(vary: Sequence[str], base: Edits | None = None) -> list[Edits]:
    """Return `base` with every combination of the values that `vary` gives, the last quickest.

    Each of `vary` is "LAYER.KEY[INDEX]=VALUE,VALUE,...", an entry of `Edits.set` with several
    values, or "scale_input=FACTOR,...". Raises SettingError for what is neither, or too many.
    """
    base = base or Edits()
    mistakes = Mistakes()
    choices: list[list[tuple[str, Any]]] = []
    for text in vary:
        target, equals, values = text.partition("=")
        target = target.strip()
        entries = split_values(values)
        if not equals or not target or not all(entries):
            mistakes.add(
                f'vary: expected "LAYER.KEY[INDEX]=VALUE,VALUE,..." or "scale_input=FACTOR,...", '
                f"got {shown(text)}"
            )
        elif target in ("scale_input", "scale-input"):
            choices.append([("scale_input", number(entry)) for entry in entries])
        else:
            choices.append([("set", f"{target}={entry}") for entry in entries])
    if base.scale_input is not None and any(each[0][0] == "scale_input" for each in choices):
        mistakes.add("scale_input: give it or vary it, not both")
    count = math.prod(map(len, choices))
    if count > MAX_SERIES:
        mistakes.add(f"vary: {count} nets are more than {MAX_SERIES}")
    mistakes.raise_as(SettingError)

    def combined(choice: tuple[tuple[str, Any], ...]) -> Edits:
        scale = next((value for kind, value in choice if kind != "set"), base.scale_input)
        chosen = tuple(value for kind, value in choice if kind == "set")
        return Edits(base.set + chosen, base.remove, scale)

    return [combined(choice) for choice in itertools.product(*choices)]


def split_values(text: str) -> list[str]:
    """Return the entries of a list separated by commas, those within brackets kept together."""
    entries, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth <= 0:
            entries.append("")
        else:
            entries[-1] += character
    return [entry.strip() for entry in entries]


def _checked_scale(scale: Any, mistakes: Mistakes) -> float | None:
    """Return a factor for the inputs; notes what is no number above 0."""
    factor: float | None = python_int(scale)
    if factor is None or (is_number(factor) and 0 < factor <= MAX_SIZE):
        return factor
    mistakes.add(f"scale_input: expected a number above 0, up to {MAX_SIZE}, got {shown(scale)}")
    return None


def _made_again(net: NetSpec, settings: Sequence[LayerSetting], mistakes: Mistakes) -> NetSpec:
    """Return the net made by its generator with other metaparameters; notes what is wrong.

    It has to be what the generator makes without any: a net does not tell its metaparameters.
    """
    chosen: dict[str, Any] = {}
    for setting in settings:
        known = setting.metaparameters or {}
        if setting.key not in known or setting.places:
            guess = near(setting.key, known) or f"; there are: {', '.join(known)}"
            mistakes.add(f"{setting.text}: no such metaparameter{guess}")
        chosen[setting.key] = setting.value
    generators = {setting.layer for setting in settings}
    if not generators or mistakes:
        return net
    from paleo.net.generators import GENERATORS

    name = generators.pop()
    batch = next(spec.layer.infer_shape(())[0] for spec in net.layers if spec.layer.is_input)
    if GENERATORS[name](batch_size=batch).layers != net.layers:
        mistakes.add(f"{settings[0].text}: only what `paleo generate {name}` makes has these")
        return net
    return GENERATORS[name](**{"batch_size": batch, "name": net.name, **chosen})


class Editor:
    """Edits one net, noting every mistake."""

    def __init__(self, net: NetSpec, mistakes: Mistakes) -> None:
        self.net = net
        self.mistakes = mistakes
        self.specs = {spec.name: spec for spec in net.layers}
        self.old = infer_nodes(net, Mistakes())

    def edit(
        self, settings: Sequence[LayerSetting], removed: Sequence[str], scale: float | None
    ) -> NetSpec:
        """Return the edited net; raises NetSpecError."""
        chosen: dict[str, list[LayerSetting]] = {}
        for setting in settings:
            for name in self.matching(setting.layer, key=setting.key):
                chosen.setdefault(name, []).append(setting)
        gone = {name for pattern in removed for name in self.matching(pattern)}
        for setting in settings:
            if setting.layer in gone:
                self.mistakes.add("it is removed, and so cannot be changed", setting.layer)
        if scale is not None:
            self._check_inputs()
        left = dict(self._rewired(gone))
        self.mistakes.raise_as(NetSpecError)

        shapes: dict[str, Shape] = {}
        for node in self.old:
            if node.name in left and all(name in shapes for name in left[node.name].parents):
                inputs = tuple(shapes[parent] for parent in left[node.name].parents)
                try:
                    layer = edited(node, inputs, chosen.get(node.name, ()), scale)
                    shapes[node.name] = layer.infer_shape(inputs)
                except ShapeError as error:
                    self.mistakes.add(f"no longer fits: {error}", node.name, error.key)
                    continue
                except EditError as error:
                    self.mistakes.add(str(error), node.name, error.key)
                    continue
                left[node.name] = replace(left[node.name], layer=layer)
        self.mistakes.raise_as(NetSpecError)
        net = replace(self.net, layers=tuple(left.values()))
        self._check_shares(net)
        if not any(spec.layer.is_input for spec in net.layers):
            self.mistakes.add("no Input is left", key="layers")
        else:
            infer_nodes(net, self.mistakes)
        self.mistakes.raise_as(NetSpecError)
        return net

    def _check_shares(self, net: NetSpec) -> None:
        """Note layers that had as many parameters as the one they share with, and no longer do."""
        old, new = (
            {node.name: node.layer.num_params(node.inputs) for node in nodes}
            for nodes in (self.old, infer_nodes(net, Mistakes()))
        )
        for name, owner in ((spec.name, spec.shares) for spec in net.layers):
            if owner and old[name] == old[owner] and new.get(name) != new.get(owner):
                self.mistakes.add(
                    f'no longer fits: it shares the parameters of "{owner}"; edit both', name
                )

    def matching(self, pattern: str, key: str | None = None) -> list[str]:
        """Return the layers that a name or pattern means.

        Of a pattern, only those that have a key; where none is asked for, blocks have names too.
        """
        if pattern in self.specs:
            names = [pattern]
        else:
            wanted = (pattern,) if key else (pattern, f"{pattern.rstrip('/')}/*")
            names = [
                name
                for name, spec in self.specs.items()
                if any(fnmatchcase(name, each) or spec.origin == each for each in wanted)
                and (key is None or key in spec.layer.keys)
            ]
        split = {self.specs[name].origin for name in names if self.specs[name].shard is not None}
        for origin in sorted(split):
            self.mistakes.add("split over devices: only its file can change it", origin)
        if not names:
            self.mistakes.add(self._missing(pattern, key), pattern)
        return [] if split else names

    def _missing(self, pattern: str, key: str | None) -> str:
        """Return what is said of a name or pattern that means no layer."""
        origins = dict.fromkeys(spec.origin for spec in self.net.layers)
        if any(name.startswith(f"{pattern}/") for name in origins):
            return "it is a block: name one of its layers"
        if any(fnmatchcase(name, pattern) for name in origins):
            return f"none of these layers has a key {shown(key)}"
        inside = [name for name in origins if name.endswith(f"/{pattern}")]
        guess = f" (did you mean {inside[0]!r}?)" if inside else near(pattern, origins)
        return f"there is no such layer{guess}"

    def _check_inputs(self) -> None:
        """Note inputs that have nothing between batch and channels."""
        inputs = [node for node in self.old if node.layer.is_input]
        if all(len(node.output) < 3 for node in inputs):
            self.mistakes.add("scale_input: it has no height and width", inputs[0].name)

    def _rewired(self, gone: set[str]) -> Iterator[tuple[str, LayerSpec]]:
        """Yield the layers that stay, in the file's order, reading what the others had read."""
        behind: dict[str, dict[str, None]] = {}  # what is read in the place of a removed layer
        for node in self.old:
            if node.name in gone:
                behind[node.name] = {
                    name: None
                    for parent in self.specs[node.name].parents
                    for name in (behind[parent] if parent in gone else (parent,))
                }
        for spec in self.net.layers:
            if spec.name in gone:
                continue
            if spec.shares in gone:
                self.mistakes.add(
                    f'cannot be removed: "{spec.name}" shares its parameters', spec.shares
                )
            parents = []
            for parent in spec.parents:
                instead = list(behind.get(parent, (parent,)))
                parents += instead[:1]
                if len(instead) != 1:
                    reads = " or ".join(f'"{name}"' for name in instead) or "nothing"
                    self.mistakes.add(
                        f'cannot be removed: "{spec.name}" would have to read {reads}', parent
                    )
            yield spec.name, replace(spec, parents=tuple(parents))
