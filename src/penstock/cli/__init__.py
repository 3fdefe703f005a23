"""The command `penstock`: where the packages are put together."""

from penstock.cli.app import main

__all__ = ["main"]
