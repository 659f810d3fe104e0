"""``python -m wideangle_lab.calibration list | run [NAME ...] | page``."""

from __future__ import annotations

import argparse
from pathlib import Path

from wideangle_lab.calibration import cases


def main(arguments: list[str] | None = None) -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m wideangle_lab.calibration")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names of all cases")
    run = commands.add_parser("run", help="measure cases and keep a record of each")
    run.add_argument("names", nargs="*", help="beginnings of names; all by default")
    run.add_argument("--output", type=Path, default=cases.FOLDER)
    run.add_argument("--quick", action="store_true", help="few simulations: does it run?")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--sets", type=int, help="simulated data sets, instead of the usual number")
    run.add_argument("--starts", type=int, help="exact restarts, instead of the usual number")
    page = commands.add_parser("page", help="the page and its pictures, from the records")
    page.add_argument("--records", type=Path, default=cases.FOLDER)
    page.add_argument("--output", type=Path, default=Path("docs"))
    chosen = parser.parse_args(arguments)
    if chosen.command == "list":
        print("\n".join(cases.CASES))
    elif chosen.command == "page":
        from wideangle_lab.calibration import page as writer

        writer.write(chosen.records, chosen.output)
    else:
        wanted = tuple(chosen.names) or ("",)
        for name in [name for name in cases.CASES if name.startswith(wanted)]:
            record = cases.measure(
                name,
                quick=chosen.quick,
                seed=chosen.seed,
                n_sets=chosen.sets,
                n_starts=chosen.starts,
            )
            cases.write(record, chosen.output)
            print(cases.sentence(record), flush=True)


if __name__ == "__main__":
    main()
