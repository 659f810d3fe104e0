"""The words of docs/scaling.md; its figures are in ``page.py``."""

BEGIN = """# How far it scales

Written from the records of `python -m wideangle_lab.bench.scale` (and `wideangle_lab.bench.device`
for the GPU) by `python -m wideangle_lab.bench.scale.page`.
"""

DEVICES = """
## Rows on disk

```python
import numpy as np
from wideangle import MixtureOfExpertsClassifier, Variational
from wideangle.streaming import NpyRows

generator = np.random.default_rng(0)
X = generator.normal(size=(5000, 4)).astype("float32")
np.save("X.npy", X)
np.save("y.npy", (X[:, 0] * X[:, 1] > 0).astype("int8"))

vi = Variational(n_starts=2)
model = MixtureOfExpertsClassifier(n_experts=4, inference=vi, random_state=0)
model.fit_stream(NpyRows("X.npy", "y.npy"))
for proba in model.predict_proba_stream(NpyRows("X.npy")):
    pass  # a block at a time
```

- **Sources.** `NpyRows` reads `.npy` files, `ParquetRows(path, target="label")` row groups of one
  or many Parquet files (extra `tables`). Anything with `shape`, `starts`, `dtype`, `names` and
  `read(block)` is a source.
- **Order.** Every pass takes the blocks of the file in a new random order, fills a buffer
  (`buffer_bytes`, 64 MiB), and deals its rows out in random order. Each row is in exactly one
  minibatch of a pass, so the mean over a pass of the objective is exactly that of all rows. Where
  the file is sorted, blocks should be small against the buffer: write Parquet with small row
  groups.
- **One look before.** A first pass finds the classes, the scale of every column, bad entries
  (named by row and column), and a sample from which starts, bound and diagnostics come; the error
  of the bound says that it was a sample.
- **Memory**: the buffer, two calls of minibatches (32 MiB each), the sample (32 MiB), and JAX. A
  test fits five times the rows in the same memory.
- `LatentFeatureModel().fit_stream(source)` sweeps over all rows exactly, in blocks, as rows in
  memory would be (a test compares the draws); assignments stand in a file. Only births and deaths
  of features outside the slice, which look at all rows at once, are left out.
- Ctrl-C, progress and, for VI, `checkpoint=` are as elsewhere.

## Many devices, many machines

```python
from wideangle.sharding import rows_over

with rows_over():  # all devices that JAX sees
    model.fit(X, X[:, 0] * X[:, 1] > 0)
```

Rows of every minibatch (VI) or of the whole data (MCMC) are cut into as many parts as there are
devices; weights are on each. A gradient is a sum on every device and one exchange. On several
machines every process calls `wideangle.sharding.join("host:port", n_processes, process)` first
and then runs the same lines with the same data; process 0 writes the checkpoint. When a process
dies, the others end within `patience_seconds` (30), with `LostProcessError` or, where JAX
notices first, by its own message; started again, on any number of devices, the fit goes on from its
checkpoint. Tests do this with four devices, with two processes, and with `kill -9`.
"""

UNMEASURED = """
Efficiency is measured by `python -m wideangle_lab.bench.scale --part shares` on an idle machine;
the record has none yet.
"""

MODEL = """
## The cost model

Stochastic VI with K experts, S starts and p columns on N rows, R passes, takes

`begin + N p look + R N (row + column p + product S K p + curve S K)`

core seconds (those of all cores together): programs to read and compile; a first look at every
entry; and for each row of a pass its fetching, its scaling, its matrix products and its
exponentials. The constants are fitted to seven fits of 65,536 rows
(`wideangle_lab/bench/scale/pace.py`). A feature sweep takes N times a constant at a given number
of columns and features, measured on a thirtieth of the rows.
"""

LIMITS = """
## Limits

- MCMC and MAP need all rows in the memory of every process; on devices MCMC holds a part each.
- A streamed fit over several processes reads all rows in each of them: exchange is parallel,
  reading is not. Disks shared by machines set the pace then.
- The feature sampler spreads dense rows over the devices of one process, as many as cut them into
  equal parts; not over processes.
- The files measured here had just been written and stood in the cache of the system. Reading from
  a disk adds bytes over bandwidth a pass (features: twice a sweep).
- Sparse rows are not streamed.
"""
