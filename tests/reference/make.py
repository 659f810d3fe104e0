"""Draw the reference posteriors again: ``python tests/reference/make.py [NAME ...]``.

Each becomes ``NAME.npz``, ten thousand draws of numbers that do not depend on how components are
numbered, and ``NAME.json``, how they were made and how well their chains agree.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))  # as pytest does for tests
SEED = 21
PACKAGES = ("jax", "numpyro", "numba", "numpy")


def rounded(values: np.ndarray) -> np.ndarray:
    """To a thousandth of their spread, far below the error of draws, so that files are small."""
    step = 2.0 ** np.floor(np.log2(values.std() / 1000))
    return (np.round(values / step) * step).astype(np.float32)


def diagnostics(numbers: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Of each number: split R-hat and effective sample size."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    return {
        name: {
            "mean": float(np.mean(values)),
            "sd": float(np.std(values)),
            "rhat": round(float(split_gelman_rubin(values)), 4),
            "ess": round(float(effective_sample_size(values))),
        }
        for name, values in numbers.items()
    }


def main(names: list[str]) -> None:
    """Run the samplers, in double precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from reference.samplers import SAMPLERS

    for name in names or SAMPLERS:
        numbers, notes = SAMPLERS[name](SEED)
        numbers = {key: np.asarray(value, np.float64) for key, value in numbers.items()}
        np.savez_compressed(FOLDER / f"{name}.npz", **{k: rounded(v) for k, v in numbers.items()})
        record = {
            "command": f"python tests/reference/make.py {name}",
            "seed": SEED,
            **notes,
            "shape": list(numbers["log_lik"].shape),
            "numbers": diagnostics(numbers),
            "versions": {package: version(package) for package in PACKAGES},
        }
        text = json.dumps(record, indent=1) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
        worst = max(one["rhat"] for one in record["numbers"].values())
        least = min(one["ess"] for one in record["numbers"].values())
        print(f"{name}: R-hat at most {worst}, effective sample size at least {least}")


if __name__ == "__main__":
    main(sys.argv[1:])
