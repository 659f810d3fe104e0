"""Units, rows and settings between user and sampler."""

import jax
import numpy as np
import pytest
from scipy import sparse

from wideangle import (
    GaussianPrior,
    IndianBuffet,
    MutualAngularPrior,
    PitmanYor,
    VonMisesFisherPrior,
)
from wideangle.latent_features import settings as lfm_prepare
from wideangle.latent_features.imputed import ImputedRows
from wideangle.latent_features.rows import on_device, rows_in_memory
from wideangle.latent_features.settings import (
    design_of,
    fingerprint_of,
    learn_scaling,
    n_observed,
)
from wideangle.sharding import rows_over
from wideangle.sphere.vmf import mean_resultant

RNG = np.random.default_rng(0)
ROWS = np.where(RNG.random((30, 4)) < 0.5, 0.0, RNG.normal(3.0, 2.0, size=(30, 4)))
HOLED = np.where(RNG.random(ROWS.shape) < 0.2, np.nan, ROWS)
MATRICES = {"complete": ROWS, "gaps": HOLED}
KINDS = pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix], ids=["dense", "sparse"])


@KINDS
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("block", [2**20, 12], ids=["at once", "in blocks"])
def test_units_are_means_and_the_deviation_of_all_entries(kind, name, block, monkeypatch):
    monkeypatch.setattr(lfm_prepare, "BLOCK_ENTRIES", block)
    matrix = MATRICES[name]
    plain = learn_scaling(kind(matrix), standardise=False)
    np.testing.assert_array_equal(plain.shift, np.zeros(4))
    assert plain.scale == pytest.approx(np.nanstd(matrix), rel=1e-12)
    centred = learn_scaling(kind(matrix), standardise=True)
    np.testing.assert_allclose(centred.shift, np.nanmean(matrix, axis=0), rtol=1e-12)
    rest = matrix - np.nanmean(matrix, axis=0)
    assert centred.scale == pytest.approx(np.sqrt(np.nanmean(rest**2)), rel=1e-12)


def test_a_large_mean_costs_no_digits_even_in_single_precision():
    far = (1e4 + RNG.normal(size=(50, 3))).astype(np.float32)
    exact = far.astype(np.float64)
    assert learn_scaling(far, standardise=False).scale == pytest.approx(np.std(exact), rel=1e-9)
    very_far = 1e9 + RNG.normal(size=(50, 3))
    spread = np.std(very_far - 1e9)
    assert learn_scaling(very_far, standardise=False).scale == pytest.approx(spread, rel=1e-6)
    with jax.enable_x64(False):
        rows, offset = learn_scaling(very_far, standardise=True).apply(very_far)
        near, _ = learn_scaling(very_far - 1e9, standardise=True).apply(very_far - 1e9)
    assert offset is None
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, near, atol=1e-6)


@pytest.mark.parametrize("size", [1e-115, 1e-30, 1e30, 1e115])
def test_extreme_units_neither_overflow_nor_vanish(size):
    units = learn_scaling(ROWS * size, standardise=True)
    np.testing.assert_allclose(
        units.scale / size, learn_scaling(ROWS, standardise=True).scale, rtol=1e-9
    )
    assert np.isfinite(units.apply(ROWS * size)[0]).all()


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e200, 1.7e308])
def test_units_without_squares_are_refused(size):
    with pytest.raises(ValueError, match="use other units"):
        learn_scaling(np.array([[0.0, size]]), standardise=True)


def test_new_rows_far_from_all_that_was_seen_are_refused():
    units = learn_scaling(ROWS, standardise=True)
    with pytest.raises(ValueError, match="fit to rows like it"):
        units.apply(np.full((1, ROWS.shape[1]), 1e20))


@KINDS
@pytest.mark.parametrize("value", [0.0, 3.0, -2e-100, 0.1])
@pytest.mark.parametrize("standardise", [False, True])
def test_equal_entries_have_some_unit(kind, value, standardise):
    units = learn_scaling(kind(np.full((7, 3), value)), standardise=standardise)
    assert units.scale > 0
    rows, _ = units.apply(kind(np.full((7, 3), value)))
    assert np.max(np.abs(rows)) <= 1 + 1e-12


def test_nothing_seen_is_nothing_known():
    units = learn_scaling(np.full((3, 2), np.nan), standardise=True)
    assert units.scale == 1.0
    np.testing.assert_array_equal(units.shift, np.zeros(2))


