import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from wideangle.frames.encode import encode
from wideangle.frames.encoding import MISSING, OTHER, Category, Encoding, Number, Reading, Target
from wideangle.frames.labels import learn_quantity, learn_target, targets_of
from wideangle.frames.learn import Plan, learn
from wideangle.frames.table import Table, TableError, count, some

N = 12


def table(uniform=False, label_name=None, **columns):
    return Table(Path("t.csv"), pd.DataFrame(columns), uniform=uniform, label_name=label_name)


def refused(call):
    with pytest.raises(TableError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def people():
    return table(
        age=[20.0, 30, np.nan, 50, 60, 70] * 2,
        job=["cook", "clerk", None, "cook", "smith", "clerk"] * 2,
        member=[True, False] * 6,
        since=pd.to_datetime(["1970-01-02", "1970-01-11"] * 6),
        name=[f"person {i}" for i in range(N)],
        country=["it"] * N,
        empty=[np.nan] * N,
    )


def test_columns_for_a_classifier(people):
    encoding, notes = learn(people, None, Plan(fill=True, max_categories=4))
    X = encode(people, encoding).X
    assert encoding.columns == (
        "age", f"age = {MISSING}", "job = clerk", "job = cook", "job = smith",
        f"job = {MISSING}", "member", "since",
    )  # fmt: skip
    median = np.median([20, 30, 50, 60, 70])
    expected = [
        [20, 0, 0, 1, 0, 0, 1, 1],
        [30, 0, 1, 0, 0, 0, 0, 10],
        [median, 1, 0, 0, 0, 1, 1, 1],
    ]
    np.testing.assert_array_equal(X[:3], expected)
    assert set(encoding.ignored) == {"name", "country", "empty"}
    told = " | ".join(notes)
    for piece in ("left out 'name'", "'country': the same value", "'empty': no value", "'job' (4)",
                  "'age' (2), 'job' (2)", "replaced by the median", "'since'"):  # fmt: skip
        assert piece in told


def test_columns_for_features_keep_what_is_missing(people):
    encoding, notes = learn(people, None, Plan(fill=False, scale=True))
    X = encode(people, encoding).X
    assert encoding.columns[:4] == ("age", "job = clerk", "job = cook", "job = smith")
    assert np.isnan(X[2, :4]).all() and not np.isnan(np.delete(X, [2, 8], 0)).any()
    np.testing.assert_allclose(np.nanstd(X[:, 0]), 1.0)
    assert "left to the model" in " ".join(notes)


def test_sparse_and_dense_are_the_same_numbers(people):
    dense, _ = learn(people, None, Plan(fill=True))
    sparse, _ = learn(people, None, Plan(fill=True, sparse=True))
    X = encode(people, sparse).X
    assert sp.issparse(X) and X.format == "csr"
    np.testing.assert_array_equal(X.toarray(), encode(people, dense).X)
    gaps, _ = learn(people, None, Plan(fill=False, sparse=True))
    assert "--dense" in refused(lambda: encode(people, gaps))


def test_rare_words_share_a_column():
    words = ["a"] * 5 + ["b"] * 4 + ["c"] * 2 + ["d"]
    rows = table(w=words)
    encoding, notes = learn(rows, None, Plan(fill=True, max_categories=2))
    assert encoding.columns == ("w = a", "w = b", f"w = {OTHER}")
    np.testing.assert_array_equal(encode(rows, encoding).X.sum(axis=0), [5, 4, 3])
    assert encoding.sources[0].rare == ("c", "d") and "rare categories share" in " ".join(notes)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (np.arange(30), True),
        (np.arange(30) + 0.5, False),
        (np.arange(30) // 2, False),
        (np.arange(5), False),
    ],
)
def test_a_column_that_may_number_the_rows_is_named(values, named):
    rows = table(row=values.astype(float), x=np.linspace(0.1, 0.7, len(values)))
    encoding, notes = learn(rows, None, Plan(fill=True))
    assert encoding.columns == ("row", "x")
    assert ("'row': all values are distinct whole numbers" in " ".join(notes)) == named


def test_numbers_that_are_codes_become_categories():
    rows = table(code=[1.0, 2.0, np.nan, 2.0], x=[0.1, 0.2, 0.3, 0.5])
    encoding, _ = learn(rows, None, Plan(fill=True, categories=("code",)))
    assert encoding.columns == ("code = 1", "code = 2", f"code = {MISSING}", "x")
    # The same codes as whole numbers, since no value is missing here.
    X = encode(table(code=[2, 1], x=[0.0, 0.0]), encoding).X
    np.testing.assert_array_equal(X[:, :3], [[0, 1, 0], [1, 0, 0]])


def test_arrays_keep_every_column():
    rows = table(uniform=True, x1=[0.0, 0.0], x2=[1.0, 2.0])
    assert learn(rows, None, Plan(fill=True))[0].columns == ("x1", "x2")


