"""The layers of a net in an order in which parents come before children."""

from __future__ import annotations

from paleo.core.errors import Mistakes
from paleo.net.spec import LayerSpec, NetSpec


def parents_first(net: NetSpec, mistakes: Mistakes) -> list[LayerSpec]:
    """Return the layers parents first, else in the file's order; notes a cycle as a mistake."""
    position = {spec.name: i for i, spec in enumerate(net.layers)}
    if all(position.get(p, -1) < i for i, spec in enumerate(net.layers) for p in spec.parents):
        return list(net.layers)
    import graphlib  # here, since most nets are in order
    import heapq

    # A parent with a mistake is not there.
    parents = [[position[p] for p in spec.parents if p in position] for spec in net.layers]
    while True:
        sorter = graphlib.TopologicalSorter(dict(enumerate(parents)))
        try:
            sorter.prepare()
            break
        except graphlib.CycleError as error:
            cycle: list[int] = error.args[1][1:]
        first = cycle.index(min(cycle))
        specs = [net.layers[i] for i in cycle[first:] + cycle[:first]]
        shown = [spec.name for spec in specs[:6]] + ["..."] * (len(specs) > 6)
        path = " -> ".join([*shown, specs[0].name])
        mistakes.add(f"a cycle: {path}", specs[0].name, "parents")
        for i in cycle:  # go on behind the cycle: there may be another
            parents[i] = []
    ready: list[int] = []
    order: list[LayerSpec] = []
    while sorter.is_active():
        for i in sorter.get_ready():
            heapq.heappush(ready, i)
        i = heapq.heappop(ready)
        order.append(net.layers[i])
        sorter.done(i)
    return order
