"""A running service from Python: ``Client(url, token)`` and ``AsyncClient(url, token)``."""

from __future__ import annotations

import base64
import io
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from taer.answers import (
    Added,
    Automation,
    Candidate,
    Classes,
    Confusion,
    Corrected,
    Drift,
    Examples,
    HeadEntry,
    HeadList,
    Health,
    History,
    InboxGroups,
    InboxList,
    InboxNext,
    OneExample,
    Predictions,
    Purged,
    Rejected,
    VersionEntry,
)
from taer.extras import require

_Result = TypeVar("_Result")


class ServiceError(Exception):
    """A request that the service refused, with the service's own message; ``status`` is the HTTP status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


_MAX_VECTORS, _MAX_IMAGES, _MAX_TEXTS = 1024, 16, 64  # in one request
_MAX_WHY = 16  # in one request for reasons
_MAX_BYTES = 11_000_000  # of images or vectors in one request; base64 adds a third
_TRIES = 5  # to get all answers to a long list from one version

_Request = tuple[str, str, dict[str, Any]]  # HTTP method, path and options
_Dialog = Generator[_Request, Any, _Result]  # requests to send in turn; receives their answers


class _Verbs:
    """The requests of each verb."""

    @staticmethod
    def predict(vectors: Any, images: Any, texts: Any, top: int, why: bool) -> _Dialog[Predictions]:
        given = _given(vectors, images, texts)
        for _ in range(_TRIES):
            answers: list[Predictions] = []
            for part in _parts(*given, {"top": top} | ({"why": True} if why else {})):
                answers.append((yield "POST", "predict", part))
            if len({answer["version"] for answer in answers}) == 1:
                joined = answers[0].copy()
                joined["predictions"] = [one for answer in answers for one in answer["predictions"]]
                return joined
        raise ServiceError(409, f"the version of the service changed during each of {_TRIES} tries; try again")

    @staticmethod
    def add(label: str | int, vectors: Any, images: Any, texts: Any) -> _Dialog[Added]:
        ids: list[int] = []
        waiting = 0
        for part in _parts(*_given(vectors, images, texts), {"label": label}):
            try:
                answer = yield "POST", "examples", part
            except Exception as error:
                if ids:
                    error.add_note(
                        f"{len(ids)} examples were added before this and wait: ids {ids[0]} to {ids[-1]}"
                    )
                raise
            ids += answer["ids"]
            waiting = answer["waiting"]
        return {"ids": ids, "waiting": waiting}

    @staticmethod
    def label_of(label: str | int) -> str:
        return f"classes/{quote(str(label), safe='')}"

    @staticmethod
    def new_head(name: str, copy_of: str | None) -> dict[str, str]:
        return {"name": name} if copy_of is None else {"name": name, "copy_of": copy_of}


class Client:
    """Predict with and teach a running service; usable as a context manager.

    Parameters
    ----------
    url : str
        URL of the service. With ``--many`` that of a head, ``http://…/heads/NAME``; the URL of the server itself is for
        ``heads``, ``make_head`` and ``delete_head``.
    token : str, optional
        Token of the service; not needed for predictions from a local service without a public name.
    timeout : float
        Seconds to wait for an answer.

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000", token="secret") as client:  # doctest: +SKIP
    ...     client.add("lost card", texts=["I lost my card"])
    ...     client.learn()
    ...     client.predict(texts=["where is my card?"])["predictions"][0]["label"]
    'lost card'
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 300.0) -> None:
        self.url = url.rstrip("/")
        self._http = require("httpx2", "client").Client(**_options(self.url, token, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, options: dict[str, Any] | None = None) -> Any:
        return _answer(self._http.request(method, path, **(options or {})))

    def _talk(self, dialog: _Dialog[_Result]) -> _Result:
        """Send the requests of a dialog one after another."""
        try:
            request = next(dialog)
            while True:
                try:
                    answer = self._ask(*request)
                except Exception as error:
                    request = dialog.throw(error)
                else:
                    request = dialog.send(answer)
        except StopIteration as done:
            return done.value

    def predict(
        self,
        vectors: ArrayLike | None = None,
        *,
        images: Sequence[str | PathLike[str] | bytes] | None = None,
        texts: Sequence[str] | None = None,
        top: int = 5,
        why: bool = False,
    ) -> Predictions:
        """The most likely classes of each sample, and whether it looks like none of them.

        A long list is sent in several requests, and all of it is answered by one version. With ``why``, each prediction has
        its reasons; :meth:`example` shows the examples that they name.
        """
        return self._talk(_Verbs.predict(vectors, images, texts, top, why))

    def add(
        self,
        label: str | int,
        vectors: ArrayLike | None = None,
        *,
        images: Sequence[str | PathLike[str] | bytes] | None = None,
        texts: Sequence[str] | None = None,
    ) -> Added:
        """Add labeled examples of a class; they are on disk when this returns.

        A long list is sent in several requests. If one of them fails, a note of the exception has the ids of the
        examples that were added before.
        """
        return self._talk(_Verbs.add(label, vectors, images, texts))

    def learn(self) -> VersionEntry:
        """Learn all waiting examples as one task; returns the new version."""
        return self._ask("POST", "learn")

    def discard(self) -> int:
        """Delete the waiting examples; returns how many there were."""
        return int(self._ask("DELETE", "examples")["discarded"])

    def rollback(self, version: int) -> History:
        """Go back (or forward) to another version; returns the history."""
        return self._ask("POST", f"rollback/{version}")

    def candidate(self) -> Candidate:
        """What promoting the version that waits would change."""
        return self._ask("GET", "versions/candidate")

    def promote(self) -> History:
        """Let the candidate answer; returns the history."""
        return self._ask("POST", "versions/candidate/promote")

    def reject(self) -> Rejected:
        """Delete the candidate; its examples wait again."""
        return self._ask("POST", "versions/candidate/reject")

    def inbox(self, limit: int = 100) -> InboxList:
        """Unknown and uncertain inputs that the service kept."""
        return self._ask("GET", "inbox", {"params": {"limit": limit}})

    def name_input(self, number: int, label: str | int) -> Added:
        """Make an input of the inbox a waiting example of a class."""
        return self._ask("POST", f"inbox/{number}", {"json": {"label": label}})

    def inbox_groups(self) -> InboxGroups:
        """Groups of inputs that look like new classes."""
        return self._ask("GET", "inbox/groups")

    def inbox_next(self, count: int = 20) -> InboxNext:
        """The inputs whose names would help most."""
        return self._ask("GET", "inbox/next", {"params": {"count": count}})

    def name_inputs(self, numbers: Sequence[int], label: str | int) -> Added:
        """Make inputs of the inbox, such as those of a group, waiting examples of a class."""
        return self._ask("POST", "inbox", {"json": {"ids": list(numbers), "label": label}})

    def dismiss(self, number: int) -> int:
        """Delete an input of the inbox for good."""
        return int((self._ask("DELETE", f"inbox/{number}"))["discarded"])

    def dismiss_inputs(self, numbers: Sequence[int]) -> int:
        """Delete inputs of the inbox, such as those of a group, for good; all or none."""
        return int((self._ask("POST", "inbox/dismiss", {"json": {"ids": list(numbers)}}))["discarded"])

    def examples(self, label: str | int | None = None, after: int = 0, limit: int = 100) -> Examples:
        """Waiting and learned examples, in order of arrival."""
        chosen = {} if label is None else {"label": str(label)}
        return self._ask("GET", "examples", {"params": chosen | {"after": after, "limit": limit}})

    def example(self, number: int) -> OneExample:
        """One example with its vector, text or image."""
        return self._ask("GET", f"examples/{number}")

    def relabel(self, number: int, label: str | int) -> Corrected:
        """Correct the label of an example."""
        return self._ask("PATCH", f"examples/{number}", {"json": {"label": label}})

    def delete(self, number: int) -> Corrected:
        """Take an example back."""
        return self._ask("DELETE", f"examples/{number}")

    def purge(self, ids: Sequence[int]) -> Purged:
        """Delete examples permanently, with every version that was learned from them."""
        return self._ask("POST", "purge", {"json": {"ids": list(ids)}})

    def describe(self, descriptions: Mapping[Any, str] | Mapping[Any, ArrayLike]) -> VersionEntry:
        """Add classes by a text or a vector each, without examples; returns the new version."""
        return self._ask("POST", "classes", {"json": _described(descriptions)})

    def rename(self, label: str | int, new: str | int) -> VersionEntry:
        """Rename a class; returns the new version."""
        return self._ask("PATCH", _Verbs.label_of(label), {"json": {"label": new}})

    def forget(self, label: str | int) -> VersionEntry:
        """Forget a class and its examples; returns the new version."""
        return self._ask("DELETE", _Verbs.label_of(label))

    def classes(self) -> Classes:
        """All classes in order of learning, and how many examples wait."""
        return self._ask("GET", "classes")

    def history(self) -> History:
        """All versions."""
        return self._ask("GET", "history")

    def confusion(self) -> Confusion:
        """The confusion matrix of the current version."""
        return self._ask("GET", "confusion")

    def drift(self, hours: int = 24) -> Drift:
        """The number of unknown answers in each of the last hours, and the alarm."""
        return self._ask("GET", "drift", {"params": {"hours": hours}})

    def automation(self) -> Automation:
        """Which answers need no person, and what is promised about them."""
        return self._ask("GET", "automation")

    def health(self) -> Health:
        """Whether the service is up."""
        return self._ask("GET", "health")

    def heads(self, after: str = "", limit: int = 100) -> HeadList:
        """The heads of a server with ``--many``, by name."""
        return self._ask("GET", "heads", {"params": {"after": after, "limit": limit}})

    def make_head(self, name: str, copy_of: str | None = None) -> HeadEntry:
        """Make a head on a server with ``--many``, empty or as a copy of another."""
        return self._ask("POST", "heads", {"json": _Verbs.new_head(name, copy_of)})

    def delete_head(self, name: str) -> None:
        """Delete a head of a server with ``--many``, with everything in it, for good."""
        self._ask("DELETE", f"heads/{quote(name, safe='')}")


class AsyncClient:
    """The same for ``asyncio``: every method is a coroutine."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 300.0) -> None:
        self.url = url.rstrip("/")
        self._http = require("httpx2", "client").AsyncClient(**_options(self.url, token, timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(self, method: str, path: str, options: dict[str, Any] | None = None) -> Any:
        return _answer(await self._http.request(method, path, **(options or {})))

    async def _talk(self, dialog: _Dialog[_Result]) -> _Result:
        try:
            request = next(dialog)
            while True:
                try:
                    answer = await self._ask(*request)
                except Exception as error:
                    request = dialog.throw(error)
                else:
                    request = dialog.send(answer)
        except StopIteration as done:
            return done.value

    async def predict(
        self,
        vectors: ArrayLike | None = None,
        *,
        images: Sequence[str | PathLike[str] | bytes] | None = None,
        texts: Sequence[str] | None = None,
        top: int = 5,
        why: bool = False,
    ) -> Predictions:
        return await self._talk(_Verbs.predict(vectors, images, texts, top, why))

    async def add(
        self,
        label: str | int,
        vectors: ArrayLike | None = None,
        *,
        images: Sequence[str | PathLike[str] | bytes] | None = None,
        texts: Sequence[str] | None = None,
    ) -> Added:
        return await self._talk(_Verbs.add(label, vectors, images, texts))

    async def learn(self) -> VersionEntry:
        return await self._ask("POST", "learn")

    async def discard(self) -> int:
        return int((await self._ask("DELETE", "examples"))["discarded"])

    async def rollback(self, version: int) -> History:
        return await self._ask("POST", f"rollback/{version}")

    async def candidate(self) -> Candidate:
        return await self._ask("GET", "versions/candidate")

    async def promote(self) -> History:
        return await self._ask("POST", "versions/candidate/promote")

    async def reject(self) -> Rejected:
        return await self._ask("POST", "versions/candidate/reject")

    async def inbox(self, limit: int = 100) -> InboxList:
        return await self._ask("GET", "inbox", {"params": {"limit": limit}})

    async def name_input(self, number: int, label: str | int) -> Added:
        return await self._ask("POST", f"inbox/{number}", {"json": {"label": label}})

    async def inbox_groups(self) -> InboxGroups:
        return await self._ask("GET", "inbox/groups")

    async def inbox_next(self, count: int = 20) -> InboxNext:
        return await self._ask("GET", "inbox/next", {"params": {"count": count}})

    async def name_inputs(self, numbers: Sequence[int], label: str | int) -> Added:
        return await self._ask("POST", "inbox", {"json": {"ids": list(numbers), "label": label}})

    async def dismiss(self, number: int) -> int:
        return int((await self._ask("DELETE", f"inbox/{number}"))["discarded"])

    async def dismiss_inputs(self, numbers: Sequence[int]) -> int:
        return int((await self._ask("POST", "inbox/dismiss", {"json": {"ids": list(numbers)}}))["discarded"])

    async def examples(self, label: str | int | None = None, after: int = 0, limit: int = 100) -> Examples:
        chosen = {} if label is None else {"label": str(label)}
        return await self._ask("GET", "examples", {"params": chosen | {"after": after, "limit": limit}})

    async def example(self, number: int) -> OneExample:
        return await self._ask("GET", f"examples/{number}")

    async def relabel(self, number: int, label: str | int) -> Corrected:
        return await self._ask("PATCH", f"examples/{number}", {"json": {"label": label}})

    async def delete(self, number: int) -> Corrected:
        return await self._ask("DELETE", f"examples/{number}")

    async def purge(self, ids: Sequence[int]) -> Purged:
        return await self._ask("POST", "purge", {"json": {"ids": list(ids)}})

    async def describe(self, descriptions: Mapping[Any, str] | Mapping[Any, ArrayLike]) -> VersionEntry:
        return await self._ask("POST", "classes", {"json": _described(descriptions)})

    async def rename(self, label: str | int, new: str | int) -> VersionEntry:
        return await self._ask("PATCH", _Verbs.label_of(label), {"json": {"label": new}})

    async def forget(self, label: str | int) -> VersionEntry:
        return await self._ask("DELETE", _Verbs.label_of(label))

    async def classes(self) -> Classes:
        return await self._ask("GET", "classes")

    async def history(self) -> History:
        return await self._ask("GET", "history")

    async def confusion(self) -> Confusion:
        return await self._ask("GET", "confusion")

    async def drift(self, hours: int = 24) -> Drift:
        return await self._ask("GET", "drift", {"params": {"hours": hours}})

    async def automation(self) -> Automation:
        return await self._ask("GET", "automation")

    async def health(self) -> Health:
        return await self._ask("GET", "health")

    async def heads(self, after: str = "", limit: int = 100) -> HeadList:
        return await self._ask("GET", "heads", {"params": {"after": after, "limit": limit}})

    async def make_head(self, name: str, copy_of: str | None = None) -> HeadEntry:
        return await self._ask("POST", "heads", {"json": _Verbs.new_head(name, copy_of)})

    async def delete_head(self, name: str) -> None:
        await self._ask("DELETE", f"heads/{quote(name, safe='')}")


def _options(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return {"base_url": f"{url}/", "headers": headers, "timeout": timeout}


def _given(vectors: Any, images: Any, texts: Any) -> tuple[str, Any]:
    """The kind of the samples, and the samples as a list or a matrix."""
    kinds = {"vectors": vectors, "images": images, "texts": texts}
    found = [(kind, items) for kind, items in kinds.items() if items is not None]
    if len(found) != 1:
        raise ValueError("give exactly one of vectors, images and texts")
    ((kind, items),) = found
    return kind, np.atleast_2d(np.asarray(items)) if kind == "vectors" else _listed(kind, items)


def _described(descriptions: Mapping[Any, Any]) -> dict[str, Any]:
    """Classes and their texts, or their vectors."""
    labels, values = list(descriptions), list(descriptions.values())
    if all(isinstance(value, str) for value in values):
        return {"labels": labels, "texts": values}
    return {"labels": labels, "vectors": np.asarray(values, np.float32).tolist()}


def _listed(kind: str, items: Any) -> list[Any]:
    """Texts or images as a list. A single one is refused, because its letters or bytes are not samples."""
    if isinstance(items, str | bytes | PathLike):
        raise ValueError(f"{kind}: expected a list, got a single {type(items).__name__}; write {kind}=[…]")
    if isinstance(items, Mapping) or len(getattr(items, "shape", (0,))) != 1:
        raise ValueError(f"{kind}: expected a list, got a {type(items).__name__}; give one column of it")
    found = list(items)
    wanted = (str,) if kind == "texts" else (str, bytes, PathLike)
    for place, item in enumerate(found):
        if not isinstance(item, wanted):
            names = " or ".join(known.__name__ for known in wanted)
            raise ValueError(f"{kind}: expected {names} at place {place}, got {type(item).__name__}")
    return found


def _parts(kind: str, items: Any, more: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The samples in as many requests as they need; an empty list in one, which the service refuses."""
    if kind == "vectors":
        yield from _arrays(items, more)
    elif kind == "images":
        yield from ({"json": more | {"images": part}} for part in _bundles(map(_encoded, items)))
    else:
        size = _MAX_WHY if "why" in more else _MAX_TEXTS
        for start in range(0, max(1, len(items)), size):
            yield {"json": more | {"texts": items[start : start + size]}}


def _arrays(matrix: np.ndarray, more: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Vectors in numpy's format, because the service reads it much faster than JSON."""
    size = min(_MAX_WHY if "why" in more else _MAX_VECTORS, max(1, _MAX_BYTES // max(1, matrix[:1].nbytes)))
    for start in range(0, max(1, len(matrix)), size):
        file = io.BytesIO()
        np.save(file, matrix[start : start + size], allow_pickle=False)
        yield {"content": file.getvalue(), "params": more, "headers": {"Content-Type": "application/x-npy"}}


def _bundles(images: Iterable[str]) -> Iterator[list[str]]:
    """Images in base64, as many together as a request takes. They are read as they are needed."""
    some: list[str] = []
    for image in images:
        if some and (len(some) == _MAX_IMAGES or sum(map(len, some)) + len(image) > _MAX_BYTES * 4 / 3):
            yield some
            some = []
        some.append(image)
    yield some


def _encoded(image: str | PathLike[str] | bytes) -> str:
    """An image file, given by its path or its content, in base64."""
    return base64.b64encode(image if isinstance(image, bytes) else Path(image).read_bytes()).decode()


def _answer(response: Any) -> Any:
    try:
        content = response.json()
    except ValueError:
        content = {}
    if response.is_success:
        return content
    raise ServiceError(response.status_code, content.get("detail", f"the service answered {response.status_code}"))
