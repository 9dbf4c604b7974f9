"""layercert check: re-prove a certificate and say what was proved in one sentence."""

from __future__ import annotations

import argparse
import sys

from layercert import shipped
from layercert.certificate.checker import check
from layercert.certificate.claim import load_certificate
from layercert.io import load

#: Exit code of a certificate that does not prove its claim.
NOT_PROVED = 1


def run_check(args: argparse.Namespace) -> int:
    network = load(shipped.path(args.model), args.threshold)
    if args.spec is not None:
        from layercert.cli.files import all_parts
        from layercert.spec.proofs import check_spec
        from layercert.spec.read import load_spec

        spec = load_spec(args.spec)
        # constraints that contradict each other are a proof by themselves: then there is no file
        proofs = [load_certificate(path) for path in all_parts(args.certificate)] if spec.cases else []
        report = check_spec(network, spec, proofs, args.exact)
    else:
        report = check(network, load_certificate(args.certificate), args.exact)
    print(report, file=sys.stdout if report.ok else sys.stderr)
    return 0 if report.ok else NOT_PROVED
