"""Write the sources of typical device kernels into a folder, one file a kernel.

    python tools/kernel_samples.py FOLDER

Works from the sources alone: neither CuPy nor a built package is needed.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import numpy as np

PACKAGE = Path(__file__).parent.parent / "hipfile_arrays"


def main() -> None:
    """Write them."""
    # The package's own __init__ opens its native module, which may not be built.
    package = types.ModuleType("hipfile_arrays")
    package.__path__ = [str(PACKAGE)]
    sys.modules["hipfile_arrays"] = package
    kernels = importlib.import_module("hipfile_arrays._transfer.kernels")

    def strided(dtype: str, shape: tuple[int, ...], order: str = "C", *, step: int = 1) -> object:
        dtype_ = np.dtype(dtype)
        ones = np.lib.stride_tricks.as_strided(np.empty(1, dtype_), shape)
        sizes = ones.shape if order == "C" else ones.shape[::-1]
        strides = [dtype_.itemsize * step]
        for size in reversed(sizes[1:]):
            strides.insert(0, strides[0] * size)
        return kernels.Strided(
            4096, dtype_, shape, tuple(strides if order == "C" else reversed(strides))
        )

    flat, deep = (4096,), (3, 5, 7, 3, 5, 7, 3, 5)
    pairs = [
        ("u1", "u1", flat, "CC", 1),
        ("f4", ">f4", flat, "CC", 1),
        ("u2", ">u2", flat, "CC", 1),
        ("f4", "f8", flat, "CC", 1),
        ("f2", ">f8", flat, "CC", 2),
        ("f8", "f2", flat, "CC", 3),
        ("c16", ">f2", deep, "CC", 2),
        ("u1", "?", deep, "CF", 3),
        ("f4", ">i2", (100, 100), "CF", 1),
        ("u1", "u1", (256, 256), "CF", 1),
        ("f8", ">f8", (100, 100), "CF", 1),
        ("c16", ">c16", (100, 100), "CF", 1),
    ]
    sources = {kernels.ROWS_SOURCE}
    for dst, src, shape, (to_order, from_order), step in pairs:
        to, frm = strided(dst, shape, to_order), strided(src, shape, from_order, step=step)
        for launch in kernels.plan(to, frm):
            sources.add(launch.kernel.source)
    for number, source in enumerate(sorted(sources)):
        path = Path(sys.argv[1]) / f"kernel{number:02}.hip"
        path.write_text(f"{kernels.templates()}\n{source}")


if __name__ == "__main__":
    main()
