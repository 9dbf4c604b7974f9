"""`make test` gives the same verdict every time: no random number without a seed, no example that is new."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent.parent

#: numpy's generator without a seed, numpy's and Python's global ones, and what the system calls random.
UNSEEDED = re.compile(
    r"default_rng\(\)|np\.random\.(?!default_rng|Generator)\w+\(|(?<![\w.])random\.(?!Random\b)\w+\(|Random\(\)|urandom|uuid4"
)


def test_no_test_makes_a_number_without_a_seed() -> None:
    own = Path(__file__).name
    lines = ((f.name, line) for f in TESTS.rglob("*.py") if f.name != own for line in f.read_text().splitlines())
    assert [(name, line) for name, line in lines if UNSEEDED.search(line)] == []


@pytest.mark.parametrize("profile", ["dev", "ci"])
def test_hypothesis_is_derandomised(profile: str) -> None:
    assert settings.get_profile(profile).derandomize


# with REPLAY nothing is generated, so that only a kept example can fail
FAILING = """
import os
from hypothesis import Phase, given, settings, strategies as st
from helpers.profiles import examples

@settings(examples(20), phases=[Phase.reuse] if "REPLAY" in os.environ else [Phase.generate])
@given(st.integers(0, 2**16))
def test_large_numbers(number):
    assert number < 1000
"""


def test_what_fuzzing_finds_is_tried_again(tmp_path: Path) -> None:
    """In a copy of the tests' settings, so that nothing is written into this repository."""
    helpers = tmp_path / "tests" / "helpers"
    helpers.mkdir(parents=True)
    for name in ("__init__.py", "profiles.py"):
        (helpers / name).write_text((TESTS / "helpers" / name).read_text())
    test = tmp_path / "tests" / "test_large_numbers.py"
    test.write_text(FAILING)
    found = tmp_path / "tests" / "found"

    def run(**more: str) -> int:
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("LAYERCERT_", "PYTEST_"))}
        environment = {**plain, "PYTHONPATH": str(helpers.parent), **more}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True).returncode

    assert run() == 1 and not found.exists()  # make test writes nothing
    assert run(REPLAY="1") == 0
    assert run(LAYERCERT_FUZZ="1") == 1
    kept = sorted(found.rglob("*"))
    assert kept and run(REPLAY="1") == 1
    assert sorted(found.rglob("*")) == kept
