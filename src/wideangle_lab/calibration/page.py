"""Write ``docs/trust.md`` from records: tables of cases and faults, and pictures of ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wideangle_lab.calibration import cases
from wideangle_lab.calibration.ranks import INTERVALS
from wideangle_lab.calibration.verdicts import LIMIT, RARE
from wideangle_lab.marks import fill_page

Record = dict[str, Any]
REFERENCES = Path("tests/reference")
IMAGES = "images/calibration"
FAULT_COLUMNS = "| fault | from | test | caught | found | limit |\n|---|---|---|---|---:|---:|"
TITLES = {
    "experts": "Mixture of experts, sampled",
    "features": "Latent features, sampled",
    "clusters": "Clusters of directions, sampled",
    "variational": "Mixture of experts, variational",
}


def blocks(
    records: Sequence[Record], faults: Record, references: Path = REFERENCES
) -> dict[str, str]:
    """The generated parts of the page, by name."""
    found = {"summary": [_summary(records, faults)]}
    for area, title in TITLES.items():
        part = [record for record in records if cases.area_of(record["name"]) == area]
        table = _fits(part) if area == "variational" else _samplers(part)
        picture = f"![Ranks: {title.lower()}]({IMAGES}/{area}.png)"
        found[area] = [*table, "", picture, "", _where(part)]
    found["reference"] = [*_references(references)]
    found["faults"] = [
        FAULT_COLUMNS,
        *map(_fault, faults["rows"]),
        "",
        f"Measured on {_machine(faults)}.",
    ]
    return {name: "\n".join(lines) for name, lines in found.items()}


def _references(folder: Path) -> Iterator[str]:
    yield "| problem | independent sampler | draws | R-hat at most | effective draws at least |"
    yield "|---|---|---:|---:|---:|"
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        numbers = record["numbers"].values()
        chains, draws = record["shape"]
        yield (
            f"| {path.stem} | {record['sampler']} | {chains * draws} | "
            f"{max(one['rhat'] for one in numbers):.3f} | {min(one['ess'] for one in numbers)} |"
        )


def _summary(records: Sequence[Record], faults: Record) -> str:
    exact = [record for record in records if record["exact"]]
    n_ranks = sum(record["ranks"]["passed"] for record in exact)
    n_restarts = sum(record["restarts"]["passed"] for record in exact)
    words = [
        f"**{n_ranks} of {len(exact)}** samplers pass the test of ranks, "
        f"**{n_restarts} of {len(exact)}** that of restarts. A case fails the one if p is below "
        f"{RARE:g}, the other if a change is above {LIMIT:g} standard errors."
    ]
    run = [row for row in faults["rows"] if row["caught"] is not None]
    words.append(f"**{sum(row['caught'] for row in run)} of {len(run)}** faults are caught.")
    if n_left := len(faults["rows"]) - len(run):
        words.append(f"{n_left} more have not been run for this record.")
    known = {record["name"] for record in records}
    if missing := [name for name in cases.CASES if name not in known]:
        words.append(f"Not measured yet: {', '.join(missing)}.")
    return " ".join(words)


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
    """Mean over the quantities whose names have this prefix."""
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
    """Text with the separator of table cells escaped."""
    return words.replace("|", "\\|")


def _where(records: Sequence[Record]) -> str:
    seconds = sum(record["seconds"] for record in records)
    n_seeds = sorted({record["settings"]["seed"] for record in records})
    places = "; ".join(sorted(set(map(_machine, records))))
    shares = [record["ranks"]["notes"].get("overflow", 0.0) for record in records]
    room = f" Sweeps without enough room: at most {max(shares):.1g}." if any(shares) else ""
    return f"Seed {n_seeds[0]}; {seconds / 60:.0f} core minutes in all, on {places}.{room}"


def _machine(record: Record) -> str:
    machine, versions = record["machine"], record["versions"]
    return f"an {machine['processor']} (Python {versions['python']}, JAX {versions['jax']})"


def write(folder: Path, docs: Path) -> None:
    """Write the page and its pictures."""
    from wideangle_lab.calibration import pictures

    records = cases.read_all(folder)
    faults = json.loads((folder / "faults.json").read_text(encoding="utf-8"))
    for area in TITLES:
        part = [record for record in records if cases.area_of(record["name"]) == area]
        pictures.draw(part, docs / IMAGES / f"{area}.png")
    fill_page(docs / "trust.md", blocks(records, faults))
