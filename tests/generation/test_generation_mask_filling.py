"""What an encoder puts in place of [MASK]: ranked by its own probabilities, and written so that the text reads on."""

from typing import Any, get_args

import pytest
import torch
from test_models import model_of
from tokenizers import AddedToken
from tokenizers import Tokenizer as Inner
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import Fuse
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.trainers import BpeTrainer

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.mask_filling import Candidate, MaskFiller, split_at_masks
from mini_tf.generation.prompt_ids import affixes
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe import sections
from mini_tf.system.errors import RunFault, UsageFault

KINDS = get_args(sections.Tokenizer.model_fields["kind"].annotation)
SENTENCE = "the red cat sat and sat on the mat"
TOKENIZERS = {
    kind: Tokenizer.train(sections.Tokenizer(kind=kind, vocab_size=400), [SENTENCE + "\n"] * 20) for kind in KINDS
}
CHAR = TOKENIZERS["char"]


def with_mask_first() -> Tokenizer:
    """A tokenizer made elsewhere, whose mask has the id 0, which pads have too."""
    inner = Inner(
        WordLevel(
            {token: id for id, token in enumerate(["[MASK]", "<unk>", *sorted(set(SENTENCE))])}, unk_token="<unk>"
        )
    )
    inner.pre_tokenizer = Split("", "isolated")
    inner.add_special_tokens(["[MASK]", "<unk>"])
    return Tokenizer(inner)


def filler_of(tokenizer: Tokenizer = CHAR, separated: bool = True, context: int = 16, **settings: Any) -> MaskFiller:
    model: Any = model_of("encoder", positions="learned", n_layers=2, head="bert", **settings)
    all_scores = model.logits
    model.logits = lambda hidden, words=None: all_scores(hidden, words)[..., : tokenizer.vocabulary.size]
    return MaskFiller(model, tokenizer, affixes(tokenizer, "masked", separated), context)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_stands_where_its_token_stood_and_the_token_brings_the_text_back(kind: str) -> None:
    """So a blank belongs to the mask where it belongs to the token, and the text around it is what training saw."""
    tokenizer = TOKENIZERS[kind]
    [separator, *ids] = (*filler_of(tokenizer)._affixes.before, *map(int, tokenizer.encode("the cat sat")))
    word = "c" if kind in ("char", "byte") else "cat"
    at = next(i for i, piece in enumerate(tokenizer.pieces(ids)) if piece.strip() == word)
    filler = filler_of(tokenizer)
    question = filler.encode_prompt(f"the [MASK]{'at' if word == 'c' else ''} sat")
    assert question.ids == [separator, *ids[:at], tokenizer.vocabulary.mask, *ids[at + 1 :]]
    assert filler.fill(question, [filler._candidates([ids[at]], [1.0])]) == "the cat sat"


def test_a_part_of_a_word_joins_the_word_before_its_mask() -> None:
    for kind in ("bpe", "wordpiece", "unigram"):
        tokenizer = TOKENIZERS[kind]
        parts = [
            id for id, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary.size))) if piece in ("t", "##t")
        ]
        filler = filler_of(tokenizer)
        question = filler.encode_prompt("the ca [MASK] sat")
        [candidate] = filler._candidates(parts[-1:], [1.0])
        assert filler.fill(question, [[candidate]]) == "the cat sat"


def test_candidates_are_ranked_by_the_models_own_probabilities() -> None:
    filler = filler_of()
    question = filler.encode_prompt("the [MASK]at s[MASK]t")
    first, second = filler.candidates([question], 7)[0]
    with torch.no_grad():
        scores = filler.model.logits(filler.model(Tokens(torch.tensor([question.ids]))).y)[0].softmax(dim=-1)
    for ranked, at in ((first, 5), (second, 10)):
        assert question.ids[at] == CHAR.vocabulary.mask
        best = sorted(
            set(range(CHAR.vocabulary.size)) - CHAR.vocabulary.special_ids, key=lambda id: -float(scores[at, id])
        )[:7]
        assert [candidate.token for candidate in ranked] == CHAR.pieces(best)
        assert [candidate.p for candidate in ranked] == pytest.approx([float(scores[at, id]) for id in best], abs=1e-6)


def test_special_tokens_are_never_candidates_and_all_others_may_be() -> None:
    [[ranked]] = filler_of().candidates([filler_of().encode_prompt("[MASK]")], 1000)
    assert len(ranked) == CHAR.vocabulary.size - 4
    assert not {candidate.token for candidate in ranked} & {"<pad>", "<unk>", "</s>", "[MASK]"}


