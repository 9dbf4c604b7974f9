"""A batch on a Dask cluster. Here the cluster is this machine; on SLURM, Kubernetes or MPI only its first lines differ.

    python examples/dask_cluster.py [FOLDER]

With a cluster that runs already, from the command line:

    layercert batch mnist17_l1_2x20 --data digits --domain 0 1 --scheduler tcp://HOST:8786 --out FOLDER
"""

import sys
from pathlib import Path

from distributed import LocalCluster

import layercert as lc
from layercert import shipped
from layercert.batch import Model, Options, Plan, run_batch
from layercert.batch.cluster import DaskCluster
from layercert.io.datasets import load_dataset


def main(folder: Path) -> None:
    plan = Plan(
        models=(Model("mnist17_l1_2x20", lc.load(shipped.path("mnist17_l1_2x20"))),),
        data=load_dataset(shipped.path("digits"), "0:8"),
        options=Options(domain=(0.0, 1.0)),
    )
    # one thread per worker: the kernels hold Python's lock, so threads of one process would wait for each other
    with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        tally = run_batch(plan, folder, DaskCluster(cluster.scheduler_address))
    print(f"{tally.done} of {tally.total} done: {dict(tally.counts)}; now: layercert report {folder}")


if __name__ == "__main__":  # Dask starts its workers by importing this file
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/dask-example"))
