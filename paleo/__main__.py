"""`python -m paleo` is the command `paleo`."""

from paleo.cli import cli

cli(prog_name="paleo")
