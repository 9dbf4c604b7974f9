"""Run all instances of a benchmark and compare the answers with what is expected.

    python vnncomp/run_all.py INSTANCES.csv --root DIR --out results.csv --expected expected.csv --jobs 2

INSTANCES.csv has the competition's rows onnx,vnnlib,timeout, with paths below --root. Every instance runs through
run_instance.sh in a process group of its own that is killed when it overstays. results.csv gets a row as soon as an
instance is done; the same command continues a run that was stopped. expected.csv has the columns network, property and
answer (the file names, without folders).
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMNS = ["category", "onnx", "vnnlib", "timeout", "answer", "seconds", "expected"]
DECIDED = ("sat", "unsat")
#: Seconds beyond the timeout before the process group is killed: starting Python is not the search's fault.
GRACE = 15.0


@dataclass(frozen=True)
class Instance:
    onnx: str
    vnnlib: str
    timeout: float

    @property
    def key(self) -> tuple[str, str]:
        return self.onnx, self.vnnlib


def read_instances(path: Path, time_limit: float | None) -> list[Instance]:
    """Rows onnx,vnnlib[,timeout]; the command's own limit goes before the file's."""
    instances = []
    with path.open(newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row or row[0].startswith("#"):
                continue
            try:
                limit = time_limit if time_limit is not None else float(row[2])
                instances.append(Instance(row[0].strip(), row[1].strip(), limit))
            except (IndexError, ValueError):
                sys.exit(f"{path}, line {number}: expected onnx,vnnlib,timeout, got {','.join(row)!r}")
    return instances


def read_expected(path: Path | None) -> dict[tuple[str, str], str]:
    """(network, property) -> sat or unsat, by file names."""
    if path is None:
        return {}
    with path.open(newline="") as file:
        return {(row["network"], row["property"]): row["answer"] for row in csv.DictReader(file)}


def run(instance: Instance, root: Path, category: str) -> tuple[str, float]:
    """The answer and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.txt"
        command = ["bash", str(HERE / "run_instance.sh"), "v1", category]
        command += [str(root / instance.onnx), str(root / instance.vnnlib), str(results), f"{instance.timeout:g}"]
        env = {**os.environ, "LAYERCERT_PYTHON": os.environ.get("LAYERCERT_PYTHON", sys.executable)}
        started = time.monotonic()
        process = subprocess.Popen(
            command, env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(instance.timeout + GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = time.monotonic() - started
        text = results.read_text() if results.is_file() else ""
        return (text.split() or ["error"])[0], seconds


def summary(rows: list[dict[str, str]], expected: int) -> str:
    """Solved share, wrong answers, median seconds."""
    solved = [row for row in rows if row["answer"] in DECIDED]
    wrong = [row for row in solved if row["expected"] in DECIDED and row["expected"] != row["answer"]]
    median = statistics.median(float(row["seconds"]) for row in solved) if solved else float("nan")
    counts = {a: sum(row["answer"] == a for row in rows) for a in sorted({row["answer"] for row in rows})}
    lines = [
        f"{len(solved)} of {expected} solved ({100 * len(solved) / max(expected, 1):.0f} %), {len(wrong)} wrong, "
        f"median {median:.2f} s; " + ", ".join(f"{n} {a}" for a, n in counts.items())
    ]
    lines += [f"WRONG: {r['onnx']} {r['vnnlib']}: {r['answer']}, expected {r['expected']}" for r in wrong]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("instances", type=Path, help="CSV with rows onnx,vnnlib,timeout")
    parser.add_argument("--root", type=Path, help="folder that the paths are below (default: that of the CSV)")
    parser.add_argument("--out", type=Path, default=Path("results.csv"), help="default results.csv; continued if there")
    parser.add_argument("--expected", type=Path, help="CSV with the columns network, property, answer")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="instead of the timeouts of the instances")
    parser.add_argument("--category", default="benchmark", help="name of the benchmark")
    parser.add_argument("--jobs", type=int, default=1, help="instances at a time (default 1)")
    args = parser.parse_args()

    root = (args.root or args.instances.parent).resolve()
    instances = read_instances(args.instances, args.time_limit)
    expected = read_expected(args.expected)
    done: dict[tuple[str, str], dict[str, str]] = {}
    if args.out.is_file():
        with args.out.open(newline="") as file:
            done = {(row["onnx"], row["vnnlib"]): row for row in csv.DictReader(file)}
    lock = threading.Lock()
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if file.tell() == 0:
            writer.writeheader()

        def work(instance: Instance) -> None:
            answer, seconds = run(instance, root, args.category)
            right = expected.get((Path(instance.onnx).name, Path(instance.vnnlib).name), "")
            values = [args.category, *instance.key, f"{instance.timeout:g}", answer, f"{seconds:.3f}", right]
            with lock:
                done[instance.key] = row = dict(zip(COLUMNS, values, strict=True))
                writer.writerow(row)
                file.flush()
                print(f"{len(done)}/{len(instances)} {' '.join(instance.key)}: {answer} {seconds:.2f} s", flush=True)

        with ThreadPoolExecutor(max(args.jobs, 1)) as pool:
            for future in [pool.submit(work, i) for i in instances if i.key not in done]:
                future.result()
    rows = [done[i.key] for i in instances]
    text = summary(rows, len(instances))
    print(text)
    return 1 if "WRONG" in text else 0


if __name__ == "__main__":
    sys.exit(main())
