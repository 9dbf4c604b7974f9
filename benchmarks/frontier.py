"""Hard questions: exact radii of everyday networks, and properties of VNN-COMP's families, one thread, with a limit.

    python benchmarks/frontier.py --nets NETS/*.onnx --data MNIST/t10k-images-idx3-ubyte.gz --inputs 10 --time-limit 60
    python benchmarks/frontier.py --families VNNCOMP/oval21 VNNCOMP/mnist_fc --time-limit 60

Networks: the first inputs that each classifies rightly; per network how many are exact, median and worst seconds, the
median of lower/upper, the latest answer beyond its limit. Families: a folder with onnx/, vnnlib/ and expected*.csv
(network, property, answer, and the seconds of other tools where known); per family how many are solved, how many are
wrong (there must be none), and the geometric mean of the other tools' seconds over ours. Peak memory comes last.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
import math
import resource
import statistics
from pathlib import Path

import numpy as np

import layercert as lc
from layercert.io.datasets import load_dataset
from layercert.system import clock


def radii(path: Path, args: argparse.Namespace) -> None:
    network = lc.load(path)
    data = load_dataset(args.data)
    right = [i for i in range(len(data.X)) if data.y is None or int(network(data.X[i]).argmax()) == data.y[i]]
    seconds, shares, exact, late = [], [], 0, 0.0
    for i in right[: args.inputs]:
        start = clock.now()
        domain = None if args.no_domain else (0.0, 1.0)
        r = lc.measure(
            network, data.X[i], args.norm, domain=domain, time_limit=args.time_limit, gap=args.gap, threads=args.threads
        )
        seconds.append(clock.now() - start)
        late = max(late, r.seconds - args.time_limit)
        exact += r.status == "exact"
        shares.append(r.lower / r.upper if math.isfinite(r.upper) and r.upper > 0 else 0.0)
        print(f"  {path.stem} {args.norm} #{i} {r.status} {r.lower:.7g} {r.upper:.7g} {r.seconds:.2f} s", flush=True)
    print(
        f"{path.stem} {args.norm}: exact {exact} of {len(seconds)}, median {statistics.median(seconds):.2f} s, worst "
        f"{max(seconds):.2f} s, lower/upper median {statistics.median(shares):.4f} least {min(shares):.4f}, "
        f"at most {max(late, 0.0):.2f} s late",
        flush=True,
    )


def family(folder: Path, args: argparse.Namespace) -> None:
    rows = [row for table in sorted(folder.glob("expected*.csv")) for row in csv.DictReader(table.open())]
    solved, wrong, ratios = 0, 0, []
    for row in rows[: args.instances]:
        spec = lc.load_spec(folder / "vnnlib" / row["property"])
        network = lc.load(folder / "onnx" / row["network"])
        start = clock.now()
        answer = lc.verify_spec(network, spec, args.time_limit)
        seconds = clock.now() - start
        said = str(answer.answer)
        decided = said in ("sat", "unsat")
        solved += decided
        wrong += decided and row["answer"] in ("sat", "unsat") and row["answer"] != said
        if decided and row.get("its_seconds"):
            ratios.append(float(row["its_seconds"]) / seconds)
        print(f"  {row['network']} {row['property']} {said} (expected {row['answer']}) {seconds:.2f} s", flush=True)
    mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
    print(
        f"{folder.name}: solved {solved} of {len(rows[: args.instances])}, wrong {wrong}, others / ours {mean:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="*", type=Path, default=[])
    parser.add_argument("--data", type=Path, help="inputs with labels: anything that `layercert batch --data` reads")
    parser.add_argument("--inputs", type=int, default=10)
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--no-domain", action="store_true", help="without the domain [0, 1]")
    parser.add_argument("--gap", type=float, default=1e-6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--families", nargs="*", type=Path, default=[])
    parser.add_argument("--instances", type=int, help="the first so many of each family")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of this process instead of those of the wall")
    args = parser.parse_args()
    if args.nets and args.data is None:
        parser.error("--nets needs --data, the inputs")
    np.seterr(all="ignore")
    with clock.of_processor(args.cpu):
        for path in args.nets:
            radii(path, args)
        for folder in args.families:
            family(folder, args)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
