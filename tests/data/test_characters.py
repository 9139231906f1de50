"""Characters of several bytes, where tokens are bytes: none is split where `generate` and `predict` truncate or print a
text, and prompts of different length are one batch.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tasks
import torch
from commands import minitf
from data_of import both, dataset_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_data_stream import sentencepiece
from test_generation_decoding import uncached
from test_generation_text_generator import Parrot, recipe_with, texts

from mini_tf.data.batch import Rows
from mini_tf.data.examples import ASSISTANT, Example, Labels, Pair
from mini_tf.data.packing import Shape
from mini_tf.data.store import in_memory
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import first_tokens, last_tokens
from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.mask_filling import Candidate, MaskFiller
from mini_tf.generation.prompt_ids import affixes
from mini_tf.generation.text_generator import TextGenerator
from mini_tf.generation.translation import Translator
from mini_tf.nn.model import Model
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.sections import Generate

TEXT = "a🙂b 漢字 e\u0301x é 🏳️\u200d🌈 z"
"""Emoji, one of them of several code points, ideographs, a combining accent."""
BYTE = Tokenizer.train(sections.Tokenizer(kind="byte"), [])
PARTS = ["字e 🙂字", "漢a漢b漢c", "x\u0301y\u0301"] * 9
TOKENIZERS = {
    "byte": BYTE,
    "bpe": Tokenizer.train(sections.Tokenizer(kind="bpe", vocab_size=266), PARTS),
    "unigram": Tokenizer.train(sections.Tokenizer(kind="unigram", vocab_size=270), PARTS),
    "sentencepiece": sentencepiece(),
    "char": Tokenizer.train(sections.Tokenizer(kind="char"), [TEXT]),
}


def bytes_of(tokenizer: Tokenizer, id: int) -> bytes:
    """The bytes of a token, without the tokenizer's own table of them."""
    piece = tokenizer._inner.id_to_token(id)
    if found := re.fullmatch("<0x(..)>", piece):
        return bytes([int(found[1], 16)])
    if "ByteLevel" not in str(tokenizer._json["decoder"]):
        return str(piece).encode()
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return bytes(ord(c) if ord(c) < 256 else others[ord(c) - 256] for c in piece)


def is_whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40, deadline=None)
@given(text=st.text("ab 字漢é🙂x\u0301", min_size=1, max_size=9), n=st.integers(1, 30))
def test_as_many_tokens_are_kept_as_do_not_split_a_character(name: str, text: str, n: int) -> None:
    """By decoding strictly; where not one whole token would be left, a character is longer than what may be kept."""
    tokenizer = TOKENIZERS[name]
    ids, vocabulary = tokenizer.encode(text), tokenizer.vocabulary
    parts = [bytes_of(tokenizer, int(id)) for id in ids]
    allowed = range(1, min(n, len(ids)) + 1)
    for kept, of_parts in (
        (first_tokens(vocabulary, ids, n), lambda k: parts[:k]),
        (last_tokens(vocabulary, ids, n), lambda k: parts[len(ids) - k :]),
    ):
        assert kept == max((k for k in allowed if is_whole(b"".join(of_parts(k)))), default=min(n, len(ids)))


def test_a_bpe_token_may_end_or_begin_within_a_character() -> None:
    """So that more than single bytes is tried here."""
    tokens = [bytes_of(TOKENIZERS["bpe"], id) for id in range(266)]
    assert [token for token in tokens if len(token) > 1 and not is_whole(token)]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("separated", [True, False])
