"""Nodes of convolutional networks in l_inf, bounded by facets that a game finds (hulled.py), without a linear program.

The objective F of a node is a row like any other: its coefficients over the last layer's outputs are those of its
clause. Thirty turns take some thirty milliseconds on a network of a thousand neurons, where one linear program with as
good facets takes half a second and more. The game holds the multipliers of splits fixed, and finds the others roughly:
the ascent goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layercert.arrays import Vector
from layercert.facets import Facets, in_parts
from layercert.search.adaptive.model import ALPHA, COEF, SHARE
from layercert.search.adaptive.node import Node
from layercert.search.adaptive.record import Halfspace
from layercert.search.adaptive.trail import PARTS

if TYPE_CHECKING:
    from layercert.search.adaptive.model import Model
    from layercert.search.adaptive.worker import Worker

#: Turns of the game; it has gained where it closes this part of a node's gap.
TURNS, GAINED = 30, 0.2
#: Entries that a game may visit, at about 16 ns each: nothing looks at the clock inside.
MOST = 20_000_000


def is_affordable(model: Model) -> bool:
    """Is there time for some turns, whatever a node reads?"""
    from layercert.search.adaptive.hulled import FEWEST

    return FEWEST * len(model.net.data) <= MOST


def bound_by_play(worker: Worker, node: Node) -> Vector:
    """Raise a node's bound by facets, which the nodes below it take over; where their means have F least."""
    from layercert.search.adaptive.bent import bent_pass
    from layercert.search.adaptive.halfspace import distance
    from layercert.search.adaptive.hulled import cone_of, facets_of, play, slopes_of

    ball, model, hulls = worker.ball, worker.ball.model, worker.ball.hulls
    assert hulls is not None
    net, first, mu = model.net, int(model.first[node.clause]), node.weights
    layers = len(net.noff) - 1
    coef = np.ascontiguousarray(mu @ model.R[first : first + len(mu)])
    places = np.full(net.inputs + len(net.b), -1, np.intp)
    cone = cone_of(model, node.state, layers, coef, ball.U, places)
    _, game = play(model, node.state, cone, coef, min(TURNS, MOST // max(len(cone.place), 1)), ball.U)
    point = np.zeros(net.inputs)
    inputs = cone.first[layers]
    point[cone.at[inputs:]] = game.mean[inputs:]
    node.played, node.gained = True, False
    facets = Facets(*facets_of(model, node.state, cone, game))
    if not len(facets.neurons):
        return point
    state = node.state.copy()
    slopes_of(cone, game, state[ALPHA])
    if ball.recorder is not None:  # as a certificate has them
        facets = in_parts(facets, PARTS)
        state[ALPHA] = np.rint(np.clip(state[ALPHA], 0.0, 1.0) * PARTS) / PARTS
    state[SHARE] = 0.0
    state[SHARE, facets.neurons] = facets.shares
    done, state[COEF] = bent_pass(model, state, mu, node.clause, hulls.bends(state, facets, ball.U))
    value = float(distance(done.g[0], done.s[0], done.drift[0], model, np.empty(net.inputs)))
    if value > node.bound:
        before = ball.U - node.bound
        ball.facets[node.clause] = hulls.table(facets, ball.cutoff), facets
        node.state, node.bound, node.facets = state, value, facets
        worker.tell(node, own=Halfspace(state[ALPHA], node.halfspace.beta, mu, facets))
        if value < ball.U:
            worker.bound([node], worker.effort.steps, 1, 1)
        node.gained = ball.U - node.bound < (1.0 - GAINED) * before
    return point
