"""Packaging. The settings of tools are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "paleo/version.py").read_text("utf-8"))[1]

TEST = ["pytest>=8", "hypothesis>=6.100", "jsonschema>=4.20"]
LINT = ["ruff>=0.11", "mypy>=1.15", "types-six"]

setup(
    name="paleo",
    version=VERSION,
    description="An analytical performance model of deep neural networks",
    long_description=(HERE / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    # The predefined nets stand at the top of the repository and are installed inside the
    # package; paleo/load.py looks in both places.
    packages=[*find_packages(include=["paleo", "paleo.*"]), "paleo.nets"],
    package_dir={"paleo.nets": "nets"},
    package_data={
        "paleo": ["py.typed", "net.schema.json"],
        "paleo.hardware": ["devices/*.toml", "networks/*.toml"],
        "paleo.nets": ["*.json", "README.md"],
    },
    install_requires=["numpy>=1.26", "click>=8.1", "six>=1.16"],
    extras_require={"test": TEST, "lint": LINT, "dev": [*TEST, *LINT, "build>=1.2"]},
    entry_points={"console_scripts": ["paleo = paleo.cli:cli"]},
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering",
        "Typing :: Typed",
    ],
)
