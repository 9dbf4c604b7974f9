"""How many examples hypothesis tries, and which: the same ones every time, but in `make fuzz`.

dev   what `make test` runs: derandomised, and what `make fuzz` has found is tried again
ci    the same with more examples
fuzz  other examples in every run, FACTOR times as many; what fails is kept in tests/found
"""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase, ReadOnlyDatabase

IN_CI = os.environ.get("LAYERCERT_CI") == "1"
FUZZ = os.environ.get("LAYERCERT_FUZZ") == "1"
#: So many times the examples of `make test` are tried in `make fuzz`.
FACTOR = int(os.environ.get("LAYERCERT_FUZZ_FACTOR", "20")) if FUZZ else 1

#: The failing examples of `make fuzz`, by a hash of the test.
FOUND = DirectoryBasedExampleDatabase(Path(__file__).parent.parent / "found")

# No deadline: the first example of a kernel pays for its compilation.
_same = settings(deadline=None, derandomize=True, print_blob=True)
# `derandomize` drops the database unless it is set after it; read only, or a passing example would be deleted.
_same = settings(_same, database=ReadOnlyDatabase(FOUND))
settings.register_profile("dev", _same, max_examples=25)
settings.register_profile("ci", _same, max_examples=60)
settings.register_profile(
    "fuzz", deadline=None, derandomize=False, database=FOUND, max_examples=25 * FACTOR, print_blob=True
)
settings.load_profile("fuzz" if FUZZ else "ci" if IN_CI else "dev")


def examples(dev: int, ci: int | None = None) -> settings:
    """So many examples in `make test`, and so many in CI."""
    count = dev if ci is None or not IN_CI else ci
    return settings(max_examples=count * FACTOR)
