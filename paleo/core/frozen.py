"""Dataclasses, most of them frozen, and named tuples that cost little until they are used.

When a module is imported, `dataclasses.dataclass` looks at the fields of each class and compiles
six functions for it, and `typing.NamedTuple` compiles the type of each field and a constructor:
together a third of the time of a short command. `dataclass` here takes the same arguments, has the
same fields (`dataclasses.fields` and `replace` work) and the same meaning, but shares all methods,
looks at the fields when something asks for them, and compiles `__init__` when a few instances were
made. (It knows no `InitVar` and no `KW_ONLY`.) Frozen instances are made several times as quickly:
their values go into their dictionary at once. `NamedTuple` and `TypedDict` here leave types as they
are written, and named tuples get their constructor when there is a first one.
"""

# ruff: noqa: N807 (methods are made here for other classes)
from __future__ import annotations

import collections
import dataclasses
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from types import SimpleNamespace
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
            fields = _fields(cls, kw_only)
            cls = _slotted(cls, fields)
            _finish(cls, fields, _missing(cls, frozen, eq, slots))
        else:
            _postpone(cls, _missing(cls, frozen, eq, slots), kw_only)
        return cls

    class _NamedTuple(type):
        def __new__(cls, name, bases, scope):
            if not bases:
                return super().__new__(cls, name, bases, scope)
            names = tuple(scope["__annotations__"])
            defaults = {name: scope.pop(name) for name in names if name in scope}

            def __new__(cls, *args, **kwargs):
                made.__new__ = _new(names, tuple(defaults.values()))
                return made.__new__(cls, *args, **kwargs)

            own = {
                "__slots__": (),
                "__new__": __new__,
                "__match_args__": names,
                "_fields": names,
                "_field_defaults": defaults,
                **{name: _Getter(i, None) for i, name in enumerate(names)},
            }
            made = type(name, (tuple,), {**_OF_NAMED_TUPLES, **own, **scope})
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


#: Whether values that are put into an instance's dictionary one by one stay in the instance, where
#: they are read soonest. Before, they are read sooner of a dictionary that got them at once.
_STAY = sys.version_info >= (3, 13)


def _fields(cls: type[Any], kw_only: bool) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a class by name, those of its bases first; their defaults become its."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        found |= getattr(base, "__dataclass_fields__", {})
    for name, kind in inspect.get_annotations(cls).items():
        if "ClassVar" in str(kind):
            continue
        default = cls.__dict__.get(name, dataclasses.MISSING)
        if isinstance(default, dataclasses.Field):
            one = default
            if one.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
        else:
            one = dataclasses.field(default=default)
        one.name, one.type, one._field_type = name, kind, dataclasses._FIELD  # type: ignore[attr-defined]
        if one.kw_only is dataclasses.MISSING:
            one.kw_only = kw_only
        found[name] = one
    return found


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


def _slotted(cls: type[Any], fields: Iterable[str]) -> type[Any]:
    """Return the class with slots for these fields, as another one."""
    inherited = {name for base in cls.__mro__ for name in base.__dict__.get("__slots__", ())}
    left_out = {*fields, "__dict__", "__weakref__"}
    scope = {name: value for name, value in vars(cls).items() if name not in left_out}
    scope["__slots__"] = tuple(name for name in fields if name not in inherited)
    kind: Any = type(cls)
    made: type[Any] = kind(cls.__name__, cls.__bases__, scope)
    made.__qualname__ = cls.__qualname__
    return made


def _postpone(cls: type[Any], names: list[str], kw_only: bool) -> None:
    """Let a class get its fields and these methods when something asks for one of them."""
    is_finished = False

    def finish() -> None:
        nonlocal is_finished
        with _LOCK:
            if not is_finished:
                _finish(cls, _fields(cls, kw_only), names)
                is_finished = True

    for name in names:
        setattr(cls, name, _postponed(cls, name, finish))
    for name in ("__dataclass_fields__", "__dataclass_params__", "__match_args__"):
        setattr(cls, name, _Postponed(name, finish))


def _finish(cls: Any, fields: dict[str, dataclasses.Field[Any]], names: list[str]) -> None:
    """Give a class its fields and these methods."""
    cls.__dataclass_fields__ = fields
    cls.__dataclass_params__ = SimpleNamespace(frozen="__setattr__" in names)
    positional = (name for name, field in fields.items() if field.init and not field.kw_only)
    made = {"__match_args__": tuple(positional), **_methods(cls, tuple(fields.values()), names)}
    for name, value in made.items():
        setattr(cls, name, value)


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


def _methods(
    cls: type[Any], fields: tuple[dataclasses.Field[Any], ...], wanted: list[str]
) -> dict[str, Any]:
    """Return those of these methods that `dataclasses` would compile for a class, by name."""
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
            cls.__init__ = _init(cls, fields, is_frozen)
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


def _init(cls: type[Any], fields: tuple[dataclasses.Field[Any], ...], frozen: bool) -> Any:
    """Compile `__init__` of a class."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    first, named = ["self"], list[str]()
    values = dict[str, str]()
    for field in fields:
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
        values[name] = value
    body = list(_setting(values, frozen, "__slots__" in cls.__dict__))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*first, *(["*", *named] if named else [])])
    exec("\n ".join([f"def __init__({parameters}):", *(body or ["pass"])]), scope)  # noqa: S102
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _setting(values: dict[str, str], frozen: bool, slots: bool) -> Iterator[str]:
    """Yield the lines that give an instance these values, by name as they are written."""
    if not frozen:
        for name, value in values.items():
            yield f"self.{name} = {value}"
    elif slots:
        for name, value in values.items():
            yield f"_set(self, {name!r}, {value})"
    elif _STAY:
        yield "_own = self.__dict__"
        for name, value in values.items():
            yield f"_own[{name!r}] = {value}"
    elif values:
        entries = ", ".join(f"{name!r}: {value}" for name, value in values.items())
        yield f"self.__dict__.update({{{entries}}})"


def _new(names: tuple[str, ...], defaults: tuple[Any, ...]) -> Any:
    """Compile `__new__` of a named tuple."""
    arguments = "".join(f"{name}, " for name in names)
    text = f"lambda _cls, {arguments}: _make(_cls, ({arguments}))"
    made = eval(text, {"_make": tuple.__new__})  # noqa: S307
    made.__name__ = "__new__"
    made.__defaults__ = defaults
    return staticmethod(made)


def _of_named_tuples() -> dict[str, Any]:
    """Return the methods that all named tuples share."""

    @classmethod  # type: ignore[misc]
    def _make(cls: Any, values: Iterable[Any]) -> Any:
        found = tuple.__new__(cls, values)
        if len(found) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(found)}")
        return found

    def _replace(self: Any, /, **values: Any) -> Any:
        found = self._make(map(values.pop, self._fields, self))
        if values:
            raise ValueError(f"Got unexpected field names: {list(values)!r}")
        return found

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self: Any) -> str:
        pairs = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __getnewargs__(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    return dict(locals())


_OF_NAMED_TUPLES = _of_named_tuples()
#: What reads a value of a named tuple by its place.
_Getter: Any = type(collections.namedtuple("_One", ["value"]).value)  # type: ignore[attr-defined]
