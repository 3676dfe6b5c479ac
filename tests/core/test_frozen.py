"""Dataclasses mean what those of the standard library mean."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import numpy as np
import pytest

from paleo.core import frozen


def made(dataclass: Any, slots: bool = False) -> Any:
    """Return a class that uses all that dataclasses of this project use."""

    @dataclass(frozen=True, slots=slots)
    class Base:
        first: int
        second: str = "two"

    @dataclass(frozen=True, slots=slots)
    class Value(Base):
        several: dict[str, int] = field(default_factory=dict, hash=False)
        unseen: int = field(default=0, compare=False, repr=False)
        named: float = field(default=0.5, kw_only=True)
        kept: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("below zero")

    return Value


#: At the top of a module, as pickle wants it.
Plain = made(frozen.dataclass)
Slotted = made(frozen.dataclass, slots=True)
for name, known in (("Plain", Plain), ("Slotted", Slotted)):
    known.__qualname__ = name


@pytest.mark.parametrize("slots", [False, True])
def test_values_are_made_shown_compared_and_hashed_alike(slots: bool) -> None:
    ours, theirs = made(frozen.dataclass, slots), made(dataclasses.dataclass, slots)
    for arguments, keys in (
        ((1,), {}),
        ((1, "b"), {"named": 2.0}),
        ((1,), {"several": {"a": 1}, "unseen": 3}),
    ):
        mine, other = ours(*arguments, **keys), theirs(*arguments, **keys)
        assert repr(mine) == repr(other)
        assert hash(mine) == hash(other)
        assert mine == ours(*arguments, **keys)
        assert mine != other
        for each in fields(other):
            assert getattr(mine, each.name) == getattr(other, each.name)
        assert replace(mine, first=7) == ours(7, *arguments[1:], **keys)
    assert ours(1, unseen=1) == ours(1, unseen=2)
    assert ours(1).several is not ours(1).several


@pytest.mark.parametrize("slots", [False, True])
def test_what_is_not_frozen_may_change_and_has_no_hash(slots: bool) -> None:
    class Plain:
        first: int
        several: list[int] = field(default_factory=list)

    Value: Any = frozen.dataclass(Plain, slots=slots)  # noqa: N806 (a class)
    value = Value(1)
    value.first, value.several = 2, [3]
    assert value == Value(2, [3]) != Value(2)
    assert repr(value).endswith("Plain(first=2, several=[3])")
    assert copy.copy(value) == value
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


@pytest.mark.parametrize("slots", [False, True])
def test_the_same_is_refused(slots: bool) -> None:
    ours = made(frozen.dataclass, slots)
    for arguments, keys in (((), {}), ((1,), {"nothing": 2}), ((1, "b", {}, 0, 1.0), {})):
        with pytest.raises(TypeError):
            ours(*arguments, **keys)
    with pytest.raises(ValueError, match="below zero"):
        ours(-1)
    value = ours(1)
    with pytest.raises(FrozenInstanceError, match="first"):
        value.first = 2
    with pytest.raises(FrozenInstanceError, match="first"):
        del value.first
    assert value.first == 1


@pytest.mark.parametrize("value", [Plain(1, named=3.0), Slotted(1, named=3.0)])
def test_values_are_copied_and_pickled(value: Any) -> None:
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value


def test_a_single_array_is_compared_as_a_dataclass_does() -> None:
    @frozen.dataclass(frozen=True)
    class Single:
        numbers: Any

    array = np.arange(3)
    assert Single(array) == Single(array)


def test_an_initializer_is_compiled_when_there_are_several_instances() -> None:
    cls = made(frozen.dataclass)
    first = cls(1, named=2.0)
    assert "several" not in cls.__init__.__code__.co_varnames
    others = [cls(1, named=2.0) for _ in range(8)]
    assert "several" in cls.__init__.__code__.co_varnames
    assert all(one == first and vars(one) == vars(first) for one in others)


def test_fields_are_looked_at_when_something_asks_for_them() -> None:
    def fresh() -> Any:
        @frozen.dataclass(frozen=True, kw_only=False)
        class Value:
            first: int
            listed: list[int] = field(default_factory=list)

        return Value

    untouched = fresh()
    assert isinstance(untouched.__dict__["listed"], dataclasses.Field)  # as it is written
    asking: list[Callable[[Any], object]] = [
        fields,
        dataclasses.is_dataclass,
        lambda cls: cls(1),
        lambda cls: cls.__match_args__,
        lambda cls: cls.__dataclass_params__,
        of_a_child,
        lambda cls: pickle_like(cls) == cls(1, [2]),
    ]
    for ask in asking:
        asked: Any = fresh()
        ask(asked)
        assert "listed" not in asked.__dict__  # a default factory is no value of the class
        assert asked.__match_args__ == ("first", "listed")
        assert [each.name for each in fields(asked)] == ["first", "listed"]
        assert asked(1) == asked(1, [])
        assert hash(asked(1, ())) == hash(asked(1, ()))


def pickle_like(cls: Any) -> Any:
    """Return an instance as pickle makes it: no initializer is called."""
    value = object.__new__(cls)
    value.__dict__.update(first=1, listed=[2])
    return value


def of_a_child(base: Any) -> Any:
    @frozen.dataclass(frozen=True)
    class Child(base):
        third: int = 3

    return Child(1, [2])


def test_a_class_that_compares_itself_is_hashed_as_a_dataclass_is() -> None:
    def own(dataclass: Any, **options: bool) -> Any:
        @dataclass(**options)
        class Value:
            first: int

            def __eq__(self, other: object) -> bool:
                return True

        return Value

    assert hash(own(frozen.dataclass, frozen=True)(1)) == hash(
        own(dataclasses.dataclass, frozen=True)(1)
    )
    for dataclass in (frozen.dataclass, dataclasses.dataclass):
        assert own(dataclass).__hash__ is None


class Named(frozen.NamedTuple):
    """Two values."""

    first: int
    second: str = "two"

    @property
    def both(self) -> str:
        return f"{self.first} {self.second}"


class Known(typing.NamedTuple):
    """Two values."""

    first: int
    second: str = "two"


def test_named_tuples_are_those_of_the_standard_library() -> None:
    value = Named(1)
    assert value == Known(1) == (1, "two")
    assert isinstance(value, tuple)
    assert repr(value) == repr(Known(1)).replace("Known", "Named")
    assert value.both == "1 two"
    assert value._replace(first=3).both == "3 two"
    for name in ("_fields", "_field_defaults", "__match_args__", "__doc__", "__module__"):
        assert getattr(Named, name) == getattr(Known, name)
    assert typing.get_type_hints(Named) == typing.get_type_hints(Known)
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value
    for arguments in ((), (1, "b", 3)):
        with pytest.raises(TypeError):
            Named(*arguments)
    with pytest.raises(AttributeError):
        value.first = 2  # type: ignore[misc]
    assert not hasattr(value, "__dict__")


def test_named_tuples_are_made_of_as_many_values_as_they_have() -> None:
    for kind in (Named, Known):
        assert kind._make([1, "b"]) == (1, "b")
        assert kind(second="b", first=1)._asdict() == {"first": 1, "second": "b"}
        with pytest.raises(TypeError, match="Expected 2 arguments, got 1"):
            kind._make([1])
        with pytest.raises((TypeError, ValueError), match=r"unexpected field names: .*third"):
            kind(1)._replace(third=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("slots", [False, True])
def test_a_variable_of_a_class_is_no_field(slots: bool) -> None:
    def own(dataclass: Any) -> Any:
        @dataclass(frozen=True, slots=slots)
        class Value:
            shared: typing.ClassVar[int] = 3
            first: int

        return Value

    ours, theirs = own(frozen.dataclass), own(dataclasses.dataclass)
    for cls in (ours, theirs):
        assert [each.name for each in fields(cls)] == ["first"]
        assert (cls(1).first, cls.shared) == (1, 3)
    assert repr(ours(1)) == repr(theirs(1))


def test_importing_compiles_nothing() -> None:
    # From Python 3.13 on, dataclasses compile a frame around methods also where there are none.
    code = (
        "import builtins, dataclasses, typing, functools\n"
        "import paleo.core.frozen, paleo.core.quantity, paleo.core.window\n"
        "def compiled(text, *scopes):\n"
        "    assert text.replace('def __create_fn__', '').count('def ') == 0, text\n"
        "    builtins.exec(text, *scopes)\n"
        "paleo.core.frozen.exec = dataclasses.exec = compiled\n"
    )
    done = [
        subprocess.run([sys.executable, "-c", code + more], stderr=subprocess.PIPE, check=False)
        for more in (
            "import paleo.core.operations",
            "import paleo.core.operations as used; [used.Work() for _ in range(9)]",
            "dataclasses.dataclass(type('Plain', (), {'__annotations__': {'size': int}}))",
        )
    ]
    assert [run.returncode for run in done] == [0, 1, 1]
    assert all(b"def __init__" in run.stderr for run in done[1:])
