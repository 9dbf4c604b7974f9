"""PyTorch modules: Sequential, nested as you like, of Linear and ReLU, read as in evaluation mode.

A module is recognised by the forward function it runs, not by its class alone: a subclass of Linear that
computes something else is refused. Parameters are widened to float64 without change; consecutive Linear
modules are fused as `layercert.io.affine` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from layercert.arrays import Matrix
from layercert.errors import MissingPackageError, ModelError
from layercert.io.affine import Affine
from layercert.network import Network

if TYPE_CHECKING:
    import torch

    Handler: TypeAlias = Callable[[Affine, torch.nn.Module, str], Affine]


def read_module(module: torch.nn.Module) -> Network:
    """The network of a module; its training mode, gradients and device stay as they are."""
    try:
        import torch
    except ImportError:
        raise MissingPackageError("torch", "reading a PyTorch module", "torch") from None
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"from_torch takes a torch.nn.Module, got {type(module).__name__}; "
            "for a state_dict build the module first, for a file use load(path)"
        )
    steps = list(_steps(module, ""))
    first = next((m for m, _, handler in steps if handler is _linear), None)
    if first is None:
        raise ModelError(f"{type(module).__name__} holds no Linear module, so the number of inputs is unknown")
    x = Affine.input((int(first.in_features),))
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is found, and named, by Network
        for m, label, handler in steps:
            if x.dropped and handler in (_linear, _relu):
                raise ModelError(
                    f"{x.dropped} is followed by {label}; a Softmax is taken only at the end, "
                    "where it does not change the class"
                )
            x = handler(x, m, label)
    return x.network(f"torch {type(module).__name__}")


def _steps(module: torch.nn.Module, path: str) -> Iterator[tuple[torch.nn.Module, str, Handler]]:
    """The modules in the order they run, each with its name for messages and its handler."""
    from torch import nn

    label = f"{type(module).__name__} {path!r}" if path else type(module).__name__
    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        raise ModelError(f"{label} has no weights yet; run the module once on an input")
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        raise ModelError(f"{label} has forward hooks or a replaced forward, which may change its output; remove them")
    if hasattr(module, "parametrizations"):
        raise ModelError(
            f"{label} is parametrized; make its weights plain first with "
            "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"
        )
    if _runs(module, nn.Sequential):
        for name, child in module._modules.items():  # named_children leaves out a module used twice
            yield from _steps(child, f"{path}.{name}" if path else name)
        return
    for name, handler in _HANDLERS.items():
        if _runs(module, getattr(nn, name)):
            yield module, label, handler
            return
    raise ModelError(
        f"{label} is not supported; supported modules: Sequential, {', '.join(_HANDLERS)}; "
        "a module with its own forward can be exported with torch.onnx.export and read with load(path)"
    )


def _runs(module: torch.nn.Module, cls: type[torch.nn.Module]) -> bool:
    return isinstance(module, cls) and type(module).forward is cls.forward


def _linear(x: Affine, module: torch.nn.Module, label: str) -> Affine:
    if x.shape != (module.in_features,):
        raise ModelError(f"{label} expects {module.in_features} inputs, the modules before it produce {x.size}")
    x = x.matmul(_numbers(module.weight, f"the weight of {label}").T)
    return x if module.bias is None else x.plus(_numbers(module.bias, f"the bias of {label}"))


def _relu(x: Affine, module: torch.nn.Module, label: str) -> Affine:
    return x.relu()


def _unchanged(x: Affine, module: torch.nn.Module, label: str) -> Affine:
    return x


def _flatten(x: Affine, module: torch.nn.Module, label: str) -> Affine:
    if module.start_dim not in (0, 1) or module.end_dim != -1:
        raise ModelError(
            f"{label} flattens axes {module.start_dim}..{module.end_dim} only; "
            "supported: all of a sample, start_dim=1 (or 0 without a batch axis) and end_dim=-1"
        )
    return x


def _softmax(x: Affine, module: torch.nn.Module, label: str) -> Affine:
    if module.dim not in (None, 1, -1):
        raise ModelError(f"{label} runs along dim={module.dim}; supported: along the classes, dim=1 or dim=-1")
    return replace(x, dropped=label)


def _numbers(parameter: torch.Tensor, what: str) -> Matrix:
    import torch

    if parameter.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise ModelError(f"{what} has dtype {parameter.dtype}; supported: float16, bfloat16, float32, float64")
    if parameter.is_meta:
        raise ModelError(f"{what} is on the meta device and holds no numbers; load the weights first")
    array: Matrix = parameter.detach().to("cpu", torch.float64).numpy()
    if not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ModelError(f"{what} holds {array[at]} at {at}; weights must be finite numbers")
    return array


#: Names in torch.nn. Dropout does nothing in evaluation mode; a Softmax is taken at the end only.
_HANDLERS: dict[str, Handler] = {
    "Linear": _linear,
    "ReLU": _relu,
    "Flatten": _flatten,
    "Identity": _unchanged,
    "Dropout": _unchanged,
    "Dropout1d": _unchanged,
    "Dropout2d": _unchanged,
    "Dropout3d": _unchanged,
    "AlphaDropout": _unchanged,
    "FeatureAlphaDropout": _unchanged,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
}
