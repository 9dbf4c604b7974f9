"""Property files: which version they are written in, and reading them."""

from __future__ import annotations

import gc
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layercert.errors import SpecError
from layercert.spec.cases import Spec
from layercert.spec.sexpr import Sequence, parse
from layercert.spec.vnnlib1 import read_vnnlib1
from layercert.spec.vnnlib2 import read_vnnlib2
from layercert.system.files import printable

#: Files (unpacked) larger than this are refused.
LARGEST = 1 << 28


def load_spec(path: str | os.PathLike[str]) -> Spec:
    """The property in a .vnnlib file (1.0 or 2.0, also compressed as .gz), read exactly or refused with the line.

    Args:
        path: The file.

    Returns:
        The property as input boxes with unsafe sets of outputs, in rationals.

    Raises:
        SpecError: There is no such file, it is too large, or something in it cannot be read exactly.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise SpecError(f"no property file {str(file)!r}; check the path (the current folder is {str(Path.cwd())!r})")
    name = printable(file.name)
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError(f"{name}, line {line}: not a text file in UTF-8") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"{name}: the file cannot be read: {error}") from None
    if len(data) > LARGEST:
        raise SpecError(f"{name}: more than {LARGEST >> 20} MiB; split the property into several files")
    return parse_spec(text, name)


def parse_spec(text: str, source: str = "specification") -> Spec:
    """The property in a text; a version line or a network declaration makes it 2.0."""
    with _uncollected():
        nodes = parse(text, source)
        heads = {node.head for node in nodes if isinstance(node, Sequence)}
        if not heads:
            raise SpecError(f"{source}: no declarations and no assertions; is it a .vnnlib file?")
        read = read_vnnlib2 if heads & {"vnnlib-version", "declare-network"} else read_vnnlib1
        return read(nodes, source)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's search for cycles: a tree of millions of nodes has none, and would be walked again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
