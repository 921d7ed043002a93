"""The face of the package: its names, signatures and stub, checked in."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hipfile_arrays as hfa

NAMES = {
    "BufferInfo",
    "Choice",
    "DeviceMismatchError",
    "Diagnosis",
    "DirectPathUnavailable",
    "File",
    "FormatError",
    "HipFileArraysError",
    "HipFileError",
    "KernelsUnavailable",
    "LibraryNotFound",
    "MemoryTypeError",
    "RegisteredBuffer",
    "RegistrationWarning",
    "ShortReadError",
    "ShortReadWarning",
    "StateError",
    "Transfer",
    "buffers",
    "config",
    "diagnose",
    "emulator",
    "errors",
    "fromfile",
    "like",
    "open",
    "register",
    "stats",
    "tofile",
}


def test_names_are_these() -> None:
    assert set(hfa.__all__) == NAMES
    for name in NAMES:
        assert getattr(hfa, name) is not None


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(hfa, name))


def test_numpys_arguments_come_first_and_the_others_by_keyword() -> None:
    assert str(inspect.signature(hfa.fromfile)).startswith("(file: 'Any', dtype: ")
    for function, numpys in (
        (hfa.fromfile, ["file", "dtype", "count", "sep", "offset"]),
        (hfa.tofile, ["array", "file", "sep", "format"]),
    ):
        parameters = inspect.signature(function).parameters
        positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert positional == numpys
        assert all(p.kind is p.KEYWORD_ONLY for n, p in parameters.items() if n not in positional)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (hfa.MemoryTypeError, TypeError),
        (hfa.DeviceMismatchError, ValueError),
        (hfa.ShortReadError, EOFError),
        (hfa.DirectPathUnavailable, RuntimeError),
        (hfa.HipFileError, OSError),
        (hfa.LibraryNotFound, ImportError),
        (hfa.FormatError, ValueError),
        (hfa.StateError, RuntimeError),
    ],
)
def test_errors_are_what_one_would_catch(error: type, builtin: type) -> None:
    assert issubclass(error, hfa.HipFileArraysError)
    assert issubclass(error, builtin)


def test_stub_is_what_the_binding_says(tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.exists():
        pytest.skip("ruff formats the stub; make lint installs it")
    made = tmp_path / "_native.pyi"
    stubgen = [
        sys.executable,
        "-m",
        "nanobind.stubgen",
        "-q",
        "-m",
        "hipfile_arrays._native._native",
    ]
    subprocess.run([*stubgen, "-o", str(made)], check=True)
    config = Path(__file__).parent.parent / "pyproject.toml"
    subprocess.run([ruff, "format", "-q", "--config", config, made], check=True)
    kept = Path(hfa.__file__).parent / "_native" / "_native.pyi"
    assert made.read_text() == kept.read_text()
