"""What a certificate needs to know of a search: the splits, the parameters of every node, those of its rows.

A recorder replays the search in the checker's own arithmetic. All parameters are suggestions to it: any values in range
are sound, so it does not matter in which pass they were used, only that passes with them bound about as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from layercert.arrays import Indices, Mask, Vector
from layercert.problem import Clause


class Halfspace(NamedTuple):
    """The parameters of a node's halfspace: alpha and beta over all neurons, the weights of the clause's rows."""

    alpha: Vector
    beta: Vector
    weights: Vector


class RowParameters(NamedTuple):
    """The parameters of backward passes that bound neurons of one layer; one row per pass.

    Columns are the neurons of all layers below, in the order of the state. Matrices may be of any float type, dense or
    scipy's compressed rows (what is not stored is 0). A beta is signed with the phase that it belongs to: +b counts
    where the neuron is on, -b where it is off, and neither where its side is open.
    """

    neurons: Indices  # counted over all layers
    lower: Mask  # True: the pass bounds the neuron from below, False: from above
    slopes: Any  # rows x neurons below, in [0, 1]
    betas: Any  # rows x neurons below, signed
    pulls: Vector  # multipliers >= 0 of the objective


class Recorder(Protocol):
    """Told of every step of the proof. Node ids are counted up from 0 in each ball; a root comes before its subtree.

    Every node that is bounded is then announced by exactly one of `wait`, `close` and, later, `split`. Arrays are
    copied by the recorder before it returns: views of what a kernel will overwrite are welcome.
    """

    def ball(self, radius: float) -> None:
        """A search in another ball begins, with nodes of its own. What was told of the ball before stays a proof."""

    def root(self, node: int, clause: Clause) -> None:
        """A tree that excludes one clause inside the ball."""

    def rows(self, node: int, rows: RowParameters) -> None:
        """Parameters of rows that bounded neurons at this node. Called before the node is announced, as often as is
        handy (for each layer once is enough); for each neuron and side the last call counts. Rows that a node does not
        mention are those of its parent.
        """

    def wait(self, node: int, own: Halfspace) -> None:
        """The node is bounded and stays open: if the search is stopped now, its halfspace proves its bound."""

    def split(self, node: int, layer: int, neuron: int, children: tuple[int, int], own: Halfspace) -> None:
        """The children have the neuron on (first) and off (second); layers and neurons are counted from 0.

        The halfspace is the node's own, which tightened the bounds that the children inherit.
        """

    def close(self, node: int, own: Halfspace) -> None:
        """Nothing nearer than the ball's radius is in the node.

        For a linear piece that was closed by its distance program, beta and the weights may be its multipliers.
        """
