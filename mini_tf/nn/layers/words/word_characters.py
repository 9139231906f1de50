"""N-grams of the characters of words, as keys to hash, from token ids alone.

A text is the texts of its tokens, one after the other, so that a word of several tokens is whole. N-grams do not extend
over words, but over the space before and after: of "a cat", with 3 characters, " a ", " ca", "cat" and "at ".
Source: Bojanowski et al. 2017, arXiv:1607.04606, section 3.2; scikit-learn's analyzer `char_wb`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

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

    def forward(self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"]) -> list[tuple[Tensor, Tensor]]:
        """For each length n: a key of the n-gram that begins at each character (B, P - n + 1), and if it is one.

        is_token: False at padding.
        """
        characters, _ = self.spell(ids, is_token)
        is_space = characters == _SPACE
        keys, found = torch.zeros_like(characters), []
        has_space_inside = torch.zeros_like(is_space)  # so that it extends over words
        for n in range(1, min(self.longest, characters.shape[1]) + 1):
            keys = keys[:, : characters.shape[1] - n + 1] * _BASE + characters[:, n - 1 :] + 1
            has_space_inside = has_space_inside[:, : keys.shape[1]]
            if n > 2:
                has_space_inside = has_space_inside | is_space[:, n - 2 : -1]
            if n >= self.shortest:
                only_space = is_space[:, : keys.shape[1]] & is_space[:, n - 1 :]
                found.append((keys, ~(has_space_inside | only_space if n < 3 else has_space_inside)))
        return found

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
        found = torch.full((len(ids), width + 2), _SPACE, device=ids.device)
        found[:, 1:-1] = torch.where(is_character, self.characters[places.clamp(max=len(self.characters) - 1)], _SPACE)
        tokens = torch.full_like(found, -1)
        tokens[:, 1:-1] = torch.where(is_character, token, -1)
        return found, tokens
