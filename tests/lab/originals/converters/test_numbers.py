"""LIBSVM text, MATLAB files and RCV1 vectors, written small in the original formats."""

import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from wideangle_lab.originals.converters import ConversionError, libsvm, matfiles, rcv1


def write_adult(folder, train="-1 3:1 11:1 123:1 \n+1 1:1 \n", test="+1 5:1 123:0 \n-1 2:1 \n"):
    (folder / "a9a").write_text(train)
    (folder / "a9a.t").write_text(test)
    return folder


def test_adult_rows_classes_and_the_zero_that_is_written_out(tmp_path):
    arrays = libsvm.convert(write_adult(tmp_path))
    assert arrays["y_train"].tolist() == [0, 1]
    assert arrays["y_test"].tolist() == [1, 0]
    assert arrays["train_shape"].tolist() == arrays["test_shape"].tolist() == [2, 123]
    assert arrays["train_indices"].tolist() == [2, 10, 122, 0]
    assert arrays["test_indices"].tolist() == [4, 1]
    assert arrays["test_data"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        ("<html>moved</html>", "not a LIBSVM file"),
        ("-1 124:1\n+1 1:1\n", "not a LIBSVM file"),
        ("-1 3:0.5\n+1 1:1\n", "other values than 0 and 1"),
        ("0 3:1\n1 1:1\n", "other classes"),
    ],
)
def test_files_that_are_not_a9a_are_refused(tmp_path, train, problem):
    with pytest.raises(ConversionError, match=problem):
        libsvm.convert(write_adult(tmp_path, train=train))


def test_a_missing_original_is_named(tmp_path):
    for convert, name in (
        (libsvm.convert, "a9a"),
        (matfiles.tdt, "TDT2.mat"),
        (rcv1.convert, "qr"),
    ):
        with pytest.raises(ConversionError, match=f"{name}.* is missing"):
            convert(tmp_path)


def test_tdt_splits_off_category_and_date_and_keeps_frequent_terms(tmp_path):
    terms = np.array([[0, 2, 1, 0], [1, 3, 0, 0], [0, 1, 0, 5]])
    table = np.hstack([terms, [[1, 110], [2, 112], [1, 630]]])
    scipy.io.savemat(tmp_path / "TDT2.mat", {"fea": sp.csc_matrix(table.astype(float))})
    arrays = matfiles.tdt(tmp_path, n_terms=2)
    # Term 1 is in all documents; 0, 2 and 3 in one each, and 0 comes first.
    assert arrays["term_ids"].tolist() == [0, 1]
    assert arrays["labels"].tolist() == [0, 1, 0]
    assert arrays["date"].tolist() == [110, 112, 630]
    assert arrays["counts"].tolist() == [2, 1, 3, 1]
    assert arrays["indices"].tolist() == [1, 0, 1, 1]


def write_eeg(folder, n_points=21):
    samples = np.arange(3 * n_points, dtype="<f4").reshape(n_points, 3)
    places = np.zeros(3, dtype=[("labels", object)])
    places["labels"] = ["Fz", "Cz", "Pz"]
    settings = {"nbchan": 3.0, "pnts": 21.0, "srate": 128.0, "chanlocs": places}
    scipy.io.savemat(folder / "eeglab_data.set", {"EEG": settings})
    samples.tofile(folder / "eeglab_data.fdt")
    return samples


def test_eeg_samples_are_evenly_spaced_from_first_to_last(tmp_path):
    samples = write_eeg(tmp_path)
    arrays = matfiles.eeg(tmp_path, n_rows=5)
    assert arrays["rows"].tolist() == [0, 5, 10, 15, 20]
    assert np.array_equal(arrays["X_all"], samples)
    assert np.array_equal(arrays["X"], samples[::5])
    assert arrays["channels"].tolist() == ["Fz", "Cz", "Pz"]
    assert arrays["rate_hz"] == 128.0


def test_eeg_of_another_size_is_refused(tmp_path):
    write_eeg(tmp_path, n_points=20)
    with pytest.raises(ConversionError, match="another size"):
        matfiles.eeg(tmp_path)


