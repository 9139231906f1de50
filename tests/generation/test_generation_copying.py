"""How much of a text was copied."""

from mini_tf.generation.copying import copied_share


def test_the_share_of_copied_words_counts_runs_of_eight() -> None:
    corpus = ["one two three four five six seven eight nine ten", "eleven twelve"]
    assert copied_share("Two three, four five six seven eight nine!", corpus) == 1.0
    assert copied_share("two three four five six seven eight TEN", corpus) == 0.0
    assert copied_share("new new two three four five six seven eight nine", corpus) == 0.8
    assert copied_share("", corpus) == 0.0
