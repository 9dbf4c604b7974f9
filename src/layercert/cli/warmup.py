"""`layercert warmup`: compile every kernel now, on all cores, so that nothing waits for it later."""

from __future__ import annotations

import argparse
import sys
import time

from layercert.errors import OptionError
from layercert.system.threads import cores
from layercert.warmup import warm_up


def run(args: argparse.Namespace) -> int:
    from layercert.cli import OK

    jobs = cores() if args.jobs is None else args.jobs
    if jobs < 1:
        raise OptionError(f"warmup needs at least one process, got --jobs {jobs}")
    started = time.monotonic()
    on_terminal = sys.stderr.isatty() and not args.quiet

    def told(done: int, total: int) -> None:
        if on_terminal:
            line = f"\r{done} of {total} kernels, {time.monotonic() - started:.0f} s, {jobs} processes "
            print(line, end="", file=sys.stderr, flush=True)

    count = warm_up(told, jobs)
    if on_terminal:
        print(file=sys.stderr)
    print(f"{count} kernels are ready ({time.monotonic() - started:.0f} s).")
    return OK
