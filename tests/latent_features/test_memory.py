"""The memory of a fit of sparse rows: no dense copy of them, nothing of size N x N."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, warnings
import numpy as np
from scipy import sparse
from wideangle import LatentFeatureModel, Sampling
warnings.simplefilter("ignore")
n_rows, n_columns = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
X = sparse.random(n_rows, n_columns, 20 / n_columns, format="csr", rng=rng, dtype=np.float32)
model = LatentFeatureModel(
    inference=Sampling(n_warmup=2, n_draws=1, n_chains=1, thin=2, max_features=4),
    random_state=0, verbose=False,
).fit(X)
model.transform(X[:10])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak_mib(*shape):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, shape)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    return float(done.stdout)


@pytest.mark.slow
def test_sparse_rows_need_no_dense_copy_and_nothing_quadratic(compile_quickly):
    more = peak_mib(10_000, 10_000) - peak_mib(500, 10_000)
    quadratic_or_dense = 10_000 * 10_000 * 4 / 2**20
    assert more < quadratic_or_dense / 4
