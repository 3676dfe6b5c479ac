"""Collectives beside published measurements, and the fit of the constants of links.

    python benchmarks/collectives.py          print errors by system, operation and algorithm
    python benchmarks/collectives.py --fit    fit the constants on A100 and H100, and print them
    python benchmarks/collectives.py --bands  write the error bands, of systems that no fit has seen

The measurements are the tables of the package aiconfigurator-core 0.12.0 (`--operators`; the
installed package unless told) and files of a folder (`--measured`, ../shared/measured unless told):
pip install -e ".[validate]". Constants are fitted within bounds to the A100's and the H100's tables
alone, but for those of PCIe; what is printed is rounded and written into paleo/cluster/networks/ by
hand. All that is fitted is in LINKS, SHARED and KERNELS: of each link these three and `kernel`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paleo.cluster import Cluster
from paleo.cluster.collectives import custom, nccl
from paleo.cluster.network import Network
from paleo.core.optional import extra
from paleo.costs.collective_bands import FILE
from paleo.measure.validate import (
    Cases,
    Selection,
    cases_of,
    operator_cases,
    predict,
    read_measurements,
)
from paleo.measure.validate.bands import pooled
from paleo.measure.validate.collectives import CollectiveGroup

ROOT = Path(__file__).parents[1]
MEASURED = ROOT.parent / "shared" / "measured"
PACKAGE = "aiconfigurator_core"

#: Constants of a link, with their bounds in SI units.
LINKS: Mapping[str, tuple[float, float]] = {
    "launch": (1e-6, 2e-5),
    "hop": (2e-7, 4e-6),
    "ramp": (1e-7, 4e-4),
}
#: Cycles a second of the multiprocessors of the devices, by which channels copy.
CLOCKS = {"nvlink3": 1.41e9, "nvlink4": 1.98e9}
#: Constants that are the same for all links, with their bounds.
SHARED: Mapping[str, tuple[float, float]] = {
    "bytes_a_cycle": (3, 30),
    "fill": (0, 0.6),
    "start": (1.5, 6),
    "message_start": (1, 4),
    "blend": (1, 4),
    "tail": (0.1, 2),
    "unpack": (0.1, 1),
    "sums": (0.6, 1),
    "message_share": (0.7, 1),
}
#: The bounds of the shortest kernel over a link, in seconds.
KERNEL = (1e-6, 1e-5)
#: Constants of kernels, by the kind of kernel.
KERNELS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "barriers": {
        "waits": (1, 3), "hops": (0, 9), "one_share": (0.4, 1), "per_doubling": (0, 0.4),
        "round_trip": (0.5, 4), "ends": (1, 3),
    },
    "pushed": {"hops": (0, 9), "one_share": (0.4, 1), "two_share": (0.3, 1)},
}  # fmt: skip
#: Systems of the tables, with the most that their median error may be, in percent.
SYSTEMS = {
    "a100_sxm": 6, "h100_sxm": 6, "h200_sxm": 10, "b200_sxm": 10, "gb200": 10, "b300_sxm": 10,
    "gb300": 10, "l40s": 15, "rtx_pro_6000_server": 15,
}  # fmt: skip
#: The same of kernels of serving frameworks, and of published files.
OF_KERNELS = OF_FILES = 12
FILES = ("vidur_collectives", "deepbench", "stas_mlengineering", "llmcompass")
#: Systems that constants are fitted to, and the networks whose constants they are.
FITTED = {"a100_sxm": "nvlink3", "h100_sxm": "nvlink4"}
#: The same of which the shortest kernel alone is fitted.
KERNEL_ALONE = {"b200_sxm": "nvlink5"}
#: Schemes with error bands: the operator of their tables, what they are called, and the systems
#: that nothing was fitted to.
BANDS = {
    "auto": (
        "nccl", "collectives of NCCL over NVLink in a node",
        ("h200_sxm", "b200_sxm", "gb200", "b300_sxm", "gb300"),
    ),
    "custom_all_reduce": (
        "custom_allreduce", "kernels of serving frameworks over NVLink in a node",
        ("h200_sxm", "gb200", "b300_sxm", "gb300"),
    ),
}  # fmt: skip
#: The share of cases inside of a band.
COVERAGE = 0.8
ON_PCIE = {"l40s": "pcie4", "rtx_pro_6000_server": "pcie5"}


def table(operators: str, system: str, operator: str) -> Cases:
    """Return the cases of a system's tables of an operator, of all versions."""
    folder = _folder(operators) / "data" / system / "comm"
    found = sorted(folder.glob(f"*/*/{operator}_perf.parquet"))
    return operator_cases(
        operators,
        Selection(
            systems=(system,),
            operators=(operator,),
            frameworks=tuple(sorted({path.parts[-3] for path in found})),
            versions=tuple(sorted({path.parts[-2] for path in found})),
        ),
    )


