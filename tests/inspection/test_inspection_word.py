"""One word in several sentences: found as a word, its vectors compared as the formulas say, layer 0 equal where no
position is.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.prompt_ids import affixes
from mini_tf.inspection._occurrences import (
    LayerSimilarity,
    Sentence,
    compare_occurrences,
    find_occurrence,
    find_word,
    read,
    word_spans,
)
from mini_tf.inspection._texts import ModelInput, text_input
from mini_tf.nn.model import Model
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.sections import Tokenizer as TokenizerSettings
from mini_tf.system.errors import DataFault, UsageFault

TEXTS = ["I love bears.", "the bridge bears a train", "Bears, and bears the brave", "two bears love a river"]
SENSES = ["animal", "carry", "animal", None]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="byte"), [])


def built(tokenizer: Tokenizer, kind: str, positions: str, context: int = 64) -> Model:
    torch.manual_seed(0)
    settings = settings_of("models", kind)(
        d_model=16, n_layers=2, n_heads=2, init_std=0.4, positions=settings_of("positions", positions)()
    )
    return settings.build(tokenizer.vocabulary.size, context).double().eval()  # type: ignore[attr-defined, no-any-return]


def framing(tokenizer: Tokenizer) -> Callable[[str], ModelInput]:
    return lambda text: text_input(tokenizer, text, affixes(tokenizer, "continued"))


def layers_of(
    tokenizer: Tokenizer, model: Model, texts: list[str], word: str = "bears", senses: Any = SENSES
) -> list[LayerSimilarity]:
    sentences = [
        Sentence(text, f"text {n}", sense) for n, (text, sense) in enumerate(zip(texts, senses, strict=True), 1)
    ]
    found = [find_occurrence(framing(tokenizer), model.context, word, sentence, UsageFault) for sentence in sentences]
    return compare_occurrences(model, sentences, found)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return sum((a * b).tolist()) / math.sqrt(sum((a * a).tolist()) * sum((b * b).tolist()))


def hidden_of(model: Model, ids: list[int]) -> list[torch.Tensor]:
    """What follows the embedding and each layer, (L, D), by calling one after the other."""
    positions = TokenPositions(len(ids))
    x = model.embedding(Tokens(torch.tensor([ids])), positions)  # type: ignore[operator]
    found = [x[0]]
    for block in model.stack.layers:  # type: ignore[union-attr]
        x = block(x, Visibility(model.stack.causal, positions, positions)).y  # type: ignore[union-attr]
        found.append(x[0])
    return [layer.detach() for layer in found]


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_every_number_is_what_its_formula_says(tokenizer: Tokenizer, kind: str) -> None:
    """Cosines, the baseline over all pairs of different words of different sentences, the separation of senses: pair by
    pair.
    """
    model = built(tokenizer, kind, "learned")
    separator = tokenizer.vocabulary.separator
    assert separator is not None
    # (sentence, word, first byte, last byte); every character of these texts is one byte, and one token.
    words = [
        (n, word, first, first + len(word))
        for n, text in enumerate(TEXTS)
        for word, first in (
            (part.strip(".,"), text.index(f" {part}") + 1 if text.find(part) else 0) for part in text.split()
        )
    ]
    hidden = [hidden_of(model, [separator, *map(int, tokenizer.encode(text))]) for text in TEXTS]
    for number, layer in enumerate(layers_of(tokenizer, model, TEXTS)):
        vectors = [hidden[n][number][first + 1 : last + 1].mean(dim=0) for n, _, first, last in words]
        own = [next(v for v, w in zip(vectors, words, strict=True) if w[:2] == (n, "bears")) for n in range(4)]
        for i, j in itertools.product(range(4), repeat=2):
            assert layer.cosines[i, j].item() == pytest.approx(cosine(own[i], own[j]), abs=1e-12)
        pairs = list(itertools.combinations(range(4), 2))
        mean = sum(cosine(own[i], own[j]) for i, j in pairs) / len(pairs)
        others = [
            cosine(vectors[a], vectors[b])
            for a, b in itertools.combinations(range(len(words)), 2)
            if words[a][0] != words[b][0] and words[a][1].lower() != words[b][1].lower()
        ]
        assert layer.number == number
        assert layer.cosine == pytest.approx(mean, abs=1e-12)
        assert layer.baseline == pytest.approx(sum(others) / len(others), abs=1e-12)
        assert layer.corrected == pytest.approx(mean - sum(others) / len(others), abs=1e-12)
        between = (cosine(own[0], own[1]) + cosine(own[1], own[2])) / 2
        assert layer.separation == pytest.approx(cosine(own[0], own[2]) - between, abs=1e-12)


@pytest.mark.parametrize("positions", listing("positions"))
def test_without_added_positions_equal_words_are_equal_at_layer_0_and_only_there(
    tokenizer: Tokenizer, positions: str
) -> None:
    layers = layers_of(tokenizer, built(tokenizer, "encoder", positions), TEXTS)
    added = "embed" in settings_of("positions", positions).APPLIES_TO  # type: ignore[attr-defined]
    assert (layers[0].cosine == pytest.approx(1.0, abs=1e-12)) is not added
    assert layers[-1].cosine < 0.9999


def test_where_all_vectors_point_one_way_nothing_is_left_of_the_cosine(tokenizer: Tokenizer) -> None:
    model = built(tokenizer, "encoder", "none")
    with torch.no_grad():
        model.embedding.tokens.weight += 1e4  # type: ignore[union-attr, operator]
    first = layers_of(tokenizer, model, TEXTS)[0]
    assert first.cosine > 0.999
    assert abs(first.corrected) < 1e-6


def test_separation_is_known_only_with_pairs_within_and_between_senses(tokenizer: Tokenizer) -> None:
    model = built(tokenizer, "encoder", "none")
    for senses in ([None] * 4, ["a", "b", "c", "d"], ["a", "a", "a", None]):
        assert {layer.separation for layer in layers_of(tokenizer, model, TEXTS, senses=senses)} == {None}


def test_sentences_of_the_word_alone_have_no_baseline(tokenizer: Tokenizer) -> None:
    layers = layers_of(tokenizer, built(tokenizer, "encoder", "none"), ["bears", "bears!"], senses=[None, None])
    assert all(math.isnan(layer.baseline) and math.isnan(layer.corrected) for layer in layers)
    assert layers[0].cosine == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "word", "found"),
    [
        ("I love bears", "bears", (7, 12)),
        ("bearskin, bears' and bears", "bears", (10, 15)),
        ("forbears bears2 _bears bears_ bears", "bears", (30, 35)),
        ("Bears bears", "bears", (6, 11)),
        ("[bold]bears[/bold]", "bears", (6, 11)),
        ("forbears", "bears", None),
        ("Ours: ours", "Ours", (0, 4)),
        ("我爱熊猫", "熊", (2, 3)),
        ("クマがすき", "クマ", (0, 2)),
        ("곰이 곰", "곰", (3, 4)),
        ("a🐻b", "🐻", (1, 2)),
        ("cafe\u0301 cafe", "cafe", (6, 10)),
        ("कि क", "क", (3, 4)),
        ("a second. a second", "a second", (0, 8)),
        ("$x$ x", "$x$", (0, 3)),
        ("\x1b[31mred red", "red", (9, 12)),
        ("", "bears", None),
    ],
)
def test_a_word_is_found_as_a_whole_word(text: str, word: str, found: tuple[int, int] | None) -> None:
    assert find_word(text, word)[:1] == ([] if found is None else [found])


def test_words_are_runs_of_letters_and_characters_of_scripts_without_blanks() -> None:
    def words(text: str) -> list[str]:
        return [text[first:last] for first, last in word_spans(text)]

    assert words("He's 30, and_so: naïve—yes") == ["He", "s", "30", "and_so", "naïve", "yes"]
    assert words("I ♥ 熊猫 곰이") == ["I", "熊", "猫", "곰이"]
    assert words("cafe\u0301 हिन्दी") == ["cafe\u0301", "हिन्दी"]
    assert words(" \n.") == words("") == []


def test_a_text_without_the_word_or_with_it_past_the_context_is_refused_by_its_number(tokenizer: Tokenizer) -> None:
    for text, said in (
        ("no such", "text 7: the word 'bears' does not occur in it"),
        ("x" * 20 + " bears", "text 7: 'bears' ends at token 27, but the model's context is 16"),
    ):
        with pytest.raises(UsageFault, match=said):
            find_occurrence(framing(tokenizer), 16, "bears", Sentence(text, "text 7"), UsageFault)
    with pytest.raises(DataFault, match="'bears' ends at token 17, but the model's context is 16"):
        find_occurrence(
            framing(tokenizer), 16, "bears", Sentence("ten bytes. bears", "f:1"), DataFault
        )  # its last byte is the 17th token
    found = find_occurrence(framing(tokenizer), 17, "bears", Sentence("ten bytes. bears and more", "f:1"), DataFault)
    assert found.tokens == [12, 13, 14, 15, 16]
    assert (len(found.input.ids), found.input.n_cut) == (17, 9)


def test_what_is_cut_off_takes_no_part(tokenizer: Tokenizer) -> None:
    model = built(tokenizer, "encoder", "rotary", context=20)
    cut = layers_of(tokenizer, model, ["two bears in a river, of some length", "love bears"], senses=[None, None])
    whole = layers_of(tokenizer, model, ["two bears in a river,"[:19], "love bears"], senses=[None, None])
    for a, b in zip(cut, whole, strict=True):
        torch.testing.assert_close(a.cosines, b.cosines)


def test_records_of_another_word_and_empty_lines_are_passed_over() -> None:
    lines = [
        '{"word": "bat", "text": "a bat"}',
        "",
        '{"word": "bears", "sense": "carry", "text": "it bears"}',
        '{"text": "bears"}',
    ]
    found = [Sentence("it bears", "s.jsonl:3", "carry"), Sentence("bears", "s.jsonl:4", None)]
    assert list(read(lines, "s.jsonl", "bears")) == found
    assert list(read(["a bears", " ", '{"text": "x"}'], "s.txt", "bears")) == [
        Sentence("a bears", "s.txt:1"),
        Sentence('{"text": "x"}', "s.txt:3"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", 'a record must have a "text"'),
        ('{"text": 3}', 'a record must have a "text"'),
        ('{"text": "a", "sense": 3}', '"sense" must be a valid string'),
        *(
            (rf'{{"text": "{surrogate} bears"}}', '"text" must be a valid string')
            for surrogate in (r"\ud800", r"\udbff", r"\udfff")
        ),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: str, said: str) -> None:
    with pytest.raises(DataFault, match=said) as refused:
        list(read([line], "s.jsonl", "bears"))
    assert refused.value.where == ("s.jsonl:1",)
