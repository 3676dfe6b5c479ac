"""The options of commands in a shell line or script, with its variables.

Assignments (`TP=8`, `ARGS="--tp $TP"`, `ARGS=(--tp "$TP")`, `ARGS+=(...)`) are followed in the
order in which they stand, whatever branches they stand in; `${NAME:-8}` has a default, and `$((A *
B))` is computed. What a script is given (`$1`) or asks others stays unknown.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from paleo.core.checks import number
from paleo.core.errors import SettingError

#: What only a command for Megatron-LM has; its other words may be anybody's.
_MARKS = re.compile(
    r"--(tensor-model-parallel-size|pipeline-model-parallel-size|micro-batch-size|"
    r"global-batch-size|num-attention-heads|model-parallel-size)\b"
)
_SUM = re.compile(r"\$\(\(([^()`\"']*)\)\)")
_COMMAND = re.compile(r"\$\([^()]*\)|`[^`]*`")
_NAME = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?-([^{}]*))?\}|\$(\w+)|\$\[([^\]]*)\]")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
#: What ends a command, or an array.
_ENDS = frozenset(";()<>|&\n")
#: What stands for something that nobody knows before the script runs.
UNKNOWN = "$?"
_MOST_WORDS = 100_000


def has_options(text: str) -> bool:
    """Tell whether a text is a command for Megatron-LM, or a script with one."""
    return _MARKS.search(text) is not None


def options_of(path: str, text: str) -> dict[str, Any]:
    """Return options by their names with two dashes: True, a text, or several.

    Those of all commands that have options of Megatron-LM, or of assignments where no command has.
    Raises SettingError for a quotation mark that is not closed.
    """
    try:
        commands = list(_Script().commands(text))
    except ValueError as error:
        said = "a quotation mark is not closed" if "quot" in str(error) else str(error)
        raise SettingError(f"{path}: not a shell script: {said}") from None
    words = [word for command in commands if has_options(" ".join(command)) for word in command]
    return _options(words)


class _Script:
    """The variables of a script, as far as it was read."""

    def __init__(self) -> None:
        self.known: dict[str, list[str]] = {}
        self.count = 0

    def commands(self, text: str) -> list[list[str]]:
        """Return the words of commands, and last those of variables if no command has options."""
        joined = re.sub(r"\\\r?\n", " ", text)
        joined = _SUM.sub(lambda sum_: f"$[{sum_[1].replace(' ', '')}]", joined)
        joined = _COMMAND.sub(lambda _: UNKNOWN, joined)
        lexer = shlex.shlex(joined, posix=True, punctuation_chars="".join(_ENDS))
        lexer.whitespace, lexer.whitespace_split = " \t\r", True
        found: list[list[str]] = [[]]
        words = list(lexer)
        words.reverse()
        while words:
            word = words.pop()
            assigned = _ASSIGNED.fullmatch(word)
            if assigned and not found[-1]:
                self._assign(assigned, words)
            elif set(word) <= _ENDS:
                found.append([])
            elif word not in ("export", "local", "readonly"):
                found[-1] += self.expanded(word)
        if not any(has_options(" ".join(command)) for command in found):
            found += self.known.values()
        return found

    def _assign(self, assigned: re.Match[str], words: list[str]) -> None:
        """Note a variable, of which the last of the `words` to come may be an array."""
        name, adds, value = assigned.groups()
        texts = self.expanded(value) if value else []
        if not value and words and words[-1][0] == "(":
            word = words.pop()
            while words and ")" not in word:
                word = words.pop()
                texts += [] if set(word) <= _ENDS else self.expanded(word)
        self.known[name] = [*self.known.get(name, []), *texts] if adds else texts

    def expanded(self, word: str) -> list[str]:
        """Return the words that a word stands for, with variables in their places."""
        if "$" not in word:
            return word.split() if word.lstrip().startswith("-") else [word]
        text = _NAME.sub(self._value, word)
        self.count += len(text)
        if self.count > 100 * _MOST_WORDS:
            raise ValueError("variables that stand for ever more")
        return text.split()

    def _value(self, found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        if found[4] is not None:
            return _computed(_NAME.sub(self._value, self._named(found[4])))
        if name in self.known:
            return " ".join(self.known[name])
        return default if default is not None else UNKNOWN

    def _named(self, text: str) -> str:
        """Return a sum in which variables, whose dollar may be left out, have their values."""
        text = _NAME.sub(self._value, text)
        return re.sub(r"[A-Za-z_]\w*", lambda name: "".join(self.known.get(name[0], ())), text)


def _computed(text: str) -> str:
    """Return the result of products, quotients, sums and differences of whole numbers."""
    parts = re.findall(r"\d+|[-+*/]", text)
    if not re.fullmatch(r"\d{1,9}([-+*/]\d{1,9})*", text):
        return UNKNOWN
    terms: list[int] = []
    for operator, value in zip(["+", *parts[1::2]], map(int, parts[::2]), strict=True):
        if operator == "/" and not value:
            return UNKNOWN
        if operator == "*":
            terms[-1] *= value
        elif operator == "/":
            terms[-1] = int(terms[-1] / value)
        else:
            terms.append(value if operator == "+" else -value)
    return str(sum(terms))


def _options(words: list[str]) -> dict[str, Any]:
    """Return the options of words, the last of each, with the word behind it and further numbers.

    A program that is started (`pretrain_gpt.py`) belongs to none.
    """
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            found[name] = [value] if equals else []
        elif word.endswith(".py"):
            name = ""
        elif name and (not found[name] or not isinstance(number(word), str)):
            found[name].append(word)
    return {name: _one(values) for name, values in found.items() if name.startswith("--")}


def _one(values: list[str]) -> Any:
    return True if not values else values[0] if len(values) == 1 else values
