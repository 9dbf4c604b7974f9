"""`layercert explore`: a picture or an animation of a search in two dimensions."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from layercert import shipped
from layercert.arrays import Vector
from layercert.errors import InputError, OptionError
from layercert.explore import Plane, Scene, appendix_a, save, trace
from layercert.explore.draw import describe
from layercert.io import load
from layercert.io.datasets import load_dataset
from layercert.network import Network
from layercert.problem import robustness

Marks = list[tuple[Vector, str]]


def run(args: argparse.Namespace) -> int:
    from layercert.cli import OK, OPEN

    methods = args.method or ["geocert", "layercert-basic"]
    if len(methods) > 2:
        raise OptionError(f"one method, or two side by side; got {len(methods)}: {', '.join(methods)}")
    network, x, marks = _subject(args)
    problem = robustness(network, x, args.norm, args.label, args.radius)
    if problem.is_unsafe(problem.x):
        raise InputError("the input is misclassified or on the decision boundary to begin with: nothing to search for")
    traces = [trace(problem, method) for method in methods]
    for made in traces:
        unfinished = "" if made.finished else " (stopped after a minute)"
        print(f"{made.method}: {describe(made, made.state())}{unfinished}")
    save(traces, Scene.of(traces, marks), Path(args.out), args.steps)
    print(args.out)
    return OK if all(made.finished for made in traces) else OPEN


def _subject(args: argparse.Namespace) -> tuple[Network, Vector, Marks]:
    """The network with two inputs, the point, and other points worth a mark."""
    if args.model == "appendix-a":
        network, x = appendix_a()
        return network, x if args.at is None else _numbers(args.at, 2), []
    network = load(shipped.path(args.model), args.threshold).classifier
    if args.data is None:
        if network.inputs != 2 or args.at is None:
            raise OptionError(
                f"the network has {network.inputs} inputs: give the point of a network with two inputs with --at X,Y, "
                "or a plane through three points of a data set with --data DATA --points I,J,K"
            )
        return network, _numbers(args.at, 2), []
    if args.points is None:
        raise OptionError("a plane needs three points of the data: --points I,J,K; the search starts at the first")
    chosen = [int(i) for i in _numbers(args.points, 3)]
    data = load_dataset(shipped.path(args.data), ",".join(map(str, chosen)))
    a, b, c = (network.point(data.point(i, network), f"input {name}") for i, name in enumerate(data.names))
    plane = Plane.through(a, b, c)
    marks = [(plane.coordinates(p), f"input {name}") for p, name in zip((b, c), data.names[1:], strict=True)]
    return plane.restrict(network), np.zeros(2), marks


def _numbers(text: str, count: int) -> Vector:
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.zeros(0)
    if len(values) != count:
        raise OptionError(f"expected {count} numbers separated by commas, got {text!r}")
    return values
