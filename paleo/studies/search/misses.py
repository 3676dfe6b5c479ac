"""By how much the nearest net misses constraints that none keeps to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paleo.core.units import scale_for
from paleo.net.spaces import Space
from paleo.net.spaces.layered import NotAdditiveError
from paleo.studies.search.dynamic import Bound, Solver, Wanted
from paleo.studies.search.quantities import QUANTITIES, Constraint

#: The dimensions of units that are shown in multiples.
_SCALED = ("s", "bytes", "J", "FLOP")


def amount(name: str, value: float) -> str:
    """Return a quantity in words: with its unit, to four digits; whole numbers in full."""
    quantity = QUANTITIES[name.partition("@")[0]]
    if quantity.unit in _SCALED:
        scale = scale_for([[value / 10]], quantity.unit)
        return f"{value / scale.factor:.4g} {scale.unit}"
    return f"{value:,.0f}" if quantity.is_whole else f"{value:.4g}"


def _share(share: float) -> str:
    return f"{100 * share:,.0f} %" if share >= 1 else f"{100 * share:.3g} %"


def _missed(name: str, value: float, end: float, *, is_over: bool) -> str:
    share = f" ({_share(abs(value - end) / abs(end))} off)" if end else ""
    return f"the {'least' if is_over else 'most'} {name} of any is {amount(name, value)}{share}"


def said_infeasible(
    solver: Solver, constraints: Sequence[Constraint], bounds: Sequence[Bound], space: Space
) -> str:
    """Return why no net of a space keeps to its constraints: what the nearest has."""
    alone = []
    for bound in bounds:
        texts = " and ".join(c.text for c in constraints if str(c.asked) == bound.name)
        for end, most in ((bound.most, False), (bound.least, True)):
            if end is None:
                continue
            (point,) = solver.found(Wanted({bound.name: most}))
            value = point.values[bound.name]
            if value < end if most else value > end:
                said = _missed(bound.name, value, end, is_over=not most)
                alone.append(f"no net of {space.name} has {texts}: {said}")
    if alone:
        return "constraint: " + "; ".join(alone)
    every = " and ".join(each.text for each in constraints)
    if any(bound.least is not None and bound.most is not None for bound in bounds):
        return f"constraint: no net of {space.name} has {every}, though each alone can be kept to"
    goals = {bound.name: bound.most is None for bound in bounds}
    try:
        points = solver.found(Wanted(goals))
    except NotAdditiveError:
        return f"constraint: no net of {space.name} has {every}, though each alone can be kept to"
    return nearest_of([point.values for point in points], constraints, f" of {space.name}")


def nearest_of(
    values: Sequence[Mapping[str, float]], constraints: Sequence[Constraint], of: str
) -> str:
    """Return what the net has that misses its constraints by the least share, at its worst."""

    def worst(found: Mapping[str, float]) -> float:
        return max(each.missed(found[str(each.asked)]) for each in constraints)

    nearest = min(values, key=worst)
    every = " and ".join(each.text for each in constraints)
    names = dict.fromkeys(str(each.asked) for each in constraints)
    has = " and ".join(f"{name} {amount(name, nearest[name])}" for name in names)
    off = f"{_share(worst(nearest))} off"
    return f"constraint: no net{of} has {every}: the nearest has {has} ({off})"
