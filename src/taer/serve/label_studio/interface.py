"""The labeling interface of a project: one choice per text or image."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

import msgspec

from taer.serve.inputs import MAX_TEXT, BadInput

_KINDS: Mapping[str, Literal["image", "text"]] = {"text": "text", "image": "image"}
_ONE = ("single", "single-radio")


@dataclass(frozen=True)
class Interface:
    """What annotators are shown and asked.

    Examples
    --------
    >>> shown = Interface.of('''<View><Text name="ticket" value="$body"/>
    ...     <Choices name="topic" toName="ticket"><Choice value="card"/><Choice value="rate"/></Choices></View>''')
    >>> shown.kind, shown.field, shown.choices
    ('text', 'body', ('card', 'rate'))
    >>> shown.label([{"from_name": "topic", "type": "choices", "value": {"choices": ["rate"]}}])
    'rate'
    """

    kind: Literal["image", "text"]
    field: str  # of a task's data
    control: str  # names of the tags, which results refer to
    object: str
    choices: tuple[str, ...]

    @classmethod
    def of(cls, config: str) -> Interface:
        """Read a labeling configuration. Raises BadInput if it asks for anything but one choice per text or image."""
        root = _parsed(config)
        found = [tag for tag in root.iter() if tag.tag.lower() == "choices"]
        if len(found) != 1:
            raise BadInput(
                f"the labeling interface has {len(found)} <Choices> tags, and exactly one can be learned"
            )
        control = found[0]
        if (how := control.get("choice", "single")) not in _ONE:
            raise BadInput(
                f'<Choices choice="{how}"> takes several labels per task, which is not supported; use choice="single"'
            )
        for attribute in ("perRegion", "perItem"):
            if control.get(attribute, "false").lower() == "true":
                raise BadInput(
                    f"<Choices {attribute}> labels parts of a task, which is not supported; leave it out"
                )
        options = [tag for tag in control.iter() if tag.tag.lower() == "choice"]
        if control.get("value") or len(options) != sum(tag.tag.lower() == "choice" for tag in control):
            raise BadInput(
                "<Choices> from a task's data and <Choice> inside <Choice> are not supported; list all choices"
            )
        named = {tag.get("name"): tag for tag in root.iter() if tag.tag.lower() != "choices"}
        shown = named.get(control.get("toName"))
        if shown is None or shown.tag.lower() not in _KINDS:
            what = "nothing" if shown is None else f"<{shown.tag}>"
            raise BadInput(f"<Choices> is for {what} (toName), and can be learned for a <Text> or an <Image>")
        field = re.fullmatch(r"\$([\w.-]+)", shown.get("value") or "")
        if field is None or shown.get("valueType") == "url" or shown.get("encoding", "none") != "none":
            raise BadInput(
                f'<{shown.tag}> must show one field of a task as it is, such as value="$text"; lists, encodings and '
                'valueType="url" are not supported'
            )
        names = tuple(tag.get("alias") or tag.get("value") or "" for tag in options)
        return cls(_KINDS[shown.tag.lower()], field[1], control.get("name") or "", shown.get("name") or "", names)

    def item(self, data: Mapping[str, Any]) -> str:
        """The text of a task, or the address of its image."""
        value = data.get(self.field)
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"the task has no {self.kind} in its field {self.field}")
        return value[:MAX_TEXT] if self.kind == "text" else value

    def label(self, result: Sequence[Mapping[str, Any]]) -> str | None:
        """The choice in the result of an annotation; None if there is none."""
        found: list[str] = []
        for part in result:
            if part.get("from_name") == self.control and part.get("type") == "choices":
                found += _choices(part)
        if len(found) > 1:
            raise BadInput(f"the annotation has {len(found)} choices, and only one per task can be learned")
        return found[0] if found else None

    def answer(self, label: str, probability: float) -> dict[str, Any]:
        """A choice as a part of a prediction."""
        value = {"choices": [label]}
        names = {"from_name": self.control, "to_name": self.object, "type": "choices"}
        return {**names, "value": value, "score": probability}


def _choices(part: Mapping[str, Any]) -> list[str]:
    try:
        return msgspec.convert((part.get("value") or {}).get("choices") or [], list[str])
    except (msgspec.ValidationError, AttributeError):
        raise BadInput("the annotation does not have its choice where Label Studio puts it") from None


def _parsed(config: str) -> ElementTree.Element:
    if "<!DOCTYPE" in config:  # without one there are no entities
        raise BadInput("the labeling interface declares entities or a document type, which is not read")
    try:
        return ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise BadInput(f"the labeling interface is not XML: {error}") from None
