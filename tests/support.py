"""What many tests use."""

from __future__ import annotations

import cupy as cp
import numpy as np


def random_bytes(count: int, seed: int = 0) -> bytes:
    """The same bytes for the same arguments."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8).tobytes()


def device_bytes(array: object) -> bytes:
    """An array's items in C order, as CuPy copies them."""
    return cp.asnumpy(array).tobytes()
