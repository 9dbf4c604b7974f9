"""The same batch on a Dask cluster: `--scheduler tcp://host:8786` (SLURM, Kubernetes, MPI: wherever Dask runs).

Only this process writes the run; workers get a network (as bytes, kept by the scheduler, so that it can be sent again
when a worker dies) and a point, and return an outcome. Dask repeats the jobs of a worker that vanished; a job that
takes its worker down again and again is recorded as failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from uuid import uuid4

from layercert import __version__
from layercert.arrays import Vector
from layercert.batch.errors import RunError
from layercert.batch.plan import Job, Options, Plan
from layercert.batch.store import network_bytes, network_from
from layercert.batch.work import Outcome, warm_up
from layercert.errors import MissingPackageError, OptionError
from layercert.network import Network

#: Jobs in the hands of the scheduler for each thread of the cluster: enough to keep all busy, few enough to stay light.
AHEAD = 4


@dataclass(frozen=True)
class DaskCluster:
    """Run jobs on the workers of a Dask scheduler; `work` names the function that does a job."""

    scheduler: str
    work: str = "layercert.batch.work:solve"
    connect_timeout: float = 30.0
    worker_timeout: float = 300.0

    def describe(self) -> str:
        return f"Dask cluster at {self.scheduler}"

    def run(self, plan: Plan, jobs: Sequence[Job]) -> Iterator[Outcome]:
        try:
            from distributed import as_completed
        except ImportError:
            raise MissingPackageError("distributed", "running on a Dask cluster", "dask") from None
        client = self._client()
        try:
            self._check_workers(client)
            yield from self._drive(client, plan, jobs, as_completed(loop=client.loop))
        except (OSError, TimeoutError, CancelledError):
            raise self._lost() from None
        finally:
            with suppress(Exception):  # closing releases the futures: what still runs is cancelled
                client.close(timeout=5)

    def _drive(self, client: Any, plan: Plan, jobs: Sequence[Job], running: Any) -> Iterator[Outcome]:
        # pure tasks with bytes as their argument: whoever needs the network again can have it computed again
        networks = [client.submit(_network, network_bytes(m.network), m.network.sha256) for m in plan.models]
        waiting, owners, session = list(reversed(jobs)), dict[str, Job](), uuid4().hex
        suspects: list[Job] = []
        while waiting or owners or suspects:
            alone = not waiting and not owners
            room = AHEAD * max(_threads(client), 1) - len(owners) if waiting else 0
            for job in [suspects.pop()] if alone else [waiting.pop() for _ in range(min(room, len(waiting)))]:
                asked = (networks[job.model], plan.data.X[job.input], plan.label(job.input), job, plan.options)
                key = f"layercert-{session}-{job.id}{'-alone' if alone else ''}"
                future = client.submit(_work, self.work, *asked, key=key, pure=False)
                owners[key] = job
                running.add(future)
            future = next(running)
            job = owners.pop(future.key)
            if future.status in ("pending", "lost") and client.status == "running":
                owners[future.key] = job  # its result died with a worker: Dask computes it again
                running.add(future)
                continue
            # Dask blames every job that waited at a worker when it died: the blamed ones run again, one by one
            if _killed_its_worker(future) and not future.key.endswith("-alone"):
                suspects.append(job)
            else:
                yield self._outcome(future, job)

    def _client(self) -> Any:
        from distributed import Client

        try:
            return Client(self.scheduler, timeout=self.connect_timeout, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise RunError(
                f"no Dask scheduler answers at {self.scheduler} ({type(error).__name__}); "
                "start one with: dask scheduler, and workers with: dask worker ADDRESS --nthreads 1"
            ) from None
        except ValueError as error:
            raise OptionError(
                f"cannot read the address {self.scheduler!r}; expected tcp://host:8786 ({error})"
            ) from None

    def _check_workers(self, client: Any) -> None:
        """Workers must be there and must compute with this very version."""
        try:
            client.wait_for_workers(1, timeout=self.worker_timeout)
        except TimeoutError:
            raise RunError(
                f"the scheduler at {self.scheduler} has no workers after {self.worker_timeout:.0f} s; "
                f"start some with: dask worker {self.scheduler} --nthreads 1"
            ) from None
        versions = client.run(_version, on_error="return")
        for worker, version in versions.items():
            if version != __version__:
                raise RunError(
                    f"the Dask worker {worker} has layercert {version}, this is {__version__}; "
                    "install the same version everywhere"
                )

    def _outcome(self, future: Any, job: Job) -> Outcome:
        if future.status == "finished":
            outcome = future.result()
            assert isinstance(outcome, Outcome)
            return outcome
        if future.status == "error":
            if _killed_its_worker(future):
                reason = "the worker crashed again and again (or exceeded its memory limit) on this job"
                return Outcome.failed(job.id, reason)
            error = future.exception()
            return Outcome.failed(job.id, f"{type(error).__name__}: {error}")
        raise self._lost()

    def _lost(self) -> RunError:
        return RunError(
            f"the scheduler at {self.scheduler} went away; what is finished is kept: give the same command again"
        )


def _killed_its_worker(future: Any) -> bool:
    return future.status == "error" and type(future.exception()).__name__ == "KilledWorker"


def _threads(client: Any) -> int:
    """Threads of all workers now; workers come and go."""
    return sum(client.nthreads().values())


def _network(blob: bytes, sha256: str) -> Network:
    network = network_from(blob)
    if network.sha256 != sha256:
        raise RunError("the network changed on its way to the worker")
    return network


def _work(name: str, network: Network, x: Vector, label: int | None, job: Job, options: Options) -> Outcome:
    module, _, function = name.partition(":")
    warm_up(options)
    outcome = getattr(import_module(module), function)(network, x, label, job, options)
    assert isinstance(outcome, Outcome)
    return outcome


def _version() -> str:
    return __version__
