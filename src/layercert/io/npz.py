"""Networks in numpy's .npz files: W0, b0, W1, b1, ..., each W of shape (out, in). Other keys are ignored."""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.errors import ModelError, OptionError
from layercert.network import Network

_KEY = re.compile(r"([Wb])(0|[1-9][0-9]*)")
_DAMAGE = (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


def read_npz(path: Path) -> Network:
    """The network stored in an .npz file; pickled objects are never loaded."""
    arrays = _read(path)
    count = 1 + max((int(k[1:]) for k in arrays), default=-1)
    for i in range(count):
        for key in (f"W{i}", f"b{i}"):
            if key not in arrays:
                raise ModelError(
                    f"{key} is missing, the file has {_listed(arrays)}; layers are numbered W0, b0, W1, b1, "
                    "... without a gap, and every weight matrix has its bias (zeros for none)"
                )
    weights = [_exact(f"W{i}", arrays[f"W{i}"]) for i in range(count)]
    biases = [_exact(f"b{i}", arrays[f"b{i}"]) for i in range(count)]
    return Network.from_arrays(weights, biases, source=path.name)


def save_npz(network: Network, path: str | os.PathLike[str]) -> None:
    """Writes a network as float64 arrays W0, b0, W1, ...; `load` gives back the same network, bit for bit."""
    if Path(path).suffix.lower() != ".npz":
        raise OptionError(f"save_npz writes .npz files, got {os.fspath(path)!r}; end the file name in .npz")
    layers = zip(network.weights, network.biases, strict=True)
    arrays = {f"{kind}{i}": array for i, layer in enumerate(layers) for kind, array in zip("Wb", layer, strict=True)}
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with open(path, "rb") as handle:  # numpy would leave a damaged file open
        try:
            file = np.load(handle, allow_pickle=False)
        except _DAMAGE:
            file = None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ModelError("not an .npz file, or a damaged one; write it with numpy.savez(path, W0=..., b0=..., ...)")
        keys = [key for key in file.files if _KEY.fullmatch(key)]
        if "W0" not in keys:
            raise ModelError(
                f"no array W0 in the file, it has {_listed(file.files)}; "
                "a network is stored as W0, b0, W1, b1, ... with each W of shape (out, in)"
            )
        return {key: _member(file, key) for key in keys}


def _member(file: np.lib.npyio.NpzFile, key: str) -> NDArray[Any]:
    try:
        return np.asarray(file[key])
    except _DAMAGE as error:
        if "allow_pickle" in str(error):
            raise ModelError(
                f"{key} is an array of Python objects, which is never loaded (it could run code); "
                "store a plain float array"
            ) from None
        raise ModelError(f"{key} cannot be read, the file is damaged; write it again") from None


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
