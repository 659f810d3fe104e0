"""Files: exact round trips, refusal of everything else, and runs that survive being killed.

Run as a script it is the process that gets killed.
"""

import dataclasses
import errno
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from wideangle.infer import metropolis, run, within
from wideangle.storage import (
    Checkpoint,
    StorageError,
    bundle,
    checkpoint,
    files,
    fingerprint,
    load_bundle,
    pack,
    save_bundle,
    unpack,
)

ARRAYS = {
    "w": np.arange(6.0).reshape(2, 3),
    "deep/flag": np.array([True, False, True]),
    "count": np.int32(7),
    "none": np.zeros((0, 4), np.float32),
}
META = {"name": "modèle", "steps": [1, 2.5, None, True], "nested": {"a": {}}}

dtypes = st.sampled_from(sorted(bundle.CODES)).map(np.dtype)
arrays = dtypes.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0)))
words = st.text("abcé _.-:@%", min_size=1, max_size=5).filter(lambda w: w not in {".", ".."})
names = st.lists(words, min_size=1, max_size=3).map("/".join)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def assert_same(left, right):
    """Equal to the last bit, so that NaN and minus zero count."""
    left, right = np.asarray(left), np.asarray(right)
    assert (left.dtype, left.shape) == (right.dtype, right.shape)
    assert left.tobytes() == right.tobytes()


def assert_same_tree(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    jax.tree.map(assert_same, left, right)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.wide"
    save_bundle(path, ARRAYS, META, kind="model")
    return path


def assert_old_file_alone(path):
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert load_bundle(path, "model")[1] == META


# Bundles


@settings(max_examples=50)  # each is flushed to the disk
@given(st.dictionaries(names, arrays, max_size=4), st.dictionaries(st.text(), jsons, max_size=4))
def test_round_trip_is_exact(tmp_path_factory, contents, meta):
    path = tmp_path_factory.getbasetemp() / "round-trip"
    save_bundle(path, contents, meta)
    found, found_meta = load_bundle(path, "bundle")
    assert found.keys() == contents.keys()
    for name, array in contents.items():
        assert_same(found[name], array)
        assert found[name].flags.writeable
    assert found_meta == meta


def test_odd_layouts_are_saved_by_value(tmp_path):
    grid = np.arange(24.0).reshape(4, 6)
    odd = {"turned": grid.T, "strided": grid[::2, ::-3], "swapped": grid.astype(">f8")}
    save_bundle(tmp_path / "x", odd, {})
    for name, array in load_bundle(tmp_path / "x")[0].items():
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, odd[name])


def test_safetensors_reads_the_file(saved):
    safetensors = pytest.importorskip("safetensors.numpy")
    found = safetensors.load(saved.read_bytes())
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert_same(found[name], array)


def test_a_file_of_safetensors_is_not_ours(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"w": np.ones(3)}, tmp_path / "x", metadata={"format": "np"})
    with pytest.raises(StorageError, match="was not saved by wideangle"):
        load_bundle(tmp_path / "x")


def test_equal_contents_make_equal_files_and_fingerprints(saved, tmp_path):
    turned = dict(reversed(ARRAYS.items()))
    save_bundle(tmp_path / "again", turned, dict(reversed(META.items())), kind="model")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()
    assert fingerprint(turned, META) == fingerprint(ARRAYS, META)
    assert fingerprint(ARRAYS, META | {"seed": 1}) != fingerprint(ARRAYS, META)
    nudged = np.nextafter(ARRAYS["w"], 9.0)
    assert fingerprint(ARRAYS | {"w": nudged}, META) != fingerprint(ARRAYS, META)


@pytest.mark.parametrize(
    "change",
    [
        lambda: jax.enable_x64(not jax.config.jax_enable_x64),
        lambda: jax.threefry_partitionable(not jax.config.jax_threefry_partitionable),
        lambda: jax.default_prng_impl("rbg"),
    ],
    ids=["precision", "layout", "generator"],
)
def test_a_fingerprint_knows_what_draws_depend_on_in_jax(change):
    usual = fingerprint(ARRAYS, META)
    with change():
        assert fingerprint(ARRAYS, META) != usual
    assert fingerprint(ARRAYS, META) == usual


