"""From records to the page of results.

``python -m wideangle.paper.page results/paper docs/results.md`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from wideangle.datasets import MANIFEST
from wideangle.paper import verdicts
from wideangle.paper.records import Record, read_all
from wideangle.paper.tables import (
    data_sets,
    diagnostic_grid,
    metric_grid,
    nine_grid,
    small_data_grid,
)

HEAD = """# Results on real data

Written from the records in `results/paper` by `python -m wideangle.paper.page results/paper
docs/results.md`; every number and every judgement below is computed from them. `wideangle reproduce
classifiers small-data` makes the records: accuracy, log-loss and calibration on the same split for
all rows.

How to read it. Numbers in square brackets are those that the paper prints. The prior scale of a row
(for variational rows the temperature before it), and then the strength of its repulsion or
regulariser, are chosen by log-loss on a fifth of the training rows at K = 10; a diverse row has
scale and temperature of the row without the diversity. Settings of the baselines are chosen by
5-fold cross-validation on the training rows. Test rows take no part. A number with "(R-hat 1.05)"
or "(ESS 40)" comes from chains whose predictions have not converged by the usual limits (1.01, and
100 per chain). Differences are paired over the same test rows, negative means that the first is
better, and "better" or "worse" is said beyond two standard errors. BMEM-V and BMEM-V-VI are our
controls: learned lengths and independent directions, which is the mutual-angular prior without its
angles. Log-loss is in nats.

Two cautions. The grids of the polar rows were widened (scale, temperature) after variational rows
were seen to be poor on Building, on its test rows as well as on the validation part: within a grid
test rows take no part, in the choice of these grids they did. And errors of paired differences are
over test rows; with one seed they do not hold the spread between fits, so a clear difference in the
fourth digit may be another one with another seed."""

SMALL = """
## Where diversity helps: little data

Training rows drawn at random from the training part, the same rows for every prior, all of the test
part; sampling with the settings of each column, none of them chosen. The table has the log-loss of
`vmf` (learned lengths, independent directions) and what the others have more (+) or less (-), with
standard errors over seeds; few seeds need a larger difference (Student's law). R-hat is that of
predictions, the worst of all chains of the line."""


def render(folder: Path) -> str:
    """The whole page."""
    records = list(read_all(folder, "classifiers"))
    parts = [HEAD]
    for data in data_sets(records):
        parts += list(_section(records, data))
    small = list(read_all(folder, "small-data"))
    if small:
        parts.append(SMALL)
    for data in data_sets(small):
        groups = sorted({g for r in small if r.cell.data == data for g in r.metrics["groups"]})
        for group in (None, *groups):
            grid = small_data_grid(small, data, group)
            parts += [f"\n{grid.title}:\n", grid.markdown(), ""]
            parts += _list(verdicts.small_data(small, data, group))
    parts += ["\n## Where it was run\n", *_list(where([*records, *small]))]
    return "\n".join(parts) + "\n"


def _section(records: Sequence[Record], data: str) -> Iterable[str]:
    entry = MANIFEST.get(data)
    yield f"\n## {entry.title if entry else data}\n"
    if entry:
        status = entry.status.capitalize()
        yield entry.note if entry.note.startswith(status) else f"{status}. {entry.note}"
    for metric in ("accuracy", "log_loss", "calibration_error"):
        grid = metric_grid(records, data, metric, paper=True)
        yield f"\n{grid.title.partition(': ')[2].capitalize()}:\n"
        yield grid.markdown()
    if data == "rcv1_subsets":
        grid = nine_grid(records)
        yield f"\n{grid.title}:\n"
        yield grid.markdown()
    lines = [
        *verdicts.best_and_baselines(records, data),
        *verdicts.against_the_paper(records, data),
        *verdicts.diversity_alone(records, data),
        *verdicts.few_against_many(records, data),
        *(verdicts.rare_categories(records) if data == "rcv1_subsets" else []),
    ]
    yield "\nWhat this says:\n"
    yield from _list(lines)
    yield "\nConvergence, experts in use, settings, seconds (choosing included, compilation too):\n"
    yield diagnostic_grid(records, data).markdown()


def where(records: Sequence[Record]) -> list[str]:
    """Machines, versions and commits that occur, each once."""
    lines = {}
    for record in records:
        machine, versions = record.data["machine"], record.data["versions"]
        device = record.data.get("device")
        names = {"python": "Python", "jax": "JAX", "numpy": "NumPy"}
        names |= {"scikit-learn": "scikit-learn"}
        used = ", ".join(f"{name} {versions.get(key)}" for key, name in names.items())
        place = f"{machine['cores']} cores of {machine['processor']}, {device}"
        lines[f"{place}; {used}; commit {record.data.get('commit') or 'unknown'}."] = None
    return list(lines)


def _list(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def main(arguments: list[str]) -> None:
    """Read the records, write the page."""
    folder, page = map(Path, arguments)
    page.write_text(render(folder), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
