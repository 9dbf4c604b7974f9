"""Operations in place: which values of a traced forward share memory, and whether a change could be seen elsewhere."""

from __future__ import annotations

import builtins
import operator
from typing import TYPE_CHECKING, Any

from layercert.errors import ModelError
from layercert.io.torch.functions import ALIASES
from layercert.io.torch.modules import SHARING_MODULES, row_of

if TYPE_CHECKING:
    import torch

_IN_PLACE = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "truediv"}


def function_name(node: Any) -> str:
    """The name of a function or method, without its effect on its argument: relu_ and iadd are relu and add."""
    import torch

    if node.op == "call_method":
        name = str(node.target)
    else:
        name = getattr(node.target, "__name__", str(node.target))
        owners = (torch, torch.nn.functional, operator, builtins)
        if not any(getattr(owner, name, None) is node.target for owner in owners):
            return f"the function {name}"  # someone's own of the same name
    return _IN_PLACE.get(name) or (name.rstrip("_") if not name.endswith("__") else name)


class Sharing:
    """Which values share memory: an operation in place changes all of them."""

    def __init__(self, module: torch.nn.Module, graph: Any) -> None:
        self.module = module
        self.order = {node: i for i, node in enumerate(graph.nodes)}

    def in_place(self, node: Any) -> bool:
        if node.op == "call_module":
            return bool(getattr(self.module.get_submodule(node.target), "inplace", False))
        if node.op not in ("call_function", "call_method"):
            return False
        name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
        return name in _IN_PLACE or (name.endswith("_") and not name.endswith("__")) or bool(node.kwargs.get("inplace"))

    def shares(self, node: Any) -> bool:
        """The result of a node is, or may be, its argument's memory."""
        if node.op == "call_module":
            return self.in_place(node) or row_of(self.module.get_submodule(node.target)) in SHARING_MODULES
        return node.op in ("call_function", "call_method") and (self.in_place(node) or function_name(node) in ALIASES)

    def check(self, node: Any) -> None:
        """Nothing that shares memory with the changed value may be used later, except through the result."""
        base = node.args[0]
        while self.shares(base):
            base = base.args[0]
        family, todo = {base}, [base]
        while todo:
            for user in todo.pop().users:
                if self.order[user] > self.order[node]:
                    raise ModelError(
                        f"{node.name!r} changes {node.args[0].name!r} in place, and {user.name!r} uses that later; "
                        "use the version that is not in place (inplace=False, x = x + y)"
                    )
                if user is not node and user not in family and self.shares(user):
                    family.add(user)
                    todo.append(user)
