"""Programs of these tests run once, for milliseconds: slow ones are not optimised, either."""

import pytest


@pytest.fixture(autouse=True)
def quick(compile_quickly: None) -> None:
    """For every test here."""
