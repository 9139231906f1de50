"""What a model does not read of texts is said once for all of them: what its context cuts, what its tokenizer has no
token for.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
import tiny_tasks
import tokenizers
from commands import minitf, trained
from tokenizers import models, normalizers, pre_tokenizers

from mini_tf.data.tokenization.prompts import InputWarnings, PromptTokenizer
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe.kinds import listing
from mini_tf.recipe.sections import Tokenizer as Settings
from mini_tf.system.errors import DataFault

THERE = "the unknown token replaces them"


@pytest.fixture(scope="module")
def by_char(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder of the characters of its text."""
    return trained(tmp_path_factory.mktemp("runs") / "char", "train.steps=1", "tokenizer.kind=char")


@pytest.fixture(scope="module")
def by_wordpiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind = ("tokenizer={kind: wordpiece, vocab_size: 300}", "model.kind=encoder", "objective.kind=masked")
    return trained(tmp_path_factory.mktemp("runs") / "wordpiece", "train.steps=1", *kind)


def test_characters_without_a_token_are_named_in_one_note_for_all_prompts(by_char: Path) -> None:
    prompts = ("Once é漢", "upon 漢☃\x1b", "a time")
    note = f"the tokenizer has no token for 'é', '漢', '☃', '\\x1b' (5 in all); {THERE}\n"
    assert minitf("generate", by_char, *prompts, "--max-new-tokens", "2").stderr == note
    lines = "".join(f"{line}\n" for line in prompts)
    done = minitf("generate", by_char, "--max-new-tokens", "2", "--json", stdin=lines)
    assert done.stderr == note
    notes = [json.loads(line)["result"].get("notes") for line in done.stdout.splitlines()]
    alone = ("'é', '漢'", "'漢', '☃', '\\x1b'")
    assert notes == [*([f"the tokenizer has no token for {named}; {THERE}"] for named in alone), None]


def test_a_space_at_the_end_of_a_prompt_is_warned_of_where_words_begin_with_it(
    by_char: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind = ("train.steps=1", "tokenizer={kind: bpe, vocab_size: 300}")
    by_bpe = trained(tmp_path_factory.mktemp("runs") / "bpe", *kind)
    few, note = ("--max-new-tokens", "2"), "in a space, but the tokenizer has it with the next word: leave it out"
    for prompt in ("Once ", "Once upon  "):
        assert minitf("generate", by_bpe, prompt, *few).stderr == f"the prompt ends {note}\n"
    assert minitf("generate", by_bpe, "Once", *few).stderr == ""
    assert minitf("generate", by_char, "Once ", *few).stderr == ""
    done = minitf("generate", by_bpe, *few, "--json", stdin="Once \nOnce\nOnce upon \n")
    assert done.stderr == f"2 prompts end {note}\n"
    notes = [json.loads(line)["result"].get("notes") for line in done.stdout.splitlines()]
    assert notes == [[f"the prompt ends {note}"], None, [f"the prompt ends {note}"]]


def test_many_unknown_characters_are_counted(by_char: Path) -> None:
    done = minitf("generate", by_char, "éüöäßéñ", "--max-new-tokens", "2")
    assert done.stderr == f"the tokenizer has no token for 'é', 'ü', 'ö', 'ä', 'ß' and 1 other (7 in all); {THERE}\n"


def test_a_word_that_wordpiece_does_not_know_is_named_whole_and_a_mask_is_no_such_word(by_wordpiece: Path) -> None:
    done = minitf("generate", by_wordpiece, "the☃ [MASK] é", "--json")
    note = f"the tokenizer has no token for 'the☃', 'é'; {THERE}"
    assert (done.stderr, json.loads(done.stdout)["result"]["notes"]) == (f"{note}\n", [note])


def test_a_tokenizer_of_bytes_knows_every_character(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1", "tokenizer={kind: bpe, vocab_size: 300}")
    done = minitf("generate", run, "é漢☃\x1b", "--json", "--max-new-tokens", "2")
    assert done.stderr == ""
    assert "notes" not in json.loads(done.stdout)["result"]


@pytest.mark.parametrize("kind", listing("data.tokenizers"))
def test_what_any_kind_of_tokenizer_loses_is_what_does_not_come_back(kind: str) -> None:
    texts = ["the old king had a ship and a dog of the north"] * 9
    tokenizer = Tokenizer.train(Settings(kind=kind, **({} if kind in ("char", "byte") else {"vocab_size": 300})), texts)
    for text in ("the ☃ ship", "a dog", "é", "the\x01"):
        kept = "".join(tokenizer.decode(tokenizer.encode(text)).split())
        lost = tokenizer.count_lost_text(text)
        assert len("".join(text.split())) - len(kept) == sum(len(one) * n for one, n in lost.items()), (text, lost)


def test_what_a_tokenizer_drops_in_silence_is_lost_too() -> None:
    inner = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    assert Tokenizer(inner).count_lost_text("ab éb漢 é") == Counter({"é": 2, "漢": 1})
    assert InputWarnings(Tokenizer(inner), 8).add(["é"]) == ["the tokenizer has no token for 'é'; they are dropped"]
    cleaning = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "ab": 1}, "[UNK]"))
    cleaning.normalizer, cleaning.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    assert Tokenizer(cleaning).count_lost_text("ÀB\x01 ab xy") == Counter({"\x01": 1, "xy": 1})


