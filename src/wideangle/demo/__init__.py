"""``wideangle demo``: two models on data with a known truth, and pages that show what they found.

Everything is simulated here, so no file is needed; the numbers in the tables are those of this very
run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

STAGES = (
    ("experts", "fitting mixtures of experts, with and without repulsion"),
    ("features", "fitting latent features"),
    ("pages", "writing the pages"),
)


def run(output: Path, seed: int) -> None:
    """Fit, print what came out, and write pages to the folder ``output``."""
    import jinja2
    import matplotlib
    import plotly  # before the work: a missing extra should not cost a wait

    assert jinja2 and matplotlib and plotly
    prepare(output)
    from wideangle.demo import tour

    console = Console(highlight=False)
    shown = Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    tasks = {name: shown.add_task(words, total=1, start=False) for name, words in STAGES}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        shown.start_task(tasks[name])
        yield
        shown.update(tasks[name], completed=1)

    # Fits run in threads, so their warnings cannot point at a line of the caller: listed below.
    with warnings.catch_warnings(record=True) as caught, shown:
        warnings.simplefilter("default", UserWarning)
        found = tour.take(seed, output, stage)
    console.print()
    for result in found.values():
        console.print(tour.table(result))
        console.print()
    for sentence in dict.fromkeys(str(one.message) for one in caught):
        console.print(f"warning: {sentence}", markup=False)
    console.print(f"Open in a browser: {output / 'index.html'}", soft_wrap=True)


def prepare(output: Path) -> None:
    """Make the folder, before any work is done; refuse one that holds something else."""
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file: name a folder for the pages of the demo.")
    if output.is_dir() and any(output.iterdir()) and not (output / "index.html").is_file():
        raise ValueError(f"{output} holds other files: name a new folder for the demo.")
    output.mkdir(parents=True, exist_ok=True)
    probe = output / ".wideangle-probe"
    probe.touch()
    probe.unlink()
