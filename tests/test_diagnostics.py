import numpy as np
import pytest

from wideangle.diagnostics import ess_bulk, ess_tail, rhat, summarise


def chains(kind: str, n_chains: int = 4, n_draws: int = 500) -> np.ndarray:
    random = np.random.default_rng(0)
    noise = random.normal(size=(n_chains, n_draws))
    if kind == "independent":
        return noise
    if kind == "heavy tails":
        return random.standard_cauchy(size=(n_chains, n_draws))
    if kind == "shifted":
        return noise + np.arange(n_chains)[:, None]
    if kind == "different spread":
        return noise * (1 + np.arange(n_chains))[:, None]
    correlation = {"slow": 0.95, "antithetic": -0.6}[kind]
    values = np.zeros_like(noise)
    for t in range(1, n_draws):
        values[:, t] = correlation * values[:, t - 1] + noise[:, t]
    return values


KINDS = ["independent", "heavy tails", "shifted", "different spread", "slow", "antithetic"]


@pytest.mark.parametrize("n_draws", [500, 501])
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_arviz(kind, n_draws):
    arviz = pytest.importorskip("arviz")
    draws = chains(kind, n_draws=n_draws)
    # ArviZ 1.x keeps them under another roof.
    ess = getattr(arviz, "ess", None) or arviz.stats.ess
    rank = getattr(arviz, "rhat", None) or arviz.stats.rhat

    def number(value):
        return float(np.asarray(value))

    np.testing.assert_allclose(rhat(draws), number(rank(draws, method="rank")), rtol=1e-10)
    np.testing.assert_allclose(ess_bulk(draws), number(ess(draws, method="bulk")), rtol=1e-10)
    np.testing.assert_allclose(
        ess_tail(draws), number(ess(draws, method="tail", prob=(0.05, 0.95))), rtol=1e-10
    )


def test_independent_draws_have_full_size():
    draws = chains("independent", n_draws=2000)
    assert 0.85 < ess_bulk(draws) / draws.size < 1.15
    assert rhat(draws) < 1.005


def test_a_slow_chain_has_the_size_theory_says():
    draws = chains("slow", n_draws=20_000)
    theory = draws.size * (1 - 0.95) / (1 + 0.95)
    assert 0.8 < ess_bulk(draws) / theory < 1.25


@pytest.mark.parametrize("kind", ["shifted", "different spread"])
def test_chains_that_disagree_are_seen(kind):
    assert rhat(chains(kind)) > 1.05


@pytest.mark.parametrize(
    "draws", [np.zeros((2, 10)), np.full((2, 10), np.nan), np.ones((2, 3)), np.zeros((2, 0))]
)
def test_nothing_to_say_is_nan(draws):
    for diagnostic in (rhat, ess_bulk, ess_tail):
        assert np.isnan(diagnostic(draws))
    assert len(summarise(draws)) == 1


def test_summary_has_a_row_for_every_number():
    draws = {"a": np.stack([chains("independent")] * 3, -1), "b": chains("slow")}
    table = summarise(draws)
    assert table.names == ("a[0]", "a[1]", "a[2]", "b")
    assert list(table.columns) == [
        "mean", "sd", "5%", "50%", "95%", "ess_bulk", "ess_tail", "rhat", "needed",
    ]  # fmt: skip
    np.testing.assert_allclose(table["mean"][3], draws["b"].mean())
    np.testing.assert_allclose(table["sd"][3], draws["b"].std(ddof=1))
    np.testing.assert_allclose(table["95%"][3], np.quantile(draws["b"], 0.95))
    assert "ess_bulk" in str(table)
    assert len(str(table).splitlines()) == 5
    frame = table.to_frame()
    assert list(frame.index) == list(table.names)


def test_numbers_that_predictions_need_are_marked():
    draws = {"a": np.stack([chains("independent")] * 2, -1), "b": chains("slow")}
    assert summarise(draws)["needed"].all()
    table = summarise(draws, needed=("a",))
    assert table["needed"].tolist() == [True, True, False]
    assert str(table).splitlines()[3].endswith(" no")


def test_numbers_constant_within_chains_are_listed_and_have_no_rhat():
    counts = np.repeat([[74.0], [76.0], [74.0], [75.0]], 50, axis=1)
    same = np.full((4, 50), 3.0)
    table = summarise({"counts": counts, "same": same, "x": chains("independent", n_draws=50)})
    assert np.isnan(table["rhat"]).tolist() == [True, True, False]
    assert np.isnan(table["ess_bulk"]).tolist() == [True, True, False]
    assert {name: by_chain.tolist() for name, by_chain in table.constant.items()} == {
        "counts": [74.0, 76.0, 74.0, 75.0],
        "same": [3.0] * 4,
    }
    _, first, second, third = str(table).splitlines()
    assert first.endswith("  74, 76, 74, 75") and second.endswith("  3")
    assert third.endswith(" yes")
    assert table.to_frame()["constant"].iloc[0].tolist() == [74.0, 76.0, 74.0, 75.0]


def test_a_single_chain_that_moves_once_in_the_middle_has_no_rhat():
    assert np.isnan(rhat(np.array([[0.0, 0.0, 1.0, 1.0]])))


def test_a_chain_that_moves_once_has_a_large_finite_rhat():
    draws = np.repeat([[3.0], [4.0], [4.0], [3.0]], 50, axis=1)
    draws[0, 7] = 4.0
    assert 1.05 < rhat(draws) < 100
    halves = np.repeat([[3.0, 4.0], [5.0, 6.0]], 25, axis=1)  # no half moves
    assert 1.05 < rhat(halves) < 100
