"""Pytest option ``--emulate-hip``: activates the emulated device before tests import CuPy."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("hipfile_arrays")
    group.addoption(
        "--emulate-hip",
        action="store_true",
        help="run CuPy-ROCm on hipfile_arrays' emulated HIP device",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Activate, if asked for, before any test module is imported."""
    if config.getoption("--emulate-hip"):
        from hipfile_arrays import emulator

        emulator.activate()
