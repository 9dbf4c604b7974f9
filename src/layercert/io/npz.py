"""Networks in numpy's .npz files: W0, b0, W1, b1, ..., each W of shape (out, in). Other keys are ignored.

A sparse W1 is stored as scipy's compressed rows: W1_data, W1_indices, W1_indptr, W1_shape. What is known of a model
that was read from elsewhere may stand beside them: input_shape, input_range, dropped, threshold, input_names.
`Network.save` writes such files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from layercert.errors import ModelError
from layercert.network import FACTS, SPARSE_PARTS, Network
from layercert.system.files import printable
from layercert.system.npz import OBJECTS, Damaged, names_in, read_numpy

_KEY = re.compile(r"([Wb])(0|[1-9][0-9]*)")
_PART = re.compile(rf"(W(?:0|[1-9][0-9]*))_({'|'.join(SPARSE_PARTS)})")
_WRITTEN = "write it with Network.save(path), or numpy.savez(path, W0=..., b0=..., ...)"


def read_npz(path: Path) -> Network:
    """The network stored in an .npz file; pickled objects are never loaded."""
    stored = _read(path)
    arrays = _joined(stored)
    count = 1 + max((int(k[1:]) for k in arrays), default=-1)
    for i in range(count):
        for key in (f"W{i}", f"b{i}"):
            if key not in arrays:
                raise ModelError(
                    f"{key} is missing, the file has {_listed(arrays)}; layers are numbered W0, b0, W1, b1, "
                    "... without a gap, and every weight matrix has its bias (zeros for none)"
                )
    weights = [arrays[f"W{i}"] for i in range(count)]
    weights = [W if not isinstance(W, np.ndarray) else _exact(f"W{i}", W) for i, W in enumerate(weights)]
    biases = [_exact(f"b{i}", arrays[f"b{i}"]) for i in range(count)]
    return _with_facts(Network.from_arrays(weights, biases, source=printable(path.name)), stored)


def network_of(arrays: Mapping[str, NDArray[Any]], source: str) -> Network:
    """The network that `Network.arrays` took apart."""
    whole = _joined(arrays)
    layers = range(sum(key.startswith("b") for key in whole))
    network = Network.from_arrays([whole[f"W{i}"] for i in layers], [whole[f"b{i}"] for i in layers], source)
    return _with_facts(network, arrays)


def _with_facts(network: Network, arrays: Mapping[str, NDArray[Any]]) -> Network:
    """The network with what the file says about the model it was; what has another form is refused."""
    wanted = {
        "input_shape": ("iu", 1, "whole numbers"),
        "input_range": ("fiu", 1, "two numbers"),
        "dropped": ("U", 0, "a name"),
        "threshold": ("fiu", 0, "a number"),
        "input_names": ("U", 1, "names"),
    }
    facts: dict[str, Any] = {}
    for name, (kinds, axes, what) in wanted.items():
        if name in arrays:
            array = arrays[name]
            if array.dtype.kind not in kinds or array.ndim != axes:
                raise ModelError(f"{name} must be {what}, got {array.dtype} of shape {array.shape}; leave it out")
            facts[name] = tuple(array.tolist()) if axes else array.item()
    if "input_range" in facts:
        ends = facts["input_range"] = tuple(map(float, facts["input_range"]))
        if len(ends) != 2 or not ends[0] <= ends[1]:
            raise ModelError(f"input_range must be two numbers low <= high, got {ends}; leave it out")
    if not math.isfinite(facts.get("threshold", 0.0)):
        raise ModelError(f"threshold must be a finite number, got {facts['threshold']}; leave it out")
    if math.prod(facts.get("input_shape", (network.inputs,))) != network.inputs:
        raise ModelError(
            f"input_shape is {facts['input_shape']}, which does not fit {network.inputs} inputs; leave it out"
        )
    if len(facts.get("input_names", ())) not in (0, network.inputs):
        raise ModelError(
            f"input_names holds {len(facts['input_names'])} names for {network.inputs} inputs; leave it out"
        )
    return replace(network, **facts)


def _joined(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Dense arrays as they are, the parts of a sparse matrix put together and checked."""
    whole: dict[str, Any] = {key: array for key, array in arrays.items() if _KEY.fullmatch(key)}
    for key in sorted({found[1] for name in arrays if (found := _PART.fullmatch(name))}):
        missing = [f"{key}_{part}" for part in SPARSE_PARTS if f"{key}_{part}" not in arrays]
        if missing or key in whole:
            wrong = f"lacks {', '.join(missing)}" if missing else "is there twice, whole and in parts"
            raise ModelError(f"{key} {wrong}; a sparse matrix has the parts {', '.join(SPARSE_PARTS)} and nothing else")
        data, indices, indptr, shape = (np.asarray(arrays[f"{key}_{part}"]) for part in SPARSE_PARTS)
        try:
            if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu" or shape.shape != (2,):
                raise ValueError("indices, indptr and shape must be whole numbers")
            rows, columns = (int(n) for n in shape)
            matrix = csr_array((_exact(key, data), indices, indptr), shape=(rows, columns))
            matrix.check_format(full_check=True)
        except (ValueError, TypeError, IndexError) as error:
            raise ModelError(f"{key} is not a sparse matrix: {error}") from None
        whole[key] = matrix
    return whole


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with open(path, "rb") as file:
        try:
            arrays = read_numpy(file, lambda key: bool(_KEY.fullmatch(key) or _PART.fullmatch(key) or key in FACTS))
        except Damaged as error:
            raise ModelError(_said(error)) from None
        if not isinstance(arrays, dict):
            raise ModelError(f"not an .npz file but a single array; {_WRITTEN}")
        if not any(key.startswith(("W0_", "W0")) for key in arrays):
            raise ModelError(
                f"no array W0 in the file, it has {_listed(names_in(file))}; "
                "a network is stored as W0, b0, W1, b1, ... with each W of shape (out, in)"
            )
    return arrays


def _said(error: Damaged) -> str:
    if error.member is None:
        return f"not an .npz file, or a damaged one; {_WRITTEN} ({error.reason})"
    if error.reason == OBJECTS:
        return f"{error.member} {OBJECTS.removeprefix('it ')}"
    return f"{error.member} cannot be read, the file is damaged; write it again ({error.reason})"


def _exact(key: str, array: NDArray[Any]) -> NDArray[np.float64]:
    """The array in float64, refused where that would change a number."""
    if array.dtype.kind not in "fiu":
        raise ModelError(f"{key} must hold real numbers, got dtype {array.dtype}; store it as float32 or float64")
    with np.errstate(over="ignore", invalid="ignore"):
        wide = array.astype(np.float64)
        same = bool(np.array_equal(wide.astype(array.dtype), array, equal_nan=array.dtype.kind == "f"))
    if not same:
        raise ModelError(f"{key} has dtype {array.dtype} and numbers that float64 cannot hold exactly; store float64")
    return wide


def _listed(keys: Iterable[str]) -> str:
    names = sorted(keys)
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return shown or "no arrays"
