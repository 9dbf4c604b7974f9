"""How many workers can one question keep busy? Slices of a real search, replayed by simulated workers.

    python benchmarks/cluster.py record MODEL INPUTS --index 0 --domain 0 1 --radius 0.09 --out slices.json
    python benchmarks/cluster.py simulate slices.json --workers 1 2 8 64 1024 --hours 1
    python benchmarks/cluster.py compare MODEL INPUTS --index 0 --domain 0 1 --radius 0.09 --workers 1 2

`record` searches here, slice by slice, through the function that a cluster's worker runs, and measures: seconds per
slice, bytes sent and received, and what the coordinator needs to hand out and to book a slice. `simulate` draws slices
from these and lets a coordinator serve so many workers: it does one thing at a time, and its network has a bandwidth.
Printed: how busy the workers are. Slices are as long as they were recorded; trees that run out of nodes are left out.
`compare` asks `verify` on a real Dask cluster of this machine, with so many worker processes after each other, and
prints the wall's seconds. Before the clock runs each cluster is asked for a moment: what is loaded is loaded then.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import heapq
import json
import pickle
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import layercert as lc
from layercert import shipped
from layercert.io.datasets import load_dataset
from layercert.problem import robustness
from layercert.programs.stacks import make_chain
from layercert.search.adaptive import spread
from layercert.search.adaptive.search import suited
from layercert.search.adaptive.tree import Ball
from layercert.search.task import Task


def record(args: argparse.Namespace) -> None:
    net = lc.load(shipped.path(args.model))
    x = load_dataset(shipped.path(args.inputs), args.index, None, None).X[0]
    domain = None if args.domain is None else tuple(map(float, args.domain))
    problem = robustness(net, x, args.norm, radius=args.radius, domain=domain)
    limit = args.radius * (1 + 1e-9)
    ball = Ball(Task(problem, make_chain("default", problem.norm), limit, enough=args.radius), suited(net), None, limit)
    started = time.process_time()
    events = ball.run()
    while len(ball.frontier) < 2 * args.nodes and next(events, None) is not None:
        pass
    events.close()
    ball.frontier.take_back()
    print(f"{len(ball.frontier)} nodes after {time.process_time() - started:.1f} s alone", flush=True)
    coordinator, rows = spread.Spread(ball, ""), []
    question = coordinator._question()
    while len(ball.frontier) and len(rows) < args.slices:
        a = time.process_time()
        nodes = ball.frontier.lend(args.nodes)
        sent = pickle.dumps([blob for _, blob in nodes])
        b = time.process_time()
        done = spread.work(question, [blob for _, blob in nodes], ball.task.incumbent.nearest, args.seconds)
        c = time.process_time()
        got = pickle.dumps(done)
        list(coordinator._take([number for number, _ in nodes], pickle.loads(got)))
        rows.append(
            {"work": c - b, "coordinator": time.process_time() - c + b - a, "sent": len(sent), "received": len(got)}
        )
    facts = {"model": args.model, "question": len(pickle.dumps(question)), "rows": rows}
    Path(args.out).write_text(json.dumps(facts))
    for name in ("work", "coordinator", "sent", "received"):
        values = [row[name] for row in rows]
        print(f"{name}: median {statistics.median(values):.4g}, mean {statistics.mean(values):.4g}, {len(rows)} slices")
    print(f"the question itself, once per worker: {facts['question'] / 1e3:.0f} kB; open nodes: {len(ball.frontier)}")


def simulate(args: argparse.Namespace) -> None:
    rows = json.loads(Path(args.slices_file).read_text())["rows"]
    print(f"{args.overhead * 1e3:g} ms of Dask per slice, {args.bandwidth:g} MB/s; slices times {args.longer:g}")
    print("workers  busy  slices/s  coordinator busy  speed-up")
    for workers in args.workers:
        rng = random.Random(1)
        free_at, busy, served, slices = 0.0, 0.0, 0.0, 0
        ready = [(0.0, i) for i in range(workers)]  # when each worker asks for its next slice
        end = 3600.0 * args.hours
        while ready[0][0] < end:
            now, worker = heapq.heappop(ready)
            row = rng.choice(rows)
            length = row["work"] * args.longer
            traffic = (row["sent"] + row["received"] * args.longer) / (1e6 * args.bandwidth)
            service = row["coordinator"] * args.longer + args.overhead + traffic
            free_at = max(free_at, now) + service
            served += service
            busy += length
            slices += 1
            heapq.heappush(ready, (free_at + length, worker))
        part, used = min(busy / (workers * end), 1.0), min(served / end, 1.0)
        print(f"{workers:7d}  {part:4.0%}  {slices / end:8.1f}  {used:16.0%}  {part * workers:8.1f}", flush=True)


@contextmanager
def cluster(workers: int) -> Iterator[str]:
    """The address of a scheduler with so many worker processes of one thread each, all on this machine."""
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"

        def start(*words: str) -> None:
            command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(file), "--host", "127.0.0.1"]
            log = open(Path(folder) / f"{len(processes)}.log", "wb")  # noqa: SIM115 - the process writes it
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))

        try:
            start("scheduler", "--port", "0", "--no-dashboard")
            while not file.exists() or not file.read_text().rstrip().endswith("}"):
                time.sleep(0.1)
            for _ in range(workers):
                start("worker", "--nthreads", "1", "--no-dashboard", "--local-directory", folder, "--memory-limit", "0")
            yield json.loads(file.read_text())["address"]
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def compare(args: argparse.Namespace) -> None:
    net = lc.load(shipped.path(args.model))
    x = load_dataset(shipped.path(args.inputs), args.index, None, None).X[0]
    domain = None if args.domain is None else tuple(map(float, args.domain))
    first = None
    for workers in args.workers:
        with cluster(workers) as address:
            how = {"norm": args.norm, "domain": domain, "scheduler": address, "threads": 1}
            lc.verify(net, x, args.radius, time_limit=args.moment, **how)
            started = time.perf_counter()
            answer = lc.verify(net, x, args.radius, time_limit=args.time_limit, **how)
            seconds = time.perf_counter() - started
        first = first or seconds
        print(f"{workers} workers: {answer.status}, {seconds:.2f} s, {first / seconds:.2f} times as fast", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    r = commands.add_parser("record")
    r.add_argument("model")
    r.add_argument("inputs")
    r.add_argument("--index", default="0")
    r.add_argument("--norm", default="linf")
    r.add_argument("--domain", nargs=2)
    r.add_argument("--radius", type=float, required=True)
    r.add_argument("--nodes", type=int, default=16, help="nodes of a slice")
    r.add_argument("--seconds", type=float, default=spread.LONG, help="length of a slice")
    r.add_argument("--slices", type=int, default=100, help="most slices")
    r.add_argument("--out", default="slices.json")
    r.set_defaults(run=record)
    s = commands.add_parser("simulate")
    s.add_argument("slices_file")
    s.add_argument("--workers", type=int, nargs="+", default=[1, 2, 8, 64, 256, 1024])
    s.add_argument("--hours", type=float, default=0.2)
    s.add_argument("--overhead", type=float, default=0.003, help="seconds of the scheduler per slice")
    s.add_argument("--bandwidth", type=float, default=100.0, help="MB/s of the coordinator")
    s.add_argument("--longer", type=float, default=1.0, help="slices so many times as long, with as much more traffic")
    s.set_defaults(run=simulate)
    c = commands.add_parser("compare")
    c.add_argument("model")
    c.add_argument("inputs")
    c.add_argument("--index", default="0")
    c.add_argument("--norm", default="linf")
    c.add_argument("--domain", nargs=2)
    c.add_argument("--radius", type=float, required=True)
    c.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="worker processes")
    c.add_argument("--moment", type=float, default=5.0, help="seconds before the clock runs")
    c.add_argument("--time-limit", type=float, default=300.0)
    c.set_defaults(run=compare)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
