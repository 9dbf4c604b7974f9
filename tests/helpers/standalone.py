"""The stand-alone checker as a module: it belongs to no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "standalone" / "check_certificate.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("check_certificate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


alone = _load()