def test_a_prompt_longer_than_the_context_begins_with_a_whole_character(name: str, separated: bool) -> None:
    tokenizer = TOKENIZERS[name]
    if separated and tokenizer.vocabulary.separator is None:
        tokenizer = tokenizer.with_special("separator")
    ids, recipe = tokenizer.encode(TEXT), recipe_with(split="5%" if separated else "tail 10%")
    for context in (*range(4, 18), len(ids), len(ids) + 1):
        writer = TextGenerator(Parrot([[0]]), tokenizer, recipe, context=context)  # type: ignore[arg-type]
        prompt = writer.encode_prompt(TEXT)
        text_ids = [id for id in prompt.ids if id != tokenizer.vocabulary.separator]
        assert context - 4 < len(prompt.ids) <= context or len(prompt.ids) == len(ids) + separated
        assert (prompt.length, prompt.cut) == (len(ids), len(ids) - len(text_ids))
        assert text_ids == ids[prompt.cut :].tolist()
        assert is_whole(b"".join(bytes_of(tokenizer, id) for id in text_ids))
        if separated:
            chat = writer.encode_chat(["🙂", TEXT])
            decoded = tokenizer.decode(chat.ids)
            assert "\ufffd" not in decoded
            assert tokenizer.decode(tokenizer.encode(f"🙂{TEXT}")).endswith(decoded.strip())
            assert chat.cut == 1 + len(tokenizer.encode("🙂")) + len(ids) + 1 - (len(chat.ids) - 1)


@pytest.mark.parametrize("name", ["byte", "bpe", "unigram", "char"])
def test_a_source_longer_than_the_context_ends_with_a_whole_character(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    model = settings_of("models", "encoder_decoder")(d_model=8, n_layers=1, n_heads=1).build(
        tokenizer.vocabulary.size, 99
    )  # type: ignore[attr-defined]
    ids = tokenizer.encode(TEXT).tolist()
    for context in (*range(5, 19), len(ids), len(ids) + 1):
        [source] = Translator(model, tokenizer, tokenizer, Generate(), context=context).encode_sources([TEXT])
        *kept, end = source.ids
        assert (kept, end) == (ids[: len(kept)], tokenizer.vocabulary.separator)
        assert context - 5 < len(kept) < context
        assert source.cut == len(ids) - len(kept)
        assert TEXT.startswith(tokenizer.decode(kept))


def byte_model(kind: str = "decoder", context: int = 24) -> Model:
    torch.manual_seed(0)
    built = settings_of("models", kind)(d_model=16, n_layers=2, n_heads=2, init_std=0.4).build(
        BYTE.vocabulary.size, context
    )  # type: ignore[attr-defined]
    assert isinstance(built, Model)
    return built.double().eval()


def test_a_text_that_outgrows_the_context_goes_on_from_a_whole_character() -> None:
    """Two of different length, each of which is cut at other tokens."""
    model, ids = byte_model(), BYTE.encode(TEXT * 3).tolist()
    ends = [24, 12]
    state, starts = DecodingState(model, [ids[:24], ids[5:12]], 24, vocabulary=BYTE.vocabulary), set()
    logits = state.prefill()
    for step in range(36):
        for row, end in enumerate(ends):
            begun = state.sequences[row]
            sequence = [*begun, *(int(decoded[row]) for decoded in state._decoded)]
            assert sequence == ids[: end + step][-len(sequence) :]
            assert not BYTE.decode(begun).startswith("\ufffd")
            starts.add(end + step - len(sequence))
            expected = uncached(model, sequence, [], 24)[0]
            torch.testing.assert_close(logits[row].log_softmax(-1), expected, rtol=0, atol=1e-8)
        logits = state.decode(torch.tensor([ids[end + step] for end in ends]))
    assert len(starts) > 5


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": 1.3, "top_k": 40}], ids=["greedy", "sampled"]
)
def test_prompts_of_any_bytes_are_continued_together_as_each_alone(options: dict[str, Any]) -> None:
    prompts = ["🙂", "漢字 e\u0301", TEXT, "z", ""]
    writer = TextGenerator(byte_model(), BYTE, recipe_with(max_new_tokens=20, **options))
    together = texts(writer, prompts, seed=3)
    assert together == [texts(writer, [prompt], seed=3)[0] for prompt in prompts]
    assert len({*map(tuple, together)}) == len(prompts)


