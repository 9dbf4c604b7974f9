"""Witnesses of one worker: short attacks from nodes' nearest points, and the linear pieces of good points.

Nothing is proved here. A nearer witness makes the ball smaller, and with it every node easier.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from layercert.arrays import Indices, Vector
from layercert.search.adaptive.leaf import Leaves
from layercert.search.adaptive.pieces import Piece, by_distance, by_margin, is_sparse
from layercert.search.events import Event
from layercert.system import clock

if TYPE_CHECKING:
    from layercert.search.adaptive.least import PiecePrograms
    from layercert.search.adaptive.tree import Ball

#: The most pieces that the first witness is moved through, those of later ones, and the faces that are tried at each,
#: the steepest first.
POLISHED, REPOLISHED, FLIPS = 60, 3, 6
#: Pieces of programs' points: the first ones are all tried, later those of one program in so many. Counted, not timed:
#: one thread does the same every time.
FIRST_PIECES, PIECE_EVERY = 20, 3
#: A piece is nearer if its point is, by this much (relative).
WORTH_MOVING = 1e-7
#: A witness is polished where the time suffices for so many pieces.
PIECES_LEFT = 20
#: Blocks are tried until so many in a row have nothing nearer. Where there was nothing at all, none is tried until the
#: witness changes: on plainly trained networks it is the nearest point already.
BLOCKS = 15
#: F must fall by this part of its value at x, about what this part of the radius is worth.
WORTH_A_BLOCK = 1e-7


class Witnesses:
    """What looks for nearer witnesses in a ball."""

    def __init__(self, ball: Ball) -> None:
        self.ball, self.task = ball, ball.task
        self.leaves = Leaves(ball.task)
        self._seen: set[tuple[int, bytes]] = set()  # pieces of programs' points
        self._programs = 0  # nodes that had programs so far

    @cached_property
    def pieces(self) -> PiecePrograms:
        """Programs of linear pieces."""
        from layercert.search.adaptive.least import PiecePrograms

        return PiecePrograms(self.task.problem, self.ball.maps, self.ball.meets)

    def improve(self, step: Vector, distance: float, clause: int) -> Iterator[Event]:
        if distance < self.ball.cutoff:
            yield from self.task.suggest(step, self.task.problem.clauses[clause])

    def seek(self, step: Vector, clause: int) -> Iterator[Event]:
        """A short attack from a node's nearest point."""
        from layercert.attack.kernel import FINE, seek

        U = self.ball.cutoff
        if self.ball.swept:  # by blocks, which find more
            return
        distance, w = seek(self.ball.asked, clause, step, self.ball.effort.seek_steps, U, FINE, clock.timer())
        if distance < self.ball.cutoff:
            yield from self.improve(w, float(distance), clause)
            yield from self.polish(w, clause, REPOLISHED)

    def polish(self, step: Vector, clause: int, pieces: int = POLISHED) -> Iterator[Event]:
        """From a witness downhill over linear pieces: the nearest unsafe point on its piece, then on the pieces behind
        the faces that hold it up, for as long as one of them is nearer."""
        ball = self.ball
        if not self._has_pieces or clock.left() < PIECES_LEFT * self._piece_seconds:
            return
        sides = self._sides(step)
        piece = self._nearest(sides, clause)
        if not (yield from self._move(piece, clause)):
            return
        for _ in range(pieces):
            for flipped in (*piece.faces[:FLIPS, None], piece.faces):
                clock.check()
                other = sides.copy()
                other[flipped] *= -1.0
                beyond = self._nearest(other, clause)
                if beyond.value < ball.cutoff * (1.0 - WORTH_MOVING):
                    break
            else:
                return
            sides, piece = other, beyond
            if not (yield from self._move(piece, clause)):
                return

    def of_piece(self, sides: Vector, clause: int) -> Iterator[Event]:
        """The nearest unsafe point of a linear piece, in l_inf; no rows are dense."""
        piece = by_margin(self.pieces, sides, clause, self.ball.cutoff)
        if piece.value < self.ball.cutoff:
            yield from self.task.propose(piece.step, self.task.problem.clauses[clause])

    def _move(self, piece: Piece, clause: int) -> Generator[Event, None, bool]:
        """The point of a piece as a witness. False where it is none: then nothing is to be had from its neighbours."""
        cutoff = self.ball.cutoff
        if piece.value < cutoff:
            tell = self.task.propose if self._by_margin else self.task.suggest
            yield from tell(piece.step, self.task.problem.clauses[clause])
            return self.ball.cutoff < cutoff
        return True

    def _sides(self, step: Vector) -> Vector:
        """On which side of its hyperplane x + step is, for every neuron."""
        problem = self.task.problem
        return np.where(np.concatenate(problem.network.preactivations(problem.x + step)) > 0, 1.0, -1.0)

    def _nearest(self, sides: Vector, clause: int) -> Piece:
        """The nearest unsafe point of a linear piece."""
        ball = self.ball
        if self._by_margin:
            return by_margin(self.pieces, sides, clause, ball.cutoff)
        return by_distance(self.leaves, sides, ball.meets, clause, ball.cutoff)

    @cached_property
    def _by_margin(self) -> bool:
        return math.isinf(self.ball.model.p) and is_sparse(self.task.problem.network)

    @property
    def _has_pieces(self) -> bool:
        """The rows of a distance program are dense; those of the least F are not."""
        return self._by_margin or self.task.problem.network.fits_dense

    @property
    def _piece_seconds(self) -> float:
        """About how long a piece takes."""
        return 0.0 if self._by_margin else self.leaves.seconds

    def of_program(self, step: Vector, clause: int) -> Iterator[Event]:
        """The nearest unsafe point on the linear piece of a program's point, for some of them."""
        ball, sides = self.ball, self._sides(step)
        key = clause, np.packbits(sides[ball.meets] > 0).tobytes()
        self._programs += 1
        most = FIRST_PIECES + self._programs // PIECE_EVERY
        if not self._has_pieces or key in self._seen or len(self._seen) >= most:
            return
        self._seen.add(key)
        piece = self._nearest(sides, clause)
        if piece.value < ball.cutoff * (1.0 - WORTH_MOVING) and (yield from self._move(piece, clause)):
            yield from self.polish(piece.step, clause, REPOLISHED)

    def by_blocks(self, neurons: Indices) -> Iterator[Event]:
        """From the witness to a nearer one, a block of inputs at a time: those of these neurons first (of the first
        layer), then those around a block that led to one. A block is tried once for what it has around it."""
        ball, problem = self.ball, self.task.problem
        if not self._by_margin or not ball.blocks.lock.acquire(blocking=False):
            return
        try:
            held, blocks = self.task.incumbent.witness, ball.blocks
            if held is None:
                return
            if held.distance != blocks.seen:  # found elsewhere, with other sides all over
                blocks.tried.clear()
            elif blocks.in_vain:
                return
            own = blocks.of_neuron[neurons[neurons < len(blocks.of_neuron)]].tolist()
            waiting = [block for block in dict.fromkeys(own) if block not in blocks.tried]
            yield from self._by_blocks(waiting, held.point - problem.x, problem.clauses.index(held.clause))
            blocks.seen = self.task.incumbent.distance
            blocks.in_vain = bool(waiting) and blocks.seen == held.distance  # those that are left matter less
        finally:
            ball.blocks.lock.release()

    def _by_blocks(self, waiting: list[int], step: Vector, clause: int) -> Iterator[Event]:
        blocks, failed = self.ball.blocks, 0
        need = WORTH_A_BLOCK * abs(blocks.value(clause, np.zeros_like(step)))
        while waiting and failed < BLOCKS:
            clock.check()
            block, U = waiting.pop(0), self.ball.cutoff
            blocks.tried.add(block)
            point = blocks.least(clause, step, U, block, need)
            failed += 1
            if point is None:
                continue
            piece = self._nearest(self._sides(point), clause)
            if piece.value < U * (1.0 - WORTH_MOVING) and (yield from self._move(piece, clause)):
                step, failed, around = piece.step, 0, blocks.neighbours(block).tolist()
                blocks.tried.difference_update(around)
                waiting += [other for other in around if other not in waiting]
