"""The commands behind the command line: load, run, print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layercert import shipped
from layercert.batch.plan import memory_bytes
from layercert.cli.files import check_folder
from layercert.cli.live import Live
from layercert.cli.questions import question
from layercert.cli.rows import ResultTable
from layercert.errors import InputError, OptionError
from layercert.io import load
from layercert.io.datasets import Dataset, load_dataset
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.result import Result, Status
from layercert.run import GAP, How, closest, decide
from layercert.system.threads import cores

Ask = Callable[[Problem, How], Result]


def run_measure(args: argparse.Namespace) -> int:
    return _run(args, closest)


def run_verify(args: argparse.Namespace) -> int:
    return _run(args, decide)


def _run(args: argparse.Namespace, ask: Ask) -> int:
    # everything that can be wrong with the request is found before the first search starts
    Norm.of(args.norm)
    how = asked(args)
    network = load(shipped.path(args.model), args.threshold)
    if network.input_range is not None and args.domain is None and not args.quiet:
        low, high = network.input_range
        print(
            f"note: the model clips its input to {low:g}..{high:g}; add --domain {low:g} {high:g} to stay within it",
            file=sys.stderr,
        )
    data = read_data(args, args.input).arranged_for(network)
    if data.columns:
        network = replace(network, input_names=data.columns)
    ask_for = question(args)
    problems = [_problem(args, network, data, i, ask_for) for i in range(len(data))]
    if args.certificate is not None:
        _check_path(args.certificate, len(problems), "--certificate", "certificates")
    if args.save is not None:
        _check_path(args.save, len(problems), "--save", "the saved search")
    results: list[Result] = []
    table = ResultTable(data.names)
    with Live(len(problems), quiet=args.quiet or args.json) as live:
        how = replace(how, watch=live.watch)
        for position, name, problem in zip(data.index.tolist(), data.names, problems, strict=True):
            live.start(name)
            save = None if args.save is None else args.save.replace("{}", str(position))
            result = ask(problem, replace(how, save=save))
            results.append(result)
            if result.certificate is not None:
                result.certificate.save(args.certificate.replace("{}", str(position)))
            if args.json:
                named = {} if name == str(position) else {"name": name}
                print(json.dumps({"index": position, **named, **result.as_dict()}), flush=True)
            else:
                with live.hidden():
                    table.add(name, result, save)
            if result.interrupted:
                break
    table.notes()
    return _exit_code(results, expected=len(problems))


def asked(args: argparse.Namespace) -> How:
    """What the options of `measure` and `verify` say about how to answer."""
    gap = GAP if args.gap is None else args.gap
    memory = None if args.memory is None else memory_bytes(args.memory)
    certificate = args.certificate is not None
    threads = cores() if args.threads is None else args.threads
    return How(
        args.method, args.time_limit, certificate, args.stack, None, gap, threads, args.save, memory, args.scheduler
    )  # fmt: skip


def read_data(args: argparse.Namespace, name: str) -> Dataset:
    """The data of a command, with the labels, classes and positions that were asked for."""
    labels = None if args.labels is None else Path(args.labels)
    classes = None if args.classes is None else _numbers(args.classes)
    return load_dataset(shipped.path(name), args.index, labels, classes)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(f"cannot read the classes {text!r}; expected e.g. 1,7") from None


def _problem(args: argparse.Namespace, network: Network, data: Dataset, i: int, ask_for: Mapping[str, Any]) -> Problem:
    x, label = data.point(i, network), _label(args, data, i)
    try:
        return robustness(network, x, args.norm, label, args.radius, args.domain, **ask_for)
    except InputError as error:
        raise InputError(f"input {data.names[i]}: {error}") from None


def _check_path(pattern: str, count: int, option: str, what: str) -> None:
    """One file per input, in a folder that can be written: found out before any work."""
    if count > 1 and "{}" not in pattern:
        name = Path(pattern)
        raise OptionError(
            f"{option} {pattern} would be overwritten by each of the {count} inputs; "
            f"put {{}} into the name, e.g. {name.stem}-{{}}{name.suffix}"
        )
    check_folder(pattern, what)


def _label(args: argparse.Namespace, data: Dataset, i: int) -> int | None:
    if args.label is not None:
        return int(args.label)
    return None if data.y is None else int(data.y[i])


def _exit_code(results: list[Result], expected: int) -> int:
    from layercert.cli import OK, OPEN

    return OK if len(results) == expected and all(r.status != Status.UNDECIDED for r in results) else OPEN
