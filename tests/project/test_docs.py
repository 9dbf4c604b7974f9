"""The documentation builds without warnings, and nothing in it is fetched from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What a browser would load by itself: scripts, style sheets, pictures, fonts.
LOADED = re.compile(r"""<(?:script|img|iframe|source)[^>]+src=["']?(https?:)?//|<link[^>]+href=["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the documentation needs mkdocs: pip install 'layercert[docs]'")
    pytest.importorskip("mkdocstrings", reason="the documentation needs mkdocstrings: pip install 'layercert[docs]'")
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stderr
    return out


def test_every_page_can_be_read_offline(site: Path) -> None:
    pages = list(site.glob("**/*.html"))
    assert {"index.html", "guide.html", "which-method.html", "api.html", "reproduction.html"} <= {p.name for p in pages}
    for page in pages:
        assert not LOADED.search(page.read_text(encoding="utf-8")), page.name
    for sheet in site.glob("**/*.css"):
        assert not re.search(r"url\(['\"]?https?:", sheet.read_text(encoding="utf-8")), sheet.name


def test_the_reference_documents_what_the_package_offers(site: Path) -> None:
    import layercert

    text = (site / "api.html").read_text(encoding="utf-8")
    for name in layercert.__all__:
        assert re.search(rf'id="[\w.]*\b{name}"', text), name


def test_the_first_lines_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Pasted into Python as they stand, and what their comments promise comes out."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, object] = {}
    exec(code[1], names)
    out = capsys.readouterr().out
    promised = re.search(r"print\(r\) +# (.*), \.\.\.", code[1])
    assert promised is not None and out.startswith(promised[1])
    assert "Proved for the network" in out and str(names["v"]).startswith("robust")


def test_the_reproduction_says_what_was_run() -> None:
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    made = ("machine: ", "versions: ", "layercert reproduce table1", "minutes")
    for words in ("## In a minute", "| the paper says |", *made):
        assert words in text
    for name in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (ROOT / "docs" / name).is_file(), name


def test_files_that_pages_name_are_there() -> None:
    """In code marks, from the root, from the package or from the adaptive search; a name that moved is found here."""
    rooms = [ROOT, ROOT / "src" / "layercert", ROOT / "src" / "layercert" / "search" / "adaptive"]
    for page in ("adaptive.md", "architecture.md", "extending.md", "rounding.md"):
        text = re.sub(r"```.*?```", "", (ROOT / "docs" / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        for name in re.findall(r"`([\w./]+(?:\.py|\.md|\.toml|/))`", text):
            beside = [ROOT / "src" / "layercert" / "io" / "torch", ROOT / "src" / "layercert" / "io" / "ops"]
            assert any((room / name).exists() for room in [*rooms, ROOT / "src/layercert/search", *beside]), (
                page,
                name,
            )


def test_every_erratum_of_the_paper_is_cited_at_its_line() -> None:
    notes = (ROOT / "docs" / "paper-notes.md").read_text(encoding="utf-8")
    cited = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    labels = re.findall(r"^\| (E\d+) \|", notes, re.MULTILINE)
    assert len(labels) == 10
    assert [label for label in labels if f"[{label}]" not in cited] == []


def test_every_field_of_the_effort_is_explained() -> None:
    from dataclasses import fields

    from layercert.search.adaptive import Effort

    text = (ROOT / "docs" / "adaptive.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| (\w+) \| [^|]+ \| [^|]+ \|$", text.split("## What each field")[1], re.MULTILINE)
    assert {field.name for field in fields(Effort)} <= set(explained)


def test_the_map_shows_every_room() -> None:
    """Every folder and module of the package stands in the table of rooms."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## The rooms")[1].split("\n## ")[0]
    package = ROOT / "src" / "layercert"
    rooms = {f"{p.name}/" for p in package.iterdir() if p.is_dir() and p.name != "__pycache__"}
    modules = {p.name for p in package.glob("*.py")} - {"__init__.py"}
    assert [name for name in sorted(rooms | modules) if f"`{name}`" not in text] == []
