"""Reading networks: ONNX and .npz files, PyTorch modules. Each reader ends in a `Network` of exact weights.

The packages onnx and torch are imported by the reader that needs them, not here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from layercert.errors import ModelError
from layercert.io.npz import read_npz
from layercert.io.runtime import OnnxRuntime, TorchRuntime, confirm
from layercert.network import Network

if TYPE_CHECKING:
    import torch

__all__ = ["from_torch", "load"]


def load(path: str | os.PathLike[str], threshold: float | None = None) -> Network:
    """The network in a .onnx or .npz file.

    A Softmax, LogSoftmax or Sigmoid at the end of a model is left out: it keeps the order of the classes, and so every
    robustness radius, but the network's outputs are then logits, not probabilities.

    Args:
        path: The file. `shipped.path("mnist17_l1_2x20")` is one that comes with the package.
        threshold: For a model with one output: above it the class is 1, else 0. In the unit of that output; by default
            0.5 after a Sigmoid, else 0.

    Returns:
        The network with the file's weights, exactly, and for ONNX the model's runtime where onnxruntime is installed.

    Raises:
        ModelError: There is no such file, or it holds something that is not a network of affine layers and ReLUs.
        MissingPackageError: The format needs a package that is not installed.
        OptionError: A threshold for a model with several outputs, or one out of range.
    """
    network = _load(path)
    return network if threshold is None else network.with_threshold(threshold)


def _load(path: str | os.PathLike[str]) -> Network:
    supported = ", ".join(_READERS)
    if not isinstance(path, str | os.PathLike):
        raise ModelError(
            f"load takes the path of a file ({supported}), got {type(path).__name__}; "
            "for a PyTorch module use from_torch(module), for arrays Network.from_arrays"
        )
    file = Path(path).expanduser()
    if not file.exists():
        raise ModelError(f"no file {str(file)!r}; check the path (the current folder is {str(Path.cwd())!r})")
    if file.is_dir():
        raise ModelError(f"{str(file)!r} is a folder; give the path of a model file ({supported})")
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise ModelError(
            f"cannot tell what {file.name!r} is from its suffix {file.suffix!r}; supported: {supported}; "
            "for a PyTorch checkpoint build the module and use from_torch(module)"
        )
    try:
        return reader(file)
    except ModelError as error:
        raise ModelError(f"{file.name}: {error}") from error.__cause__
    except MemoryError:
        raise ModelError(f"{file.name}: the network does not fit into memory") from None
    except OSError as error:
        raise ModelError(f"{file.name}: the file cannot be read: {error.strerror or error}") from None


def from_torch(
    module: torch.nn.Module, input_shape: Sequence[int] | None = None, threshold: float | None = None
) -> Network:
    """The network that a PyTorch module computes in evaluation mode; the module is left as it is.

    Args:
        module: A module whose forward torch.fx can trace.
        input_shape: The shape of one input without the batch axis, (3, 32, 32); a network that begins with a Linear
            knows its own.
        threshold: For a module with one output: above it the class is 1, else 0. In the unit of that output; by default
            0.5 after a Sigmoid, else 0.

    Returns:
        The network with the module's weights, exactly, and the module as its runtime.

    Raises:
        ModelError: The module does something that is not an affine layer or a ReLU, or it disagrees with what was read.
        MissingPackageError: PyTorch is not installed.
        OptionError: A threshold for a module with several outputs, or one out of range.
    """
    from layercert.io.torch import read_module

    network = read_module(module, input_shape)
    network = replace(network, runtime=TorchRuntime(module, network.input_shape))
    confirm(network, type(module).__name__)
    return network if threshold is None else network.with_threshold(threshold)


def _read_onnx(path: Path) -> Network:
    from layercert.io.onnx import read_onnx

    return replace(read_onnx(path), runtime=OnnxRuntime(path.resolve()))


_READERS: dict[str, Callable[[Path], Network]] = {".onnx": _read_onnx, ".npz": read_npz}
