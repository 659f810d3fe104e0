import numpy as np
import pytest

from wideangle import diagnostics
from wideangle.diagnostics import (
    ConvergenceWarning,
    ess_bulk,
    ess_tail,
    rhat,
    show_rhat,
    summarise,
    warn,
    warnings_for,
)


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
    assert list(table.columns) == ["mean", "sd", "5%", "50%", "95%", "ess_bulk", "ess_tail", "rhat"]
    np.testing.assert_allclose(table["mean"][3], draws["b"].mean())
    np.testing.assert_allclose(table["sd"][3], draws["b"].std(ddof=1))
    np.testing.assert_allclose(table["95%"][3], np.quantile(draws["b"], 0.95))
    assert "ess_bulk" in str(table)
    assert len(str(table).splitlines()) == 5
    frame = table.to_frame()
    assert list(frame.index) == list(table.names)


def test_good_chains_draw_no_warning():
    assert warnings_for(summarise(chains("independent")), 4, {"x": 0}) == []


def test_each_trouble_has_its_sentence():
    sentences = warnings_for(summarise(chains("shifted", n_draws=50)), 4, {"directions": 3})
    assert len(sentences) == 4
    assert "R-hat is above 1.01" in sentences[0]
    assert "below 100 per chain" in sentences[1]
    assert "quantiles" in sentences[2]
    assert "3 trajectories of 'directions' diverged" in sentences[3]


def test_sentences_become_warnings():
    with pytest.warns(ConvergenceWarning, match="diverged"):
        warn(["1 trajectory diverged"])
    assert issubclass(diagnostics.ConvergenceWarning, UserWarning)


def test_chains_stuck_at_different_values_have_a_huge_finite_rhat():
    stuck = np.repeat([[3.0], [4.0], [4.0], [3.0]], 50, axis=1)
    assert diagnostics.rhat(stuck) == diagnostics.STUCK
    stuck[0, 7] = 4.0
    assert diagnostics.RHAT_LIMIT < diagnostics.rhat(stuck) < diagnostics.STUCK


def test_rhat_of_chains_that_stand_still_is_not_shown_as_a_number():
    draws = np.array([[1.0] * 20, [2.0] * 20])
    assert show_rhat(1.0149) == "1.015"
    assert show_rhat(1.5, 1) == "1.5"
    assert show_rhat(diagnostics.STUCK) == "over 100"
    sentences = warnings_for(summarise({"n": draws}), 2, {})
    assert any("worst over 100, n)" in sentence for sentence in sentences)
