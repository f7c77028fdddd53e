"""Words that set groups of texts apart."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

_WORDS = 5  # per group


def telling_words(groups: Sequence[Sequence[str]], others: Sequence[str] = ()) -> list[list[str]]:
    """The words that set each group of texts apart (c-TF-IDF): frequent in the group, rare elsewhere.

    ``others`` are texts of no group, and count as one more: few groups do not show which words are frequent everywhere.

    Examples
    --------
    >>> telling_words([["lost my card", "my card is gone"], ["my rate", "what rate do i get"]])[1][0]
    'rate'
    """
    counts = [
        Counter(word for text in texts for word in re.findall(r"[^\W\d_]{2,}", text.lower()))
        for texts in (*groups, *([others] if others else []))
    ]
    total: Counter[str] = sum(counts, Counter())
    mean = total.total() / max(1, len(counts))
    found = []
    for count in counts[: len(groups)]:
        value = {word: often * math.log(1 + mean / total[word]) for word, often in count.items()}
        found.append(sorted(value, key=lambda word: (-value[word], word))[:_WORDS])
    return found
