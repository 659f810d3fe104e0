"""From records to ``docs/trust.md``: tables of cases and faults, and pictures of ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wideangle_lab.calibration import cases
from wideangle_lab.calibration.ranks import INTERVALS
from wideangle_lab.calibration.verdicts import LIMIT, RARE

Record = dict[str, Any]
IMAGES = "images/calibration"
TITLES = {
    "experts": "Mixture of experts, sampled",
    "features": "Latent features, sampled",
    "variational": "Mixture of experts, variational",
}
ABOUT = {
    "experts": "Three experts, three columns, 24 rows; two classes where nothing is said. `hmc` is "
    "the default of `MixtureOfExpertsClassifier`, `metropolis` the paper's walk.",
    "features": "Four rows in the plane, 3 features in use on average, their number unknown. "
    "*together* means Hamiltonian moves of all directions at once, as on a GPU; *learned*, that "
    "mass, noise, concentration and rate are drawn too. The mutual-angular prior needs an order of "
    "the features and the Pitman-Yor process gives none: that pair does not exist. Arrays have "
    "fixed room here; the share of sweeps that would have needed more is below {overflow:.1g}.",
    "variational": "The same problems. `vmf` and `diagonal` are families of the default fit, four "
    "starts, `coordinate` is the paper's coordinate ascent. These fits are approximations: nothing "
    "here passes or fails by its ranks. Coverage is the share of truths inside the central "
    "intervals of 50, 80 and 95 %, averaged over the quantities; the worst quantity stands beside. "
    "A mean rank far from 0.5 is a shift. What must hold is that the bound lies below the log "
    "evidence, known here from draws of the prior.",
}
HEAD = """# Trust: calibration and known faults

Written from records by `make calibrate`; do not edit. Each number below is of one run with a fixed
seed, in float32, as users have it.

Two tests can fail a sampler; neither needs another sampler to compare with.

- **Ranks** (simulation-based calibration). Unknowns from the prior, data from the model, then draws
  of a chain with a start of its own, warmed up, tuned and thinned: if they are from the posterior,
  the rank of the truth among them is uniform. Each case has 12 to 25 quantities that do not depend
  on how components are numbered; each is tested by chi-square and by the largest excursion of the
  distribution function. The table has the smallest p-value times the number of tests, and the
  largest correlation of neighbouring draws. A case fails below {rare:g}.
