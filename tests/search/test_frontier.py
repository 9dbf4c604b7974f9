"""Open nodes are never lost, wherever Ctrl-C comes in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from layercert.search.adaptive import frontier as module
from layercert.search.adaptive.frontier import Frontier
from layercert.search.adaptive.model import HI, LO, ROWS
from layercert.search.adaptive.node import Node, Packing


def root() -> np.ndarray:
    state = np.zeros((ROWS, 3))
    state[LO], state[HI] = -1.0, 1.0
    return state


def node(frontier: Frontier) -> Node:
    number = frontier.number()
    return Node(number, 0, 0.1 * number, root(), np.ones(1), 1.0)


def made(memory: int | None) -> Frontier:
    """Five nodes that wait, as they are or packed, or last in first out where memory is short."""
    frontier = Frontier(Packing.of(root()), 1, memory)
    for _ in range(5):
        frontier.push(node(frontier))
    return frontier


def interrupted(line: int, call: Callable[[], Any]) -> bool:
    """Call with a KeyboardInterrupt before so many lines of the frontier's own; False: there are not so many."""
    left = [line]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def numbers(frontier: Frontier) -> set[int]:
    return {number for number, _ in frontier.numbered()}


@pytest.mark.parametrize("memory", [None, 1500, 10])
class TestCtrlC:
    def test_while_a_node_is_taken(self, memory: int | None) -> None:
        line, going = 0, True
        while going:
            frontier = made(memory)
            going = interrupted(line, frontier.take)
            assert numbers(frontier) == set(range(5))
            line += 1
        assert line > 5

    def test_while_its_place_is_taken(self, memory: int | None) -> None:
        line, going = 0, True
        while going:
            frontier = made(memory)
            taken = frontier.take()
            assert taken is not None
            parts = [node(frontier), node(frontier)]
            going = interrupted(line, lambda f=frontier, t=taken, p=parts: f.replace(t, p[:1], p[1:]))  # type: ignore[misc]
            left = numbers(frontier)
            assert left >= set(range(5)) - {taken.number}
            assert taken.number in left or (parts[0].number in left and frontier.closed_bound == parts[1].bound)
            line += 1
        assert line > 5

    def test_while_it_is_given_back(self, memory: int | None) -> None:
        line, going = 0, True
        while going:
            frontier = made(memory)
            taken = frontier.take()
            assert taken is not None
            going = interrupted(line, lambda f=frontier, t=taken: f.give_back([t.number]))  # type: ignore[misc]
            assert numbers(frontier) == set(range(5))
            line += 1
        assert line > 2
