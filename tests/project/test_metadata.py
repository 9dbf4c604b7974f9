"""One version, one licence, and what the project's own files promise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import layercert

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_is_written_once() -> None:
    """The package says it; pyproject.toml reads it from there, and the citation agrees."""
    assert "version" not in PROJECT["project"] and PROJECT["project"]["dynamic"] == ["version"]
    home = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{layercert.__version__}"' in home.read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: *(\S+)$", citation, re.MULTILINE) == [layercert.__version__]
    assert re.findall(r"^license: *(\S+)$", citation, re.MULTILINE) == [PROJECT["project"]["license"]]


def test_the_changelog_has_sections() -> None:
    """Every release groups its lines as Added, Changed, Fixed or the like; the newest comes first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert releases and releases[0].startswith(("Unreleased", layercert.__version__))
    for release in releases:
        title, *sections = re.split(r"^### ", release, flags=re.MULTILINE)
        assert sections, title
        assert {section.split("\n")[0] for section in sections} <= {
            "Added",
            "Changed",
            "Deprecated",
            "Removed",
            "Fixed",
        }
        assert all(re.search(r"^- ", section, re.MULTILINE) for section in sections), title


def test_the_public_checks_cover_every_supported_python() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs: pip install 'layercert[docs]'")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    versions = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert versions == named and PROJECT["project"]["requires-python"] == f">={versions[0]}"
    for path in [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github").glob("*/*.yml")]:
        assert yaml.safe_load(path.read_text(encoding="utf-8")), path.name


def test_every_table_of_results_names_the_command_that_made_it() -> None:
    results = ROOT / "benchmarks" / "results"
    rows = re.findall(
        r"^\| (\S+\.csv) \| `(python (benchmarks/\w+\.py)|layercert \w+)",
        (results / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
    assert sorted(name for name, *_ in rows) == sorted(path.name for path in results.glob("*.csv"))
    assert all((ROOT / script).is_file() for _, _, script in rows if script)


def test_performance_starts_with_what_a_user_wants_to_know() -> None:
    """One screen: five answers, then the log with a day in every row."""
    text = (ROOT / "PERFORMANCE.md").read_text(encoding="utf-8")
    first, log, *_ = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert first.startswith("What a user wants to know") and len(re.findall(r"^\| .*\? \| ", first, re.MULTILINE)) == 5
    assert log.startswith("The log of changes")
    rows = [line for line in log.splitlines() if line.startswith("| ") and not line.startswith("| date")]
    assert rows and all(re.match(r"\| \d{4}-\d{2}-\d{2} \| ", row) for row in rows)