def _folder(operators: str) -> Path:
    if Path(operators).is_dir():
        return Path(operators)
    from paleo.core.optional import package_folders

    return package_folders(operators)[0] / "systems"


def short(cases: Cases) -> Cases:
    """Return the cases whose message is short enough for a kernel of one's own."""
    lengths = np.empty(len(cases))
    for part in cases.parts:
        assert isinstance(part, CollectiveGroup)
        lengths[part.index] = part.num_bytes
    return cases.select(lengths < custom.BARRIERS.limit)


def rows_of(measured: Path, file: str) -> Cases:
    """Return the cases of a file's rows of collectives."""
    rows = read_measurements(measured / f"{file}.csv")
    return cases_of(row for row in rows if row.operator in ("allreduce", "send_recv"))


def error_line(title: str, cases: Cases, predicted: Any = None) -> str:
    """Return count, median, mean and 90th percentile of the error, and the bias, in percent."""
    seconds = predict(cases, "tiled") if predicted is None else predicted
    ratios = seconds / cases.measured - 1
    known = np.isfinite(ratios)
    if not known.any():
        return f"{title:44} none of {len(cases)}\n"
    errors = 100 * np.abs(ratios[known])
    return (
        f"{title:44} {len(errors):6} {np.median(errors):6.1f} {errors.mean():6.1f} "
        f"{np.quantile(errors, 0.9):6.1f} {100 * np.median(ratios[known]):+6.1f}\n"
    )


def report(operators: str, measured: Path) -> Iterator[str]:
    """Yield lines of errors."""
    yield f"{'':44} {'cases':>6} {'median':>6} {'mean':>6} {'90th':>6} {'bias':>6}\n"
    for system in SYSTEMS:
        cases = table(operators, system, "nccl")
        yield error_line(f"NCCL, {system}", cases)
        strata = cases.labels["network"].astype(str)
        for operation in sorted(set(strata.tolist())):
            yield error_line(
                f"    {operation.removeprefix('op:')}", cases.select(strata == operation)
            )
    for system in SYSTEMS:
        yield error_line(
            f"custom_allreduce, {system}", short(table(operators, system, "custom_allreduce"))
        )
    for file in FILES:
        if (measured / f"{file}.csv").is_file():
            yield error_line(file, rows_of(measured, file))


# Error bands


