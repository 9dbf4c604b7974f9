"""Which answers have no certificate, or one that a checker refuses? A spread of small questions, asked with a proof.

    python benchmarks/uncertified.py
    python benchmarks/uncertified.py --nets mlp_50x2_std.onnx --properties model.onnx=property.vnnlib --all

Networks of RadiusBench and of the paper, which come with the package, and those given with --nets (pictures of MNIST,
ten classes): each in l_inf, l_2, l_1 and l_3, with a domain and without, and in the ways of WAYS, each in one of these
norms. Every certificate is checked by the package and by the stand-alone file. An answer wants a certificate if it is
exact, robust or unsat, or if it stopped at a limit with a bound above zero. Prints a line for each one that lacks it
(with --all for every question), then counts. Seconds are CPU seconds of this process.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import importlib.util
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import layercert as lc
from layercert import shipped
from layercert.system import clock

NORMS: tuple[str | float, ...] = ("linf", "l2", "l1", 3)
#: Networks of the paper's experiments, beside those of RadiusBench.
PAPER = ("mnist17_plain_2x50", "mnist17_l1_3x20", "mnist17_plain_5x50", "mnist17_plain_8x20", "mnist10_plain_2x20")
#: A limit that many searches reach: what they proved by then is to be certified as well.
SHORT = 0.03
#: `verify` is asked this part of the way to the nearest witness that a short search finds.
INSIDE = 0.9


@dataclass(frozen=True)
class Question:
    network: str
    asked: str
    net: lc.Network
    ask: Callable[[], lc.Result | lc.SpecResult]
    spec: lc.Spec | None = None


@dataclass(frozen=True)
class Outcome:
    answer: str
    seconds: float
    wanted: bool
    certified: bool
    refused: str
    note: str

    @property
    def lacks(self) -> bool:
        return bool(self.refused) or (self.wanted and not self.certified)


def ways(net: lc.Network, x: np.ndarray, seconds: float) -> dict[str, dict[str, Any]]:
    """Options of `measure`, by name."""
    rng = np.random.default_rng(0)
    others = [j for j in range(net.classes) if j != net.classify(x)]
    return {
        "weights": {"weights": rng.uniform(0.5, 2.0, net.inputs)},
        "fixed": {"fixed": list(range(0, net.inputs, 2))},
        "target": {"target": others[-1]},
        "two targets": {"target": others[:2]},
        "gap 1e-3": {"gap": 1e-3},
        "two threads": {"threads": 2},
        "stopped": {"time_limit": min(SHORT, seconds)},
        "by input-split": {"method": "input-split"},
        "by adaptive": {"method": "adaptive"},
        "by mip": {"method": "mip"},
    }


def about_input(name: str, net: lc.Network, x: np.ndarray, box: Any, seconds: float) -> Iterator[Question]:
    def measured(norm: str | float, domain: Any, **more: Any) -> Callable[[], lc.Result]:
        options = {"time_limit": seconds, "certificate": True, "domain": domain, **more}
        return lambda: lc.measure(net, x, norm, **options)

    def verified(norm: str | float, domain: Any) -> Callable[[], lc.Result]:
        def ask() -> lc.Result:
            near = lc.measure(net, x, norm, domain=domain, time_limit=0.5 * seconds)
            radius = INSIDE * (near.upper if near.status == "exact" else near.lower)
            return lc.verify(net, x, radius, norm, domain=domain, time_limit=seconds, certificate=True)

        return ask

    for norm in NORMS:
        for domain, where in ((box, "domain"), (None, "no domain")):
            yield Question(name, f"measure {norm}, {where}", net, measured(norm, domain))
        yield Question(name, f"verify {norm}", net, verified(norm, box))
    for i, (way, more) in enumerate(ways(net, x, seconds).items()):
        norm = "linf" if way in ("by input-split", "by mip") else NORMS[i % len(NORMS)]
        if way != "by input-split" or net.inputs <= 5:
            yield Question(name, f"measure {norm}, {way}", net, measured(norm, box, **more))


def questions(args: argparse.Namespace) -> Iterator[Question]:
    bench = lc.radiusbench()
    for name in sorted({row.network for row in bench.rows}):
        row = next(row for row in bench.rows if row.network == name and row.input >= args.input)
        X, net = bench.x(row), bench.network(name)
        yield from about_input(name, net, X, (row.low, row.high), args.seconds)
    for name in (*PAPER, *args.nets):
        net = lc.load(name if Path(name).exists() else shipped.path(name))
        digits = np.load(shipped.path("digits10" if net.classes == 10 else "digits"))["X"].astype(float)
        yield from about_input(Path(name).stem, net, digits[args.input], (0.0, 1.0), args.seconds)
    for pair in args.properties:
        model, path = pair.split("=")
        net, spec = lc.load(model), lc.load_spec(path)
        yield Question(Path(model).stem, Path(path).stem, net, asked_of(net, spec, args.seconds), spec)


def asked_of(net: lc.Network, spec: lc.Spec, seconds: float) -> Callable[[], lc.SpecResult]:
    return lambda: lc.verify_spec(net, spec, time_limit=seconds, certificate=True)


def standalone() -> Any:
    """The stand-alone checker, as a module."""
    path = Path(__file__).parent.parent / "standalone" / "check_certificate.py"
    spec = importlib.util.spec_from_file_location("check_certificate", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refusal(question: Question, proofs: Sequence[Any], alone: Any) -> str:
    """Why a checker does not accept the proofs; nothing where both do."""
    if not proofs:
        return ""
    net = question.net
    report = lc.check(net, proofs[0]) if question.spec is None else lc.check_spec(net, question.spec, list(proofs))
    if not report.ok:
        return f"REFUSED by the package: {report}"
    with tempfile.TemporaryDirectory() as folder:
        proof, network = (Path(folder) / f"{name}.npz" for name in ("proof", "network"))
        net.save(network)
        for each in proofs:
            each.save(proof)
            try:
                with np.errstate(all="ignore"):
                    alone.check(proof, network, False)
            except (alone.NotProved, ValueError) as error:
                return f"REFUSED by the stand-alone checker: {error}"
    return ""


def outcome(question: Question, alone: Any) -> Outcome:
    start = time.process_time()
    result = question.ask()
    seconds = time.process_time() - start
    if isinstance(result, lc.SpecResult):
        proofs, answer = result.certificates, str(result.answer)
        wanted = answer == "unsat"
    else:
        proofs, answer = (() if result.certificate is None else (result.certificate,)), str(result.status)
        wanted = answer in ("exact", "robust") or (answer == "undecided" and result.lower > 0)
        wanted = wanted and result.upper > 0
    refused = refusal(question, proofs, alone)
    return Outcome(answer, seconds, wanted, bool(proofs), refused, result.note)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nets", nargs="*", default=[], help="files of networks for MNIST")
    parser.add_argument("--properties", nargs="*", default=[], metavar="MODEL=SPEC")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[""],
        help="questions with one of these in their names, as 'digits_cnn_pool measure'",
    )
    parser.add_argument("--input", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each search, and once more for its certificate")
    parser.add_argument("--all", action="store_true", help="print every question")
    return parser.parse_args()


def main() -> None:
    args, alone, counts = parse(), standalone(), Counter[str]()
    with clock.of_processor(True):
        for question in questions(args):
            title = f"{question.network} {question.asked}"
            if not any(part in title for part in args.only):
                continue
            found = outcome(question, alone)
            counts[found.answer] += 1
            counts["wanted"] += found.wanted
            counts["lacking"] += found.lacks
            counts["refused"] += bool(found.refused)
            if args.all or found.lacks:
                has = "LACKS" if found.lacks else "has" if found.certified else "needs none"
                print(
                    f"{title}: {found.answer}, {has}, {found.seconds:.2f} s. {found.refused or found.note}", flush=True
                )
    kinds = ", ".join(f"{answer} {n}" for answer, n in counts.items() if answer not in ("wanted", "lacking", "refused"))
    print(
        f"{counts['wanted']} answers want a certificate ({kinds}); {counts['lacking']} have none or a refused one, "
        f"{counts['refused']} of them refused"
    )


if __name__ == "__main__":
    main()
