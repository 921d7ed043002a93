"""`like`: lets ``numpy.fromfile`` itself return a device array (NEP 35)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .rawfile import fromfile

__all__ = ["like"]


class _Like:
    """What NumPy's ``like=`` argument takes: dispatches ``numpy.fromfile`` to this library."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        if function is not np.fromfile:
            return NotImplemented
        return fromfile(*args, **kwargs, like=self._reference)


def like(reference: Any) -> Any:
    """Make ``numpy.fromfile`` return device arrays.

    Parameters
    ----------
    reference : array, module or type
        As `fromfile`'s ``like``: the new array belongs to its library and device.

    Returns
    -------
    object
        For the ``like=`` argument of ``numpy.fromfile``.

    Examples
    --------
    >>> import cupy as cp, numpy as np, hipfile_arrays as hfa
    >>> np.arange(3, dtype="i4").tofile("/tmp/numbers.i4")
    >>> np.fromfile("/tmp/numbers.i4", "i4", like=hfa.like(cp))
    array([0, 1, 2], dtype=int32)
    """
    return _Like(reference)
