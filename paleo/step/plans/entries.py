"""The entries of a plan file as a format reads them: checked values, what they say, mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paleo.core.checks import MAX_SIZE, is_number, is_whole, number, shown
from paleo.core.errors import Mistake, Mistakes, SettingError
from paleo.core.frozen import NamedTuple
from paleo.step.plans.shell import UNKNOWN

#: What a format says of the world besides settings: devices in all, data-parallel ones, and
#: micro-batches that a device computes for a step.
WORLD, REPLICAS, TURNS = "workers", "dp", "turns"
#: The length of sequences, which is the net's.
SEQ_LEN = "seq_len"
#: Texts that say nothing; a trainer fills in "auto" (that of Hugging Face).
_OPEN = ("", "auto", "null", "None")
#: Texts that switch nothing on.
_OFF = ("false", "False", "0", "none", "disabled", "default")
_TRUTHS = {"true": True, "false": False, "True": True, "False": False, "1": True, "0": False}


class Entry(NamedTuple):
    """A key as the file writes it, and its value."""

    path: str
    value: Any


class Said(NamedTuple):
    """What a file says of a setting, and where."""

    value: Any
    path: str


class Entries:
    """What a plan file has under each short key; what a format read of it, and made of it.

    `given` are settings that were given beside the file, which count more.
    """

    def __init__(
        self,
        file: str,
        values: Mapping[str, Any],
        short: Callable[[str], str],
        given: Mapping[str, Any],
    ) -> None:
        self.file, self.given = file, given
        self.mistakes = Mistakes(file)
        self.notes: list[str] = []
        self.said: dict[str, Said] = {}
        self.used: set[str] = set()
        #: Whether a number is none, so that what follows from it is not known.
        self.is_unclear = False
        self.by_key: dict[str, list[Entry]] = {}
        for path, value in values.items():
            self.by_key.setdefault(short(path), []).append(Entry(path, value))

    def entry(self, key: str) -> Entry | None:
        """Return what stands under a key, if it says anything; notes it if two say other things."""
        self.used.add(key)
        found = [each for each in self.by_key.get(key, ()) if not is_open(each.value)]
        if not found:
            return None
        for other in found[1:]:
            if other.value != found[0].value:
                self.mistake(
                    f"{found[0].path} says {shown(found[0].value)}, but {other.path} "
                    f"{shown(other.value)}"
                )
        return found[0]

    def path(self, key: str) -> str:
        """Return how the file writes a key."""
        found = self.entry(key)
        return found.path if found else key

    def whole(self, key: str, least: int = 1) -> int | None:
        """Return a whole number; None where nothing is said, or something else, which is noted."""
        value = self.number(key, f"a whole number from {least}")
        if value is None:
            return None
        if value == int(value) and least <= value <= MAX_SIZE:
            return int(value)
        self.is_unclear = True
        self._wrong(key, f"a whole number from {least}")
        return None

    def number(self, key: str, wanted: str = "a number") -> float | None:
        """Return a number, also of a text; None where nothing is said, or it is none (noted)."""
        found = self.entry(key)
        if found is None:
            return None
        value = number(found.value) if isinstance(found.value, str) else found.value
        if is_number(value) and abs(value) <= 1e18:  # false for NaN
            return value
        self.is_unclear = True
        self._wrong(key, wanted)
        return None

    def flag(self, key: str) -> bool | None:
        """Return yes or no; None where nothing is said, or something else, which is noted."""
        found = self.entry(key)
        if found is None:
            # A switch of a command, behind which something unknown stands.
            is_on = any(each.value == UNKNOWN for each in self.by_key.get(key, ()))
            return True if is_on else None
        value = _TRUTHS.get(found.value) if isinstance(found.value, str) else found.value
        if isinstance(value, bool):
            return value
        if is_whole(value) and value in (0, 1):
            return bool(value)
        self._wrong(key, "true or false")
        return None

    def text(self, key: str, choices: Sequence[str] = ()) -> str:
        """Return a text, in lower case; "" where nothing is said. Others than choices are noted."""
        found = self.entry(key)
        if found is None:
            return ""
        value = str(found.value).lower() if isinstance(found.value, str | int | float) else ""
        if not value or (choices and value not in choices):
            self._wrong(key, " or ".join(choices) or "a text")
            return ""
        return value

    def _wrong(self, key: str, wanted: str) -> None:
        found = self.entry(key)
        assert found
        self.mistake(f"{found.path}: expected {wanted}, got {shown(found.value)}")

    def mistake(self, text: str) -> None:
        """Note what is wrong, once: a key may be read several times."""
        self.mistakes.include(SettingError(Mistake(text, self.file)))

    def say(self, setting: str, value: Any, key: str) -> None:
        """Note what the file says of a setting, under a key; what was said before holds."""
        self.said.setdefault(setting, Said(value, self.path(key)))

    def note(self, text: str) -> None:
        """Note what a reader should know of the file."""
        self.notes.append(f"{self.file}: {text}")

    def counts(self, setting: str, usual: Any = 1) -> Any:
        """Return the whole number that holds of a setting: what is given, else what the file says.

        Where that is none, or several, it is the usual one.
        """
        said = self.said.get(setting)
        value = single(self.given[setting]) if self.is_given(setting) else said and said.value
        return value if is_whole(value) and value >= (usual != 0) else usual

    def is_given(self, setting: str) -> bool:
        """Whether a setting is given beside the file."""
        return self.given.get(setting) is not None


def is_open(value: Any) -> bool:
    """Whether a value says nothing, or what nobody knows before it is filled in."""
    if isinstance(value, str):
        return value in _OPEN or "$" in value
    return value is None or value in ([], {})


def is_active(value: Any) -> bool:
    """Whether a value switches something on."""
    is_off = value in (False, 0, *_OFF)
    return not is_open(value) and not is_off


def single(value: Any) -> Any:
    """Return the one of a list of one."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
