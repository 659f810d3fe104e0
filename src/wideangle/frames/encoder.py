"""The encoding of tables as a scikit-learn transformer."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from wideangle.checks import warn
from wideangle.frames.encode import encode
from wideangle.frames.learn import Plan, learn
from wideangle.frames.table import Table


@dataclass(kw_only=True, repr=False, eq=False)
class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode categories, dates and missing values as numbers, as ``wideangle train`` does.

    Put it in front of any estimator. A categorical column becomes a 0/1 column for each category,
    and dates become days since 1970. Columns without information (one value, no value, an ID or
    free text) are left out. Categories that were not in the training data are treated as missing,
    or as rare where rare categories share a column, with a warning.

    Parameters
    ----------
    category : sequence of str
        Columns of numbers that stand for categories, such as codes.
    ignore : sequence of str
        Columns to leave out.
    max_categories : int
        Categories of a column that get a 0/1 column each; rarer ones share one.
    missing : {"fill", "keep"}
        ``"fill"`` replaces a missing number by the median and adds a 0/1 column that marks it; a
        missing category is a separate category. ``"keep"`` leaves NaN to the model, which
        :class:`~wideangle.LatentFeatureModel` needs.
    scale : bool
        Divide numbers by their standard deviation.

    Attributes
    ----------
    notes_ : list of str
        Notes on how each column was encoded.
    encoding_ : Encoding
        Encoding of each column.
    feature_names_in_, n_features_in_
        As in scikit-learn.

    Examples
    --------
    >>> import pandas as pd
    >>> from wideangle import TableEncoder
    >>> table = pd.DataFrame({"age": [30.0, None, 50.0], "job": ["cook", "smith", "cook"]})
    >>> list(TableEncoder().fit_transform(table))
    ['age', 'age = (missing)', 'job = cook', 'job = smith']
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "category": ["array-like"],
        "ignore": ["array-like"],
        "max_categories": [Interval(Integral, 2, None, closed="left")],
        "missing": [StrOptions({"fill", "keep"})],
        "scale": ["boolean"],
    }

    category: Any = ()
    ignore: Any = ()
    max_categories: int = 30
    missing: str = "fill"
    scale: bool = False

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn from a pandas DataFrame (or anything that makes one); y is ignored."""
        self._validate_params()
        table = _table(X)
        validate_data(self, table.frame, skip_check_array=True)
        plan = Plan(
            fill=self.missing == "fill",
            scale=self.scale,
            ignore=tuple(self.ignore),
            categories=tuple(self.category),
            max_categories=self.max_categories,
            sparse=False,
        )
        self.encoding_, self.notes_ = learn(table, None, plan)
        return self

    def transform(self, X: Any) -> Any:
        """Rows as a DataFrame of numbers, with the columns of :meth:`get_feature_names_out`."""
        check_is_fitted(self)
        import pandas as pd

        table = _table(X)
        found = encode(table, self.encoding_)
        for note in found.notes:
            warn(note)
        names = self.get_feature_names_out()
        return pd.DataFrame(found.X, index=table.frame.index, columns=names)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns, such as ``job = cook``; ``input_features`` is ignored."""
        check_is_fitted(self)
        return np.array(self.encoding_.columns, dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Words and missing values are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.no_validation = True
        return tags


def _table(X: Any) -> Table:
    import pandas as pd

    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    if not isinstance(frame, pd.DataFrame):
        frame = pd.DataFrame(np.asarray(frame))
        frame.columns = [f"x{i}" for i in range(frame.shape[1])]
    if not all(isinstance(name, str) for name in frame.columns):
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    return Table(Path("X"), frame, in_python=True)
