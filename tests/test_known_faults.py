"""The table of known faults names tests that there are."""

from known_faults import FAULTS


def test_every_fault_has_its_test(collected):
    files = {name.partition("::")[0] for name in collected}
    tests = {fault.test for fault in FAULTS if fault.test.partition("::")[0] in files}
    assert tests - collected == set()
    assert len({fault.test for fault in FAULTS}) == len(FAULTS)
