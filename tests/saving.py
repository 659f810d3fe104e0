"""Checkpoints as often as there is something to save, here or in a process that tests start."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from wideangle.storage import Checkpoint, checkpoint


@contextmanager
def saving_at_once() -> Iterator[None]:
    """A block in which no checkpoint waits for its time."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(checkpoint, "PATIENCE", 0.0))
        for kind in (Checkpoint, checkpoint.SavedRun):
            usual = kind.__init__.__kwdefaults__
            patches.enter_context(mock.patch.dict(usual, every_seconds=0.0))
        yield
