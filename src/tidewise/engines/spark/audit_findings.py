"""What an audit finds: the first few of each kind in words, the rest as a number, so that a ruin stays readable."""

from __future__ import annotations

from dataclasses import dataclass, field

NAMED_PER_CODE = 5
"""How many findings of one kind are told one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that must not be: what kind it is, and one sentence that names the batch, file or owner."""

    code: str
    sentence: str


@dataclass(slots=True)
class _Kind:
    count: int = 0
    sentences: list[str] = field(default_factory=list)

    def add(self, sentence: str) -> None:
        self.count += 1
        if self.count <= NAMED_PER_CODE:
            self.sentences.append(sentence)

    def all(self, code: str) -> list[str]:
        more = self.count - len(self.sentences)
        return [*self.sentences, f"{more} more of the kind '{code}'"] if more else self.sentences


class Findings:
    """Collects violations and warnings in the order of their first appearance."""

    def __init__(self) -> None:
        self._violations: dict[str, _Kind] = {}
        self._warnings: dict[str, _Kind] = {}

    def violation(self, code: str, sentence: str) -> None:
        self._violations.setdefault(code, _Kind()).add(sentence)

    def warning(self, code: str, sentence: str) -> None:
        self._warnings.setdefault(code, _Kind()).add(sentence)

    @property
    def violations(self) -> tuple[Violation, ...]:
        kinds = self._violations.items()
        return tuple(Violation(code=code, sentence=one) for code, kind in kinds for one in kind.all(code))

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(one for code, kind in self._warnings.items() for one in kind.all(code))
