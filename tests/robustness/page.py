"""Write docs/faults.md: ``python -m robustness.page results/faults docs/faults.md``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HEAD = """# Robustness

What happens when a process is killed, a disk is full, a file is damaged or input is invalid. Every
number comes from a record in `results/faults`, written by the command that is given with it.
`python -m robustness.page` (with `tests` on the path) writes this page. `make test` runs a part of
these checks, and `make slow` all of them (`tests/robustness`).
"""
TAIL = """
## Full disk, read-only folder

The tests make each write, flush, rename and folder creation of a save, a run and a checkpoint fail
in turn, with the errors of a disk that is full, over quota, read-only, not permitted or broken.
Earlier files do not change, no file is left incomplete, and the error names the file and the
reason. If the first checkpoint cannot be written, the fit stops before any sweep; if a later one
cannot, the fit continues with a warning.

## What is an error, and what is not

* Numbers that are not finite, labels that are not classes, and weights that are negative or not
  numbers are errors. NaN in X is missing data, except for `SphericalMixture`.
* Weights that add up to more than 1e12, data for `LatentFeatureModel` beyond 1e±120, and settings
  beyond single precision are errors, with the allowed range in the message.
* These can be fitted, with finite results and probabilities that add up to 1: one row, one column,
  one class, equal rows, constant columns, a class with one row and, in the mixture, columns of
  1e-300 together with columns of 1e300. Latent features of one column need
  `prior="gaussian"`, since directions need two.
* A model file is arrays and JSON with a checksum of every byte. A file with a valid checksum but
  inconsistent contents is an error when it is loaded. No code from the file is run.
* A killed process may leave a `.wideangle-*.tmp` file in the same folder, which can be deleted.

Ctrl-C keeps the draws or the state so far, with a warning. Chains and variational fits with a
`checkpoint` resume and give bit-identical results. A run of many fits survives the
loss of a worker: see [on a cluster](cluster.md).
"""
NAMES = {
    "mcmc": "mixture of experts, MCMC", "features": "latent features",
    "automatic": "automatic run length", "warm": "warm start", "regressor": "regressor, MCMC",
    "clusters": "clusters of directions, MCMC", "parquet": "Parquet file, VI",
    "sharded": "rows over two devices, VI",
    "fuzz-experts": "fits of the mixture of experts", "fuzz-features": "fits of latent features",
    "fuzz-experts-files": "files of mixtures", "fuzz-features-files": "files of feature models",
}  # fmt: skip


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def killed(records: list[dict[str, Any]]) -> str:
    """Trials by estimator and phase, of all records together."""
    columns = ("trials", "killed", "with_checkpoint", "old_model", "new_model", "wrong")
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in (row for record in records for row in record["summary"]):
        counts.setdefault((row["estimator"], row["phase"]), Counter()).update(
            {name: row[name] for name in columns}
        )
    rows = [
        [NAMES[name], phase, *(c[one] for one in columns)] for (name, phase), c in counts.items()
    ]
    total = sum(counts.values(), Counter())
    seeds = ", ".join(str(record["seed"]) for record in records)
    head = [
        "model",
        "killed in",
        "trials",
        "still running",
        "left a checkpoint",
        "old model",
        "new model",
    ]
    return f"""
## Killed at random moments

{total["trials"]} processes got `kill -9` at a random moment; {total["killed"]} of them were still
running. **{total["wrong"]} failed a check.** After each kill, the model file must hold the complete
old model or the complete new one. A fit that is started again must give the same draws, bit for
bit, as an uninterrupted fit, and leave no other file. Clusters of directions write no checkpoint:
they start again from the beginning. Command: `python -m robustness.killing --seed S`, seeds
{seeds}.

{table([*head, "failed"], rows)}{failures(records)}"""


def failures(records: list[dict[str, Any]]) -> str:
    """What went wrong after which kills, as of the time of the record."""
    lines = [
        f"* seed {record['seed']}, {NAMES[trial['estimator']]}: {'; '.join(trial['wrong'])}\n"
        for record in records
        for trial in record.get("trials", [])
        if trial["wrong"]
    ]
    return "\nFailures (mended since; the trials with a higher seed are later):\n\n" * bool(
        lines
    ) + "".join(lines)


def fuzzed(records: dict[str, dict[str, Any]]) -> str:
    """Outcomes by part."""
    rows, total = [], 0
    for name, record in records.items():
        found = record["outcomes"]
        total += record["examples"]
        part, *_ = name.split(".")  # fuzz-PART.SEED: more of the same
        rows.append([NAMES[part], record["examples"], record["seed"], found.get("right", 0),
                     found.get("refused", 0), found.get("defect", 0)])  # fmt: skip
    return f"""
