"""The proof of an answer about whole numbers and alternatives: the boxes it was cut into, and a proof for each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from layercert.certificate.claim import BoxTree, Certificate
from layercert.certificate.whole import AXIS, GROUP, LEAF, WholeCertificate, far_enough, reaches
from layercert.certify.prove import MARGIN, claim_of, prove
from layercert.certify.replay import Unproved
from layercert.search.branching import Box, Branching, left_of

#: The radius of a box's proof is larger than needed by this much, so that rounding in the sum of powers cannot matter.
SPARE = 1e-9


def prove_branches(search: Branching, deadline: float | None = None) -> WholeCertificate:
    """A certificate of the lower bound that a search by branching has proved; Unproved if that fails."""
    problem = search.problem
    far = min(problem.radius, problem.reach, search.lower)
    if math.isinf(far):
        raise Unproved("nothing unsafe exists, at any distance; give a radius or a domain to certify")
    if not search.looked:
        raise Unproved("there was no time to look at the input itself")
    radius = far * (1.0 - MARGIN) if math.isfinite(search.upper) else far
    nothing = BoxTree(np.array([-1], np.int32), np.zeros(1))
    claim = claim_of(problem, radius, search.incumbent.point, search.upper, (nothing,) * len(problem.clauses))
    rows: list[tuple[int, int, float]] = []
    parts: list[Certificate | None] = []
    for box in _preorder(search.root):
        if box.parts:
            kind = AXIS if box.group is None else GROUP
            rows.append((kind, int(box.axis or 0) if box.group is None else box.group, box.cut))
            continue
        rows.append((LEAF, 0, 0.0))
        parts.append(_part(search, box, claim, deadline))
    kinds, indices, cuts = (np.array(column) for column in zip(*rows, strict=True))
    discrete = search.discrete
    return WholeCertificate(
        claim, discrete.integer, discrete.groups, kinds.astype(np.int32), indices.astype(np.int32),
        cuts.astype(np.float64), tuple(parts),
    )  # fmt: skip


def _preorder(box: Box) -> list[Box]:
    return [box, *(each for part in box.parts for each in _preorder(part))]


def _part(search: Branching, box: Box, claim: Certificate, deadline: float | None) -> Certificate | None:
    """The proof of one box; None where it is too far away to need one, as the checker sees it."""
    asked, away = search.inside(box, math.inf)
    if far_enough(claim, asked.x, None):
        return None
    wanted = left_of(search.problem.norm.p, claim.radius * (1.0 + SPARE), away)
    wanted = min(wanted, asked.reach)
    # prove certifies a little less than it is told, and no more than the whole box
    told = wanted / (1.0 - MARGIN) * (1.0 + SPARE)
    part = prove(replace(asked, radius=wanted), told, None, math.inf, deadline, None)
    if not reaches(claim, part, box.low, box.high):  # radii of a few denormal floats have no room for the margin
        raise Unproved("the radius is so small that float64 has no room for the margins of a proof")
    return part
