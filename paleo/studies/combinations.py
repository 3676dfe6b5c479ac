"""Combinations of settings as arrays: what each has, what follows of it, and which cannot be."""

from __future__ import annotations

from collections.abc import Mapping

from paleo.core.quantity import Array, np


class Combinations:
    """What plans and deployments as arrays have in common.

    `settings` are by name what each has, `columns` what follows. `said` are all texts of why one
    cannot be, after an empty one, `why` the place of each one's in them.
    """

    settings: Mapping[str, Array]
    columns: Mapping[str, Array]
    why: Array
    said: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.why)

    def __getitem__(self, name: str) -> Array:
        """Return a setting, or a column, of all by its name."""
        found = self.settings.get(name)
        return self.columns[name] if found is None else found

    @property
    def valid(self) -> Array:
        """Which can be."""
        found: Array = self.why == 0
        return found

    @property
    def reasons(self) -> Array:
        """Why each cannot be: texts, empty for one that can."""
        found: Array = np.array(self.said, object)[self.why]
        return found
