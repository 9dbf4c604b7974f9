"""What PyTorch's functions and methods mean, in terms of ONNX's operations (`layercert.io.ops`).

The functions below take their arguments as torch's functions of the same name do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from layercert.arrays import Matrix
from layercert.errors import ModelError
from layercert.io.affine import Affine
from layercert.io.ops import OPS, Node
from layercert.io.ops.moves import joined

#: The meaning of operations is that of this opset.
OPSET = 22


@dataclass(frozen=True)
class Call:
    """One call in a traced forward; `title` names it in errors."""

    title: str

    def op(self, name: str, *inputs: Any, **attributes: Any) -> Any:
        given = tuple(None if v is None else self.value(v) for v in inputs)
        node = Node(name, self.title, OPSET, given, attributes, title=self.title)
        try:
            return OPS[name](node)
        except (ValueError, IndexError) as error:
            raise node.refuse(f"cannot be computed: {error}") from None

    def value(self, v: Any) -> Any:
        if isinstance(v, Affine | np.ndarray):
            return v
        return (
            np.asarray(v)
            if isinstance(v, bool | int | float | list | tuple)
            else numbers(v, f"a value of {self.title}")
        )

    def refuse(self, reason: str) -> ModelError:
        return ModelError(f"{self.title} {reason}")


def numbers(tensor: Any, what: str) -> Matrix:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise ModelError(f"{what} is {type(tensor).__name__}; expected a tensor")
    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        if not tensor.dtype.is_complex and not tensor.is_floating_point():
            return np.asarray(tensor.detach().cpu().numpy())
        raise ModelError(f"{what} has dtype {tensor.dtype}; supported: float16, bfloat16, float32, float64")
    if tensor.is_meta:
        raise ModelError(f"{what} is on the meta device and holds no numbers; load the weights first")
    array: Matrix = tensor.detach().to("cpu", torch.float64).numpy()
    if not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ModelError(f"{what} holds {array[at]} at {at}; weights must be finite numbers")
    return array


def _many(value: Any, d: int) -> list[int]:
    """torch's int or tuple, once a spatial axis."""
    given = list(value) if isinstance(value, list | tuple) else [value]
    return [int(v) for v in (given * d if len(given) == 1 else given)]


def axis_of(dim: int, ndim: int) -> int:
    return dim + ndim if dim < 0 else dim


# Affine.


def linear(call: Call, input: Any, weight: Any, bias: Any = None) -> Any:
    W = call.value(weight)
    if not input.shape or input.shape[-1] != W.shape[-1]:
        raise call.refuse(f"expects {W.shape[-1]} inputs, what comes before it has shape {input.shape}")
    y = call.op("MatMul", input, W.T)
    return y if bias is None else call.op("Add", y, bias)


