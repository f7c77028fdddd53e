"""What a service answers: the types that :mod:`taer.serve` fills and describes and :mod:`taer.client` returns.

The words beside a field are its description in the API.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

Kind = Literal["vector", "text", "image"]


class Problem(TypedDict):
    """A description of the error."""

    detail: str


class ClassProbability(TypedDict):
    label: str
    probability: float


class NearExample(TypedDict):
    """A stored example of a class; GET /examples/{id} shows it."""

    id: int
    distance: Annotated[float, "From the sample; two samples of one class mostly have 0.5 to 1."]


class ConsideredClass(TypedDict):
    label: str
    probability: float
    score: float
    distance: Annotated[
        float, "From the center of the class, in units of its spread; its own samples mostly have 0.5 to 1."
    ]
    examples: Annotated[list[NearExample], "At most three, the nearest first."]


class Why(TypedDict):
    """The reasons for an answer."""

    answer: ConsideredClass
    runner_up: Annotated[ConsideredClass | None, "The second best class; null if there is one class."]
    ahead: Annotated[float | None, "The score of the answer minus that of the runner-up."]
    limit: Annotated[float | None, "The novelty above which an answer of this class is unknown."]
    as_novel: Annotated[
        float | None, "Share of the samples of this class that looked at least as novel before they were learned."
    ]


class Prediction(TypedDict):
    label: str
    probabilities: list[ClassProbability]
    novelty: Annotated[float, "How little it looks like any class; only the order means anything."]
    unknown: Annotated[bool, "Whether its novelty is above the threshold: something new?"]
    automatic: NotRequired[
        Annotated[bool, "Whether it needs no person; only if GET /automation promises something."]
    ]
    why: NotRequired[Annotated[Why, "Only if it was asked for."]]


class Predictions(TypedDict):
    version: int
    threshold: Annotated[float | None, "The novelty above which an answer is unknown; null while none is known."]
    predictions: list[Prediction]


class LabelPrediction(TypedDict):
    labels: Annotated[list[str], "Those that the sample has, in order of arrival; maybe none."]
    probabilities: Annotated[list[ClassProbability], "The likeliest labels, each by itself."]


class LabelPredictions(TypedDict):
    """Answers of a head of several labels per sample."""

    version: int
    predictions: list[LabelPrediction]


class Added(TypedDict):
    ids: list[int]
    waiting: Annotated[int, "Examples that wait to be learned, at most 100000."]


class Discarded(TypedDict):
    discarded: int


class ExampleEntry(TypedDict):
    id: int
    label: str
    version: Annotated[int | None, "The version that learned it; null while it waits."]
    held_back: bool
    added: Annotated[str, "When it arrived, in UTC."]
    kind: Kind
    text: Annotated[str | None, "The text it came as."]


class Examples(TypedDict):
    examples: Annotated[list[ExampleEntry], "In order of arrival."]
    next: Annotated[int | None, "Ask again with after=next for more; null at the end."]


class OneExample(ExampleEntry):
    vector: list[float]
    image: Annotated[str | None, "A small copy of the image it came as: JPEG in base64."]


class Corrected(TypedDict):
    version: Annotated[int | None, "The new version; null if it only waited to be learned."]


class Purged(TypedDict):
    examples: Annotated[list[int], "Examples that are gone, with those that had been taken out before."]
    versions: Annotated[list[int], "Versions that had learned them, which are gone as well."]
    current: int
    waiting: Annotated[int, "Examples that wait, with those that the purged versions had learned."]
    notices: Annotated[list[str], "Undone examples that wait again; files that could not be deleted yet, and why."]


class InboxEntry(TypedDict):
    """An input that was unknown or uncertain."""

    id: int
    arrived: Annotated[str, "In UTC."]
    kind: Kind
    text: Annotated[str | None, "The text it came as."]
    label: Annotated[str, "The answer it got."]
    probability: float
    novelty: float
    unknown: bool


class InboxList(TypedDict):
    inputs: Annotated[list[InboxEntry], "Those that look least like any class first."]
    kept: Annotated[int, "How many there are."]
    rows: Annotated[int, "How many there may be; the oldest make room."]
    days: Annotated[int, "How long each is kept."]


class OneInput(InboxEntry):
    vector: list[float]
    image: Annotated[str | None, "A small copy of the image it came as: JPEG in base64."]


class InboxGroup(TypedDict):
    """Inputs that look like one class that is not known."""

    ids: Annotated[list[int], "Of its inputs, the most typical first."]
    distinct: Annotated[int, "Inputs without near-duplicates of others."]
    sure: Annotated[float, "Mean probability that an input belongs to this group, not to another one or to none."]
    words: Annotated[list[str], "Of texts: those that set it apart from the other groups."]
    typical: Annotated[list[InboxEntry], "At most three, no two of them nearly equal."]


class InboxGroups(TypedDict):
    version: Annotated[int, "The version whose classes are the known ones."]
    compared: Annotated[int, "Inputs that were compared: the latest 5000 at most."]
    known: Annotated[int, "Of these, inputs that look like known classes."]
    groups: Annotated[list[InboxGroup], "The largest first."]


class InboxNext(TypedDict):
    version: int
    inputs: Annotated[list[InboxEntry], "Those whose names help most first."]


class ClassEntry(TypedDict):
    label: str
    task: Annotated[int | None, "The task that first brought it; null while it waits."]
    examples: int
    held_back: int
    waiting: int


class BackboneEntry(TypedDict):
    name: str
    kind: Literal["image", "text"]
    drawings: Annotated[bool, "Whether the page offers a sheet to draw on."]


class Classes(TypedDict):
    version: int
    width: int | None
    backbone: BackboneEntry | None
    learning: bool
    inbox: Annotated[bool, "Whether inputs that are unknown or uncertain are kept."]
    automation: Annotated[bool, "Whether answers are to be marked that need no person; see GET /automation."]
    several_labels: Annotated[bool, "Whether a sample may have several labels, or none."]
    classes: Annotated[list[ClassEntry], "In order of learning, then those that wait."]


class Changes(TypedDict):
    """The effect of the task on the classes that were known before."""

    sentence: str
    forgotten: list[Any]
    moved: list[Any] | None
    compared: int
    changed: int


class VersionEntry(TypedDict):
    version: int
    parent: int
    created: str
    edit: Annotated[str | None, "What was corrected; null for a task that was learned."]
    backbone: Annotated[str | None, "The backbone that its examples were seen with."]
    method: str
    classes: int
    new_classes: list[str]
    examples: int
    held_back: int
    accuracy: Annotated[float | None, "On held-out examples of this version's classes."]
    seconds: float | None
    changes: Changes | None
    candidate: Annotated[bool, "Whether it waits to be promoted."]
    warnings: Annotated[list[str], "What may be wrong with the task, such as too few examples."]
    f1_micro: NotRequired[Annotated[float | None, "On held-out examples, of a head of several labels."]]
    f1_macro: NotRequired[float | None]


class History(TypedDict):
    current: int
    versions: list[VersionEntry]


class DifferenceEntry(TypedDict):
    """A held-out example that the candidate and the version in use answer differently."""

    id: int
    truth: str
    before: str
    after: str
    text: Annotated[str | None, "The text it came as."]


class LosingClass(TypedDict):
    label: str
    examples: int
    before: Annotated[int, "Right answers of the version in use."]
    after: Annotated[int, "Right answers of the candidate."]


class Shadow(TypedDict):
    """Requests since the candidate was made that both versions answered; only the answer of the one in use was sent."""

    answered: int
    differ: int


class Candidate(TypedDict):
    """What promoting the candidate would change, on held-out examples that neither version has learned."""

    version: int
    current: int
    sentence: str
    not_worse: Annotated[
        bool | None,
        "Whether the accuracy on old classes falls by less than a point, with 95 % confidence; null with too few.",
    ]
    compared: Annotated[int, "Held-out examples of classes that both versions know."]
    before: Annotated[float | None, "Accuracy of the version in use on these."]
    after: Annotated[float | None, "Accuracy of the candidate on these."]
    at_least: Annotated[float | None, "Lower bound of the change, with 95 % confidence."]
    at_most: Annotated[float | None, "Upper bound of the change, with 95 % confidence."]
    new_classes: list[str]
    new_compared: Annotated[int, "Held-out examples of the new classes."]
    new_accuracy: Annotated[float | None, "Accuracy of the candidate on these."]
    only_new_classes_win: Annotated[bool, "No old score moved: an answer changes only where a new class wins."]
    losing: Annotated[list[LosingClass], "Classes with fewer right answers, those that lose most first."]
    differing: Annotated[int, "Held-out examples that get another answer."]
    examples: Annotated[list[DifferenceEntry], "Some of these."]
    shadow: Shadow


class Rejected(TypedDict):
    waiting: Annotated[int, "Examples that wait, with those of the rejected version."]


class Cell(TypedDict):
    truth: str
    answer: str
    count: int


class Confusion(TypedDict):
    version: int
    classes: Annotated[list[str], "In order of learning."]
    cells: Annotated[list[Cell], "Those that are not zero, on held-out examples."]


class Hour(TypedDict):
    """The answers of one hour, and how many were unknown."""

    start: Annotated[str, "In UTC."]
    answered: int
    unknown: int


class AlarmState(TypedDict):
    """Whether more answers of the current version are unknown than its held-out examples let expect."""

    raised: Annotated[bool, "It stays raised until another version answers."]
    raised_after: Annotated[int | None, "Answers of this version until then."]
    answered: Annotated[int, "Answers of this version."]
    unknown: int
    reference: Annotated[float, "The fraction of unknown answers up to which nothing has changed."]
    held_out: Annotated[int, "Examples that the reference is from: an upper bound of their fraction."]
    false_alarms: Annotated[float, "The probability that it is ever raised without a reason."]


class Cut(TypedDict):
    """The most confident answers to held-out examples."""

    coverage: Annotated[float, "Share of all held-out examples."]
    wrong: Annotated[float, "Share of these answers."]
    at_most: Annotated[float, "Upper bound of the share of wrong answers, for all cuts at once."]


class Automation(TypedDict):
    """Which answers need no person, from held-out examples; requests must be like these."""

    version: int
    errors: Annotated[float, "The largest share of these answers that may be wrong."]
    confidence: Annotated[float | None, "The probability with which that holds; null if nothing is promised."]
    coverage: Annotated[float, "Share of the held-out examples that need no person."]
    probability: Annotated[float | None, "The probability above which an answer needs no person."]
    held_out: Annotated[int | None, "Examples it was found on; null if it came with the head."]
    unknown: Annotated[int | None, "Of these, unknown ones, which are always for a person."]
    curve: Annotated[list[Cut], "Coverage against errors, the smallest set first."]
    problem: Annotated[str | None, "Why nothing is promised."]


class Drift(TypedDict):
    """Unknown answers, and an alarm that says whether they are more than before."""

    answered: int
    unknown: int
    fraction: Annotated[float | None, "Of the answers that were unknown; null without answers."]
    expected: Annotated[float, "The fraction that samples of known classes reach."]
    alarm: Annotated[AlarmState | None, "Null without held-out examples to compare with."]
    hours: Annotated[list[Hour], "Those with answers, the oldest first."]


class HeadEntry(TypedDict):
    """A head among many."""

    name: str
    version: Annotated[
        int | None, "The one that answers; 0 until something was learned, null if it cannot be read."
    ]
    classes: int | None
    waiting: Annotated[int | None, "Examples that wait to be learned."]
    loaded: Annotated[bool, "Whether it is in memory."]


class HeadList(TypedDict):
    heads: list[HeadEntry]
    next: Annotated[str | None, "Name to go on after, if there are more."]


class Deleted(TypedDict):
    deleted: Annotated[str, "Name of the head."]


class ManyHealth(TypedDict):
    status: Literal["ok"]
    heads: int
    loaded: Annotated[int, "Heads in memory."]
    learning: Annotated[int, "Heads that learn or wait to learn."]


class Health(TypedDict):
    status: Literal["ok"]
    version: int
    learning: bool
