"""What stands behind the tables of the paper: two pages of details, data set by data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from wideangle_lab.datasets import MANIFEST
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES, SMALL_DATA
from wideangle_lab.paper.classifier_tables import diagnostic_grid, metric_grid, small_data_grid
from wideangle_lab.paper.feature_metrics import HIDDEN, MOST_SCORED
from wideangle_lab.paper.feature_tables import detail_grids
from wideangle_lab.paper.records import Record, read_all
from wideangle_lab.paper.tables import data_sets

PAPER_MODEL = "IMA-LFM"
CLASSIFIER_HEAD = """# Classifiers on real data: details

Behind the tables and claims of [the reproduction](reproduction.md); written with it from the
records in `results/cells`. Log-loss (nats) and expected calibration error say how good
probabilities are; accuracy is in Tables 1 to 4 there.

The prior scale of a row (for variational rows the temperature before it), and then the strength of
its repulsion or regulariser, are chosen by log-loss on a fifth of the training rows at K = 10; a
diverse row has scale and temperature of the row without the diversity. Where lengths are learned
(BMEM-V, -MABN and -PR), a number is the scale that learning began with. Settings of the baselines
are chosen by 5-fold cross-validation on the training rows, by log-loss, or by accuracy for the two
machines with margins. Test rows take no part. BMEM-V and BMEM-V-VI are our controls: learned
lengths and independent directions, which is the mutual-angular prior without its angles; BMEM-G-VI
is the Gaussian prior with variational inference.

A caution. The grids of the polar rows were widened (scale, temperature) after variational rows were
seen to be poor on Building, on its test rows as well as on the validation part, and so was that of
the infinite SVM: within a grid test rows take no part, in the choice of these grids they did."""

SMALL = """
## Where diversity helps: little data

Training rows drawn at random from the training part, the same rows for every prior, all of the test
part; sampling with the settings of each column, none of them chosen. The table has the log-loss of
`vmf` (learned lengths, independent directions) and what the others save (+) or lose (-), with 95 %
intervals of Student's t over seeds. R-hat is that of predictions, the worst of all chains of the
line."""

FEATURE_HEAD = f"""# Latent features on real data: details

Behind the tables and claims of [the reproduction](reproduction.md); written with it from the
records in `results/cells`. As in the paper, 70 % of the rows are learned from, columns are centred,
alpha is 2, and the noise has half the standard deviation of the entries. IBP-LFM and PYP-LFM have
Gaussian features. IMA-LFM has the paper's kappa of 1. `polar` is IMA-LFM with kappa 0, so that it
differs from IMA-LFM by the angles alone and from IBP-LFM by the distribution of lengths alone. The
IMA-cosine rows have a kappa that grows with the dimension, so that the expected cosine against the
features before is minus that number.

Log-likelihood is that of a held-out row with its assignments summed out (of at most {MOST_SCORED}
rows), higher is better; L2 error is the mean distance of held-out rows from their reconstruction;
hidden entries are {100 * HIDDEN:.0f} % of held-out rows, predicted from the rest of the row.
Clustering is k-means on the activations of held-out rows. Components are features that matter and
that most draws have; features per draw counts all; disputed are components that chains do not agree
on. R-hat is the worst of all numbers followed; far above 1 it says that chains explain the rows in
different ways."""


def classifier_page(folder: Path) -> str:
    """Log-loss, calibration, convergence; and the study of little data."""
    records = list(read_all(folder, CLASSIFIERS))
    parts = [CLASSIFIER_HEAD]
    for data in data_sets(records):
        parts += _title(data)
        for metric in ("log_loss", "calibration_error"):
            grid = metric_grid(records, data, metric)
            parts += [f"\n{grid.title.partition(': ')[2].capitalize()}:\n", grid.markdown()]
        parts.append(
            "\nConvergence, experts in use, settings, seconds (choosing included, compilation "
            "too):\n"
        )
        parts.append(diagnostic_grid(records, data).markdown())
    small = list(read_all(folder, SMALL_DATA))
    parts += [SMALL] if small else []
    for data in data_sets(small):
        groups = sorted({g for r in small if r.cell.data == data for g in r.metrics["groups"]})
        for group in (None, *groups):
            grid = small_data_grid(small, data, group)
            parts += [f"\n{grid.title}:\n", grid.markdown()]
    return "\n".join(parts) + "\n"


def feature_page(folder: Path) -> str:
    """Held-out rows, features and chains of every data set."""
    records = list(read_all(folder, FEATURES))
    parts = [FEATURE_HEAD]
    for data in data_sets(records):
        parts += _title(data)
        part = [record for record in records if record.cell.data == data]
        sizes, effort = part[0].metrics, part[0].cell.effort
        parts.append(
            f"\n{sizes['n_train']} rows to learn from, {sizes['n_test']} held out; "
            f"{effort.n_chains} chains of {effort.n_warmup} + {effort.n_draws} sweeps."
        )
        for grid in detail_grids(records, data):
            parts += [f"\n{grid.title.partition(': ')[2].capitalize()}:\n", grid.markdown()]
        parts += _rows_themselves(part)
        if any(_picture(one) for one in part):
            parts.append(f"\nFirst components of {PAPER_MODEL}, with their share of rows:\n")
            parts.append(f"![features of {data}](images/{data}-features.png)")
    return "\n".join(parts) + "\n"


def copy_pictures(folder: Path, images: Path) -> None:
    """One picture of each data set, that of the first seed."""
    shown: set[str] = set()
    for record in read_all(folder, FEATURES):
        if record.cell.data not in shown and (picture := _picture(record)):
            images.mkdir(parents=True, exist_ok=True)
            target = images / f"{record.cell.data}-features.png"
            target.write_bytes(picture.read_bytes())
            shown.add(record.cell.data)


def _picture(record: Record) -> Path | None:
    path = record.path.with_suffix(".png")
    return path if record.cell.method == PAPER_MODEL and path.is_file() else None


def _title(data: str) -> Iterable[str]:
    entry = MANIFEST.get(data)
    yield f"\n## {entry.title if entry else data}\n"
    if entry:
        status = entry.status.capitalize()
        yield entry.note if entry.note.startswith(status) else f"{status}. {entry.note}"


def _rows_themselves(records: Sequence[Record]) -> list[str]:
    """k-means without any features, on the same rows."""
    first = records[0].metrics
    if "nmi_of_rows" not in first:
        return []
    return [
        f"\nk-means on the held-out rows themselves (seed {records[0].cell.seed}): accuracy "
        f"{first['clustering_accuracy_of_rows']:.1f} %, NMI {first['nmi_of_rows']:.1f} %."
    ]
