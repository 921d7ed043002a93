"""Execute notebooks; fail on the first cell that raises. ``--write`` keeps the outputs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    """Run every notebook of the folders or files given."""
    write = "--write" in sys.argv
    paths = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("--")]
    notebooks = [n for p in paths for n in (sorted(p.glob("*.ipynb")) if p.is_dir() else [p])]
    assert notebooks, "no notebook found"
    for path in notebooks:
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(
                notebook,
                timeout=300,
                kernel_name="python3",
                resources={"metadata": {"path": folder}},
            ).execute()
        if write:
            nbformat.write(notebook, path)
        print(f"{path}: {len(notebook.cells)} cells ran")


if __name__ == "__main__":
    main()
