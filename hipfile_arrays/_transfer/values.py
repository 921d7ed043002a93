"""The small frozen values that the steps of a transfer hand on, validated at birth."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal, TypeAlias

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
    """Device memory ``[pointer, pointer + nbytes)`` on one device."""

    pointer: int
    nbytes: int
    platform: Platform
    device: int

    def __post_init__(self) -> None:
        if self.nbytes < 0 or (self.nbytes and self.pointer <= 0):
            raise ValueError(f"not a device extent: {self}")

    def part(self, start: int, nbytes: int) -> Extent:
        """Return the extent of `nbytes` bytes that begins `start` bytes into this one."""
        if start < 0 or start + nbytes > self.nbytes:
            raise ValueError(f"bytes {start} to {start + nbytes} are not within {self}")
        return Extent(self.pointer + start, nbytes, self.platform, self.device)


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
