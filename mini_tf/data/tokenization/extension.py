"""Further tokens for a trained byte-pair tokenizer, from new text: training of the merges goes on where it ended.

The new merges come after all old ones, so a text is first encoded as before, and then pairs of these tokens are joined:
where no new token occurs, the ids are the old ones. After Sennrich et al. 2016, arXiv:1508.07909, algorithm 1, on the
tokens of the old tokenizer in place of characters.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import groupby, islice, pairwise
from typing import Protocol

import tokenizers

from mini_tf.system.errors import DataFault

BATCH = 1000
"""Texts that are encoded at once."""
LEAST = 2
"""Occurrences of a pair that becomes a token, at least."""
SPACES = ("▁", "Ġ")
"""Marks of a space, with which a word begins; no token goes on behind its word."""

Word = tuple[str, ...]
Pair = tuple[str, str]


def extend(inner: tokenizers.Tokenizer, n: int, texts: Iterable[str]) -> tokenizers.Tokenizer:
    """A tokenizer with at most `n` further tokens, which have the next ids. DataFault if it is not of byte pairs."""
    inner.encode_special_tokens = True  # special tokens written in a text are text
    content = json.loads(inner.to_str())
    model, vocabulary = content["model"], inner.get_vocab(with_added_tokens=True)
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    if model["type"] != "BPE" or affixes or model.get("ignore_merges"):
        raise DataFault("tokenizer.extend: the tokenizer has no merges of byte pairs, which could go on")
    merges = _merges(Counter(_words(inner, texts)), n, vocabulary)
    first = 1 + max(vocabulary.values())
    # Added tokens keep their ids only if the model has them: the library numbers others behind the model's own.
    model["vocab"] = vocabulary | {left + right: first + number for number, (left, right) in enumerate(merges)}
    as_text = bool(model["merges"]) and isinstance(model["merges"][0], str)
    model["merges"] += [f"{left} {right}" if as_text else [left, right] for left, right in merges]
    return tokenizers.Tokenizer.from_str(json.dumps(content, ensure_ascii=False))


class HasContent(Protocol):
    """A tokenizer that can be written as tokenizer.json."""

    def to_json(self) -> str:
        """The content of tokenizer.json."""


def pieces_of_new(before: HasContent, after: HasContent) -> dict[int, list[int]] | None:
    """For each id of `after` that `before` lacks, the old ids that it is made of; None if it does not extend it."""
    old, new = json.loads(before.to_json()), json.loads(after.to_json())
    models = old["model"], new["model"]
    if any(model["type"] != "BPE" for model in models) or {**old, "model": 0} != {**new, "model": 0}:
        return None
    old_merges, merges = ([_pair(merge) for merge in model["merges"]] for model in models)
    added = {token["content"]: token["id"] for token in old["added_tokens"]}  # which are the same in both
    known, ids = ({**model["vocab"], **added} for model in models)
    if merges[: len(old_merges)] != old_merges or any(ids.get(token) != id for token, id in known.items()):
        return None
    pieces = {token: [id] for token, id in known.items()}
    for left, right in merges[len(old_merges) :]:
        pieces.setdefault(left + right, pieces[left] + pieces[right])
    return {ids[token]: parts for token, parts in pieces.items() if token not in known}


def _pair(merge: str | list[str]) -> Pair:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _words(inner: tokenizers.Tokenizer, texts: Iterable[str]) -> Iterator[Word]:
    """The tokens of each word of the texts."""
    iterator = iter(texts)
    while batch := [*islice(iterator, BATCH)]:
        for encoding in inner.encode_batch(batch, add_special_tokens=False):
            for _, tokens in groupby(zip(encoding.word_ids, encoding.tokens, strict=True), key=lambda pair: pair[0]):
                yield tuple(token for _, token in tokens)


def _merges(words: Counter[Word], n: int, vocabulary: Mapping[str, int]) -> list[Pair]:
    """The most frequent pairs, one after the other; of equally frequent ones the first by the ids of their tokens.

    A pair whose text is a token already is left out: with that id, old merges could follow.
    """
    order, counts, where = dict(vocabulary), Counter[Pair](), defaultdict[Pair, set[Word]](set)
    queue, merges = list[tuple[int, int, int, Pair]](), list[Pair]()

    def count(word: Word, times: int) -> set[Pair]:
        for pair in pairwise(word):
            counts[pair] += times
            where[pair].add(word)
        return {*pairwise(word)}

    def push(pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            heappush(queue, (-counts[pair], order[pair[0]], order[pair[1]], pair))

    for word, times in words.items():
        count(word, times)
    push(counts)
    while queue and len(merges) < n:
        negative, _, _, best = heappop(queue)
        if -negative != counts[best] or _is_left_out(best, order):  # another entry has the number of today
            continue
        if counts[best] < LEAST:
            break
        merges.append(best)
        order["".join(best)] = len(vocabulary) + len(merges)
        changed = set[Pair]()
        for word in sorted(where.pop(best)):
            if times := words.pop(word, 0):
                changed |= count(word, -times)
                joined = _joined(word, best)
                words[joined] += times
                changed |= count(joined, times)
        push(changed)
    return merges


def _is_left_out(pair: Pair, known: Mapping[str, int]) -> bool:
    return "".join(pair) in known or (pair[1].startswith(SPACES) and pair[0].strip("".join(SPACES)) != "")


def _joined(word: Word, pair: Pair) -> Word:
    joined = list[str]()
    for token in word:
        joined.append(token)
        if len(joined) > 1 and (joined[-2], joined[-1]) == pair:
            joined[-2:] = ["".join(pair)]
    return tuple(joined)
