"""Downloads from a server on this machine that hangs, breaks off, lies and recovers."""

import errno
import hashlib
import itertools
import shutil
import socket
import time
import urllib.error

import pytest

from wideangle_lab.originals import download as module
from wideangle_lab.originals.download import DownloadError, Patience, WrongFileError, download

CONTENT = bytes(range(256)) * 800
SHA = hashlib.sha256(CONTENT).hexdigest()
QUICK = Patience(timeout=0.4, tries=3, pause=0.001)


def ranges(server):
    return [headers.get("Range") for _, headers in server.seen]


def test_a_file_arrives_whole_and_nothing_else_stays(server, tmp_path):
    server.serve(CONTENT)
    steps = []
    found = download(
        server.address(), tmp_path / "x", sha256=SHA, report=lambda *step: steps.append(step)
    )
    assert found == SHA
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert all(a < b for (a, _), (b, _) in itertools.pairwise(steps))


def test_what_breaks_off_is_continued_within_one_call(server, tmp_path):
    server.serve(CONTENT, stop_after=2)
    assert download(server.address(), tmp_path / "x", patience=QUICK) == SHA
    half, rest = len(CONTENT) // 2, len(CONTENT) - len(CONTENT) // 2
    assert ranges(server) == [None, f"bytes={half}-", f"bytes={half + rest // 2}-"]
    assert server.seen[1][1]["If-Range"] == '"v1"'


def test_what_breaks_off_for_good_is_continued_by_the_next_call(server, tmp_path):
    server.serve(CONTENT, stop_after=1)
    once = QUICK._replace(tries=1)
    with pytest.raises(DownloadError, match=r"closed after 102,400 of 204,800 bytes .*goes on"):
        download(server.address(), tmp_path / "x", patience=once)
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "x.part").stat().st_size == len(CONTENT) // 2
    assert download(server.address(), tmp_path / "x", patience=once) == SHA
    assert ranges(server)[-1] == "bytes=102400-"


def test_a_server_without_ranges_starts_again(server, tmp_path):
    (tmp_path / "x.part").write_bytes(CONTENT[:1000])
    server.routes["/file"] = lambda handler: handler.answer(200, CONTENT)
    assert download(server.address(), tmp_path / "x", sha256=SHA) == SHA
    assert ranges(server) == ["bytes=1000-"]


def test_a_file_that_changed_meanwhile_is_never_mixed_with_the_old_part(server, tmp_path):
    server.serve(b"old" * 1000, stop_after=1)
    with pytest.raises(DownloadError):
        download(server.address(), tmp_path / "x", patience=QUICK._replace(tries=1))
    server.serve(CONTENT, tag='"v2"')
    assert download(server.address(), tmp_path / "x", patience=QUICK) == SHA
    assert ranges(server)[-1] == "bytes=1500-"  # asked, but If-Range had the old tag


@pytest.mark.parametrize("tag", ["", 'W/"weak"'])
def test_without_a_way_to_tell_a_part_is_dropped(server, tmp_path, tag):
    server.serve(CONTENT, tag=tag, stop_after=1)
    assert download(server.address(), tmp_path / "x", patience=QUICK) == SHA
    assert ranges(server) == [None, None]


def test_a_part_that_was_whole_already_only_needs_its_name(server, tmp_path):
    server.serve(CONTENT)
    (tmp_path / "x.part").write_bytes(CONTENT)
    assert download(server.address(), tmp_path / "x", sha256=SHA, patience=QUICK) == SHA
    assert len(server.seen) == 1


def test_a_part_longer_than_the_file_is_dropped(server, tmp_path):
    server.serve(CONTENT)
    (tmp_path / "x.part").write_bytes(CONTENT + b"more")
    assert download(server.address(), tmp_path / "x", sha256=SHA, patience=QUICK) == SHA


def test_a_server_that_continues_at_the_wrong_place_is_not_believed(server, tmp_path):
    def shifted(handler):
        asked = handler.headers.get("Range")
        if asked:
            return handler.answer(206, CONTENT[900:], Content_Range="bytes 900-204799/204800")
        return handler.answer(200, CONTENT)

    server.routes["/file"] = shifted
    (tmp_path / "x.part").write_bytes(CONTENT[:1000])
    assert download(server.address(), tmp_path / "x", sha256=SHA, patience=QUICK) == SHA


def test_another_file_is_refused_and_leaves_nothing(server, tmp_path):
    server.serve(b"<html>moved</html>")
    with pytest.raises(WrongFileError, match=f"18 bytes with sha256 .*, not {SHA}"):
        download(server.address(), tmp_path / "x", sha256=SHA)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_hangs_is_given_up(server, tmp_path):
    server.routes["/file"] = lambda _: server.released.wait(20)
    began = time.monotonic()
    with pytest.raises(DownloadError, match=r"no answer .*timed out.*2 tries"):
        download(server.address(), tmp_path / "x", patience=QUICK._replace(tries=2))
    assert time.monotonic() - began < 5


def test_a_server_that_hangs_in_the_middle_is_continued(server, tmp_path):
    server.serve(CONTENT, "/rest")

    def half(handler):
        if handler.headers.get("Range"):
            return server.routes["/rest"](handler)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.send_header("ETag", '"v1"')
        handler.end_headers()
        handler.wfile.write(CONTENT[:5000])
        handler.wfile.flush()
        return server.released.wait(20)

    server.routes["/file"] = half
    assert download(server.address(), tmp_path / "x", patience=QUICK) == SHA
    assert ranges(server)[-1] == "bytes=5000-"


