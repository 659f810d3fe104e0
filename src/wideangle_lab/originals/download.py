"""Verified downloads: resumed if interrupted, checked, and renamed when complete."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import random
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

CHUNK = 1 << 16
UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
PASSING_STATUS = {408, 425, 429, 500, 502, 503, 504}
Report = Callable[[int, int | None], None]


class DownloadError(OSError):
    """A download failed; the message is for the user."""


class WrongFileError(DownloadError):
    """The downloaded file has an unexpected checksum."""


class Patience(NamedTuple):
    """Timeouts and number of tries."""

    timeout: float = 30.0
    """Seconds without data until a try fails."""
    tries: int = 5
    pause: float = 1.0
    """Seconds before the second try; doubles with each further one, up to ``longest_pause``."""
    longest_pause: float = 30.0
    slowest: float = 50.0
    """Minimum bytes per second, after ``timeout`` seconds."""


class _PassingError(Exception):
    """A failure that may be retried."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


def download(
    address: str,
    target: Path,
    *,
    sha256: str = "",
    most_bytes: int = 4 << 30,
    patience: Patience = Patience(),  # noqa: B008 - immutable
    report: Report | None = None,
) -> str:
    """Download ``address`` to ``target``, and return its sha256.

    Received data are kept in ``target`` + ".part", so that the next call can resume; ``target`` is
    created by one rename, complete and checked. A part is resumed only if the server confirms that
    its file has not changed (``If-Range``), or if ``sha256`` is given.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise DownloadError(f"{address}: only http and https addresses are fetched.")
    part = target.with_name(target.name + ".part")
    fault = _PassingError("no try was allowed")
    for attempt in range(patience.tries):
        try:
            _receive(address, part, bool(sha256), most_bytes, patience, report)
            break
        except _PassingError as error:
            fault = error
            if attempt + 1 < patience.tries:
                # Half of the pause is random: many clients of one server should not retry at
                # the same moment.
                pause = min(patience.pause * 2**attempt, patience.longest_pause)
                wait = min(fault.wait, patience.longest_pause)
                time.sleep(max(wait, pause * random.uniform(0.5, 1.0)))
    else:
        raise DownloadError(
            f"{address}: {fault} ({patience.tries} tries); what has arrived is kept, and fetching "
            "again goes on from there."
        )
    return _finish(address, part, target, sha256)


def sha256_of(path: Path) -> str:
    """Checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _finish(address: str, part: Path, target: Path, sha256: str) -> str:
    found = sha256_of(part)
    notes = _notes(part)
    if sha256 and found != sha256:
        size = part.stat().st_size
        part.unlink()
        notes.unlink(missing_ok=True)
        raise WrongFileError(
            f"{address} is not the file expected: {size:,} bytes with sha256 {found}, not {sha256}."
        )
    os.replace(part, target)
    notes.unlink(missing_ok=True)
    return found


