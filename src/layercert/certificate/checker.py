"""The checker: validates a certificate's trees and re-proves every leaf. It imports neither search nor solver.

A node stands for the unsafe points of one clause, within the radius and inside the domain, whose split neurons have
the node's phases. A split's two children cover it, since a neuron is on or off (both at zero), and a node that goes on
has one child for the same points. At a node the parameters give a halfspace g.w + s <= 0 that holds for all these
points; if it misses the ball, there are none. Otherwise the halfspace may tighten the bounds of the free neurons, for
the node and all below it. A leaf must end without points.
Box trees are the business of box_tree.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from layercert.arrays import LARGE, Indices, Matrix, Vector
from layercert.certificate.box_tree import prove_box_tree
from layercert.certificate.claim import GO_ON, AnyTree, BoxTree, Certificate, Tree
from layercert.certificate.floats import Bounds, FloatArithmetic, Parameters
from layercert.certificate.plain import without_weights
from layercert.certificate.rejected import Rejected
from layercert.certificate.sentence import sentence_of
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import StepFloats
from layercert.certificate.step_tree import prove_step_tree
from layercert.certificate.step_walk import walk_step_tree
from layercert.certificate.steps import StepTree
from layercert.certificate.whole import WholeCertificate, prove_whole
from layercert.certificate.witness import prove_witness, unsafe
from layercert.network import Network
from layercert.norms import Norm, WeightedNorm
from layercert.problem import Clause, Problem
from layercert.questions import LEAST, MOST
from layercert.system.threads import one_thread

#: More rounds of tightening than this are not useful; a file that asks for them is refused.
MOST_ROUNDS = 8
#: A leaf not proved after the rounds it asks for gets more. It was made in floats; in balls the bounds differ in
#: the last digits, so that a neuron that is zero has another side, and a leaf closed by a hair may miss by a hair.
LEAF_ROUNDS = 4
#: Larger multipliers are refused: products with them would overflow.
LARGEST = 1e50


class Arithmetic(Protocol):
    """What the proof needs: linear bounds on a node, and tightened bounds on the cap they leave."""

    @property
    def name(self) -> str: ...

    @property
    def exact(self) -> bool: ...

    def objective(
        self, C: Matrix, d: Vector, mu: Vector, bounds: Bounds, parameters: Parameters
    ) -> tuple[Any, Any, list[Any]]: ...

    def excludes(self, g: Any, s: Any) -> bool: ...

    def tighten(
        self, bounds: Bounds, g: Any, s: Any, touch: list[Vector] | None = None, uppers: Sequence[Any] = ()
    ) -> bool: ...


@dataclass(frozen=True)
class Report:
    """The outcome of a check.

    Attributes:
        ok: Whether everything that the certificate claims was proved.
        lower: The radius that was proved (0 when the proof fails).
        upper: The distance of the witness, which was checked too; inf without one.
        leaves: Leaves of the trees that were proved empty.
        sentence: What was proved, to quote.
        reason: Why the proof failed.
    """

    ok: bool
    lower: float
    upper: float
    leaves: int
    sentence: str
    reason: str = ""

    @property
    def gap(self) -> float:
        """How far apart the two proved bounds are: (upper - lower) / upper. 0 at distance 0, inf without a witness."""
        if math.isinf(self.upper):
            return math.inf
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    def __str__(self) -> str:
        return self.sentence if self.ok else f"NOT PROVED: {self.reason}"


def check(network: Network, certificate: Certificate | WholeCertificate, exact: bool = False) -> Report:
    """Re-prove a certificate for a network.

    Args:
        network: The network that it is about; another one is refused by the hash of its weights.
        certificate: The claim and its proof, from a result or from `load_certificate`.
        exact: Check in ball arithmetic instead of outward-rounded floats. Slower, with less to trust. A certificate
            that says that float64 is not enough is checked so in any case.

    Returns:
        The outcome; a certificate that proves nothing is a report with ok = False, never an error.

    Raises:
        MissingPackageError: ball arithmetic needs python-flint, which is not installed.
        ModelError: a box tree, or exact=True and a tree of format 1, and the network's layers are too large to be made
            dense.
    """
    if isinstance(certificate, WholeCertificate):
        return _check_whole(network, certificate, exact)
    if certificate.label is not None:  # about classes, not about outputs
        network = network.classifier
    exact = exact or certificate.exact
    try:
        with _precision(exact):
            problem = _claim(network, certificate)
            plain = without_weights(problem)
            setting = Setting(
                plain.network, plain.x, certificate.p, certificate.radius, plain.domain, certificate.intervals
            )
            arithmetic = _arithmetic(setting, exact)
            leaves = 0
            if certificate.radius > 0:
                with np.errstate(all="ignore"), one_thread():
                    leaves = _prove(arithmetic, setting, plain.clauses, certificate.trees)
            upper = math.inf  # nothing but a witness proves that an unsafe point is near
            if certificate.witness is not None:
                upper = prove_witness(problem, certificate.witness, certificate.upper, exact)
            elif certificate.radius == 0 and unsafe(problem, problem.x, exact):
                raise Rejected("x itself is unsafe")
    except Rejected as error:
        return Report(False, 0.0, math.inf, 0, "", str(error))
    sentence = sentence_of(problem, certificate, upper, leaves, arithmetic.name)
    return Report(True, certificate.radius, upper, leaves, sentence)


def _check_whole(network: Network, certificate: WholeCertificate, exact: bool) -> Report:
    """A claim about whole numbers and alternatives: its own form and witness, then every box."""
    claim = certificate.claim
    own = check(network, replace(claim, radius=0.0), exact)
    if not own.ok:
        return own
    if claim.label is not None:
        network = network.classifier

    def prove(part: Certificate) -> tuple[bool, str, int]:
        report = check(network, part, exact)
        return report.ok, report.reason, report.leaves

    try:
        problem = _claim(network, claim)
        leaves = prove_whole(network, certificate, prove) if claim.radius > 0 else 0
    except Rejected as error:
        return Report(False, 0.0, math.inf, 0, "", str(error))
    arithmetic = "ball arithmetic" if exact else "outward-rounded float64 arithmetic"
    sentence = sentence_of(problem, claim, own.upper, leaves, arithmetic)
    among = [f"input {i} a whole number" for i in certificate.integer]
    among += [f"one of the inputs {', '.join(map(str, group))} 1 and the others 0" for group in certificate.groups]
    sentence = sentence.replace("every point", "every admissible point").replace("no point", "no admissible point")
    return Report(True, claim.radius, own.upper, leaves, f"{sentence[:-1]}. Admissible: {'; '.join(among)}.")


def _precision(exact: bool) -> AbstractContextManager[Any]:
    """What the arithmetic needs around it."""
    if not exact:
        return nullcontext()
    from layercert.certificate.balls import precision

    return precision()


def _arithmetic(setting: Setting, exact: bool) -> Arithmetic:
    if not exact:
        return FloatArithmetic(setting)
    from layercert.certificate.balls import BallArithmetic

    return BallArithmetic(setting)


def _prove_steps(setting: Setting, exact: bool) -> Callable[[Matrix, Vector, StepTree], int]:
    """What proves trees of format 2: the number of their leaves."""
    widths = setting.network.widths
    if not exact:
        return partial(walk_step_tree, StepFloats(setting), widths)
    from layercert.certificate.step_balls import StepBalls

    return partial(prove_step_tree, StepBalls(setting), widths)


def _claim(network: Network, certificate: Certificate) -> Problem:
    """The claim itself must make sense and be about this network."""
    if certificate.network != network.sha256:
        raise Rejected("the certificate is about another network: the SHA-256 of the weights differs")
    x = certificate.x
    if x.shape != (network.inputs,) or not np.isfinite(x).all():
        raise Rejected(f"x must be {network.inputs} finite numbers")
    if not certificate.p >= 1:
        raise Rejected(f"p = {certificate.p} is not a norm")
    if not (0 <= certificate.radius < math.inf):
        raise Rejected(f"the radius {certificate.radius} is not a finite number >= 0")
    if certificate.domain is not None:
        low, high = certificate.domain
        if low.shape != x.shape or high.shape != x.shape or not ((low <= x) & (x <= high)).all():
            raise Rejected("the domain does not fit x")
    if not certificate.clauses or len(certificate.clauses) != len(certificate.trees):
        raise Rejected("every clause needs a tree")
    clauses = []
    for C, d, target in certificate.clauses:
        if C.shape != (len(d), network.classes) or not len(d) or not (np.isfinite(C).all() and np.isfinite(d).all()):
            raise Rejected("a clause does not fit the network's outputs")
        clauses.append(Clause(C, d, target))
    if certificate.label is not None:
        _check_robustness(network, certificate)
    elif certificate.asked is not None:
        raise Rejected("a claim about classes needs the label of x")
    return Problem(
        network, x, tuple(clauses), _norm(certificate), certificate.radius, certificate.domain, certificate.label
    )


def _norm(certificate: Certificate) -> Norm:
    weights = certificate.weights
    if weights is None:
        return Norm(certificate.p)
    if weights.shape != certificate.x.shape or not ((weights >= LEAST) & (weights <= MOST)).all():
        raise Rejected(f"the weights must be {len(certificate.x)} numbers from {LEAST:.0e} to {MOST:.0e}")
    return WeightedNorm(certificate.p, weights)


def _check_robustness(network: Network, certificate: Certificate) -> None:
    """A claim about a label must cover every other class: f_y - f_j <= 0 for each j. One about targets must cover each
    of them, with nothing but f_k - f_j <= 0 for all other k."""
    y, asked = certificate.label, certificate.asked
    assert y is not None
    if not 0 <= y < network.classes:
        raise Rejected(f"label {y} is out of range")
    wanted = set(range(network.classes)) - {y} if asked is None else set(asked)
    if asked is not None and not (wanted and wanted <= set(range(network.classes))):
        raise Rejected("the classes asked for are not classes of the network")
    for C, d, target in certificate.clauses:
        if target is None or target not in range(network.classes) or (asked is None and target == y):
            raise Rejected("a clause of a robustness claim names no other class")
        if asked is not None and target not in asked:  # else its points would do for a witness of the classes asked for
            raise Rejected(f"a clause is about class {target}, which is not asked for")
        others = [y] if asked is None else [k for k in range(network.classes) if k != target]
        rows = np.zeros((len(others), network.classes))
        rows[np.arange(len(others)), others] = 1.0
        rows[:, target] = -1.0
        if C.shape != rows.shape or (rows != C).any() or d.any():
            of = f"f_{y}" if asked is None else "each other output"
            raise Rejected(f"the clause of class {target} is not {of} - f_{target} <= 0")
        wanted.discard(target)
    if wanted:
        raise Rejected(f"nothing is said about class {min(wanted)}")


def _prove(arithmetic: Arithmetic, setting: Setting, clauses: Sequence[Clause], trees: Sequence[AnyTree]) -> int:
    """Prove every tree; returns the number of leaves."""
    network = setting.network
    start = Bounds(
        [np.zeros(n) for n in network.widths],
        [-T.copy() for T in setting.T[: network.L]],
        [T.copy() for T in setting.T[: network.L]],
    )
    unsafe_sets = [(clause.C, clause.d) for clause in clauses]
    if not all(np.isfinite(T).all() for T in setting.T):
        raise Rejected("the network's values overflow on this ball")
    if any(not (np.abs(C) @ setting.T[-1] + np.abs(d) < 1e150).all() for C, d in unsafe_sets):
        raise Rejected("a clause's values overflow on this ball")
    if not arithmetic.exact and not all(setting.in_range(C, d) for C, d in unsafe_sets):
        raise Rejected(
            f"numbers beyond {LARGE:.0e} can occur on this ball, where the margins of float64 arithmetic do not hold; "
            "check in ball arithmetic (exact=True, --exact)"
        )
    if any(isinstance(tree, Tree) for tree in trees):
        arithmetic.tighten(start, None, 0.0)
    prove_steps = _prove_steps(setting, arithmetic.exact)
    leaves = 0
    for (C, d), tree in zip(unsafe_sets, trees, strict=True):
        if isinstance(tree, BoxTree):
            leaves += prove_box_tree(setting, C, d, tree, arithmetic.exact)
            continue
        if isinstance(tree, StepTree):
            leaves += prove_steps(C, d, tree)
            continue
        _check_shape(network, tree, len(d))
        leaves += _prove_tree(arithmetic, network, start, C, d, tree)
    return leaves


def _check_shape(network: Network, tree: Tree, rows: int) -> None:
    nodes = len(tree.layer) if tree.layer.ndim == 1 else 0
    n = network.neurons
    columns = {"neuron": (), "rounds": (), "alpha": (n,), "beta": (n,), "mu": (rows,), "touch": ((n + 7) // 8,)}
    if nodes == 0 or any(getattr(tree, name).shape != (nodes, *rest) for name, rest in columns.items()):
        raise Rejected("a tree's arrays do not fit each other or the network")
    if any(array.dtype.kind not in "iu" for array in (tree.layer, tree.neuron, tree.rounds)):
        raise Rejected("splits must be whole numbers")
    if tree.touch.dtype != np.uint8:
        raise Rejected("the lower lines must be bits, eight to a byte")
    if any(array.dtype.kind != "f" for array in (tree.alpha, tree.beta, tree.mu)):
        raise Rejected("multipliers must be floating-point numbers")
    if not ((tree.alpha >= 0) & (tree.alpha <= 1)).all():
        raise Rejected("a slope alpha is outside [0, 1]")
    if not ((tree.beta >= 0) & np.isfinite(tree.beta)).all() or not ((tree.mu >= 0) & np.isfinite(tree.mu)).all():
        raise Rejected("a multiplier is negative or not finite")
    if (tree.beta > LARGEST).any() or (tree.mu > LARGEST).any():
        raise Rejected(f"a multiplier is above {LARGEST:g}; only their ratios matter")
    if not ((tree.rounds >= 0) & (tree.rounds <= MOST_ROUNDS)).all():
        raise Rejected(f"a node asks for more than {MOST_ROUNDS} rounds")


def _prove_tree(arithmetic: Arithmetic, network: Network, start: Bounds, C: Matrix, d: Vector, tree: Tree) -> int:
    """Walk the nodes in preorder with a stack of open subtrees."""
    ends = np.cumsum([0, *network.widths])
    stack: list[Bounds | None] = [start.copy()]  # None: a subtree known to be empty, whose nodes need no proof
    leaves = 0
    for node in range(len(tree.layer)):
        if not stack:
            raise Rejected(f"the tree is complete before node {node}: superfluous nodes")
        bounds = stack.pop()
        layer, neuron = int(tree.layer[node]), int(tree.neuron[node])
        if bounds is not None and _is_empty(arithmetic, ends, bounds, C, d, tree, node):
            bounds = None
        if layer == 0:
            if bounds is not None:
                raise Rejected(f"leaf {node} is not proved: unsafe points are not excluded there")
            leaves += 1
            continue
        if layer == GO_ON:
            stack.append(bounds)
            continue
        if not 1 <= layer <= network.L or not 0 <= neuron < network.widths[layer - 1]:
            raise Rejected(f"node {node} splits neuron {neuron} of layer {layer}, which does not exist")
        if bounds is None:
            stack += [None, None]
            continue
        if bounds.phase[layer - 1][neuron] != 0:
            raise Rejected(f"node {node} splits neuron {neuron} of layer {layer} a second time")
        stack += [child_of(bounds, layer - 1, neuron, -1.0), child_of(bounds, layer - 1, neuron, 1.0)]
    if stack:
        raise Rejected(f"the tree ends with {len(stack)} subtrees missing")
    return leaves


def child_of(bounds: Bounds, k: int, neuron: int, phase: float) -> Bounds | None:
    child = bounds.copy()
    child.phase[k][neuron] = phase
    if phase > 0:
        child.lo[k][neuron] = max(child.lo[k][neuron], 0.0)
    else:
        child.hi[k][neuron] = min(child.hi[k][neuron], 0.0)
    return None if child.lo[k][neuron] > child.hi[k][neuron] else child


def _is_empty(
    arithmetic: Arithmetic, ends: Indices, bounds: Bounds, C: Matrix, d: Vector, tree: Tree, node: int
) -> bool:
    """Does the node's own halfspace exclude it, perhaps after tightening? Tightened bounds stay in `bounds`."""
    touch = np.unpackbits(tree.touch[node], count=int(ends[-1]))
    parameters = Parameters(*(by_layer(values, ends) for values in (tree.alpha[node], tree.beta[node], touch)))
    mu = tree.mu[node].astype(np.float64)
    rounds = int(tree.rounds[node])
    if tree.layer[node] == 0:
        rounds = max(rounds, LEAF_ROUNDS)
    elif rounds == 0:
        return False  # a split needs no proof of its own
    return rounds_to_empty(arithmetic, bounds, C, d, mu, parameters, rounds) is not None


def rounds_to_empty(
    arithmetic: Arithmetic, bounds: Bounds, C: Matrix, d: Vector, mu: Vector, parameters: Parameters, most: int
) -> int | None:
    """After how many rounds of tightening does the node's own halfspace exclude it? None: not after `most`.

    The tightened bounds stay in `bounds`.
    """
    for used in range(most + 1):
        g, s, uppers = arithmetic.objective(C, d, mu, bounds, parameters)
        if arithmetic.excludes(g, s):
            return used
        if used < most and not arithmetic.tighten(bounds, g, s, parameters.touch, uppers):
            return used + 1
    return None


def by_layer(values: Any, ends: Indices) -> list[Vector]:
    v = np.asarray(values, dtype=np.float64)
    return [v[ends[k] : ends[k + 1]] for k in range(len(ends) - 1)]
