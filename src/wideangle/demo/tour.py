"""The tour of the demo: experts, features, and the page that binds them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from wideangle import plots
from wideangle.demo import problems
from wideangle.report import page
from wideangle.runs.folder import write_run
from wideangle.storage.files import write

_EXPERT_HEAD = ("accuracy", "log-loss", "mean angle", "in use")
_FEATURE_HEAD = ("shapes found", "error of new images")
TITLES = {
    "experts": "Which of four hidden rules holds where? 500 rows to learn from",
    "features": "Which shapes are 300 noisy images made of, and how many are there?",
}


class Tour(NamedTuple):
    """What came out."""

    experts: problems.Result
    features: problems.Result


def take(
    seed: int,
    output: Path,
    begin: Callable[[str], None],
    end: Callable[[str], None],
) -> Tour:
    """Fit and write everything; ``begin`` and ``end`` get the name of each stage."""

    def stage(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        begin(name)
        result = function(*arguments)
        end(name)
        return result

    # Nearly all of the time is compilation, which runs outside of Python: two at once pay off.
    with ThreadPoolExecutor(1) as beside:
        expected = beside.submit(stage, "experts", problems.experts, seed)
        features = stage("features", problems.features, seed)
        experts = expected.result()
    begin("pages")
    found = Tour(experts, features)
    for name, result in (("experts", experts), ("features", features)):
        run = write_run(result.run, output / name, force=True)
        page.write(run, output / name / "report.html")
    write(output / "index.html", [index(found).encode()])
    end("pages")
    return found


def tables(found: Tour) -> list[Table]:
    """The results, for a terminal."""
    shown = []
    for name, head, rows in _tables(found):
        table = Table(title=TITLES[name], title_justify="left", title_style="bold")
        table.add_column("model")
        for column in head:
            table.add_column(column, justify="right")
        for row in rows:
            table.add_row(row.name, *row.cells)
        shown.append(table)
    return shown


def _tables(found: Tour) -> tuple[tuple[str, tuple[str, ...], list[problems.Row]], ...]:
    return (
        ("experts", _EXPERT_HEAD, found.experts.rows),
        ("features", _FEATURE_HEAD, found.features.rows),
    )


def index(found: Tour) -> str:
    """The first page: what the library is for, with the numbers and pictures of this run."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("wideangle.demo", "."), autoescape=True, undefined=StrictUndefined
    )
    run, images = found.experts.run, found.features.run
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
        tables=[(TITLES[name], head, rows, name) for name, head, rows in _tables(found)],
        pictures={name: _address(made) for name, made in pictures.items() if made},
        policy=page.policy(),
    )


def _address(figure: Any) -> str:
    """A figure as an address that needs no file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
