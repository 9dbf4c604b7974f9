"""Searches that are stopped and taken up again: the same answer, and files that belong to one question."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import layercert as lc
from helpers import tiny
from helpers.brute import brute_force
from helpers.networks import random_question
from layercert import shipped
from layercert.norms import Norm
from layercert.problem import robustness
from layercert.programs.stacks import make_chain
from layercert.run import How, closest
from layercert.search.adaptive.model import ALPHA, BETA, HI, LO, PHASE
from layercert.search.adaptive.node import Packing, bound_of
from layercert.search.adaptive.search import suited
from layercert.search.adaptive.tree import Ball
from layercert.search.saved import Keeper, Saved
from layercert.search.task import Task
from layercert.system import clock

NET = lc.load(shipped.path("mnist10_plain_2x20"))
X = np.load(shipped.path("digits10"))["X"]


def ball_of() -> Ball:
    """A ball with open nodes: the roots and a few rounds."""
    net, x = random_question(8, 3)
    problem = robustness(net, x, "l1")
    ball = Ball(Task(problem, make_chain("default", problem.norm), 6.0), suited(net), None, 6.0)
    with clock.until(None, looks=3000), pytest.raises(clock.OutOfTime):
        for _ in ball.run():
            clock.check()
    return ball


def test_a_packed_node_is_the_same_node_with_bounds_rounded_outwards() -> None:
    ball = ball_of()
    packing = Packing.of(ball.root)
    nodes = [node for node in ball.frontier._queue.items() if not isinstance(node, tuple)]
    assert len(nodes) > 3
    for n, node in enumerate(nodes):
        node.programmed, node.cheap = n % 2 == 1, n % 4 > 1
        again = packing.unpack(packing.pack(node), 7)
        assert (again.clause, again.bound, again.radius, again.programmed, again.cheap) == (
            node.clause, node.bound, node.radius, node.programmed, node.cheap
        )  # fmt: skip
        assert again.number == 7 and again.stale and np.array_equal(again.weights, node.weights)
        assert np.array_equal(again.state[PHASE], node.state[PHASE]) and np.array_equal(again.open, node.open)
        opened = node.open
        assert (again.state[LO, opened] <= node.state[LO, opened]).all()
        assert (again.state[HI, opened] >= node.state[HI, opened]).all()
        assert np.allclose(again.state[LO : HI + 1, opened], node.state[LO : HI + 1, opened], rtol=1e-6)
        assert np.allclose(again.state[ALPHA, opened], node.state[ALPHA, opened], atol=1e-7)
        assert np.allclose(again.state[BETA], node.state[BETA], rtol=1e-6)
        on = node.state[LO] >= 0
        assert np.array_equal(again.state[LO] >= 0, on)
        assert bound_of(packing.pack(node)) == node.bound
        assert len(packing.pack(node)) < node.state.nbytes / 2


def test_packed_nodes_of_numbers_beyond_float32_still_lead_to_the_answer() -> None:
    """Pre-activations of 1e42: as float32 their bounds are infinite, and those of the root stand in for them."""
    rng, huge = np.random.default_rng(3), 2.0**140
    W = [rng.normal(size=size) for size in ((8, 4), (8, 8), (3, 8))]
    b = [0.5 * rng.normal(size=n) for n in (8, 8, 3)]
    x = rng.uniform(-1, 1, 4)
    net = lc.Network.from_arrays([W[0] * huge, W[1], W[2] / huge], [b[0] * huge, b[1] * huge, b[2]])
    plain = lc.measure(net, x, "linf", method="adaptive", domain=(x - 3, x + 3))
    packed = lc.measure(net, x, "linf", method="adaptive", domain=(x - 3, x + 3), memory=3000, time_limit=60)
    assert plain.status == packed.status == "exact"
    assert packed.upper == pytest.approx(plain.upper, rel=2e-6)


def test_a_node_closed_by_what_is_no_number_proves_nothing() -> None:
    problem = robustness(*random_question(8, 1))
    ball = Ball(Task(problem, make_chain("default", problem.norm), 1.0), suited(problem.network), None, 1.0)
    ball._push_roots()
    node = ball.frontier.take()
    assert node is not None
    node.bound = math.nan
    ball.frontier.replace(node, [], [node])
    assert ball.frontier.least == ball.frontier.closed_bound == -math.inf


def test_a_packed_node_of_another_tree_is_refused() -> None:
    ball = ball_of()
    blob = ball.frontier.numbered()[0][1]
    packing = Packing.of(ball.root)
    assert packing.unpack(blob, 0).packed == blob
    # as many neurons, but others: what a node says of one would be taken for what it says of another
    wider = np.pad(ball.root, ((0, 0), (1, 0)))
    for other in (Packing(ball.root, np.arange(3)), Packing(wider, packing.free + 1)):
        with pytest.raises(lc.LayerCertError, match=r"open nodes are of another tree: .*; go on there, or begin anew"):
            other.unpack(blob, 0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_a_search_that_is_stopped_again_and_again_finds_the_same_distance(
    p: float, threads: int, tmp_path: Path
) -> None:
    for seed in (9, 11):
        problem = replace(tiny.generic(seed), norm=Norm(p), radius=math.inf)
        true, _ = brute_force(problem)
        assert math.isfinite(true)
        how = How("adaptive", save=tmp_path / f"{seed}.search", threads=threads)
        for looks in (3, 8, 20, 45, 90, 180, math.inf):
            with clock.until(None, looks=looks):
                result = closest(problem, how)
            assert result.lower <= true * (1 + 1e-9) and result.upper >= true * (1 - 1e-9)
        assert result.status == "exact" and result.upper == pytest.approx(true, rel=1e-6)
        once_more = closest(problem, how)
        assert once_more.status == "exact" and once_more.upper == result.upper and once_more.programs == 0


@pytest.mark.parametrize(("inputs", "seed", "norm", "weighted"), [(8, 3, "l1", False), (6, 2, "linf", True)])
def test_slices_of_time_end_with_the_answer_of_one_run(
    inputs: int, seed: int, norm: str, weighted: bool, tmp_path: Path
) -> None:
    """Also in scaled coordinates, with weights."""
    net, x = random_question(inputs, seed)
    asked = {"norm": norm, "method": "adaptive", "weights": np.linspace(0.5, 2.0, inputs) if weighted else None}
    whole = lc.measure(net, x, **asked)  # type: ignore[arg-type]
    slices, sizes, lower = 0, [], 0.0
    while True:
        with clock.until(None, looks=1200):
            part = lc.measure(net, x, **asked, save=tmp_path / "a.search")  # type: ignore[arg-type]
        assert part.lower >= lower * (1 - 1e-12)
        lower, slices = part.lower, slices + 1
        tree = Saved.from_bytes((tmp_path / "a.search").read_bytes()).tree
        sizes.append(0 if tree is None else len(tree.nodes))
        if part.status == "exact" or slices > 300:
            break
    assert part.status == whole.status == "exact" and slices > 2 and max(sizes) > 2
    assert part.upper == pytest.approx(whole.upper, rel=2e-6) and part.lower == pytest.approx(whole.lower, rel=2e-6)


def test_a_search_that_was_taken_up_has_a_certificate(tmp_path: Path) -> None:
    net, x = random_question(6, 2)
    asked = {"norm": "linf", "method": "adaptive", "save": tmp_path / "a.search"}
    with clock.until(None, looks=1200):
        assert lc.measure(net, x, **asked).status == "undecided"  # type: ignore[arg-type]
    result = lc.measure(net, x, **asked, certificate=True)  # type: ignore[arg-type]
    assert result.status == "exact" and result.certificate is not None and lc.check(net, result.certificate).ok


def test_verifying_goes_on_too(tmp_path: Path) -> None:
    net, x = random_question(6, 4)
    exact = lc.measure(net, x, "l1", method="adaptive").upper
    for factor, status in ((0.99, "robust"), (1.01, "not_robust")):
        for _ in range(200):
            with clock.until(None, looks=1200):
                result = lc.verify(net, x, factor * exact, "l1", method="adaptive", save=tmp_path / f"{status}.search")
            if result.status != "undecided":
                break
        assert result.status == status


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"x": X[1]}, "input"),
        ({"norm": "l2"}, "norm"),
        ({"domain": (0, 1.5)}, "domain"),
        ({"radius": 0.3}, "radius"),
        ({"gap": 0.1}, "gap"),
        ({"target": 3}, "classes"),
        ({"weights": np.full(784, 2.0)}, "norm, weights"),
        ({"network": None}, "network"),
    ],
)
def test_a_file_belongs_to_one_question(change: dict, differs: str, tmp_path: Path) -> None:  # type: ignore[type-arg]
    asked = {"network": NET, "x": X[0], "norm": "linf", "domain": (0, 1), "save": tmp_path / "a.search"}
    lc.measure(**asked, time_limit=1e-3)
    if differs == "network":
        weights = [W.copy() for W in NET.weights]
        weights[0][0, 0] += 1.0
        change = {"network": lc.Network.from_arrays(weights, list(NET.biases))}
    with pytest.raises(lc.LayerCertError, match=f"is about another question: its .*{differs}"):
        lc.measure(**{**asked, **change})


def test_other_commands_threads_and_limits_matter_where_they_should(tmp_path: Path) -> None:
    file = tmp_path / "a.search"
    lc.measure(NET, X[0], domain=(0, 1), radius=0.5, time_limit=1e-3, save=file)
    with pytest.raises(lc.LayerCertError, match="about another question: its command differs; give the same command"):
        lc.verify(NET, X[0], 0.5, domain=(0, 1), save=file)
    assert lc.measure(NET, X[0], domain=(0, 1), radius=0.5, threads=2, memory=10**6, save=file).status == "exact"


def test_damaged_files_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.search"
    net, x = random_question(8, 3)
    with clock.until(None, looks=3000):
        lc.measure(net, x, "l1", save=file)
    good = file.read_bytes()
    assert Saved.from_bytes(good).tree is not None
    for bad in (b"", b"PK", good[:100], good[:-30], good.replace(b"format", b"formed", 1)):
        file.write_bytes(bad)
        with pytest.raises(lc.LayerCertError, match=r"cannot be read as a saved search .*; delete it to begin anew"):
            lc.measure(net, x, "l1", save=file)
    monkeypatch.setattr("layercert.search.saved.FORMAT", 4)
    file.write_bytes(good)
    with pytest.raises(lc.LayerCertError, match="has format 3, this version writes format 4; go on with the version"):
        lc.measure(net, x, "l1", save=file)
    with pytest.raises(lc.LayerCertError, match="no folder"):
        lc.measure(NET, X[0], domain=(0, 1), save=tmp_path / "nowhere" / "a.search")


def test_a_changed_bound_is_noticed_whatever_the_file_is_packed_in() -> None:
    """The checksum is over the bounds too, not over the arrays alone."""
    saved = Saved({"network": "a"}, lower=0.25)
    with np.load(io.BytesIO(saved.to_bytes())) as file:
        arrays = dict(file)
    head = json.loads(arrays["head"].tobytes())
    for name, value in (("lower", (0.5).hex()), ("question", {"network": "b"}), ("nearest", (0.5).hex())):
        arrays["head"] = np.frombuffer(json.dumps({**head, name: value}).encode(), np.uint8)
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **arrays)
        with pytest.raises(lc.LayerCertError, match="its checksum is another one"):
            Saved.from_bytes(packed.getvalue())


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    file = tmp_path / "a.search"
    with pytest.raises(lc.LayerCertError, match="a search by mip cannot be saved, only one by adaptive"):
        lc.measure(NET, X[0], domain=(0, 1), method="mip", save=file)
    with pytest.raises(lc.LayerCertError, match="whole numbers or alternatives can neither be saved"):
        lc.measure(NET, np.round(X[0]), domain=(0, 1), integer=[0], save=file)


def test_halves_of_killed_processes_are_removed(tmp_path: Path) -> None:
    left, own, other = (tmp_path / name for name in ("a.search.999999999.part", f"a.search.{os.getpid()}.part", "b"))
    for path in (left, own, other):
        path.write_bytes(b"half")
    Keeper(tmp_path / "a.search", {"network": "n"})
    assert not left.exists() and own.exists() and other.exists()


def test_saving_takes_a_small_part_of_the_time(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "a.search", {"network": "n"})
    assert not keeper.due

    def slow() -> Saved:
        time.sleep(0.05)
        return Saved({"network": "n"})

    keeper.pause = 0.0
    keeper.write(slow)
    assert keeper._next - time.monotonic() > 0.05 / 0.03 - 0.5


def test_kill_9_costs_no_more_than_an_interval(tmp_path: Path) -> None:
    """A process that saves all the time is killed at random; the same command ends with the answer of one run."""
    net, x = random_question(8, 1)
    whole = lc.measure(net, x, "l2", method="adaptive")
    code = (
        "import sys\n"
        "import layercert as lc\n"
        "from helpers.networks import random_question\n"
        "from layercert.search import saved\n"
        "saved.SHARE, saved.PAUSE = 1.0, 0.0\n"
        "net, x = random_question(8, 1)\n"
        "print('begin', flush=True)\n"
        "r = lc.measure(net, x, 'l2', method='adaptive', save=sys.argv[1],\n"
        "    watch=lambda run, _: print(run.lower, flush=True))\n"
        "print(r.status, r.upper.hex(), flush=True)\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "a.search")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    rng = np.random.default_rng(5)
    for _ in range(3):
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None and process.stdout.readline() == "begin\n"
            for _ in range(int(rng.integers(20, 45))):  # bounds, and witnesses
                process.stdout.readline()
            time.sleep(float(rng.uniform(0.0, 0.05)))
            os.kill(process.pid, signal.SIGKILL)
        left = Saved.from_bytes((tmp_path / "a.search").read_bytes())
        assert left.lower <= whole.upper
    assert left.tree is not None and left.tree.made > 50
    last = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, env=environment, check=True).stdout
    status, upper = last.splitlines()[-1].split()
    assert status == "exact" and float.fromhex(upper) == pytest.approx(whole.upper, rel=2e-6)