@pytest.mark.parametrize("name", ["byte", "bpe", "unigram"])
@pytest.mark.parametrize("stop", [(), ("字",), ("\u0301x",)], ids=ascii)
def test_wherever_a_text_ends_it_is_streamed_in_whole_characters(name: str, stop: tuple[str, ...]) -> None:
    """At its end a character that is not complete is one U+FFFD, as in decoding."""
    tokenizer = TOKENIZERS[name]
    ids, base = tokenizer.encode(TEXT).tolist(), recipe_with()
    for n in range(1, len(ids) + 1):
        heard: list[str] = []
        recipe = base.model_copy(update={"generate": Generate(temperature=0.0, max_new_tokens=n, stop=stop)})
        writer = TextGenerator(Parrot([ids], tokenizer.vocabulary.size), tokenizer, recipe)  # type: ignore[arg-type]
        [[written]] = writer.generate(
            [writer.encode_prompt("b")],
            0,
            batch_size=1,
            follow=lambda n, piece, to=heard: bool(piece and to.append(piece)),
        )
        expected = tokenizer.decode(ids[:n])
        for one in stop:
            expected = expected.partition(one)[0]
        assert written.text == "".join(heard) == expected
        whole = expected.removesuffix("\ufffd")
        assert TEXT.startswith(whole)
        assert "".join(heard[:-1]) == whole[: len("".join(heard[:-1]))]


MASKED = [
    ("a[MASK][MASK][MASK][MASK]b", "🙂", "a🙂b"),
    ("[MASK][MASK][MASK]", "字", "字"),
    ("é e[MASK][MASK]x", "\u0301", "é e\u0301x"),
]


@pytest.mark.parametrize(("prompt", "masked", "filled"), MASKED, ids=ascii)
def test_bytes_of_adjacent_masks_are_one_character(prompt: str, masked: str, filled: str) -> None:
    filler = MaskFiller(byte_model("encoder", 40), BYTE, affixes(BYTE, "masked"), 40)
    best = [[Candidate(BYTE.pieces([id])[0], 1.0, id)] for id in BYTE.encode(masked).tolist()]
    assert filler.fill(filler.encode_prompt(prompt), best) == filled
    assert [one.token for [one] in best] == [f"\\x{byte:02x}" for byte in masked.encode()]
    apart = filler.encode_prompt("[MASK]-" * len(best))
    assert filler.fill(apart, best) == "\ufffd-" * len(best)
    assert len(filler.candidates([filler.encode_prompt(prompt), apart], 3)[0]) == len(best)


LABELS = Labels(("A", "B"), (1, 1))


def rows_of(kind: str, examples: list[Any], context: int, labels: Labels = LABELS, lookahead: int = 0) -> Rows:
    dataset, used = dataset_of(kind), both(BYTE)
    packing = dataset.packing(in_memory(dataset.encode(examples, used, labels), used), Shape(context, lookahead))
    return packing.take(np.arange(packing.n_rows), 0, np.zeros(packing.n_rows, np.uint64))


def parts_of(rows: Rows, row: int = 0) -> list[bytes]:
    """The bytes between the separators of a row."""
    ids = rows.ids[row] if rows.segments is None else rows.ids[row][rows.segments[row] != 0]
    first = int(BYTE.encode("\0")[0])
    inner = "".join("|" if id == BYTE.vocabulary.separator else chr(0x100 + id - first) for id in ids.tolist()).strip(
        "|"
    )
    return [bytes(ord(c) - 0x100 for c in part) for part in inner.split("|")]


@pytest.mark.parametrize("context", range(10, 50, 3))
def test_examples_longer_than_the_context_are_cut_between_characters(context: int) -> None:
    other = TEXT[::-1]
    [one] = parts_of(rows_of("classes", [Example([TEXT], ["A"], "f:1")], context))
    pair = parts_of(
        rows_of(
            "classes", [Example([TEXT, other], ["A"], "f:1")], context, Labels(LABELS.names, LABELS.counts, n_texts=2)
        )
    )
    chat = Example(["hello", TEXT], ["user", ASSISTANT], "f:1")
    end = parts_of(rows_of("chats", [chat], context, Labels(), 1))[-1]
    source = rows_of("pairs", [Pair(TEXT, "x", "f:1")], context, lookahead=1).source
    assert source is not None
    [read] = parts_of(source)
    for part, text in ((one, TEXT), (pair[0], TEXT), (pair[1], other), (read, TEXT)):
        assert text.startswith(part.decode())
    assert TEXT.endswith(end.decode())
    n = len(TEXT.encode())
    assert min(n, context - 2) - 4 < len(one) <= context - 2
    assert min(n, context - 1) - 4 < len(read) <= context - 1
    assert min(2 * n, context - 3) - 7 < len(pair[0]) + len(pair[1]) <= context - 3
    assert min(n, context - 1) - 4 < len(end) <= context - 1


