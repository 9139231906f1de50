"""Subword vectors: the mean over a token's character n-grams is added to its embedding, and a run keeps them."""

from pathlib import Path

import tiny_tasks
import torch
from commands import minitf
from safetensors.torch import load_file
from toys import seeded

from mini_tf.nn.layers.word_characters import MOST, Subwords
from mini_tf.trained.opening import open_trained

TEXTS = (" ", " cat", "cats", " a", "\t", "ünîcode", " " + "x" * 40, "")


def ngrams_of(text: str) -> list[str]:
    word = f" {text.strip()} "
    return [word[i : i + n] for n in (3, 4, 5) for i in range(len(word) - n + 1)] if word.strip() else []


def test_it_is_the_mean_over_the_ngrams_of_a_token() -> None:
    subwords = Subwords(len(TEXTS), 3, 10_007).double()
    subwords.vectors.weight.data = seeded(10_007, 3)
    subwords.spell(TEXTS)
    row_of: dict[str, int] = {}
    for rows, text in zip(subwords.rows.tolist(), TEXTS, strict=True):
        ngrams = ngrams_of(text)[:MOST]
        assert [row >= 0 for row in rows] == [n < len(ngrams) for n in range(MOST)]
        assert all(row_of.setdefault(ngram, row) == row for ngram, row in zip(ngrams, rows, strict=False))
    assert len(set(row_of.values())) == len(row_of)
    found = subwords(torch.arange(len(TEXTS))[None])[0]
    for vector, text in zip(found, TEXTS, strict=True):
        vectors = [subwords.vectors.weight[row_of[ngram]] for ngram in ngrams_of(text)[:MOST]]
        torch.testing.assert_close(
            vector, torch.stack(vectors).mean(0) if vectors else torch.zeros(3, dtype=torch.float64)
        )


def test_many_tokens_are_spelled_as_few() -> None:
    words = [f" w{n}" for n in range(2500)]
    many, one = Subwords(len(words), 2, 512), Subwords(1, 2, 512)
    many.spell(words)
    for id in (0, 1023, 1024, 2499):
        one.spell(words[id : id + 1])
        assert torch.equal(many.rows[id], one.rows[0])


def test_a_run_trains_and_keeps_them(tmp_path: Path) -> None:
    run = tiny_tasks.classifier(tmp_path, "model.subwords=64")
    trained = open_trained(str(run), None, "cpu")
    expected = Subwords(trained.tokenizer.vocabulary.size, trained.model.d_model, 64)
    expected.spell(trained.tokenizer.vocabulary.texts)
    weights = load_file(run / "model.safetensors")
    assert torch.equal(weights["embedding.subwords.rows"], expected.rows)
    assert (expected.rows >= 0).any()
    assert torch.equal(trained.model.embeddings()["embedding"].subwords.rows, expected.rows)  # type: ignore[union-attr]
    predicted = minitf("predict", run, "a dull film")
    assert predicted.exit_code == 0, predicted.stderr
