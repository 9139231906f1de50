"""Words and their characters in models: n-grams of characters as keys, subword vectors, linear models of both.

A text is the texts of its tokens, one after the other, so that a word of several tokens is whole. N-grams do not extend
over words, but over the space before and after: of "a cat", with 3 characters, " a ", " ca", "cat" and "at ". All are
hashed to the rows of a table, so tokens with parts in common have something in common from the start, also rare ones.
In text with few labels most names occur once: capital letters, endings and the words beside them tell more than the
names do. Sources: Bojanowski et al. 2017, arXiv:1607.04606, section 3.2 (subwords); scikit-learn's analyzer `char_wb`;
Ratinov and Roth 2009, "Design challenges and misconceptions in named entity recognition", section 3.1 (of words).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.layers.ngram_features import NGramFeatures, WideSettings, WindowFeatures, hash_keys
from mini_tf.recipe.kinds import Rules

_BASE = 0x110001  # of the keys; above every code point, and odd, so that also longer n-grams differ in 64 bits
_SPACE = 0


class WordCharacters(nn.Module):
    """N-grams of `shortest` to `longest` characters. texts: of each id, with a space where it begins a word."""

    characters: Tensor
    first: Tensor
    lengths: Tensor

    def __init__(self, texts: Sequence[str], shortest: int, longest: int) -> None:
        super().__init__()
        self.shortest, self.longest = shortest, longest
        codes = [_SPACE if character.isspace() else ord(character) for text in texts for character in text]
        lengths = torch.tensor([len(text) for text in texts])
        self.longest_token = max(map(len, texts), default=0)
        self.register_buffer("characters", torch.tensor([*codes, _SPACE]), persistent=False)
        self.register_buffer("first", lengths.cumsum(0) - lengths, persistent=False)
        self.register_buffer("lengths", lengths, persistent=False)

    def texts(self) -> list[str]:
        """The text of each id, with a space for each whitespace."""
        characters = "".join(" " if code == _SPACE else chr(code) for code in self.characters.tolist())
        spans = zip(self.first.tolist(), self.lengths.tolist(), strict=True)
        return [characters[first : first + length] for first, length in spans]

    def forward(self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"]) -> list[tuple[Tensor, Tensor]]:
        """For each length n: a key of the n-gram that begins at each character (B, P - n + 1), and if it is one.

        is_token: False at padding.
        """
        characters, _ = self.spell(ids, is_token)
        is_space = characters == _SPACE
        keys, ngrams = torch.zeros_like(characters), []
        has_space_inside = torch.zeros_like(is_space)  # so that it extends over words
        for n in range(1, min(self.longest, characters.shape[1]) + 1):
            keys = keys[:, : characters.shape[1] - n + 1] * _BASE + characters[:, n - 1 :] + 1
            has_space_inside = has_space_inside[:, : keys.shape[1]]
            if n > 2:
                has_space_inside = has_space_inside | is_space[:, n - 2 : -1]
            if n >= self.shortest:
                only_space = is_space[:, : keys.shape[1]] & is_space[:, n - 1 :]
                ngrams.append((keys, ~(has_space_inside | only_space if n < 3 else has_space_inside)))
        return ngrams

    def spell(
        self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"]
    ) -> tuple[Int[Tensor, "B P"], Int[Tensor, "B P"]]:
        """The characters of each text with spaces around it, 0 = whitespace; and the index of the token of each.

        The index is -1 at the spaces around the text.
        """
        lengths = self.lengths[ids] * is_token
        ends = lengths.cumsum(1)
        # Reading the length would wait for a GPU, and would end a compiled graph. More spaces add no n-grams.
        readable = ids.device.type == "cpu" and not torch.compiler.is_compiling()
        longest = int(ends[:, -1].max()) if readable else self.longest_token * ids.shape[1]
        width = max(longest, self.shortest - 2)  # so that there is an n-gram, if only of spaces
        at = torch.arange(width, device=ids.device).expand(len(ids), -1).contiguous()
        token = torch.searchsorted(ends, at, right=True)
        is_character = token < ids.shape[1]
        index = token.clamp(max=ids.shape[1] - 1)
        before = (ends - lengths).gather(1, index)
        places = self.first[ids.gather(1, index)] + at - before
        characters = torch.full((len(ids), width + 2), _SPACE, device=ids.device)
        characters[:, 1:-1] = torch.where(
            is_character, self.characters[places.clamp(max=len(self.characters) - 1)], _SPACE
        )
        tokens = torch.full_like(characters, -1)
        tokens[:, 1:-1] = torch.where(is_character, token, -1)
        return characters, tokens


SHORTEST, LONGEST = 3, 5
MOST = 32
"""N-grams of a token that are used, shorter ones first: all of a word of 11 letters."""
_TOKENS = 1024
"""Tokens that are spelled at once."""


class Subwords(nn.Module):
    """A table of `n_rows` vectors. `spell` tells the texts of the tokens, once; weights keep the n-grams of each."""

    rows: Tensor

    def __init__(self, vocabulary_size: int, d_model: int, n_rows: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(n_rows, d_model)
        self.register_buffer("rows", torch.full((vocabulary_size, MOST), -1, dtype=torch.int32))

    def spell(self, texts: Sequence[str]) -> None:
        """Find the n-grams of each token as if it were a word. texts: whitespace around them is ignored."""
        spelling = WordCharacters([text.strip() for text in texts], SHORTEST, LONGEST)
        for first in range(0, len(texts), _TOKENS):
            ids = torch.arange(first, min(first + _TOKENS, len(texts)))[:, None]
            ngrams = spelling(ids, torch.ones_like(ids, dtype=torch.bool))
            keys, inside = (torch.cat(parts, dim=1) for parts in zip(*ngrams, strict=True))
            order = torch.sort(~inside, dim=1, stable=True).indices[:, :MOST]
            rows = torch.where(inside, hash_keys(keys, self.vectors.num_embeddings), -1).gather(1, order)
            self.rows[first : first + _TOKENS, : rows.shape[1]] = rows

    def forward(self, ids: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        tokens, places = ids.unique(return_inverse=True)  # many occur several times
        rows = self.rows[tokens].long()
        shares = (rows >= 0) / (rows >= 0).sum(1, keepdim=True).clamp(min=1)
        table = self.vectors.weight
        mean = F.embedding_bag(rows.clamp(min=0), table, per_sample_weights=shares.to(table.dtype), mode="sum")
        return mean[places]


class WideTextSettings(WideSettings):
    """Settings of the linear model of n-grams of whole texts."""

    characters: tuple[Annotated[int, Field(ge=1, le=32)], Annotated[int, Field(ge=1, le=32)]] | None = None
    """Shortest and longest n-gram of characters within words, as further features; null: none."""
    log_counts: bool = False
    """An n-gram that occurs c times in a text counts 1 + log c times; else c times."""

    def rules(self) -> Rules:
        if self.characters is not None and self.characters[0] > self.characters[1]:
            yield "characters", "the shortest n-gram comes first: [3, 5]"

    @property
    def weighted_by_class(self) -> bool:
        """N-grams count by how much more frequent they are in one class than in others."""
        return False

    def features(self, vocabulary_size: int, texts: Sequence[str], n_outputs: int) -> NGramFeatures:
        """texts: of each token id."""
        common = self.rows, self.scale, n_outputs, self.log_counts, self.weighted_by_class
        characters = None if self.characters is None else CharacterFeatures(texts, self.characters, *common)
        return NGramFeatures(vocabulary_size, self.order, *common, characters=characters)


class CharacterFeatures(NGramFeatures):
    """Of whole texts. texts: of each token id; lengths: of the shortest and the longest n-gram."""

    NO_GRAPH = "n-grams of characters are as many as the texts of the tokens are long"

    def __init__(
        self,
        texts: Sequence[str],
        lengths: tuple[int, int],
        rows: int,
        scale: float,
        n_outputs: int,
        log_counts: bool = False,
        class_ratios: bool = False,
    ) -> None:
        super().__init__(len(texts), 1, rows, scale, n_outputs, log_counts, class_ratios)
        self.words = WordCharacters(texts, *lengths)

    def arguments(self) -> Mapping[str, Any]:
        common = ("rows", "scale", "n_outputs", "log_counts", "class_ratios")
        arguments, lengths = super().arguments(), (self.words.shortest, self.words.longest)
        return {"texts": self.words.texts(), "lengths": lengths, **{name: arguments[name] for name in common}}

    def _ngrams(self, ids: Tensor, is_token: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        yield from self.words(ids, is_token)


WHOLE = 2
"""Keys of a word that are of all of it: the word and its shape."""
_AFFIX_DISTANCE = 1
"""Affixes count of words up to this distance."""
_COMBINE = 0x2545F4914F6CDD1D  # odd, so that keys of different order differ


class WordFeatures(WindowFeatures):
    """Of words: words, shapes and affixes within `window` words, at their distance, and n-grams with the word itself.

    These are n-grams of 2 to `order` words, and of as many shapes. Outside a text, all keys are 0.
    """

    NO_GRAPH = "the keys of words are computed from their texts"

    def forward(
        self,
        ids: Int[Tensor, "B L"],
        is_token: Bool[Tensor, "B L"],
        at: Int[Tensor, " T"] | None,
        words: Int[Tensor, "T K"] | None = None,
    ) -> Float[Tensor, "T C"]:
        """words: the keys of each word, `WHOLE` of all of it and then those of its affixes. at: where each begins."""
        assert at is not None, "a model of words needs the positions of words"
        assert words is not None, "a model of words needs their keys"
        rows = hash_keys(torch.cat([*self._keys(words, at // ids.shape[1])], dim=1), self.weights.num_embeddings)
        return self._weighted(rows, torch.ones_like(rows, dtype=self.weights.weight.dtype))

    def _keys(self, words: Int[Tensor, "T K"], text: Int[Tensor, " T"]) -> Iterator[Int[Tensor, "T F"]]:
        """Keys of features, each with a number for its kind and distance. text: the row of each word."""
        around = self._around(words, text)
        number, nearest = 1, min(self.window, _AFFIX_DISTANCE)
        near = around[:, self.window - nearest : self.window + nearest + 1, WHOLE:]
        single = torch.cat([around[..., :WHOLE].flatten(1), near.flatten(1)], dim=1)
        for keys in (single, *self._ngrams_of_words(around[..., :WHOLE])):
            yield keys * _COMBINE + torch.arange(number, number + keys.shape[1], device=keys.device)
            number += keys.shape[1]

    def _around(self, words: Int[Tensor, "T K"], text: Int[Tensor, " T"]) -> Int[Tensor, "T N K"]:
        """The keys of the N = 2 * window + 1 words around each word."""
        width = (self.window, self.window)
        near = F.pad(words, (0, 0, *width)).unfold(0, sum(width) + 1, 1)
        text_of = F.pad(text, width, value=-1).unfold(0, sum(width) + 1, 1)
        return near.transpose(1, 2) * (text_of == text[:, None])[..., None]

    def _ngrams_of_words(self, around: Int[Tensor, "T N W"]) -> Iterator[Int[Tensor, "T F"]]:
        """Keys of the n-grams in the window that have the word in its middle, n = 2, 3, ..."""
        keys = around
        for n in range(2, self.order + 1):
            keys = keys[:, :-1] * _COMBINE + around[:, n - 1 :]
            yield keys[:, max(0, self.window - n + 1) : self.window + 1].flatten(1)
