"""Tables of choices, as files have them, and the spaces that they make of a net.

A file is TOML or JSON:

    about = "What the space is"
    net = "nin_227"                      # the net where none is named
    [choices]
    "conv8.filter[3]" = [192, 384, "none"]
    depth = [{set = ["conv5.filter[3]=96"]}, {remove = ["conv5", "conv6"], label = "short"}]

A choice is called after what `--set` would name, and has values of it, of which "none" leaves the
layer out; or it has any name, and its options are edits. `[convolutions]` first puts so many equal
convolutions in the place of the net's own: see paleo.net.spaces.stack.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paleo.core.checks import shown
from paleo.core.errors import Mistakes, SettingError, near
from paleo.core.files import names_in, read_bytes
from paleo.core.frozen import dataclass
from paleo.core.registry import unknown
from paleo.net.edit import split_values
from paleo.net.generators import GENERATORS
from paleo.net.layer_settings import parsed_setting
from paleo.net.load import load
from paleo.net.spaces.space import Choice, Option, Space
from paleo.net.spaces.stack import Stack, stack_of, with_stack
from paleo.net.spec import NetSpec

FOLDER = Path(__file__).parent
_KEYS = ("about", "source", "net", "generator", "convolutions", "choices")
#: The value that leaves a layer out.
NONE = "none"
#: No file is as large.
_MOST = 1 << 20
#: So many choices, and options of one, are more than anybody means.
_MOST_CHOICES, _MOST_OPTIONS = 1000, 1000


@dataclass(frozen=True)
class Design:
    """A table of choices for some net: `net` names the one that it is for unless another is given.

    With a `generator` that is the net that it makes without metaparameters.
    """

    name: str
    choices: tuple[Choice, ...]
    about: str = ""
    source: str = ""
    net: str = ""
    generator: str = ""
    stack: Stack | None = None

    @property
    def own_net(self) -> NetSpec:
        """The net that it is for; raises SettingError if it does not say."""
        if self.generator:
            return GENERATORS[self.generator]()
        if not self.net:
            raise SettingError(f"net: the space {self.name} is for any net: name one")
        return load(self.net)

    def of(self, net: NetSpec) -> Space:
        """Return the space of a net; raises a PaleoError where its convolutions cannot go."""
        choices = self.choices
        if self.stack:
            net, own = with_stack(net, self.stack)
            choices = (*own, *choices)
        return Space(self.name, net, choices, self.about, self.source)


def space_names() -> tuple[str, ...]:
    """Return the names of predefined spaces."""
    return tuple(names_in(FOLDER, ".toml"))


#: Predefined spaces by name.
SPACES = space_names()


def find_design(name: str | os.PathLike[str] | Mapping[str, Any] | Design) -> Design:
    """Return a predefined space by its name, that of a file, or of the values of one.

    Raises UnknownNameError, or SettingError with every mistake of a file.
    """
    if isinstance(name, Design):
        return name
    if isinstance(name, Mapping):
        return _design("space", "space", name)
    if not isinstance(name, str | os.PathLike):
        raise SettingError(f"space: expected a name, a file or a table, got {shown(name)}")
    text = os.fspath(name)
    if text in SPACES:
        return _read(text, str(FOLDER / f"{text}.toml"))
    if Path(text).suffix.lower() in (".toml", ".json"):
        return _read(Path(text).stem, text)
    raise unknown("space", text, list(SPACES), ", or your own file (.toml, .json)")


def varied(vary: Sequence[str]) -> tuple[Choice, ...]:
    """Return the choices of texts "LAYER.KEY[INDEX]=VALUE,..."; raises SettingError."""
    mistakes = Mistakes()
    found = []
    for text in vary:
        target, equals, values = text.partition("=")
        entries = split_values(values)
        if not equals or not target.strip() or not all(entries):
            said = 'expected "LAYER.KEY[INDEX]=VALUE,VALUE,..."'
            mistakes.add(f"vary: {said}, got {shown(text)}")
            continue
        found.append(_of_target(target.strip(), entries, mistakes))
    mistakes.raise_as(SettingError)
    return tuple(each for each in found if each)


def with_choices(design: Design | None, choices: tuple[Choice, ...]) -> Design:
    """Return a design with further choices, or one of these alone."""
    if design is None:
        return Design("varied", choices)
    return replace(design, choices=(*design.choices, *choices))


def _read(name: str, file: str) -> Design:
    try:
        text = read_bytes(file, _MOST).decode("utf-8-sig")
    except OSError as error:
        raise SettingError(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingError(f"{file}: not text in UTF-8") from None
    import tomllib  # here: what is asked of nets alone needs none

    is_json = file.lower().endswith(".json")
    try:
        values = json.loads(text) if is_json else tomllib.loads(text)
    except RecursionError:
        raise SettingError(f"{file}: nested too deeply") from None
    except ValueError as error:
        raise SettingError(f"{file}: not {'JSON' if is_json else 'TOML'}: {error}") from None
    if not isinstance(values, dict):
        raise SettingError(f"{file}: expected keys with values, got {shown(values)}")
    return _design(name, file, values)


def _design(name: str, file: str, values: Mapping[str, Any]) -> Design:
    """Return what a file's values say; raises SettingError with every mistake."""
    mistakes = Mistakes(file)
    for key in values:
        if key not in _KEYS:
            hint = near(str(key), _KEYS) or f" (there are: {', '.join(_KEYS)})"
            mistakes.add(f"unknown key{hint}", key=str(key))
    texts = {}
    for key in ("about", "source", "net", "generator"):
        texts[key] = values.get(key, "")
        if not isinstance(texts[key], str):
            mistakes.add(f"expected a text, got {shown(texts[key])}", key=key)
    if texts["generator"] and texts["generator"] not in GENERATORS:
        known = ", ".join(GENERATORS)
        mistakes.add(f"expected one of {known}, got {shown(texts['generator'])}", key="generator")
    table = values.get("choices", {})
    if not isinstance(table, Mapping):
        mistakes.add(f"expected choices with their options, got {shown(table)}", key="choices")
        table = {}
    found = [_choice(str(each), options, mistakes) for each, options in table.items()]
    stack = None
    if "convolutions" in values:
        stack = stack_of(values["convolutions"], mistakes)
    elif not table and "choices" not in values:
        mistakes.add("no choices: expected a table [choices] or [convolutions]")
    elif not table and not mistakes:
        mistakes.add("no choices are in it", key="choices")
    if len(found) > _MOST_CHOICES:
        mistakes.add(f"more than {_MOST_CHOICES} choices", key="choices")
    mistakes.raise_as(SettingError)
    choices = tuple(each for each in found if each)
    return Design(name, choices, **texts, stack=stack)


