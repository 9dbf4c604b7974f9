"""Reading networks: ONNX and .npz files, PyTorch modules. Each reader ends in a `Network` of exact weights.

The packages onnx and torch are imported by the reader that needs them, not here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layercert.errors import ModelError, OptionError
from layercert.io.npz import read_npz
from layercert.io.runtime import OnnxRuntime, TorchRuntime, confirm
from layercert.network import Network

if TYPE_CHECKING:
    import torch

__all__ = ["from_sklearn", "from_torch", "load"]


def load(path: str | os.PathLike[str], threshold: float | None = None, output: str | None = None) -> Network:
    """The network in a .onnx (also .onnx.gz) or .npz file.

    A Softmax, LogSoftmax or Sigmoid at the end of a model is left out: it keeps the order of the classes, and so every
    robustness radius, but the network's outputs are then logits, not probabilities.

    Args:
        path: The file. `shipped.path("mnist17_l1_2x20")` is one that comes with the package.
        threshold: For a model with one output: above it the class is 1, else 0. In the unit of that output; by default
            0.5 after a Sigmoid, else 0.
        output: For an ONNX model with several outputs: the name of the one with the scores. A label beside them, as
            scikit-learn's exports have it, needs no name.

    Returns:
        The network with the file's weights, exactly, and for ONNX the model's runtime where onnxruntime is installed.

    Raises:
        ModelError: There is no such file, it holds something that is not a network of affine layers and ReLUs, or
            onnxruntime disagrees with what was read.
        MissingPackageError: The format needs a package that is not installed.
        OptionError: A threshold for a model with several outputs, or one out of range; an output of an .npz file.
    """
    network = _load(path, output)
    return network if threshold is None else network.with_threshold(threshold)


def _load(path: str | os.PathLike[str], output: str | None) -> Network:
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
    suffix = ".onnx.gz" if file.name.lower().endswith(".onnx.gz") else file.suffix.lower()
    reader = _READERS.get(suffix)
    if reader is None:
        raise ModelError(
            f"cannot tell what {file.name!r} is from its suffix {file.suffix!r}; supported: {supported}; "
            "for a PyTorch checkpoint build the module and use from_torch(module)"
        )
    try:
        return reader(file, output)
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


def from_sklearn(model: Any, threshold: float | None = None) -> Network:
    """The network of a fitted scikit-learn classifier, alone or at the end of a pipeline of affine steps.

    Args:
        model: MLPClassifier (activation relu or identity) or a linear classifier; in front of it StandardScaler,
            MinMaxScaler, MaxAbsScaler, RobustScaler, PCA or a selection of columns. Class k is model.classes_[k].
        threshold: For two classes: above it the class is 1, else 0. In the unit of the model's own output; by default
            0.5 where it gives probabilities, else 0.

    Returns:
        The network, and the model as its runtime.

    Raises:
        ModelError: The model is not fitted, has a step that is not piecewise linear, or disagrees with what was read.
        MissingPackageError: scikit-learn is not installed.
        OptionError: A threshold for a model with several outputs, or one out of range.
    """
    from layercert.io.sklearn import read_sklearn

    network = read_sklearn(model)
    confirm(network, type(model).__name__)
    return network if threshold is None else network.with_threshold(threshold)


def _read_onnx(path: Path, output: str | None) -> Network:
    from layercert.io.onnx import read_onnx

    network, scores = read_onnx(path, output)
    network = replace(network, runtime=OnnxRuntime(path.resolve(), output=scores.output, last=scores.last))
    # where one of several inputs was read, only the model itself can say that the others do not matter
    if scores.batch > 1 and (network.runtime is None or network.runtime(np.zeros(network.inputs)) is None):
        raise ModelError(
            f"the model takes a batch of {scores.batch} inputs; to see that they do not depend on each other it "
            "must be run: pip install 'layercert[onnxruntime]'; or export it with a batch of 1 or of any size"
        )
    confirm(network, path.name if scores.batch == 1 else f"a batch of {scores.batch}")
    return network


def _read_npz(path: Path, output: str | None) -> Network:
    if output is not None:
        raise OptionError(f"output={output!r} names an output of an ONNX model; {path.name} holds a network of layers")
    return read_npz(path)


_READERS: dict[str, Callable[[Path, str | None], Network]] = {
    ".onnx": _read_onnx,
    ".npz": _read_npz,
    ".onnx.gz": _read_onnx,
}
