"""Compiled programs that are kept on disk."""

import os
import subprocess
import sys

import jax
import pytest

from wideangle import keep_compiled

FIT = """
import jax, jax.numpy as jnp, wideangle
place = wideangle.keep_compiled()
jax.jit(lambda x: jnp.sin(x) + 3)(1.0)
print(place)
"""


def environment(tmp_path, **changes):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    return {**kept, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), **changes}


def start(tmp_path, **changes):
    done = subprocess.run(
        [sys.executable, "-c", FIT],
        env=environment(tmp_path, **changes),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="caches are elsewhere")
def test_programs_are_kept_in_a_private_folder_and_found_again(tmp_path):
    place = tmp_path / "wideangle" / "programs"
    assert start(tmp_path) == str(place)
    assert place.stat().st_mode & 0o077 == 0
    entries = {file.name for file in place.iterdir()}
    assert entries
    assert start(tmp_path) == str(place)
    assert {file.name for file in place.iterdir() if not file.name.endswith("atime")} <= entries


def test_a_choice_of_the_user_stays(tmp_path):
    elsewhere = tmp_path / "mine"
    assert start(tmp_path, JAX_COMPILATION_CACHE_DIR=str(elsewhere)) == str(elsewhere)


@pytest.fixture
def undecided():
    """A process that keeps no programs yet."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_folder_others_may_write_to_is_refused(tmp_path, undecided):
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(PermissionError, match="nobody else may write"):
        keep_compiled(place)
    assert jax.config.jax_compilation_cache_dir is None


def test_old_programs_are_deleted(tmp_path, undecided):
    place = tmp_path / "programs"
    place.mkdir(mode=0o700)
    (place / "old").write_text("x")
    (place / "new").write_text("x")
    os.utime(place / "old", (1, 1))
    assert keep_compiled(place) == place
    assert [file.name for file in place.iterdir()] == ["new"]
