"""A Dask cluster: how to reach its scheduler, and what its workers must be."""

from __future__ import annotations

from typing import Any

from layercert.errors import LayerCertError, MissingPackageError, OptionError


def connect(scheduler: str, timeout: float, error: type[LayerCertError]) -> Any:
    """A client of the scheduler at this address; `error` is raised where nobody answers."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingPackageError("distributed", "running on a Dask cluster", "dask") from None
    try:
        return Client(scheduler, timeout=timeout, set_as_default=False)
    except (OSError, TimeoutError) as reason:
        raise error(
            f"no Dask scheduler answers at {scheduler} ({type(reason).__name__}); "
            "start one with: dask scheduler, and workers with: dask worker ADDRESS --nthreads 1"
        ) from None
    except ValueError as reason:
        raise OptionError(f"cannot read the address {scheduler!r}; expected tcp://host:8786 ({reason})") from None


def check_workers(client: Any, scheduler: str, timeout: float, error: type[LayerCertError]) -> None:
    """Workers must be there and must compute with this very version."""
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError:
        raise error(
            f"the scheduler at {scheduler} has no workers after {timeout:.0f} s; "
            f"start some with: dask worker {scheduler} --nthreads 1"
        ) from None
    for worker, version in client.run(_version, on_error="return").items():
        if version != _version():
            raise error(
                f"the Dask worker {worker} has layercert {version}, this is {_version()}; "
                "install the same version everywhere"
            )


def _version() -> str:
    from layercert import __version__

    return __version__
