"""Dataclasses, most of them frozen, and named tuples that cost little until they are used.

When a module is imported, `dataclasses.dataclass` looks at the fields of each class and compiles
six functions for it, and `typing.NamedTuple` compiles the type of each field: together a third of
the time of a short command. `dataclass` here takes the same arguments, has the same fields
(`dataclasses.fields` and `replace` work) and the same meaning, but shares all methods, looks at
the fields when something asks for them, and compiles `__init__` when a few instances were made.
`NamedTuple` and `TypedDict` here leave types as they are written.
"""

# ruff: noqa: N807 (methods are made here for other classes)
from __future__ import annotations

import collections
import dataclasses
import inspect
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
    from typing import TypedDict as TypedDict
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False, kw_only=False):
        """Return the class as a dataclass, as `dataclasses.dataclass` of these arguments does."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, slots=slots, kw_only=kw_only)
        if slots:  # another class is made, now
            cls = _with_fields(cls, slots=True, kw_only=kw_only)
            for name, method in _methods(cls, _missing(cls, frozen, eq, slots)).items():
                setattr(cls, name, method)
        else:
            _postpone(cls, _missing(cls, frozen, eq, slots), kw_only)
        return cls

    class _NamedTuple(type):
        def __new__(cls, name, bases, scope):
            if not bases:
                return super().__new__(cls, name, bases, scope)
            names = list(scope["__annotations__"])
            defaults = [scope.pop(name) for name in names if name in scope]
            made = collections.namedtuple(name, names, defaults=defaults)
            for key, value in scope.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_NamedTuple):
        """The base of a class, as `typing.NamedTuple` is."""

    class _TypedDict(type):
        def __new__(cls, name, bases, scope, total=True):
            made = super().__new__(cls, name, bases, scope)
            made.written_keys = {}
            for base in bases:
                made.written_keys |= getattr(base, "written_keys", {})
            for key, text in scope.get("__annotations__", {}).items():
                made.written_keys[key] = scope["__module__"], text
            made.__annotations__ = {key: text for key, (_, text) in made.written_keys.items()}
            return made

    class TypedDict(dict, metaclass=_TypedDict):
        """The base of a class that says which keys there are, as `typing.TypedDict` is.

        `written_keys` are they, each with the module that has it and its type as it is written.
        """


#: For so many instances of a class it takes longer to compile `__init__` than to do without.
_FEW = 4
#: The fields of a class are looked at by one thread.
_LOCK = threading.RLock()


#: What makes an attribute no field, or another kind of one.
_SPECIAL = ("ClassVar", "InitVar", "KW_ONLY")


def _with_fields(cls: type[Any], **options: bool) -> type[Any]:
    """Return the class with its fields, without methods."""
    written = inspect.get_annotations(cls)
    # Each text is taken apart, whatever is in it: so it gets something else where that is known.
    cls.__annotations__ = {
        name: kind if isinstance(kind, str) and any(map(kind.__contains__, _SPECIAL)) else object
        for name, kind in written.items()
    }
    made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **options)
    made.__annotations__ = written
    for field in dataclasses.fields(made):
        field.type = written.get(field.name, field.type)
    return made


def _missing(cls: type[Any], frozen: bool, eq: bool, slots: bool) -> list[str]:
    """Return the names of the methods that a class is to be given."""
    own = cls.__dict__
    names = ["__init__", "__repr__"]
    if frozen:
        names += ["__setattr__", "__delattr__"]
    if eq:
        names.append("__eq__")
    if frozen and slots:
        names += ["__getstate__", "__setstate__"]
    names = [name for name in names if name not in own]
    # A class that defines __eq__ alone has None for its hash, by Python.
    if eq and ("__hash__" not in own or (own["__hash__"] is None and "__eq__" in own)):
        if frozen:
            names.append("__hash__")
        else:  # what may change has none
            cls.__hash__ = None  # type: ignore[assignment]
    return names


def _postpone(cls: type[Any], names: list[str], kw_only: bool) -> None:
    """Let a class get its fields and these methods when something asks for one of them."""
    is_finished = False

    def finish() -> None:
        nonlocal is_finished
        with _LOCK:
            if not is_finished:
                del cls.__match_args__
                _with_fields(cls, kw_only=kw_only)
                for name, method in _methods(cls, names).items():
                    setattr(cls, name, method)
                is_finished = True

    for name in names:
        setattr(cls, name, _postponed(cls, name, finish))
    for name in ("__dataclass_fields__", "__dataclass_params__", "__match_args__"):
        setattr(cls, name, _Postponed(name, finish))


def _postponed(cls: type[Any], name: str, finish: Callable[[], None]) -> Any:
    """Return what stands for a method until the class is finished."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        finish()
        return getattr(cls, name)(self, *args, **kwargs)

    method.__name__ = name
    return method


class _Postponed:
    """What stands for an attribute of a class until the class is finished."""

    def __init__(self, name: str, finish: Callable[[], None]) -> None:
        self.name, self.finish = name, finish

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        self.finish()
        return getattr(owner, self.name)


def _methods(cls: type[Any], wanted: list[str]) -> dict[str, Any]:
    """Return those of these methods that `dataclasses` would compile for a class, by name."""
    fields = dataclasses.fields(cls)
    names = [field.name for field in fields]
    compared = _values([field.name for field in fields if field.compare])
    counted = [one for one in fields if (one.compare if one.hash is None else one.hash)]
    hashed = _values([field.name for field in counted])
    is_frozen = "__setattr__" in wanted

    made = 0

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal made
        made += 1
        values = _bound(fields, args, kwargs) if made <= _FEW else None
        if values is None:
            cls.__init__ = _init(cls, is_frozen)
            cls.__init__(self, *args, **kwargs)
            return
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

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

    def __eq__(self: Any, other: object) -> Any:
        same = other.__class__ is self.__class__
        return compared(self) == compared(other) if same else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    methods = (__init__, __repr__, __setattr__, __delattr__, __eq__, __hash__)
    return {
        method.__name__: method
        for method in (*methods, __getstate__, __setstate__)
        if method.__name__ in wanted
    }


def _values(names: list[str]) -> Any:
    """Return what gives the values of these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _bound(
    fields: tuple[dataclasses.Field[Any], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any] | None:
    """Return values of all fields, None where these arguments are not those of `__init__`."""
    names = [field.name for field in fields if field.init and not field.kw_only]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if len(given) < len(args) + len(kwargs):
        return None
    values = {}
    for field in fields:
        if field.init and field.name in given:
            values[field.name] = given.pop(field.name)
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.init:
            return None
    return None if given else values


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
