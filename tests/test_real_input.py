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


FITS_ITEMS = {8: "u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}


def test_fits_images_equal_astropys(tmp_path: Path) -> None:
    fits = pytest.importorskip("astropy.io.fits")
    folder = Path(fits.__file__).parent / "tests" / "data"
    written = tmp_path / "written.fits"
    fits.PrimaryHDU(np.linspace(-1, 1, 300, dtype="f4").reshape(3, 10, 10)).writeto(written)
    read = set()
    for path in [written, *sorted(folder.glob("*.fits"))]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are broken on purpose
            try:
                images = fits.open(path, do_not_scale_image_data=True)
            except OSError:
                continue
            with images:
                for image in images:
                    if not isinstance(image, fits.PrimaryHDU | fits.ImageHDU):
                        continue
                    if isinstance(image, fits.CompImageHDU | fits.GroupsHDU):
                        continue  # not plain images
                    if image.data is None or not image.data.size:
                        continue
                    raw = FITS_ITEMS[image.header["BITPIX"]]
                    got = hfa.fromfile(
                        path,
                        raw,
                        shape=image.data.shape,
                        offset=image.fileinfo()["datLoc"],
                        like=cp,
                    )
                    want = image.data.astype(got.dtype)
                    assert cp.asnumpy(got).tobytes() == want.tobytes()
                    read.add(raw)
    assert {">i2", ">f4"} <= read


def test_fits_tables_by_their_columns() -> None:
    fits = pytest.importorskip("astropy.io.fits")
    folder = Path(fits.__file__).parent / "tests" / "data"
    read = 0
    for path in (folder / name for name in ("tb.fits", "random_groups.fits", "chandra_time.fits")):
        if not path.exists():
            continue
        with fits.open(path) as file:
            tables = fits.BinTableHDU | fits.GroupsHDU
            table = next(hdu for hdu in file if isinstance(hdu, tables))
            records = np.asarray(table.data.view(np.ndarray))
            kinds = {name: records.dtype[name].base.kind for name in records.dtype.names}
            numbers = [name for name, kind in kinds.items() if kind in "iuf"]
            got = hfa.fromfile(
                path,
                records.dtype[numbers],
                len(records),
                offset=table.fileinfo()["datLoc"],
                like=cp,
            )
            for name in numbers:
                want = records[name].astype(got[name].dtype)
                assert cp.asnumpy(got[name]).tobytes() == want.tobytes()
                read += 1
            del records
    assert read >= 4


def test_netcdf_classic_variables_and_records(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    path = tmp_path / "weather.nc"
    with scipy_io.netcdf_file(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("y", 30)
        file.createDimension("x", 40)
        fixed = file.createVariable("height", "f4", ("y", "x"))
        fixed[:] = np.arange(1200).reshape(30, 40) / 7
        wind = file.createVariable("wind", "f4", ("time", "y", "x"))
        rain = file.createVariable("rain", "f8", ("time", "x"))
        for n in range(6):
            wind[n] = np.arange(1200).reshape(30, 40) * n
            rain[n] = np.arange(40) + 100 * n
    places, values = {}, {}
    with scipy_io.netcdf_file(path, "r", mmap=True) as file:
        begin = file._mm_buf.__array_interface__["data"][0]
        for name in ("height", "wind", "rain"):
            data = file.variables[name].data
            offset = data.__array_interface__["data"][0] - begin
            places[name] = (offset, data.dtype, data.shape, data.strides[0])
            values[name] = data.copy()
        del data  # scipy closes the file when no array needs it any more

    offset, dtype, shape, _ = places["height"]
    got = hfa.fromfile(path, dtype, shape=shape, offset=offset, like=cp)
    assert cp.asnumpy(got).tolist() == values["height"].tolist()

    for name in ("wind", "rain"):
        offset, dtype, shape, record = places[name]
        # A record holds a part of every record variable: this one's are the first items of rows
        # as long as a record. The last row need not be whole.
        inner = int(np.prod(shape[1:]))
        out = cp.empty((shape[0], inner), dtype.newbyteorder("="))
        with hfa.open(path) as opened:
            opened.read_slab(
                out, (shape[0], record // dtype.itemsize), dtype, np.s_[:, :inner], offset=offset
            )
        assert cp.asnumpy(out).reshape(shape).tolist() == values[name].tolist()
