"""ONNX files: the part of the graph between the input and the output, rewritten into affine layers and ReLUs.

The network means the stored weights as real numbers: float16, bfloat16, float32 and float64 are all held
exactly in float64 (`layercert.io.affine` says what fusing does). A batch axis of unknown size is read as one
input. Which operations are read stands in `layercert.io.ops`; every other one is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.defs
import onnx.external_data_helper
import onnx.helper
import onnx.inliner
import onnx.numpy_helper

from layercert.errors import ModelError
from layercert.io.affine import Affine, Constant
from layercert.io.onnx_outputs import ML, Scores, scores
from layercert.io.ops import FLOATS, INTEGERS, ML_OPS, OPS, Handler, Node, Value
from layercert.network import Network
from layercert.system.files import printable
from layercert.system.gz import is_gzip, read_gzip

#: From here on Add, Sub, Mul and Div broadcast as numpy does.
OLDEST_OPSET = 7


def read_onnx(path: Path, output: str | None = None) -> tuple[Network, Scores]:
    """The network stored in an .onnx file, and which of the model's outputs it is."""
    model = _parse(path)
    opset = _opset(model)
    graph = model.graph
    tensors = {t.name: t for t in graph.initializer}
    source = _single("input", [v for v in graph.input if v.name not in tensors])
    target = scores(graph, output)
    nodes = _needed(graph, target.tensor)
    _check(nodes, model.ir_version, opset)
    x, batch = _input(source)
    values: dict[str, Value] = {source.name: x}
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is found, and named, by Network
        for node in nodes:
            for name in node.input:
                if name in tensors and name not in values:
                    values[name] = _numbers(tensors[name], f"tensor {name!r}")
            if batch > 1:
                _take_one(node, values, batch)
            values.update(zip(node.output, _compute(node, opset, values), strict=False))
    return replace(_output(values, target.tensor).network(printable(path.name)), input_shape=x.shape), replace(
        target, batch=batch
    )


# The file.


def _parse(path: Path) -> onnx.ModelProto:
    try:
        if is_gzip(path):
            model = onnx.load_model_from_string(read_gzip(path))
        else:
            model = onnx.load(path, format="protobuf", load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # the decoder's errors have no common base
        raise ModelError(f"not an ONNX model, or a damaged one ({_first_line(error)}); export it again") from None
    if not model.opset_import or not model.graph.output:
        raise ModelError("not an ONNX model, or an empty one: it has no graph with an output; export it again")
    if not all(isinstance(text, str) for text in _texts(model.graph)):  # bytes where it is not valid UTF-8
        raise ModelError("not an ONNX model, or a damaged one (a name is not text); export it again")
    _load_external(model, path.parent)
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:
            raise ModelError(f"its functions cannot be inlined: {_first_line(error)}") from None
    return model


def _load_external(model: onnx.ModelProto, folder: Path) -> None:
    """Brings in the weights that large models keep in a file of their own."""
    for tensor in model.graph.initializer:
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "?")
        if not (folder / location).is_file():
            raise ModelError(
                f"the weights are in a second file, {location!r}, which is not there; "
                "put it beside the model, under that name"
            )
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:
            raise ModelError(
                f"tensor {tensor.name!r} cannot be read from the file {location!r}: {_first_line(error)}"
            ) from None


