import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from wideangle import Maximise, MixtureOfExpertsClassifier, TableEncoder
from wideangle.frames.table import TableError


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 70, 40)
    age[::9] = np.nan
    return pd.DataFrame(
        {"age": age, "job": rng.choice(["cook", "smith"], 40), "code": rng.integers(1, 4, 40)},
        index=np.arange(40) + 100,
    )


def test_columns_become_numbers_with_names(people):
    encoder = TableEncoder(category=["code"]).fit(people)
    found = encoder.transform(people)
    assert list(found) == ["age", "age = (missing)", "job = cook", "job = smith", "code = 1",
                           "code = 2", "code = 3"]  # fmt: skip
    assert found.index.equals(people.index)
    assert np.isfinite(found.to_numpy()).all()
    assert (found["age = (missing)"] == people["age"].isna()).all()
    assert any("missing values in 1 column" in note for note in encoder.notes_)
    assert clone(encoder).category == ["code"]
    kept = TableEncoder(missing="keep", ignore=["code"]).fit_transform(people)
    assert list(kept) == ["age", "job = cook", "job = smith"]
    assert kept["age"].isna().sum() == people["age"].isna().sum()


def test_new_words_are_said_and_count_as_missing(people):
    encoder = TableEncoder().fit(people)
    new = people[:2].assign(job=["astronaut", "cook"])
    with pytest.warns(UserWarning, match="'astronaut'") as caught:
        found = encoder.transform(new)
    assert caught[0].filename == __file__
    assert found.loc[100, ["job = cook", "job = smith"]].tolist() == [0, 0]
    with pytest.warns(UserWarning, match="treated as missing"):
        found = TableEncoder(missing="keep").fit(people).transform(new)
    assert found.loc[100, ["job = cook", "job = smith"]].isna().all()


def test_mistakes_are_named_in_the_words_of_python(people):
    words = [f"{age:.1f}" for age in people["age"].fillna(40)]
    words[3] = "old"
    with pytest.raises(TableError, match=r"'old' in row 4.*category=\['age'\] or ignore"):
        TableEncoder().fit(people.assign(age=words))
    with pytest.raises(TableError, match="lacks the column 'job'"):
        TableEncoder().fit(people).transform(people[["age", "code"]])
    with pytest.raises(ValueError, match="max_categories"):
        TableEncoder(max_categories=1).fit(people)


@pytest.mark.filterwarnings("ignore:lbfgs")
def test_it_goes_in_front_of_any_estimator(people, compile_quickly):
    y = np.where(people["job"] == "cook", "a", "b")
    assert make_pipeline(TableEncoder(), LogisticRegression()).fit(people, y).score(people, y) == 1
    inference = Maximise(n_starts=1, n_passes=20)
    model = MixtureOfExpertsClassifier(2, inference=inference, verbose=False, random_state=0)
    model = make_pipeline(TableEncoder(), model).fit(people, y)
    names = ["age", "age = (missing)", "job = cook", "job = smith", "code", "(intercept)"]
    assert model[-1].presentation(model[-1]).entry_names() == names
