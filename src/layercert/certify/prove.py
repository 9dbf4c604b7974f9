"""Certificates made. The adaptive search is recorded while it runs, and its tree replayed in the checker's arithmetic
(replay.py). Answers of other methods are certified in the same way: once the radius r is known, "nothing unsafe within
r" is proved by an adaptive search of its own, whose tree is small. A geometric search would have to list every region
it visited and every face it closed.

For networks with few inputs and l_inf a box tree is tried first (boxes.py): a cut of the input takes a few bytes.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from layercert.arrays import Vector
from layercert.bounds.magnitude import out_of_range
from layercert.certificate.checker import check
from layercert.certificate.claim import AnyTree, Certificate
from layercert.certificate.plain import without_weights
from layercert.certificate.setting import Setting
from layercert.certificate.step_floats import StepFloats
from layercert.certificate.steps import StepTree
from layercert.certify.ascent import Ascent
from layercert.certify.boxes import Unclosed, box_tree
from layercert.certify.doubt import Doubt
from layercert.certify.hulled import HulledRows
from layercert.certify.recording import Forest, Recording
from layercert.certify.replay import CAUTION, Replay, Unproved
from layercert.errors import MissingPackageError, ModelError
from layercert.network import Network
from layercert.norms import WeightedNorm
from layercert.problem import Problem
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import adaptive
from layercert.search.adaptive.hulled import is_suited
from layercert.search.input_split import suits
from layercert.search.task import Task
from layercert.system import clock

#: The certified radius is this much (relative) below the bound that the search proved.
MARGIN = 1e-6
#: What is said of an answer that float64 could not give.
BY_RATIONALS = "it was proved in rational arithmetic, for which there is no kind of certificate"
#: What is said of a certificate that float64 cannot follow.
BY_BALLS = "the certificate is checked in ball arithmetic (--exact in the stand-alone checker): float64 is not enough"
#: A box tree with more nodes than this is given up, next to a witness sooner.
MOST_BOXES, MOST_BESIDE_WITNESS = 20_000_000, 100_000


def prove(
    problem: Problem,
    lower: float,
    witness: Vector | None,
    upper: float,
    deadline: float | None = None,
    by_boxes: bool | None = None,
    recording: Recording | None = None,
    searched: float = math.inf,
) -> Certificate:
    """A certificate that no unsafe point is within lower*(1 - 1e-6) of x, or within the problem's radius where lower is
    no less; Unproved if that fails.

    by_boxes: whether to try a box tree first; None leaves it to the number of inputs.
    recording: what was recorded of the search that proved the bound; without one the search is done here.
    searched: what was proved in float64. More than that was proved in rational arithmetic; it is tried, where float64
        cannot follow in ball arithmetic, and where that fails, too, this much is certified instead.
    """
    try:
        with clock.until(deadline):
            if lower > searched:
                with suppress(Unproved):  # boxes would shrink to nothing before they are given up
                    return _prove(problem, lower, witness, upper, False, recording)
                exactly = _without_rounding(problem, lower, witness, upper)
                if exactly is not None:
                    return exactly
            return _prove(problem, min(lower, searched), witness, upper, by_boxes, recording)
    except clock.OutOfTime:
        raise Unproved("the time limit was reached before the proof was complete") from None


def _prove(
    problem: Problem,
    lower: float,
    witness: Vector | None,
    upper: float,
    by_boxes: bool | None,
    recording: Recording | None,
) -> Certificate:
    # a radius that was asked for is proved in full: nothing unsafe is next to it
    full = min(lower, problem.reach) if witness is None else 0.0
    radius = problem.radius if problem.radius <= full else min(lower * (1.0 - MARGIN), problem.reach)
    if radius == 0.0 and witness is None and problem.is_unsafe(problem.x):
        raise Unproved("nothing is proved: the input itself is unsafe")
    plain = without_weights(problem.within(radius))
    reason = out_of_range(plain, radius)
    if reason:
        raise Unproved(reason)
    trees: list[AnyTree] = []
    if by_boxes is None:
        by_boxes = suits(problem.network)
    if by_boxes and problem.network.fits_dense and math.isinf(problem.norm.p) and radius > 0:
        # without a witness nothing says that the margin is needed, and a whole domain should be covered to its ends
        boxed = max(full, radius)
        trees = _box_trees(without_weights(problem.within(boxed)), boxed, witness)
        radius = boxed if trees else radius
    claim = claim_of(problem, radius, witness, upper, tuple(trees))
    return claim if trees else _by_neurons(problem.network, plain, claim, recording)


def _without_rounding(problem: Problem, lower: float, witness: Vector | None, upper: float) -> Certificate | None:
    """A proof that ball arithmetic accepts where the margins of float64 do not hold; None where there is none of this
    kind, or no ball arithmetic.

    Where float64 cannot decide, the ball is tiny or its numbers cancel: one linear piece, whose own halfspace is all
    that is needed, with slopes that nobody has to look for.
    """
    radius = min(lower * (1.0 - MARGIN), problem.reach)
    if not 0.0 < radius < math.inf:
        return None
    claim = claim_of(problem, radius, witness, upper, ())
    with suppress(MissingPackageError, ModelError):
        for slope in (1.0, 0.0):
            trees = tuple(one_leaf(problem.network.neurons, len(clause.d), slope) for clause in problem.clauses)
            made = replace(claim, trees=trees, intervals=True, exact=True)
            if check(problem.network, made).ok:
                return made
    return None


def one_leaf(neurons: int, rows: int, slope: float) -> StepTree:
    """A tree without splits and rows: one halfspace, with the same lower slope for all open neurons."""
    counts, numbers, none = np.zeros(1, np.int32), np.zeros(0, np.int32), np.zeros(0)
    return StepTree(
        layer=counts, neuron=counts, steps=counts + 1, objective=counts, uses=counts, row=numbers, lam=none,
        mu=np.full((1, rows), 1.0 / rows), alpha=np.full((1, neurons), slope), beta=np.zeros((1, neurons)),
        target=numbers, side=numbers, pull=none, slope_count=numbers, slope_at=numbers, slope=none,
        split_count=numbers, split_at=numbers, split=none,
    )  # fmt: skip


def claim_of(
    problem: Problem, radius: float, witness: Vector | None, upper: float, trees: tuple[AnyTree, ...]
) -> Certificate:
    """What a certificate says: nothing unsafe within the radius, and the witness."""
    return Certificate(
        network=problem.network.sha256,
        x=problem.x,
        p=problem.norm.p,
        domain=problem.domain,
        label=problem.label,
        clauses=tuple((c.C, c.d, c.target) for c in problem.clauses),
        radius=radius,
        witness=witness,
        upper=upper,
        trees=trees,
        weights=problem.norm.weights if isinstance(problem.norm, WeightedNorm) else None,
        asked=problem.targets,
    )


def _by_neurons(network: Network, plain: Problem, claim: Certificate, recording: Recording | None) -> Certificate:
    """The claim with trees of neuron splits that the checker accepts.

    Where something was decided by no more than what the checker's own rounding can move (doubt.py), the proof is tried
    on the checker, and made once more with the checker's own margins if it fails.
    """
    reason = ""
    for caution in (CAUTION, 1.0):
        trees, sure = _neuron_trees(plain, claim.radius, recording, caution)
        made = replace(claim, trees=tuple(trees), intervals=True)
        if sure:
            return made
        report = check(network, made)
        if report.ok:
            return made
        reason = report.reason
    raise Unproved(f"the checker does not follow the proof: {reason}; rounding is as large as the margin")


def _box_trees(problem: Problem, radius: float, witness: Vector | None) -> list[AnyTree]:
    """Box trees for all clauses; none when next to a witness they grow too large (then neurons are split)."""
    setting = Setting(problem.network, problem.x, problem.norm.p, radius, problem.domain)
    # up to a radius that was asked for there is room for bounds; up to a witness boxes must shrink to nothing
    most = MOST_BOXES if witness is None else MOST_BESIDE_WITNESS
    try:
        return [box_tree(setting, clause.C, clause.d, most) for clause in problem.clauses]
    except Unclosed:
        return []


def _neuron_trees(
    problem: Problem, radius: float, recording: Recording | None, caution: float
) -> tuple[list[AnyTree], bool]:
    """Trees of neuron splits, one for each clause, with margins so many times the checker's; is the checker sure to
    follow?"""
    setting = Setting(problem.network, problem.x, problem.norm.p, radius, problem.domain, intervals=True)
    task = Task(problem, make_chain("default", problem.norm), radius * (1.0 + 0.5 * MARGIN))
    if radius > 0 and (recording is None or not recording.reaches(radius, len(problem.clauses))):
        recording = Recording()
        for _ in adaptive(task, recorder=recording):
            clock.check()
    forest = Forest(radius) if recording is None else recording.forest_for(radius, len(problem.clauses))
    arithmetic = StepFloats(setting, caution)
    ascent = Ascent(task, setting, forest.model, lambda: arithmetic.start)
    trees: list[AnyTree] = []
    with np.errstate(all="ignore"):
        doubt, suited = Doubt(arithmetic), is_suited(problem.network, problem.norm)
        hulled = HulledRows(arithmetic, doubt, lambda: ascent.model, forest.played) if radius > 0 and suited else None
        if hulled is not None:
            ascent.bounds = hulled.bounds
        for i, clause in enumerate(problem.clauses):
            replay = Replay(arithmetic, clause, ascent, doubt, hulled)
            trees.append(replay.tree(forest, i) if radius > 0 else replay.trivial())
    return trees, not doubt.any
