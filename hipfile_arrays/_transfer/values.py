"""The small frozen values that the steps of a transfer hand on, validated at birth."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
PathName: TypeAlias = Literal["auto", "direct", "staged", "library"]


class Platform(enum.IntEnum):
    """Which GPU runtime and file library; the numbers are the native module's."""

    HIP = 0
    CUDA = 1

    @property
    def file_library(self) -> str:
        """The name of the platform's file library."""
        return "hipFile" if self is Platform.HIP else "cuFile"


class Route(enum.IntEnum):
    """How the engine moves one piece; the numbers are the native module's ``Path``."""

    LIBRARY = 0
    DIRECT = 1
    BUFFERED = 2
    O_DIRECT = 3
    MAPPED = 4

    @property
    def path(self) -> str:
        """The public path name that this is a form of."""
        if self in (Route.LIBRARY, Route.DIRECT):
            return self.name.lower()
        return "staged"


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes ``[offset, offset + nbytes)`` of a file."""

    offset: int
    nbytes: int

    def __post_init__(self) -> None:
        if self.offset < 0 or self.nbytes < 0:
            raise ValueError(f"a file range cannot be negative: {self}")

    @property
    def end(self) -> int:
        """The offset after the last byte."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class Extent:
    """Device memory ``[pointer, pointer + nbytes)`` on one device.

    `exporter` is the array that it was taken from, if any: it keeps the memory alive.
    """

    pointer: int
    nbytes: int
    platform: Platform
    device: int
    exporter: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.nbytes < 0 or (self.nbytes and self.pointer <= 0):
            raise ValueError(f"not a device extent: {self}")

    def part(self, start: int, nbytes: int) -> Extent:
        """Return the extent of `nbytes` bytes that begins `start` bytes into this one."""
        if start < 0 or start + nbytes > self.nbytes:
            raise ValueError(f"bytes {start} to {start + nbytes} are not within {self}")
        return Extent(self.pointer + start, nbytes, self.platform, self.device, self.exporter)


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a plan: file bytes, the device address they belong to, and their route."""

    offset: int
    pointer: int
    nbytes: int
    route: Route

    def __post_init__(self) -> None:
        if self.offset < 0 or self.nbytes <= 0:
            raise ValueError(f"an empty or negative piece: {self}")


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision of the planner, with its reason in words."""

    path: str
    because: str

    def __str__(self) -> str:
        return f"{self.path}: {self.because}"


@dataclass(frozen=True, slots=True)
class Ranges:
    """Many ranges of one file, and the device addresses that they belong to.

    Attributes
    ----------
    offsets, pointers, nbytes : ndarray of int64
        One entry a range; no range is empty.
    platform : Platform
        Of the device.
    device : int
        Of all pointers.
    """

    offsets: Numbers
    pointers: Numbers
    nbytes: Numbers
    platform: Platform
    device: int

    def __post_init__(self) -> None:
        if not len(self.offsets) == len(self.pointers) == len(self.nbytes):
            raise ValueError("ranges need as many offsets as pointers and lengths")
        if len(self.offsets) and (self.offsets.min() < 0 or self.nbytes.min() <= 0):
            raise ValueError("an empty or negative range")

    @property
    def total(self) -> int:
        """Bytes of all ranges together."""
        return int(self.nbytes.sum())

    @property
    def hull(self) -> FileRange:
        """The shortest range of the file that holds all of them."""
        start = int(self.offsets.min())
        return FileRange(start, int((self.offsets + self.nbytes).max()) - start)
