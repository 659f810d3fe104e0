"""Every number of the paper's thirteen tables, for comparison."""

from __future__ import annotations

from typing import NamedTuple

from wideangle_lab.paper.feature_methods import PAPER


class Value(NamedTuple):
    """A mean and its standard error (0 where none is printed)."""

    mean: float
    error: float = 0.0

    def __str__(self) -> str:
        return f"{self.mean:g}" + (f" ± {self.error:g}" if self.error else "")


EXPERTS = (5, 10, 20, 30)
ACCURACY: dict[str, dict[str, tuple[float, ...]]] = {
    "adult9": {
        "MEM-L2": (82.6, 83.8, 84.3, 84.7),
        "MEM-MAR": (85.3, 86.4, 86.6, 87.1),
        "BMEM-G": (83.4, 84.2, 84.9, 84.9),
        "BMEM-MABN-I": (87.1, 88.3, 88.6, 88.9),
        "BMEM-MABN-II": (86.4, 87.8, 88.1, 88.4),
        "BMEM-PR": (86.2, 87.9, 88.7, 88.1),
    },
    "building": {
        "MEM-L2": (76.2, 78.8, 79.4, 79.7),
        "MEM-MAR": (81.3, 82.1, 82.7, 82.3),
        "BMEM-G": (76.5, 78.6, 80.2, 80.4),
        "BMEM-MABN-I": (82.1, 83.6, 85.3, 85.2),
        "BMEM-MABN-II": (80.9, 82.8, 84.9, 84.1),
        "BMEM-PR": (81.7, 84.1, 83.8, 84.9),
    },
}
"""Tables 1 and 2, by K = 5, 10, 20, 30; ours is a stand-in for SUN-Building."""

NINE = ("C18", "C17", "C12", "C14", "C22", "C34", "C23", "C32", "C16")
"""Table 3: subcategories of RCV1, from many documents to few."""
NINE_SIZES = (5281, 4125, 1194, 741, 611, 483, 262, 208, 192)
NINE_ACCURACY = {
    "BMEM-G": (87.3, 88.5, 75.7, 70.1, 71.6, 64.2, 55.9, 57.4, 51.3),
    "BMEM-MABN-I": (88.1, 86.9, 74.7, 72.2, 70.5, 67.3, 68.9, 70.1, 65.5),
}
NINE_IMPROVEMENT = (1.0, -1.8, -1.3, 2.9, -1.6, 4.6, 18.9, 18.1, 21.7)

AGAINST = {
    "KSVM": (85.2, 84.2),
    "RF": (87.7, 85.1),
    "MLP": (87.1, 84.8),
    "ISVM": (85.8, 82.3),
    "BMEM-DPP": (86.5, 84.5),
    "BMEM-MABN-I": (88.9, 85.3),
    "BMEM-MABN-II": (88.4, 84.9),
    "BMEM-PR": (88.7, 84.9),
}
"""Table 4, Adult-9 and SUN-Building; the paper calls its network DNN."""
HOURS = {
    "BMEM-DPP": (8.2, 11.7),
    "BMEM-MABN-I": (7.5, 10.5),
    "BMEM-MABN-II": (2.9, 4.1),
    "BMEM-PR": (3.3, 4.9),
}
"""Table 5: training time at K = 30."""
STATISTICS = {
    "yale": (722, 1032, 0),
    "block_images": (1000, 36, 0),
    "ar": (2600, 1598, 0),
    "eeg": (4400, 32, 0),
    "piano": (10_000, 161, 0),
    "reuters": (7195, 5000, 9),
    "tdt": (9394, 5000, 30),
    "news20": (18_846, 5000, 20),
    "scenes15": (4485, 1000, 15),
    "caltech101": (9144, 1000, 101),
}
"""Table 6: examples, dimension, classes (0 for none)."""

