"""The data sets of the paper: loaders, splits, and three generators.

Nothing is read or downloaded on import.
"""

from wideangle.datasets.block_images import Generated, block_images, sparse_features
from wideangle.datasets.dataset import Dataset, Split, random_split
from wideangle.datasets.experts import mixture_data
from wideangle.datasets.files import DamagedFileError, DataNotFoundError, folders, locate
from wideangle.datasets.loaders import NAMES, load
from wideangle.datasets.manifest import MANIFEST, Entry

__all__ = [
    "MANIFEST",
    "NAMES",
    "DamagedFileError",
    "DataNotFoundError",
    "Dataset",
    "Entry",
    "Generated",
    "Split",
    "block_images",
    "folders",
    "load",
    "locate",
    "mixture_data",
    "random_split",
    "sparse_features",
]