def test_one_note_for_all_prompts_that_are_cut(by_char: Path) -> None:
    long = "once upon a time " * 4
    cut = "are longer than the context of 48 tokens; their first tokens are truncated\n"
    done = minitf("generate", by_char, long, "a", long, "--max-new-tokens", "1")
    assert done.stderr == f"2 of 3 prompts {cut}"
    lines = f"{long}\na\n" * 10
    done = minitf("generate", by_char, "--max-new-tokens", "1", "--json", stdin=lines)
    assert done.stderr == f"10 of 20 prompts {cut}"
    noted = [json.loads(line)["result"].get("notes") for line in done.stdout.splitlines()]
    assert noted == [["the prompt has 68 tokens; the first 20 are truncated"], None] * 10


def test_a_prompt_that_cannot_be_answered_does_not_hide_the_note_on_those_before(by_wordpiece: Path) -> None:
    done = minitf("generate", by_wordpiece, stdin="☃ [MASK]\nno mask\n")
    assert done.exit_code == 4
    said = done.stderr.splitlines()
    assert (len(said), said[0]) == (2, f"the tokenizer has no token for '☃'; {THERE}")


def test_predict_says_once_how_many_texts_are_cut_and_which_characters_are_unknown(classifier: Path) -> None:
    long = " ".join(["good"] * 200)
    [one] = minitf("predict", classifier, long).stderr.splitlines()
    assert one.startswith("argument 1: the text has ")
    assert one.endswith(" are truncated")
    done = minitf("predict", classifier, "--batch-size", "2", stdin=f"{long}\ngood\n{long}\nfine\n")
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 4)
    assert done.stderr.startswith("2 of 4 texts are longer than the context of ")
    assert done.stderr.count("\n") == 1
    assert minitf("predict", classifier, "a good film", "fine").stderr == ""


def test_a_table_on_stdin_is_warned_of_and_a_text_with_a_comma_is_not(classifier: Path) -> None:
    for line, warned in (("text,label", True), ("good, but long", False), ("text", False)):
        done = minitf("predict", classifier, stdin=f"{line}\ngood,fine\n")
        assert done.exit_code == 0
        assert ("stdin is read as plain lines, and the first is that of a table" in done.stderr) == warned


def test_tags_of_long_sentences_are_all_predicted_so_nothing_is_said(tagger: Path) -> None:
    words, tags = tiny_tasks.NAMES[0]
    done = minitf("predict", tagger, " ".join(words * 40))
    assert (done.exit_code, len(json.loads(done.stdout)["label"])) == (0, len(tags) * 40)
    assert "cut" not in done.stderr