@KINDS
def test_rows_are_scaled_and_centred_without_becoming_dense(kind):
    units = learn_scaling(kind(ROWS), standardise=True)
    matrix, offset = units.apply(kind(ROWS))
    assert sparse.issparse(matrix) == (kind is sparse.csr_matrix)
    (rows,) = rows_in_memory(matrix, offset)
    expected = (ROWS - ROWS.mean(axis=0)) / units.scale
    np.testing.assert_allclose(rows.dense_block(np.arange(30)), expected, atol=1e-12)
    assert units.apply(kind(ROWS))[0] is not ROWS
    assert learn_scaling(kind(ROWS), standardise=False).apply(kind(ROWS))[1] is None


@KINDS
def test_gaps_decide_the_kind_of_rows(kind):
    one, other = rows_in_memory(kind(HOLED), None, 2)
    assert isinstance(one, ImputedRows) and one is not other  # each has its own missing entries
    one, other = rows_in_memory(kind(ROWS), None, 2)
    assert not isinstance(one, ImputedRows) and one is other


@KINDS
def test_rows_stay_on_the_cpu_unless_they_are_spread(kind):
    assert not on_device(kind(ROWS))
    with rows_over():
        assert on_device(ROWS) and not on_device(sparse.csr_matrix(ROWS))
        assert not on_device(HOLED)


@KINDS
def test_seen_entries_are_counted(kind):
    matrix = HOLED.copy()
    matrix[3], matrix[-1] = 0.0, 0.0  # rows of which nothing is stored
    np.testing.assert_array_equal(n_observed(kind(matrix)), (~np.isnan(matrix)).sum(axis=1))


SCALE = 2.0
FIXED = IndianBuffet(alpha=1.5)


def test_fixed_numbers_are_scaled_as_their_meaning_says():
    design, values = design_of(GaussianPrior(scale=3.0), FIXED, 0.4, (10, 4), SCALE)
    assert design.learned == frozenset()
    assert values.buffet == (1.5, 0.0, 1.0)
    assert values.noise_variance == pytest.approx(0.04)
    assert values.rate == pytest.approx(1.5**-2)  # the precision of an entry
    prior = VonMisesFisherPrior(scale=3.0, magnitude_shape=6.0)
    design, values = design_of(prior, FIXED, 0.4, (10, 4), SCALE)
    # The expected length is 3 sqrt(4) in units of the data.
    assert prior.magnitude_shape / values.rate == pytest.approx(6.0 / SCALE)
    assert (design.features, design.ordered) == ("polar", False)
    _, values = design_of(MutualAngularPrior(), FIXED, "paper", (10, 4), SCALE)
    assert values.noise_variance == lfm_prepare.PAPER_NOISE


def test_what_is_learned_is_listed():
    prior = MutualAngularPrior(concentration="learn", scale="learn")
    design, values = design_of(prior, IndianBuffet(), "learn", (10, 4), SCALE)
    assert design.learned == {"mass", "noise", "rate", "concentration"}
    assert (values.buffet.mass, values.noise_variance, values.rate) == (None, None, None)
    process = PitmanYor(discount="learn", strength="learn")
    design, values = design_of(VonMisesFisherPrior(scale="learn"), process, "learn", (10, 4), SCALE)
    assert design.learned == {"mass", "noise", "rate", "discount", "strength"}
    assert (values.buffet.discount, values.concentration) == (0.25, 0.0)
    for scale in (None, "auto"):
        prior = MutualAngularPrior(scale=scale)
        design, values = design_of(prior, IndianBuffet(), "learn", (10, 4), SCALE)
        assert design.learned == {"mass", "noise"}
        assert values.rate is None  # what fits the features that the search finds


def test_strength_of_repulsion_is_a_cosine_or_kappa():
    for cosine in (None, 0.3):
        prior = MutualAngularPrior(cosine=cosine)
        design, values = design_of(prior, FIXED, 1.0, (10, 20), SCALE)
        expected = 0.1 if cosine is None else cosine
        assert float(mean_resultant(values.concentration, 20)) == pytest.approx(expected, rel=1e-6)
        assert design.ordered
    prior = MutualAngularPrior(concentration=5.0)
    assert design_of(prior, FIXED, 1.0, (10, 20), SCALE)[1].concentration == 5.0
    for none in ({"cosine": 0.0}, {"concentration": 0.0}):
        design, values = design_of(MutualAngularPrior(**none), FIXED, 1.0, (10, 20), SCALE)
        assert (design.ordered, values.concentration) == (False, 0.0)


@KINDS
def test_fingerprints_tell_data_settings_and_seeds_apart(kind):
    def of(matrix=ROWS, offset=None, seed=0, **settings):
        return fingerprint_of({"alpha": 2.0} | settings, kind(matrix), offset, seed)

    others = [of(2 * ROWS), of(seed=1), of(offset=np.ones(4)), of(alpha=1.0), of(HOLED)]
    assert len({of(), *others}) == len(others) + 1
    assert of() == of()