def conv(call: Call, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
         dilation: Any = 1, groups: int = 1) -> Any:  # fmt: skip
    W = call.value(weight)
    d = W.ndim - 2
    strides, dilations = _many(stride, d), _many(dilation, d)
    if padding == "valid":
        padding = 0
    if padding == "same":
        total = [(k - 1) * s for k, s in zip(W.shape[2:], dilations, strict=True)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        pads = _many(padding, d) * 2
    return call.op("Conv", input, W, bias, strides=strides, dilations=dilations, pads=pads, group=groups)


def batch_norm(call: Call, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Any:  # fmt: skip
    # the parameters are torch's own
    if training or running_mean is None or running_var is None:
        raise call.refuse("normalises by the batch at hand, so that its output is no function of one input")
    mean, variance = call.value(running_mean), call.value(running_var)
    scale = np.ones_like(mean) if weight is None else weight
    shift = np.zeros_like(mean) if bias is None else bias
    return call.op("BatchNormalization", input, scale, shift, mean, variance, epsilon=eps)


def spatial(d: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on a batch axis, channels and d axes of space; torch also takes tensors with one axis less."""

    def checked(call: Call, input: Any, *args: Any, **kwargs: Any) -> Any:
        if len(input.shape) != d + 2:
            raise call.refuse(
                f"expects a batch axis, channels and {d} axes of space, got shape {input.shape}; give from_torch an "
                f"input_shape of channels and {d} axes"
            )
        return function(call, input, *args, **kwargs)

    return checked


def avg_pool(call: Call, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: Any = None) -> Any:  # fmt: skip
    if divisor_override is not None:
        raise call.refuse("has a divisor_override, which is not supported")
    return _pool(call, "AveragePool", input, kernel_size, stride, padding, ceil_mode,
                 count_include_pad=int(count_include_pad))  # fmt: skip


def max_pool(call: Call, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False, return_indices: bool = False) -> Any:  # fmt: skip
    if return_indices:
        raise call.refuse("returns indices, which are not a piecewise linear function of the input")
    d = len(input.shape) - 2
    return _pool(call, "MaxPool", input, kernel_size, stride, padding, ceil_mode, dilations=_many(dilation, d))


def _pool(call: Call, op: str, input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
          **more: Any) -> Any:  # fmt: skip
    d = len(input.shape) - 2
    kernel = _many(kernel_size, d)
    strides = kernel if stride is None or stride in ([], ()) else _many(stride, d)
    return call.op(op, input, kernel_shape=kernel, strides=strides, pads=_many(padding, d) * 2,
                   ceil_mode=int(ceil_mode), **more)  # fmt: skip


def adaptive(op: str) -> Callable[..., Any]:
    """Windows of equal size: where the output's size divides the input's."""

    def pool(call: Call, input: Any, output_size: Any, return_indices: bool = False) -> Any:
        space = input.shape[2:]
        given = output_size if isinstance(output_size, list | tuple) else [output_size] * len(space)
        wanted = [n if size is None else size for n, size in zip(space, given, strict=True)]
        if any(n % size for n, size in zip(space, wanted, strict=True)) or return_indices:
            raise call.refuse(f"from {space} to {tuple(wanted)} has windows of several sizes, which are not supported")
        return _pool(call, op, input, [n // size for n, size in zip(space, wanted, strict=True)], None, 0, False)

    return pool


def arithmetic(op: str, swapped: bool = False) -> Callable[..., Any]:
    def function(call: Call, input: Any, other: Any, alpha: float = 1) -> Any:
        first, second = (other, input) if swapped else (input, other)
        if alpha != 1:
            second = call.op("Mul", second, float(alpha))
        return call.op(op, first, second)

    return function


def reduction(op: str) -> Callable[..., Any]:
    def function(call: Call, input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        if dtype is not None:
            raise call.refuse(f"computes in {dtype}; supported: in the module's own float type")
        axes = list(range(len(input.shape))) if dim is None or dim == () else _many(dim, 1)
        return call.op(op, input, axes=axes, keepdims=int(keepdim))

    return function


# Piecewise linear.


def unary(op: str) -> Callable[..., Any]:
    return lambda call, input, inplace=False: call.op(op, input)


def leaky_relu(call: Call, input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return call.op("LeakyRelu", input, alpha=negative_slope)


def prelu(call: Call, input: Any, weight: Any) -> Any:
    slope = call.value(weight)
    if slope.size > 1:
        slope = slope.reshape(-1, *(1 for _ in input.shape[2:]))
    return call.op("PRelu", input, slope)


def clamp(call: Call, input: Any, min: Any = None, max: Any = None) -> Any:
    return call.op("Clip", input, min, max)


def hardtanh(call: Call, input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return call.op("Clip", input, min_val, max_val)


def softmax(op: str) -> Callable[..., Any]:
    def function(call: Call, input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dtype is not None:
            raise call.refuse(f"computes in {dtype}; supported: in the module's own float type")
        if dim is None:
            dim = 0 if len(input.shape) in (0, 1, 3) else 1
        return call.op(op, input, axis=dim)

    return function


# Shapes.


def flatten(call: Call, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    n = len(input.shape)
    first, last = axis_of(start_dim, n), axis_of(end_dim, n)
    if not 0 <= first <= last < n:
        raise call.refuse(
            f"flattens axes {start_dim}..{end_dim} of shape {input.shape}; if that is not the shape you mean, give "
            "from_torch the input_shape"
        )
    shape = (*input.shape[:first], math.prod(input.shape[first : last + 1]), *input.shape[last + 1 :])
    return input.gather(input.ids.reshape(shape))


def reshape(call: Call, input: Any, *shape: Any) -> Any:
    return input.gather(input.ids.reshape(*(shape[0] if isinstance(shape[0], list | tuple) else shape)))


def permute(call: Call, input: Any, *dims: Any) -> Any:
    return input.gather(np.transpose(input.ids, dims[0] if isinstance(dims[0], list | tuple) else dims))


def squeeze(call: Call, input: Any, dim: Any = None) -> Any:
    axes = range(len(input.shape)) if dim is None else _many(dim, 1)
    return input.gather(np.squeeze(input.ids, tuple(a for a in axes if input.shape[a] == 1)))


def getitem(call: Call, input: Any, index: Any) -> Any:
    return input.gather(input.ids[index]) if isinstance(input, Affine) else input[index]


def size(call: Call, input: Any, dim: int | None = None) -> Any:
    return input.shape if dim is None else input.shape[dim]


def attribute(call: Call, input: Any, name: str) -> Any:
    known = {"shape": input.shape, "ndim": len(input.shape), "T": None}
    if name not in known:
        raise call.refuse(f"reads {name!r} of a value; supported: shape, ndim, T")
    return input.gather(input.ids.T) if name == "T" else known[name]


def cat(call: Call, tensors: Any, dim: int = 0) -> Any:
    node = Node("Concat", call.title, OPSET, tuple(call.value(t) for t in tensors), {}, title=call.title)
    return joined(node, node.values(), dim)  # which refuses what follows a Softmax


def stack(call: Call, tensors: Any, dim: int = 0) -> Any:
    return cat(call, [call.op("Unsqueeze", t, np.array([dim])) for t in tensors], dim)


def split(call: Call, input: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    n = input.shape[dim]
    parts = split_size_or_sections
    if isinstance(parts, int):
        parts = [min(parts, n - i) for i in range(0, n, parts)]
    return call.op("Split", input, np.array(parts), axis=dim)


def chunk(call: Call, input: Any, chunks: int, dim: int = 0) -> Any:
    return split(call, input, -(-input.shape[dim] // chunks), dim)


def pad(call: Call, input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    before, after = [0] * len(input.shape), [0] * len(input.shape)
    for i in range(len(pad) // 2):  # torch begins with the last axis
        before[-1 - i], after[-1 - i] = int(pad[2 * i]), int(pad[2 * i + 1])
    return call.op("Pad", input, np.array(before + after), np.array(value or 0.0), mode=names[mode])


def same(call: Call, input: Any) -> Any:
    """contiguous, clone, detach: the value itself."""
    return input


def dropout(call: Call, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if training:
        raise call.refuse("is in training mode, where the output is random; pass training=self.training")
    return input


#: Functions and methods, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": unary("Abs"), "absolute": unary("Abs"),
    **{f"adaptive_avg_pool{d}d": spatial(d, adaptive("AveragePool")) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": spatial(d, adaptive("MaxPool")) for d in (1, 2, 3)},
    "add": arithmetic("Add"), "amax": reduction("ReduceMax"), "amin": reduction("ReduceMin"),
    **{f"avg_pool{d}d": spatial(d, avg_pool) for d in (1, 2, 3)}, "batch_norm": batch_norm,
    "cat": cat, "chunk": chunk, "clamp": clamp, "clip": clamp, "clone": same, "concat": cat, "contiguous": same,
    **{f"conv{d}d": spatial(d, conv) for d in (1, 2, 3)}, "detach": same, "dim": lambda call, input: len(input.shape),
    "div": arithmetic("Div"), "dropout": dropout, "dropout2d": dropout, "flatten": flatten, "getattr": attribute,
    "getitem": getitem, "hardsigmoid": lambda call, input, inplace=False: call.op(
        "HardSigmoid", input, alpha=1.0 / 6.0, beta=0.5),
    "hardtanh": hardtanh, "leaky_relu": leaky_relu, "linear": linear, "log_softmax": softmax("LogSoftmax"),
    "matmul": arithmetic("MatMul"), **{f"max_pool{d}d": spatial(d, max_pool) for d in (1, 2, 3)},
    "maximum": arithmetic("Max"), "mean": reduction("ReduceMean"), "minimum": arithmetic("Min"),
    "mul": arithmetic("Mul"), "multiply": arithmetic("Mul"), "neg": unary("Neg"), "negative": unary("Neg"), "pad": pad,
    "permute": permute, "prelu": prelu, "relu": unary("Relu"),
    "relu6": lambda call, input, inplace=False: call.op("Clip", input, 0.0, 6.0),
    "reshape": reshape, "rsub": arithmetic("Sub", swapped=True), "sigmoid": unary("Sigmoid"), "size": size,
    "softmax": softmax("Softmax"),
    "split": split, "squeeze": squeeze, "stack": stack, "sub": arithmetic("Sub"), "subtract": arithmetic("Sub"),
    "sum": reduction("ReduceSum"), "t": lambda call, input: input.gather(input.ids.T),
    "transpose": lambda call, input, dim0, dim1: input.gather(np.swapaxes(input.ids, dim0, dim1)),
    "truediv": arithmetic("Div"), "true_divide": arithmetic("Div"),
    "unsqueeze": lambda call, input, dim: call.op("Unsqueeze", input, np.array([dim])), "view": reshape,
}  # fmt: skip

#: Functions whose result shares memory with their argument.
ALIASES = {
    *("chunk", "contiguous", "detach", "flatten", "getitem", "permute", "reshape", "split", "squeeze", "t"),
    *("dropout", "dropout2d", "transpose", "unsqueeze", "view"),
}