@pytest.mark.parametrize("tokenizer", [CHAR, with_mask_first()], ids=["char", "mask_first"])
def test_prompts_of_different_length_are_filled_together_as_each_alone(tokenizer: Tokenizer) -> None:
    filler = filler_of(tokenizer)
    questions = [
        filler.encode_prompt(text) for text in ("[MASK]", "the [MASK]at [MASK]at", "a[MASK]", "on the m[MASK]")
    ]
    together = filler.candidates(questions, 4)
    assert [len(masks) for masks in together] == [1, 2, 1, 1]
    for question, masks in zip(questions, together, strict=True):
        [alone] = filler.candidates([question], 4)
        for ranked, expected in zip(masks, alone, strict=True):
            assert [candidate.token for candidate in ranked] == [candidate.token for candidate in expected]
            assert [candidate.p for candidate in ranked] == pytest.approx(
                [candidate.p for candidate in expected], abs=1e-6
            )


def test_other_special_tokens_in_a_prompt_are_plain_text() -> None:
    question = filler_of(TOKENIZERS["byte"], context=99).encode_prompt("</s><pad>[MASK]")
    special = TOKENIZERS["byte"].vocabulary
    assert [id for id in question.ids if id in special.special_ids] == [special.separator, special.mask]
    assert len(question.ids) == 2 + len("</s><pad>")
    assert filler_of(separated=False).encode_prompt("[MASK]").ids == [CHAR.vocabulary.mask]


@pytest.mark.parametrize("prompt", ["[MASK] [MASK]", "漢 [MASK]"])
def test_a_word_after_another_mask_or_after_something_unknown_keeps_its_blank(prompt: str) -> None:
    filler = filler_of(TOKENIZERS["wordpiece"])
    question = filler.encode_prompt(prompt)
    [[*before, last]] = filler.candidates([question], 1000)
    words = [candidate for candidate in last if not candidate.token.startswith("##")]
    assert "cat" in {candidate.token for candidate in words}
    assert {filler.fill(question, [*before, [word]]).rpartition(" ")[2] for word in words} == {
        word.token for word in words
    }


def test_a_model_that_is_in_training_fills_without_its_dropout() -> None:
    filler = filler_of(dropout_rate=0.5)
    filler.model.train()
    question = filler.encode_prompt("the [MASK]at")
    assert filler.candidates([question], 3) == filler.candidates([question], 3)


def test_a_prompt_without_a_mask_or_too_long_is_refused_with_the_way_out() -> None:
    filler = filler_of()
    with pytest.raises(UsageFault, match=r"the prompt has no \[MASK\]") as refused:
        filler.encode_prompt("the cat [mask]")
    assert refused.value.hint == "example: The [MASK] is red."
    assert len(filler.encode_prompt("[MASK]" + "a" * 14).ids) == 16
    with pytest.raises(UsageFault, match="the prompt has 17 tokens, more than the context of 16"):
        filler.encode_prompt("[MASK]" + "a" * 15)


def test_a_tokenizer_without_a_mask_fills_nothing() -> None:
    bare = Tokenizer(Inner(WordLevel({"a": 0, "b": 1}, unk_token="a")))
    with pytest.raises(RunFault, match=r"has no \[MASK\] token"):
        MaskFiller(model_of("encoder"), bare, affixes(bare, "masked"), 16)


def test_several_masks_are_filled_with_the_best_of_each() -> None:
    filler = filler_of()
    question = filler.encode_prompt("[MASK] and [MASK].")
    (x,), *best = (CHAR.encode(word).tolist() for word in "xat")
    assert filler.fill(question, [[Candidate("", 0.5, id), Candidate("x", 0.1, x)] for (id,) in best]) == "a and t."


@pytest.mark.parametrize("lstrip", [True, False])
def test_a_mask_of_another_tokenizer_takes_the_space_if_its_file_says_so(lstrip: bool) -> None:
    inner = Inner(BPE(unk_token="<unk>"))
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False)
    inner.train_from_iterator([SENTENCE] * 9, trainer)
    inner.add_special_tokens([AddedToken("[MASK]", lstrip=lstrip, special=True)])
    theirs = Inner.from_str(inner.to_str())
    ours = filler_of(Tokenizer(inner), separated=False)
    for prompt in ("the [MASK] sat", "the[MASK] sat", "[MASK] [MASK] sat"):
        assert ours.encode_prompt(prompt).ids == theirs.encode(prompt).ids


@pytest.mark.parametrize(("decoder", "takes_space"), [(ByteLevelDecoder(), True), (None, False)])
def test_a_mask_that_is_added_takes_the_space_where_tokens_have_one(decoder: Any, takes_space: bool) -> None:
    """Without the decoder no token is known to begin with a space."""
    inner = Inner(BPE(unk_token="<unk>"))
    inner.pre_tokenizer, inner.decoder = ByteLevel(add_prefix_space=False), decoder or Fuse()
    inner.train_from_iterator([SENTENCE] * 9, BpeTrainer(special_tokens=["<s>", "</s>", "<unk>"], show_progress=False))
    tokenizer = Tokenizer(inner).with_special("mask")
    assert split_at_masks(tokenizer, "the [MASK] sat") == (["the", " sat"] if takes_space else ["the ", " sat"])
