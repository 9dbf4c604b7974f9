"""verify and measure for VNN-LIB properties: load, run, print in the form of VNN-COMP."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from layercert import shipped
from layercert.cli.commands import asked
from layercert.cli.files import check_folder, part, remove_parts
from layercert.errors import LayerCertError, OptionError
from layercert.io import load
from layercert.result import Status
from layercert.run import deadline_of
from layercert.spec.growth import measure_spec
from layercert.spec.read import load_spec
from layercert.spec.verify import Answer, SpecResult, verify_spec
from layercert.system import clock

#: Options that belong to input points; a property file says all this itself.
_ABOUT_INPUTS = (
    "input", "index", "labels", "classes", "norm", "label", "domain", "radius", "threshold",
    "target", "weights", "fixed", "integer", "one_of",
)  # fmt: skip


def run_verify_spec(args: argparse.Namespace) -> int:
    """First line: sat, unsat, timeout, unknown or error; exit codes 0 decided, 3 undecided, 2 error."""
    return _answering(args, _verify)


def run_measure_spec(args: argparse.Namespace) -> int:
    return _answering(args, _measure)


def _answering(args: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Whatever goes wrong is an `error` on stdout, its reason on stderr: scripts read the one, people the other."""
    from layercert.cli import BAD

    try:
        for name in _ABOUT_INPUTS:
            if getattr(args, name) is not None:
                option = name.replace("_", "-")
                raise OptionError(
                    f"--{option} does not go with a property file, which states its own inputs; leave it out"
                )
        if args.save is not None:
            raise OptionError("a property's searches cannot be saved; leave --save out")
        return run(args)
    except LayerCertError as error:
        print(json.dumps({"answer": "error", "note": str(error)}) if args.json else "error", flush=True)
        print(f"layercert: error: {error}", file=sys.stderr)
        return BAD


def _verify(args: argparse.Namespace) -> int:
    from layercert.cli import OK, OPEN

    for path, what in ((args.counterexample, "the counterexample"), (args.certificate, "certificates")):
        if path is not None:
            check_folder(path, what)
    how = asked(args)
    deadline = deadline_of(args.time_limit)
    spec = load_spec(args.spec)
    network = load(shipped.path(args.model))
    result = verify_spec(
        network, spec, _left(deadline), how.method, how.certificate, how.stack, how.threads,
        memory=how.memory, scheduler=how.scheduler,
    )  # fmt: skip
    _write(args, result)
    if args.json:
        print(json.dumps(result.as_dict()), flush=True)
    else:
        print(result.answer)
        if result.counterexample is not None and args.counterexample is None:
            print(result.counterexample.text(), end="")
        sys.stdout.flush()
    if not args.quiet:
        print(f"layercert: {result}", file=sys.stderr)
    elif result.note:  # doubts about an answer are never silent
        print(f"layercert: {result.note}", file=sys.stderr)
    return OK if result.answer in (Answer.SAT, Answer.UNSAT) else OPEN


def _left(deadline: float | None) -> float | None:
    """What reading the files left of the time; something always, for a look at the middle of each box."""
    return None if deadline is None else max(deadline - clock.now(), 1e-3)


def _write(args: argparse.Namespace, result: SpecResult) -> None:
    if args.counterexample is not None and result.counterexample is not None:
        try:
            Path(args.counterexample).write_text(result.counterexample.text(), encoding="ascii")
        except OSError as error:
            reason = error.strerror or error
            raise OptionError(f"cannot write the counterexample to '{args.counterexample}': {reason}") from None
    if args.certificate is not None and result.certificates:
        for number, certificate in enumerate(result.certificates, start=1):
            certificate.save(part(args.certificate, number))
        remove_parts(args.certificate, len(result.certificates))


def _measure(args: argparse.Namespace) -> int:
    from layercert.cli import OK, OPEN

    if args.scheduler is not None:
        raise OptionError("the growth of a property's box is not measured on a cluster; leave --scheduler out")
    if args.certificate is not None:
        raise OptionError("the growth of a property's box has no certificate; certify its answer: verify --certificate")
    how = asked(args)
    deadline = deadline_of(args.time_limit)
    spec = load_spec(args.spec)
    network = load(shipped.path(args.model))
    growth = measure_spec(network, spec, _left(deadline), how.method, how.stack, how.gap, how.threads)
    print(json.dumps(growth.as_dict()) if args.json else growth, flush=True)
    return OPEN if growth.status == Status.UNDECIDED else OK