Three = dict[str, tuple[Value, Value, Value]]
"""By data set: IBP-LFM, PYP-LFM, IMA-LFM."""
L2_ERROR: Three = {
    "yale": (Value(447, 7), Value(432, 3), Value(419, 4)),
    "block_images": (Value(6.3e-2, 0.4e-2), Value(5.8e-2, 0.1e-2), Value(4.4e-2, 0.2e-2)),
    "ar": (Value(926, 4), Value(939, 11), Value(871, 7)),
    "eeg": (Value(2_105_382, 34), Value(2_103_731, 15), Value(2_100_575, 21)),
    "piano": (Value(5.3e-4, 0.1e-4), Value(5.7e-4, 0.2e-4), Value(4.2e-4, 0.2e-4)),
}
"""Table 7, in the paper's units; the paper does not say how errors are summed."""
LIKELIHOOD: Three = {
    "yale": (Value(-16.4, 0.3), Value(-14.9, 0.4), Value(-12.7, 0.1)),
    "block_images": (Value(-2.1, 0.2), Value(-1.8, 0.1), Value(-1.4, 0.1)),
    "ar": (Value(-13.9, 0.3), Value(-14.6, 0.7), Value(-8.5, 0.4)),
    "eeg": (Value(-14133, 54), Value(-12893, 73), Value(-9735, 32)),
    "piano": (Value(-6.8, 0.6), Value(-6.9, 0.2), Value(-4.2, 0.5)),
}
"""Table 8; the paper does not define this likelihood."""
CLUSTERING: Three = {
    "reuters": (Value(45.4, 0.3), Value(43.1, 0.4), Value(48.2, 0.6)),
    "tdt": (Value(48.3, 0.7), Value(47.5, 0.3), Value(53.2, 0.4)),
    "news20": (Value(21.5, 0.1), Value(23.7, 0.2), Value(25.2, 0.1)),
    "scenes15": (Value(22.7, 0.2), Value(21.9, 0.4), Value(25.3, 0.2)),
    "caltech101": (Value(11.6, 0.4), Value(12.1, 0.1), Value(14.7, 0.2)),
}
"""Table 9."""
NMI: Three = {
    "reuters": (Value(41.7, 0.5), Value(38.6, 0.2), Value(45.4, 0.4)),
    "tdt": (Value(44.2, 0.1), Value(46.7, 0.3), Value(49.6, 0.6)),
    "news20": (Value(38.9, 0.8), Value(35.2, 0.5), Value(44.6, 0.9)),
    "scenes15": (Value(42.1, 0.7), Value(44.9, 0.8), Value(47.5, 0.2)),
    "caltech101": (Value(34.2, 0.4), Value(36.8, 0.4), Value(40.3, 0.3)),
}
"""Table 10."""
N_FEATURES: Three = {
    "yale": (Value(201, 5), Value(220, 8), Value(165, 4)),
    "block_images": (Value(8, 2), Value(9, 4), Value(11, 4)),
    "ar": (Value(257, 11), Value(193, 5), Value(176, 8)),
    "eeg": (Value(14, 2), Value(9, 2), Value(12, 1)),
    "piano": (Value(37, 4), Value(34, 6), Value(28, 3)),
    "reuters": (Value(354, 12), Value(326, 5), Value(294, 7)),
    "tdt": (Value(297, 6), Value(311, 9), Value(274, 3)),
    "news20": (Value(442, 8), Value(408, 3), Value(369, 5)),
    "scenes15": (Value(192, 3), Value(218, 5), Value(171, 8)),
    "caltech101": (Value(127, 7), Value(113, 6), Value(96, 6)),
}
"""Table 11."""
REUTERS_SIZES = (3713, 2055, 321, 298, 245, 197, 142, 114, 110)
PRECISION = {
    "IBP-LFM": (73.7, 45.1, 7.5, 8.3, 6.9, 7.2, 2.6, 3.8, 3.4),
    "IMA-LFM": (81.5, 78.4, 36.2, 37.8, 29.1, 20.4, 8.3, 13.8, 11.6),
}
"""Table 12, by category from frequent to rare."""
WORDS = {
    "IBP-LFM": (
        "government house baghdad weapons tax years white united state bill",
        "saddam white clinton united time president baghdad iraq un lewinsky",
        "nuclear iraqi weapons united work spkr president people baghdad state",
        "turkish soviet government weapons number enemy good don citizens due",
    ),
    "IMA-LFM": (
        "president clinton legal years state baghdad church white united iraqi",
        "clinton government lewinsky nuclear work minister weapons india years white",
        "olympic team hockey good baseball gold ball medal april winter",
        "school great institute program study japanese office reading level number",
    ),
}
"""Table 13."""


def accuracy(data: str, method: str, n_experts: int) -> float | None:
    """The number in Tables 1 and 2, if there is one."""
    row = ACCURACY.get(data, {}).get(method)
    return row[EXPERTS.index(n_experts)] if row and n_experts in EXPERTS else None


def of_three(table: Three, data: str, method: str) -> Value | None:
    """The number in a table of latent features, if there is one."""
    row = table.get(data)
    return row[list(PAPER).index(method)] if row and method in PAPER else None
