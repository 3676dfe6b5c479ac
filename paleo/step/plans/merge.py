"""Settings with a plan file: what it says where nothing else is given, and what contradicts.

World, degrees and batches are brought together here for all formats: of the devices in all, tensor,
pipeline and context parallelism take their shares, and data parallelism has the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from paleo.core.checks import shown
from paleo.core.errors import SettingError
from paleo.core.frozen import dataclass
from paleo.core.quantity import product
from paleo.step.plans import PLAN_FORMATS, PlanFormat
from paleo.step.plans.content import EXPECTED, Content, content_of
from paleo.step.plans.entries import (
    REPLICAS,
    SEQ_LEN,
    TURNS,
    WORLD,
    Entries,
    is_active,
    single,
)

_NO_SETTINGS = (REPLICAS, TURNS, SEQ_LEN)
_DEGREES = ("tp", "pp", "cp")
#: So many keys are named where they were not understood.
_NAMED = 40


@dataclass(frozen=True)
class Planned:
    """What a plan file says: settings, the length of sequences (None: nothing), and notes."""

    file: str
    format: str
    settings: Mapping[str, Any]
    seq_len: int | None
    notes: tuple[str, ...]


def planned(path: str | os.PathLike[str], given: Mapping[str, Any]) -> Planned:
    """Return what a plan file says beside settings that are given, which count more.

    Raises SettingError with every mistake of the file.
    """
    try:
        file = os.fspath(path)
    except TypeError:
        file = path  # type: ignore[assignment]
    if not isinstance(file, str) or not file:
        raise SettingError(f"plan: expected the path of a file, got {shown(file)}")
    content = content_of(file)
    found = _format_of(content)
    entries = Entries(file, content.values, found.short, given)
    found.read(entries)
    if not entries.is_unclear:
        _check_world(entries)
        _find_batches(entries)
    entries.mistakes.raise_as(SettingError)
    if entries.counts("tp") == 1:  # as in Megatron-LM; positions are divided among the same devices
        entries.said.pop("sequence_parallel", None)
    if entries.counts("zero", 0) == 0:  # nothing is divided
        entries.said.pop("shard_degree", None)
    if entries.is_given("pp") and entries.counts("pp") == 1:  # one stage has no chunks
        for name in ("interleave", "stages", "schedule"):
            entries.said.pop(name, None)
    settings = found.keys.defaults | {name: said.value for name, said in entries.said.items()}
    notes = [*_contradicted(entries), *entries.notes, *_left(found, entries)]
    seq_len = settings.get(SEQ_LEN)
    left = {
        name: value
        for name, value in settings.items()
        if name not in _NO_SETTINGS and not _is_replaced(name, entries)
    }
    return Planned(file, found.name, left, seq_len, tuple(notes))


def _format_of(content: Content) -> PlanFormat:
    """Return the format of a file; raises SettingError for none that is known."""
    for name in PLAN_FORMATS:
        if PLAN_FORMATS[name].recognizes(content):
            return PLAN_FORMATS[name]
    raise SettingError(f"{content.file}: not a plan file: {EXPECTED}")


def _is_replaced(name: str, entries: Entries) -> bool:
    """Whether something that is given stands in the place of what the file says."""
    if name == "global_batch" and entries.is_given("batch_size"):
        return True
    return entries.is_given(name)


def _degrees(entries: Entries) -> str:
    """Return the degrees that are more than 1, with the keys that say them."""
    each = []
    for name in (*_DEGREES, REPLICAS):
        count = entries.counts(name)
        if count != 1:
            said = entries.said.get(name)
            where = f" ({said.path})" if said and not entries.is_given(name) else ""
            each.append(f"{name} {count}{where}")
    return " x ".join(each) or "1"


def _share(entries: Entries) -> int:
    """Return how many devices have one share of the data."""
    return int(product(entries.counts(name) for name in _DEGREES))


def _check_world(entries: Entries) -> None:
    """Note the devices in all and of data parallelism, as far as either follows from the other."""
    said, replicas, share = entries.said.get(WORLD), entries.said.get(REPLICAS), _share(entries)
    if not entries.is_given(WORLD):
        if replicas and said and said.value != replicas.value * share:
            entries.mistake(
                f"{said.path}: {said.value} devices, but {_degrees(entries)} are "
                f"{replicas.value * share}"
            )
        elif replicas and not said:
            entries.say(WORLD, replicas.value * share, replicas.path)
        elif said and said.value % share:
            entries.mistake(
                f"{said.path}: {said.value} devices do not divide by {_degrees(entries)}"
            )
    world = entries.counts(WORLD, None)
    if world and world % share == 0 and (not replicas or entries.is_given(WORLD)):
        entries.said.pop(REPLICAS, None)
        entries.say(REPLICAS, world // share, WORLD)


def _find_batches(entries: Entries) -> None:
    """Note the batches: what one of all devices', one device's and their number leaves open."""
    said = {name: entries.said.get(name) for name in ("global_batch", "micro_batch", TURNS)}
    whole, micro, turns = said.values()
    replicas = entries.counts(REPLICAS, None)
    parts = [f"{each.path} {each.value}" for each in (micro, turns) if each]
    is_own = not any(map(entries.is_given, ("global_batch", "batch_size", "micro_batch")))
    one = product(each.value for each in (micro, turns) if each)
    if whole and (micro or turns) and is_own:
        if replicas is None and micro and turns and whole.value % one == 0:
            replicas = whole.value // one
            entries.say(REPLICAS, replicas, whole.path)
            entries.say(WORLD, replicas * _share(entries), whole.path)
        total = one * (replicas or 1)
        if whole.value % total or (micro and turns and whole.value != total):
            by = f" x dp {replicas}" if replicas and replicas > 1 else ""
            fits = "is not" if micro and turns else "does not divide by"
            entries.mistake(f"{whole.path}: {whole.value} {fits} {' x '.join(parts)}{by} = {total}")
        elif not micro and replicas:
            entries.say("micro_batch", whole.value // total, whole.path)
        elif not micro:
            assert turns
            entries.note(f"{turns.path} has no effect without --num_workers")
    elif not whole and micro:
        # So many samples does each share of the data have.
        entries.say("batch_size", int(one), micro.path)


def _contradicted(entries: Entries) -> list[str]:
    """Return a note for each setting that is given and that the file says otherwise."""
    notes = []
    for name, said in entries.said.items():
        value = single(entries.given.get(name))
        if name not in (REPLICAS, TURNS) and entries.is_given(name) and not _is_same(value, said):
            notes.append(
                f"{entries.file}: {said.path} says {_option(name)} {shown(said.value)}, but "
                f"{shown(value)} is given and counts"
            )
    if entries.is_given("batch_size") and "global_batch" in entries.said:
        said = entries.said["global_batch"]
        if not entries.is_given("global_batch"):
            notes.append(f"{entries.file}: {said.path} has no effect: batch_size is given")
    return notes


def _is_same(value: Any, said: Any) -> bool:
    return bool(value == said.value) or str(value) == str(said.value)


def _option(name: str) -> str:
    return "num_workers" if name == WORLD else name


def _left(found: PlanFormat, entries: Entries) -> list[str]:
    """Return notes on keys that have no effect, though they would mean something, or may."""
    unknown, unmodelled = [], []
    for key, each in entries.by_key.items():
        if key in entries.used:
            continue
        if said := found.keys.unmodelled_as(key):
            unmodelled += [f"{entry.path} ({said})" for entry in each if is_active(entry.value)]
        elif not found.keys.is_quiet(key):
            unknown += [entry.path for entry in each]
    notes = []
    for title, names in (("not modelled", unmodelled), ("not understood", unknown)):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            notes.append(f"{entries.file}: {title}: {', '.join(names[:_NAMED])}{more}")
    return notes
