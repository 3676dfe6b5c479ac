"""Operator tables: measured latencies of operators in Parquet files.

The layout is that of the package `aiconfigurator-core` (read: 0.12.0), in its folder `systems`:
data/SYSTEM/FAMILY/FRAMEWORK/VERSION/NAME_perf.parquet. GEMM and attention are predicted; the
rows of other tables are counted.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from paleo.cluster import Device
from paleo.core.errors import HardwareError, MeasurementError, Mistakes, SettingError, near_or_known
from paleo.core.frozen import dataclass
from paleo.core.optional import extra, package_folders
from paleo.core.quantity import Array, np
from paleo.core.tensor import element_size
from paleo.costs.tiled.backends import BACKENDS
from paleo.measure.validate import selection_tables
from paleo.measure.validate.block_tables import MSA
from paleo.measure.validate.cases import KEYS, Cases, OperatorGroup, Unpredicted, join
from paleo.measure.validate.collective_tables import TABLES, collective_cases
from paleo.measure.validate.expert_tables import MOE, WEIGHT_TYPES
from paleo.measure.validate.groups import CaseGroup
from paleo.measure.validate.latent_tables import CONTEXT, GENERATION, PRODUCTS
from paleo.measure.validate.linear_tables import GDN, MAMBA2
from paleo.measure.validate.module_tables import DSA, MODULES
from paleo.measure.validate.quantize_tables import QUANTIZE
from paleo.measure.validate.sparse_tables import DSV4
from paleo.measure.validate.spellings import UnmappedError, device_of
from paleo.measure.validate.table_files import Rows, Table, TableFile, check, none_of, of_each
from paleo.measure.validate.table_groups import Reading, table_cases
from paleo.measure.validate.table_kernels import (
    KERNEL,
    kernels_of,
    kernels_of_encoders,
    launches_of,
)

#: The framework whose tables are taken unless told otherwise.
_FRAMEWORK = "sglang"
#: Element types of tables.
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp8": "fp8"}
#: Types whose scales are of blocks, and what rows of them say in the column of the kernel if they
#: are modelled; those of other kernels are not.
_BLOCKS = {"fp8_block": ("fp8", "deepgemm")}

#: Tables that are read by themselves, by the name of the file without "_perf.parquet".
READINGS: Mapping[str, Reading] = {
    "moe": MOE,
    "context_mla": CONTEXT,
    "generation_mla": GENERATION,
    "mla_bmm": PRODUCTS,
    "scale_matrix": QUANTIZE,
    "computescale": QUANTIZE,
    "gdn": GDN,
    "kda": GDN,
    "mamba2": MAMBA2,
    "mla_context_module": MODULES,
    "mla_generation_module": MODULES,
    "dsa_context_module": DSA,
    "dsa_generation_module": DSA,
    "msa_context_module": MSA,
    "msa_generation_module": MSA,
    "dsv4_csa_context_module": DSV4,
    "dsv4_hca_context_module": DSV4,
    "dsv4_csa_generation_module": DSV4,
    "dsv4_hca_generation_module": DSV4,
    **selection_tables.READINGS,
}

#: Kernels that a backend launches around attention for the cache, which encoders do not have (as
#: the shortest of them show on the H100).
_OF_CACHE = {"trtllm": 2}

_Columns: TypeAlias = Mapping[str, Array]
_Letters: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Selection:
    """Which operator tables, and which of their rows; empty for all.

    Of frameworks that is sglang, of versions the newest that a system has of a table. Of a table
    with more rows than `sample`, if that is not 0, as many are taken, spread evenly over it.
    """

    systems: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    sample: int = 0


@dataclass(frozen=True)
class _Family:
    """A kind of table: how its columns become the letters of an operator.

    `columns` has those of numbers; `dtype` is the column of element types, `cache_dtype` that of a
    cache's if there is one. `letters(columns, framework, dtype, is_narrow)` gives arrays for rows
    of one type; `is_narrow` tells whether elements of the cache have one byte.
    """

    operator: str
    kind: str
    columns: tuple[str, ...]
    dtype: str
    letters: Callable[[_Columns, str, str, bool], _Letters]
    cache_dtype: str = ""
    also: tuple[str, ...] = ()


# What a latency covers is in the package's repository, collector/*/collect_gemm.py and
# collect_attn.py: products in fp8 quantize their bf16 input first, each backend with its own
# kernels; attention is called as a server does, which stores new keys and values in
# the cache and, with a cache in fp8, casts the queries. Some launch further kernels, as many as
# the shortest latencies show.


def _gemm(columns: _Columns, framework: str, dtype: str, is_narrow: bool) -> _Letters:
    letters: _Letters = {"M": columns["m"], "N": columns["n"], "K": columns["k"], "kernels": 0}
    runs = BACKENDS[framework].products if framework in BACKENDS else {}
    known = framework if dtype in runs else 0
    letters |= {"quantized": int(dtype == "fp8" and not known), "backend": known}
    return letters | {"blocks": int(dtype in _BLOCKS)}


def _heads(columns: _Columns, framework: str, kv_bytes: int) -> _Letters:
    depth = columns["head_dim"]
    # Keys of 192 features are those of models whose values have 128.
    values = np.where(depth == 192, 128, depth) if framework == "sglang" else depth
    return {
        "batch": columns["batch_size"],
        "heads": columns["num_heads"],
        "kv_heads": columns["num_key_value_heads"],
        "head_dim": depth,
        "value_dim": values,
        "window": columns.get("window_size", 0),
        "kv_bytes": kv_bytes,
        "kernel": 0,
        "widened": 0,
        "fresh": 0,
        "causal": 1,
        "stored": 1,
        "rotated": 0,
        "cast": 0,
        "kernels": 1,
    }


def _context(columns: _Columns, framework: str, dtype: str, is_narrow: bool) -> _Letters:
    found = _heads(columns, framework, int(is_narrow and dtype != "fp8"))
    found |= {"queries": columns["isl"], "keys": columns["isl"] + columns["step"]}
    if framework == "trtllm":
        found |= {"stored": 0, "rotated": 1, "kernels": 3 if is_narrow else 2}
    elif framework == "vllm":
        found |= {"cast": int(is_narrow)}
    return found


def _generation(columns: _Columns, framework: str, dtype: str, is_narrow: bool) -> _Letters:
    found = _heads(columns, framework, int(is_narrow and dtype != "fp8"))
    # The new key is one of the keys.
    found |= {"queries": 1, "keys": columns["step"] + 1, "cast": int(is_narrow)}
    if framework == "trtllm":
        found |= {"stored": int(not is_narrow), "cast": 0, "kernels": 0}
    elif framework == "sglang" and not is_narrow:
        found |= {"kernels": 0}
    return found


def _encoder(columns: _Columns, framework: str, dtype: str, is_narrow: bool) -> _Letters:
    bare = {**columns, "num_key_value_heads": columns["num_heads"]}
    found = _heads(bare, framework, 0)
    # TensorRT-LLM takes queries, keys and values apart in a kernel before, as with rotations.
    rotated = int(framework == "trtllm")
    alone = {
        "value_dim": columns["head_dim"],
        "causal": 0,
        "stored": 0,
        "rotated": rotated,
        "kernels": 0,
    }
    return found | alone | {"queries": columns["isl"], "keys": columns["isl"]}


_ATTENTION = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step")

#: The tables that can be predicted, by the name of the file without "_perf.parquet".
OPERATORS: dict[str, _Family] = {
    "gemm": _Family("gemm", "gemm", ("m", "n", "k"), "gemm_dtype", _gemm),
    "context_attention": _Family(
        "attention", "attention prefill", _ATTENTION, "attn_dtype", _context, "kv_cache_dtype",
        ("window_size",),
    ),
    "generation_attention": _Family(
        "attention", "attention decode", _ATTENTION, "attn_dtype", _generation, "kv_cache_dtype",
        ("window_size",),
    ),
    "encoder_attention": _Family(
        "attention", "attention encoder", ("batch_size", "isl", "num_heads", "head_dim"),
        "attn_dtype", _encoder,
    ),
}  # fmt: skip


def operator_cases(place: str | os.PathLike[str], selection: Selection | None = None) -> Cases:
    """Return the cases of operator tables.

    `place` is a folder that has such tables anywhere below it, one such file, or the name of an
    installed package. Raises MeasurementError or SettingError with every mistake.
    """
    chosen = selection or Selection()
    tables = _chosen(_found(place), chosen)
    mistakes = Mistakes()
    found = mistakes.check_all(lambda table: _read(table, chosen.dtypes, chosen.sample), tables)
    mistakes.raise_as(MeasurementError)
    return join(found)


def place_of(place: str | os.PathLike[str]) -> Path:
    """Return a file or a folder, where a package of this name is if it is neither.

    Raises MeasurementError if there is none.
    """
    name = os.fspath(place)
    root = Path(name)
    if root.is_file() or root.is_dir():
        return root
    module = name.replace("-", "_")
    folders = package_folders(module) if module.isidentifier() else []
    if not folders:
        raise MeasurementError(f"{name}: no such file or folder, and no such package is installed")
    return folders[0]


def _found(place: str | os.PathLike[str]) -> list[Table]:
    """Return all tables in a place."""
    root = place_of(place)
    if root.is_file():
        return [_table(root)]
    is_installed = root != Path(place)
    tables = _installed(root) if is_installed else _below(root)
    if not tables:
        raise MeasurementError(f"{os.fspath(place)}: there are no Parquet files in it")
    return tables


def _below(root: Path) -> list[Table]:
    return [_table(path) for path in sorted(root.rglob("*.parquet"))]


#: Of a package, which stays as it is, one table after the other may be asked for.
_installed = functools.cache(_below)


def _table(path: Path) -> Table:
    parts = path.absolute().parts[:-1]
    if len(parts) >= 5 and parts[-5] == "data":
        system, _, framework, version = parts[-4:]
        return Table(path, system, framework, version)
    return Table(path, "", "", "")


def _chosen(tables: list[Table], selection: Selection) -> list[Table]:
    """Return the tables that are selected, of each the newest version unless some are named."""
    mistakes = Mistakes()
    wanted = {
        "system": selection.systems,
        "operator": selection.operators,
        "framework": selection.frameworks,
        "version": selection.versions,
    }
    for option, chosen in wanted.items():
        names = {getattr(table, option) for table in tables}
        for name in chosen:
            if name not in names:
                known = near_or_known(name, sorted(names - {""}))
                mistakes.add(f"{option}: there are no operator tables of {name!r}{known}")
    for dtype in selection.dtypes:
        if dtype not in (*_DTYPES.values(), *_BLOCKS, *WEIGHT_TYPES):
            known = ", ".join(sorted({*_DTYPES.values(), *_BLOCKS, *WEIGHT_TYPES}))
            mistakes.add(f"dtype: no operator tables of {dtype!r} are modelled; there are: {known}")
    mistakes.raise_as(SettingError)
    if not selection.frameworks and any(table.framework == _FRAMEWORK for table in tables):
        wanted["framework"] = (_FRAMEWORK, "")
    kept = [
        table
        for table in tables
        if all(not chosen or getattr(table, option) in chosen for option, chosen in wanted.items())
    ]
    if not selection.versions:
        newest: dict[tuple[str, ...], Table] = {}
        for table in kept:
            path = "" if table.system else os.fspath(table.path)
            key = (table.system, table.framework, table.operator, path)
            versions = (newest.get(key, table), table)
            newest[key] = max(versions, key=lambda version: _order(version.version))
        kept = list(newest.values())
    if not kept:
        raise SettingError("no operator table has all that was selected")
    return kept


def _order(version: str) -> list[tuple[int, str]]:
    """Return a key that sorts 0.5.9 before 0.5.10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part)
        for part in re.findall(r"\d+|[a-z]+", version)
    ]


