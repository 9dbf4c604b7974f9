"""Kill a search again and again with SIGKILL: does it end with the radius of one run, and what do the kills cost?

    python benchmarks/kills.py MODEL INPUTS --index 0 --domain 0 1 --kills 50 [--radius R | --gap G] [--threads 2]

A child saves every second (`--pause`) and is killed at a random moment, so many times; then it may finish. Printed: the
answer beside that of a search that nobody kills, the searching seconds of both, and the size of the file.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHILD = """
import sys, numpy as np, layercert as lc
from layercert.io.datasets import load_dataset
from layercert import shipped
from layercert.search import saved
model, data, index, low, high, radius, gap, threads, pause, file = sys.argv[1:]
saved.PAUSE = float(pause)
net = lc.load(shipped.path(model))
x = load_dataset(shipped.path(data), index, None, None).X[0]
domain = None if low == "none" else (float(low), float(high))
save = None if file == "none" else file
how = dict(domain=domain, method="adaptive", gap=float(gap), threads=int(threads), save=save)
print("begin", flush=True)
if radius == "none":
    r = lc.measure(net, x, **how)
else:
    r = lc.verify(net, x, float(radius), **how)
print(r.status, repr(r.lower), repr(r.upper), r.seconds, flush=True)
"""


def child(args: argparse.Namespace, file: str) -> subprocess.Popen[str]:
    low, high = args.domain or ("none", "none")
    words = [args.model, args.inputs, args.index, low, high, args.radius or "none", args.gap, args.threads, args.pause]
    command = [sys.executable, "-c", CHILD, *map(str, words), file]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("--index", default="0")
    parser.add_argument("--domain", nargs=2)
    parser.add_argument("--radius")
    parser.add_argument("--gap", default="1e-6")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--pause", default="1.0", help="seconds between two saves")
    parser.add_argument("--longest", type=float, default=4.0, help="seconds until a kill, at most")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    whole = child(args, "none").communicate()[0].split()
    print(f"one run: {whole[0]}, {whole[1]} <= distance <= {whole[2]}, {float(whole[3]):.1f} s", flush=True)
    from layercert.search.saved import Saved

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.search"
        killed, spent, sizes = 0, 0.0, [0]
        while True:
            process = child(args, str(file))
            started = time.monotonic()
            if killed < args.kills:
                try:
                    process.wait(rng.uniform(0.2, args.longest))
                except subprocess.TimeoutExpired:
                    os.kill(process.pid, signal.SIGKILL)
                    process.communicate()
                    killed += 1
                    spent += time.monotonic() - started
                    if file.exists():
                        sizes.append(file.stat().st_size)
                        Saved.from_bytes(file.read_bytes())  # whole, whenever the kill came
                    continue
            last = process.communicate()[0].split()
            spent += time.monotonic() - started
            break
    print(f"{killed} kills: {last[0]}, {last[1]} <= distance <= {last[2]}, {spent:.1f} s of searching in all")
    print(f"largest file: {max(sizes) / 1e6:.2f} MB; per kill {(spent - float(whole[3])) / max(killed, 1):.2f} s lost")
    same = whole[0] == last[0] and (whole[2] == last[2] or abs(float(whole[2]) / float(last[2]) - 1) < 2e-6)
    print("the same answer" if same else "ANOTHER ANSWER")
    sys.exit(not same)


if __name__ == "__main__":
    main()
