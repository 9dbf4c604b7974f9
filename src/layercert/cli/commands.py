"""The commands behind the command line: load, run, print."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.table import Table

from layercert import shipped
from layercert.cli.files import check_folder
from layercert.cli.live import Live
from layercert.errors import InputError, OptionError
from layercert.io import load
from layercert.io.inputs import Inputs, load_inputs
from layercert.methods import method_named
from layercert.network import Network
from layercert.norms import Norm
from layercert.problem import robustness
from layercert.result import Result, Status, Verdict
from layercert.run import measure, verify

_COLOURS = {
    Status.EXACT: "green",
    Status.ROBUST: "cyan",
    Status.UNDECIDED: "yellow",
    Verdict.NOT_ROBUST: "red",
}

Ask = Callable[[Network, Inputs, int, Live], Result]


def run_measure(args: argparse.Namespace) -> int:
    def ask(network: Network, inputs: Inputs, i: int, live: Live) -> Result:
        return measure(
            network,
            inputs.X[i],
            args.norm,
            _label(args, inputs, i),
            args.radius,
            args.domain,
            args.method,
            args.time_limit,
            args.certificate is not None,
            stack=args.stack,
            watch=live.watch,
        )

    return _run(args, ask)


def run_verify(args: argparse.Namespace) -> int:
    def ask(network: Network, inputs: Inputs, i: int, live: Live) -> Result:
        return verify(
            network,
            inputs.X[i],
            args.radius,
            args.norm,
            _label(args, inputs, i),
            args.domain,
            args.method,
            args.time_limit,
            args.certificate is not None,
            stack=args.stack,
            watch=live.watch,
        )

    return _run(args, ask)


def _run(args: argparse.Namespace, ask: Ask) -> int:
    # everything that can be wrong with the request is found before the first search starts
    Norm.of(args.norm)
    method_named(args.method)
    network = load(shipped.path(args.model))
    if network.input_range is not None and args.domain is None and not args.quiet:
        low, high = network.input_range
        print(
            f"note: the model clips its input to {low:g}..{high:g}; add --domain {low:g} {high:g} to stay within it",
            file=sys.stderr,
        )
    inputs = load_inputs(shipped.path(args.input), args.index)
    for i, position in enumerate(inputs.index):
        try:
            robustness(network, inputs.X[i], args.norm, _label(args, inputs, i), args.radius, args.domain)
        except InputError as error:
            raise InputError(f"input {position}: {error}") from None
    if args.certificate is not None:
        _check_certificate_path(args.certificate, len(inputs.X))
    results: list[tuple[int, Result]] = []
    with Live(len(inputs.X), quiet=args.quiet or args.json) as live:
        for i, position in enumerate(inputs.index):
            live.start(int(position))
            result = ask(network, inputs, i, live)
            results.append((int(position), result))
            if result.certificate is not None:
                result.certificate.save(args.certificate.replace("{}", str(position)))
            if args.json:
                print(json.dumps({"index": int(position), **result.as_dict()}), flush=True)
            if result.interrupted:
                break
    if not args.json:
        _print_table(results)
    return _exit_code((r for _, r in results), expected=len(inputs.X))


def _check_certificate_path(pattern: str, count: int) -> None:
    """One file an input, in a folder that can be written: found out before any work."""
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


def _exit_code(results: Iterable[Result], expected: int) -> int:
    from layercert.cli import OK, OPEN

    done = list(results)
    return OK if len(done) == expected and all(r.status != Status.UNDECIDED for r in done) else OPEN


def _print_table(results: list[tuple[int, Result]]) -> None:
    """One row an input; notes below, so that the table stays narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("input", "label", "nearest", "status", "lower", "upper", "programs", "seconds"):
        table.add_column(heading, justify="left" if heading == "status" else "right")

    def name(k: int | None) -> str:
        return "-" if k is None else str(k)

    for position, r in results:
        colour = _COLOURS.get(r.status, "white")
        table.add_row(
            str(position),
            name(r.label),
            name(r.target),
            f"[{colour}]{str(r.status).replace('_', ' ')}[/]",
            _number(r.lower),
            _number(r.upper),
            str(r.programs),
            f"{r.seconds:.3f}",
        )
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)
    for position, r in results:
        if r.note:
            console.print(f"input {position}: {r.note}", highlight=False)


def _number(value: float) -> str:
    return "inf" if math.isinf(value) else f"{value:.7g}"
