"""PyTorch modules: any forward that torch.fx can trace, read as in evaluation mode.

Tracing gives a graph of modules, functions and methods; each is read by its row in `functions` and `modules`, which
hands it to the readers of ONNX's operations. A module is recognised by the forward function it runs, not by its class
alone: the forward of a subclass that computes something else is traced instead. A forward that branches on values
cannot be traced, and is refused. Parameters are widened to float64 without change; consecutive affine operations are
fused as `layercert.io.affine` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from layercert.errors import MissingPackageError, ModelError
from layercert.io.affine import Affine
from layercert.io.torch.functions import FUNCTIONS, Call, numbers
from layercert.io.torch.modules import MODULES, row_of, runs
from layercert.io.torch.sharing import Sharing, function_name
from layercert.network import Network

if TYPE_CHECKING:
    import torch

_EXPORT = "it can be exported with torch.onnx.export(module, x, 'model.onnx', dynamo=True) and read with load(path)"


def read_module(module: torch.nn.Module, input_shape: Sequence[int] | None = None) -> Network:
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
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            f"{type(module).__name__} is a scripted or traced module, whose Python code is gone; pass the "
            "torch.nn.Module that it was made from, or export it with torch.onnx.export and read that with load(path)"
        )
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps, with the same weights
    with _evaluation(module):
        graph = _trace(module)
        x = Affine.input((1, *_input_shape(module, graph, input_shape)))
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is found, and named, by Network
            y = _run(module, graph, x)
    if sum(n > 1 for n in y.shape) > 1:
        raise ModelError(
            f"the output of {type(module).__name__} has shape {y.shape} for an input of shape {x.shape}; a classifier "
            "gives one vector of scores; is input_shape that of one input, without the batch?"
        )
    return replace(y.network(f"torch {type(module).__name__}"), input_shape=x.shape)


@contextmanager
def _evaluation(module: torch.nn.Module) -> Iterator[None]:
    modes = [(m, m.training) for m in module.modules()]
    for m, _ in modes:
        m.training = False
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode


def _trace(module: torch.nn.Module) -> Any:
    from torch import fx

    class Tracer(fx.Tracer):  # type: ignore[misc]
        def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
            return row_of(m) is not None or _is_foreign(m)

        def call_module(self, m: torch.nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            _check(m, _label(m, self.path_of_module(m)))
            return super().call_module(m, forward, args, kwargs)

    _check(module, _label(module, ""))
    if row_of(module) is not None or _is_foreign(module):  # a single module is a graph of one node
        graph = fx.Graph()
        graph.output(graph.call_module("", (graph.placeholder("x"),)))
        return graph
    try:
        return Tracer().trace(module)
    except ModelError:
        raise
    except Exception as error:  # whatever the forward does with a value that has no numbers yet
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"the forward of {type(module).__name__} cannot be traced by torch.fx ({lines[0].rstrip('. ')}); {_EXPORT}"
        ) from None


def _is_foreign(m: torch.nn.Module) -> bool:
    """A module of torch itself that is not in the table; Sequential runs its children."""
    from torch import nn

    return type(m).__module__.startswith("torch.nn") and not runs(m, nn.Sequential)


def _label(module: torch.nn.Module, path: str) -> str:
    return f"{type(module).__name__} {path!r}" if path else type(module).__name__


def _check(module: torch.nn.Module, label: str) -> None:
    """Refuses a module that does not do what its forward says."""
    from torch import nn

    if isinstance(module, nn.modules.lazy.LazyModuleMixin):
        raise ModelError(f"{label} has no weights yet; run the module once on an input")
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        raise ModelError(f"{label} has forward hooks or a replaced forward, which may change its output; remove them")
    if hasattr(module, "parametrizations"):
        raise ModelError(
            f"{label} is parametrized; make its weights plain first with "
            "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"
        )


def _input_shape(module: torch.nn.Module, graph: Any, given: Sequence[int] | None) -> tuple[int, ...]:
    """The shape of one input: as given, or that of a vector for the first Linear."""
    if given is not None:
        shape = tuple(int(n) for n in given)
        if min(shape, default=0) < 1:
            raise ModelError(f"input_shape is the shape of one input without its batch axis, got {tuple(given)}")
        return shape
    for node in graph.nodes:
        if node.op == "call_module":
            m = module.get_submodule(node.target)
            row = row_of(m)
            if row == "Linear":
                return (int(m.in_features),)
            if row is not None and row.startswith(("Conv", "MaxPool", "AvgPool", "Adaptive", "BatchNorm")):
                raise ModelError(
                    f"{_label(m, node.target)} needs the shape of the input: "
                    "from_torch(module, input_shape=(channels, height, width)), without the batch axis"
                )
            _refuse_unknown(m, node.target)
    raise ModelError(
        f"{type(module).__name__} holds no Linear module, so the number of inputs is unknown; give the shape of one "
        "input: from_torch(module, input_shape=(...)), without the batch axis"
    )


def _refuse_unknown(m: torch.nn.Module, path: str) -> None:
    if row_of(m) is None:
        raise ModelError(
            f"{_label(m, path)} is not supported; supported modules: Sequential, {', '.join(MODULES)}, and your own "
            f"whose forward uses these; an exact distance needs a network that is continuous and piecewise linear"
        )


def _run(module: torch.nn.Module, graph: Any, x: Affine) -> Affine:
    """Every node of the graph in order; what does not depend on the input is computed by torch itself."""
    from torch import fx

    values: dict[Any, Any] = {}
    sharing = Sharing(module, graph)
    inputs = [node for node in graph.nodes if node.op == "placeholder" and not node.args]
    if len(inputs) != 1:
        raise ModelError(f"the forward of {type(module).__name__} takes {len(inputs)} inputs; a classifier has one")
    for node in graph.nodes:
        args, kwargs = (fx.map_arg(a, lambda n: values[n]) for a in (node.args, node.kwargs))
        if sharing.in_place(node):
            sharing.check(node)
        if node.op == "placeholder":
            values[node] = x if node is inputs[0] else node.args[0]
        elif node.op == "get_attr":
            values[node] = _attribute(module, node.target)
        elif node.op == "call_module":
            m = module.get_submodule(node.target)
            _refuse_unknown(m, node.target)
            call = Call(_label(m, node.target))
            values[node] = _called(MODULES[str(row_of(m))], call, (m, *args), kwargs)
        elif node.op == "output":
            if not isinstance(args[0], Affine):
                raise ModelError(
                    f"the output of {type(module).__name__} is {type(args[0]).__name__}, not one tensor that depends "
                    "on the input; a classifier gives one vector of scores"
                )
            return args[0]
        elif not _depends(args) and not _depends(kwargs):
            method = node.op == "call_method"
            values[node] = (
                getattr(args[0], node.target)(*args[1:], **kwargs) if method else node.target(*args, **kwargs)
            )
        else:
            name = function_name(node)
            if name not in FUNCTIONS:
                raise ModelError(
                    f"{name} (node {node.name!r}) is not supported; supported functions: {', '.join(FUNCTIONS)}; "
                    "an exact distance needs a network that is continuous and piecewise linear"
                )
            kwargs = {k: v for k, v in kwargs.items() if k != "inplace"}
            values[node] = _called(FUNCTIONS[name], Call(f"{name} (node {node.name!r})"), args, kwargs)
    raise ModelError(f"the forward of {type(module).__name__} returns nothing")


def _called(function: Callable[..., Any], call: Call, args: Any, kwargs: Any) -> Any:
    try:
        return function(call, *args, **kwargs)
    except ModelError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        raise ModelError(f"{call.title} cannot be computed: {error}") from None


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    numbers(value, f"{path!r}")
    copy = value.detach().cpu().clone()  # the forward may change it in place
    return copy.double() if copy.is_floating_point() else copy


def _depends(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_depends(v) for v in value.values())
    return isinstance(value, Affine) or (isinstance(value, list | tuple) and any(_depends(v) for v in value))
