"""The networks and digits that come with the package, by name: `shipped.path("mnist17_l1_2x20")`."""

from __future__ import annotations

from pathlib import Path

_DATA = Path(__file__).parent / "data"


def names() -> list[str]:
    """Names that stand for a shipped file wherever a model or an input file is expected."""
    return sorted(p.stem for p in _DATA.glob("*.npz"))


def path(name: str) -> Path:
    """The file behind a shipped name, or the name itself as a path."""
    given = Path(name)
    candidate = _DATA / f"{name}.npz"
    return candidate if not given.exists() and candidate.exists() and given.name == name else given
