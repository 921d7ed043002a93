"""What differs between AMD and NVIDIA, as facts for the planner.

Where libraries are looked for, and what keeps a file library from moving bytes by DMA. The entry
points themselves are the native module's tables.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path

from .. import _native
from ..errors import HipFileArraysError, HipFileError, LibraryNotFound
from .fileinfo import FileInfo
from .values import Platform

__all__ = ["direct_obstacles", "prepare"]

_OVERRIDES = {
    Platform.HIP: "HIPFILE_ARRAYS_LIBHIPFILE",
    Platform.CUDA: "HIPFILE_ARRAYS_LIBCUFILE",
}
_NVIDIA_FS = "/proc/driver/nvidia-fs"


def _rocm_folders() -> list[str]:
    roots = [os.environ.get("ROCM_PATH"), "/opt/rocm"]
    return [f"{root}/lib" for root in roots if root]


def _cuda_folders() -> list[str]:
    """``lib`` folders of NVIDIA's wheels, which lie under the namespace package ``nvidia``."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None or spec.submodule_search_locations is None:
        return []
    found: list[str] = []
    for root in spec.submodule_search_locations:
        found += [str(path) for path in sorted(Path(root).glob("*/lib")) if path.is_dir()]
    return found


@cache
def prepare(platform: Platform) -> None:
    """Tell the native tables where to look for this platform's libraries; opens nothing."""
    folders = _rocm_folders() if platform is Platform.HIP else _cuda_folders()
    override = os.environ.get(_OVERRIDES[platform], "")
    _native.set_search_path(int(platform), folders, "", folders, override)


def _truth(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


def _hip_file_obstacles(info: FileInfo) -> list[str]:
    """HipFile's own conditions for its fast path, on the file (README and sources of hipFile)."""
    if info.block or _truth("HIPFILE_UNSUPPORTED_FILE_SYSTEMS"):
        return []
    if info.file_system == "xfs":
        return []
    if info.file_system == "ext4":
        if "data=journal" in info.options or "data=writeback" in info.options:
            return ["the ext4 file system is not mounted with data=ordered"]
        return []
    return [
        f"hipFile's fast path takes files on ext4 and XFS, this one is on "
        f"{info.file_system or 'an unknown file system'}"
    ]


def _environment_obstacles(platform: Platform) -> list[str]:
    if platform is Platform.HIP:
        if _truth("HIPFILE_FORCE_COMPAT_MODE"):
            return ["HIPFILE_FORCE_COMPAT_MODE is set in the environment"]
        return []
    if not Path(_NVIDIA_FS).exists():
        return ["the nvidia-fs kernel module is not loaded, so cuFile would copy through the host"]
    return []


def direct_obstacles(platform: Platform, file: _native.OpenFile, info: FileInfo) -> tuple[str, ...]:
    """List what keeps this file from the direct path, whatever the range.

    Parameters
    ----------
    platform : Platform
        Of the array.
    file : OpenFile
        Registered with the file library here, if nothing stands against it.
    info : FileInfo
        Of `file`.

    Returns
    -------
    tuple of str
        Reasons in words; empty if the direct path is open.
    """
    found = _environment_obstacles(platform)
    if not (info.regular or info.block):
        found.append("it is neither a regular file nor a block device")
    else:
        if info.direct_alignment is None:
            found.append(
                f"the file cannot be opened with O_DIRECT "
                f"({info.file_system or 'its file system'} refuses it)"
            )
        if platform is Platform.HIP:
            found += _hip_file_obstacles(info)
    if found:
        return tuple(found)
    try:
        file.register_handle(int(platform))
    except LibraryNotFound as error:
        found.append(str(error).partition(". Tried:")[0])
    except (HipFileError, HipFileArraysError, OSError) as error:
        found.append(f"{platform.file_library} refuses the file: {error}")
    return tuple(found)