def test_of_a_character_that_is_longer_than_its_room_a_part_is_kept() -> None:
    labels = Labels(LABELS.names, LABELS.counts, n_texts=2)
    for context, n_first, n_second in ((7, 2, 2), (8, 3, 2), (6, 2, 1)):
        pair = parts_of(rows_of("classes", [Example(["漢字", "字漢"], ["A"], "f:1")], context, labels))
        assert pair == ["漢".encode()[:n_first], "字".encode()[:n_second]]


@pytest.mark.parametrize("context", [6, 9, 14])
def test_a_word_longer_than_the_context_is_split_between_characters(context: int) -> None:
    """Every word has its tag at its first byte; a row without one is left out."""
    words = ["🙂", "漢字漢字漢字", "e\u0301", "🙂é漢", "z"]
    rows = rows_of("tags", [Example(words, ["A", "B", "A", "B", "A"], "f:1")], context)
    assert rows.labels is not None
    n_tags, begun = 0, []
    for row, tags in enumerate(rows.labels):
        [part] = parts_of(rows, row)
        assert part.decode() in " ".join(words)
        n_tags += int((~np.isnan(tags)).sum())
        begun += [BYTE.decode([id]) for id in rows.ids[row][~np.isnan(tags)]]
    assert n_tags == len(words)
    assert [BYTE.decode(BYTE.encode(word)[:1]) for word in words] == begun


BYTES = ("tokenizer={kind: byte}", "train={steps: 3, batch_size: 4, context: 24}")


def predicted(run: Path, *lines: str) -> list[dict[str, Any]]:
    done = minitf("predict", run, stdin="".join(f"{line}\n" for line in lines))
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_predictions_of_a_long_text_are_those_of_its_whole_characters(tmp_path: Path) -> None:
    run = tiny_tasks.classifier(tmp_path, *BYTES)
    long = ["🙂" * 8, "漢字" * 9, "e\u0301" * 9, "a" + "漢字" * 9]
    kept = ["🙂" * 5, "漢字" * 3 + "漢", "e\u0301" * 7 + "e", "a" + "漢字" * 3 + "漢"]
    assert [len(text.encode()) for text in kept] == [20, 21, 22, 22]
    for one, same in zip(predicted(run, *long), predicted(run, *kept), strict=True):
        assert one["scores"] == pytest.approx(same["scores"], abs=1e-6)
    assert predicted(run, *long)[2]["scores"] == pytest.approx(predicted(run, long[2])[0]["scores"], abs=1e-5)
    assert (
        "longer than the context of 24 tokens; their last tokens are truncated" in minitf("predict", run, *long).stderr
    )


def test_tags_are_of_words_of_any_bytes(tmp_path: Path) -> None:
    words, tags = ["Zoë", "🙂", "漢字", "e\u0301", "."] * 3, ["B-PER", "O", "B-LOC", "O", "O"] * 3
    file = tiny_tasks.names(tmp_path / "names.conll", [([*words, str(n)], [*tags, "O"]) for n in range(12)])
    run = tiny_tasks.task(tmp_path, f"data={{train: '{file}', split: 20%}}", "objective.kind=tag", *BYTES)
    lines = [" ".join(words), "🙂", "x 漢字 y"]
    together = predicted(run, *lines)
    assert [len(one["label"]) for one in together] == [15, 1, 3]
    [alone], one = predicted(run, lines[2]), together[2]
    assert (alone["label"], alone["words"]) == (one["label"], one["words"])
    assert alone["scores"] == pytest.approx(one["scores"], abs=1e-5)
