"""Many fits on a Dask cluster that may lose workers: grids, folds, seeds.

Joblib has a backend for Dask, which leaves the data on one worker; when that one dies, its data
cannot be had again and the search ends. Here the data go with every task, so that whatever a lost
worker had is begun anew on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from joblib import parallel_config
from joblib.parallel import ParallelBackendBase


class _OnDask(ParallelBackendBase):
    """Batches of calls as Dask tasks."""

    supports_timeout = True  # pyright: ignore[reportAssignmentType]
    default_n_jobs = -1

    def __init__(self, client: Any) -> None:
        super().__init__()
        # Not pure: two calls that look the same may draw different random numbers.
        self.client, self.executor = client, client.get_executor(pure=False)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """As many as the cluster has threads now, whatever the caller wants."""
        return max(sum(self.client.nthreads().values()), 1)

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> Any:
        """Send a batch; joblib asks the result for ``get``."""
        future = self.executor.submit(func)
        future.get = future.result  # pyright: ignore[reportAttributeAccessIssue]
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit  # its name before joblib 1.5

    def get_nested_backend(self) -> tuple[Any, int]:
        """What a task does is its worker's own matter."""
        from joblib._parallel_backends import SequentialBackend

        return SequentialBackend(nesting_level=1), 1


@contextmanager
def on_cluster(client: Any) -> Iterator[None]:
    """Run what joblib runs (``GridSearchCV``, ``cross_val_score``, ``Parallel``) on a cluster.

    Parameters
    ----------
    client : distributed.Client
        Client of a running cluster; workers may join and leave.

    Examples
    --------
    >>> from distributed import Client  # doctest: +SKIP
    >>> with Client("tcp://scheduler:8786") as client, on_cluster(client):  # doctest: +SKIP
    ...     search.fit(X, y)
    """
    with parallel_config(backend=_OnDask(client), n_jobs=-1):
        yield
