"""The table of known faults names tests that there are, and faults can be put into the source."""

from pathlib import Path

from known_faults import FAULTS

SOURCE = Path(__file__).parents[1] / "src" / "wideangle"


def test_every_fault_has_its_test(collected):
    files = {name.partition("::")[0] for name in collected}
    tests = {fault.test for fault in FAULTS if fault.test.partition("::")[0] in files}
    assert tests - set(collected) == set()
    assert len({fault.test for fault in FAULTS}) == len(FAULTS)


def test_what_a_fault_replaces_is_there(collected):
    """Of tests with the parameters ``old`` and ``new``, most of which are slow."""
    files = [file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")]
    faults = {
        name: given["old"] for name, given in collected.items() if {"old", "new"} <= set(given)
    }
    assert [name for name, old in faults.items() if not any(t.count(old) == 1 for t in files)] == []