def test_a_few_words_among_numbers_are_a_mistake():
    rows = table(x=["1"] * 9 + ["abc"], y=range(10))
    message = refused(lambda: learn(rows, None, Plan(fill=True)))
    assert message.startswith("t.csv: column 'x' holds numbers, but 'abc' in row 10")
    assert learn(rows, None, Plan(fill=True, categories=("x",)))[0].columns[0] == "x = 1"


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (Plan(fill=True, ignore=("aeg",)), "t.csv has no column 'aeg'; did you mean 'age'?"),
        (Plan(fill=True, ignore=("AGE",)), "t.csv has no column 'AGE'; did you mean 'age'?"),
        (Plan(fill=True, categories=("zzz",)), "t.csv has no column 'zzz'; it has 'age', 'job'."),
        (Plan(fill=True, ignore=("age", "job")), "t.csv has no column left to learn from."),
    ],
)
def test_plans_that_do_not_fit(plan, sentence):
    rows = table(age=[1, 2, 3], job=["a", "b", "a"])
    assert refused(lambda: learn(rows, None, plan)) == sentence


def test_two_columns_of_one_name_are_refused():
    rows = table(**{"a": ["b", "c"] * 3, "a = b": range(6)})
    assert "both be called 'a = b'" in refused(lambda: learn(rows, None, Plan(fill=True)))


def test_encoding_is_plain_json(people):
    for plan in (Plan(fill=True), Plan(fill=False, scale=True)):
        encoding, _ = learn(people, Target("y", ("no", "yes")), plan)
        assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    matrix = Encoding(None, ("a",), Target("y", (0, 1)), {}, True, Reading(False, ("-",), 1))
    assert Encoding.from_json(json.loads(json.dumps(matrix.to_json()))) == matrix


@pytest.mark.parametrize("plain", [{}, [], None, {"sources": [{"name": 1}]}, {"sources": 3}])
def test_other_json_is_refused(plain):
    with pytest.raises(ValueError, match="columns"):
        Encoding.from_json(plain)


JOBS = Encoding(
    (Number("age", 40.0), Category("job", ("clerk", "cook"))), target=Target("y", (0, 1))
)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"age": [1]}, "t.csv lacks the column 'job'; it has 'age'."),
        ({"x": [1]}, "t.csv lacks the columns 'age', 'job'."),
        (
            {"age": [1], "job": [3.5]},
            "t.csv: column 'job' holds numbers ('3.5'), and the model was trained on words",
        ),
        (
            {"age": ["1", "old"], "job": ["cook"] * 2},
            "t.csv: column 'age' holds 'old' in row 2, and the model was trained on numbers",
        ),
    ],
)
def test_rows_that_do_not_fit_the_model(columns, sentence):
    assert refused(lambda: encode(table(**columns), JOBS)).startswith(sentence)


def test_new_words_count_as_missing_or_as_rare_ones():
    new = table(age=[1, 2], job=["astronaut", "cook"])
    found = encode(new, JOBS)
    np.testing.assert_array_equal(found.X, [[1, 0, 0], [2, 0, 1]])
    assert len(found.notes) == 1 and "treated as missing: 'astronaut'" in found.notes[0]
    for values, expected in (
        (("cook", MISSING), [[0, 1], [1, 0]]),
        (("cook", OTHER, MISSING), [[0, 1, 0], [1, 0, 0]]),
    ):
        one = Encoding((Category("job", values),), target=Target("y", (0, 1)))
        np.testing.assert_array_equal(encode(new, one).X, expected)
    kept = Encoding((Category("job", ("clerk", "cook"), keep=True),))
    np.testing.assert_array_equal(encode(new, kept).X, [[np.nan, np.nan], [0, 1]])


def test_values_that_are_missing_for_the_first_time_are_said():
    found = encode(table(age=[np.nan, np.inf], job=["cook", None]), JOBS)
    np.testing.assert_array_equal(found.X, [[40, 0, 1], [40, 0, 0]])
    assert len(found.notes) == 2 and "40" in found.notes[0]


def test_what_is_filled_in_is_scaled_too():
    encoding = Encoding((Number("age", fill=40.0, flagged=True, scale=4.0),))
    np.testing.assert_array_equal(encode(table(age=[8, np.nan]), encoding).X, [[2, 0], [10, 1]])


def test_dates_are_not_numbers():
    dated = Encoding((Number("d", 0.0, date=True),))
    days = table(d=pd.to_datetime(["1970-01-03", None], utc=True))
    np.testing.assert_array_equal(encode(days, dated).X, [[2], [0]])
    assert "trained on dates there" in refused(lambda: encode(table(d=[20200101]), dated))
    assert "trained on dates there" in refused(lambda: encode(table(d=["soon"]), dated))
    numbers = Encoding((Number("d", 0.0),))
    assert "trained on numbers there" in refused(lambda: encode(days, numbers))


