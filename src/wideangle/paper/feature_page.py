"""From records to the page of latent features.

``python -m wideangle.paper.feature_page results/paper docs/feature-results.md`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from wideangle.datasets import MANIFEST
from wideangle.paper import feature_verdicts as verdicts
from wideangle.paper.feature_methods import SUITE
from wideangle.paper.feature_metrics import HIDDEN, MOST_SCORED
from wideangle.paper.feature_tables import feature_grids
from wideangle.paper.page import where
from wideangle.paper.records import Record, read_all
from wideangle.paper.tables import data_sets

HEAD = f"""# Latent features on real data

Written from the records in `results/paper/features` by `python -m wideangle.paper.feature_page
results/paper docs/feature-results.md`; every number and every judgement is computed from them.
`wideangle reproduce features` makes the records.

How to read it. As in the paper, 70 % of the rows are learned from, columns are centred, alpha is 2,
and the noise has half the standard deviation of the entries. IBP-LFM and PYP-LFM have Gaussian
features. IMA-LFM has the paper's kappa of 1. `polar` is IMA-LFM with kappa 0, so that it differs
from IMA-LFM by the angles alone and from IBP-LFM by the law of the lengths alone. The IMA-cosine
rows have a kappa that grows with the dimension, so that the expected cosine against the features
before is minus that number.

Log-likelihood is that of a held-out row with its assignments summed out (of at most {MOST_SCORED}
rows), higher is better; L2 error is the mean distance of held-out rows from their reconstruction;
hidden entries are {100 * HIDDEN:.0f} % of held-out rows, predicted from the rest of the row.
Clustering is k-means on the activations of held-out rows. Components are features that matter and
that most draws have; features per draw counts all. Loss is minus log-likelihood; differences of it
are paired by held-out row, or by seed where there are several, and count beyond two standard
errors. Errors over the rows of one fit leave out what another fit would have given. R-hat far above
1 says that chains explain the rows in different ways."""


def render(folder: Path) -> str:
    """The whole page."""
    records = list(read_all(folder, SUITE))
    parts = [HEAD, "\n## In short\n", *_list(verdicts.overall(records))]
    for data in data_sets(records):
        parts += list(_section(records, data, folder))
    parts += ["\n## Where it was run\n", *_list(where(records))]
    return "\n".join(parts) + "\n"


def _section(records: Sequence[Record], data: str, folder: Path) -> Iterable[str]:
    entry = MANIFEST.get(data)
    yield f"\n## {entry.title if entry else data}\n"
    part = [record for record in records if record.cell.data == data]
    one = part[0]
    effort, sizes = one.cell.effort, one.metrics
    status = f"{entry.status.capitalize()}. " if entry else ""
    yield (
        f"{status}{sizes['n_train']} rows to learn from, {sizes['n_test']} held out; "
        f"{effort.n_chains} chains of {effort.n_warmup} + {effort.n_draws} sweeps."
    )
    for grid in feature_grids(records, data):
        yield f"\n{grid.title.partition(': ')[2].capitalize()}:\n"
        yield grid.markdown()
    lines = [
        *verdicts.against_baselines(records, data),
        *verdicts.lengths(records, data),
        *verdicts.angles(records, data),
        *_rows_themselves(part),
    ]
    if lines:
        yield "\nWhat this says:\n"
        yield from _list(lines)
    for record in part:
        if record.cell.method == verdicts.PAPER_MODEL and _picture(record).is_file():
            yield f"\nFirst components of {record.cell.method}, with their share of rows:\n"
            yield f"![features of {data}](images/{data}-features.png)"
            break
    for record in part:
        words = record.path.with_suffix(".md")
        if record.cell.method == verdicts.PAPER_MODEL and words.is_file():
            yield f"\nWords of the first components of {record.cell.method}:\n"
            yield "\n".join(words.read_text(encoding="utf-8").splitlines()[:12])
            break


def _rows_themselves(records: Sequence[Record]) -> list[str]:
    """k-means without any features, on the same rows."""
    first = records[0].metrics
    if "nmi_of_rows" not in first:
        return []
    return [
        f"k-means on the held-out rows themselves (seed {records[0].cell.seed}): accuracy "
        f"{first['clustering_accuracy_of_rows']:.1f} %, NMI {first['nmi_of_rows']:.1f} %."
    ]


def _list(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _picture(record: Record) -> Path:
    return record.path.with_suffix(".png")


def main(arguments: list[str]) -> None:
    """Read the records, write the page, put one picture of each data set beside it."""
    folder, page = map(Path, arguments)
    records = [r for r in read_all(folder, SUITE) if r.cell.method == verdicts.PAPER_MODEL]
    for record in reversed(records):  # the first seed last
        if _picture(record).is_file():
            target = page.parent / "images" / f"{record.cell.data}-features.png"
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(_picture(record).read_bytes())
    page.write_text(render(folder), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
