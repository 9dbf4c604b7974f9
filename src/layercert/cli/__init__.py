"""The command line. It parses, calls the library, and prints; it has no logic of its own."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from layercert import __version__
from layercert.cli.audit import add_audit
from layercert.cli.options import (
    METHODS,
    Commands,
    add_batch,
    add_data,
    add_explore,
    add_long,
    add_question,
    add_report,
    add_search,
    add_threshold,
    examples,
)
from layercert.cli.radiusbench import add_radiusbench
from layercert.cli.reproduce import add_reproduce
from layercert.errors import LayerCertError, OptionError

#: Exit codes: all decided; bad usage or input; something stayed undecided.
OK, BAD, OPEN = 0, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that does not fit the terminal's encoding is shown escaped
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    args = parser.parse_args(argv)
    if not hasattr(args, "run"):
        parser.print_help()
        return OK
    try:
        return int(args.run(args))
    except LayerCertError as error:
        print(f"layercert: error: {error}", file=sys.stderr)
        return BAD
    except KeyboardInterrupt:
        print("layercert: interrupted", file=sys.stderr)
        return OPEN
    except BrokenPipeError:  # the reader of a pipe went away; nothing to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="layercert",
        description="Exact distance from an input to the nearest point of another class, for ReLU networks.",
        epilog=examples(
            "layercert demo",
            "layercert measure model.onnx --input x.npy --norm l2 --domain 0 1",
            "layercert batch model.onnx --data test.npz --out run --jobs 2",
            "layercert report run",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"layercert {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    _add_measure(commands)
    _add_verify(commands)
    add_batch(commands).set_defaults(run=_run_batch)
    add_report(commands).set_defaults(run=_run_report)
    add_explore(commands).set_defaults(run=_run_explore)
    add_reproduce(commands).set_defaults(run=_run_reproduce)
    add_radiusbench(commands).set_defaults(run=_run_radiusbench)
    add_audit(commands).set_defaults(run=_run_audit)
    _add_check(commands)
    complete = commands.add_parser("completion", help="a script that completes commands and options in your shell")
    complete.add_argument("shell", help='bash, zsh or fish: eval "$(layercert completion bash)"')
    complete.set_defaults(run=lambda args: _run_completion(parser, args))
    _add_export(commands)
    _add_warmup(commands)
    _add_demo(commands)
    return parser


def _add_measure(commands: Commands) -> None:
    measure = commands.add_parser(
        "measure",
        help="exact distance to the nearest point of another class, or how far a property's box can grow",
        epilog=examples(
            "layercert measure model.onnx --input x.npy --norm l2 --domain 0 1",
            "layercert measure mnist17_l1_2x20 --input digits --index 0:3 --certificate proof-{}.npz",
            "layercert measure credit.npz --input people.csv --norm l1 --weights age=5 --fixed income --target 1",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(measure)
    measure.add_argument("--radius", type=float, help="look no farther than this; 'robust' if nothing is within it")
    measure.add_argument("--eps", help=argparse.SUPPRESS)
    measure.set_defaults(run=_run_measure)


def _add_verify(commands: Commands) -> None:
    verify = commands.add_parser(
        "verify",
        help="is every point within a radius of the same class? does a VNN-LIB property hold?",
        epilog=examples(
            "layercert verify model.onnx --input x.npy --radius 0.03 --domain 0 1",
            "layercert verify model.onnx property.vnnlib --time-limit 60",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _common(verify)
    verify.add_argument("--radius", type=float, help="the radius to verify (with --input)")
    verify.add_argument("--eps", help=argparse.SUPPRESS)
    verify.add_argument("--counterexample", metavar="FILE", help="with SPEC: write the counterexample here if sat")
    verify.set_defaults(run=_run_verify)


def _add_check(commands: Commands) -> None:
    check = commands.add_parser("check", help="re-prove a certificate, with neither search nor solver")
    check.add_argument("certificate", metavar="PROOF", help="the certificate file, or the folder of a run: all of its")
    check.add_argument(
        "model", nargs="?", help="the network it is about: .onnx, .npz, or the name of a shipped one; a run has its own"
    )
    add_data(check, "--input", required=False)
    check.add_argument("--show", metavar="FOLDER", help="write x and the witness as pictures")
    check.add_argument("--jobs", type=int, help="processes for the certificates of a run (default: one per core)")
    check.add_argument(
        "--spec", metavar="SPEC", help="does the certificate (with its files -2, -3, ..) prove this property's answer?"
    )
    add_threshold(check)
    check.add_argument("--exact", action="store_true", help="in ball arithmetic (slow; needs the extra 'exact')")
    check.set_defaults(run=_run_check)


def _add_export(commands: Commands) -> None:
    export = commands.add_parser("export", help="a model as plain arrays, for the stand-alone checker")
    export.add_argument("model", help="a .onnx or .npz network, or the name of a shipped one")
    export.add_argument("network", metavar="NETWORK.npz", help="the file to write")
    add_threshold(export)
    export.set_defaults(run=_run_export)


def _add_warmup(commands: Commands) -> None:
    warm = commands.add_parser("warmup", help="compile every kernel now, on all cores, so that nothing waits later")
    warm.add_argument("--jobs", type=int, help="processes (default: one per core)")
    warm.add_argument("--quiet", action="store_true", help="no progress line")
    warm.set_defaults(run=_run_warmup)


def _add_demo(commands: Commands) -> None:
    demo = commands.add_parser("demo", help="measure ten shipped digits on a shipped network, with a report")
    demo.add_argument("--inputs", type=int, default=10, help="how many of the 100 digits (default 10)")
    demo.add_argument("--out", default="demo-report", help="folder for the report (default demo-report)")
    demo.set_defaults(run=_run_demo)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a .onnx or .npz network, or the name of a shipped one: mnist17_l1_2x20, ..")
    parser.add_argument("spec", nargs="?", metavar="SPEC", help="a property in VNN-LIB 1.0 or 2.0 (instead of --input)")
    add_data(parser, "--input", required=False)
    parser.add_argument("--norm", metavar="NORM", help="l1, l2, linf or a number p >= 1 (default linf)")
    parser.add_argument("--label", type=int, help="the true class (default: y of the file, else the network's own)")
    add_threshold(parser)
    add_question(parser)
    parser.add_argument(
        "--domain", nargs=2, type=float, metavar=("LOW", "HIGH"), help="allowed range of every input, e.g. 0 1"
    )
    parser.add_argument(
        "--method",
        metavar="METHOD",
        help=f"search method (default auto: input-split for few inputs, else adaptive): {', '.join(METHODS)}",
    )
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="for each input (default: none)")
    add_search(parser)
    add_long(parser)
    parser.add_argument(
        "--certificate", metavar="FILE", help="write the proof here ('{}' stands for the input's number)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _run_check(args: argparse.Namespace) -> int:
    from layercert.cli.check import run_check

    return run_check(args)


def _run_export(args: argparse.Namespace) -> int:
    from layercert.cli.check import run_export

    return run_export(args)


# The commands live in their own module, imported only when one of them runs: --help must not wait for numpy.


def _run_measure(args: argparse.Namespace) -> int:
    if args.spec is not None:
        from layercert.cli.properties import run_measure_spec

        return run_measure_spec(args)
    from layercert.cli.commands import run_measure

    return run_measure(_about_inputs(args, "measure"))


def _run_verify(args: argparse.Namespace) -> int:
    if args.spec is not None:
        from layercert.cli.properties import run_verify_spec

        return run_verify_spec(args)
    from layercert.cli.commands import run_verify

    if args.counterexample is not None:
        raise OptionError("--counterexample belongs to a property file: layercert verify MODEL SPEC.vnnlib")
    if args.radius is None and args.input is not None:
        raise OptionError("verify needs --radius R with --input; to find the largest robust radius use measure")
    return run_verify(_about_inputs(args, "verify"))


def _about_inputs(args: argparse.Namespace, command: str) -> argparse.Namespace:
    """The request with its defaults filled in, for a question about input points."""
    if args.eps is not None:
        raise OptionError(f"--eps belongs to batch; here it is --radius {args.eps}")
    if args.input is None:
        raise OptionError(f"{command} needs --input FILE with points, or a property file: {command} MODEL SPEC.vnnlib")
    args.norm = "linf" if args.norm is None else args.norm
    return args


def _run_batch(args: argparse.Namespace) -> int:
    from layercert.cli.batch import run

    return run(args)


def _run_report(args: argparse.Namespace) -> int:
    from layercert.cli.report import run

    return run(args)


def _run_explore(args: argparse.Namespace) -> int:
    from layercert.cli.explore import run

    return run(args)


def _run_reproduce(args: argparse.Namespace) -> int:
    from layercert.cli.reproduce import run

    return run(args)


def _run_radiusbench(args: argparse.Namespace) -> int:
    from layercert.cli.radiusbench import run

    return run(args)


def _run_audit(args: argparse.Namespace) -> int:
    from layercert.cli.audit import run

    return run(args)


def _run_completion(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    from layercert.cli.completion import script

    print(script(parser, args.shell), end="")
    return OK


def _run_warmup(args: argparse.Namespace) -> int:
    from layercert.cli.warmup import run

    return run(args)


def _run_demo(args: argparse.Namespace) -> int:
    from layercert.cli.demo import run_demo

    return run_demo(args)
