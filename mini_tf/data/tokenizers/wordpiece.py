"""wordpiece: BERT's cased WordPiece. Greedy longest match from the start of a word; tokens inside a word start with ##.

The vocabulary is trained by merging pairs by frequency. It has each of its characters with and without ##, so that a
word is unknown only if it has another character. Source: Schuster and Nakajima 2012; Devlin et al. 2018,
arXiv:1810.04805.
"""

import json
from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from mini_tf.data.tokenization.guard import guarded
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.recipe.kind_settings import TokenizerSettings

MAX_WORD_LENGTH = 100
"""Characters; longer words, which would become the unknown token, are split."""


class Settings(TokenizerSettings):
    MODEL = "WordPiece"
    MIN_VOCAB_SIZE = (108, "cannot hold 52 letters with and without ## and 4 special tokens; use at least 108")

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        texts = list(texts)
        inner = Tokenizer(models.WordPiece({SPECIALS["unk"]: 0}, unk_token=SPECIALS["unk"]))
        cut = pre_tokenizers.Split(Regex(rf".{{{MAX_WORD_LENGTH}}}"), "isolated")
        inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), cut])
        inner.decoder = decoders.WordPiece("##", cleanup=False)
        alphabet = _alphabet(texts, (vocab_size - len(SPECIALS)) // 2)
        # As special tokens, single characters get their ids first; the trainer would number those with ## at random.
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            special_tokens=[*SPECIALS.values(), *alphabet, *("##" + character for character in alphabet)],
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        with guarded("training"):
            inner.train_from_iterator(texts, trainer)
        return Tokenizer.from_str(json.dumps(json.loads(inner.to_str()) | {"added_tokens": []}))


def _alphabet(texts: Iterable[str], most: int) -> list[str]:
    """The `most` frequent non-whitespace characters."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    characters = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(characters[:most])
