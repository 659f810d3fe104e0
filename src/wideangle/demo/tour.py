"""The tour of the demo: experts, features, and the page that binds them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.table import Table

from wideangle import plots
from wideangle.demo import problems
from wideangle.report import page
from wideangle.runs.folder import write_run
from wideangle.storage.files import write

Found = dict[str, problems.Result]
"""What came out, by the name of the stage."""


def take(seed: int, output: Path, stage: Callable[[str], AbstractContextManager[None]]) -> Found:
    """Fit and write everything; ``stage`` makes a block of the stage of each name."""

    def fit(name: str, problem: Callable[[int], problems.Result]) -> problems.Result:
        with stage(name):
            return problem(seed)

    # Nearly all of the time is compilation, which runs outside of Python: two at once pay off.
    with ThreadPoolExecutor(1) as beside:
        experts = beside.submit(fit, "experts", problems.experts)
        features = fit("features", problems.features)
        found = {"experts": experts.result(), "features": features}
    with stage("pages"):
        for name, result in found.items():
            run = write_run(result.run, output / name, force=True)
            page.write(run, output / name / "report.html")
        write(output / "index.html", [index(found).encode()])
    return found


def table(result: problems.Result) -> Table:
    """The results of one problem, for a terminal."""
    shown = Table(title=result.title, title_justify="left", title_style="bold")
    shown.add_column("model")
    for column in result.head:
        shown.add_column(column, justify="right")
    for row in result.rows:
        shown.add_row(row.name, *row.cells)
    return shown


def index(found: Found) -> str:
    """The first page: what the library is for, with the numbers and pictures of this run."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("wideangle.demo", "."), autoescape=True, undefined=StrictUndefined
    )
    run, images = found["experts"].run, found["features"].run
    pictures = {
        "angles": plots.angle_distribution(run.model),
        "weights": plots.angle_heatmap(run.model),
        "gate": plots.component_map(run.model, run.sample.X),
        "shapes": plots.component_images(images.model, images.settings["image_shape"])
        if images.model.n_components_
        else None,
        "activations": plots.activation_matrix(images.model, images.sample.X)
        if images.model.n_components_
        else None,
    }
    return environment.get_template("index.html").render(
        tables=found,
        pictures={name: _address(made) for name, made in pictures.items() if made},
        policy=page.policy(),
    )


def _address(figure: Any) -> str:
    """A figure as an address that needs no file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
