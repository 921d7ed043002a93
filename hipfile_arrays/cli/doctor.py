"""Tell which path reading a file takes, and why."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .. import _native
from .._transfer import vendor
from .._transfer.values import Platform
from ..diagnose import diagnose
from ..errors import HipFileArraysError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", help="the file to be read")
    parser.add_argument("--platform", choices=["hip", "cuda"], default="hip")


def run(options: argparse.Namespace) -> int:
    """Print the libraries in use, then the diagnosis."""
    platform = Platform[options.platform.upper()]
    vendor.prepare(platform)
    print(f"{platform.name} runtime: {_found(lambda: _native.open_runtime(platform)[0])}")
    print(f"{platform.file_library}: {_found(lambda: _native.open_file_library(platform))}")
    print(diagnose(options.path, platform=options.platform))
    return 0


def _found(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except HipFileArraysError as error:
        return str(error)