## Fuzzed inputs

{total:,} inputs drawn by Hypothesis (`python -m robustness.fuzz PART --examples N --seed S`): rows
of any size, type and layout, labels, weights and settings; files that were damaged, or forged with
a valid checksum. *Right*: every prediction is finite, probabilities add up to 1, the model can be
saved and loaded, and every warning comes from this library. *Refused*: an error from a check of
this library, and not from inside NumPy or JAX.

{table(["what", "inputs", "seed", "right", "refused", "anything else"], rows)}{found_by(records)}"""


def found_by(records: dict[str, dict[str, Any]]) -> str:
    """Defects that the inputs of a record found, as of the time of the record."""
    lines = [
        f"* seed {record['seed']}, {NAMES[name.split('.')[0]]}: `{defect}`\n"
        for name, record in records.items()
        for defect in record["defects"]
    ]
    return "\nDefects that these runs found (before they were fixed):\n\n" * bool(lines) + "".join(
        lines
    )


def same_draws(record: dict[str, Any]) -> str:
    """Threads and jobs."""
    differ = [f"{one} ({where})" for where, found in record["differ"].items() for one in found]
    names = "; ".join(record["differ"])
    first = next(iter(record["differ"]))
    return f"""
## Threads and jobs

`python -m robustness.draws` on {record["cores"]} cores: {len(record["models"])} fits (every
inference of both models), each repeated in processes with {names}. Fits whose draws differ from
those with {first}: {"; ".join(differ) or "none"}.
"""


def two_devices(records: list[dict[str, Any]]) -> str:
    """CPU against GPU."""
    cases = [case for record in records for case in record["cases"]]
    rows = [
        [c["case"], " and ".join(c["devices"]), c["numbers"], f"{c['farthest']:.1f}"] for c in cases
    ]
    return f"""
## CPU and GPU

`python -m robustness.devices`: rounding differs between devices, and so do draws; their
distribution must not. The table compares means of quantities that do not depend on the labels of
components, from independent seeds, in standard errors (limit {records[0]["limit"]:.0f}).

{table(["posterior", "devices", "numbers compared", "largest distance"], rows)}"""


def soaked(records: list[dict[str, Any]]) -> str:
    """Many fits and predictions in one process."""
    rows = []
    for record in records:
        turn, at_once, said = record["in_turn"], record["at_once"], record["predictions"]
        grown = (said["end"]["bytes"] - said["begun"]["bytes"]) / 2**20
        rows.append([
            turn["fits"], turn["fits"] // 2,
            f"{turn['per_fit']['bytes'] / 2**20:.2f} MiB", turn["end"]["maps"],
            at_once["wrong"], f"{said['seconds']:.0f} s", f"{said['calls']:,}", said["wrong"],
            f"{grown:.1f} MiB", "; ".join(record["complaints"]) or "none",
        ])  # fmt: skip
    return f"""
## Many fits and predictions in one process

`python -m robustness.soak`: fits of four models in tables of many shapes, of which the second half
repeats the first; eight fits in threads at once, compared with the same fits alone; one model that
predicts in four threads, each prediction compared with the first. Linux allows 65,530 memory maps.
A few repeated fits say little about growth: the first ones allocate what later ones use again.

{
        table(
            [
                "fits",
                "of them repeated",
                "more memory after each of these",
                "memory maps at the end",
                "fits in threads that differ",
                "predictions in threads for",
                "calls",
                "that differ",
                "more memory",
                "complaints",
            ],
            rows,
        )
    }"""


def page(folder: Path) -> str:
    """The page from the records there are."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    text = HEAD
    if kills := [record for name, record in found.items() if name.startswith("kill")]:
        text += killed(kills)
    fuzz = {name: record for name, record in found.items() if name.startswith("fuzz-")}
    if fuzz:
        text += fuzzed(fuzz)
    if soaks := [record for name, record in found.items() if name.startswith("soak")]:
        text += soaked(soaks)
    if "determinism" in found:
        text += same_draws(found["determinism"])
    devices = [record for name, record in found.items() if name.startswith("devices")]
    if devices:
        text += two_devices(devices)
    return text + TAIL


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(page(Path(sys.argv[1])), encoding="utf-8")
