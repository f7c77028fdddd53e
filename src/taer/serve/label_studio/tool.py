"""Label Studio as a source: its images and annotations. Nothing is fetched from any other host."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec

from taer.serve.inputs import MAX_IMAGE_BYTES, BadInput

# Where Label Studio has files; its API is elsewhere.
_IMAGES = ("/data/", "/storage-data/", "/tasks/", "/projects/")
_SECONDS = 30  # for one file
_SILENCE = 10  # seconds without a byte
_MAX_EXPORT = 1 << 28  # bytes
_PORTS = {"http": 80, "https": 443}


class Unreachable(Exception):
    """Label Studio did not answer; it may later."""


class Tool:
    """A running Label Studio.

    Parameters
    ----------
    url : str
        Where it is, such as ``http://localhost:8080``.
    key : str, optional
        An access token of a user of it: a personal one, or a legacy one.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._key, self._access = key, ""
        self._origin = _origin(self.url)
        if self._origin is None:
            raise ValueError(
                f"--url: expected the address of Label Studio, such as http://localhost:8080; got {url}"
            )
        self._base = urlsplit(self.url).path
        # Only these handlers: no files, no proxies, no redirects to other hosts.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _SameHost(self),
        ):
            self._opener.add_handler(handler)

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def image(self, address: str) -> bytes:
        """The file of an image, from the address in a task. Raises BadInput if it is not on Label Studio's host."""
        try:
            full = _quoted(urljoin(self.url, address))
        except ValueError as error:
            raise BadInput(f"{address[:200]}: {error}; images are fetched only from Label Studio itself") from None
        self.check(full)
        return self._get(full, MAX_IMAGE_BYTES)

    def annotated(self, project: int) -> Any:
        """All tasks of a project that have annotations, with these."""
        try:
            return json.loads(self._get(f"{self.url}/api/projects/{project}/export?exportType=JSON", _MAX_EXPORT))
        except ValueError:
            raise Unreachable(f"{self.url} did not answer with JSON; is it Label Studio?") from None

    def check(self, address: str) -> None:
        """Raise BadInput if an address is not that of a file on Label Studio's host."""
        if _origin(address) != self._origin:
            raise BadInput(f"{address[:200]}: images are fetched only from Label Studio itself, {self.url}")
        path = unquote(urlsplit(address).path).removeprefix(self._base)
        if ".." in path.split("/") or not path.startswith(_IMAGES):
            raise BadInput(
                f"{address[:200]}: expected an image among the files of Label Studio ({', '.join(_IMAGES)})"
            )

    def _get(self, address: str, most: int) -> bytes:
        try:
            return self._read(urllib.request.Request(address, headers=self._headers()), most)
        except urllib.error.HTTPError as error:
            if error.code != 401 or not self._access:
                raise self._refused(address, error) from None
        self._access = ""  # which is valid for some minutes only
        try:
            return self._read(urllib.request.Request(address, headers=self._headers()), most)
        except urllib.error.HTTPError as error:
            raise self._refused(address, error) from None

    def _headers(self) -> dict[str, str]:
        if self._key is None:
            return {}
        if self._key.count(".") != 2:
            return {"Authorization": f"Token {self._key}"}
        if not self._access:  # a personal token buys one that is valid for a while
            body = json.dumps({"refresh": self._key}).encode()
            asked = urllib.request.Request(
                f"{self.url}/api/token/refresh/", body, {"Content-Type": "application/json"}
            )
            self._access = _access_in(self._read(asked, 1 << 16), self.url)
        return {"Authorization": f"Bearer {self._access}"}

    def _read(self, request: urllib.request.Request, most: int) -> bytes:
        until, parts, size = time.monotonic() + _SECONDS, [], 0
        try:
            with self._opener.open(request, timeout=_SILENCE) as answer:
                while part := answer.read1(1 << 16):
                    parts.append(part)
                    size += len(part)
                    if size > most:
                        raise BadInput(f"{request.full_url[:200]}: has more than {most / 1e6:.0f} MB")
                    if time.monotonic() > until:
                        raise Unreachable(f"{request.full_url[:200]}: took more than {_SECONDS} seconds")
        except urllib.error.HTTPError:
            raise
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{request.full_url[:200]}: {error}") from None
        return b"".join(parts)

    def _refused(self, address: str, error: urllib.error.HTTPError) -> Exception:
        told = f"{address[:200]}: Label Studio answered {error.code} {error.reason}"
        if error.code in (401, 403):
            told += (
                "; give taer label-studio an access token with --key" if self._key is None else "; see its --key"
            )
        return Unreachable(told) if error.code >= 500 or error.code in (401, 403, 429) else BadInput(told)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to a file on the same host; the key is never sent anywhere else."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> Any:
        self._tool.check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _quoted(address: str) -> str:
    """An address as it is sent: names of files in it may have spaces and letters of any language."""
    parts = urlsplit(address)
    path, query = (re.sub(r"[^!-~]+", lambda found: quote(found[0]), part) for part in (parts.path, parts.query))
    return parts._replace(path=path, query=query).geturl()


def _access_in(content: bytes, url: str) -> str:
    try:
        return msgspec.json.decode(content, type=dict[str, str])["access"]
    except (msgspec.DecodeError, KeyError):
        raise Unreachable(f"{url} gave no access for its token; is it Label Studio?") from None


def _origin(address: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None if it is not a plain web address."""
    try:
        found = urlsplit(address)
        port = found.port or _PORTS.get(found.scheme)
    except ValueError:
        return None
    if port is None or found.scheme not in _PORTS or not found.hostname or "@" in found.netloc:
        return None
    return found.scheme, found.hostname.lower(), port
