"""The data sets of the paper: loaders and splits.

Nothing is read or downloaded on import.
"""

from wideangle_lab.datasets.dataset import Dataset, Split, random_split
from wideangle_lab.datasets.files import DamagedFileError, DataNotFoundError, folders, locate
from wideangle_lab.datasets.loaders import NAMES, load
from wideangle_lab.datasets.manifest import MANIFEST, Entry

__all__ = [
    "MANIFEST",
    "NAMES",
    "DamagedFileError",
    "DataNotFoundError",
    "Dataset",
    "Entry",
    "Split",
    "folders",
    "load",
    "locate",
    "random_split",
]
