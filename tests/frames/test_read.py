import bz2
import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from wideangle.frames.encoding import Reading
from wideangle.frames.read import is_array_file, read_table
from wideangle.frames.table import TableError

CSV = "a,b,word\n1,2.5,x\n3,,y z\n?,NA,\n"


@pytest.fixture
def file(tmp_path):
    def make(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def refused(path, reading=None, **options):
    with pytest.raises(TableError) as caught:
        read_table(path, reading, **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".")
    return message.replace(str(path), "FILE")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.csv", "\ufeff" + CSV),
        ("a.csv", CSV.replace("\n", "\r\n")),
        ("a.csv", CSV.replace(",", ";")),
        ("a.csv", CSV.replace(",", ", ")),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.txt", CSV.replace(",", "|")),
        # Without the time of day: it would be in the name of the test, which workers must agree on.
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("a.csv.bz2", bz2.compress(CSV.encode())),
    ],
)
def test_text_is_read_whatever_separates_it(file, name, content):
    frame = read_table(file(name, content)).frame
    assert list(frame.columns) == ["a", "b", "word"]
    np.testing.assert_array_equal(frame["a"], [1, 3, np.nan])
    np.testing.assert_array_equal(frame["b"], [2.5, np.nan, np.nan])
    assert frame["word"].tolist()[:2] == ["x", "y z"] and frame["word"].isna()[2]


def test_a_comma_in_numbers_between_semicolons(file):
    frame = read_table(file("a.csv", "a;b\n1,5;x\n-2,25;y\n")).frame
    assert frame["a"].tolist() == [1.5, -2.25]


def test_dates_are_read_where_a_column_has_no_other_words(file):
    lines = [
        "a,b,c,d",
        "2024-05-31,2024-05-31,2024-06-31,2024-05-31T10:00",
        ",x,2024-06-30,2024-05-31 10:01Z",
    ]
    frame = read_table(file("a.csv", "\n".join(lines))).frame
    assert [frame[name].dtype.kind == "M" for name in "abcd"] == [True, False, False, True]
    assert frame["a"].isna().tolist() == [False, True]
    assert frame["d"].diff()[1] == pd.Timedelta(minutes=1)


def test_an_unnamed_first_column_is_left_out(file):
    table = read_table(file("a.csv", ",a\n0,1\n1,2\n"))
    assert table.names == ("a",) and "no name" in table.notes[0]


def test_without_header_columns_are_numbered(file):
    table = read_table(file("a.csv", "1,2\n3,4\n"), Reading(header=False))
    assert table.names == ("c1", "c2") and table.n_rows == 2


def test_a_users_word_for_missing(file):
    path = file("a.csv", "a\n1\n-99\n")
    assert read_table(path, Reading(missing=("-99",))).frame["a"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "", "FILE is empty."),
        ("a.csv", " \n\n", "FILE is empty."),
        ("a.csv", "a,b\n", "FILE has names of columns and no rows."),
        ("a.csv", b"\x89PNG\0\0\1", "FILE is not a text file: it contains binary data"),
        ("a.csv", b"a,b\n\xff\xfe,2\n", "FILE is not text in UTF-8"),
        ("a.csv", "a,b,a\n1,2,3\n", "FILE: the name 'a' is that of columns 1 and 3"),
        ("a.csv", "a,,b\n1,2,3\n", "FILE: column 2 has no name."),
        ("a.csv", "5.1,3.5\n4.9,3\n", "FILE: its first line holds numbers and not names"),
        ("a.csv", "a,b\n1,2\n3,4,5\n", "FILE: line 3 has 3 fields, and there are names for 2."),
        ("a.csv", "a,b\n1,2,3\n4,5,6\n", "FILE: its first line names 2 columns and the next has 3"),
        ("a.csv", 'a,b\n1,"2\n3,4\n', "FILE: a quotation mark is opened and never closed."),
        ("a.csv.gz", "no gzip", "FILE is not a compressed file"),
        ("a.xlsx", b"PK", "FILE is of a type that wideangle cannot read; CSV"),
        ("a.parquet", b"PAR1 no", "FILE is not a Parquet file"),
        ("a.npz", b"PK no", "FILE is not a NumPy archive"),
        ("a.libsvm", "a,b\n1,2\n", "FILE is not a LIBSVM file"),
    ],
)
def test_a_wrong_file_is_one_sentence(file, name, content, sentence):
    assert refused(file(name, content)).startswith(sentence)


def test_no_file_and_a_folder(tmp_path):
    assert refused(tmp_path / "no.csv") == "FILE does not exist."
    assert refused(tmp_path).startswith("FILE is a folder and not a table")


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for special in (tmp_path / "pipe.csv", Path("/dev/null")):
        assert refused(special) == "FILE is a pipe or a device: save it to a file first."


def test_parquet_keeps_types_and_an_index(tmp_path):
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None], "Int64"),
            "w": ["a", None],
            "d": pd.to_datetime(["2020-01-01"] * 2),
        }
    )
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert table.names == ("n", "w", "d") and table.frame["d"].dtype.kind == "M"
    frame.set_index("w").to_parquet(tmp_path / "b.parquet")
    assert set(read_table(tmp_path / "b.parquet").names) == {"n", "w", "d"}


def test_a_row_index_without_a_name_is_no_column(tmp_path):
    frame = pd.DataFrame({"n": [1.0, 2.0, 3.0], "y": [0, 1, 1]}, index=[7, 3, 5])
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert table.names == ("n", "y") and "row index" in table.notes[0]
    np.testing.assert_array_equal(table.frame["n"], [1.0, 2.0, 3.0])
    both = pd.MultiIndex.from_arrays([[7, 3, 5], ["a", "b", "c"]], names=[None, "who"])
    frame.set_index(both).to_parquet(tmp_path / "b.parquet")
    assert read_table(tmp_path / "b.parquet").names == ("who", "n", "y")


