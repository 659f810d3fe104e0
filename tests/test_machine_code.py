"""Functions that Numba compiles."""

import os
import signal

import pytest

from wideangle.machine_code import njit


def test_ctrl_c_while_a_function_is_compiled_is_not_lost():
    @njit()
    def double(x):
        return 2.0 * x

    compile_for, seen = double.compile, []

    def interrupted(signature):
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(compile_for(signature))  # not reached if Ctrl-C is heard at once
        return seen[0]

    double.compile = interrupted
    with pytest.raises(KeyboardInterrupt):
        double(1.0)
    assert len(seen) == 1
    assert double(1.0) == 2.0
