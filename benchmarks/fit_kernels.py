"""Fit the constants of serving frameworks' kernels to operator tables, and write their files.

    python benchmarks/fit_kernels.py                print the constants of all kernels of experts
    python benchmarks/fit_kernels.py marlin_int4    of this kernel alone
    python benchmarks/fit_kernels.py --latent       of kernels of latent attention
    python benchmarks/fit_kernels.py --encoders     of kernels that only encoders have
    python benchmarks/fit_kernels.py --write        write them into paleo/costs/tiled

Kernels of Hopper are fitted to rows of the H100, those of Blackwell to rows of the GB200 (of the
GB300 where the GB200 has none), and the few that neither runs to rows of the L40S, up to --rows of
each; nothing is fitted to another system. Beside the constants stand the median errors on
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

#: Systems of an architecture: constants are fitted to rows of the first of which a kernel has some,
#: and the others are held out.
SYSTEMS = {
    "Hopper": ("h100_sxm", "h200_sxm"),
    "Blackwell": ("gb200", "gb300", "b200_sxm", "b300_sxm"),
    "Ada": ("l40s", "rtx_pro_6000_server", "a100_sxm"),
}
#: Kernels that no device of Hopper or Blackwell runs; only they have constants of Ada's.
OF_ADA = ("trtllm_xqa_mla", "triton_mla_decode", "trtllm_fmha_mla_sm80", "triton_encoder")
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
ENCODERS = (
    attention_kernels.FILES,
    ("start", "again", "exponentials", "memory", "share", "step", "unaligned", "uneven"),
    ("encoder_attention",),
)
#: Of encoders' kernels those that no table of prompts has; the others have their constants there.
OF_ENCODERS = ("triton_encoder", "trtllm_fmha_sm80")
ROWS = 900


def by_kernel(place: str, system: str, tables: tuple[str, ...]) -> dict[str, Cases]:
    """Return the cases of a system by the kernel that computed them."""
    found: dict[str, list[Cases]] = {}
    for _, _, cases in language_tables.cases_by_system(place, tables, (system,)):
        places: dict[str, list[np.ndarray]] = {}
        for part in cases.parts:
            name = part.letters.get("kernel") or part.kernel
            places.setdefault(name, []).append(part.index)
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
) -> Iterator[tuple[KernelFit, str, tuple[float, float, float]]]:  # fmt: skip
    """Yield each fit, what it saw, and the errors on those rows, beside them, elsewhere."""
    for architecture, systems in SYSTEMS.items():
        known = [(each, by_kernel(place, each, tables)) for each in systems]
        for name in sorted({name for _, each in known for name in each}):
            if (names and name not in names) or (architecture == "Ada" and name not in OF_ADA):
                continue
            (system, here), *others = [(each, of[name]) for each, of in known if name in of]
            own = list(free)
            if name in BY_CLOCKS:
                own = [CLOCKED, *(each for each in free if each not in NOT_BY_CLOCKS)]
            few, rest = sample(here, rows)
            found = fit_kernel(files, name, architecture, few, own)
            elsewhere = join(each for _, each in others)
            with files.trying(name, architecture, found.constants):
                errors = (median(few), median(rest), median(elsewhere))
            told = [each.split("_")[0].upper() for each, _ in others]
            source = (
                f"{len(few):,} of its rows on the {system.split('_')[0].upper()} in "
                "aiconfigurator-core 0.12.0, by benchmarks/fit_kernels.py"
            )
            yield found, source + (f"; none of the {', '.join(told)}" if told else ""), errors


def text_of(name: str, found: Mapping[str, KernelFit], sources: Mapping[str, str]) -> str:
    """Return the file of a kernel, by architecture."""
    lines = [f'name = "{name}"', "", "[sources]"]
    lines += [f'{each.lower()} = "{sources[each]}"' for each in found]
    for architecture, fit in found.items():
        lines += ["", f"[{architecture}]"]
        lines += [
            f'{each} = {{ value = {value:g}, source = "{architecture.lower()}" }}'
            for each, value in fit.constants.items()
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kernels", nargs="*", help="kernels, all unless told")
    parser.add_argument("--latent", action="store_true", help="kernels of latent attention")
    parser.add_argument("--encoders", action="store_true", help="kernels of encoders alone")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"most rows of a kernel ({ROWS})")
    parser.add_argument("--operators", default=language_tables.PACKAGE, help="package or folder")
    parser.add_argument("--write", action="store_true", help="write the files of constants")
    options = parser.parse_args()
    files, free, tables = EXPERTS
    names = options.kernels
    if options.latent:
        files, free, tables = LATENT
    elif options.encoders:
        files, free, tables = ENCODERS
        names = names or OF_ENCODERS
    done: dict[str, dict[str, KernelFit]] = {}
    sources: dict[str, dict[str, str]] = {}
    try:
        for found, source, errors in fits(
            options.operators, files, free, tables, names, options.rows
        ):
            done.setdefault(found.kernel, {})[found.architecture] = found
            sources.setdefault(found.kernel, {})[found.architecture] = source
            texts = " ".join(f"{100 * each:5.1f} %" for each in errors)
            constants = " ".join(f"{key}={value:g}" for key, value in found.constants.items())
            print(
                f"{found.kernel:28} {found.architecture:10} {texts}  {constants}",
                flush=True,
            )
    except PaleoError as error:
        print(error, file=sys.stderr)
        return 1
    if options.write:
        for name, found_of in done.items():
            Path(files.folder, f"{name}.toml").write_text(
                text_of(name, found_of, sources[name]), "utf-8"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
