"""Values of partitions as they travel, and the fixed tree in which they are added."""

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _core

#: A part of the answer to a request: the place of the value in the tree over the partitions (its level, and its number on this level), and
#: the value as bytes, which are empty where the partitions have no samples.
Answer = tuple[int, int, bytes]


class MissingPartitionsError(LookupError):
    """A shard was asked for partitions that it has not loaded."""


class Tree:
    """Adds values in a fixed tree over the numbers of the partitions, as far as they are there."""

    def __init__(self, n_partitions: int) -> None:
        self.n_partitions = n_partitions
        self.nodes: dict[tuple[int, int], Any] = {}

    def add(self, level: int, number: int, value: Any) -> None:
        """Add the value of a node; it is None where there are no samples below."""
        while (width := -(-self.n_partitions >> level)) > 1:
            sibling = number ^ 1
            if sibling < width:
                if (level, sibling) not in self.nodes:
                    break
                other = self.nodes.pop((level, sibling))
                left, right = (value, other) if number < sibling else (other, value)
                value = right if left is None else left if right is None else left + right
            level, number = level + 1, number // 2
        self.nodes[level, number] = value

    def root(self) -> Any:
        """Give the sum over all partitions."""
        if len(self.nodes) != 1 or -(-self.n_partitions >> next(iter(self.nodes))[0]) != 1:
            raise MissingPartitionsError("the engine has not brought the answers of all partitions")
        return next(iter(self.nodes.values()))


def encode(value: Any) -> bytes:
    return b"" if value is None else pickle.dumps(value, 5)


def decode(value: bytes) -> Any:
    return pickle.loads(value) if value else None


#: What mixtures travel as.
Parameters = list[bytes]


def parameters_of(mixtures: Sequence[_core.Mixture]) -> Parameters:
    return [bytes(mixture) for mixture in mixtures]


def mixture_of(parameters: Parameters) -> _core.Mixture:
    [mixture] = parameters
    return _core.Mixture.from_bytes(mixture)


def merge(answers: Iterable[Answer], n_partitions: int) -> list[Answer]:
    """Add answers of several shards to a request whose values are sums, and return as few as possible.

    They are added as far as the tree over the partitions allows. An engine may call it for any part of the answers, on
    any worker: the bits of the sum of all stay the same.
    Parameters:
    answers : iterable of Answer -- Answers of one or several shards.
    n_partitions : int -- The number of all partitions.
    """
    tree = Tree(n_partitions)
    untouched: dict[tuple[int, int], bytes] = {}
    for level, number, value in answers:
        untouched[level, number] = value
        tree.add(level, number, decode(value))
    return [(*node, untouched[node] if node in untouched else encode(value)) for node, value in sorted(tree.nodes.items())]
