"""Files that other projects ship, read by offset, against what those projects read."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest

import hipfile_arrays as hfa


def test_nifti_volumes_equal_nibabels(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    found = 0
    folder = Path(nibabel.__file__).parent / "tests" / "data"
    for path in sorted([*folder.glob("*.nii"), *folder.glob("*.nii.gz")]):
        image = nibabel.load(path)
        dtype: Any = image.dataobj.dtype if hasattr(image.dataobj, "dtype") else None
        if dtype is None or not dtype.isnative or not hasattr(image.dataobj, "offset"):
            continue
        plain = path
        if path.suffix == ".gz":
            plain = tmp_path / path.stem
            plain.write_bytes(gzip.decompress(path.read_bytes()))
        want = np.asanyarray(image.dataobj.get_unscaled())
        got = hfa.fromfile(plain, dtype, want.size, offset=image.dataobj.offset, like=cp)
        # NIfTI stores its axes in Fortran order.
        assert np.array_equal(cp.asnumpy(got).reshape(want.shape, order="F"), want)
        found += 1
    assert found >= 3


def test_npy_files_of_numpys_own_tests() -> None:
    folder = Path(np.__file__).parent
    found = 0
    for path in sorted(folder.rglob("*.npy")):
        with open(path, "rb") as file:
            try:
                version = np.lib.format.read_magic(file)
                read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    shape, fortran, dtype = read(file)
            except ValueError:
                continue
            if dtype.hasobject or dtype.names or not dtype.isnative or dtype.kind not in "iufc":
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # written by Python 2, NumPy says
                want = np.load(path)
            got = hfa.fromfile(file, dtype, int(np.prod(shape)), like=cp)
            order: Any = "F" if fortran else "C"
            assert np.array_equal(cp.asnumpy(got).reshape(shape, order=order), want)
            found += 1
    assert found >= 1
