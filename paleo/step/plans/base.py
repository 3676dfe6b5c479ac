"""The contract of a plan format: the keys of a file become settings.

To add one: a subclass of PlanFormat in a file of this folder with a table of keys beside it, and
`PLAN_FORMATS.add(name, instance)`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

from paleo.core.frozen import dataclass
from paleo.core.registry import Registry
from paleo.step.plans.content import Content
from paleo.step.plans.entries import Entries


@dataclass(frozen=True)
class Keys:
    """What a table says of keys: patterns, by the short names that a format gives them.

    `marks` are keys that no other format of the same syntax has. `settings` are those that stand
    for a setting as they are, `aliases` are other spellings. `quiet` mean nothing for time or
    memory, or say what the net is; `unmodelled` mean something that Paleo does not know, in words.
    `defaults` are settings that hold where a file says nothing.
    """

    source: str
    marks: tuple[str, ...]
    settings: Mapping[str, str]
    aliases: Mapping[str, str]
    quiet: tuple[str, ...]
    unmodelled: Mapping[str, str]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, name: str) -> Keys:
        """Return the table of a format, the file of this name beside this one.

        What it is `like` has aliases and patterns for it, too.
        """
        import tomllib  # here: most start without a plan file

        root = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
        like = keys_of(root["like"]) if "like" in root else None
        return cls(
            root["source"],
            tuple(root.get("marks", ())),
            root["settings"],
            {**(like.aliases if like else {}), **root["aliases"]},
            (*(like.quiet if like else ()), *root["quiet"]),
            {**(like.unmodelled if like else {}), **root["unmodelled"]},
            root.get("defaults", {}),
        )

    def is_quiet(self, key: str) -> bool:
        """Whether a key means nothing for time or memory."""
        return any(fnmatchcase(key, pattern) for pattern in self.quiet)

    def unmodelled_as(self, key: str) -> str:
        """Return what a key means that Paleo does not model; "" for others."""
        found = (said for name, said in self.unmodelled.items() if fnmatchcase(key, name))
        return next(found, "")


@functools.cache
def keys_of(name: str) -> Keys:
    """Return the table of a format, read once."""
    return Keys.of(name)


class PlanFormat(ABC):
    """A format of plan files."""

    name: ClassVar[str]
    #: One line for lists and messages.
    summary: ClassVar[str]

    @property
    def keys(self) -> Keys:
        """The table of its keys."""
        return keys_of(self.name)

    @abstractmethod
    def recognizes(self, content: Content) -> bool:
        """Tell whether a file is of this format."""

    @abstractmethod
    def short(self, path: str) -> str:
        """Return under which name a key of a file is known here and in the table."""

    def read(self, entries: Entries) -> None:
        """Note the settings that the entries stand for, and what is wrong with them."""
        for key, setting in self.keys.settings.items():
            value: Any = entries.flag(key) if setting in _FLAGS else entries.whole(key)
            if value is not None:
                entries.say(setting, value, key)
        self.read_others(entries)

    @abstractmethod
    def read_others(self, entries: Entries) -> None:
        """Note the settings that take more than a name."""


#: The settings of tables that are yes or no.
_FLAGS = ("sequence_parallel", "compile", "graphs")

PLAN_FORMATS: Registry[PlanFormat] = Registry("plan format")