def bands(operators: str) -> str:
    """Return the file of error bands: every system counts as much, however many its rows are.

    They are as wide as they have to be to have COVERAGE of the rows of a system that is left out,
    on average. Kernels of serving frameworks are for short messages; what NCCL sends has no most
    bytes, since longer messages go on as fast as the longest that were measured. Networks that
    constants are fitted to count as those of the systems that were held out.
    """
    lines = [
        "# Error bands: of collectives like these the share `coverage` took between `low` and",
        "# `high` times as long as predicted. Written by benchmarks/collectives.py --bands.",
        f"coverage = {COVERAGE}",
    ]
    for scheme, (operator, said, systems) in BANDS.items():
        tables = [table(operators, system, operator) for system in systems]
        if scheme != "auto":
            tables = [short(cases) for cases in tables]
        logs = [np.log(each.measured / predict(each, "tiled")) for each in tables]
        widths = np.arange(1, 3, 0.01)
        width = next(each for each in widths if _held(logs, each).mean() >= COVERAGE)
        low, high = np.exp(_ends(logs, width))
        parts = [part for cases in tables for part in cases.parts]
        groups = [part for part in parts if isinstance(part, CollectiveGroup)]
        names = sorted({part.exchange.operation.value for part in groups})
        links = {part.exchange.cluster.tiers[0].network.name for part in groups}
        held = ", ".join(f"{100 * share:.0f}" for share in _held(logs, width))
        lines += [
            "",
            f"# {', '.join(systems)}: left out, {held} % of their rows are inside of the others'.",
            "[[band]]",
            f'scheme = "{scheme}"',
            f"networks = {json.dumps(sorted(links.union(FITTED.values())))}",
            f"collectives = {json.dumps(names)}",
            f"workers = {max(int(part.workers.max()) for part in groups)}",
            *([] if scheme == "auto" else [f"num_bytes = {custom.BARRIERS.limit - 1}"]),
            f"low = {low:.4g}",
            f"high = {high:.4g}",
            f"count = {sum(map(len, logs))}",
            f'said = "{said}, on {len(systems)} systems of one source"',
        ]
    return "\n".join(lines) + "\n"


def _ends(logs: Sequence[Any], width: float) -> Any:
    """Return both ends of the logarithms of several systems, so many times as wide."""
    groups = np.repeat(np.arange(len(logs)), [len(each) for each in logs])
    return width * np.array(pooled(np.concatenate(logs), groups, COVERAGE))


def _held(logs: Sequence[Any], width: float) -> Any:
    """Return of each system the share of its rows that is inside of the band of the others."""
    shares = []
    for i, own in enumerate(logs):
        low, high = _ends([*logs[:i], *logs[i + 1 :]], width)
        shares.append(((own >= low) & (own <= high)).mean())
    return np.array(shares)


# The fit


def with_link(cluster: Cluster, network: str, values: Mapping[str, float]) -> Cluster:
    """Return a cluster in which a network has other constants."""

    def changed(found: Network) -> Network:
        if found.name != network or found.nccl is None:
            return found
        figures = dict(found.nccl.figures)
        for name, value in values.items():
            figures[name] = replace(figures[name], value=value)
        return replace(found, nccl=replace(found.nccl, figures=figures))

    return cluster.with_networks(changed)


def predicted(
    cases: Cases, network: str, values: Mapping[str, float], shared: Mapping[str, float]
) -> Any:
    """Return the seconds of cases of NCCL by these constants."""
    found = np.empty(len(cases))
    facts: dict[str, Any] = dict(shared)
    copied = facts.pop("bytes_a_cycle")
    if network in CLOCKS:
        values = {**values, "channel": copied * CLOCKS[network]}
    for part in cases.parts:
        assert isinstance(part, CollectiveGroup)
        cluster, operation, library, _ = part.exchange
        software = replace(nccl.Nccl(library or nccl.CURRENT.version), **facts)
        group = with_link(cluster, network, values).group(part.workers)
        found[part.index] = nccl.seconds(group, part.num_bytes, operation, software)
    return found


def predicted_kernels(
    cases: Cases, network: str, kernel: float, kinds: Mapping[str, Mapping[str, float]]
) -> Any:
    """Return the seconds of cases of kernels by these constants."""
    found = np.empty(len(cases))
    for part in cases.parts:
        assert isinstance(part, CollectiveGroup)
        kind = part.exchange.kernels
        base = custom.PUSHED if kind == "pushed" else custom.BARRIERS
        facts: dict[str, Any] = dict(kinds[kind])
        kernels = replace(base, **facts)
        group = with_link(part.exchange.cluster, network, {"kernel": kernel}).group(part.workers)
        found[part.index] = custom.seconds(group, part.num_bytes, kernels)
    return found


