"""The tools an audit knows by name: our own, those of installed packages, and a user's file."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from layercert.audit import attacks, verifiers
from layercert.audit.case import Tool
from layercert.audit.libraries import installed
from layercert.errors import OptionError, unknown

OWN = (
    Tool("fgsm", "attack", attacks.fgsm, loads=True),
    Tool("pgd", "attack", attacks.pgd, loads=True),
    Tool("interval", "verifier", verifiers.interval, loads=True),
    Tool("lipschitz", "verifier", verifiers.lipschitz, loads=True),
    Tool("fast-lin", "verifier", verifiers.fast_lin, loads=True),
    Tool("crown", "verifier", verifiers.crown, loads=True),
    Tool("large", "verifier", verifiers.large, loads=True),
)
#: What a user's file calls its list of tools.
LIST = "TOOLS"


def tools_named(names: Sequence[str], plugins: Sequence[Path] = ()) -> list[Tool]:
    """The tools to ask.

    Args:
        names: Names of tools; none for all that are there, but for slow ones.
        plugins: Python files, each with a list TOOLS of `Tool`.

    Returns:
        The tools, a user's own last.

    Raises:
        OptionError: An unknown name, or a file without tools.
    """
    known = [*OWN, *installed(), *(tool for path in plugins for tool in read_plugin(path))]
    by_name = {tool.name: tool for tool in known}
    for name in names:
        if name not in by_name:
            raise unknown("attack or verifier", name, list(by_name))
    return [by_name[name] for name in names] if names else [tool for tool in known if not tool.slow]


def read_plugin(path: Path) -> list[Tool]:
    """The tools of a user's Python file.

    Args:
        path: The file; it is run.

    Returns:
        Its list TOOLS.

    Raises:
        OptionError: The file cannot be run, or has no such list.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OptionError(f"'{path}' is no Python file; expected one with a list {LIST} of layercert.audit.Tool")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's own code
        raise OptionError(f"'{path}' cannot be run: {type(error).__name__}: {error}") from None
    tools = getattr(module, LIST, None)
    if not isinstance(tools, list | tuple) or not tools or not all(isinstance(tool, Tool) for tool in tools):
        raise OptionError(f"'{path}' has no list {LIST}; write e.g. {LIST} = [Tool('mine', 'attack', my_attack)]")
    return list(tools)
