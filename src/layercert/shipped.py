"""The networks and digits that come with the package, by name: `shipped.path("mnist17_l1_2x20")`."""

from __future__ import annotations

from pathlib import Path

from layercert.errors import unknown

_DATA = Path(__file__).parent / "data"


def names() -> list[str]:
    """Names that stand for a shipped file wherever a model or an input file is expected."""
    return sorted(p.stem for p in _DATA.glob("*.npz"))


def path(name: str) -> Path:
    """The file behind a shipped name, or the name itself as a path; a bare name that is neither is refused."""
    given = Path(name)
    candidate = _DATA / f"{name}.npz"
    if given.exists() or given.name != name:
        return given
    if candidate.exists():
        return candidate
    if not given.suffix:
        raise unknown("file or shipped name", name, names())
    return given
