"""layercert check: re-prove a certificate and say what was proved in one sentence; or all certificates of a run.

Exit codes: 0 proved, 1 not proved (or not about this input), 2 a file cannot be read or the request makes no sense.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from layercert import shipped
from layercert.certificate.checker import Report, check
from layercert.certificate.claim import Certificate, load_certificate
from layercert.certificate.whole import WholeCertificate
from layercert.errors import OptionError
from layercert.io import load
from layercert.network import Network

#: Exit code of a certificate that does not prove its claim.
NOT_PROVED = 1


def run_check(args: argparse.Namespace) -> int:
    if Path(args.certificate).is_dir():
        return _check_run(args)
    if args.spec is None and not Path(args.certificate).exists():  # a contradiction of a property needs no file
        raise OptionError(f"expected a certificate or a run's folder, got {args.certificate}, which does not exist")
    if args.model is None:
        raise OptionError(f"check needs a model: layercert check {args.certificate} MODEL (only a run has its own)")
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
        proof = load_certificate(args.certificate)
        report = check(network, proof, args.exact)
        claim = proof.claim if isinstance(proof, WholeCertificate) else proof
        if report.ok and args.input is not None:
            report = _about_input(report, claim, network, args)
        if args.show is not None:
            _show(claim, network, Path(args.show))
    print(report, file=sys.stdout if report.ok else sys.stderr)
    return 0 if report.ok else NOT_PROVED


def _about_input(report: Report, claim: Certificate, network: Network, args: argparse.Namespace) -> Report:
    """Is x the input that the reviewer means, number by number?"""
    from layercert.cli.commands import read_data

    data = read_data(args, args.input).arranged_for(network)
    if len(data) != 1:
        raise OptionError(f"--input has {len(data)} points; name the one that the certificate is about with --index")
    x = network.point(data.X[0])
    if np.array_equal(x, claim.x):
        return replace(report, sentence=f"{report.sentence} x is input {data.index[0]} of {args.input}.")
    far = float(np.abs(x - claim.x).max())
    reason = f"the certificate is about another input: x differs from input {data.index[0]} by up to {far:.3g}"
    return replace(report, ok=False, lower=0.0, reason=reason)


def _show(claim: Certificate, network: Network, folder: Path) -> None:
    """x, the witness and their difference as pictures."""
    from layercert.pictures import difference, picture, png

    folder.mkdir(parents=True, exist_ok=True)
    side = math.isqrt(len(claim.x))
    shape = network.image_shape or ((side, side) if side * side == len(claim.x) and side > 1 else None)
    shape = shape if shape is not None and len(shape) in (2, 3) else None
    low, high = (float(f(claim.x)) for f in (np.min, np.max))
    if claim.domain is not None and all(np.isfinite(end).all() for end in claim.domain):
        low, high = float(claim.domain[0].min()), float(claim.domain[1].max())
    files = {"x.png": picture(claim.x, shape, low, high)}
    if claim.witness is not None:
        files["witness.png"] = picture(claim.witness, shape, low, high)
        files["difference.png"] = difference(claim.x, claim.witness, shape)
    for name, pixels in files.items():
        (folder / name).write_bytes(png(pixels))
    print(f"{', '.join(files)} in {folder}")


def _check_run(args: argparse.Namespace) -> int:
    """All certificates of a run, against its own networks and inputs."""
    from layercert.batch.checking import check_run, without

    unwanted = [name for name in ("model", "spec", "input", "show") if getattr(args, name) is not None]
    if unwanted:
        raise OptionError(f"a run is checked with its own networks and inputs; leave out: {', '.join(unwanted)}")
    proved, size, seconds, failed = 0, 0, 0.0, 0
    for checked in check_run(Path(args.certificate), args.exact, args.jobs):
        proved, failed = proved + checked.ok, failed + (not checked.ok)
        size, seconds = size + checked.bytes, seconds + checked.seconds
        print(f"{checked.about} ({checked.file}): {checked}" + ("" if checked.ok else f": {checked.text}"), flush=True)
    print(f"{proved} of {proved + failed} certificates proved, {size / 1000:.1f} KB, {seconds:.2f} CPU s of checking")
    lacking = without(Path(args.certificate)) if proved + failed else []
    for line in lacking:
        print(f"no certificate: {line}")
    if proved + failed == 0:
        raise OptionError("the run has no certificates; make them with: layercert batch .. --certificates")
    return 0 if failed == 0 else NOT_PROVED


def run_export(args: argparse.Namespace) -> int:
    """A model as plain arrays, for the stand-alone checker and for reviewers."""
    network = load(shipped.path(args.model), args.threshold)
    network.save(args.network)
    print(f"{network} saved as {args.network}, SHA-256 {network.sha256}")
    return 0
