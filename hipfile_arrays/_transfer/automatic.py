"""Registration by itself: the second transfer on an allocation registers it.

What is registered is the whole allocation, so that every slice profits. It stays registered as
long as one of its *owners* lives: the objects whose life is that of the memory (CuPy's arrays that
are no views, PyTorch's storages), which are watched by weak references. An allocation whose owner
cannot be watched is never registered.

Safety does not rest on how early an owner's end is heard of. Such a registration serves only arrays
of owners that are known to it and alive, and those keep the very memory that was registered: an
array that got the same address later has another owner, and is looked up.

Owners may die anywhere, also within this module, at a garbage collection. So their end is only
noted (`_dead`), and acted upon by whoever holds the lock or can take it.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import _native, config
from ..config import Settings
from ..errors import StateError
from .libraries import address_of, owner_of
from .memory import Allocation
from .values import Extent

__all__ = ["close", "close_all", "give_way", "notice", "vouches"]

# Allocations that were transferred once, and are waited for to come again.
_MOST_SEEN = 1024


class _Owner(weakref.ref[Any]):
    """A watched owner, and which allocation it belongs to."""

    __slots__ = ("base", "identity")

    base: int
    identity: int


@dataclass(slots=True)
class _Entry:
    """A registered allocation: who keeps it alive, and when it was used last."""

    registration: _native.Registration
    owners: dict[int, _Owner]
    used: int


_lock = threading.Lock()
_entries: dict[int, _Entry] = {}
_seen: dict[tuple[int, int], _Owner] = {}
_dead: deque[_Owner] = deque()
_clock = itertools.count()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with _lock:
        yield
    _bury()


def _died(owner: weakref.ref[Any]) -> None:
    assert isinstance(owner, _Owner)
    _dead.append(owner)
    _bury()


def _bury() -> None:
    while _dead and _lock.acquire(blocking=False):
        ended = []
        try:
            while _dead:
                owner = _dead.popleft()
                for key in [key for key, one in _seen.items() if one is owner]:
                    del _seen[key]
                entry = _entries.get(owner.base)
                if entry is None or entry.owners.get(owner.identity) is not owner:
                    continue
                del entry.owners[owner.identity]
                if not entry.owners:
                    ended.append(_entries.pop(owner.base))
        finally:
            _lock.release()
        for entry in ended:
            _native.deregister_buffer(entry.registration)


def _watched(owner: object, base: int) -> _Owner:
    watched = _Owner(owner, _died)
    watched.base = base
    watched.identity = id(owner)
    return watched


def vouches(registration: _native.Registration, array: object) -> bool:
    """Whether an automatic registration is of the memory that an array keeps alive.

    Parameters
    ----------
    registration : Registration
        One that holds the array's extent.
    array : object
        The exporter.
    """
    entry = _entries.get(registration.base)
    if entry is None or entry.registration is not registration:
        return False
    owner = owner_of(array)
    watched = entry.owners.get(id(owner))
    if watched is None or watched() is not owner:
        return False
    entry.used = next(_clock)
    return True


def notice(allocation: Allocation, extent: Extent) -> _native.Registration | None:
    """Note a transfer on an allocation that was just looked up; the second time, register it.

    Parameters
    ----------
    allocation : Allocation
        As the runtime says.
    extent : Extent
        Within it, with its exporter.

    Returns
    -------
    Registration or None
        One that `vouches` for the exporter.
    """
    settings = config.get()
    if not settings.auto_register or allocation.nbytes > settings.auto_register_bytes:
        return None
    owner = owner_of(extent.exporter)
    if owner is None or not _owns(owner, allocation):
        return None
    with _locked():
        entry = _entries.get(allocation.base)
        if entry is None:
            key = allocation.base, allocation.nbytes
            first = _seen.pop(key, None)
            if first is None or first() is None:
                while len(_seen) >= _MOST_SEEN:
                    del _seen[next(iter(_seen))]
                _seen[key] = _watched(owner, allocation.base)
                return None
            entry = _registered(allocation, extent, settings)
        elif not _is_of(entry, allocation):
            # Its owners died unheard: the memory was freed, and allocated anew.
            del _entries[allocation.base]
            _native.deregister_buffer(entry.registration)
            return None
        if entry is None:
            return None
        entry.owners[id(owner)] = _watched(owner, allocation.base)
        return entry.registration


def _owns(owner: object, allocation: Allocation) -> bool:
    return allocation.base <= address_of(owner) < allocation.base + allocation.nbytes


def _is_of(entry: _Entry, allocation: Allocation) -> bool:
    owners = [watched() for watched in list(entry.owners.values())]
    return entry.registration.size == allocation.nbytes and any(
        owner is not None and _owns(owner, allocation) for owner in owners
    )


def _registered(allocation: Allocation, extent: Extent, settings: Settings) -> _Entry | None:
    if not _make_room(allocation.nbytes, settings):
        return None
    try:
        registration = _native.register_buffer(
            int(extent.platform), allocation.base, allocation.nbytes, allocation.device, True
        )
    except StateError:
        return None  # a part of it was registered by the user
    entry = _Entry(registration, {}, next(_clock))
    _entries[allocation.base] = entry
    return entry


def _make_room(nbytes: int, settings: Settings) -> bool:
    """Deregister what was not used for longest until there is room; False if all is in use."""
    held = sum(entry.registration.size for entry in _entries.values())
    for base, entry in sorted(_entries.items(), key=lambda item: item[1].used):
        if (
            len(_entries) < settings.auto_register_count
            and held + nbytes <= settings.auto_register_bytes
        ):
            break
        if _native.deregister_idle_buffer(entry.registration):
            del _entries[base]
            held -= entry.registration.size
    return (
        len(_entries) < settings.auto_register_count
        and held + nbytes <= settings.auto_register_bytes
    )


def give_way(extent: Extent) -> None:
    """Deregister what overlaps an extent that the user registers; wait for transfers under way."""
    with _locked():
        ended = [
            _entries.pop(base)
            for base, entry in list(_entries.items())
            if base < extent.pointer + extent.nbytes
            and extent.pointer < base + entry.registration.size
        ]
    for entry in ended:
        _native.deregister_buffer(entry.registration)


def close(registration: _native.Registration) -> None:
    """Deregister one, after waiting for transfers under way."""
    with _locked():
        entry = _entries.get(registration.base)
        if entry is not None and entry.registration is registration:
            del _entries[registration.base]
    _native.deregister_buffer(registration)


def close_all() -> None:
    """Deregister all, after waiting for transfers under way, and forget what was seen."""
    with _locked():
        ended = list(_entries.values())
        _entries.clear()
        _seen.clear()
    for entry in ended:
        _native.deregister_buffer(entry.registration)


@atexit.register
def _at_exit() -> None:
    """No native call may happen while the interpreter finalises."""
    with contextlib.suppress(Exception):
        close_all()


def _forget() -> None:
    """In a forked child: the parent's registrations are not ours."""
    global _lock
    _lock = threading.Lock()
    _entries.clear()
    _seen.clear()
    _dead.clear()


os.register_at_fork(after_in_child=_forget)
