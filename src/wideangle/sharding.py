"""One fit on many devices: rows spread over them, everything else on each.

The same program runs on one device, on all devices of a machine, and on the devices of many
machines::

    with rows_over():  # all devices that JAX sees
        model.fit(X, y)

On several machines every process runs this same script, with the same data and settings, after
:func:`join`. A sum over rows is then a sum on every device and one exchange of a gradient.

Also :func:`n_threads`, the threads of one process. No result depends on their number: what is
divided among threads is divided in the same way for any number of them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "rows"
_MESH: ContextVar[Mesh | None] = ContextVar("wideangle_mesh", default=None)
_P = ParamSpec("_P")
_Fitted = TypeVar("_Fitted")


class LostProcessError(RuntimeError):
    """Another process of the same fit has ended."""


@contextmanager
def rows_over(devices: Sequence[Any] | None = None) -> Iterator[Mesh]:
    """Spread the rows of the fits in this block over devices; by default over all.

    Parameters
    ----------
    devices
        Devices of all processes, in the same order in each of them.
    """
    mesh = Mesh(np.array(jax.devices() if devices is None else list(devices)), (AXIS,))
    token = _MESH.set(mesh)
    try:
        yield mesh
    finally:
        _MESH.reset(token)


def join(
    coordinator: str, n_processes: int, process: int, *, patience_seconds: int = 30, **options: Any
) -> None:
    """Make this process one of several; to be called before anything else of JAX.

    Parameters
    ----------
    coordinator
        Address and port of process 0, ``"host:port"``.
    n_processes, process
        How many there are, and which one this is (0, 1, ...).
    patience_seconds
        Seconds without a sign of a process after which the others end.
    options
        Passed on to :func:`jax.distributed.initialize`.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # The defaults are minutes: too long to wait for a process that is gone.
    jax.distributed.initialize(
        coordinator,
        n_processes,
        process,
        heartbeat_timeout_seconds=patience_seconds,
        shutdown_timeout_seconds=patience_seconds,
        **options,
    )


def current_mesh() -> Mesh | None:
    """Devices of the block of :func:`rows_over` around the caller, or None."""
    return _MESH.get()


def writes() -> bool:
    """Whether this process is the one that writes files."""
    return current_mesh() is None or jax.process_index() == 0


class Share(NamedTuple):
    """Which part of the reading is that of this process."""

    index: int
    count: int
    """Processes that read."""
    devices: int
    """Devices of each."""


ALONE = Share(0, 1, 1)


def reading_share(n_blocks: int) -> Share:
    """The share of this process in reading so many blocks for a fit over all processes.

    The devices of a process stand next to each other, so that the rows it has read are those of its
    own devices.
    """
    share = _share_of(current_mesh())
    return share if n_blocks >= share.count else ALONE