@pytest.mark.parametrize(
    "array",
    [
        np.array([None]),
        np.array(["a"]),
        np.ones(2, complex),
        np.zeros(1, "M8[s]"),
        jnp.ones(2, jnp.bfloat16),
        np.zeros((1,) * 33),
    ],
    ids=["object", "text", "complex", "date", "bfloat16", "axes"],
)
def test_arrays_without_a_place_are_refused(tmp_path, array):
    with pytest.raises(StorageError, match=r"array 'x' has dtype"):
        save_bundle(tmp_path / "x", {"x": array}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "meta",
    [
        {"a": float("nan")},
        {"a": [float("-inf")]},
        {"a": np.ones(2)},
        {"a": {1, 2}},
        {"a": object()},
        {1: 0, "1": 0},
    ],
)
def test_meta_that_is_not_plain_json_is_refused(tmp_path, meta):
    with pytest.raises(StorageError, match="not plain JSON with finite numbers"):
        save_bundle(tmp_path / "x", {}, meta)


def test_meta_that_is_too_long_or_too_deep_is_refused(tmp_path):
    with pytest.raises(StorageError, match="put long lists into arrays"):
        save_bundle(tmp_path / "x", {}, {"a": "x" * bundle.MAX_HEADER})
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(StorageError, match="not plain JSON"):
        save_bundle(tmp_path / "x", {}, {"a": deep})
    while deep:  # taken apart by hand, for the same reason
        deep = deep.pop()


HOSTILE = ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a\0b", "a\nb", "..\\x",
           "__metadata__", "\ud800"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(tmp_path, saved, name):
    with pytest.raises(StorageError, match="cannot be the name of an array"):
        save_bundle(tmp_path / "x", {name: np.ones(1)}, {})
    forge(saved, lambda entries: entries.update({name: entries.pop("w")}))
    with pytest.raises(StorageError):
        load_bundle(saved)


# Damage


@pytest.mark.parametrize("share", np.linspace(0, 1, 60, endpoint=False))
def test_a_truncated_file_is_refused(saved, share):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(StorageError, match=r"damaged"):
        load_bundle(saved)


def test_every_changed_byte_is_noticed(saved):
    whole = saved.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= (0x01, 0x20, 0x80)[place % 3]
        saved.write_bytes(changed)
        with pytest.raises(StorageError) as caught:
            load_bundle(saved)
        message = str(caught.value)
        assert message.startswith(str(saved)) and message.endswith(".")
        assert "\n" not in message


@pytest.mark.parametrize("extra", [b"\0", b"more", b"\0" * 4096])
def test_appended_bytes_are_noticed(saved, extra):
    saved.write_bytes(saved.read_bytes() + extra)
    with pytest.raises(StorageError, match="bytes of numbers instead of"):
        load_bundle(saved)


@given(st.binary(max_size=200))
def test_noise_is_refused(tmp_path_factory, noise):
    path = tmp_path_factory.getbasetemp() / "noise"
    path.write_bytes(noise)
    with pytest.raises(StorageError):
        load_bundle(path)


class Trap:
    def __reduce__(self):
        return (os.abort, ())


