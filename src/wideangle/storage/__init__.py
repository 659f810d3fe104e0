"""Files: fitted models and runs on disk, saved whole or not at all, loaded without running code.

A bundle is one file of named arrays and JSON; a pytree is packed into such arrays by name; a
checkpoint is a folder of bundles that grows with a run.
"""

from wideangle.storage.bundle import fingerprint, load_bundle, save_bundle
from wideangle.storage.checkpoint import Checkpoint
from wideangle.storage.files import StorageError
from wideangle.storage.tree import pack, unpack

__all__ = [
    "Checkpoint",
    "StorageError",
    "fingerprint",
    "load_bundle",
    "pack",
    "save_bundle",
    "unpack",
]