def _opset(model: onnx.ModelProto) -> int:
    versions = [int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")]
    newest = onnx.defs.onnx_opset_version()
    opset = max(versions, default=newest)
    if opset < OLDEST_OPSET:
        raise ModelError(
            f"the model has opset {opset}, supported are {OLDEST_OPSET} and newer; "
            "convert it with onnx.version_converter.convert_version(model, 13)"
        )
    if opset > newest:
        raise ModelError(
            f"the model has opset {opset}, the installed onnx package knows them up to {newest}; "
            "run: pip install --upgrade onnx"
        )
    return opset


def _numbers(tensor: onnx.TensorProto, what: str) -> Constant:
    """A stored tensor without any rounding: floats as float64, integers as int64."""
    if tensor.data_type not in FLOATS and tensor.data_type not in INTEGERS:
        raise ModelError(
            f"{what} has element type {_type_name(tensor.data_type)}; "
            f"supported: {', '.join((*FLOATS.values(), *INTEGERS.values()))}"
        )
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        raise ModelError(f"{what} is damaged: {_first_line(error)}") from None
    if tensor.data_type in INTEGERS:
        return array if array.dtype == bool else array.astype(np.int64)
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        raise ModelError(f"{what} holds {numbers[at]} at {at}; weights must be finite numbers")
    return numbers


# The graph.


def _single(kind: str, values: list[onnx.ValueInfoProto]) -> onnx.ValueInfoProto:
    if len(values) != 1:
        names = ", ".join(repr(v.name) for v in values) or "none"
        raise ModelError(f"a classifier has one {kind}, this model has {len(values)}: {names}; export one {kind} only")
    return values[0]


def _needed(graph: onnx.GraphProto, output: str) -> list[onnx.NodeProto]:
    """The nodes on which the output depends, in the graph's order, which ONNX wants topological."""
    wanted, needed = {output}, []
    for node in reversed(graph.node):
        if not wanted.isdisjoint(node.output):
            wanted.update(filter(None, node.input))
            needed.append(node)
    return needed[::-1]


def _check(nodes: list[onnx.NodeProto], ir_version: int, opset: int) -> None:
    """Refuses what is not supported, all of it at once, and nodes that are not valid ONNX."""
    foreign = [node for node in nodes if _reader(node) is None]
    if foreign:
        named = [f"{'.'.join(filter(None, (n.domain, n.op_type)))} (node {_name(n)!r})" for n in foreign]
        shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        raise ModelError(
            f"not supported: {shown}; supported operations: {', '.join(sorted(OPS))}; an exact distance needs "
            "a network that is continuous and piecewise linear"
        )
    context = onnx.checker.C.CheckerContext()
    context.ir_version = ir_version
    context.opset_imports = {"": opset, ML: 1}
    for node in nodes:
        try:
            onnx.checker.check_node(node, context)
        except Exception as error:
            raise ModelError(f"{node.op_type} (node {_name(node)!r}) is not valid ONNX: {_first_line(error)}") from None


def _reader(node: onnx.NodeProto) -> Handler | None:
    if node.domain == ML:
        return ML_OPS.get(node.op_type)
    return OPS.get(node.op_type) if node.domain in ("", "ai.onnx") else None


def _take_one(node: onnx.NodeProto, values: dict[str, Value], batch: int) -> None:
    """Of a batch of several one item is read: a shape that begins with the batch begins with 1."""
    if node.op_type not in ("Reshape", "Expand") or len(node.input) < 2:
        return
    shape = values.get(node.input[1])
    if isinstance(shape, np.ndarray) and shape.ndim == 1 and len(shape) and shape[0] == batch:
        values[node.input[1]] = np.concatenate([[1], shape[1:]])


def _input(info: onnx.ValueInfoProto) -> tuple[Affine, int]:
    """One input of the model, and how many it takes at a time."""
    tensor = info.type.tensor_type
    if tensor.elem_type not in FLOATS:
        raise ModelError(
            f"input {info.name!r} has element type {_type_name(tensor.elem_type)}; "
            f"supported: {', '.join(FLOATS.values())}"
        )
    if not tensor.HasField("shape"):
        raise ModelError(f"input {info.name!r} has no shape; export the model with the shape of one input")
    shape = [int(dim.dim_value) for dim in tensor.shape.dim]  # 0 where unknown
    written = tuple(dim.dim_param or dim.dim_value or "?" for dim in tensor.shape.dim)
    if len(shape) > 1 and shape[0] <= 0:
        shape[0] = 1
    if min(shape, default=1) <= 0:
        raise ModelError(
            f"input {info.name!r} has shape {_shown(written)}; only the batch axis, the first "
            "of several, may be of unknown size"
        )
    batch = 1
    if len(shape) > 1 and shape[0] > 1 and max(shape[1:]) > 1:
        batch, shape[0] = shape[0], 1
    return Affine.input(tuple(shape), FLOATS[tensor.elem_type]), batch


def _compute(node: onnx.NodeProto, opset: int, values: dict[str, Value]) -> list[Value]:
    for name in filter(None, node.input):
        if name not in values:
            raise ModelError(
                f"{node.op_type} (node {_name(node)!r}) needs {name!r}, which nothing before it computes: "
                "a second output, a sparse tensor, or a graph that is not in order"
            )
    attributes = {a.name: _attribute(a, node) for a in node.attribute}
    inputs = tuple(values[name] if name else None for name in node.input)
    resolved = Node(node.op_type, _name(node), opset, inputs, attributes, len(node.output))
    try:
        reader = _reader(node)
        assert reader is not None, "refused before"
        value = reader(resolved)
    except ModelError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # numpy's word on shapes that do not fit, or what a damaged attribute leads to
        raise resolved.refuse(f"cannot be computed: {_first_line(error)}") from None
    return [v if isinstance(v, Affine) else np.asarray(v) for v in (value if isinstance(value, list) else [value])]


def _attribute(attribute: onnx.AttributeProto, node: onnx.NodeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _numbers(value, f"{node.op_type} (node {_name(node)!r})")
    return value


def _output(values: dict[str, Value], name: str) -> Affine:
    value = values.get(name)
    if not isinstance(value, Affine):
        raise ModelError(f"output {name!r} does not depend on the input; is this the right model?")
    if sum(n > 1 for n in value.shape) > 1:
        raise ModelError(
            f"output {name!r} has shape {_shown(value.shape)}; "
            "a classifier gives one vector of scores, a number per class"
        )
    return value


# Names.


def _texts(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    """Every text that is used below."""
    for node in graph.node:
        yield from (node.domain, node.op_type, node.name, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for info in (*graph.input, *graph.output):
        yield from (info.name, *(dim.dim_param for dim in info.type.tensor_type.shape.dim))


def _name(node: onnx.NodeProto) -> str:
    return node.name or next(iter(node.output), "")


def _shown(shape: tuple[int | str, ...]) -> str:
    return "(" + ", ".join(str(n) for n in shape) + ")"


def _type_name(element: int) -> str:
    names: dict[int, str] = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
    return names.get(element, str(element))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__
