"""The data sets of the paper: loaders, splits, downloads, and two generators.

Nothing is read or downloaded on import.
"""

from wideangle.datasets.block_images import Generated, block_images, sparse_features
from wideangle.datasets.dataset import Dataset, Split, random_split
from wideangle.datasets.download import DownloadError
from wideangle.datasets.experts import mixture_data
from wideangle.datasets.fetching import fetch
from wideangle.datasets.files import DamagedFileError, DataNotFoundError, folders, locate
from wideangle.datasets.images import bag_of_words
from wideangle.datasets.loaders import NAMES, load
from wideangle.datasets.manifest import MANIFEST, Entry
from wideangle.datasets.originals import ConversionError
from wideangle.datasets.unpack import UnsafeArchiveError

__all__ = [
    "MANIFEST",
    "NAMES",
    "ConversionError",
    "DamagedFileError",
    "DataNotFoundError",
    "Dataset",
    "DownloadError",
    "Entry",
    "Generated",
    "Split",
    "UnsafeArchiveError",
    "bag_of_words",
    "block_images",
    "fetch",
    "folders",
    "load",
    "locate",
    "mixture_data",
    "random_split",
    "sparse_features",
]
