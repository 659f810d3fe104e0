import numpy as np

from wideangle import datasets


def test_block_images_are_shapes_plus_noise():
    made = datasets.block_images(0, 20_000)
    assert made.X.shape == (20_000, 36)
    assert made.features.shape == (4, 36)
    assert np.array_equal(made.signal, made.assignments @ made.features)
    assert set(np.unique(made.features)) == {0.0, 1.0}
    # The four shapes lie in four quarters: no two share a pixel.
    assert made.features.sum(axis=0).max() == 1.0
    assert made.features.sum(axis=1).tolist() == [5.0, 8.0, 6.0, 5.0]
    residual = made.X - made.signal
    assert abs(residual.std() - 0.5) < 4 * 0.5 / np.sqrt(2 * residual.size)
    errors = 4 * 0.5 / np.sqrt(20_000)
    assert np.all(np.abs(made.assignments.mean(axis=0) - 0.5) < errors)
    together = np.corrcoef(made.assignments.T) - np.eye(4)
    assert np.abs(together).max() < 4 / np.sqrt(20_000)


def test_the_same_seed_gives_the_same_rows():
    for make in (datasets.block_images, datasets.mixture_data):
        assert np.array_equal(make(3, 20).X, make(3, 20).X)
        assert not np.array_equal(make(3, 20).X, make(4, 20).X)


def test_generated_experts_are_learnable_but_not_linear():
    from sklearn.linear_model import LogisticRegression

    data = datasets.mixture_data(0)
    rule = LogisticRegression().fit(data.X, data.y)
    assert 0.5 < rule.score(data.X, data.y) < 0.85
    # Given the expert that was asked the rule is linear again, hence better.
    own = [
        LogisticRegression().fit(data.X[mask], data.y[mask]).score(data.X[mask], data.y[mask])
        * mask.mean()
        for mask in (data.expert == k for k in range(4))
        if mask.sum() > 50
    ]
    assert sum(own) > rule.score(data.X, data.y) + 0.05
