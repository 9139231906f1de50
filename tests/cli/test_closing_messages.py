"""The plain words at the end of a run: a gap between losses is told where both are of the same kind, and not
otherwise.
"""

from typing import Any

import pytest

from mini_tf.jobs.messages import overfitting, times
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
    numbers = {0.0073: "0.0073", 2.5: "2.5", 18.0: "18", 99.6: "100", 112.4: "112", 12345.6: "12,346"}
    assert {number: times(number) for number in numbers} == numbers
