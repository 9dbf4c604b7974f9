"""Trees of format 2 made: a recorded search is replayed in the checker's own arithmetic, a little more cautiously.

At each node the search's halfspaces are tried on the checker's own bounds, in the search's order (branch.Goal). While
one proves less here than it did there, rows bound neurons on its cap, with the parameters that the search left; so
round after round, as long as that helps. Where it proves as much, what the search did next will do here as well:
whoever falls behind at one node finds half of the neurons open that were fixed below it. Halfspaces move between
rounds (ascent.py); linear programs are solved, and nodes split further, only where the search closed a node and none of
this does. What no leaf rests on is left out (log.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from layercert.arrays import Mask, Vector
from layercert.certificate.reach import fall
from layercert.certificate.step_floats import Halfspaces, Objectives, StepFloats, regions_of
from layercert.certificate.step_walk import lines_of
from layercert.certificate.steps import StepTree
from layercert.certify.aims import put, rounded_to, stacked
from layercert.certify.ascent import MANY_STEPS, STEPS, Ascent
from layercert.certify.branch import Branch, goals_of
from layercert.certify.doubt import Doubt
from layercert.certify.facets import counting
from layercert.certify.fixing import fix_known, lost_by
from layercert.certify.following import follow_trail
from layercert.certify.hulled import HulledRows
from layercert.certify.log import Aim, Log, LoggedRows, Node, Step
from layercert.certify.recording import Forest, Plan, Snapshot, scaled, snapshot
from layercert.problem import Clause
from layercert.search.adaptive.model import COEF, keep_rows
from layercert.search.adaptive.record import Halfspace
from layercert.search.adaptive.search import suited
from layercert.system import clock

#: The prover's margins are this much larger than the checker's: another order of sums must not open a leaf.
CAUTION = 2.0
#: Nodes that are worked on together.
TOGETHER = 16
#: Most rounds of tightening at the root, at a leaf, and for each thing that the search did at another node.
ROOT_ROUNDS, LEAF_ROUNDS, SPLIT_ROUNDS = 24, 12, 4
#: A round that does not close this share of the gap is the last one without repair, or the last one. Where there are
#: facets and programs more is asked: these take a node further than another round does. In deep, dense networks a tenth
#: makes proofs longer (5x50, linf #0: 12 leaves instead of 6).
WORTHWHILE, WORTHWHILE_WITH_FACETS = 0.03, 0.1
#: After so many rounds at a goal of the search, halfspaces that are found here are asked what they fix.
FIX_AFTER = 2
#: Below this gap the search's last halfspace is tried beside the one that was found here.
NEAR = 0.05
#: From so many neurons in three layers or more rows move from the start; elsewhere only where a round gains little.
#: Moving takes a second pass for each row, and saves rounds and rows where the layers are many or wide.
MOVED = 150


class Unproved(Exception):  # noqa: N818 - an outcome, not a mistake of the program
    """No certificate could be made, and why."""


class Replay:
    """One clause's tree."""

    def __init__(
        self, arithmetic: StepFloats, clause: Clause, ascent: Ascent, doubt: Doubt, hulled: HulledRows | None = None
    ) -> None:
        """hulled: the rows to begin with."""
        self.setting, self.floats, self.clause, self.ascent = arithmetic.setting, arithmetic, clause, ascent
        self.doubt, self.hulled = doubt, hulled
        self.starts = arithmetic.starts
        self.log = Log(self.setting.network.widths)
        self.exact_slopes = False
        self.repaired = 0
        network = self.setting.network
        self.thorough = suited(network).together == 1 or (network.L > 2 and network.neurons >= MOVED)
        rows, none = 2 * self.log.neurons, np.zeros(0, np.float32)
        self.nothing = Snapshot(
            np.zeros(rows + 1, np.intp),
            np.zeros(0, np.uint8),
            np.zeros(rows, np.bool_),
            none,
            np.zeros(rows, np.float32),
        )

    def trivial(self) -> StepTree:
        """The tree for radius 0, where nothing is to be proved."""
        return self.log.pack(False, len(self.clause.d))

    def tree(self, forest: Forest, clause: int) -> StepTree:
        """The proof; `clause` is the number of ours in the search that was recorded."""
        self.forest = forest
        n, m = self.log.neurons, len(self.clause.d)
        plan = forest.plans.get(forest.roots.get(clause, -1), Plan())
        start = self.floats.start
        own = Halfspace(np.full(n, 0.5), np.zeros(n), np.full(m, 1.0 / m))
        root = Branch(
            self.log.root, plan, start.lo[0].copy(), start.hi[0].copy(), start.phase[0].copy(),
            np.full(2 * n, -1, np.int64), None, goals_of(plan, self.setting.r, own), moving=self.thorough,
        )  # fmt: skip
        closed = self.hulled is not None and self.hulled.begin(self, root)
        stack = [] if closed else [root]
        while stack:
            clock.check()
            batch = [stack.pop() for _ in range(min(TOGETHER, len(stack)))]
            self.work(batch)
            for branch in batch:
                if not branch.done:
                    stack.extend(reversed(self._children(branch)))
        return self.log.pack(self.exact_slopes, m)

    def halfspaces(self, regions: Any, own: Objectives) -> Halfspaces:
        """What some objectives prove in some nodes, a line each."""
        return self.floats.halfspaces(self.clause.C, self.clause.d, regions, own)

    def moves(self, branches: list[Branch], regions: Any, halves: Halfspaces, bent: bool, closed: Mask) -> Vector:
        """How far halfspaces of some nodes can move (doubt.py), those that close theirs beyond doubt or not."""
        given_by = np.stack([branch.given_by for branch in branches])
        return self.doubt.halfspaces(self.doubt.lines(regions, given_by), halves, bent, closed)

    def work(self, batch: list[Branch]) -> None:
        """Rounds of halfspaces and of tightening on their caps, until each node is closed or gains no more."""
        if not batch:
            return
        regions = regions_of(*(np.stack([getattr(b, name) for b in batch]) for name in ("lo", "hi", "phase")))
        for at, branch in enumerate(batch):
            follow_trail(self, branch, regions, at)
            known = branch.plan.rows or branch.rows
            branch.rows = self._own_rows(known) if branch.moving and not branch.done else known
        going = [at for at, branch in enumerate(batch) if not branch.done]
        while going:
            clock.check()
            own = stacked([self._aim(batch[at], regions, at) for at in going])
            for at in going:
                fix_known(self, batch[at], regions, at)
            some = lines_of(regions, np.array(going))
            halves = self.halfspaces(some, own)
            closed, gaps = self.floats.excluded(halves), self.gaps(halves)
            stuck = [i for i, at in enumerate(going) if not closed[i] and self._is_stuck(batch[at], gaps[i])]
            if stuck:
                for rounded in (True, False):
                    self._recall({i: batch[going[i]] for i in stuck}, some, own, halves, rounded)
                closed, gaps = self.floats.excluded(halves), self.gaps(halves)
            moves = self.moves([batch[at] for at in going], some, halves, own.facets is not None, closed)
            self.book(batch, going, some, own, halves)
            left = []
            for i, at in enumerate(going):
                branch = batch[at]
                step = branch.node.steps[-1]
                if closed[i] or (branch.piece and self._excludes_exactly_so(some, own, i)):
                    branch.node.closers.append(step.event)
                    branch.done = True
                elif self._goes_on(branch, float(gaps[i])):
                    branch.moves = float(moves[i])
                    branch.done = self.tighten(branch, regions, at, halves, i)
                    left.append(at)
                else:
                    branch.node.steps.pop()
                    if branch.go_on():
                        left.append(at)
            going = [at for at in left if not batch[at].done]
        for at, branch in enumerate(batch):
            branch.lo, branch.hi, branch.phase = regions.lo[at], regions.hi[at], regions.phase[at]

    def _own_rows(self, known: Snapshot | None) -> Snapshot:
        """A copy to move."""
        if known is None:
            kept = keep_rows(self.floats.net)
            known = snapshot(kept)
        betas = known.betas if len(known.betas) else np.zeros(len(known.slopes), np.float32)
        return Snapshot(known.at, known.slopes.copy(), known.known.copy(), betas.copy(), known.pulls.copy())

    def _helps(self, branch: Branch, gap: float) -> bool:
        """Is a node nearer to being closed than after its last round?"""
        share = WORTHWHILE_WITH_FACETS if self.ascent.has_programs else WORTHWHILE
        return gap < (1.0 - share) * branch.gap

    def _goes_on(self, branch: Branch, gap: float) -> bool:
        """Is another round worth it? With the same parameters while they help, then with better ones."""
        helped = self._helps(branch, gap)
        branch.gap = min(gap, branch.gap)
        branch.tries += 1
        most = ROOT_ROUNDS if branch.plan.root else LEAF_ROUNDS if branch.ends else SPLIT_ROUNDS
        as_good = not branch.ends and gap <= branch.goal.gap  # as the search was: what it did next will do here
        if branch.piece or branch.tries > most or as_good:
            return False
        if branch.recalled or helped:
            return True
        if not branch.moving:
            branch.moving, branch.rows = True, self._own_rows(branch.rows)
        elif not branch.ends:
            return False
        elif self.ascent.has_programs and not branch.by_programs:
            branch.by_programs = True
        elif gap < NEAR and branch.steps == STEPS:
            branch.steps = MANY_STEPS
        else:
            return False
        return True

    def _aim(self, branch: Branch, regions: Any, at: int) -> Halfspace:
        """The parameters to try next, as they will be read."""
        leaf = branch.plan.children is None and bool(branch.plan.owns)
        if leaf and not branch.recalled and regions.side[at].all():
            branch.recalled = True  # if the search solved its program, these are the multipliers
            return scaled(branch.plan.owns[0])._replace(facets=None)
        if regions.side[at].all() or branch.plan.root or branch.tries:
            self.repaired += 1
            if branch.by_programs:
                branch.better = self.ascent.programmed(self.clause, line_of(regions, at), branch.own)
            else:
                better = self.ascent.improved(self.clause, line_of(regions, at), branch.own, branch.steps)
                # where the search's own halfspace does not fix what it fixed there, or close the node, this one may
                fixed = branch.goal.fixed
                behind = branch.ends if fixed is None else not regions.side[at, fixed.neurons].all()
                fixes = behind and branch.tries >= FIX_AFTER
                branch.better = self.ascent.fixing(self.clause, better) if fixes else better
            branch.own, branch.piece = branch.better.own, branch.better.state is None
        own = scaled(branch.own)
        return own if branch.piece else rounded_to(own)

    def _is_stuck(self, branch: Branch, gap: float) -> bool:
        """Is a node nearly closed, and rounds gain little? Where a program's parameters are used, they are the best."""
        near = branch.gap < NEAR and not self._helps(branch, gap)
        return near and bool(branch.plan.owns) and branch.own.facets is None

    def _recall(self, stuck: dict[int, Branch], some: Any, own: Objectives, halves: Halfspaces, rounded: bool) -> None:
        """Take the halfspace that the search ended with where it is better; `stuck`: by their lines.

        There an ascent of few steps no longer helps. Without rounding it is taken only where it closes the node: then
        a leaf is closed by a hair, and all slopes are stored in full.
        """
        near = np.array(list(stuck), np.intp)
        near = near[~self.floats.excluded(halves)[near]]
        if not len(near):
            return
        last = [scaled(stuck[i].plan.owns[0])._replace(facets=None) for i in near.tolist()]
        theirs = stacked([rounded_to(one) if rounded else one for one in last])
        found = self.floats.halfspaces(self.clause.C, self.clause.d, lines_of(some, near), theirs)
        ours, others = self.gaps(halves)[near], self.gaps(found)
        better = np.flatnonzero(others < ours if rounded else self.floats.excluded(found))
        self.exact_slopes = self.exact_slopes or (not rounded and len(better) > 0)
        put(own[:3], near[better], theirs[:3], better)
        put(halves._replace(uppers=()), near[better], found._replace(uppers=()), better)
        if halves.uppers is not None:
            put([part.T for part in halves.uppers], near[better], [part.T for part in found.uppers], better)
        for j in better:
            stuck[int(near[j])].own = last[j]

    def gaps(self, halves: Halfspaces) -> Vector:
        """How far halfspaces are from excluding the ball, in units of what it would take."""
        reach = fall(self.setting, halves.g)
        return np.asarray(np.where(reach > 0, (reach - halves.s) / reach, np.inf))

    def book(self, batch: list[Branch], going: list[int], some: Any, own: Objectives, halves: Halfspaces) -> None:
        """The halfspaces as events and steps of their nodes."""
        from layercert.certify.digest import needs
        from layercert.certify.facets import needs_with_facets

        if halves.uppers is None:  # no hidden layer, nothing to rest on
            events = self.log.add(np.zeros(len(going), np.int64), np.zeros(0, np.int64)) + np.arange(len(going))
            alpha = own.alpha
        else:
            coef, given_by = halves.uppers.coef, np.stack([batch[at].given_by for at in going])
            beta = np.where(some.side != 0, own.beta, 0.0)
            if own.facets is None:
                counts, deps = needs(coef, some, beta, given_by)
            else:
                counts, deps = needs_with_facets(coef, some, beta, given_by, own.facets, self.setting)
            events = self.log.add(counts, deps) + np.arange(len(going))
            alpha = np.where(coef.T > 0, np.where(some.side == 0, own.alpha, some.side > 0), 0.0)
            own = own._replace(beta=beta)
        for i, at in enumerate(going):
            facets = None if own.facets is None else own.facets[i]
            if facets is not None:
                facets = counting(facets, halves.uppers.coef[:, i], some.side[i], self.setting.entries.counts)
            aim = Aim(alpha[i], own.beta[i], own.mu[i], facets)
            batch[at].node.steps.append(Step(int(events[i]), aim))

    def _excludes_exactly_so(self, some: Any, own: Objectives, i: int) -> bool:
        """A linear piece that cannot be split has a last chance: the checker's own margins."""
        plain = StepFloats(self.setting)
        _ = plain.start
        at = np.array([i])
        halves = plain.halfspaces(self.clause.C, self.clause.d, lines_of(some, at), own.some(at))
        self.doubt.any = True
        return bool(plain.excluded(halves)[0])

    def tighten(self, branch: Branch, regions: Any, at: int, halves: Halfspaces, half: int) -> bool:
        """Bound all open neurons on the cap, layer by layer; True when the node turns out empty."""
        from layercert.certify.tightening import Node as Tightened
        from layercert.certify.tightening import Slips, tighten

        step, cap = branch.node.steps[-1], self.ascent.cap(halves.g[half], float(halves.s[half]))
        near = branch.own.alpha - 0.5 if branch.better is None else branch.better.point
        node = Tightened(
            regions, at, halves, half, cap, branch.rows or self.nothing, (near > 0).astype(np.float64), branch.moving,
            branch.given_by, step.event, self.log.events,
        )  # fmt: skip
        slips = Slips(self.doubt.slips, self.doubt.T, branch.moves)
        found, empty = tighten(self.floats.ground, self.ascent.model, node, slips, self.floats.no_facets)
        for rows in found:
            step.rows.append(LoggedRows(self.log.add(rows.own.needs_count, rows.own.needs), *rows))
        if empty >= 0:
            self.doubt.empty(regions.lo[at, empty], regions.hi[at, empty], branch.given_by, empty)
            branch.node.closers += [int(e) for e in branch.given_by[2 * empty : 2 * empty + 2] if e >= 0]
        return bool(empty >= 0)

    def _where(self, branch: Branch) -> int:
        """The neuron to split at a node that the search did not; -1: there is none."""
        if branch.better is not None:
            neuron = branch.better.split
            if neuron < 0 or branch.phase[neuron] == 0:  # what a program wants split, it may also have fixed
                return neuron
        # rounds ended while they helped, so that nothing better was looked for
        n, m = self.log.neurons, len(self.clause.d)
        own = [*branch.plan.owns, Halfspace(np.full(n, 0.5), np.zeros(n), np.full(m, 1.0 / m))][0]
        regions = regions_of(branch.lo[None], branch.hi[None], branch.phase[None])
        return self.ascent.improved(self.clause, regions, own._replace(facets=None), STEPS).split

    def _children(self, branch: Branch) -> list[Branch]:
        """Split a node that is not closed, where the search did or where it promises most; on first."""
        plan, lost = branch.plan, {} if branch.plan.children is not None else lost_by(branch)
        if plan.children is not None:
            neuron = plan.neuron
        else:
            neuron = worst_of(list(lost), branch) if lost else self._where(branch)
        if neuron < 0:
            raise Unproved("a linear piece is not closed by its own multipliers: rounding is as large as the margin")
        if branch.phase[neuron] != 0:  # fixed here before the search split it: nothing is on its other side
            return [self._below(branch, branch.node, 1 if branch.phase[neuron] > 0 else -1)]
        branch.node.neuron = neuron
        parts = []
        for phase in (1, -1):
            event = self.log.add(np.zeros(1, np.int64), np.zeros(0, np.int64))
            node = Node()
            branch.node.children.append(node)
            branch.node.splits.append(event)
            part = self._below(branch, node, phase, lost.get(neuron))
            part.phase[neuron] = phase
            part.given_by[2 * neuron + (phase < 0)] = event
            if phase > 0:
                part.lo[neuron] = max(part.lo[neuron], 0.0)
            else:
                part.hi[neuron] = min(part.hi[neuron], 0.0)
            if part.lo[neuron] > part.hi[neuron]:
                self.doubt.empty(part.lo[neuron], part.hi[neuron], part.given_by, neuron)
                node.closers += [int(e) for e in part.given_by[2 * neuron : 2 * neuron + 2] if e >= 0]
            else:
                parts.append(part)
        return parts

    def _below(self, branch: Branch, node: Node, phase: int, lost: tuple[float, Halfspace] | None = None) -> Branch:
        """What the search did with the child of a branch on one side, as a branch of its own; `lost`: the search did
        not split the neuron, but fixed it on this side, by this halfspace."""
        known = self.forest.plans.get((branch.plan.children or (-1, -1))[0 if phase > 0 else 1])
        plan, goals = known, goals_of(known or Plan(), self.setting.r, branch.own)
        if plan is None:  # what the search did not split is split with its last halfspace
            plan = Plan(owns=branch.plan.owns)
        if lost is not None:
            side, own = lost
            plan = Plan(branch.plan.owns, stages=branch.plan.stages) if side == phase else Plan([own])
            goals = goals_of(plan, self.setting.r, own)
        return Branch(
            node, plan, branch.lo.copy(), branch.hi.copy(), branch.phase.copy(), branch.given_by.copy(), branch.rows,
            goals, moving=branch.moving,
        )  # fmt: skip


def worst_of(neurons: list[int], branch: Branch) -> int:
    """The neuron whose upper line loses most by the parameters that were found last."""
    known = None if branch.better is None else branch.better.state
    weight = np.ones(len(branch.lo)) if known is None else np.abs(known[COEF])
    height = -weight * branch.lo * branch.hi / (branch.hi - branch.lo)
    return max(neurons, key=lambda i: float(height[i]))


def line_of(regions: Any, at: int) -> Any:
    """The region of one node, as views."""
    return type(regions)(*(part[at : at + 1] for part in regions))
