import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

from wideangle_lab.originals.converters import ConversionError
from wideangle_lab.originals.converters.words import text_arrays, weighted, word_counts


def test_words_are_lower_case_runs_of_three_letters_without_stop_words():
    text = "The OIL-price rose 3.5pct; it is not what-ever U.S. GM oil, Oil2gas caf\xe9s"
    assert word_counts(text) == Counter(
        {"oil": 3, "price": 1, "rose": 1, "pct": 1, "gas": 1, "caf": 1}
    )


def test_the_terms_of_most_documents_are_kept_ties_by_the_alphabet():
    documents = [Counter(tangerine=9, zebra=1, both=2), Counter(ant=1, both=1), Counter(zebra=3)]
    arrays = text_arrays(documents, n_terms=3)
    # zebra and both are in two documents; of ant and tangerine, in one each, ant comes first.
    assert arrays["vocab"].tolist() == ["ant", "both", "zebra"]
    counts = sp.csr_array((arrays["counts"], arrays["indices"], arrays["indptr"]), shape=(3, 3))
    assert counts.toarray().tolist() == [[0, 2, 1], [1, 1, 0], [0, 0, 3]]


def test_tfidf_is_the_formula_row_by_row():
    generator = np.random.default_rng(0)
    dense = generator.poisson(0.7, (7, 5))
    dense[2] = 0
    dense[0] = 1
    arrays = weighted(sp.csr_array(dense))
    found = np.zeros(dense.shape)
    found[np.nonzero(dense)] = arrays["tfidf"]
    for row, values in zip(found, dense, strict=True):
        weights = [
            (1 + math.log(tf)) * math.log(7 / sum(dense[:, j] > 0)) if tf else 0.0
            for j, tf in enumerate(values)
        ]
        length = math.sqrt(sum(w * w for w in weights))
        assert row == pytest.approx([w / length for w in weights] if length else weights, abs=1e-6)
    assert arrays["counts"].dtype == np.uint16


def test_documents_without_words_are_refused():
    with pytest.raises(ConversionError, match="no words"):
        text_arrays([Counter(), Counter()])