def test_a_server_that_drips_is_given_up(server, tmp_path):
    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while not server.released.wait(0.05):
            handler.wfile.write(b".")
            handler.wfile.flush()

    server.routes["/file"] = drip
    slow = QUICK._replace(tries=1, slowest=1000.0)
    with pytest.raises(DownloadError, match=r"only \d+ bytes came in 0 seconds"):
        download(server.address(), tmp_path / "x", patience=slow)


def test_passing_faults_are_tried_again_with_growing_pauses(server, tmp_path, monkeypatch):
    answers = iter([(500, {}), (503, {"Retry_After": "7"}), (429, {"Retry_After": "soon"})])
    server.serve(CONTENT, "/good")

    def moody(handler):
        status, headers = next(answers, (200, {}))
        good = server.routes["/good"]
        return good(handler) if status == 200 else handler.answer(status, **headers)

    server.routes["/file"] = moody
    pauses = []
    monkeypatch.setattr(module.time, "sleep", pauses.append)
    assert download(server.address(), tmp_path / "x", patience=Patience(pause=1.0)) == SHA
    assert 0.5 <= pauses[0] <= 1.0
    assert pauses[1] == 7.0  # what the server asked for
    assert 2.0 <= pauses[2] <= 4.0


@pytest.mark.parametrize("status", [403, 404, 410])
def test_final_answers_are_not_tried_again(server, tmp_path, status):
    server.routes["/file"] = lambda handler: handler.answer(status)
    with pytest.raises(DownloadError, match=rf"/file: the server answered {status}"):
        download(server.address(), tmp_path / "x", patience=QUICK)
    assert len(server.seen) == 1


def test_redirects_are_followed_and_keep_the_range(server, tmp_path):
    server.routes["/old"] = lambda handler: handler.answer(302, Location="/file")
    server.serve(CONTENT)
    (tmp_path / "x.part").write_bytes(CONTENT[:10])
    assert download(server.address("/old"), tmp_path / "x", sha256=SHA, patience=QUICK) == SHA
    assert ranges(server) == ["bytes=10-", "bytes=10-"]


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_redirects_to_other_schemes_are_refused(server, tmp_path, to):
    server.routes["/file"] = lambda handler: handler.answer(302, Location=to)
    with pytest.raises(DownloadError, match=r"[Rr]edirect.*\."):
        download(server.address(), tmp_path / "x", patience=QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_from_https_to_http_is_refused():
    request = module.urllib.request.Request("https://example.org/x")
    with pytest.raises(DownloadError, match="redirects to http://example"):
        module._SafeRedirects().redirect_request(request, None, 302, "", {}, "http://example.org/y")


def test_a_ring_of_redirects_ends(server, tmp_path):
    server.routes["/file"] = lambda handler: handler.answer(302, Location="/file")
    with pytest.raises(DownloadError, match="302"):
        download(server.address(), tmp_path / "x", patience=QUICK)
    assert len(server.seen) < 20


@pytest.mark.parametrize("address", ["file:///etc/hosts", "ftp://example.org/x", "x"])
def test_only_the_web_is_fetched_from(tmp_path, address):
    with pytest.raises(DownloadError, match="only http"):
        download(address, tmp_path / "x")


def test_more_bytes_than_allowed_are_refused_announced_or_not(server, tmp_path):
    server.serve(CONTENT)
    with pytest.raises(DownloadError, match="204,800 bytes, more than the 1,000"):
        download(server.address(), tmp_path / "x", most_bytes=1000)

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):  # without end, if the client is right
            handler.wfile.write(CONTENT)

    server.routes["/file"] = endless
    with pytest.raises(DownloadError, match="more than 1,000,000 bytes came"):
        download(server.address(), tmp_path / "y", most_bytes=1_000_000)


def test_offline_is_said_at_once(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise urllib.error.URLError(socket.gaierror(-3, "Temporary failure in name resolution"))

    monkeypatch.setattr(module.urllib.request.OpenerDirector, "open", fails)
    monkeypatch.setattr(module.time, "sleep", lambda _: pytest.fail("no reason to wait"))
    with pytest.raises(DownloadError, match=r"example.org cannot be reached .*offline\.$"):
        download("http://example.org/x", tmp_path / "x")


def test_nobody_listening_is_tried_again(server, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/x"
    with pytest.raises(DownloadError, match=r"refused.*3 tries"):
        download(address, tmp_path / "x", patience=QUICK)


def test_a_disk_too_small_is_said_before_anything_is_written(server, tmp_path, monkeypatch):
    server.serve(CONTENT)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DownloadError, match=r"no room: 204,800 bytes are to come, 1,000 are free"):
        download(server.address(), tmp_path / "x")
    assert not (tmp_path / "x.part").exists()


def test_a_disk_that_fills_up_keeps_the_part(server, tmp_path, monkeypatch):
    server.serve(CONTENT)

    def full(response, part, *_):
        part.write_bytes(CONTENT[:3000])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_copy", full)
        with pytest.raises(DownloadError, match=r"no room left; .* goes on from 3,000 bytes"):
            download(server.address(), tmp_path / "x")
    assert download(server.address(), tmp_path / "x") == SHA
    assert ranges(server)[-1] == "bytes=3000-"


def test_a_folder_that_cannot_be_written_is_named(server, tmp_path):
    server.serve(CONTENT)
    with pytest.raises(DownloadError, match="No such file"):
        download(server.address(), tmp_path / "absent" / "x")
