"""What was recorded of a search as bytes, so that a search that is taken up again has its first half as well.

Parameters are rounded to what a certificate would store of them (any values in range are sound); multipliers of sides
are kept in full, since those of a linear piece close it by a hair.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layercert.certify.facets import PART, SHARE
from layercert.certify.log import ALPHA
from layercert.certify.recording import Forest, Plan, Recording, Snapshot, Stage
from layercert.facets import Facets
from layercert.search.adaptive.model import Model, Played
from layercert.search.adaptive.record import Fixed, Halfspace
from layercert.system.npz import read_numpy

#: Rows' parameters of at most so many numbers go into the bytes of a ball: fewer snapshots where there are more.
MOST_ROWS = 1 << 24

Arrays = dict[str, NDArray[Any]]


def packed(recording: Recording, ball: Forest, made: int, brief: bool = False) -> bytes:
    """The forest of a ball, without nodes from the number `made` on, and the one that proves most beside it.

    brief: parameters of rows as they were first, and no others, compressed. All are suggestions, and those of a part of
    a search that took seconds do not differ much.
    """
    others = [forest for forest in recording.forests if forest is not ball and forest.plans]
    best = max(others, key=lambda forest: forest.reached(len(forest.roots)), default=None)
    arrays = _arrays(ball, made, "own_", 0 if brief else MOST_ROWS)
    if best is not None and best.reached(len(best.roots)) > ball.reached(len(ball.roots)):
        arrays |= _arrays(best, None, "best_", MOST_ROWS)
    buffer = io.BytesIO()
    write = np.savez_compressed if brief else np.savez
    write(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def resumed(
    recording: Recording, record: bytes, model: Model | None, played: dict[int, Played] | None = None
) -> Forest:
    """The forests of the bytes, and nothing else; the one of the ball that goes on, on this model."""
    arrays = read_numpy(io.BytesIO(record))
    assert isinstance(arrays, dict)
    own = _forest(arrays, "own_", model)
    own.played = played
    recording.forests = [own]
    if "best_number" in arrays:
        recording.forests.append(_forest(arrays, "best_", None))
    return own


def unpacked(record: bytes) -> Forest:
    """The forest of a ball, as it was packed."""
    arrays = read_numpy(io.BytesIO(record))
    assert isinstance(arrays, dict)
    return _forest(arrays, "own_", None)


def _arrays(forest: Forest, made: int | None, name: str, most: int) -> Arrays:
    known = {node: plan for node, plan in list(forest.plans.items()) if made is None or node < made}
    plans = list(known.values())
    # children that came after the nodes that wait were written down: whoever goes on makes them again
    children = [plan.children if plan.children and max(plan.children) in known else (-1, -1) for plan in plans]
    owns = [own for plan in plans for own in plan.owns]
    stages = [stage for plan in plans for stage in plan.stages]
    fixed = [stage.fixed for stage in stages]
    rows = [plan.rows for plan in plans]
    arrays = {
        "radius": np.array([forest.radius]),
        "root_clause": np.array(list(forest.roots), np.int64),
        "root_node": np.array(list(forest.roots.values()), np.int64),
        "number": np.array(list(known), np.int64),
        "bound": np.array([plan.bound for plan in plans]),
        "entry": np.array([plan.entry for plan in plans]),
        "neuron": np.array([plan.neuron for plan in plans], np.int64),
        "children": np.array(children, np.int64).reshape(len(plans), 2),
        "owns": np.array([len(plan.owns) for plan in plans], np.int64),
        "stages": np.array([len(plan.stages) for plan in plans], np.int64),
        "stage_bound": np.array([stage.bound for stage in stages]),
        "fixed_count": np.array([len(each.neurons) for each in fixed], np.int64),
        "fixed_at": _flat((each.neurons for each in fixed), np.int32),
        "fixed_side": _flat((each.sides for each in fixed), np.int8),
        "fixed_by": _flat((each.multipliers for each in fixed), np.float64),
        **_halfspaces([*owns, *(stage.own for stage in stages)]),
        **_snapshots(rows, most),
    }
    return {f"{name}{key}": value for key, value in arrays.items()}


def _halfspaces(owns: Sequence[Halfspace]) -> Arrays:
    neurons = len(owns[0].alpha) if owns else 0
    one, share, part = (float(np.iinfo(of).max) for of in (ALPHA, SHARE, PART))
    beta_at = [np.flatnonzero(own.beta) for own in owns]
    facets = [own.facets for own in owns if own.facets is not None]
    return {
        "alpha": _flat((np.rint(np.clip(own.alpha, 0, 1) * one) for own in owns), ALPHA).reshape(len(owns), neurons),
        "beta_count": np.array([len(at) for at in beta_at], np.int64),
        "beta_at": _flat(beta_at, np.int32),
        "beta": _flat((own.beta[at] for own, at in zip(owns, beta_at, strict=True)), np.float64),
        "weights_count": np.array([len(own.weights) for own in owns], np.int64),
        "weights": _flat((own.weights for own in owns), np.float64),
        "facet_count": np.array([-1 if own.facets is None else len(own.facets.neurons) for own in owns], np.int64),
        "facet_at": _flat((each.neurons for each in facets), np.int32),
        "facet_share": _flat((np.rint(each.shares * share) for each in facets), SHARE),
        "part_count": np.array([len(each.parts) for each in facets], np.int64),
        "part": _flat((np.rint(each.parts * part) for each in facets), PART),
    }


def _snapshots(rows: Sequence[Snapshot | None], most: int) -> Arrays:
    """Each snapshot once, where nodes share it; of many some, each for those that come after it as well: at most so
    many numbers, but one of them."""
    different = {id(each): each for each in rows if each is not None}
    every = 1
    if different:
        size = max(len(next(iter(different.values())).slopes), 1)
        every = -(-len(different) * size // most) if most else len(different)
    place = {key: i // every for i, key in enumerate(different)}
    some = list(different.values())[::every]
    return {
        "rows": np.array([-1 if each is None else place[id(each)] for each in rows], np.int64),
        "row_at": some[0].at if some else np.zeros(0, np.intp),
        "slopes": _flat((each.slopes for each in some), np.uint8),
        "known": _flat((each.known for each in some), np.bool_),
        "multiplied": np.array([len(each.betas) > 0 for each in some], np.bool_),
        "betas": _flat((each.betas for each in some), np.float32),
        "pulls": _flat((each.pulls for each in some), np.float32),
    }


def _forest(arrays: Arrays, name: str, model: Model | None) -> Forest:
    held = {key[len(name) :]: value for key, value in arrays.items() if key.startswith(name)}
    forest = Forest(float(held["radius"][0]), model)
    halfspaces, snapshots = _read_halfspaces(held), _read_snapshots(held)
    for key, where in (("entry", "number"), ("stage_bound", "fixed_count")):  # files of 2026-11-17 have none
        held.setdefault(key, np.full(len(held[where]), -np.inf))
    count = int(held["owns"].sum())
    owns, stages = iter(halfspaces[:count]), iter(_read_stages(halfspaces[count:], held))
    for i, node in enumerate(held["number"].tolist()):
        on, off = held["children"][i].tolist()
        forest.plans[node] = Plan(
            [next(owns) for _ in range(held["owns"][i])],
            None if held["rows"][i] < 0 else snapshots[held["rows"][i]],
            float(held["bound"][i]),
            float(held["entry"][i]),
            int(held["neuron"][i]),
            None if on < 0 else (on, off),
            stages=[next(stages) for _ in range(held["stages"][i])],
        )
    for clause, node in zip(held["root_clause"].tolist(), held["root_node"].tolist(), strict=True):
        forest.root(node, clause)
    return forest


def _read_halfspaces(held: Arrays) -> list[Halfspace]:
    alpha = held["alpha"] / float(np.iinfo(ALPHA).max)
    at, beta = (_cut(held[key], held["beta_count"]) for key in ("beta_at", "beta"))
    weights = _cut(held["weights"], held["weights_count"])
    counts = held["facet_count"]
    some = counts[counts >= 0]
    neurons, shares = (_cut(held[key], some) for key in ("facet_at", "facet_share"))
    bent = iter(zip(neurons, shares, _cut(held["part"], held["part_count"]), strict=True))
    owns = []
    for i, count in enumerate(counts.tolist()):
        facets = None
        if count >= 0:
            which, share, part = next(bent)
            facets = Facets(which.astype(np.intp), share / float(np.iinfo(SHARE).max), part / float(np.iinfo(PART).max))
        whole = np.zeros(alpha.shape[1])
        whole[at[i]] = beta[i]
        owns.append(Halfspace(alpha[i], whole, weights[i], facets))
    return owns


def _read_stages(owns: Sequence[Halfspace], held: Arrays) -> list[Stage]:
    at, side, by = (_cut(held[f"fixed_{name}"], held["fixed_count"]) for name in ("at", "side", "by"))
    fixed = (Fixed(at[i].astype(np.intp), side[i].astype(np.float64), by[i]) for i in range(len(owns)))
    return [Stage(*each) for each in zip(owns, fixed, held["stage_bound"].tolist(), strict=True)]


def _read_snapshots(held: Arrays) -> list[Snapshot]:
    at, multiplied = held["row_at"].astype(np.intp), held["multiplied"]
    if not len(multiplied):
        return []
    count, size, rows = len(multiplied), int(at[-1]), len(at) - 1
    betas = _cut(held["betas"], np.where(multiplied, size, 0))
    slopes, known = held["slopes"].reshape(count, size), held["known"].reshape(count, rows)
    pulls = held["pulls"].reshape(count, rows)
    return [Snapshot(at, slopes[i], known[i], betas[i], pulls[i]) for i in range(count)]


def _flat(parts: Iterable[Any], of: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, of), *parts]).astype(of)


def _cut(values: NDArray[Any], counts: NDArray[Any]) -> list[NDArray[Any]]:
    return np.split(values, np.cumsum(counts)[:-1]) if len(counts) else []
