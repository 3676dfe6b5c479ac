"""A space of nets: a net with choices, each of which has options, which are edits."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from paleo.core.frozen import dataclass
from paleo.net.edit import Edits
from paleo.net.generators import GENERATORS
from paleo.net.layer_settings import LayerSetting, parsed_setting
from paleo.net.spec import NetSpec


@dataclass(frozen=True)
class Option:
    """One of several edits of a net: settings as those of `Edits.set`, and layers left out.

    `label` is what it is called in a table.
    """

    label: str
    set: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    @functools.cached_property
    def settings(self) -> tuple[LayerSetting, ...]:
        """What its settings say; those that say nothing are left out."""
        from paleo.core.errors import Mistakes

        found = (parsed_setting(text, Mistakes()) for text in self.set)
        return tuple(each for each in found if each)


@dataclass(frozen=True)
class Choice:
    """What may be chosen at a place of a net."""

    name: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Space:
    """All nets that `net` becomes by one option of each of the `choices`.

    A choice of a layer that another leaves out says nothing; such nets are counted, too.
    """

    name: str
    net: NetSpec
    choices: tuple[Choice, ...]
    about: str = ""
    source: str = ""

    @property
    def count(self) -> int:
        """How many combinations of options there are."""
        return math.prod(len(choice.options) for choice in self.choices)

    @functools.cached_property
    def generated(self) -> tuple[str, ...]:
        """The generators whose metaparameters are chosen."""
        layers = {spec.name for spec in self.net.layers}
        named = (
            setting.layer
            for choice in self.choices
            for option in choice.options
            for setting in option.settings
            if setting.layer not in layers and setting.layer in GENERATORS
        )
        return tuple(dict.fromkeys(named))

    def options(self, places: Sequence[int]) -> list[Option]:
        """Return the options at these places, one of each choice."""
        return [choice.options[place] for choice, place in zip(self.choices, places, strict=True)]

    def labels(self, places: Sequence[int]) -> dict[str, str]:
        """Return what is chosen, by the names of the choices."""
        options = self.options(places)
        return {choice.name: one.label for choice, one in zip(self.choices, options, strict=True)}

    def edits(self, places: Sequence[int]) -> Edits:
        """Return the edits that these options are together."""
        options = self.options(places)
        removed = dict.fromkeys(name for option in options for name in option.remove)
        chosen = (
            setting.text
            for option in options
            for setting in option.settings
            if setting.layer not in removed
        )
        return Edits(tuple(chosen), tuple(removed))

    def net_of(self, places: Sequence[int]) -> NetSpec:
        """Return the net of these options; raises a PaleoError if they do not fit."""
        made = self._made(places) if self.generated else None
        edited = made or self.edits(places).apply(self.net)
        labels = ", ".join(f"{name}={label}" for name, label in self.labels(places).items())
        source = f"of the space {self.name}: {labels}"
        return replace(edited, name=f"{self.net.name}_{self.name}", source=source)

    @functools.cached_property
    def _maker(self) -> Callable[..., NetSpec] | None:
        """What makes every net of it, None where that is more than one generator."""
        options = [option for choice in self.choices for option in choice.options]
        layers = {setting.layer for option in options for setting in option.settings}
        if layers != set(self.generated[:1]) or any(option.remove for option in options):
            return None
        batch = next(each.layer.infer_shape(())[0] for each in self.net.layers)
        maker = functools.partial(GENERATORS[self.generated[0]], batch_size=batch)
        return maker if maker().layers == self.net.layers else None

    def _made(self, places: Sequence[int]) -> NetSpec | None:
        """Return the net that a generator makes of metaparameters alone; None if none does."""
        chosen = [setting for option in self.options(places) for setting in option.settings]
        is_plain = all(s.metaparameters and s.key in s.metaparameters for s in chosen)
        if self._maker is None or not is_plain or any(setting.places for setting in chosen):
            return None  # what is wrong, an edit says
        return self._maker(**{setting.key: setting.value for setting in chosen})

    def places_at(self, number: int) -> tuple[int, ...]:
        """Return the places of a combination by its number, the last choice quickest."""
        found = []
        for choice in reversed(self.choices):
            number, place = divmod(number, len(choice.options))
            found.append(place)
        return tuple(reversed(found))

    def sampled(self, count: int, seed: int) -> Iterator[tuple[int, ...]]:
        """Yield the places of so many different combinations, at random; all if there are fewer."""
        if count >= self.count:
            yield from map(self.places_at, range(self.count))
            return
        generator, seen = random.Random(seed), set[int]()  # noqa: S311 (no secret)
        while len(seen) < count:
            number = generator.randrange(self.count)
            if number not in seen:
                seen.add(number)
                yield self.places_at(number)
