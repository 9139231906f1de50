"""The plain words at the end of a run: a gap between losses is told where both are of the same kind, and not
otherwise.
"""

from typing import Any

import numpy as np
import pytest

from mini_tf.data.store import Encoded, Tokenizers, in_memory
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.jobs import closing_messages
from mini_tf.jobs.closing_messages import copying, overfitting, times
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import settings_of


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        ("classify", {"label_smoothing": 0.1}, "mean training loss with label smoothing 0.50"),
        ("tag", {"class_weights": "balanced"}, "mean training loss with class weights 0.50"),
        ("regress", {"token_dropout_rate": 0.1}, "mean training loss with token dropout 0.50"),
        (
            "tag",
            {"class_weights": {"O": 0.1}, "label_smoothing": 0.1},
            "mean training loss with label smoothing and class weights 0.50",
        ),
    ],
)
def test_a_training_loss_of_another_kind_speaks_of_no_overfitting(kind: str, given: dict[str, Any], told: str) -> None:
    settings = settings_of("objectives", kind)
    assert overfitting(3, 0.5, 1.0, settings(**given)) == f"3 epochs; last evaluation: validation loss 1.00, {told}"  # type: ignore[arg-type]
    assert (
        overfitting(3, 0.5, 1.0, settings())
        .partition("since the previous evaluation 0.50")[2]
        .startswith("; the model overfits")
    )  # type: ignore[arg-type]
    assert overfitting(3, 0.9, 1.0, settings()).endswith("mean training loss since the previous evaluation 0.90")  # type: ignore[arg-type]
    assert overfitting(3, 3.1, 4.0, settings()).endswith("mean training loss since the previous evaluation 3.10"), (
        "a gap of less than a quarter"
    )  # type: ignore[arg-type]


def test_epochs_are_told_without_powers_of_ten() -> None:
    assert [times(number) for number in (0.0073, 2.5, 18.0, 99.6, 112.4, 12345.6)] == [
        "0.0073",
        "2.5",
        "18",
        "100",
        "112",
        "12,346",
    ]


def around(text: str, position: int) -> str:
    """The whole words of 100 characters around a position."""
    return text[max(0, position - 50) : position + 50].partition(" ")[2].rpartition(" ")[0]


def test_copied_text_is_found_across_the_borders_of_chunks_and_up_to_a_number_of_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, other = (" ".join(f"{letter}{n}" for n in range(22_000)) for letter in "ab")
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="char"), ["ab 0123456789"])
    store = in_memory(
        [Encoded(np.array(tokenizer.encode(one))) for one in (text, other)], Tokenizers(tokenizer, tokenizer)
    )

    def copied(sample: str) -> str:
        return copying(sample, store, tokenizer).partition(" of the last sample")[0]

    assert [copied(around(text, position)) for position in (60, 65_536, 131_072, len(text) - 60)] == ["100%"] * 4
    assert copied(around(other, 65_536)) == "100%"
    assert copied(" ".join([*(f"a{n}" for n in range(70, 86)), *(f"new{n}" for n in range(16))])) == "50%"
    monkeypatch.setattr(closing_messages, "COPY_CHECK_TOKENS", 70_000)
    assert [copied(around(text, position)) for position in (69_000, 71_000)] == ["100%", "0%"]
    assert copied(around(other, 60)) == "0%"
    monkeypatch.setattr(closing_messages, "COPY_CHECK_TOKENS", len(text) + 10_000)
    assert [copied(around(other, position)) for position in (9_000, 11_000)] == ["100%", "0%"]
