"""Compiling ahead: what is recorded is what is called, and processes share the work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from layercert import warmup
from layercert.cli import main
from layercert.compiled.sharing import Turn
from layercert.system import clock
from layercert.warmup import ALL, FIRST, Kernel, in_fresh_process


@pytest.fixture(scope="module")
def kernels() -> list[Kernel]:
    return in_fresh_process(ALL)


def test_every_room_with_kernels_is_recorded(kernels: list[Kernel]) -> None:
    rooms = {kernel.module.split(".")[1] for kernel in kernels}
    assert {"attack", "search", "programs", "certificate", "compiled"} <= rooms
    assert len(kernels) > 100 and any(not kernel.inner for kernel in kernels)


def test_every_file_with_kernels_is_recorded(kernels: list[Kernel]) -> None:
    """A tree that is closed at its root calls neither splits nor walks nor what is fixed, and nobody would notice."""
    source = Path(warmup.__file__).parent
    files = {
        ".".join((source.name, *path.relative_to(source).with_suffix("").parts))
        for path in source.rglob("*.py")
        if re.search(r"^@(njit|njit_sums|inner|inner_sums)$", path.read_text(), re.MULTILINE)
    }
    first_format = "layercert.certificate.cap"  # nobody makes such certificates any more
    assert files - {kernel.module for kernel in kernels} == {first_format}
    outer = {kernel.name for kernel in kernels if not kernel.inner}
    assert {"run", "walks", "expand", "deepen", "tighten", "optimise", "bent_pass", "fix", "hull_rows"} <= outer


def test_inner_kernels_come_before_those_that_call_them(kernels: list[Kernel]) -> None:
    assert kernels[0].inner
    outer = next(i for i, kernel in enumerate(kernels) if not kernel.inner)
    assert any(kernel.module == kernels[outer].module for kernel in kernels[:outer])


def test_a_first_measurement_compiles_nothing_that_was_not_recorded() -> None:
    """After the outer kernels are compiled for the recorded types, a measurement finds every one of them."""
    recorded = [kernel for kernel in in_fresh_process(FIRST) if not kernel.inner]
    for kernel in recorded:
        warmup.compile_kernel(kernel)
    code = """
        from numba.core import event
        compiled = []

        class Listener(event.Listener):
            def on_start(self, event):
                compiled.append(event.data["dispatcher"].py_func.__qualname__)

            def on_end(self, event):
                pass

        event.register("numba:compile", Listener())
        import layercert as lc
        from layercert import shipped
        from layercert.io.datasets import load_dataset
        network = lc.load(shipped.path("mnist17_l1_2x20"))
        lc.measure(network, load_dataset(shipped.path("digits")).X[0], "linf", domain=(0, 1), method="adaptive")
        print(compiled)
    """
    environment = {**os.environ, "LAYERCERT_WARMUP": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_one_process_at_a_time_has_the_turn(tmp_path: Path) -> None:
    """Another process gets a turn of its own at once, and this one only when it is given back."""
    mark = "abc123abc123"
    turn = Turn(tmp_path, mark)
    assert turn.take() is False
    code = f"""
        from pathlib import Path
        from layercert.compiled.sharing import Turn
        print(Turn(Path({str(tmp_path)!r}), "ffffffffffff").take(), flush=True)
        Turn(Path({str(tmp_path)!r}), {mark!r}).take()
        print("mine", flush=True)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "False"
        assert turn.take() is False  # nested, in the same process
        turn.give()
        assert other.poll() is None  # it waits, or is about to
        turn.give()
        assert other.stdout.readline().strip() == "mine" and other.wait(timeout=60) == 0


def test_who_had_to_wait_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there may be machine code by now, and the clock of time limits stood still meanwhile."""
    import fcntl

    asked: list[tuple[int, float]] = []

    def lockf(file: int, kind: int, length: int, start: int) -> None:
        asked.append((kind, clock.now()))
        if kind & fcntl.LOCK_NB:
            raise BlockingIOError
        time.sleep(0.05)

    monkeypatch.setattr(fcntl, "lockf", lockf)
    assert Turn(tmp_path, "abc123abc123").take() is True
    assert [kind for kind, _ in asked] == [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX]
    assert clock.now() - asked[1][1] < 0.04


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(warmup, "in_fresh_process", lambda what: in_fresh_process(FIRST))
    assert main(["warmup", "--jobs", "2"]) == 0
    assert "kernels are ready" in capsys.readouterr().out
    assert main(["warmup", "--jobs", "0"]) == 2
    assert "at least one process" in capsys.readouterr().err
