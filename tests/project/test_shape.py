"""The shape of the code: how long files and functions are, how much a function takes, which names have a type."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "layercert"
FILES = sorted(SOURCE.rglob("*.py"))

#: Lines of a file, lines of a function without its head and docstring, parameters of a function.
LINES, BODY, PARAMETERS = 400, 70, 8

#: Functions that take more, each with its reason.
FLAT = "a family's arrays reach compiled code flat: rows_of in programs/kernels/proof.py says what a structure costs"
PUBLIC = "the signature of the public function is its contract; inside, the question is a Problem and the rest a How"
TAKE_MORE = {
    "run.measure": PUBLIC,
    "run.verify": PUBLIC,
    "batch.many.measure_all": PUBLIC,
    "problem.robustness": PUBLIC,
    "spec.verify.verify_spec": PUBLIC,
    "io.torch.functions.batch_norm": "the signature of torch.nn.functional.batch_norm, which it stands for",
    "programs.kernels.gram.answer": FLAT,
    "programs.kernels.simplex.answer": FLAT,
    "programs.kernels.smooth.answer": FLAT,
    "programs.kernels.proof.check_rows": FLAT,
    "programs.kernels.proof.prove_rows": FLAT,
    "programs.kernels.proof.verify_rows": FLAT,
}


def functions(file: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    module = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield f"{module}.{node.name}", node


ALL = [found for file in FILES for found in functions(file)]


def taken(node: ast.FunctionDef) -> list[ast.arg]:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [arg for arg in given if arg.arg not in ("self", "cls")]


def body(node: ast.FunctionDef) -> int:
    """How many lines it takes, without its head and its docstring."""
    first = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (node.end_lineno or 0) - first[0].lineno + 1 if first else 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_file_can_be_read_at_once(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LINES


def test_a_function_fits_on_a_screen() -> None:
    assert [(name, body(node)) for name, node in ALL if body(node) > BODY] == []


def test_a_function_takes_few_parameters() -> None:
    """Or there is a reason, above and beside it."""
    many = {name for name, node in ALL if len(taken(node)) > PARAMETERS}
    assert many == set(TAKE_MORE)


def test_everything_has_a_type() -> None:
    """Kernels too: mypy could be told to leave them out, this cannot."""
    bare = [name for name, node in ALL if node.returns is None or any(arg.annotation is None for arg in taken(node))]
    assert bare == []
