"""Nodes near U, bounded by their linear programs (program.py): what the multipliers are worth, with facets and without,
the neurons that they fix (fixing.py), and the tighter neurons on the cap that they leave.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from layercert.arrays import Matrix, Vector
from layercert.facets import Facets, in_parts
from layercert.search.adaptive.model import ALPHA, BETA, COEF, HI, LO, PHASE, SHARE
from layercert.search.adaptive.node import Node
from layercert.search.adaptive.record import Halfspace
from layercert.search.adaptive.trail import PARTS
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.search.adaptive.bent import Bends
    from layercert.search.adaptive.lanes import Pass
    from layercert.search.adaptive.model import Model
    from layercert.search.adaptive.program import Multipliers
    from layercert.search.adaptive.worker import Worker

#: At most so many programs for one node, while each closes this share of the gap or fixes so many neurons.
PROGRAMS, PROGRAM_SHARE, PROGRAM_FIXED = 6, 0.2, 10
#: What a node's halfspace is made of.
PARAMETERS = [ALPHA, BETA, SHARE, COEF]
#: A program tells what to split if it is no further below U than this many times the bound that is known.
TELLING = 2.0


def bound_by_programs(worker: Worker, node: Node) -> Vector | None:
    """Bound a node by the exact multipliers of its relaxation, and tighten with what these leave of the ball.

    Returns where the last program has F least, None without one.
    """
    ball, effort = worker.ball, worker.effort
    node.programmed, point = True, None
    for _ in range(PROGRAMS):
        before = node.bound
        found = ball.programs.solve(node.clause, node.state, ball.U, worker.in_tail(node))
        if found is None:
            break
        point, fixed = found.step, prove(worker, node, found)
        if ball.hulls is None and node.bound < ball.U:  # with facets fixing has tightened what the node has
            worker.bound([node], effort.steps, 1, 1)
        little = ball.U - node.bound > (1.0 - PROGRAM_SHARE) * (ball.U - before)
        if node.bound >= ball.U or (little and fixed < PROGRAM_FIXED):
            break
    return point


def prove(worker: Worker, node: Node, found: Multipliers) -> int:
    """What the multipliers of a node's program are worth; how many neurons they fix."""
    ball, before, fixed = worker.ball, node.bound, 0
    if ball.recorder is not None:
        found = _storable(found)
    old = node.state.copy(), node.weights, node.facets
    node.state[ALPHA] = np.where(found.alpha >= 0, found.alpha, node.state[ALPHA])
    node.state[BETA], node.weights = found.beta, found.mu
    value = float(worker.value_of(node))
    if not value > node.bound:  # nor where it is no number
        node.state, node.weights, node.facets = old
    node.bound = max(node.bound, value)
    worker.tell(node)
    if found.facets is not None and node.bound < ball.U:
        with_facets, fixed = _prove_with_facets(worker, node, found, found.facets)
        value = max(value, with_facets)
    # where the program is far below what is known, its point says nothing about what holds the bound down
    node.wanted = found.cheating if ball.U - value <= TELLING * (ball.U - before) else found.cheating[:0]
    return fixed


def _prove_with_facets(worker: Worker, node: Node, found: Multipliers, facets: Facets) -> tuple[float, int]:
    """The same with upper lines over the inputs. The nodes below take over what is worth something without `both`."""
    from layercert.search.adaptive.bent import bent_pass

    ball, state, hulls = worker.ball, node.state.copy(), worker.ball.hulls
    assert hulls is not None
    state[ALPHA] = np.where(found.alpha >= 0, found.alpha, state[ALPHA])
    state[BETA], state[SHARE] = found.beta, 0.0
    state[SHARE, facets.neurons] = facets.shares
    bends = hulls.bends(state, facets, ball.U)
    done, state[COEF] = bent_pass(ball.model, state, found.mu, node.clause, bends)
    value, old = _worth(ball.model, done), None
    if ball.recorder is None:  # certificates do not know these multipliers, nor do the passes of the nodes below
        full = bends._replace(both=found.both, share=state[SHARE])
        again, coef = bent_pass(ball.model, state, found.mu, node.clause, full)
        if _worth(ball.model, again) > value:
            old = None if value > node.bound else node.state
            value, bends, done, state[COEF] = _worth(ball.model, again), full, again, coef
    if not value > node.bound:
        return value, 0
    own, fixed = Halfspace(state[ALPHA], state[BETA], found.mu, facets), 0
    before = node.weights, node.facets
    node.state, node.bound, node.weights, node.facets = state, value, found.mu, facets
    if old is None:
        ball.facets[node.clause] = hulls.table(facets, ball.cutoff), facets
    worker.tell(node, own=own)
    if value < ball.U:
        fixed = fix_and_tighten(worker, node, own, bends, done)
    if old is not None:
        node.state[PARAMETERS] = old[PARAMETERS]
        node.weights, node.facets = before
    return value, fixed


def _storable(found: Multipliers) -> Multipliers:
    """With slopes, multipliers and facets as a certificate has them: what they close here they close there."""
    alpha = np.where(found.alpha >= 0, np.rint(found.alpha * PARTS) / PARTS, found.alpha)
    beta = found.beta.astype(np.float32).astype(np.float64)
    facets = None if found.facets is None else in_parts(found.facets, PARTS)
    return found._replace(alpha=alpha, beta=beta, facets=facets)


def _worth(model: Model, done: Pass) -> float:
    """The bound that a pass proves."""
    from layercert.search.adaptive.halfspace import distance

    return float(distance(done.g[0], done.s[0], done.drift[0], model, np.empty(model.net.inputs)))


def fix_and_tighten(worker: Worker, node: Node, own: Halfspace, bends: Bends, done: Pass) -> int:
    """Fix what has one side left by the node's halfspace, and bound the others on its cap; how many are fixed."""
    from layercert.search.adaptive.bound import cap_of
    from layercert.search.adaptive.fixing import fix
    from layercert.search.adaptive.lanes import Constants
    from layercert.search.adaptive.layers import tighten
    from layercert.search.adaptive.trail import begin_round

    ball, state = worker.ball, node.state.copy()
    fixed = fix(ball.model, state, bends, done, ball.U, clock.timer())
    _give_sides(state, fixed.neurons.tolist(), fixed.sides.tolist())
    if ball.recorder is not None:
        ball.recorder.fixed(node.number, own, fixed)
    above, cap = Constants(done.value[0], done.error[0]), cap_of(ball.model, done, 0, ball.U)
    if ball.recorder is not None:
        begin_round(worker.kept.trail, 0, state[ALPHA], state[BETA], state[SHARE], node.weights)
    if tighten(ball.model, worker.kept, state, cap, above, 1, clock.timer()):
        node.state = state
        worker.settle_sides(node.state)
    else:
        node.bound = math.inf
    worker.tell_rounds([node])
    worker.tell(node, rows=True, own=own)
    return len(fixed.neurons)


def _give_sides(state: Matrix, neurons: list[int], sides: list[float]) -> None:
    """Neurons have their sides from here on. One that is named with both has no value left: lo > hi."""
    for i, side in zip(neurons, sides, strict=True):
        twice = state[PHASE, i] != 0.0
        state[LO if side > 0 else HI, i] = side if twice else 0.0
        state[PHASE, i] = side