def own_rows(n_rows: int, mesh: Mesh | None) -> slice:
    """Those of so many rows that :func:`spread` puts on the devices of this process."""
    share = _share_of(mesh)
    each = -(-n_rows // (share.count * share.devices)) * share.devices
    if share.count == 1:
        return slice(0, n_rows)
    return slice(min(share.index * each, n_rows), min((share.index + 1) * each, n_rows))


def _share_of(mesh: Mesh | None) -> Share:
    if mesh is None or not mesh.is_multi_process:
        return ALONE
    order = [device.process_index for device in mesh.devices.flat]
    members, size = list(dict.fromkeys(order)), len(order)
    even = [one for one in members for _ in range(size // len(members))] == order
    if not even or len(members) < jax.process_count():
        return ALONE
    return Share(members.index(jax.process_index()), len(members), size // len(members))


def exchanged(arrays: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Arrays of every process, by name, of any shapes."""
    from jax.experimental.multihost_utils import process_allgather

    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    mine = np.frombuffer(file.getvalue(), np.uint8)
    sizes = np.ravel(process_allgather(np.array([len(mine)], np.int32)))
    every = process_allgather(np.pad(mine, (0, int(sizes.max()) - len(mine))))
    found = []
    for line, size in zip(np.asarray(every), sizes, strict=True):
        with np.load(io.BytesIO(line[:size].tobytes()), allow_pickle=False) as parts:
            found.append({name: parts[name] for name in parts.files})
    return found


def of_all(value: Any, share: Share) -> list[np.ndarray]:
    """An array of every process that has a share, in their order."""
    if share.count == 1:
        return [np.asarray(value)]
    return [one["value"] for one in exchanged({"value": np.asarray(value)})]


def total(value: Any, share: Share) -> np.ndarray:
    """The sum of an array over all processes that have a share: the same bits in each."""
    return np.sum(of_all(value, share), axis=0)


def spread(tree: Any, mesh: Mesh, axis: int = 0) -> Any:
    """Arrays with their rows (along ``axis``) spread over a mesh, filled up with zeros to fit.

    Every process hands its devices their part and no more.
    """

    def one(leaf: Any) -> jax.Array:
        host = np.asarray(leaf)
        missing = -host.shape[axis] % mesh.size
        if missing:
            host = np.pad(host, [(0, missing if a == axis else 0) for a in range(host.ndim)])
        spec = PartitionSpec(*[None] * axis, AXIS)
        place = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(host.shape, place, lambda index: host[index])

    return jax.tree.map(one, tree)


def summed(tree: Any) -> Any:
    """Inside of a ``shard_map`` over rows: the sums over all devices, in one exchange.

    The compiler would exchange leaf by leaf, and each takes longer than the numbers in it.
    """
    flat, restored = ravel_pytree(tree)
    return restored(jax.lax.psum(flat, AXIS))


def gathered(tree: Any) -> Any:
    """Arrays that are the same on all devices, as arrays of this process."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def dividing(mesh: Mesh, n_rows: int) -> Mesh:
    """As many devices of a mesh as cut ``n_rows`` rows into equal parts."""
    if mesh.is_multi_process:
        raise ValueError(
            "rows of this model can be spread over the devices of one process, not of several: "
            "name them, rows_over(jax.local_devices())."
        )
    size = max(n for n in range(1, mesh.size + 1) if n_rows % n == 0)
    return Mesh(mesh.devices[:size], (AXIS,))


@contextmanager
def in_company() -> Iterator[None]:
    """Turn the failure of a fit whose other processes are gone into a sentence."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        mesh = current_mesh()
        if mesh is None or not mesh.is_multi_process:
            raise
        raise LostProcessError(
            "another process of this fit has ended or cannot be reached. Start all of them again: "
            "with checkpoint=, the fit continues from where it was saved."
        ) from error


def n_threads() -> int:
    """Threads that a fit or a prediction may use.

    Those of ``joblib.parallel_config(n_jobs=...)`` where a caller set them (-1 is all cores, -2 all
    but one), and otherwise all cores, or this process's share of them: joblib starts the processes
    of a search with ``OMP_NUM_THREADS`` set to it.
    """
    from joblib.parallel import get_active_backend

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    wanted: Any = get_active_backend()[1]
    if wanted:
        wanted = int(wanted)
        return wanted if wanted > 0 else max(cores + 1 + wanted, 1)
    share = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(share), cores) if share.isdigit() and int(share) else cores


def in_own_threads(fit: Callable[_P, _Fitted]) -> Callable[_P, _Fitted]:
    """A fit with as many threads as ``n_jobs`` of the model, where that is given."""

    @wraps(fit)
    def limited(*args: _P.args, **kwargs: _P.kwargs) -> _Fitted:
        from joblib import parallel_config

        model: Any = args[0]
        if model.n_jobs is None:
            return fit(*args, **kwargs)
        with parallel_config(n_jobs=model.n_jobs):
            return fit(*args, **kwargs)

    return limited
