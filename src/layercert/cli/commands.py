"""The commands behind the command line: load, run, print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from layercert import shipped
from layercert.cli.files import check_folder
from layercert.cli.live import Live
from layercert.cli.rows import Rows
from layercert.errors import InputError, OptionError
from layercert.io import load
from layercert.io.inputs import Inputs, load_inputs
from layercert.methods import method_named
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import Problem, robustness
from layercert.result import Result, Status
from layercert.run import How, closest, decide

Ask = Callable[[Problem, How], Result]


def run_measure(args: argparse.Namespace) -> int:
    return _run(args, closest)


def run_verify(args: argparse.Namespace) -> int:
    return _run(args, decide)


def _run(args: argparse.Namespace, ask: Ask) -> int:
    # everything that can be wrong with the request is found before the first search starts
    Norm.of(args.norm)
    method_named(args.method)
    network = load(shipped.path(args.model), args.threshold)
    if network.input_range is not None and args.domain is None and not args.quiet:
        low, high = network.input_range
        print(
            f"note: the model clips its input to {low:g}..{high:g}; add --domain {low:g} {high:g} to stay within it",
            file=sys.stderr,
        )
    inputs = load_inputs(shipped.path(args.input), args.index)
    problems = [_problem(args, network, inputs, i) for i in range(len(inputs.X))]
    if args.certificate is not None:
        _check_certificate_path(args.certificate, len(problems))
    results: list[Result] = []
    table = Rows(inputs.index)
    with Live(len(problems), quiet=args.quiet or args.json) as live:
        how = How(args.method, args.time_limit, args.certificate is not None, args.stack, live.watch)
        for position, problem in zip(inputs.index.tolist(), problems, strict=True):
            live.start(position)
            result = ask(problem, how)
            results.append(result)
            if result.certificate is not None:
                result.certificate.save(args.certificate.replace("{}", str(position)))
            if args.json:
                print(json.dumps({"index": position, **result.as_dict()}), flush=True)
            else:
                with live.hidden():
                    table.add(position, result)
            if result.interrupted:
                break
    table.notes()
    return _exit_code(results, expected=len(problems))


def _problem(args: argparse.Namespace, network: Network, inputs: Inputs, i: int) -> Problem:
    try:
        return robustness(network, inputs.point(i), args.norm, _label(args, inputs, i), args.radius, args.domain)
    except InputError as error:
        raise InputError(f"input {inputs.index[i]}: {error}") from None


def _check_certificate_path(pattern: str, count: int) -> None:
    """One file per input, in a folder that can be written: found out before any work."""
    if count > 1 and "{}" not in pattern:
        raise OptionError(
            f"--certificate {pattern} would be overwritten by each of the {count} inputs; "
            "put {} into the name, e.g. proof-{}.npz"
        )
    check_folder(pattern, "certificates")


def _label(args: argparse.Namespace, inputs: Inputs, i: int) -> int | None:
    if args.label is not None:
        return int(args.label)
    return None if inputs.y is None else int(inputs.y[i])


def _exit_code(results: list[Result], expected: int) -> int:
    from layercert.cli import OK, OPEN

    return OK if len(results) == expected and all(r.status != Status.UNDECIDED for r in results) else OPEN
