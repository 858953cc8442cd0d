"""`match`: what holds where a case fits its subject, and the names that the case binds."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from fsdp_lint.trace.dispatching import Dispatching
from fsdp_lint.trace.values import Condition, Const, Guards, Mapping, Sequence, Unknown, Value


class Patterns(Dispatching):
    """The part of the abstract machine that knows the cases of a `match`."""

    def match_(self, node: cst.Match) -> None:
        """`match`: exclusive arms on one subject."""
        subject = self.evaluate(node.subject)
        arms: list[tuple[Guards, Callable[[], None]]] = []
        before: Guards = ()
        for at, case in enumerate(node.cases):
            outcome = self._fits(subject, case.pattern, at)
            if case.guard is not None and outcome is not False:
                self._capture(case.pattern, subject)
                outcome = self.both(outcome, case.guard)
            if outcome is False:
                continue
            here = outcome.true if isinstance(outcome, Condition) else ()
            arms.append(((*before, *here), self._arm_of(node, case, subject)))
            if outcome is True:
                break
            before = (*before, *outcome.false)
        else:
            arms.append((before, lambda: None))
        self.branch(arms)

    def _arm_of(self, node: cst.Match, case: cst.MatchCase, subject: Value) -> Callable[[], None]:
        def run() -> None:
            classes, known = _classes(case.pattern), subject
            if classes and isinstance(node.subject, cst.Name):
                wanted = Sequence(items=[self.evaluate(one) for one in classes])
                self.keep(node.subject, True, lambda option: self.instance_test(option, wanted))
                known = self.evaluate(node.subject)
            self._capture(case.pattern, known)
            self.run_body(case.body)

        return run

    def _fits(self, subject: Value, pattern: cst.MatchPattern, at: int) -> Condition | bool:
        """The outcome of the test that a pattern makes of the subject."""
        match pattern:
            case cst.MatchAs(pattern=None):
                return True
            case cst.MatchAs(pattern=inner) if inner is not None:
                return self._fits(subject, inner, at)
            case cst.MatchSingleton(value=cst.Name(value="True" | "False" as word)) if isinstance(subject, Condition):
                return subject if word == "True" else Condition(true=subject.false, false=subject.true)
            case cst.MatchValue(value=value) | cst.MatchSingleton(value=value):
                return self.compare(subject, cst.Equal(), self.evaluate(value), value)
            case cst.MatchOr(patterns=each):
                return self._any_of(subject, [one.pattern for one in each], at)
            case cst.MatchClass(cls=cls):
                return self._of_class(subject, pattern, cls, at)
            case cst.MatchTuple() | cst.MatchList():
                return self._items_fit(subject, pattern, at)
        return self.opaque(("case", subject.number, at), "other", subject)

    def _of_class(self, subject: Value, pattern: cst.MatchClass, cls: cst.BaseExpression, at: int) -> Condition | bool:
        outcome = self.instance_test(subject, self.evaluate(cls))
        if outcome is False or not (pattern.patterns or pattern.kwds):
            return outcome
        return self._all_of([outcome, self.opaque(("case", subject.number, at), "other", subject)])

    def _any_of(self, subject: Value, patterns: list[cst.MatchPattern], at: int) -> Condition | bool:
        classes = [one for pattern in patterns for one in _classes(pattern)]
        if len(classes) == len(patterns):
            wanted = Sequence(items=[self.evaluate(one) for one in classes])
            return self.instance_test(subject, wanted)
        outcome: Condition | bool = False
        for pattern in patterns:
            outcome = self.either_of(outcome, self._fits(subject, pattern, at))
        return outcome

    def _items_fit(self, subject: Value, pattern: cst.MatchTuple | cst.MatchList, at: int) -> Condition | bool:
        """The outcome for a pattern of a tuple or list: that each item fits its own."""
        row = self.row(self.possible(subject))
        each = [one.value for one in pattern.patterns if isinstance(one, cst.MatchSequenceElement)]
        if row is None or len(each) != len(pattern.patterns):
            return self.opaque(("case", subject.number, at), "other", subject)
        if len(row) != len(each):
            return False
        return self._all_of([self._fits(item, one, at) for item, one in zip(row, each, strict=True)])

    def _all_of(self, outcomes: list[Condition | bool]) -> Condition | bool:
        """That each of some tests holds."""
        tests = [outcome for outcome in outcomes if isinstance(outcome, Condition)]
        if False in outcomes or not tests:
            return False not in outcomes
        true = tuple(literal for test in tests for literal in test.true)
        return tests[0] if len(tests) == 1 else Condition(true=true, false=self.not_all(true))

    def _capture(self, pattern: cst.CSTNode, subject: Value) -> None:
        """Binds the names of a pattern to what they stand for in the subject."""
        match pattern:
            case cst.MatchAs(name=name, pattern=inner):
                if inner is not None:
                    self._capture(inner, subject)
                if name is not None:
                    self.assign(name, subject)
            case cst.MatchTuple() | cst.MatchList():
                row = self.row(self.possible(subject))
                known = row if row is not None and len(row) == len(pattern.patterns) else None
                for at, element in enumerate(pattern.patterns):
                    if isinstance(element, cst.MatchSequenceElement):
                        self._capture(element.value, known[at] if known else Unknown(inputs=(subject,)))
            case cst.MatchClass():
                for positional in pattern.patterns:
                    self._capture(positional.value, Unknown(inputs=(subject,)))
                for keyword in pattern.kwds:
                    self._capture(keyword.pattern, self.attribute(subject, keyword.key.value))
            case cst.MatchMapping():
                for entry in pattern.elements:
                    key = self.evaluate(entry.key)
                    found: Value | None = None
                    if isinstance(subject, Mapping) and isinstance(key, Const):
                        found = subject.items.get(key.value)
                    self._capture(entry.pattern, found or Unknown(inputs=(subject,)))


def _classes(pattern: cst.MatchPattern) -> list[cst.BaseExpression]:
    """The classes of which one is all that a pattern asks for; none where it asks for something else."""
    match pattern:
        case cst.MatchClass(cls=cls, patterns=[], kwds=[]):
            return [cls]
        case cst.MatchAs(pattern=inner) if inner is not None:
            return _classes(inner)
        case cst.MatchOr(patterns=each):
            found = [_classes(one.pattern) for one in each]
            return [cls for one in found for cls in one] if all(found) else []
    return []
