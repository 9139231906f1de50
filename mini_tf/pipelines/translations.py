"""Sources translated by the model, and how near that comes, or any answer, to what people wrote."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from mini_tf.data.examples import Pair
from mini_tf.generation.translating import Translator
from mini_tf.recipe.sections import Generate
from mini_tf.scores import available
from mini_tf.scores.summary import summary_scores
from mini_tf.scores.translation import corpus_scores
from mini_tf.trained.opening import Trained

CHUNK = 128
"""Sources that are translated between two looks at whether to stop."""


def translator_of(trained: Trained, wish: Generate | None = None, context: int | None = None) -> Translator:
    """What translates with a trained model, as its recipe or another `wish` says."""
    wish = trained.recipe.generate if wish is None else wish
    return Translator(trained.model, trained.tokenizer, trained.source_tokenizer, wish, context=context)


def translate(
    translator: Translator, pairs: Iterable[Pair], each_chunk: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The best translation of each source, and its references beside it.

    each_chunk is called now and then; what it raises ends the work.
    """
    left = iter(pairs)
    while chunk := list(islice(left, CHUNK)):
        each_chunk()
        for pair, best in zip(chunk, translator.translate([pair.source for pair in chunk]), strict=True):
            yield best[0].text, pair.references


def judge(written: Iterable[tuple[str, Sequence[str]]]) -> dict[str, float]:
    """Figures of texts, each held to all its references.

    rouge1, rouge2, rougeL and exact_match (0 to 1), bleu and chrf (0 to 100); those whose package is missing are left out.
    """
    texts, references = zip(*written, strict=True)
    rouge = summary_scores(texts, references) if available("rouge-score") else {}
    return rouge | (corpus_scores(texts, references) if available("sacrebleu") else {})