def test_order_and_extra_columns_do_not_matter():
    X = encode(table(z=[0], job=["cook"], age=["7"]), JOBS).X
    np.testing.assert_array_equal(X, [[7, 0, 1]])


def test_sparse_matrices():
    X = sp.csr_array(np.array([[0.0, 2.0], [1.0, 0.0]]))
    rows = Table(Path("t.svm"), matrix=X, matrix_columns=("x1", "x2"), label_name="label")
    encoding, notes = learn(rows, None, Plan(fill=True))
    assert encoding.columns == ("x1", "x2") and "50.00%" in notes[0]
    np.testing.assert_array_equal(encode(rows, encoding).X.toarray(), X.toarray())
    dense, _ = learn(rows, None, Plan(fill=True, sparse=False))
    np.testing.assert_array_equal(encode(rows, dense).X, X.toarray())
    wide = Table(Path("t.svm"), matrix=X[:, :1], matrix_columns=("x1",))
    assert "has 1 column and the model" in refused(lambda: encode(wide, encoding))
    assert "named columns" in refused(lambda: encode(table(a=[1]), encoding))
    assert "without names" in refused(lambda: encode(rows, JOBS))
    hole = Table(Path("t.svm"), matrix=sp.csr_array([[np.nan, 1.0]]), matrix_columns=("x1", "x2"))
    assert "not finite" in refused(lambda: learn(hole, None, Plan(fill=True)))
    assert "not finite" in refused(lambda: encode(hole, encoding))


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["no", "yes", " no", "yes"], ("no", "yes")),
        ([3.0, 1.0, 3.0, 1.0], (1, 3)),
        ([True, False, True, False], ("False", "True")),
        (pd.Categorical(["b", "a", "b", "a"]), ("a", "b")),
    ],
)
def test_classes_of_a_target(values, classes):
    target, y = learn_target(table(y=values), "y")
    assert target == Target("y", classes)
    assert len(set(y)) == 2 and y[0] == y[2]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["a"] * 6, "t.csv: the target 'y' is 'a' in every row; there is only one class."),
        (["a", "b", None] * 2, "t.csv: the target 'y' is missing in 2 rows (the first is row 3)"),
        ([0.5, 1.5, 2.5] * 2, "t.csv: the target 'y' holds quantities such as 0.5"),
        (list("abcdef"), "t.csv: the target 'y' has 6 classes in 6 rows"),
        (["a"], "t.csv has 1 row: too few to learn from."),
        ([[1]] * 6, "t.csv: the target 'y' holds neither words nor numbers."),
    ],
)
def test_targets_that_cannot_be_learned(values, sentence):
    assert refused(lambda: learn_target(table(y=values), "y")).startswith(sentence)


def test_a_target_must_be_named_unless_the_file_has_one():
    rows = {"x": range(4), "y": [0, 1, 0, 1]}
    assert "--target and one of 'y', 'x'." in refused(lambda: learn_target(table(**rows), None))
    assert learn_target(table(label_name="y", **rows), None)[0].name == "y"


def test_a_quantity_is_its_numbers():
    target, y = learn_quantity(table(y=[0.5, 2, -1.5, 3]), "y")
    assert target == Target("y", ())
    assert y.tolist() == [0.5, 2.0, -1.5, 3.0]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([2.5] * 6, "t.csv: the target 'y' is 2.5 in every row; there is nothing to predict."),
        ([1.0, None] * 3, "t.csv: the target 'y' is missing in 3 rows (the first is row 2)"),
        (list("abcdef"), "t.csv: the target 'y' holds no numbers"),
        ([True, False] * 3, "t.csv: the target 'y' holds no numbers"),
        ([1.0], "t.csv has 1 row: too few to learn from."),
    ],
)
def test_quantities_that_cannot_be_learned(values, sentence):
    assert refused(lambda: learn_quantity(table(y=values), "y")).startswith(sentence)


def test_targets_of_another_file():
    classes, quantity = Target("y", ("a", "b")), Target("y", ())
    for target in (classes, quantity):
        assert targets_of(table(x=[1]), target) is None
        assert targets_of(table(y=["a", None]), target) is None
    assert targets_of(table(y=["b", "c"]), classes).tolist() == [1, -1]
    assert targets_of(table(y=[0.5, 2]), quantity).tolist() == [0.5, 2.0]
    assert targets_of(table(y=["b", "c"]), quantity) is None


def test_words_in_sentences():
    assert some(["a", "b", "c", "d", "e"]) == "'a', 'b', 'c', 'd' and 1 more"
    assert some(["x" * 100]) == repr("x" * 60 + "...")
    assert some(["\x1b[31m"]) == r"'\x1b[31m'"
    assert (count(1, "row"), count(2000, "row"), count(2, "entry")) == (
        "1 row",
        "2,000 rows",
        "2 entries",
    )
