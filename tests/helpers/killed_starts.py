"""A module of work whose import kills the worker, at the starts that `LAYERCERT_TEST_KILLED` numbers: "1" or "1-9"."""

from __future__ import annotations

import os
import signal

from helpers.batches import _begun_before, solve

__all__ = ["solve"]

first, _, last = os.environ["LAYERCERT_TEST_KILLED"].partition("-")
if int(first) <= _begun_before("starts") <= int(last or first):
    os.kill(os.getpid(), signal.SIGKILL)
