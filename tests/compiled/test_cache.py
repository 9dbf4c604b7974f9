"""Machine code on disk: never older than any source it was made from, and never a reason to fail."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import layercert
from layercert.compiled import cache, compiling, jit, linking, stamp

PACKAGE = Path(layercert.__file__).parent

# three files in three folders: a kernel, what it calls, and a constant of that
KERNEL = """
from layercert.compiled.jit import njit
from layercert.search.callee import scaled

@njit
def kernel(v):
    return scaled(v) + 1.0
"""
CALLEE = """
from layercert.compiled.jit import inner
from layercert.bounds.constant import FACTOR

@inner
def scaled(v):
    return FACTOR * v
"""


def ask(root: Path) -> tuple[float, int]:
    """The kernel's answer at 2 in a process of its own, and how much was compiled for it."""
    program = (
        "from numba.core import event\n"
        "from layercert.attack.kernel import kernel\n"
        "with event.install_recorder('numba:compile') as seen: print(kernel(2.0))\n"
        "print(sum(e.is_start for _, e in seen.buffer))"
    )
    environment = {**os.environ, "PYTHONPATH": str(root), "NUMBA_CACHE_DIR": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer, count = done.stdout.split()
    return float(answer), int(count)


def small_package(root: Path, texts: dict[str, str]) -> None:
    """What compiles, and modules of a few lines each instead of all others."""
    for part in ("compiled", "system"):
        shutil.copytree(PACKAGE / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    texts |= {name: (PACKAGE / f"{name}.py").read_text() for name in ("__init__", "arrays")}
    for name, text in texts.items():
        (root / f"{name}.py").parent.mkdir(exist_ok=True)
        (root / f"{name}.py").write_text(text)


def test_a_change_in_any_file_that_a_kernel_reaches_is_seen(tmp_path: Path) -> None:
    """numba looks at the kernel's own file only: it went on with the old constant."""
    root = tmp_path / "layercert"
    small_package(root, {"attack/kernel": KERNEL, "search/callee": CALLEE, "bounds/constant": "FACTOR = 3.0\n"})
    assert ask(tmp_path) == (7.0, 3)  # the kernel, its entry from Python, and what it calls
    kept = sorted(p.name for p in root.rglob("*.nb[ci]"))
    (root / "bounds" / "constant.py").write_text("# the same\nFACTOR = 3.0\nOTHER = 4.0\n")
    assert ask(tmp_path) == (7.0, 0)  # nothing that the kernel uses
    (root / "bounds" / "constant.py").write_text("FACTOR = 5.0\n")
    assert ask(tmp_path) == (11.0, 3)
    now = sorted(p.name for p in root.rglob("*.nb[ci]"))
    assert len(now) == len(kept) and not set(now) & set(kept)  # the old code is gone


LARGE_CALLEE = """
from layercert.compiled.jit import njit

@njit
def scaled(v):
    total = 3.0 * v
""" + "".join(f"    if v > {i}.5 + total:\n        total -= v * {i}.25\n" for i in range(200, 350))
LARGE_CALLEE += "    return total\n"


def test_a_large_kernel_is_called_where_it_is(tmp_path: Path) -> None:
    """Its machine code is in its own file alone; without that file its callers are made again, and never run wrong."""
    root = tmp_path / "layercert"
    small_package(root, {"attack/kernel": KERNEL, "search/callee": LARGE_CALLEE})
    assert ask(tmp_path) == (7.0, 3)
    [callee] = root.rglob("callee.scaled-*.nbc")
    caller = next(root.rglob("kernel.kernel-*.nbc"))
    assert caller.stat().st_size < callee.stat().st_size / 2
    for file in root.rglob("callee.scaled-*.nb[ci]"):
        file.unlink()
    # another process compiles other things before: the kernel gets another symbol, which the old callers do not know
    other = "import layercert.compiled.timer as t, numba; numba.njit(lambda v: v + 1)(1); numba.njit(lambda v: v)(1); "
    done = subprocess.run(
        [sys.executable, "-c", other + "from layercert.search.callee import scaled; print(scaled(2.0))"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": ""},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "6.0", done.stderr
    answer, count = ask(tmp_path)
    assert answer == 7.0 and 0 < count <= 2
    assert ask(tmp_path) == (7.0, 0)


# In this process: modules made of a text.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for sources, where nothing has been written yet and nothing was said."""
    monkeypatch.setattr(compiling, "_said", set())
    monkeypatch.setattr(cache.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    folder = tmp_path / "home"
    folder.mkdir()
    for function in (cache.folder_for, cache._temporary):
        function.cache_clear()
    yield folder
    for function in (cache.folder_for, cache._temporary):
        function.cache_clear()


def module(home: Path, text: str) -> ModuleType:
    file = home / "made.py"
    file.write_text("from layercert.compiled.jit import njit\n" + text)
    spec = importlib.util.spec_from_file_location("layercert.made", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    exec(compile(file.read_text(), str(file), "exec"), made.__dict__)
    return made


def marked(text: str, home: Path) -> str:
    f = module(home, text).f
    return stamp.stamp(f.py_func, f.targetoptions)


BASE = "A = 2\n@njit\ndef f(v):\n    return g(v) * A\n@njit\ndef g(v):\n    return v + 1\n"


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        (("A = 2", "# why\nA = 2"), True),
        (("@njit\ndef f", "B = 3\n@njit\ndef f"), True),
        (("A = 2", "A = 2.0"), False),
        (("A = 2", "A = True + True + True"), False),
        (("v + 1", "v + 2"), False),
        (("v + 1", "v + 1.0"), False),
        (("v + 1", "v - 1"), False),
        (("g(v) * A", "A * g(v)"), False),
        (("@njit\ndef g", "def g"), False),  # no longer compiled
        (("def g(v)", "def g(v, w=0)"), False),
        (("return v + 1", "return (lambda u: u + 1)(v)"), False),
    ],
)
def test_the_stamp_says_what_the_compiler_sees(home: Path, edit: tuple[str, str], same: bool) -> None:
    assert BASE.replace(*edit) != BASE
    assert (marked(BASE, home) == marked(BASE.replace(*edit), home)) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(1, 2)", "(1, 3)"),
        ("frozenset({'a', 'b'})", "frozenset({'a', 'c'})"),
        ("__import__('numpy').array([1.0])", "__import__('numpy').array([1.0000000000000002])"),
        ("__import__('numpy').float32(1)", "__import__('numpy').float64(1)"),
        ("__import__('collections').namedtuple('N', 'a b')", "__import__('collections').namedtuple('N', 'b a')"),
        ("__import__('math')", "__import__('cmath')"),
        ("__import__('math').sin", "__import__('math').cos"),
    ],
)
def test_constants_of_all_kinds_are_told_apart(home: Path, one: str, other: str) -> None:
    text = "A = {}\n@njit\ndef f():\n    return A\n"
    assert marked(text.format(one), home) == marked(text.format(one), home) != marked(text.format(other), home)


def test_what_nobody_knows_brings_in_every_source(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "class K:\n    a = 1\nA = K()\n@njit\ndef f():\n    return A.a\n"
    before = marked(text, home)
    monkeypatch.setattr(stamp, "every_source", lambda: "an edit somewhere")
    assert marked(text, home) != before


def test_everything_compiled_is_stamped_and_nothing_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubt() -> str:
        raise AssertionError("a constant of a kind that the stamp does not know")

    stamp._facts.cache_clear()
    monkeypatch.setattr(stamp, "every_source", doubt)
    found: list[Any] = []
    for source in PACKAGE.rglob("*.py"):
        text = source.read_text()
        if "jit import" in text or "numba" in text:
            name = ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            found += [v for v in vars(importlib.import_module(name)).values() if isinstance(v, Dispatcher)]
    assert len(found) > 100
    for compiled in found:
        assert isinstance(compiled._cache, cache.StampedCache), compiled
        assert stamp.stamp(compiled.py_func, compiled.targetoptions)


def test_a_damaged_file_is_compiled_again(home: Path) -> None:
    assert module(home, BASE).f(1) == 4
    files = sorted((home / "__pycache__").glob("*.nb[ci]"))
    assert len(files) == 6  # f, g, and the entry of f from Python
    for damage in (b"", b"\x80\x05garbage", bytes(np.random.default_rng(0).integers(0, 256, 500, np.uint8))):
        for file in files:
            file.write_bytes(damage)
        assert module(home, BASE).f(1) == 4


def test_a_full_disk_is_said_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache.IndexDataCacheFile, "save", full)
    assert module(home, BASE).f(1) == 4
    lines = [line for line in capsys.readouterr().err.splitlines() if "keep" in line]
    assert len(lines) == 1
    assert "No space left on device" in lines[0] and "repeated at every start" in lines[0]
    assert "set NUMBA_CACHE_DIR" in lines[0]


# Folders.


def only_under(allowed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, who may write everywhere: refuse for him."""
    really = cache._writable

    def refusing(folder: Path) -> Path:
        if not folder.is_relative_to(allowed):
            raise PermissionError(errno.EACCES, "Permission denied")
        return really(folder)

    monkeypatch.setattr(cache, "_writable", refusing)


def test_folders_are_tried_in_order(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.folder_for(home) == home / "__pycache__"
    monkeypatch.setattr(cache.config, "CACHE_DIR", str(tmp_path / "told"))
    cache.folder_for.cache_clear()
    assert cache.folder_for(home).parent == tmp_path / "told"
    monkeypatch.setattr(cache.config, "CACHE_DIR", "")
    only_under(tmp_path / "users", monkeypatch)
    cache.folder_for.cache_clear()
    assert cache.folder_for(home).parent == tmp_path / "users" / "layercert"


def test_without_any_folder_a_temporary_one_serves(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It used to end in numba's RuntimeError: no locator available."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(cache.tempfile, "tempdir", str(temporary))
    only_under(temporary, monkeypatch)
    assert module(home, BASE).f(1) == 4
    other = home / "other"
    other.mkdir()
    assert module(other, BASE).f(1) == 4
    own = temporary / f"layercert-{os.getuid()}"
    assert own.stat().st_mode & 0o777 == 0o700 and len(list(own.rglob("*.nbi"))) == 6
    lines = [line for line in capsys.readouterr().err.splitlines() if "keep" in line]
    assert len(lines) == 1 and "will be repeated when temporary files are cleared" in lines[0]
    assert "set NUMBA_CACHE_DIR to a folder that you may write to" in lines[0]


def test_code_is_not_taken_from_a_temporary_folder_that_others_may_write_to(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    open_to_all = temporary / f"layercert-{os.getuid()}"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    monkeypatch.setattr(cache.tempfile, "tempdir", str(temporary))
    only_under(temporary, monkeypatch)
    folder = cache.folder_for(home)
    assert not folder.is_relative_to(open_to_all) and folder.is_relative_to(temporary)
    assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_written_it_works_too(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    only_under(tmp_path / "nowhere", monkeypatch)
    assert module(home, BASE).f(1) == 4
    assert "Permission denied" in capsys.readouterr().err


def test_without_the_compiler_kernels_are_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit.numba.config, "DISABLE_JIT", 1)

    @jit.njit
    def twice(v: float) -> float:
        return 2 * v

    assert twice(1.5) == 3.0 and not isinstance(twice, Dispatcher)


def test_a_numba_without_the_parts_that_linking_needs_compiles_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert linking.is_possible()
    monkeypatch.delattr("numba.core.dispatcher._FunctionCompiler._customize_flags")
    assert not linking.is_possible()
    monkeypatch.undo()
    monkeypatch.setattr(linking, "is_possible", lambda: False)
    kernel = jit.njit(lambda v: 2.0 * v + 1.0)
    assert kernel(3.0) == 7.0 and not hasattr(kernel, "kernel")


def test_a_kernel_that_travels_can_be_called(home: Path) -> None:
    """What numba makes of a pickled function knows nothing of entries: it must be complete by itself."""
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())(2.0))"
    kernel = jit.njit(_twice)
    assert kernel(1.5) == 3.0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # with the module of this test
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(kernel), env=environment, capture_output=True, timeout=120
    )
    assert done.stdout.strip() == b"4.0", done.stderr


def _twice(v: float) -> float:
    return 2 * v
