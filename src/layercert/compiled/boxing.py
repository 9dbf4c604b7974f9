"""What kernels return, made into Python's objects without running any Python.

numba fetches the class of an array or a named tuple at every call by a function in Python, and calls the latter's
`__new__`, Python too. A signal's handler runs as soon as any Python does: where Ctrl-C came while a kernel ran, it
raised there, and numba, which does not look, went on with the object that it did not get. The process ended in a
segmentation fault instead of with the bounds reached so far. Here classes are constants of the function, and
`tuple.__new__` fills named tuples, so that Ctrl-C is heard after the call. Functions of others stay numba's own affair.
"""

from __future__ import annotations

from typing import Any

from numba.core import boxing, pythonapi, types

PACKAGE = __name__.partition(".")[0]


def is_possible() -> bool:
    """Has this version of numba the parts that this rests on? They may go away."""
    known = getattr(getattr(pythonapi, "_boxers", None), "functions", {})
    ways = all(hasattr(boxing, name) for name in ("box_array", "box_tuple", "box_namedtuple"))
    return ways and all(kind in known for kind in (types.Array, types.NamedTuple, types.NamedUniTuple))


def install() -> None:
    """For all functions that are compiled from now on."""
    if is_possible():
        known = pythonapi._boxers.functions
        known[types.Array] = _box_array
        known[types.NamedTuple] = known[types.NamedUniTuple] = _box_named_tuple


def _is_ours(c: Any) -> bool:
    """Is it a function of this package that returns?"""
    module = getattr(c.env_manager.env, "globals", {}).get("__name__", "")
    return bool(module.partition(".")[0] == PACKAGE)


def _constant(c: Any, value: Any) -> Any:
    """A borrowed reference to an object that belongs to the function."""
    return c.env_manager.read_const(c.env_manager.add_const(value))


def _box_array(kind: Any, value: Any, c: Any) -> Any:
    if not _is_ours(c):
        return boxing.box_array(kind, value, c)
    own = vars(c.pyapi)
    own["serialize_object"], own["unserialize"] = lambda cls: cls, lambda cls: _constant(c, cls)
    try:
        return boxing.box_array(kind, value, c)
    finally:
        del own["serialize_object"], own["unserialize"]


def _box_named_tuple(kind: Any, value: Any, c: Any) -> Any:
    cls = kind.instance_class
    if not _is_ours(c) or cls.__module__.partition(".")[0] != PACKAGE:  # whose __new__ may be another
        return boxing.box_namedtuple(kind, value, c)
    plain = boxing.box_tuple(kind, value, c)
    own = _constant(c, cls)
    c.pyapi.incref(own)
    arguments = c.pyapi.tuple_new(2)
    for at, item in enumerate((own, plain)):  # the references are the tuple's from here on
        c.pyapi.tuple_setitem(arguments, at, item)
    found = c.pyapi.call(_constant(c, tuple.__new__), arguments)
    c.pyapi.decref(arguments)
    return found
