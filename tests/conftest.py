"""Shared by all tests: hypothesis profiles (helpers/profiles.py), optional parts, the rule that CI skips nothing."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Generator
from types import ModuleType

import pytest

from helpers.profiles import IN_CI

# In the background (nohup make test &) a shell starts us deaf to Ctrl-C, and so would be every process the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def kernels_are_compiled_in_silence() -> None:
    """The line about the first compilation would appear in whichever test comes first."""
    from layercert.compiled import compiling

    compiling._said.update((compiling.KERNELS, compiling.CHECKER))


@pytest.fixture(scope="session", autouse=True)
def no_solver_crashes() -> Generator[None, None, None]:
    """A user whose solver crashes gets the next one's answer, and nobody would notice: here it is an error."""
    from layercert.programs import chain

    def refuse(solver: object, error: Exception) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "forgive", refuse)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread_per_question() -> Generator[None, None, None]:
    """The command line takes all cores, and the tree of several threads depends on the clock."""
    from layercert.cli import commands

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "cores", lambda: 1)
        yield


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """The torch module; the test is skipped where it is not installed."""
    reason = "torch is not installed (the dev extra leaves it out); run: pip install 'layercert[torch]'"
    return pytest.importorskip("torch", reason=reason)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium binary; the test is skipped where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return path or pytest.skip("no Chromium on PATH; on Debian run: apt install chromium")


def skip_is_failure(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI every optional part is installed, so a skip means a check that silently did not run."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} (LAYERCERT_CI=1 allows no skips)"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skip_is_failure(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole module, skipped by importorskip at its top."""
    report = yield
    skip_is_failure(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long each folder takes, longest first; CONTRIBUTING.md has a table of it."""
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = report.nodeid.split("::")[0].removeprefix("tests/").split("/")[0]
                seconds[folder] += report.duration
                tests[folder] += report.when == "call"
    if len(seconds) > 1:
        terminalreporter.section("seconds per folder")
        for folder, total in seconds.most_common():
            terminalreporter.write_line(f"{total:8.1f} s  {tests[folder]:5d} tests  {folder}")
