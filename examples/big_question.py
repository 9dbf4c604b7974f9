"""One hard question in three parts: a second here, a second with two threads, the rest on a Dask cluster.

    python examples/big_question.py [FOLDER]

The search lives in a file between the parts, so each could be another day or another machine. From the command line:

    layercert measure MODEL --input x.npy --save x.search --time-limit 3600
    layercert measure MODEL --input x.npy --save x.search --scheduler tcp://HOST:8786
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from distributed import LocalCluster

import layercert as lc


def question() -> tuple[lc.Network, np.ndarray]:
    """A random network whose nearest boundary takes about a thousand nodes."""
    rng = np.random.default_rng(1)
    sizes = [8, 24, 24, 4]
    weights = [rng.normal(size=(m, n)) / np.sqrt(n) for n, m in pairwise(sizes)]
    return lc.Network.from_arrays(weights, [0.3 * rng.normal(size=m) for m in sizes[1:]]), rng.normal(size=8)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    net, x = question()
    asked = {"norm": "l2", "method": "adaptive", "save": folder / "x.search"}
    print("one thread, half a second:", lc.measure(net, x, **asked, time_limit=0.5))
    print("two threads, half a second:", lc.measure(net, x, **asked, time_limit=0.5, threads=2))
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        print("a cluster:", lc.measure(net, x, **asked, scheduler=cluster.scheduler_address))


if __name__ == "__main__":  # Dask starts its workers by importing this file
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/big-question"))