def test_ar_faces_are_shrunk_by_area_and_kept_upright(tmp_path):
    pytest.importorskip("cv2")
    for name, height in (("AR.mat", 50), ("warpAR10P.mat", 60)):
        # Bright below: a row of a MATLAB matrix is an image column by column.
        image = np.repeat(np.arange(height, dtype=np.uint8)[:, None] * 4, 40, axis=1)
        scipy.io.savemat(
            tmp_path / name, {"fea": image.ravel(order="F")[None], "gnd": np.uint8([[7]])}
        )
    arrays = matfiles.ar(tmp_path)
    for suffix in ("", "_accessories"):
        face = arrays[f"X{suffix}"].reshape(47, 34)
        assert np.all(np.diff(face.astype(int), axis=0) > 0)
        assert np.ptp(face, axis=1).max() == 0
        assert arrays[f"subject{suffix}"].tolist() == [7]


def test_what_is_no_matlab_file_is_refused(tmp_path):
    (tmp_path / "TDT2.mat").write_bytes(b"<html>moved</html>" * 20)
    with pytest.raises(ConversionError, match="not a MATLAB file"):
        matfiles.tdt(tmp_path)
    scipy.io.savemat(tmp_path / "TDT2.mat", {"other": np.eye(2)})
    with pytest.raises(ConversionError, match="no matrix fea"):
        matfiles.tdt(tmp_path)


TOPICS = {
    11: "CCAT C18", 12: "CCAT C18", 13: "CCAT C17", 14: "CCAT C17 C18", 15: "CCAT C11",
    16: "ECAT", 17: "GCAT", 18: "GCAT", 19: "CCAT C18 GCAT",
}  # fmt: skip


def write_rcv1(folder):
    lines = [f"{topic} {number} 1\n" for number, all_ in TOPICS.items() for topic in all_.split()]
    with gzip.open(folder / rcv1.TOPICS, "wt") as file:
        file.writelines(lines)
    for name, numbers in (("test_pt0", (15, 16, 19, 17, 18)), ("train", (11, 12, 13, 14))):
        with gzip.open(folder / f"lyrl2004_vectors_{name}.dat.gz", "wt") as file:
            file.writelines(f"{number}  {number - 10}:0.5 12:0.25\n" for number in numbers)
    return folder


def test_rcv1_draws_documents_of_one_code_and_negatives_outside_ccat(tmp_path):
    arrays = rcv1.convert(write_rcv1(tmp_path), {"C18": 2, "C17": 1}, 2, n_terms=12)
    document, codes = arrays["document"], arrays["codes"]
    assert np.all(np.diff(document) > 0)
    assert sorted(codes) == [-1, -1, 0, 0, 1]
    assert set(document[codes == 0]) < {11, 12, 19}
    assert document[codes == 1].tolist() == [13]
    assert set(document[codes == -1]) < {16, 17, 18}
    X = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=arrays["shape"])
    # Each row is the vector of its own document.
    assert [int(np.flatnonzero(row == 0.5)[0]) + 11 for row in X.toarray()] == document.tolist()
    assert X.shape == (5, 12)


def test_rcv1_is_the_same_each_time_and_other_for_another_seed():
    topics = {number: {"CCAT", "C18"} if number % 2 else {"GCAT"} for number in range(400)}
    first = rcv1.choose(topics, {"C18": 50}, 50)
    assert first == rcv1.choose(dict(reversed(topics.items())), {"C18": 50}, 50)
    assert first != rcv1.choose(topics, {"C18": 50}, 50, seed=1)


def test_the_sizes_of_the_paper_add_up():
    assert sum(rcv1.SIZES.values()) == 13_097


def test_rcv1_with_too_few_documents_or_vectors_is_refused(tmp_path):
    write_rcv1(tmp_path)
    with pytest.raises(ConversionError, match="1 documents of C17, 2 are needed"):
        rcv1.convert(tmp_path, {"C18": 1, "C17": 2}, 1, 12)
    (tmp_path / "lyrl2004_vectors_train.dat.gz").unlink()
    with pytest.raises(ConversionError, match=r"1 documents .* have no vector"):
        rcv1.convert(tmp_path, {"C17": 1}, 1, 12)
    (tmp_path / rcv1.TOPICS).write_bytes(b"<html>")
    with pytest.raises(ConversionError, match="not the list of topics"):
        rcv1.convert(tmp_path, {"C17": 1}, 1, 12)
