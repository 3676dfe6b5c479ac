"""Tables of collectives: of NCCL, and of the kernels that serving frameworks have.

They are those of the package `aiconfigurator-core` (read: 0.12.0). `nccl_perf` has what nccl-tests
print (collector/collect_nccl.py: out of place, means of many), sizes in elements;
`custom_allreduce_perf` what frameworks take for an all-reduce, in CUDA graphs or eagerly. Some of
these files are copies of others: of which framework and version a row is, its own columns say.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paleo.cluster import Cluster, Device, find_cluster
from paleo.cluster.collectives import custom
from paleo.core.errors import MeasurementError
from paleo.core.frozen import NamedTuple
from paleo.core.quantity import Array, np, product
from paleo.measure.validate.cases import KEYS, Cases
from paleo.measure.validate.collectives import OPERATIONS, CollectiveGroup, Exchange
from paleo.measure.validate.spellings import UnmappedError, device_of
from paleo.measure.validate.table_files import Rows, Table, TableFile, check, none_of
from paleo.measure.validate.table_kernels import KERNEL

#: The tables, and their columns besides those of every table: of texts, of numbers.
TABLES = {"nccl": "nccl_dtype", "custom_allreduce": "allreduce_dtype"}
NUMBERS = ("num_gpus", "message_size")
TEXTS = ("op_name", "backend", "implementation", "framework", "version")
_ELEMENTS = {"half": 2, "float16": 2, "bfloat16": 2, "int8": 1, "float": 4}
#: NVLink's switches sum up no integers of one byte.
_UNSUMMED = ("int8",)
#: The cluster that a device's measured collectives are taken to be of.
CLUSTERS = {
    "A100_SXM_80GB": "dgx_a100",
    "H100_SXM": "dgx_h100",
    "H200_SXM": "hgx_h200",
    "B200_SXM": "hgx_b200",
    "B300_SXM": "hgx_b200",
    "GB200": "gb200_nvl72",
    "GB300": "gb200_nvl72",
    "L40S": "l40s_pcie",
    "RTX_PRO_6000": "rtx_pro_6000_pcie",
}
#: Devices of one host, beyond which its kernels reach no memory, where that is not a tier.
_HOSTS = {"gb200_nvl72": 4}
#: The first versions of frameworks whose kernels push messages instead of reading them.
_PUSHED = {"trtllm": (1, 0), "sglang": (0, 5, 12)}


class TableRows(NamedTuple):
    """The rows of a table that are predicted: groups, and which rows are left out, by reason."""

    groups: list[tuple[Array, Exchange, Array, Array]]
    left_out: dict[str, Array]
    strata: Array


def table_rows(
    operator: str, columns: Mapping[str, Array], device: Device, framework: str, version: str
) -> TableRows:
    """Return what to predict for the rows of a table of collectives.

    A group has places of rows, what they have in common, workers and bytes of each. Raises
    UnmappedError where no cluster of the device is known.
    """
    if device.name not in CLUSTERS:
        raise UnmappedError(f"no cluster of {device.name} is known")
    cluster = find_cluster(CLUSTERS[device.name])
    words, operations = columns[TABLES[operator]], columns["op_name"]
    workers = columns["num_gpus"].astype(np.int64)
    count = len(words)
    left_out: dict[str, Array] = {}
    kept = np.ones(count, bool)

    def leave_out(reason: str, rows: Array) -> None:
        nonlocal kept
        if (rows & kept).any():
            left_out[reason] = rows & kept
            kept = kept & ~rows

    for word in sorted(set(words.tolist()) - set(_ELEMENTS)):
        leave_out(f"{operator} in {word} is not modelled", words == word)
    for name in sorted(set(operations.tolist()) - set(OPERATIONS)):
        leave_out(f"collective {name!r} is not modelled", operations == name)
    kernels = np.full(count, "", object)
    links = cluster.tiers[0].network.nccl
    if operator == "custom_allreduce":
        modes = columns.get("backend", np.full(count, "", object)).astype(str)
        is_eager = np.char.endswith(modes, "eager")
        leave_out("custom_allreduce in eager mode waits for the host, not modelled", is_eager)
        most: Any = _HOSTS.get(cluster.name) or product(
            tier.size
            for tier in cluster.tiers
            if tier.network.nccl and tier.network.nccl.kind != "network"
        )
        leave_out("custom_allreduce beyond one host is not modelled", workers > most)
        if links and "kernel" in links.figures:  # else frameworks leave it to NCCL
            frameworks = columns.get("framework", np.full(count, framework, object))
            versions = columns.get("version", np.full(count, version, object))
            for software in set(zip(frameworks.tolist(), versions.tolist(), strict=True)):
                rows = (frameworks == software[0]) & (versions == software[1])
                kernels[rows] = _kernels(*software, is_on_pcie=links.kind == "pci")
    sizes = np.array([_ELEMENTS.get(word, 1) for word in words.tolist()])
    num_bytes = columns["message_size"].astype(np.int64) * sizes
    library = version if operator == "nccl" and framework == "nccl" else ""
    groups = []
    for name in sorted(set(operations[kept].tolist())):
        own = kept & (operations == name)
        for is_unsummed, kind in itertools.product((False, True), sorted(set(kernels[own]))):
            rows = own & (np.isin(words, _UNSUMMED) == is_unsummed) & (kernels == kind)
            if rows.any():
                places = rows.nonzero()[0]
                on = _unsummed(cluster) if is_unsummed else cluster
                exchange = Exchange(on, OPERATIONS[name], library, kind)
                groups.append((places, exchange, workers[places], num_bytes[places]))
    strata = operations + " x" + workers.astype(str).astype(object)
    return TableRows(groups, left_out, strata)


def _kernels(framework: str, version: str, is_on_pcie: bool) -> str:
    """Return the kernels that a version of a framework has, "" where it has NCCL's.

    On PCIe TensorRT-LLM has none, and SGLang's of all versions are those with barriers.
    """
    since = _PUSHED.get(framework.casefold())
    is_pushed = since is not None and _numbers(version) >= since
    if is_on_pcie:
        return "" if framework.casefold() == "trtllm" else custom.BARRIERS.name
    return custom.PUSHED.name if is_pushed else custom.BARRIERS.name


def _unsummed(cluster: Cluster) -> Cluster:
    return replace(cluster, tiers=tuple(replace(tier, sums=False) for tier in cluster.tiers))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def collective_cases(table: Table, file: TableFile) -> Cases:
    """Return the cases of a table of collectives."""
    needed = [TABLES[table.operator], "op_name", *NUMBERS, "latency"]
    if missing := [name for name in needed if name not in file.names]:
        raise MeasurementError(f"{table.path}: no column {', '.join(missing)}")
    columns = file.columns((*needed, *TEXTS, KERNEL))
    check(table, ("op_name", TABLES[table.operator]), NUMBERS, columns, file.rows)
    rows = Rows(len(columns["latency"]), table.system)
    try:
        device = device_of(table.system)
        found = table_rows(table.operator, columns, device, table.framework, table.version)
    except UnmappedError as error:
        rows.leave_out(str(error), rows.left)
        return none_of(rows.reasons)
    for reason, left_out in found.left_out.items():
        rows.leave_out(reason, left_out)
    kept = rows.left.nonzero()[0]
    places = np.cumsum(rows.left) - 1
    parts = tuple(
        CollectiveGroup(places[index], device, "", (), exchange, workers, num_bytes)
        for index, exchange, workers, num_bytes in found.groups
    )
    words = columns[TABLES[table.operator]][kept]
    texts = {
        "source": table.system,
        "stratum": found.strata[kept],
        "kind": f"collective {table.operator}",
        "operator": table.operator,
        "network": np.array([f"op:{name}" for name in columns["op_name"][kept]], object),
        "device": device.name,
        "precision": words,
        "dtype": words,
        "framework": table.framework,
        "library_version": table.version,
        "kernel": columns[KERNEL][kept] if KERNEL in columns else "",
        "quantity": "op_ms",
        "direction": "forward",
        "n_devices": columns["num_gpus"][kept].astype(np.int64).astype(str).astype(object),
        "file": os.fspath(table.path),
    }
    labels = {key: np.full(len(kept), texts.get(key, ""), object) for key in KEYS}
    begin = f"{table.where}/{table.operator}"
    ids = np.array([f"{begin}:{row}" for row in file.rows[kept].tolist()], object)
    measured = columns["latency"][kept] * 1e-3
    return Cases(measured, ids, labels, parts, tuple(rows.reasons))