def test_files_of_other_kinds_are_not_opened(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(StorageError, match="was not saved by wideangle"):
        load_bundle(path)
    with open(path, "wb") as file:
        np.savez(file, w=np.ones(3))
    with pytest.raises(StorageError, match="was not saved by wideangle"):
        load_bundle(path)
    path.write_text(json.dumps(META))
    with pytest.raises(StorageError, match="was not saved by wideangle"):
        load_bundle(path)


def test_what_is_not_a_file_is_refused(tmp_path):
    with pytest.raises(StorageError, match="does not exist; check the path"):
        load_bundle(tmp_path / "nothing")
    with pytest.raises(StorageError, match="is not a file"):
        load_bundle(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for special in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(StorageError, match="is not a file"):
            load_bundle(special)
        with pytest.raises(StorageError, match="cannot write"):
            save_bundle(special, {}, {})
    for action in (load_bundle, lambda path: save_bundle(path, {}, {})):
        with pytest.raises(StorageError):
            action("nul\0character")
    with pytest.raises(StorageError, match="cannot write"):
        save_bundle(tmp_path, {}, {})


def test_wrong_kind_is_refused(saved):
    with pytest.raises(StorageError, match="holds a 'model' and not a 'checkpoint'"):
        load_bundle(saved, "checkpoint")


# Forged files: the checksum is right, the contents are not


def forge(path, change, numbers=None):
    """Change the header (and numbers) of a file and make its checksum right again."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    entries, tail = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    change(entries)
    about = entries.get("__metadata__")
    if isinstance(about, dict) and isinstance(about.get("sha256"), str):
        about["sha256"] = "0" * 64
    forge_text(path, json.dumps(entries), tail if numbers is None else numbers)


def forge_text(path, text, tail=b""):
    parts = [len(text).to_bytes(8, "little"), text.encode(), tail]
    digest = bundle._hash(parts).encode()
    path.write_bytes(b"".join([parts[0], parts[1].replace(b"0" * 64, digest, 1), tail]))


def test_forging_works(saved):
    forge(saved, lambda entries: entries["__metadata__"].update(kind="other"))
    assert_same(load_bundle(saved, "other")[0]["w"], ARRAYS["w"])


def put(*path, value):
    def change(entries):
        for step in path[:-1]:
            entries = entries[step]
        entries[path[-1]] = value

    return change


ABOUT = "__metadata__"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(ABOUT, "version", value="2"), "has format 2 and this release reads up to 1; upgrade"),
        (put(ABOUT, "version", value="0"), "was not saved"),
        (put(ABOUT, "version", value="new"), "was not saved"),
        (put(ABOUT, "format", value="other"), "was not saved"),
        (put(ABOUT, value=3), "was not saved"),
        (lambda entries: entries.pop(ABOUT), "was not saved"),
        (put(ABOUT, "sha256", value=["0"] * 64), "was not saved"),
        (put(ABOUT, "meta", value="[1]"), "its JSON is not an object"),
        (put(ABOUT, "meta", value="{"), "is damaged"),
        (put(ABOUT, "meta", value='{"a":NaN}'), "NaN is not a finite number"),
        (put(ABOUT, "meta", value='{"a":1e999}'), "1e999 is not a finite number"),
        (put(ABOUT, "meta", value='{"a":1,"a":2}'), "a name occurs twice"),
        (put(ABOUT, "meta", value="[" * 100_000), "is damaged"),
        (put(ABOUT, "meta", value='{"a":' + "9" * 5000 + "}"), "is damaged"),
        (put(ABOUT, "meta", value=None), "is damaged"),
        (put("w", value=[]), "is damaged"),
        (put("w", value={}), "is damaged"),
        (put("w", "dtype", value="O"), "is damaged"),
        (put("w", "dtype", value=["F64"]), "is damaged"),
        (put("w", "dtype", value="F32"), "is not where it should be"),
        (put("w", "shape", value=[2, -3]), "impossible shape"),
        (put("w", "shape", value=[True] * 6), "impossible shape"),
        (put("w", "shape", value=[1] * 40), "impossible shape"),
        (put("w", "shape", value="ab"), "impossible shape"),
        (put("w", "shape", value=[2**62, 2**62]), "is not where it should be"),
        (put("none", "shape", value=[0, 2**62, 2**62]), "is damaged"),
        (put("none", "shape", value=[0, 10**30]), "is damaged"),
        (put("w", "data_offsets", value=[0, 2**50]), "is not where it should be"),
        (put("w", "data_offsets", value=[-48, 0]), "is not where it should be"),
        (put("w", "data_offsets", value="x"), "is damaged"),
        (put("count", "data_offsets", value=[0, 4]), "is not where it should be"),
        (put("more", value={"dtype": "U8", "shape": [9], "data_offsets": [55, 64]}), "bytes of"),
    ],
)
def test_forged_contents_are_refused(saved, change, message):
    forge(saved, change)
    with pytest.raises(StorageError, match=message):
        load_bundle(saved)


@pytest.mark.parametrize(
    "text",
    ["[" * 1_000_000, '{"a":' * 500_000, "{" + '"w":{},' * 9 + '"w":{}}', "[]", '"x"', "\xff", ""],
)
def test_header_bombs_are_refused(tmp_path, text):
    forge_text(tmp_path / "x", text)
    with pytest.raises(StorageError, match="was not saved by wideangle"):
        load_bundle(tmp_path / "x")


@pytest.mark.parametrize("length", [bundle.MAX_HEADER + 1, 2**40, 2**63, 2**64 - 1])
def test_a_huge_header_is_not_read(tmp_path, length):
    with open(tmp_path / "x", "wb") as file:
        file.write(length.to_bytes(8, "little") + b"{")
        file.truncate(2**33)  # a hole: takes no space on the disk
    with pytest.raises(StorageError, match="was not saved by wideangle"):
        load_bundle(tmp_path / "x")


def test_numbers_that_do_not_fit_into_memory_are_refused(saved, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(bundle.np, "empty", full)
    with pytest.raises(StorageError, match="does not fit into memory"):
        load_bundle(saved)


# All or nothing


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_or_a_stop_leaves_the_old_file(saved, monkeypatch, after, error):
    def failing(*args):
        file = open(*args)
        write, left = file.write, [after]

        class Full:
            def __enter__(self):
                return self

            def __exit__(self, *exception):
                file.close()

            def write(self, part):
                if not left[0]:
                    write(bytes(part)[:1])
                    raise error
                left[0] -= 1
                return write(part)

        return Full()

    monkeypatch.setattr(files, "open", failing, raising=False)
    with pytest.raises((StorageError, KeyboardInterrupt), match=r"No space left; check|^$"):
        save_bundle(saved, {"w": np.ones(5), "v": np.ones(5)}, {}, kind="model")
    monkeypatch.undo()
    assert_old_file_alone(saved)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_flush_or_move_leaves_the_old_file(saved, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(StorageError, match=r"cannot write .*: Input/output error; check"):
        save_bundle(saved, {}, {}, kind="model")
    monkeypatch.undo()
    assert_old_file_alone(saved)


def test_a_limit_of_the_system_leaves_the_old_file(saved):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StorageError, match="File too large; check"):
            save_bundle(saved, {"w": np.ones(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_old_file_alone(saved)


def test_a_read_only_folder_is_reported(saved, monkeypatch):
    if os.geteuid() == 0:  # permissions do not bind this user

        def refuse(*_):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(files, "open", refuse, raising=False)
    saved.parent.chmod(0o500)
    try:
        with pytest.raises(StorageError, match=r"cannot write .*: Permission denied; check"):
            save_bundle(saved, {}, {})
        assert_old_file_alone(saved)
    finally:
        saved.parent.chmod(0o700)


def test_a_link_stays_and_permissions_follow_the_umask(saved):
    link = saved.with_name("link")
    link.symlink_to(saved)
    save_bundle(link, {}, {"new": True})
    assert link.is_symlink() and load_bundle(saved)[1] == {"new": True}
    plain = saved.with_name("plain")
    plain.touch()
    assert saved.stat().st_mode == plain.stat().st_mode


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(StorageError, match="No such file or directory; check the path"):
        save_bundle(tmp_path / "a" / "b", {}, {})


def worker(mode, folder):
    """A second process, with this file as its program."""
    environment = os.environ | {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, mode, str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def test_processes_killed_while_saving_leave_whole_files(tmp_path):
    process = worker("save", tmp_path)
    children = [int(process.stdout.readline()) for _ in range(4)]
    for i, child in enumerate(children):
        time.sleep(0.03 + 0.017 * i)
        os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)
    for i in range(4):
        found, meta = load_bundle(tmp_path / str(i), "loop")
        assert np.all(found["w"] == meta["count"])


def save_in_children(folder):
    for i in range(4):
        path = folder / str(i)
        save_bundle(path, {"w": np.zeros(1)}, {"count": 0}, kind="loop")
        child = os.fork()
        if not child:
            end = time.monotonic() + 30.0  # should nobody kill it
            count = 0
            while time.monotonic() < end:
                count += 1
                content = {"w": np.full(100_000, float(count))}
                save_bundle(path, content, {"count": count}, kind="loop")
            os._exit(0)
        print(child, flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


# Trees


class Pair(NamedTuple):
    left: object
    right: object


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Record:
    values: object
    stats: object


trees = st.recursive(
    arrays | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Pair, inner, inner)
        | st.dictionaries(words, inner, max_size=3)
    ),
    max_leaves=6,
)


@given(trees)
def test_trees_round_trip(tree):
    assert_same_tree(unpack(pack(tree), tree), tree)
    anything = jax.tree.map(lambda _: ..., tree)
    assert_same_tree(unpack(pack(tree), anything), tree)


def test_names_say_where_an_array_is():
    tree = {"a/b": [1.0, (2, None)], "c": Pair(np.ones(2), {3: np.ones(1)})}
    assert list(pack(tree)) == ["a%2Fb/0", "a%2Fb/1/0", "c/left", "c/right/3"]
    assert list(pack(np.ones(2))) == ["value"]
    record = unpack(pack(Record(tree, {})), Record(tree, {}))
    assert isinstance(record, Record) and isinstance(record.values["c"], Pair)
    assert unpack(pack(OrderedDict(a=1)), {"a": 0}) == {"a": 1}


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_random_keys_round_trip(tmp_path, impl):
    tree = {"one": jax.random.key(3, impl=impl), "many": jax.random.split(jax.random.key(4), 3)}
    save_bundle(tmp_path / "x", pack(tree), {})
    for template in (tree, jax.eval_shape(lambda: tree)):
        found = unpack(load_bundle(tmp_path / "x")[0], template)
        for name, keys in tree.items():
            assert found[name].dtype == keys.dtype
            assert_same(jax.random.key_data(found[name]), jax.random.key_data(keys))


def test_a_key_of_another_kind_is_refused(key):
    arrays = pack({"k": key})
    with pytest.raises(StorageError, match=r"is key<fry>\[\] and not key<rbg>"):
        unpack(arrays, {"k": jax.random.key(0, impl="rbg")})
    with pytest.raises(StorageError, match="is key<fry>"):
        unpack(arrays, {"k": jax.random.split(key)})
    for forged in ({"k@no": arrays["k@threefry2x32"]}, {"k": np.ones(2)},
                   {"k@threefry2x32": np.ones(3)}):  # fmt: skip
        with pytest.raises(StorageError, match="is not a random key"):
            unpack(forged, {"k": key})
    with pytest.raises(StorageError, match=r"uint32\[2\] and not float64"):
        unpack(arrays, {"k": np.ones(2)})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"a": np.ones(2)}, r"missing \[\], unexpected \['b'\]"),
        ({"a": np.ones(2), "b": 1, "c": 1}, r"missing \['c'\], unexpected \[\]"),
        ([np.ones(2), 1], r"missing \['0', '1'\], unexpected \['a', 'b'\]"),
        ({"a": np.ones(3), "b": 1}, r"'a' is float64\[2\] and not float64\[3\]"),
        ({"a": np.ones((1, 2)), "b": 1}, r"'a' is float64\[2\] and not float64\[1, 2\]"),
        ({"a": np.ones(2, np.float32), "b": 1}, r"'a' is float64\[2\] and not float32\[2\]"),
        ({"a": np.ones(2), "b": 1.0}, r"'b' is int64\[\] and not float64\[\]"),
    ],
)
def test_another_structure_is_refused(template, message):
    with pytest.raises(StorageError, match=message):
        unpack(pack({"a": np.ones(2), "b": 1}), template)


def test_a_free_axis_may_have_any_length():
    assert unpack({"a": np.ones((2, 5))}, {"a": np.ones((2, 0))}, free_axis=1)["a"].shape == (2, 5)
    for shape in ((3, 5), (2, 5, 1), (2,)):
        with pytest.raises(StorageError, match="and not float64"):
            unpack({"a": np.ones(shape)}, {"a": np.ones((2, 0))}, free_axis=1)


def test_two_arrays_for_one_place_are_refused():
    with pytest.raises(StorageError, match="something else"):
        unpack({"a": np.ones(1), "a@x": np.ones(1)}, {"a": np.ones(1)})


# Checkpoints


class Latents(NamedTuple):
    x: jax.Array
    label: dict


def log_joint(z):
    return -0.5 * jnp.sum(z.x**2) - jnp.sum(z.x) ** 4


def recipe(steps):
    def propose(key, position):
        return position + steps["update"] * jax.random.normal(key, position.shape), jnp.zeros(())

    return within(metropolis(propose), "x", log_joint)


def initial(key):
    return Latents(jax.random.normal(key, (3,)), {"group": jnp.zeros(2, jnp.int32)})


def go(**changed):
    options = {"n_warmup": 40, "n_draws": 60, "n_chains": 2, "chunk": 7, "verbose": False}
    options |= {"steps": {"update": 1.0}, "targets": {"update": 0.4}, "thin": 2}
    return run(jax.random.key(5), recipe, initial, **(options | changed))


@pytest.fixture(scope="module")
def template():
    empty = go(n_warmup=0, n_draws=0)
    return empty.state, empty.draws


@pytest.fixture(scope="module")
def whole():
    return go()


def checkpoint_at(folder, **options):
    return Checkpoint(folder, **({"fingerprint": "data", "every_seconds": 0.0} | options))


def assert_completes(folder, template, whole, *, left):
    """Resume, and compare with the run that was never stopped."""
    saved = checkpoint_at(folder)
    state, earlier = saved.load(template)
    assert 0 < earlier.n_draws < 60
    assert earlier.n_draws >= left
    with saved:
        later = go(resume=state, on_chunk=saved, chunk=None)
    draws = earlier.followed_by(later.draws)
    assert_same_tree((draws.values, draws.stats), (whole.draws.values, whole.draws.stats))
    assert_same_tree(later.state, whole.state)
    state, joined = checkpoint_at(folder).load(template)  # the file has both parts as well
    assert_same_tree((joined.values, joined.stats), (whole.draws.values, whole.draws.stats))
    saved.remove()
    assert not folder.exists()


def after(saved, n_draws, action):
    def hook(state, draws):
        saved(state, draws)
        if draws.n_draws >= n_draws:
            action()

    return hook


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_a_killed_run_is_taken_up_again(tmp_path, template, whole):
    process = worker("kill", tmp_path / "run")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert_completes(tmp_path / "run", template, whole, left=20)


def run_and_die(folder):
    checkpoint.PATIENCE = 0.0
    saved = checkpoint_at(folder)

    def hook(state, draws):
        if draws.n_draws >= 30:  # this chunk is lost
            os.kill(os.getpid(), signal.SIGKILL)
        saved(state, draws)

    with saved:
        go(on_chunk=hook)


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_an_interrupted_run_is_taken_up_again(tmp_path, template, whole, seconds):
    saved = checkpoint_at(tmp_path / "run", every_seconds=seconds)
    with pytest.warns(RuntimeWarning, match="interrupted"), saved:
        go(on_chunk=after(saved, 30, interrupt))
    assert_completes(tmp_path / "run", template, whole, left=30)


@pytest.mark.parametrize("at", range(5))
@pytest.mark.usefixtures("save_at_once")
def test_ctrl_c_while_saving_loses_nothing(tmp_path, template, whole, monkeypatch, at):
    saved = checkpoint_at(tmp_path / "run")
    calls = [0]

    def replace(source, target, actual=os.replace):
        calls[0] += 1
        if calls[0] == 12 + at // 2 and at % 2:
            raise KeyboardInterrupt
        actual(source, target)
        if calls[0] == 12 + at // 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", replace)
    with pytest.warns(RuntimeWarning, match="interrupted"), saved:
        stopped = go(on_chunk=saved)
    state, draws = checkpoint_at(tmp_path / "run").load(template)
    assert_same_tree((draws.values, state), (stopped.draws.values, stopped.state))
    monkeypatch.undo()
    assert_completes(tmp_path / "run", template, whole, left=1)


def test_a_crash_between_draws_and_state_leaves_the_moment_before(tmp_path, template, monkeypatch):
    saved = checkpoint_at(tmp_path / "run", every_seconds=1000.0)
    seen = []
    go(on_chunk=lambda *args: seen.append(args))
    saved(*seen[7])
    monkeypatch.setattr(checkpoint, "save_bundle", lambda *_, **__: interrupt())
    saved._pending = seen[9]
    with pytest.raises(KeyboardInterrupt):
        saved._save_pending(may_fail=False)
    state, draws = checkpoint_at(tmp_path / "run").load(template)
    assert_same_tree((state, draws.values), (seen[7][0], seen[7][1].values))


def test_a_run_stopped_in_warm_up_is_taken_up_again(tmp_path, template, whole):
    saved = checkpoint_at(tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="interrupted"), saved:
        go(on_chunk=after(saved, 0, interrupt))
    state, draws = checkpoint_at(tmp_path / "run").load(template)
    assert draws.n_draws == 0 and int(state.iteration) == 7
    assert_same_tree(go(resume=state).draws.values, whole.draws.values)


def test_every_draw_is_written_once(tmp_path, save_at_once):
    saved = checkpoint_at(tmp_path / "run")
    with saved:
        result = go(on_chunk=saved)
    parts = [load_bundle(file)[0] for file in (tmp_path / "run").glob("draws-*")]
    assert len(parts) == 10
    assert sum(part["values/x"].shape[1] for part in parts) == result.draws.n_draws


def test_saves_keep_their_distance(tmp_path, template, monkeypatch):
    clock, writes = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])

    def slow_write(*_):
        clock[0] += 2.0
        writes.append(clock[0])

    saved = checkpoint_at(tmp_path / "run", every_seconds=30.0)
    monkeypatch.setattr(saved, "_write", slow_write)
    saved._known = True
    for _ in range(200):
        saved(*template)
        clock[0] += 1.0
    assert np.diff(writes).min() >= checkpoint.PATIENCE * 2.0
    assert len(writes) == 5


def test_nothing_to_load(tmp_path, template):
    saved = checkpoint_at(tmp_path / "run")
    assert saved.load(template) is None
    saved.remove()  # nothing to remove either
    with saved:
        pass
    assert not (tmp_path / "run").exists()


@pytest.fixture
def half(tmp_path, save_at_once):
    saved = checkpoint_at(tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="interrupted"), saved:
        go(on_chunk=after(saved, 30, interrupt))
    return tmp_path / "run"


def test_a_checkpoint_of_other_settings_is_refused(half, template):
    with pytest.raises(StorageError, match="other data, settings or seed"):
        checkpoint_at(half, fingerprint="other").load(template)


def test_a_checkpoint_of_another_structure_is_refused(half, template):
    state, draws = template
    with pytest.raises(StorageError, match="'state/latents/x'"):
        checkpoint_at(half).load((state._replace(latents=state.latents._replace(x=None)), draws))
    narrow = jax.tree.map(lambda leaf: leaf.astype(np.float32), draws.values)
    with pytest.raises(StorageError, match="precision"):
        checkpoint_at(half).load((state, dataclasses.replace(draws, values=narrow)))


def test_a_checkpoint_is_not_overwritten_unread(half, template):
    before = sorted(file.name for file in half.iterdir())
    with pytest.raises(StorageError, match=r"load\(\) it to continue, or remove\(\) it"):
        go(on_chunk=checkpoint_at(half))
    assert sorted(file.name for file in half.iterdir()) == before
    assert checkpoint_at(half).load(template) is not None
    fresh = checkpoint_at(half)
    fresh.remove()
    with fresh:
        go(on_chunk=fresh)
    assert checkpoint_at(half).load(template)[1].n_draws == 60


def test_a_damaged_checkpoint_is_refused(half, template):
    part, *others = half.glob("draws-*")
    content = part.read_bytes()
    part.write_bytes(content[:-1])
    with pytest.raises(StorageError, match="is damaged"):
        checkpoint_at(half).load(template)
    part.write_bytes(others[0].read_bytes())
    with pytest.raises(StorageError, match="holds other draws"):
        checkpoint_at(half).load(template)
    part.unlink()
    with pytest.raises(StorageError, match="remove the folder to begin again"):
        checkpoint_at(half).load(template)
    part.write_bytes(content)
    assert checkpoint_at(half).load(template) is not None
    arrays, meta = load_bundle(half / "state.safetensors")
    arrays["parts"] = np.float64(1.0)
    save_bundle(half / "state.safetensors", arrays, meta, kind="checkpoint")
    with pytest.raises(StorageError, match="makes no sense"):
        checkpoint_at(half).load(template)


@pytest.mark.usefixtures("save_at_once")
def test_a_full_disk_does_not_end_a_run(tmp_path, template, monkeypatch, whole):
    saved = checkpoint_at(tmp_path / "run")
    count = [0]

    def full(descriptor, actual=os.fsync):
        count[0] += 1
        if 20 < count[0] < 25:
            raise OSError(errno.ENOSPC, "No space left on device")
        actual(descriptor)

    monkeypatch.setattr(files.os, "fsync", full)
    with (
        pytest.warns(RuntimeWarning, match="continues without a new checkpoint: cannot write"),
        saved,
    ):
        result = go(on_chunk=saved)
    assert_same_tree(result.draws.values, whole.draws.values)
    assert_same_tree(checkpoint_at(tmp_path / "run").load(template)[1].values, result.draws.values)


def test_a_place_that_cannot_be_written_is_reported_at_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        saved = checkpoint_at(place)
        with pytest.raises(StorageError, match="cannot make the folder"), saved:
            go(on_chunk=saved)


def test_misuse_is_reported(half, template):
    saved = checkpoint_at(half)
    state, _ = saved.load(template)
    with saved:
        go(resume=state, on_chunk=saved)
    with pytest.raises(ValueError, match="closed: make a new one"):
        go(resume=state, on_chunk=saved)
    saved = checkpoint_at(half.with_name("other"), every_seconds=0.0)
    saved(*template)
    full = go()
    saved._due = 0.0
    saved(full.state, full.draws)
    saved._due = 0.0
    with pytest.raises(ValueError, match="of another run"):
        saved(*template)
    with pytest.raises(ValueError, match="every_seconds=-1"):
        checkpoint_at(half, every_seconds=-1.0)


def test_remove_leaves_what_is_not_its_own(half, template):
    (half / "notes.txt").write_text("keep")
    (half / ".wideangle-0123.tmp").write_text("left by a crash")
    checkpoint_at(half).remove()
    assert [file.name for file in half.iterdir()] == ["notes.txt"]


if __name__ == "__main__":
    {"save": save_in_children, "kill": run_and_die}[sys.argv[1]](Path(sys.argv[2]))


def test_a_folder_that_is_deleted_under_a_run_is_written_again(tmp_path, template, whole):
    saved, folder = checkpoint_at(tmp_path / "run"), tmp_path / "run"

    def delete_and_go_on(state, draws):
        if 20 <= draws.n_draws < 27:
            shutil.rmtree(folder)
        saved(state, draws)
        if draws.n_draws >= 40:
            interrupt()

    with saved, pytest.warns(RuntimeWarning, match="interrupted"):
        go(on_chunk=delete_and_go_on)
    assert_completes(folder, template, whole, left=20)


def test_draws_of_an_earlier_run_that_are_deleted_are_not_left_out_in_silence(tmp_path, template):
    folder = tmp_path / "run"
    with checkpoint_at(folder) as saved:
        go(on_chunk=saved, n_draws=20)
    saved = checkpoint_at(folder)
    state, _ = saved.load(template)
    shutil.rmtree(folder)
    with saved, pytest.raises(StorageError, match="draws that were saved are gone"):
        go(resume=state, on_chunk=saved, n_draws=40)
    assert checkpoint_at(folder).load(template) is None
