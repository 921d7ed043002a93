"""The architecture, kept by a test: who may include, import and open what. Text only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hipfile_arrays"
SOURCES = sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".cpp", ".hpp", ".hip"))
PYTHON = [p for p in SOURCES if p.suffix == ".py"]
NATIVE = [p for p in SOURCES if p.parent.name == "_native" and p.suffix != ".py"]

# The steps of a transfer, in order: each may import those before it, never those after.
STEPS = [
    "values",
    "_strided",
    "_copies",
    "kernels",
    "opening",
    "source",
    "targets",
    "fileinfo",
    "vendor",
    "records",
    "libraries",
    "array",
    "newarray",
    "memory",
    "automatic",
    "buffers",
    "plan",
    "run",
    "slab",
    "convert",
    "exact",
    "many",
    "asynchronous",
]


def relative(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def imports(path: Path) -> set[str]:
    """Absolute names of this package's modules that a module imports, at any level."""
    package = ["hipfile_arrays", *path.relative_to(PACKAGE).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            base += (node.module or "").split(".") if node.module else []
            found.add(".".join(base))
            found |= {".".join([*base, alias.name]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("hipfile_arrays")}


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_file_is_longer_than_500_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500


def test_only_the_binding_knows_nanobind_and_python() -> None:
    # dlpack.cpp and exchange.cpp through their own headers.
    users = {p.name for p in NATIVE if re.search(r"#include <(nanobind/|Python\.h)", p.read_text())}
    assert users == {"module.cpp", "module_arrays.cpp", "dlpack.hpp"}


def test_only_the_tables_open_libraries() -> None:
    assert {p.name for p in NATIVE if re.search(r"\bdl(open|sym)\(", p.read_text())} == {
        "tables.cpp"
    }


def test_steps_import_only_the_steps_before_them() -> None:
    assert {p.stem for p in (PACKAGE / "_transfer").glob("*.py")} == {"__init__", *STEPS}
    for number, step in enumerate(STEPS):
        for name in imports(PACKAGE / "_transfer" / f"{step}.py"):
            parts = name.split(".")
            if parts[:2] == ["hipfile_arrays", "_transfer"] and len(parts) > 2:
                assert parts[2] == step or parts[2] in STEPS[:number], f"{step} imports {name}"


def test_nothing_below_calls_up() -> None:
    above = {"rawfile", "file", "openedfile", "like", "diagnose", "cli", "stats"}
    for path in (PACKAGE / "_transfer").glob("*.py"):
        for name in imports(path):
            assert not above & set(name.split(".")[1:2]), f"{path.stem} imports {name}"


def test_library_and_emulator_share_nothing_but_the_abi() -> None:
    for path in PYTHON:
        inside = "emulator" in path.parts
        for name in imports(path):
            about_emulator = name.startswith("hipfile_arrays.emulator")
            if inside:
                assert about_emulator or name == "hipfile_arrays", f"{relative(path)}: {name}"
            elif about_emulator:
                # The package activates it when the environment asks; these say what they ran on.
                allowed = ("__init__.py", "cli/demo.py", "cli/bench.py")
                assert relative(path) in allowed, relative(path)
    for path in NATIVE:
        assert "hipemu" not in path.read_text()
    for path in (PACKAGE / "emulator" / "src").iterdir():
        assert "_native/" not in path.read_text()


def test_no_array_library_is_imported_by_ours() -> None:
    for path in PYTHON:
        if relative(path) == "cli/demo.py":
            continue
        names = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not names & {"cupy", "torch", "jax", "numba"}, relative(path)
