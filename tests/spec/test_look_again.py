"""Looks for counterexamples during the search: from starts with diverse outputs, now and then."""

from __future__ import annotations

import numpy as np
import pytest

import layercert as lc
from helpers.properties import simple_text
from layercert.attack import attack as attack_module
from layercert.attack.attack import attack
from layercert.network import Network
from layercert.spec import falsify as falsify_module
from layercert.spec import verify as verify_module
from layercert.spec.falsify import falsify, look_again
from layercert.spec.problems import problem_of
from layercert.spec.read import parse_spec

# Of 30 inputs only the mean u counts. The first output, 1 + u/2 - 100 relu(u - 0.98), is negative near u = 1 alone, and
# elsewhere its gradient leads away from there; the second output is u.
INPUTS = 30
MEAN = np.full((2, INPUTS), 1.0 / INPUTS)
TRAP = Network.from_arrays([MEAN, [[0.5, -100.0], [1.0, 0.0]]], [[1.0, -0.98], [0.5, -1.0]])
SPEC = parse_spec(simple_text([("-1", "1")] * INPUTS, 2, "(<= Y_0 0)"))


def test_diverse_starts_leave_a_valley() -> None:
    problem = problem_of(SPEC.cases[0], TRAP)
    assert falsify(problem) is None
    point = look_again(problem, 0)
    assert point is not None and problem.is_unsafe(point)


def test_nothing_is_made_up() -> None:
    spec = parse_spec(simple_text([("-1", "0.9")] * INPUTS, 2, "(<= Y_0 0)"))
    assert look_again(problem_of(spec.cases[0], TRAP), 0) is None


def test_a_search_is_interrupted_for_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time between looks the first one decides, though the look before the search saw nothing."""
    turns: list[int] = []

    def told(problem: lc.Problem, turn: int) -> np.ndarray | None:
        turns.append(turn)
        return look_again(problem, turn) if turn == 1 else None

    monkeypatch.setattr(verify_module, "falsify", lambda problem, share: None)
    monkeypatch.setattr(verify_module, "look_again", told)
    monkeypatch.setattr(verify_module, "LOOK", 0.0)
    monkeypatch.setattr(verify_module.Session, "advance", lambda session, until=None: False)  # a search without an end
    result = lc.verify_spec(TRAP, SPEC, 60.0)
    assert result.answer == "sat" and turns == [0, 1]


def test_huge_networks_are_not_looked_at_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step costs too much there is no second look, and the attack for any witness has fewer steps."""
    problem = problem_of(SPEC.cases[0], TRAP)
    monkeypatch.setattr(falsify_module, "SPARSE_COST", 1e9)
    monkeypatch.setattr(falsify_module, "DIVERSE", 1.0)
    assert look_again(problem, 0) is None
    steps: list[tuple[int, int]] = []
    from layercert.attack import kernel

    run = kernel.run

    def counted(*args: object) -> object:
        steps.append((args[2], args[3]))  # type: ignore[arg-type]
        return run(*args)

    monkeypatch.setattr(kernel, "run", counted)
    attack(problem, 0.5)
    attack(problem, 0.5, nearest=False)
    monkeypatch.setattr(attack_module, "MULTIPLICATIONS", 1.0)
    attack(problem, 0.5, nearest=False)
    assert steps == [(attack_module.STEPS, 4), (attack_module.STEPS, 4), (attack_module.FEWEST_STEPS, 0)]
