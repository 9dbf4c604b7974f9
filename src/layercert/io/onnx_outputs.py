"""Which output of an ONNX model holds the scores: models of scikit-learn give a label and probabilities, too."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
import onnx.numpy_helper

from layercert.errors import ModelError
from layercert.io.ops import FLOATS

ML = "ai.onnx.ml"


@dataclass(frozen=True)
class Scores:
    """The tensor that is read as the network's output, and the output of the graph that says the same."""

    tensor: str
    output: str
    last: bool = False  # the output is the pair (1 - p, p), of which p is read
    batch: int = 1  # how many inputs the model takes at a time


def scores(graph: onnx.GraphProto, wanted: str | None) -> Scores:
    """The wanted output, or the only one, or the only one of several that is not a label."""
    names = [info.name for info in graph.output]
    if wanted is not None and wanted not in names:
        raise ModelError(f"there is no output {wanted!r}; the model has {', '.join(map(repr, names))}")
    chosen = [wanted] if wanted is not None else [info.name for info in graph.output if not _is_label(info)]
    if len(names) == 1:
        chosen = names
    if len(chosen) != 1:
        raise ModelError(
            f"a classifier has one output, this model has {len(names)}: {', '.join(map(repr, names))}; "
            "export one output only, or name the one with the scores: load(path, output=...)"
        )
    producer = {name: node for node in graph.node for name in node.output}
    tensor = chosen[0]
    node = producer.get(tensor)
    if node is not None and (node.domain, node.op_type) == (ML, "ZipMap") and node.input:
        tensor = node.input[0]  # names for the same numbers
    p = _of_a_pair(tensor, producer, {t.name: t for t in graph.initializer})
    return Scores(tensor, chosen[0]) if p is None else Scores(p, chosen[0], last=True)


def _is_label(info: onnx.ValueInfoProto) -> bool:
    kind = info.type.tensor_type.elem_type
    return info.type.HasField("tensor_type") and kind != 0 and kind not in FLOATS


def _of_a_pair(tensor: str, producer: dict[str, onnx.NodeProto], tensors: dict[str, onnx.TensorProto]) -> str | None:
    """p where the tensor is Concat(1 - p, p) and p = Sigmoid(..): class 1 where p > 1 - p, which is where p > 0.5."""
    concat = producer.get(tensor)
    if concat is None or concat.op_type != "Concat" or len(concat.input) != 2:
        return None
    rest, p = concat.input
    sub, sigmoid = producer.get(rest), producer.get(p)
    if sub is None or sub.op_type != "Sub" or len(sub.input) != 2 or sub.input[1] != p or sub.input[0] not in tensors:
        return None
    if sigmoid is None or sigmoid.op_type != "Sigmoid":
        return None
    try:
        one = onnx.numpy_helper.to_array(tensors[sub.input[0]])
    except Exception:  # damaged: the reader of tensors will say so
        return None
    return p if one.size == 1 and float(one.reshape(-1)[0]) == 1.0 else None