def _read(table: Table, dtypes: Sequence[str], sample: int) -> Cases:
    """Return the cases of one table."""
    arrow = extra("pyarrow", "reading operator tables", "pyarrow")
    family = OPERATORS.get(table.operator)
    try:
        file = TableFile(table.path, sample)
        if table.operator in TABLES:
            return collective_cases(table, file)
        if table.operator in READINGS:
            return table_cases(table, file, READINGS[table.operator], dtypes)
        if family is None:
            reason = f"operator table {table.operator!r} is not modelled"
            source = table.system or table.path.stem
            return none_of([Unpredicted(reason, source, len(file.rows))])
        columns = _columns(table, family, file)
    except (OSError, arrow.ArrowException) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MeasurementError(f"{table.path}: not a Parquet file: {text}") from None
    check(table, (family.dtype,), (*family.columns, *family.also), columns, file.rows)
    system = table.system or _one(columns, "device")
    rows = Rows(len(columns["latency"]), system)
    words = columns[family.dtype]
    for word in sorted(set(words.tolist())):
        dtype = word if word in _BLOCKS else _DTYPES.get(word)
        if dtypes and dtype not in dtypes:
            rows.left &= words != word
        elif dtype in _BLOCKS:
            _leave_out_blocks(table, columns, rows, word)
        elif dtype is None:
            rows.leave_out(f"{table.operator} in {word} is not modelled", words == word)
    if family.cache_dtype:
        for word in sorted(set(columns[family.cache_dtype].tolist()) - set(_DTYPES)):
            of_it = columns[family.cache_dtype] == word
            rows.leave_out(f"{table.operator} with a cache in {word} is not modelled", of_it)
    if "num_key_value_heads" in columns:
        uneven = columns["num_heads"] % columns["num_key_value_heads"] != 0
        rows.leave_out(f"{table.operator}: heads that do not share keys evenly", uneven)
    try:
        device = device_of(system)
    except UnmappedError as error:
        rows.leave_out(str(error), rows.left)
        return none_of(rows.reasons)
    for word in sorted(set(words[rows.left].tolist())):
        try:
            device.peak(_dtype(word))  # says which types it has
        except HardwareError as error:
            rows.leave_out(str(error.mistakes[0]), words == word)
    if not rows.left.any():
        return none_of(rows.reasons)
    return _cases(table, family, columns, rows, device, file.rows)