def _choice(name: str, options: Any, mistakes: Mistakes) -> Choice | None:
    if not isinstance(options, list) or not options or len(options) > _MOST_OPTIONS:
        mistakes.add(f"expected a list of options, got {shown(options)}", key=name)
        return None
    if not any(isinstance(option, Mapping) for option in options):
        written = [NONE if option == NONE else json.dumps(option) for option in options]
        return _of_target(name, written, mistakes, key=name)
    found = []
    for place, option in enumerate(options):
        known = isinstance(option, Mapping) and set(option) <= {"set", "remove", "label"}
        texts = {key: option.get(key, []) for key in ("set", "remove")} if known else {}
        if not known or not all(map(_is_texts, texts.values())):
            said = 'expected {set = [TEXT, ...], remove = [LAYER, ...], label = "..."}'
            mistakes.add(f"option {place + 1}: {said}, got {shown(option)}", key=name)
            continue
        before = len(mistakes.found)
        for text in texts["set"]:
            parsed_setting(text, mistakes)
        if len(mistakes.found) > before:
            continue
        words = [*texts["set"], *(f"without {layer}" for layer in texts["remove"])]
        label = str(option.get("label") or ", ".join(words) or "as it is")
        found.append(Option(label, tuple(texts["set"]), tuple(texts["remove"])))
    return Choice(name, tuple(found))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _of_target(
    target: str, values: Sequence[str], mistakes: Mistakes, key: str | None = None
) -> Choice | None:
    """Return the choice of values of what `--set` would name; notes what that cannot be."""
    options = []
    for value in values:
        setting = parsed_setting(f"{target}={value}", mistakes)
        if setting is None:
            return None
        if value == NONE:
            options.append(Option(NONE, remove=(setting.layer,)))
        else:
            options.append(Option(value.strip('"'), (setting.text,)))
    labels = [option.label for option in options]
    if twice := next((each for each in labels if labels.count(each) > 1), None):
        mistakes.add(f"{target}: {twice} is there twice", key=key)
        return None
    return Choice(target, tuple(options))