def _receive(
    address: str,
    part: Path,
    hash_known: bool,
    most_bytes: int,
    patience: Patience,
    report: Report | None,
) -> None:
    """One try: request the missing bytes of ``part`` and append them."""
    start, validator = _resume_point(part, address, hash_known)
    headers = {"User-Agent": "wideangle (Python urllib)", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        headers |= {"If-Range": validator} if validator else {}
    request = urllib.request.Request(address, headers=headers)
    try:
        with _opener().open(request, timeout=patience.timeout) as response:
            start, total = _begin(response, part, start)
            if (total or 0) > most_bytes:
                raise DownloadError(f"{address}: {total:,} bytes, more than the {most_bytes:,} "
                                    "that this file may have.")  # fmt: skip
            _check_room(part.parent, (total or 0) - start)
            _write_notes(part, address, response)
            _copy(response, part, start, total, most_bytes, patience, report)
    except urllib.error.HTTPError as error:
        error.close()
        _judge_status(error, address, part, start)
    except http.client.HTTPException as error:
        raise _PassingError(f"the connection broke ({type(error).__name__})") from error
    except (DownloadError, _PassingError):
        raise
    except OSError as error:
        _judge_fault(error, address, part)


def _begin(response: Any, part: Path, asked: int) -> tuple[int, int | None]:
    """First byte of the response and the total size; a part that does not match is deleted."""
    length = response.headers.get("Content-Length", "")
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        # The server cannot resume, or its file has changed: start from the beginning.
        part.unlink(missing_ok=True)
        return 0, int(length) if length.isdigit() else None
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    span, _, whole = rest.partition("/")
    if unit != "bytes" or span.partition("-")[0] != str(asked):
        part.unlink(missing_ok=True)
        raise _PassingError("the server continued at the wrong place")
    return asked, int(whole) if whole.isdigit() else None


def _copy(
    response: Any,
    part: Path,
    start: int,
    total: int | None,
    most_bytes: int,
    patience: Patience,
    report: Report | None,
) -> None:
    done, began = start, time.monotonic()
    with part.open("ab") as file:
        while chunk := response.read1(CHUNK):
            file.write(chunk)
            done += len(chunk)
            if done > most_bytes:
                raise DownloadError(f"{response.url}: more than {most_bytes:,} bytes came.")
            if report:
                report(done, total)
            taken = time.monotonic() - began
            if taken > patience.timeout and done - start < patience.slowest * taken:
                raise _PassingError(f"only {done - start:,} bytes came in {taken:.0f} seconds")
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done != total:
        raise _PassingError(f"the connection closed after {done:,} of {total:,} bytes")


def _resume_point(part: Path, address: str, hash_known: bool) -> tuple[int, str]:
    """Bytes to keep, and the server's identifier of their version."""
    if not part.is_file():
        return 0, ""
    try:
        notes = json.loads(_notes(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        notes = {}
    validator = notes.get("validator", "") if notes.get("address") == address else ""
    if validator or hash_known:
        return part.stat().st_size, validator
    part.unlink()  # cannot check that the rest belongs to the same file
    return 0, ""


def _write_notes(part: Path, address: str, response: Any) -> None:
    tag = response.headers.get("ETag", "")
    # A weak tag only promises an equivalent file, not the same bytes.
    weak = not tag or tag.startswith("W/")
    validator = response.headers.get("Last-Modified", "") if weak else tag
    _notes(part).write_text(json.dumps({"address": address, "validator": validator}))


def _notes(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DownloadError(
            f"{folder} has no room: {needed:,} bytes are to come, {free:,} are free."
        )


def _judge_status(error: urllib.error.HTTPError, address: str, part: Path, start: int) -> None:
    if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
        if error.headers.get("Content-Range", "") == f"bytes */{start}":
            return  # nothing is missing: the last run stopped between the last byte and the rename
        part.unlink(missing_ok=True)
        raise _PassingError("the server has fewer bytes than were here") from None
    if error.code in PASSING_STATUS:
        after = error.headers.get("Retry-After", "")
        wait = float(after) if after.isdigit() else 0.0
        raise _PassingError(f"the server answered {error.code} ({error.reason})", wait) from None
    what = " ".join(str(error.reason).split())
    raise DownloadError(f"{address}: the server answered {error.code} ({what}).") from None


def _judge_fault(error: OSError, address: str, part: Path) -> None:
    """Turn a failure of the network or the disk into a message; some can be retried."""
    cause = getattr(error, "reason", error)
    host = urlsplit(address).hostname
    code = cause.errno if isinstance(cause, OSError) else None
    if isinstance(cause, socket.gaierror) or code in UNREACHABLE:
        raise DownloadError(
            f"{host} cannot be reached ({cause}): this machine seems to be offline."
        ) from error
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise DownloadError(
            f"the certificate of {host} could not be verified ({cause.verify_message})."
        ) from error
    if code in NO_ROOM:
        raise DownloadError(
            f"{part.parent} has no room left; free some and fetch again: it goes on from "
            f"{part.stat().st_size if part.exists() else 0:,} bytes."
        ) from error
    if isinstance(cause, (TimeoutError, ConnectionError, ssl.SSLError)) or cause is not error:
        raise _PassingError(f"no answer from {host} ({cause})") from error
    raise DownloadError(f"{part}: {error.strerror or error}.") from error


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to http and https only, and never from https to http."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if new not in ("http", "https") or (old, new) == ("https", "http"):
            raise DownloadError(f"{req.full_url} redirects to {newurl}, which is refused.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    # Not build_opener: that one also opens file: and ftp: addresses.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _SafeRedirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
