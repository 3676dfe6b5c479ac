"""The table of nets: what one chooses a predefined net by, and where it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from paleo.core.kinds import Pass
from paleo.core.tensor import format_shape
from paleo.net.graph import build_once
from paleo.net.spec import NetSpec
from paleo.views.table import Column, Table
from paleo.views.tables.base import cite

_COLUMNS = (
    Column("name", "net"),
    Column("input", "input"),
    Column("layers", "layers"),
    Column("params", "parameters"),
    Column("forward_flops_per_sample", "forward, of\none sample", "FLOP"),
    Column("cited", "cited", for_people=True),
    Column("source"),
)


def net_rows(nets: Iterable[tuple[str, NetSpec]]) -> list[dict[str, Any]]:
    """Return size, FLOPs of one sample and source of nets, each under the name it goes by."""
    rows = []
    for name, net in nets:
        graph = build_once(net, 1, "fp32")
        equal = Counter(node.like for node in graph.nodes)
        inputs = [spec.layer.infer_shape(()) for spec in net.layers if spec.layer.is_input]
        rows.append(
            {
                "name": name,
                "input": ", ".join(format_shape(shape[1:]) for shape in inputs),
                "layers": len(graph.nodes),
                "params": graph.num_params,
                "forward_flops_per_sample": sum(
                    count * graph.work(graph.nodes[like], Pass.FORWARD).flops
                    for like, count in equal.items()
                ),
                "source": net.source,
            }
        )
    return rows


def net_table(rows: list[dict[str, Any]]) -> Table:
    """Return the table of what `net_rows` found."""
    cited, sources = cite(rows, [[str(row["source"])] for row in rows])
    return Table("", _COLUMNS, cited, footnotes=sources)
