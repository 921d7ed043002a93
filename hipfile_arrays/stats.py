"""Counts of bytes and transfers by path, since the process began or the last `reset`."""

from __future__ import annotations

from dataclasses import dataclass

from . import _native
from ._transfer.values import Route

__all__ = ["PathStats", "Stats", "get", "reset"]


@dataclass(frozen=True, slots=True)
class PathStats:
    """Transfers and bytes of one path, in one direction.

    Attributes
    ----------
    transfers : int
        Transfers of which some bytes took this path.
    nbytes : int
        Bytes that took it.
    """

    transfers: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts by direction and route.

    Attributes
    ----------
    read, written : dict of str to PathStats
        By route: ``library``, ``direct``, ``buffered``, ``o_direct``, ``mapped``. The last three
        are forms of the path ``staged``.
    pinned_bytes : int
        Pinned host memory that staging holds now.
    threads : int
        Worker threads there are now.
    """

    read: dict[str, PathStats]
    written: dict[str, PathStats]
    pinned_bytes: int
    threads: int


def get() -> Stats:
    """Return the counts as of now."""
    read, written = (
        {route.name.lower(): PathStats(*row[route]) for route in Route} for row in _native.totals()
    )
    return Stats(read, written, _native.pinned_bytes(), _native.thread_count())


def reset() -> None:
    """Set all counts to zero."""
    _native.reset_totals()