def test_npz_of_dense_arrays(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "a.npz", X=X, y=["u", "v", "u"], feature_names=["p", "q"])
    table = read_table(tmp_path / "a.npz")
    assert table.names == ("p", "q", "y") and table.label_name == "y" and table.uniform
    np.testing.assert_array_equal(table.frame[["p", "q"]].to_numpy(), X)
    np.savez(tmp_path / "b.npz", X=X)
    assert read_table(tmp_path / "b.npz").names == ("x1", "x2")


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix])
def test_npz_of_scipy(tmp_path, make):
    X = np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])
    sp.save_npz(tmp_path / "a.npz", make(X))
    table = read_table(tmp_path / "a.npz")
    assert table.matrix.format == "csr" and table.frame is None
    np.testing.assert_array_equal(table.matrix.toarray(), X)


def test_npz_of_sparse_parts_with_labels_and_words(tmp_path):
    X = sp.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]]))
    np.savez(
        tmp_path / "a.npz",
        data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, labels=[1, 0],
        vocab=["cat", "dog"],
    )  # fmt: skip
    table = read_table(tmp_path / "a.npz")
    assert table.matrix_columns == ("cat", "dog") and table.column("labels").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"Z": np.eye(2)}, "FILE has no array X, nor the parts of a sparse matrix"),
        ({"X": np.ones(3)}, "FILE: X has shape (3,)"),
        ({"X": np.array([["a"]])}, "FILE: X holds <U1 and not numbers."),
        ({"X": np.eye(2), "y": np.ones(3)}, "FILE: y has shape (3,)"),
        ({"X": np.eye(2), "names": np.array(["a", "a"])}, "FILE: names holds a name twice."),
        ({"X": np.array([[{}]], dtype=object)}, "FILE is not a NumPy archive of plain arrays"),
        (
            {"data": np.ones(1), "indices": [9], "indptr": [0, 1], "shape": [1, 2]},
            "FILE: its sparse matrix does not fit together",
        ),
        (
            {"data": np.ones(1), "indices": [9], "indptr": [0, 1], "shape": [1, 2**50]},
            "FILE has 1,125,899,906,842,624 columns; at most",
        ),
        (
            {
                "data": np.ones(1), "indices": [10**6], "indptr": [0, 1, 1], "shape": [1, 2],
                "format": np.array("csc"),
            },
            "FILE: its sparse matrix does not fit together",
        ),
    ],
)  # fmt: skip
def test_a_wrong_archive_is_one_sentence(tmp_path, arrays, sentence):
    np.savez(tmp_path / "a.npz", **arrays)
    assert refused(tmp_path / "a.npz").startswith(sentence)


@pytest.mark.parametrize(
    ("column", "sentence"),
    [(2 * 10**9, "FILE has 2,000,000,001 columns"), (10**12, "FILE is not a LIBSVM file (")],
)
def test_columns_that_a_text_only_claims_are_one_sentence(file, column, sentence):
    assert refused(file("a.svm", f"1 {column}:2\n0 1:2\n")).startswith(sentence)


def test_an_array_that_only_claims_to_be_large_is_one_sentence(tmp_path):
    header = io.BytesIO()
    claim = {"descr": "<f8", "fortran_order": False, "shape": (2**50, 4)}
    np.lib.format.write_array_header_1_0(header, claim)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", header.getvalue())
    assert refused(tmp_path / "a.npz").startswith("FILE holds more numbers than fit into memory")


@pytest.mark.parametrize("separator", [",", "\t"])
def test_names_of_columns_may_be_longer_than_the_sample(file, separator):
    names = [f"gene{i:07d}" for i in range(40_000)]
    lines = [names, ["1"] * len(names), ["2"] * len(names)]
    table = read_table(file("a.csv", "\n".join(separator.join(line) for line in lines)))
    assert table.names == tuple(names)
    assert table.frame.to_numpy().tolist() == [[1] * len(names), [2] * len(names)]


@pytest.mark.parametrize(("first", "names"), [(1, ("x1", "x2", "x3")), (0, ("x0", "x1", "x2"))])
def test_libsvm_counts_from_one_or_zero(file, first, names):
    text = f"+1 {first}:0.5 {first + 2}:2\n-1 {first + 1}:1 # comment\n"
    for name in ("a.libsvm", "a.txt"):
        table = read_table(file(name, text))
        assert table.matrix_columns == names and table.reading.first_index == first
        np.testing.assert_array_equal(table.matrix.toarray(), [[0.5, 0, 2], [0, 1, 0]])
        assert table.column("label").tolist() == [1, -1]


def test_libsvm_at_prediction_has_the_columns_of_training(file):
    path = file("a.svm", "1 2:5\n")
    table = read_table(path, Reading(first_index=1), like=4)
    np.testing.assert_array_equal(table.matrix.toarray(), [[0, 5, 0, 0]])
    assert refused(path, Reading(first_index=1), like=1).startswith("FILE has 2 columns and the")
    zero = file("b.svm", "1 0:5\n")
    assert "counts columns from 0" in refused(zero, Reading(first_index=1), like=4)


def test_which_files_are_arrays(tmp_path):
    assert all(is_array_file(tmp_path / n) for n in ("a.npz", "a.svm.gz", "a.LIBSVM"))
    assert not any(is_array_file(tmp_path / n) for n in ("a.csv", "a.parquet", "npz"))
