"""How many threads a fit or a prediction may use.

No result depends on it: whatever is divided among threads is divided in the same way for any number
of them.
"""

from __future__ import annotations

import os
from typing import Any


def n_threads(n_jobs: int | None = None) -> int:
    """``n_jobs`` as in scikit-learn: -1 is all cores, -2 all but one.

    None is that of ``joblib.parallel_config(n_jobs=...)`` where a caller set one, and otherwise all
    cores, or this process's share of them: joblib starts the processes of a search with
    ``OMP_NUM_THREADS`` set to it.
    """
    from joblib.parallel import get_active_backend

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    wanted: Any = n_jobs or get_active_backend()[1]
    if wanted:
        return wanted if wanted > 0 else max(cores + 1 + wanted, 1)
    share = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(share), cores) if share.isdigit() and int(share) else cores