def solved(
    start: Sequence[float], bounds: Sequence[tuple[float, float]], residuals: Any
) -> list[float]:
    """Return the values within bounds that make a robust sum of logarithmic errors small."""
    least_squares = extra("scipy.optimize", "fitting", "SciPy").least_squares

    low, high = np.array(bounds).T
    places = np.clip((np.array(start) - low) / (high - low), 0.01, 0.99)
    best = least_squares(
        lambda place: residuals(low + place * (high - low)),
        places, bounds=(0, 1), loss="soft_l1", f_scale=0.05, diff_step=1e-4, xtol=1e-5, ftol=1e-5,
    )  # fmt: skip
    return [float(value) for value in low + best.x * (high - low)]


def fit(operators: str) -> Iterator[str]:
    """Fit what all links share together with the constants of two, then kernels, then PCIe."""
    tables = {system: table(operators, system, "nccl") for system in FITTED}
    now = nccl.CURRENT
    links = [_now(tables[system], network) for system, network in FITTED.items()]
    start = [value for values in links for value in values] + [9.5]
    start += [getattr(now, name) for name in SHARED if name != "bytes_a_cycle"]
    count = len(LINKS)

    def split(values: Any) -> tuple[list[dict[str, float]], dict[str, float]]:
        parts = [values[i * count : (i + 1) * count] for i in range(len(FITTED))]
        shared = dict(zip(SHARED, values[len(FITTED) * count :], strict=True))
        return [dict(zip(LINKS, part, strict=True)) for part in parts], shared

    def residuals(values: Any) -> Any:
        parts, shared = split(values)
        errors = []
        for (system, network), constants in zip(FITTED.items(), parts, strict=True):
            cases = tables[system]
            seconds = predicted(cases, network, constants, shared)
            errors.append(np.log(seconds / cases.measured) / np.sqrt(len(cases) / 1000))
        return np.concatenate(errors)

    bounds = [*LINKS.values()] * len(FITTED) + [*SHARED.values()]
    parts, shared = split(solved(start, bounds, residuals))
    yield _values("shared", shared)
    for (system, network), constants in zip(FITTED.items(), parts, strict=True):
        yield _values(network, constants)
        seconds = predicted(tables[system], network, constants, shared)
        yield error_line(f"    {system}", tables[system], seconds)
    yield from fit_kernels(operators)
    yield from fit_on_pcie(operators, shared)


def fit_on_pcie(operators: str, shared: Mapping[str, float]) -> Iterator[str]:
    """Fit what is of PCIe alone: NCCL's launch and hop, and the shortest kernel of two devices."""
    names = ("launch", "hop")
    for system, network in ON_PCIE.items():
        cases = table(operators, system, "nccl")
        own = dict(zip(LINKS, _now(cases, network), strict=True))

        def of_nccl(values: Any, cases: Cases = cases, network: str = network) -> Any:
            found = predicted(cases, network, dict(zip(names, values, strict=True)), shared)
            return np.log(found / cases.measured)

        found = solved([own[name] for name in names], [LINKS[name] for name in names], of_nccl)
        constants = dict(zip(names, found, strict=True))
        yield _values(network, constants)
        yield error_line(f"    {system}", cases, predicted(cases, network, constants, shared))
        pairs = of_pairs(short(table(operators, system, "custom_allreduce")))

        def of_kernel(values: Any, pairs: Cases = pairs, network: str = network) -> Any:
            seconds = predicted_kernels(pairs, network, float(values[0]), {"barriers": {}})
            return np.log(seconds / pairs.measured)

        (kernel,) = solved([3.5e-6], [KERNEL], of_kernel)
        yield _values(network, {"kernel": kernel})
        seconds = predicted_kernels(pairs, network, kernel, {"barriers": {}})
        yield error_line(f"    {system}, two devices", pairs, seconds)


