"""The stand-alone checker as a module: it belongs to no package."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SCRIPT = Path(__file__).parents[2] / "standalone" / "check_certificate.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("check_certificate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


alone = _load()


def around(
    W: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    x: np.ndarray,
    p: float,
    r: float,
    exact: bool,
    domain: tuple[np.ndarray, np.ndarray] | None = None,
    clauses: Sequence[tuple[np.ndarray, np.ndarray]] = (),
    intervals: bool = False,
) -> Any:
    """Its proof about a ball, with what is known at the start; no weights."""
    low, high = domain or (np.full(len(x), -np.inf), np.full(len(x), np.inf))
    given = [[-np.inf], [np.inf]] * np.ones(sum(map(len, b[:-1]))) if intervals else None
    return alone.Proof(list(W), list(b), list(clauses), x, p, r, low, high, np.ones(len(x)), exact, given)
