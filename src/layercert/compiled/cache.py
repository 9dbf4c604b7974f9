"""Where machine code is kept: a file per function and stamp (`layercert.compiled.stamp`), so that old code never runs.

The folder is the first that can be written of: NUMBA_CACHE_DIR, __pycache__ beside the source, the user's cache, and a
temporary folder of the user's own. Whatever goes wrong with the files, the function is compiled all the same.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from layercert.compiled import linking
from layercert.compiled.compiling import announce
from layercert.compiled.sharing import Turn
from layercert.compiled.stamp import COMPILERS, PACKAGE, stamp
from layercert.system.signals import ctrl_c_afterwards

#: What a user reads where machine code cannot be kept for good.
NOT_KEPT = (
    "LayerCert cannot keep its compiled kernels ({reason}): compiling, about half a minute, will be repeated {when}; "
    "to avoid that, set NUMBA_CACHE_DIR to a folder that you may write to"
)


class StampedCache(FunctionCache):
    """numba's cache of one function, in a file whose name says everything that the machine code depends on."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._py_func = compiled.py_func
        self._name = repr(self._py_func)
        self._source = Path(self._py_func.__code__.co_filename)
        self._impl = _Entry(self._py_func)
        self.enable()

    @cached_property
    def _cache_path(self) -> str:
        return str(folder_for(self._source.parent))

    @property
    def title(self) -> str:
        """The beginning of the names of all files of this function."""
        name = f"{self._source.stem}.{self._py_func.__qualname__}".replace("<", "").replace(">", "")
        return f"{name}-{COMPILERS[0]}-"

    @cached_property
    def _cache_file(self) -> IndexDataCacheFile:  # type: ignore[override]
        # asked for at the first call only: before that, functions further down in the files do not exist yet
        mark = stamp(self._py_func, self._compiled.targetoptions)
        return IndexDataCacheFile(self._cache_path, self.title + mark[:24], mark)

    @cached_property
    def _turn(self) -> Turn:
        try:
            return Turn(Path(self._cache_path), hashlib.sha256(self._cache_file._index_name.encode()).hexdigest())
        except OSError:  # nothing can be written, so nothing is shared
            return Turn(None, "0")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._load(sig, target_context)
        if found is None:
            if self._turn.take():
                found = self._load(sig, target_context)
            if found is not None:
                self._turn.give()
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            # LLVM asks for the code by a function in Python, and forgets what is raised there
            with ctrl_c_afterwards():
                return super().load_overload(sig, target_context)
        except Exception:  # a damaged file, whose pickle may raise anything: begin again
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
            self._forget_others()
        except OSError as error:
            announce(NOT_KEPT.format(reason=error.strerror or error, when="at every start"))
        finally:
            self._turn.give()

    def _forget_others(self) -> None:
        """Remove what was compiled from an earlier text of this function, or of one that it calls."""
        mine = self._cache_file._index_name.removesuffix("nbi")
        for old in Path(self._cache_path).glob(f"{self.title}*.nb[ci]"):
            if not old.name.startswith(mine):
                old.unlink(missing_ok=True)  # another process may be faster


class _Entry(CompileResultCacheImpl):
    """How compiled code becomes bytes, which is numba's; where they go is not."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._lineno = function.__code__.co_firstlineno
        self._py_file = function.__code__.co_filename
        self._locator = self  # asked for the file's name in a warning, and to make sure that the folder is there

    def ensure_cache_path(self) -> None:
        folder_for(Path(self._py_file).parent)

    def reduce(self, compiled: Any) -> Any:
        large = linking.is_separate(compiled)
        with linking.outlined(compiled) if large else contextlib.nullcontext():
            return linking.needed(compiled), large, super().reduce(compiled)

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        needed, large, kept = payload
        if not linking.present(needed):
            return None
        compiled = super().rebuild(target_context, kept)
        if large:
            linking.separate(compiled, self._function)
        return compiled


@cache
def folder_for(home: Path) -> Path:
    """The folder for the functions whose source is in `home`; OSError where nothing at all can be written."""
    named = f"{home.name}_{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / PACKAGE / named
    places = [home / "__pycache__", users]
    told = config.CACHE_DIR  # type: ignore[attr-defined]  # NUMBA_CACHE_DIR
    if told:
        places.insert(0, Path(told) / named)
    for folder in places:
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: nobody knows where home is
            return _writable(folder)
    return _writable(_temporary() / named)


def _writable(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
    return folder


@cache
def _temporary() -> Path:
    """A folder shared by all processes of the user, or one for this process: nobody else may put code there."""
    folder, when = Path(tempfile.gettempdir()) / f"{PACKAGE}-{os.getuid()}", "when temporary files are cleared"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        folder, when = Path(tempfile.mkdtemp(prefix=f"{PACKAGE}-")), "at every start"
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _writable(folder)
    announce(NOT_KEPT.format(reason="neither its own folders nor the user's cache can be written", when=when))
    return folder
