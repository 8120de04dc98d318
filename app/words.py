"""Words that differ by a slip of the keyboard: which known word was meant by an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 2  # letters in which a word differs from the one that was meant


def distance(one: str, other: str) -> int:
    """The number of letters to insert, to delete or to replace between two words; letters that changed places are one."""
    before, last = list[int](), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        row = [at]
        for to, each in enumerate(other, 1):
            best = min(last[to] + 1, row[-1] + 1, last[to - 1] + (letter != each))
            if at > 1 and to > 1 and (letter, one[at - 2]) == (other[to - 2], each):
                best = min(best, before[to - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]


def nearest(word: str, known: Iterable[str]) -> tuple[str, int]:
    """The nearest of the known words, of which there is at least one, and its distance."""
    return min(((each, distance(word, each)) for each in known), key=lambda found: found[1])


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that an unknown one stands for; None if none differs by at most MOST letters, and a third of the word's."""
    most = min(MOST, max(1, len(word) // 3))
    near = [each for each in known if abs(len(each) - len(word)) <= most]  # a client may send a word of any length
    found, away = nearest(word, near) if near else ("", most + 1)
    return found if away <= most else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the one that was meant; empty if none is near enough."""
    return f", did you mean {found}?" if (found := meant(word, known)) else ""


def hint(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the one that was meant, or else all of them."""
    known = list(known)
    return did_you_mean(word, known) or f", expected one of {', '.join(known)}"
