"""Where does repulsion pay: the arms, and the rules that judge them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle_lab.diversity import small_tables
from wideangle_lab.diversity.page import gain_of, overall, variational
from wideangle_lab.diversity.page import small_tables as write_tables
from wideangle_lab.diversity.small_tables import ARMS, N_EXPERTS, NONE, prior_of
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.records import Record


def table(gain, rhat=1.0, n_splits=20, seed=0):
    """A record of a table on which the second arm gains so much, up to some noise."""
    rng = np.random.default_rng(seed)
    plain = rng.normal(0.5, 0.05, n_splits)
    other = plain - gain + rng.normal(0.0, 0.001, n_splits)
    return {
        "arms": [NONE, "mutual-angular 0.2"],
        "n_train": 140,
        "n_test": 60,
        "log_loss": np.stack([plain, other], axis=1).tolist(),
        "rhat": np.full((n_splits, 2), rhat).tolist(),
        "divergent": 0,
        "seconds": 1.0,
        "stamp": {"device": "cpu", "versions": {"python": "3", "jax": "0"}},
    }


def test_without_repulsion_directions_are_uniform():
    vectors = jax.random.normal(jax.random.key(0), (N_EXPERTS, 7))
    assert prior_of(NONE, 7, False).log_ratio_to_gaussian(vectors) == pytest.approx(0.0, abs=1e-5)


def test_a_determinant_forbids_copies_and_favours_orthogonal_directions():
    prior = prior_of("determinant 4", 7, False)
    vectors = jax.random.normal(jax.random.key(0), (N_EXPERTS, 7))
    copies = vectors.at[1].set(2.0 * vectors[0])
    orthogonal = 3.0 * jnp.eye(7)[:N_EXPERTS]
    values = [float(prior.log_ratio_to_gaussian(v)) for v in (copies, vectors, orthogonal)]
    assert values[0] < values[1] - 20 and values[1] < values[2]
    assert values[2] == pytest.approx(0.0, abs=0.05)


def test_an_exponent_is_that_of_more_dimensions():
    # Of one pair the density of the cosine c has the factor (1 - c^2)^(g p / 2).
    prior = prior_of("determinant 1", 6, False)
    cosine = 0.6
    pair = jnp.eye(6)[:N_EXPERTS].at[1].set(jnp.eye(6)[0] * cosine + jnp.eye(6)[1] * 0.8)
    assert float(prior.log_ratio_to_gaussian(pair)) == pytest.approx(3.0 * np.log(0.64), abs=0.01)


def test_pairs_forbid_copies_and_favour_opposites():
    prior = prior_of("pairwise 2", 6, False)
    base = jnp.eye(6)[:N_EXPERTS]
    pairs = [base.at[1].set(sign * base[0] + 0.01 * base[1]) for sign in (1.0, -1.0)]
    copies, orthogonal, opposites = (
        float(prior.log_ratio_to_gaussian(v)) for v in (pairs[0], base, pairs[1])
    )
    assert copies < orthogonal - 40
    # (1 - c)^(g p / 2) of one pair, and every other pair is orthogonal.
    assert opposites - orthogonal == pytest.approx(6.0 * np.log(2.0), abs=0.01)


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [(0.02, "pays"), (0.0, "makes no difference that matters"), (-0.02, "harms")],
)
def test_a_verdict_follows_the_rule(gain, verdict):
    gains = [gain_of(table(gain, seed=seed), "mutual-angular 0.2") for seed in range(8)]
    assert overall(gains).verdict == verdict


def test_few_tables_that_disagree_decide_nothing():
    gains = [gain_of(table(gain), "mutual-angular 0.2") for gain in (0.03, -0.03, 0.01)]
    assert overall(gains).verdict.startswith("cannot be decided")


def test_splits_that_share_rows_make_wider_intervals():
    found = gain_of(table(0.01), "mutual-angular 0.2")
    losses = np.array(table(0.01)["log_loss"])
    naive = np.std(losses[:, 0] - losses[:, 1], ddof=1) / np.sqrt(20)
    assert found.effect.error == pytest.approx(naive * np.sqrt(1 + 20 * 60 / 140))


def test_chains_that_disagree_are_left_out():
    assert gain_of(table(0.01, rhat=1.2), "mutual-angular 0.2") is None
    rows, page = write_tables({"tables": {"iris": table(0.0), "wine": table(0.0, seed=1)}})
    assert "Iris" in page
    assert rows[0][:2] == (
        "small tables, sampling: mutual-angular 0.2", "makes no difference that matters"
    )  # fmt: skip


def test_variational_fits_are_paired_by_split_and_split_0_is_left_out(tmp_path):
    def record(data, method, seed, loss):
        metrics = {"log_loss": loss, "accuracy": 80.0, "n_test": 30, "n_train": 70}
        cell = Cell("classifiers", data, method, 10, seed)
        return Record(cell, {"metrics": metrics, "diagnostics": {"n_used": 2.0}}, tmp_path)

    records = []
    for data, gain in (("building", 0.02), ("adult9", 0.021)):
        for seed in range(6):
            base = 0.4 + 0.01 * seed
            records += [
                record(data, "BMEM-V-VI", seed, base),
                record(data, "BMEM-MABN-II", seed, base - (5.0 if seed == 0 else gain)),
            ]
    ((_, verdict, shown),), page = variational(records)
    assert verdict.startswith("cannot be decided with 2 of 4 tables; on these a gain above 6.")
    assert shown.startswith("+4.77%")
    assert "| Building | 5 | 0.4300 | +0.0200" in page
    assert "clear on Building, Adult-9" in page


@pytest.mark.slow
def test_a_table_is_measured(monkeypatch):
    monkeypatch.setattr(small_tables, "N_WARMUP", 80)
    monkeypatch.setattr(small_tables, "N_DRAWS", 80)
    found = small_tables.measure("iris", arms=(ARMS[0], ARMS[3]), n_splits=2)
    losses = np.array(found["log_loss"])
    assert losses.shape == (2, 2)
    assert np.all(losses < 0.3)
