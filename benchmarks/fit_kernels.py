"""Fit the constants of serving frameworks' kernels to operator tables, and write their files.

    python benchmarks/fit_kernels.py                print the constants of all kernels of experts
    python benchmarks/fit_kernels.py marlin_int4    of this kernel alone
    python benchmarks/fit_kernels.py --latent       of kernels of latent attention
    python benchmarks/fit_kernels.py --write        write them into paleo/costs/tiled

Kernels of Hopper are fitted to rows of the H100, those of Blackwell to rows of the GB200, up to
--rows of each; nothing is fitted to another system. Beside the constants stand the median errors on
the rows that were fitted, on the other rows there, and on systems that were not: the package
aiconfigurator-core 0.12.0 and SciPy are needed, pip install -e ".[accuracy]".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import language_operators as language_tables
import numpy as np

from paleo.core.errors import PaleoError
from paleo.costs.tiled import attention_kernels, expert_kernels
from paleo.costs.tiled.kernel_files import KernelFiles
from paleo.measure.validate import Cases, join, predict
from paleo.measure.validate.kernel_fits import KernelFit, fit_kernel, sample

#: The system whose rows an architecture's constants are fitted to, and those that are held out.
FITTED = {"Hopper": "h100_sxm", "Blackwell": "gb200", "Ada": "l40s"}
HELD_OUT = {
    "Hopper": ("h200_sxm",),
    "Blackwell": ("b200_sxm", "b300_sxm", "gb300"),
    "Ada": ("a100_sxm", "rtx_pro_6000_server"),
}
#: Kernels that no device of Hopper or Blackwell runs; only they have constants of Ada's.
OF_ADA = ("trtllm_xqa_mla", "triton_mla_decode", "trtllm_fmha_mla_sm80")
#: Products of those for one query take clocks, by warps, on any multiprocessor, whatever its units'
#: peak: that is in place of a share of the peak and of a time for each block.
BY_CLOCKS, NOT_BY_CLOCKS, CLOCKED = OF_ADA[:2], ("share", "step"), "clocked"
#: Constants of each kind of kernels that are fitted, and its tables.
EXPERTS = (expert_kernels.FILES, ("start", "fill", "share", "operands", "stream"), ("moe",))
LATENT = (
    attention_kernels.FILES,
    ("start", "again", "combine", "drawn", "head", "memory", "share", "step"),
    ("context_mla", "generation_mla"),
)
ROWS = 900


def by_kernel(place: str, system: str, tables: tuple[str, ...]) -> dict[str, Cases]:
    """Return the cases of a system by the kernel that computed them."""
    found: dict[str, list[Cases]] = {}
    for _, _, cases in language_tables.cases_by_system(place, tables, (system,)):
        places: dict[str, list[np.ndarray]] = {}
        for part in cases.parts:
            places.setdefault(part.kernel, []).append(part.index)
        for name, index in places.items():
            found.setdefault(name, []).append(cases.select(np.sort(np.concatenate(index))))
    return {name: join(several) for name, several in found.items()}


def median(cases: Cases) -> float:
    """Return the median error, nan of no cases."""
    if not len(cases):
        return float("nan")
    return float(np.median(np.abs(predict(cases, "tiled") / cases.measured - 1.0)))


def fits(
    place: str, files: KernelFiles, free: Sequence[str], tables: tuple[str, ...],
    names: Sequence[str], rows: int,
) -> Iterator[tuple[KernelFit, int, tuple[float, float, float]]]:  # fmt: skip
    """Yield each fit, how many rows it saw, and the errors on them, beside them, elsewhere."""
    for architecture, system in FITTED.items():
        here = by_kernel(place, system, tables)
        others = [by_kernel(place, each, tables) for each in HELD_OUT[architecture]]
        for name in sorted(here):
            if (names and name not in names) or (architecture == "Ada") != (name in OF_ADA):
                continue
            own = list(free)
            if name in BY_CLOCKS:
                own = [CLOCKED, *(each for each in free if each not in NOT_BY_CLOCKS)]
            few, rest = sample(here[name], rows)
            found = fit_kernel(files, name, architecture, few, own)
            elsewhere = join(each[name] for each in others if name in each)
            with files.trying(name, architecture, found.constants):
                errors = (median(few), median(rest), median(elsewhere))
            yield found, len(few), errors


def text_of(name: str, found: Mapping[str, KernelFit], rows: Mapping[str, int]) -> str:
    """Return the file of a kernel, by architecture."""
    lines = [f'name = "{name}"', "", "[sources]"]
    for architecture in found:
        system = FITTED[architecture]
        key = system.split("_")[0]
        others = ", ".join(each.split("_")[0].upper() for each in HELD_OUT[architecture])
        lines.append(
            f'{key} = "{rows[architecture]:,} of its rows on the {key.upper()} in '
            f'aiconfigurator-core 0.12.0, by benchmarks/fit_kernels.py; none of the {others}"'
        )
    for architecture, fit in found.items():
        key = FITTED[architecture].split("_")[0]
        lines += ["", f"[{architecture}]"]
        lines += [
            f'{each} = {{ value = {value:g}, source = "{key}" }}'
            for each, value in fit.constants.items()
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kernels", nargs="*", help="kernels, all unless told")
    parser.add_argument("--latent", action="store_true", help="kernels of latent attention")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"most rows of a kernel ({ROWS})")
    parser.add_argument("--operators", default=language_tables.PACKAGE, help="package or folder")
    parser.add_argument("--write", action="store_true", help="write the files of constants")
    options = parser.parse_args()
    files, free, tables = LATENT if options.latent else EXPERTS
    done: dict[str, dict[str, KernelFit]] = {}
    rows: dict[str, dict[str, int]] = {}
    try:
        for found, count, errors in fits(
            options.operators, files, free, tables, options.kernels, options.rows
        ):
            done.setdefault(found.kernel, {})[found.architecture] = found
            rows.setdefault(found.kernel, {})[found.architecture] = count
            texts = " ".join(f"{100 * each:5.1f} %" for each in errors)
            constants = " ".join(f"{key}={value:g}" for key, value in found.constants.items())
            print(
                f"{found.kernel:28} {found.architecture:10} {count:4} {texts}  {constants}",
                flush=True,
            )
    except PaleoError as error:
        print(error, file=sys.stderr)
        return 1
    if options.write:
        for name, found_of in done.items():
            Path(files.folder, f"{name}.toml").write_text(
                text_of(name, found_of, rows[name]), "utf-8"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
