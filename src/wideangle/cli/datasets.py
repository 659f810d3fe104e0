"""``wideangle datasets``, and its sub-commands ``fetch`` and ``images``."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle.cli.lab import lab
from wideangle.cli.options import Seed

app = typer.Typer(name="datasets", invoke_without_command=True, rich_markup_mode="markdown")


@app.callback()
def datasets(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the data sets of the paper: which files are here, which are stand-ins, how to get them.

    Files are looked for in the folder named by the variable WIDEANGLE_DATA, then in your cache.
    """
    from wideangle.datasets.listing import run

    if context.invoked_subcommand is None:
        run(as_json=as_json)


@app.command()
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names from `wideangle datasets`; without one, all that can be had."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Folder; by default that of WIDEANGLE_DATA, or your cache."),
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option("--from", help="Originals that are here already: a folder, or the archive."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Make the file again.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the originals too.")] = False,
    accept_new: Annotated[
        bool,
        typer.Option(
            "--accept-new", help="Accept an original that changed since the first download."
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds without a byte until a try is given up.")
    ] = 30.0,
    tries: Annotated[int, typer.Option(min=1, help="Tries for each address.")] = 5,
) -> None:
    """Download the originals of data sets and convert them.

    A download that was stopped goes on where it was. Checksums are compared where they are
    published; elsewhere the first download is trusted, remembered, and checked by its contents.
    Needs a checkout of the source.
    """
    lab("originals.terminal").run(
        names or (),
        to,
        given,
        force=force,
        keep=keep,
        accept_new=accept_new,
        timeout=timeout,
        tries=tries,
    )


@app.command()
def images(
    folder: Annotated[Path, typer.Argument(help="One folder of images for each class.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    words: Annotated[int, typer.Option(min=2, help="Size of the vocabulary.")] = 1000,
    train_fraction: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Share of images that make the vocabulary.")
    ] = 0.7,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that read images.")] = 1,
    seed: Seed = 0,
) -> None:
    """Turn folders of images into counts of visual words (dense SIFT, k-means).

    Needs a checkout and the images extra: `pip install -e ".[images]"`.
    """
    maker = lab("originals.images")
    made = maker.bag_of_words(folder, words, seed, train_fraction=train_fraction, n_jobs=jobs)
    maker.save(made, output)
    typer.echo(f"{output}: {made.counts.shape[0]:,} images, {len(made.label_names)} classes")
