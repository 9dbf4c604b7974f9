"""What PyTorch's modules mean: their parameters, handed to the functions of `layercert.io.torch.functions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from layercert.io.torch.functions import (
    Call,
    adaptive,
    avg_pool,
    axis_of,
    batch_norm,
    conv,
    flatten,
    hardtanh,
    leaky_relu,
    linear,
    max_pool,
    numbers,
    pad,
    prelu,
    softmax,
    spatial,
)

if TYPE_CHECKING:
    import torch


def _weights(call: Call, m: Any, *names: str) -> list[Any]:
    """Parameters of a module, by the name under which errors know them."""
    found = ((name, getattr(m, name)) for name in names)
    return [None if value is None else numbers(value, f"the {name} of {call.title}") for name, value in found]


def _conv(d: int) -> Callable[..., Any]:
    def read(call: Call, m: Any, x: Any) -> Any:
        if m.padding_mode != "zeros":
            raise call.refuse(f"has padding_mode {m.padding_mode!r}; supported: 'zeros', or a padding module before it")
        weight, bias = _weights(call, m, "weight", "bias")
        return spatial(d, conv)(call, x, weight, bias, m.stride, m.padding, m.dilation, m.groups)

    return read


def _max_pool(d: int) -> Callable[..., Any]:
    return lambda call, m, x: spatial(d, max_pool)(
        call, x, m.kernel_size, m.stride, m.padding, m.dilation, m.ceil_mode, m.return_indices
    )


def _avg_pool(d: int) -> Callable[..., Any]:
    return lambda call, m, x: spatial(d, avg_pool)(
        call, x, m.kernel_size, m.stride, m.padding, m.ceil_mode, m.count_include_pad,
        getattr(m, "divisor_override", None),
    )  # fmt: skip


def _adaptive(d: int, op: str) -> Callable[..., Any]:
    return lambda call, m, x: spatial(d, adaptive(op))(call, x, m.output_size, getattr(m, "return_indices", False))


def _batch_norm(call: Call, m: Any, x: Any) -> Any:
    weight, bias, mean, variance = _weights(call, m, "weight", "bias", "running_mean", "running_var")
    return batch_norm(call, x, mean, variance, weight, bias, eps=m.eps)


def _padding(mode: str) -> Callable[..., Any]:
    return lambda call, m, x: pad(call, x, m.padding, mode, getattr(m, "value", 0.0))


def _nothing(call: Call, m: Any, x: Any) -> Any:
    return x


#: Modules, by their names in torch.nn. Dropout does nothing in evaluation mode; a Softmax is taken at the end only.
MODULES: dict[str, Callable[..., Any]] = {
    "Linear": lambda call, m, x: linear(call, x, *_weights(call, m, "weight", "bias")),
    "ReLU": lambda call, m, x: call.op("Relu", x),
    **{f"Conv{d}d": _conv(d) for d in (1, 2, 3)},
    **{f"BatchNorm{d}d": _batch_norm for d in (1, 2, 3)},
    **{f"MaxPool{d}d": _max_pool(d) for d in (1, 2, 3)},
    **{f"AvgPool{d}d": _avg_pool(d) for d in (1, 2, 3)},
    **{f"AdaptiveAvgPool{d}d": _adaptive(d, "AveragePool") for d in (1, 2, 3)},
    **{f"AdaptiveMaxPool{d}d": _adaptive(d, "MaxPool") for d in (1, 2, 3)},
    "LeakyReLU": lambda call, m, x: leaky_relu(call, x, m.negative_slope),
    "PReLU": lambda call, m, x: prelu(call, x, *_weights(call, m, "weight")),
    "ReLU6": lambda call, m, x: call.op("Clip", x, 0.0, 6.0),
    "Hardtanh": lambda call, m, x: hardtanh(call, x, m.min_val, m.max_val),
    "Hardsigmoid": lambda call, m, x: call.op("HardSigmoid", x, alpha=1.0 / 6.0, beta=0.5),
    "Flatten": lambda call, m, x: flatten(call, x, m.start_dim, m.end_dim),
    "Unflatten": lambda call, m, x: x.gather(x.ids.reshape(
        *x.shape[: axis_of(m.dim, len(x.shape))], *m.unflattened_size, *x.shape[axis_of(m.dim, len(x.shape)) + 1 :])),
    **{f"ZeroPad{d}d": _padding("constant") for d in (1, 2, 3)},
    **{f"ConstantPad{d}d": _padding("constant") for d in (1, 2, 3)},
    **{f"ReflectionPad{d}d": _padding("reflect") for d in (1, 2, 3)},
    **{f"ReplicationPad{d}d": _padding("replicate") for d in (1, 2, 3)},
    "Identity": _nothing,
    **{name: _nothing for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")},
    **{name: _nothing for name in ("AlphaDropout", "FeatureAlphaDropout")},
    "Sigmoid": lambda call, m, x: call.op("Sigmoid", x),
    "Softmax": lambda call, m, x: softmax("Softmax")(call, x, m.dim),
    "LogSoftmax": lambda call, m, x: softmax("LogSoftmax")(call, x, m.dim),
}  # fmt: skip

#: Modules whose result shares memory with their argument.
SHARING_MODULES = {
    *("AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "Flatten", "Identity"),
    "Unflatten",
}


def runs(module: torch.nn.Module, cls: type[torch.nn.Module]) -> bool:
    """A module is known by the forward it runs: a subclass may have one of its own."""
    return isinstance(module, cls) and type(module).forward is cls.forward


def row_of(module: torch.nn.Module) -> str | None:
    """The name of the module's row in the table, None when it has none."""
    from torch import nn

    return next((name for name in MODULES if runs(module, getattr(nn, name))), None)
