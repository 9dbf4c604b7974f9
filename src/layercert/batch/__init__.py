"""Many inputs x norms x methods x models: runs in a folder that survive anything.

plan = Plan((Model("net", lc.load("net.onnx")),), load_dataset(Path("digits.npz")), Options(norms=("linf", "l2")))
tally = run_batch(plan, Path("run"), LocalProcesses(jobs=2))
"""

from layercert.batch.drive import Tally, run_batch
from layercert.batch.errors import RunError
from layercert.batch.local import LocalProcesses
from layercert.batch.plan import Job, Model, Options, Plan
from layercert.batch.store import Store, open_store
from layercert.batch.work import Outcome

__all__ = [
    "Job",
    "LocalProcesses",
    "Model",
    "Options",
    "Outcome",
    "Plan",
    "RunError",
    "Store",
    "Tally",
    "open_store",
    "run_batch",
]
