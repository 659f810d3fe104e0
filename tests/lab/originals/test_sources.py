import numpy as np
import pytest

from wideangle_lab import datasets
from wideangle_lab.originals import fetching, sources


def test_what_the_list_says_can_be_fetched_has_originals():
    told = {name for name, one in datasets.MANIFEST.items() if one.file and not one.by_hand}
    assert told == {name for name, recipe in sources.RECIPES.items() if recipe.originals}
    assert set(sources.RECIPES) - told == {"building"}


def test_addresses_are_pinned_or_encrypted_or_checked():
    for name, recipe in sources.RECIPES.items():
        for original in recipe.originals:
            for place in original.places:
                assert not place.sha256 or len(bytes.fromhex(place.sha256)) == 32
                safe = place.sha256 or recipe.content or place.address.startswith("https:")
                # 15-Scenes is the only one left to trust; the list of its page says so.
                assert safe or name == "scenes15"


def test_checksums_are_those_of_scikit_learn():
    from sklearn.datasets import _rcv1, _twenty_newsgroups

    news = sources.RECIPES["news20"].originals[0].places[0]
    assert (news.address, news.sha256) == (
        _twenty_newsgroups.ARCHIVE.url,
        _twenty_newsgroups.ARCHIVE.checksum,
    )
    theirs = {
        (one.filename, one.url, one.checksum) for one in (*_rcv1.XY_METADATA, _rcv1.TOPICS_METADATA)
    }
    ours = {
        (one.file, place.address, place.sha256)
        for one in sources.RECIPES["rcv1"].originals
        for place in one.places
    }
    assert ours == theirs


@pytest.mark.parametrize("name", [name for name, r in sources.RECIPES.items() if r.content])
def test_the_recorded_contents_are_those_of_the_canonical_files(real, name):
    with np.load(datasets.locate(datasets.MANIFEST[name])) as z:
        arrays = dict(z)
    assert fetching.check_content(name, arrays) == "all arrays equal those of the canonical file"


def test_the_digest_sees_names_types_shapes_and_values_but_not_derived_arrays():
    base = {"a": np.arange(6, dtype=np.int32), "tfidf": np.ones(2)}
    same = {"tfidf": np.zeros(3), "a": np.arange(6, dtype=">i4")}
    assert sources.digest(base) == sources.digest(same)
    others = [
        {"b": base["a"]},
        {"a": base["a"].astype(np.int64)},
        {"a": base["a"].view(np.uint32)},  # the same bytes
        {"a": base["a"].reshape(2, 3)},
        {"a": base["a"][::-1]},
        {**base, "c": base["a"]},
    ]
    assert len({sources.digest(one) for one in [base, *others]}) == 7