def test_evaluate_says_what_another_text_has_that_the_model_does_not_read(
    by_char: Path, classifier: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.txt").write_text("once upon a time é漢 there was a ☃\n" * 20)
    done = minitf("evaluate", by_char, "--data", tmp_path / "other.txt", "--json")
    [note] = json.loads(done.stdout)["result"]["notes"]
    assert done.stderr == f"{note}\n"
    assert note.startswith("60 characters are not in the vocabulary and become the unknown token: 'é' 20 times, ")
    rows = [row | {"text": row["text"] + " good" * 200 * (n < 3)} for n, row in enumerate(tiny_tasks.OPINIONS[:20])]
    done = minitf("evaluate", classifier, "--data", tiny_tasks.opinions(tmp_path / "long.jsonl", rows))
    assert done.stderr.startswith("3 of 20 examples are longer than the model's context of ")


def test_a_text_that_outgrows_the_context_is_noted_and_one_that_fills_it_is_not(by_char: Path) -> None:
    """The last of its tokens is no input of the model."""
    context, prompt = 16, "Once"
    fills = context - (1 + len(prompt)) + 1
    done = minitf(
        "generate", by_char, prompt, "--context", str(context), "--greedy", "--max-new-tokens", str(fills), "--json"
    )
    assert (done.stderr, "notes" in json.loads(done.stdout)["result"]) == ("", False)
    note = (
        f"a text grew longer than the context of {context} tokens; from there on the model saw only the last half of it"
    )
    grown = ("--context", str(context), "--max-new-tokens", str(fills + 1), "--greedy")
    done = minitf("generate", by_char, prompt, *grown, "--json")
    assert (done.stderr, json.loads(done.stdout)["result"]["notes"]) == (f"{note}\n", [note])
    done = minitf("generate", by_char, *grown, stdin=f"{prompt}\na\n{prompt}s\n")
    assert done.stderr == f"{note.replace('a text', '2 texts')}\n"


def test_each_mask_of_a_prompt_is_the_sentinel_of_its_number() -> None:
    """As generation writes it, with the characters of [MASK]; one mask token stands for all."""
    tokenizer = Tokenizer.train(Settings(kind="char"), ["abc "]).with_sentinels(3, trained=True)
    v = tokenizer.vocabulary
    text, [a, b, c] = "a[MASK]b[MASK]c", tokenizer.encode("abc").tolist()
    of_sentinels = PromptTokenizer(tokenizer, v.sentinels)
    assert of_sentinels.encode(text).tolist() == [a, v.sentinels[0], b, v.sentinels[1], c]
    ids, spans = of_sentinels.spans(text)
    assert (ids.tolist(), spans) == (of_sentinels.encode(text).tolist(), [(0, 1), (1, 7), (7, 8), (8, 14), (14, 15)])
    assert v.mask is not None
    assert PromptTokenizer(tokenizer, [v.mask]).encode(text).tolist() == [a, v.mask, b, v.mask, c]
    assert of_sentinels.encode("[MASK]" * 3).tolist() == [*v.sentinels]
    with pytest.raises(DataFault, match=r"a text has 4 \[MASK\]; the model has 3 sentinels for them"):
        of_sentinels.encode("[MASK]" * 4)


def test_a_mask_is_plain_text_to_a_decoder_and_that_is_noted(by_char: Path, by_wordpiece: Path) -> None:
    note = "[MASK] is plain text here: a mask only in a prompt to an encoder, or to a model that fills masks"
    assert minitf("generate", by_char, "a [MASK] e", "--max-new-tokens", "2").stderr.splitlines()[-1] == note
    for view in (("attention",), ("tokens",)):
        done = minitf("inspect", *view, by_char, "a [MASK] e", "--json")
        assert any("[MASK]" in one and "plain text" in one for one in json.loads(done.stdout)["result"]["notes"])
        done = minitf("inspect", *view, by_wordpiece, "the [MASK] the", "--json")
        result = json.loads(done.stdout)["result"]
        assert not any("[MASK]" in one for one in result["notes"])
        names = (
            result["samples"][0]["tokens"]
            if "samples" in result
            else [one["piece"] for one in result["texts"][0]["tokens"]]
        )
        assert names.count("[MASK]") == 1