- **Restarts** (Geweke's test with exact restarts). Unknowns and data from their joint distribution,
  then sweeps of the sampler in turn with fresh data: it must not change. The table has the largest
  change of a mean in standard errors. A case fails above {limit:g}.

The pictures show, for each case, the distribution function of the ranks minus the uniform one, one
line for each quantity, with the band that holds 95 % of uniform ranks all the way, and below it the
ranks of the quantity that did worst, with the range of a bar in 99 % of uniform sets. Of many cases
a few must leave such bands by chance.
"""
FAULTS = """
## Known faults, put in on purpose

What is wrong in the paper's formulas ([the list](paper-map.md)) and what is easily made wrong in
right ones, put into a copy of the code; the test that must notice; and the number it looked at,
which a fault pushes beyond the limit. `make calibrate` runs them all.

| fault | from | test | caught | found | limit |
|---|---|---|---|---:|---:|"""


def render(records: Sequence[Record], faults: Record | None) -> str:
    """The whole page."""
    parts = [HEAD.format(rare=RARE, limit=LIMIT), _summary(records, faults)]
    for area, title in TITLES.items():
        part = [record for record in records if cases.area_of(record["name"]) == area]
        if part:
            table = _fits(part) if area == "variational" else _samplers(part)
            picture = f"![Ranks: {title.lower()}]({IMAGES}/{area}.png)"
            about = ABOUT[area].format(overflow=_overflow(part))
            parts += [f"\n## {title}\n", about, "", *table, "", picture, "", _where(part)]
    if faults is not None:
        parts += [FAULTS, *map(_fault, faults["rows"]), "", _machine(faults)]
    return "\n".join(parts) + "\n"


def _summary(records: Sequence[Record], faults: Record | None) -> str:
    exact = [record for record in records if record["exact"]]
    n_ranks = sum(record["ranks"]["passed"] for record in exact)
    n_restarts = sum(record["restarts"]["passed"] for record in exact)
    words = [
        f"**{n_ranks} of {len(exact)}** samplers pass the test of ranks, "
        f"**{n_restarts} of {len(exact)}** that of restarts."
    ]
    if faults is not None:
        run = [row for row in faults["rows"] if row["caught"] is not None]
        words.append(f"**{sum(row['caught'] for row in run)} of {len(run)}** faults are caught.")
        if n_left := len(faults["rows"]) - len(run):
            words.append(f"{n_left} more have not been run for this record.")
    known = {record["name"] for record in records}
    if missing := [name for name in cases.CASES if name not in known]:
        words.append(f"Not measured yet: {', '.join(missing)}.")
    return " ".join(words)


def _overflow(records: Sequence[Record]) -> float:
    """Largest share of sweeps without room, rounded up to a power of ten."""
    shares = [record["ranks"]["notes"].get("overflow", 0.0) for record in records]
    return 10.0 ** math.ceil(math.log10(max(*shares, 1e-9)))


def _samplers(records: Sequence[Record]) -> Iterator[str]:
    yield (
        "| prior | sampler or process | ranks: p | worst quantity | data sets | "
        "autocorrelation | restarts: max \\|z\\| | worst quantity | starts | passed |"
    )
    yield "|---|---|---:|---|---:|---:|---:|---|---:|---|"
    for record in records:
        _, prior, other = record["name"].split("/")
        ranks, restarts = record["ranks"], record["restarts"]
        verdict = "yes" if ranks["passed"] and restarts["passed"] else "**no**"
        yield (
            f"| {prior} | {other} | {ranks['p_value']:.2g} | {ranks['worst']} | "
            f"{ranks['n_sets']} | {ranks['autocorrelation']:.2f} | "
            f"{abs(restarts['z'][restarts['worst']]):.2f} | {restarts['worst']} | "
            f"{restarts['n_starts']} | {verdict} |"
        )


def _fits(records: Sequence[Record]) -> Iterator[str]:
    wanted = " / ".join(f"{width:.0%}" for width in INTERVALS)
    yield (
        f"| prior | guide | coverage of {wanted} | of probabilities alone | worst quantity | "
        "its coverage | its mean rank | nats below the evidence: least, median, most | "
        "least in errors |"
    )
    yield "|---|---|---:|---:|---|---:|---:|---:|---:|"
    for record in records:
        _, prior, guide = record["name"].split("/")
        ranks = record["ranks"]
        worst, notes = ranks["quantities"][ranks["worst"]], ranks["notes"]
        gap = ", ".join(f"{value:.1f}" for value in notes["gap"])
        yield (
            f"| {prior} | {guide} | {_coverage(ranks)} | {_coverage(ranks, 'probability')} | "
            f"{ranks['worst']} | {_shares(worst['coverage'])} | {worst['mean']:.2f} | {gap} | "
            f"{notes['bound_z']:.1f} |"
        )


def _coverage(ranks: Record, beginning: str = "") -> str:
    """Mean over the quantities whose names begin so."""
    each = ranks["quantities"].items()
    every = [one["coverage"] for name, one in each if name.startswith(beginning)]
    return _shares([sum(column) / len(every) for column in zip(*every, strict=True)])


def _shares(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.0%}" for value in values)


def _fault(row: Record) -> str:
    numbers = row["measured"]
    caught = {True: "yes", False: "**no**", None: "not run"}[row["caught"]]
    found = f"{numbers[-1]['value']:.3g} ({_plain(numbers[-1]['what'])})" if numbers else ""
    limit = f"{numbers[-1]['limit']:.3g}" if numbers else ""
    test = row["test"].partition("::")
    where = f"`{test[0].removeprefix('tests/')}`, `{test[2].partition('[')[0]}`"
    return f"| {_plain(row['words'])} | {row['source']} | {where} | {caught} | {found} | {limit} |"


def _plain(words: str) -> str:
    """Words that do not end a cell of a table."""
    return words.replace("|", "\\|")


def _where(records: Sequence[Record]) -> str:
    seconds = sum(record["seconds"] for record in records)
    n_seeds = sorted({record["settings"]["seed"] for record in records})
    places = " ".join(dict.fromkeys(map(_machine, records)))
    return f"Seed {n_seeds[0]}; {seconds / 60:.0f} core minutes in all. {places}"


def _machine(record: Record) -> str:
    machine, versions = record["machine"], record["versions"]
    commit = record["commit"] or "unknown"
    return (
        f"On an {machine['processor']}, Python {versions['python']}, JAX {versions['jax']}; "
        f"commit {commit}."
    )


def write(folder: Path, docs: Path) -> None:
    """Page and pictures."""
    from wideangle_lab.calibration import pictures

    records = cases.read_all(folder)
    path = folder / "faults.json"
    faults = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    for area in TITLES:
        part = [record for record in records if cases.area_of(record["name"]) == area]
        if part:
            pictures.draw(part, docs / IMAGES / f"{area}.png")
    (docs / "trust.md").write_text(render(records, faults), encoding="utf-8")
