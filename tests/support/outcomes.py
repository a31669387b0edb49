"""Shares of the examples of a property test, so that a law about accepted examples cannot hold because all are refused.

A test names what came of an example, and how often that must happen at least::

    @at_least(accepted=0.5)
    @given(jobs())
    def test_a_law(job: Job) -> None:
        try:
            found = replan(job.plan)
        except PlacementError:
            return
        outcome("accepted")
        assert ...

A correct program reaches its shares with a wide margin: ``pytest --hypothesis-show-statistics`` shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from hypothesis import event

Test = Callable[..., None]
Item = TypeVar("Item")

_named: set[str] = set()
"""The outcomes of the example that is running."""


def outcome(name: str) -> None:
    """Count the running example for this outcome, once."""
    event(name)
    _named.add(name)


def some(items: Iterable[Item]) -> list[Item]:
    """Return the items that a test goes through: at least one, so that it cannot pass by going through none."""
    listed = list(items)
    assert listed, "nothing to go through"
    return listed


def at_least(**shares: float) -> Callable[[Test], Test]:
    """Fail a Hypothesis test if fewer of its examples have an outcome. This decorator comes first.

    Examples that an assumption rejects do not count.
    """

    def decorated(test: Any) -> Test:
        examples = Examples(test.hypothesis.inner_test)
        test.hypothesis.inner_test = examples.counted()

        @wraps(test)
        def checked(*arguments: Any, **keywords: Any) -> None:
            examples.clear()
            test(*arguments, **keywords)
            examples.check(shares)

        return checked

    return decorated


class Examples:
    """The number of examples of a test, and of those with each outcome."""

    def __init__(self, test: Test) -> None:
        self.test = test
        self.clear()

    def clear(self) -> None:
        self.total = 0
        self.outcomes: Counter[str] = Counter()

    def counted(self) -> Test:
        """Return the test of a single example, which counts it."""

        @wraps(self.test)
        def example(*arguments: Any, **keywords: Any) -> None:
            _named.clear()
            self.test(*arguments, **keywords)
            self.total += 1
            self.outcomes.update(_named)

        return example

    def check(self, shares: dict[str, float]) -> None:
        for name, share in shares.items():
            count = self.outcomes[name]
            assert count >= share * self.total > 0, f"{count} of {self.total} examples are {name}; {share:.0%} must be"