def of_pairs(cases: Cases) -> Cases:
    """Return the cases of kernels of two devices, on hosts that have more of them.

    Tables of two devices alone are of another host than the predefined cluster of eight.
    """
    stacks = np.char.add(
        cases.labels["framework"].astype(str), cases.labels["library_version"].astype(str)
    )
    devices = cases.labels["n_devices"].astype(int)
    keep = np.zeros(len(cases), bool)
    for part in cases.parts:
        assert isinstance(part, CollectiveGroup)
        if part.exchange.kernels:
            keep[part.index] = part.workers == 2
    return cases.select(keep & np.isin(stacks, stacks[devices > 2]))


def fit_kernels(operators: str) -> Iterator[str]:
    """Fit the constants of kernels of one's own, and the shortest kernel over each link."""
    tables = {system: short(table(operators, system, "custom_allreduce")) for system in FITTED}
    names = [(kind, name) for kind, constants in KERNELS.items() for name in constants]
    bounds = [KERNEL] * len(FITTED) + [KERNELS[kind][name] for kind, name in names]
    kinds = {"barriers": custom.BARRIERS, "pushed": custom.PUSHED}
    start = [3.5e-6] * len(FITTED) + [getattr(kinds[kind], name) for kind, name in names]

    def split(values: Any) -> tuple[Any, dict[str, dict[str, float]]]:
        found: dict[str, dict[str, float]] = {kind: {} for kind in KERNELS}
        for (kind, name), value in zip(names, values[len(FITTED) :], strict=True):
            found[kind][name] = value
        found["pushed"]["per_doubling"] = found["barriers"]["per_doubling"]
        return values[: len(FITTED)], found

    def residuals(values: Any) -> Any:
        kernels, found = split(values)
        errors = []
        for (system, network), kernel in zip(FITTED.items(), kernels, strict=True):
            seconds = predicted_kernels(tables[system], network, kernel, found)
            errors.append(np.log(seconds / tables[system].measured))
        return np.concatenate(errors)

    kernels, found = split(solved(start, bounds, residuals))
    for kind, values in found.items():
        yield _values(kind, values)
    for (system, network), kernel in zip(FITTED.items(), kernels, strict=True):
        yield _values(network, {"kernel": kernel})
        seconds = predicted_kernels(tables[system], network, kernel, found)
        yield error_line(f"    {system}", tables[system], seconds)
    for system, network in KERNEL_ALONE.items():
        cases = short(table(operators, system, "custom_allreduce"))

        def alone(values: Any, cases: Cases = cases, network: str = network) -> Any:
            seconds = predicted_kernels(cases, network, float(values[0]), found)
            return np.log(seconds / cases.measured)

        (kernel,) = solved(start[:1], bounds[:1], alone)
        yield _values(network, {"kernel": kernel})
        seconds = predicted_kernels(cases, network, kernel, found)
        yield error_line(f"    {system}", cases, seconds)


def _now(cases: Cases, network: str) -> list[float]:
    """Return the constants that a network has."""
    part = cases.parts[0]
    assert isinstance(part, CollectiveGroup)
    for tier in part.exchange.cluster.tiers:
        if tier.network.name == network and tier.network.nccl:
            return [float(tier.network.nccl.value(name)) for name in LINKS]
    raise SystemExit(f"{network} has no constants of NCCL")


def _values(title: str, values: Mapping[str, float]) -> str:
    return f"{title}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()) + "\n"


def main() -> None:
    """Print, or write; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fit", action="store_true", help="fit the constants, and print them")
    parser.add_argument("--operators", default=PACKAGE, help="a folder of operator tables")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="a folder of CSV files")
    parser.add_argument("--bands", action="store_true", help="write the error bands")
    arguments = parser.parse_args()
    if arguments.bands:
        text = bands(arguments.operators)
        FILE.write_text(text, "utf-8")
        sys.stdout.write(text)
        return
    lines = (
        fit(arguments.operators)
        if arguments.fit
        else report(arguments.operators, arguments.measured)
    )
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
