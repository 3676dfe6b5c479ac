"""Dataclasses that cost nothing until they are used, most of them frozen.

`dataclasses.dataclass` compiles six functions for every class when its module is imported: a fifth
of the time of a short command. `dataclass` here takes the same arguments, has the same fields
(`dataclasses.fields` and `replace` work) and the same meaning, but shares all methods and compiles
`__init__` when the first instance is made.
"""

# ruff: noqa: N807 (methods are made here for other classes)
from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False, kw_only=False):
        """Return the class as a dataclass, as `dataclasses.dataclass` of these arguments does."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, slots=slots, kw_only=kw_only)
        cls = dataclasses.dataclass(
            cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
        )
        for method in _methods(cls, frozen, eq, slots):
            if method.__name__ not in cls.__dict__:
                setattr(cls, method.__name__, method)
        return cls


def _methods(cls: type[Any], frozen: bool, eq: bool, slots: bool) -> list[Any]:
    """Return what `dataclasses` would compile for a class."""
    fields = dataclasses.fields(cls)
    names = [field.name for field in fields]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _init(cls, frozen)
        cls.__init__(self, *args, **kwargs)

    def __repr__(self: Any) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    methods: list[Any] = [__init__, __repr__]
    if frozen:
        methods += [__setattr__, __delattr__]
    if eq:
        compared = _values([field.name for field in fields if field.compare])
        counted = [one for one in fields if (one.compare if one.hash is None else one.hash)]
        hashed = _values([field.name for field in counted])

        def __eq__(self: Any, other: object) -> Any:
            same = other.__class__ is self.__class__
            return compared(self) == compared(other) if same else NotImplemented

        def __hash__(self: Any) -> int:
            return hash(hashed(self))

        methods.append(__eq__)
        if frozen:
            methods.append(__hash__)
        else:  # what may change has none
            cls.__hash__ = None  # type: ignore[assignment]
        if frozen and cls.__dict__.get("__hash__", 0) is None and "__eq__" not in cls.__dict__:
            del cls.__hash__
    if frozen and slots:

        def __getstate__(self: Any) -> list[Any]:
            return [getattr(self, name) for name in names]

        def __setstate__(self: Any, state: list[Any]) -> None:
            for name, value in zip(names, state, strict=True):
                object.__setattr__(self, name, value)

        methods += [__getstate__, __setstate__]
    return methods


def _values(names: list[str]) -> Any:
    """Return what gives the values of these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _init(cls: type[Any], frozen: bool) -> Any:
    """Compile `__init__` of a class."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    first, named = ["self"], list[str]()
    body = list[str]()
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        default = ""
        if field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = field.default_factory
            default = "=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
            value = value if field.init else f"_make_{name}()"
        elif field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
            value = value if field.init else f"_default_{name}"
        elif not field.init:
            continue
        if field.init:
            (named if field.kw_only else first).append(name + default)
        body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join([*first, *(["*", *named] if named else [])])
    exec("\n".join([f"def __init__({parameters}):", *(body or [" pass"])]), scope)  # noqa: S102
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
