"""Axes of a sweep: what varies, and its values, each checked as the setting it is of.

An axis is a setting of `paleo.simulate`, the length of sequences or another dimension of the net,
or an edit of it, as --set and --vary write them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from paleo.core.checks import MAX_SIZE, is_number, is_whole, python_int, shown
from paleo.core.errors import Mistakes, PaleoError, SettingError, near
from paleo.core.frozen import dataclass
from paleo.core.quantity import is_array, np
from paleo.net.lengths import SEQ
from paleo.net.load import load
from paleo.step.declarations import Setting, declared, found_setting
from paleo.step.scenario import SimulateSettings, StepSettings

#: The axis of nets, that of the length of sequences, and how one of a dimension begins.
NET, SEQ_LEN, DIM = "net", "seq_len", "dim."
#: What edits inputs, as --scale_input does.
SCALE_INPUT = "scale_input"
#: No axis has more values.
MOST_VALUES = 100_000_000
#: Of whole numbers so many and more, the least and the largest alone are checked.
_MANY = 1000


@dataclass(frozen=True, eq=False)
class Axis:
    """What varies, by its name, and its values: a list, or an array of whole numbers.

    `labels` are the values as tables have them: numbers and texts, None where nothing is said.
    """

    name: str
    values: Any
    labels: Any

    def __len__(self) -> int:
        return len(self.values)

    def value(self, place: int) -> Any:
        """Return one of its values, as it was given."""
        return python_int(self.values[place])


@functools.cache
def known_settings() -> dict[str, Setting]:
    """Return by name the settings that may be axes, each as one value of it is checked."""
    settings = declared(SimulateSettings) | declared(StepSettings)
    return {name: setting for name, setting in settings.items() if name != "plan"}


@functools.cache
def _spellings() -> dict[str, str]:
    """Return the names of settings by the names that options have."""
    return {
        option.lstrip("-"): name
        for name, setting in known_settings().items()
        for spelled in setting.options
        for option in spelled.split("/")
    }


def setting_name(name: str) -> str:
    """Return the name of an axis, which may be written as the option of its setting.

    Raises SettingError for what no command knows.
    """
    known = known_settings()
    written = name.replace("-", "_")
    if written in known or written in (NET, SEQ_LEN, SCALE_INPUT):
        return written
    if written in _spellings():
        return _spellings()[written]
    if is_edit(name) or name.startswith(DIM):
        return name
    if written == "plan":
        raise SettingError("plan: a sweep has no plan file: give its settings")
    names = (*known, NET, SEQ_LEN, SCALE_INPUT)
    hint = near(name, names) or f"; there are: {', '.join(names)}, or LAYER.KEY of an edit"
    raise SettingError(f"{name}: no setting of that name{hint}")


def is_edit(name: str) -> bool:
    """Tell whether an axis edits the net: LAYER.KEY[INDEX], or the size of inputs."""
    return name == SCALE_INPUT or ("." in name and not name.startswith(DIM))


def axis_of(name: str, given: Any) -> Axis:
    """Return the axis of a name and what was given for it: values, one of them, or a range.

    Raises a PaleoError with every value that is wrong.
    """
    values = _values(name, given)
    if len(values) == 0:
        raise SettingError(f"{name}: expected one or more values, got none")
    if len(values) > MOST_VALUES:
        raise SettingError(f"{name}: {len(values):,} values are more than {MOST_VALUES:,}")
    check = _check(name)
    if is_array(values):
        ends = (int(values.min()), int(values.max()))
        for end in ends if len(values) > _MANY else values.tolist():
            check(end)
        return Axis(name, values, values)
    mistakes = Mistakes()
    labels = [label_of(mistakes.check(check, value), value) for value in values]
    mistakes.raise_as(PaleoError)
    return Axis(name, values, labels)


def checked_value(name: str, value: Any) -> Any:
    """Return what one value of an axis stands for; raises a PaleoError."""
    return _check(name)(value)


def _check(name: str) -> Callable[[Any], Any]:
    """Return the check of one value of an axis of this name."""
    if name == NET:
        return load
    if name == SEQ_LEN or name.startswith(DIM):
        return functools.partial(_checked_size, name)
    if is_edit(name):
        return _checked_edit
    return functools.partial(found_setting, known_settings()[name])


def dimension(name: str) -> str:
    """Return the dimension of the net that an axis is of, "" where it is of none."""
    return SEQ if name == SEQ_LEN else name.removeprefix(DIM) if name.startswith(DIM) else ""


def _checked_size(name: str, value: Any) -> int:
    if is_whole(value) and 1 <= value <= MAX_SIZE:
        return int(value)
    raise SettingError(f"{name}: expected a whole number from 1 to {MAX_SIZE}, got {shown(value)}")


def _checked_edit(value: Any) -> Any:
    return value  # what may stand there, the layer says


def label_of(found: Any, value: Any) -> Any:
    """Return a value as tables have it: a number, a text, or None."""
    if value is None or isinstance(value, str | bool) or is_number(value):
        is_path = isinstance(value, str) and isinstance(getattr(found, "name", None), str)
        return found.name if is_path else value
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    if isinstance(value, Mapping):
        return ",".join(f"{getattr(key, 'name', key)}:{count}" for key, count in value.items())
    if isinstance(value, Iterable):
        return ",".join(map(str, value))
    return str(value)


def _values(name: str, given: Any) -> Any:
    """Return the values that are meant: an array of whole numbers, or a list of anything."""
    if isinstance(given, Mapping) and set(given) & {"from", "to"}:
        return _range(name, given)
    if isinstance(given, range):
        return np.arange(given.start, given.stop, given.step, dtype=np.int64)
    if is_array(given):
        if given.ndim == 1 and given.dtype.kind in "iu":
            return given.astype(np.int64)
        return np.ravel(given).tolist()
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        return [given]
    values = list(map(python_int, given))
    return np.array(values, np.int64) if _fit_an_array(values) else values


def _fit_an_array(values: Sequence[Any]) -> bool:
    """Tell whether these are whole numbers that an array holds."""
    return bool(values) and all(is_whole(each) and abs(each) <= MAX_SIZE for each in values)


def _range(name: str, given: Mapping[str, Any]) -> Any:
    """Return the values of {from, to, step} or {from, to, factor}, both ends included."""
    ends = [given.get(key) for key in ("from", "to")]
    by = {key: value for key, value in given.items() if key not in ("from", "to")}
    numbers = [*ends, *by.values()]
    is_known = len(by) <= 1 and set(by) <= {"step", "factor"}
    if not is_known or not all(is_number(each) and math.isfinite(each) for each in numbers):
        raise SettingError(
            f"{name}: expected a range such as {{from = 32, to = 1024, step = 32}} or "
            f"{{from = 1, to = 1024, factor = 2}}, got {shown(dict(given))}"
        )
    first, last = float(ends[0] or 0), float(ends[1] or 0)
    is_of_whole = all(map(is_whole, (ends[0], by.get("step", 1))))
    if "factor" in by:
        if by["factor"] <= 1 or first <= 0:
            raise SettingError(f"{name}: a range by factors starts above 0, by a factor above 1")
        count = math.floor(math.log(last / first) / math.log(by["factor"]) + 1e-9) + 1
        values = [first * by["factor"] ** place for place in range(max(0, count))]
        values = list(dict.fromkeys(map(round, values))) if is_of_whole else values
        return np.array(values, np.int64) if _fit_an_array(values) else values
    step = by.get("step", 1)
    if step <= 0:
        raise SettingError(f"{name}: the step of a range is above 0, got {shown(step)}")
    count = max(0, math.floor((last - first) / step + 1e-9) + 1)
    if count > MOST_VALUES:
        raise SettingError(f"{name}: {count:,} values are more than {MOST_VALUES:,}")
    if is_of_whole and max(map(abs, (first, last))) <= MAX_SIZE:
        return int(first) + step * np.arange(count, dtype=np.int64)
    return [first + step * place for place in range(count)]