def _columns(table: Table, family: _Family, file: TableFile) -> dict[str, Array]:
    needed = [*family.columns, family.dtype, "latency"]
    needed += [family.cache_dtype] if family.cache_dtype else []
    if missing := [name for name in needed if name not in file.names]:
        raise MeasurementError(f"{table.path}: no column {', '.join(missing)}")
    return file.columns([*needed, *family.also, "device", "framework", "version", KERNEL])


def _cases(
    table: Table, family: _Family, columns: _Columns, rows: Rows, device: Device, numbers: Array
) -> Cases:
    kept = rows.left.nonzero()[0]
    own = {name: values[kept] for name, values in columns.items()}
    sizes = own[family.cache_dtype or family.dtype]
    framework = (table.framework or _one(own, "framework")).lower()
    words = own[family.dtype]
    dtypes = of_each(words, _dtype)
    parts: list[CaseGroup] = []
    kernels: Array = np.zeros(len(kept), object)
    if family.cache_dtype:
        is_narrow = of_each(sizes, lambda word: element_size(_dtype(word)) == 1).astype(bool)
        kernels = kernels_of(own, framework, device.architecture, is_narrow)
    elif family.kind == "attention encoder":
        kernels = kernels_of_encoders(own, framework, device.architecture, len(kept))
    kinds = dtypes + " " + sizes + " " + kernels.astype(str)
    for kind in np.unique(kinds):
        places = (kinds == kind).nonzero()[0]
        sizes_of = {
            name: values[places].astype(np.int64)
            for name, values in own.items()
            if name in (*family.columns, *family.also)
        }
        dtype = str(dtypes[places[0]])
        size = element_size(_dtype(sizes[places[0]]))
        word = str(words[places[0]])
        scheme = word if word in _BLOCKS else dtype
        letters = family.letters(sizes_of, framework, scheme, size == 1)
        if kernel := kernels[places[0]]:
            launched = launches_of(framework, kernel, size == 1)
            if launched and family.kind == "attention encoder":
                launched = max(launched - _OF_CACHE.get(framework, 0), 0)
            if framework == "vllm" and kernel == "trtllm_gen_context" and size == 1:
                # vllm/v1/attention/backends/flashinfer.py: trtllm_prefill_attn_kvfp8_dequant
                letters |= {"widened": 1, "cast": 0}
            if framework == "sglang" and kernel == "flashinfer_prefill":
                # python/sglang/srt/layers/attention/flashinfer_backend.py: forward_extend
                letters |= {"fresh": 1}
            letters |= {"kernel": kernel} | ({} if launched is None else {"kernels": launched})
        parts.append(OperatorGroup(places, device, dtype, (), family.operator, "forward", letters))
    texts = {
        "source": rows.system,
        "stratum": of_each(
            words, lambda word: f"{family.kind} {word if word in _BLOCKS else _dtype(word)}"
        ),
        "kind": family.kind,
        "operator": table.operator,
        "network": f"op:{family.operator}",
        "device": device.name,
        "precision": words,
        "dtype": dtypes,
        "framework": framework,
        "library_version": table.version or _one(own, "version"),
        "kernel": own.get(KERNEL, ""),
        "quantity": "op_ms",
        "direction": "forward",
        "n_devices": "1",
        "stack": "",
        "memory_format": "",
        "compiled": "",
        "file": os.fspath(table.path),
    }
    labels = {key: np.full(len(kept), texts[key], object) for key in KEYS}
    begin = f"{table.where or table.path.stem}/{table.operator}"
    ids = np.array([f"{begin}:{row}" for row in numbers[kept].tolist()], object)
    return Cases(own["latency"] * 1e-3, ids, labels, tuple(parts), tuple(rows.reasons))


def _dtype(word: str) -> str:
    """Return the element type that a table's word stands for."""
    return _BLOCKS[word][0] if word in _BLOCKS else _DTYPES[word]


def _leave_out_blocks(table: Table, columns: _Columns, rows: Rows, word: str) -> None:
    """Leave out the rows whose scales are of blocks but for those of the kernel that is known."""
    _, kernel = _BLOCKS[word]
    texts = columns.get(KERNEL, np.full(len(rows.left), "", object)).tolist()
    backend = (table.framework or _one(columns, "framework")).lower()
    runs = BACKENDS[backend].products if backend in BACKENDS else {}
    is_known = np.array([word in runs and kernel in text.lower() for text in texts], bool)
    others = (columns[OPERATORS[table.operator].dtype] == word) & ~is_known
    rows.leave_out(f"{table.operator} in {word} is not modelled", others)


def _one(columns: _Columns, name: str) -> str:
    values = columns.get(name)
    return "" if values is None or not len(values) else str(values[0])
