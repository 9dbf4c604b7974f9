"""Does GeoCert-Lip or LayerCert-Both solve fewer programs, and what decides it?

    python benchmarks/geocert_lip.py --ask --inputs 20 --time-limit 20 --out benchmarks/results/geocert_lip.csv
    python benchmarks/geocert_lip.py --ask --nets DIR --sizes 2x10,5x20        # networks that are not shipped
    python benchmarks/geocert_lip.py --halves benchmarks/results/reproduction.csv

The paper (section 6) says LayerCert-Both, on all its networks. This asks the same inputs under every combination of
training (l1: GeoCert's penalty, or plain), domain (none, or [0, 1]), norm, and the radius U that the search starts
from: the paper's (0.3 in l_inf, 3.0 in l_2), or the distance of the nearest unsafe point, which a perfect attack would
give. A line is written as soon as it is there; the same command goes on where it stopped. Without --ask, the table of
what is there is printed. With --halves, the answers of a reproduction are compared on the easier and the harder half of
each network's inputs, where hard means many programs (the geometric mean of the two methods).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import layercert as lc
from layercert import shipped
from layercert.io.datasets import load_dataset

METHODS = ("geocert", "geocert-lip", "layercert-ia", "layercert-both")
RADIUS = {"linf": 0.3, "l2": 3.0}
KEY = ("family", "size", "norm", "domain", "start", "input", "method")
COLUMNS = (*KEY, "status", "programs", "seconds")


def questions(args: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Every question, inputs outermost: a run stopped half way has complete inputs to compare."""
    for i in range(args.inputs):
        for size in args.sizes.split(","):
            for family in args.families.split(","):
                for norm in args.norms.split(","):
                    for domain in ("none", "box"):
                        for start in ("radius", "distance"):
                            for method in METHODS:
                                yield family, size, norm, domain, start, str(i), method


def network(family: str, size: str, folder: Path | None) -> lc.Network | None:
    name = f"mnist17_{family}_{size}"
    if folder is not None and (folder / f"{name}.npz").exists():
        return lc.load(folder / f"{name}.npz")
    return lc.load(shipped.path(name)) if name in shipped.names() else None


def ask(args: argparse.Namespace) -> None:
    out = Path(args.out)
    known = {tuple(row[k] for k in KEY) for row in read(out)}
    digits = load_dataset(shipped.path("digits"))
    nets: dict[tuple[str, str], lc.Network | None] = {}
    fresh = not out.exists()
    with open(out, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(COLUMNS)
        for question in questions(args):
            if question in known:
                continue
            family, size, norm, domain, start, number, method = question
            net = nets.setdefault((family, size), network(family, size, args.nets))
            if net is None:
                continue
            x, box = digits.X[int(number)], (0.0, 1.0) if domain == "box" else None
            radius = RADIUS[norm]
            if start == "distance":
                radius = min(radius, lc.measure(net, x, norm, domain=box).upper * (1 + 1e-6))
            r = lc.measure(net, x, norm, radius=radius, domain=box, method=method, time_limit=args.time_limit)
            writer.writerow([*question, r.status, r.programs, f"{r.seconds:.4f}"])
            file.flush()


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(rows: list[dict[str, str]], by: tuple[str, ...]) -> None:
    """For each combination: programs of the two methods on the inputs both finished; how often Lip needs fewer."""
    groups: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, dict[str, str]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        question = tuple(row[k] for k in KEY[:-1])
        groups[tuple(row[k] for k in by)][question][row["method"]] = row
    print("| " + " | ".join([*by, "inputs", "geocert-lip", "layercert-both", "ratio", "lip needs fewer"]) + " |")
    print("|" + " --- |" * len(by) + " --: |" * 5)
    for key, asked in groups.items():
        pairs = [
            (int(a["geocert-lip"]["programs"]), int(a["layercert-both"]["programs"]))
            for a in asked.values()
            if all(m in a and a[m]["status"] != "undecided" for m in ("geocert-lip", "layercert-both"))
        ]
        if not pairs:
            continue
        lip, both = (sum(p[i] for p in pairs) for i in (0, 1))
        fewer = sum(a < b for a, b in pairs)
        cells = [*key, f"{len(pairs)}/{len(asked)}", str(lip), str(both), f"{lip / max(both, 1):.2f}", f"{fewer}"]
        print("| " + " | ".join(cells) + " |")


def halves(path: Path) -> None:
    """For each norm and network: LayerCert-Both's programs over GeoCert-Lip's, and on how many Lip needs fewer."""
    found: dict[tuple[str, str], dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in read(path):
        if (row["family"], row["stack"]) == ("l1", "default") and row["status"] != "undecided":
            found[row["norm"], row["network"]][row["input"]][row["method"]] = int(row["programs"])
    print("| norm | network | inputs | easier: Both / Lip | Lip fewer on | harder: Both / Lip | Lip fewer on |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for (norm, net), inputs in found.items():
        pairs = [(q[METHODS[1]], q[METHODS[3]]) for q in inputs.values() if METHODS[1] in q and METHODS[3] in q]
        pairs.sort(key=lambda pair: pair[0] * pair[1])
        cells: list[str] = []
        for half in (pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]):
            lip, both = (sum(pair[k] for pair in half) for k in (0, 1))
            cells += [f"{both / lip:.2f}" if lip else "-", f"{sum(a < b for a, b in half)} of {len(half)}"]
        print(f"| {norm} | {net} | {len(pairs)} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20)
    parser.add_argument("--sizes", default="2x10,2x20,2x50,3x20,3x50")
    parser.add_argument("--families", default="l1,plain")
    parser.add_argument("--norms", default="linf,l2")
    parser.add_argument("--nets", type=Path, help="folder with mnist17_l1_2x10.npz and so on, besides the shipped ones")
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--out", default="benchmarks/results/geocert_lip.csv")
    parser.add_argument("--by", default="norm,family,domain,start", help="columns of the table")
    parser.add_argument("--ask", action="store_true", help="ask what is missing first")
    parser.add_argument("--halves", type=Path, metavar="CSV", help="of a reproduction: easier and harder inputs")
    args = parser.parse_args()
    if args.halves is not None:
        halves(args.halves)
        return
    if args.ask:
        ask(args)
    table(read(Path(args.out)), tuple(args.by.split(",")))


if __name__ == "__main__":
    main()
