"""`minitf inspect surprisal` against Hugging Face on the same weights, by the definitions written out."""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import minitf, refused, trained
from families import transformers

from mini_tf.inspection.surprisal import word_positions
from mini_tf.trained.opening import open_trained

TEXTS = {1: "the king was old", 3: "no sailor saw the  old king sleep, said he. "}
WIDE = ("train.steps=2", "model.init_std=0.3", "data.split=10%")
BERT = (
    "model={kind: encoder, d_model: 32, n_layers: 2, n_heads: 2, norm_place: post, embed_norm: true, bias: true,"
    " head: bert, n_types: 2, positions: learned}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with their exports (`-hf`), and a text."""
    folder = tmp_path_factory.mktemp("surprisal")
    trained(folder / "decoder", *WIDE, "tokenizer={kind: bpe, vocab_size: 300}")
    trained(folder / "encoder", BERT, *WIDE, "tokenizer={kind: wordpiece, vocab_size: 200}")
    trained(folder / "tail", "train.steps=2", "tokenizer.kind=char", "data.split=tail 10%")
    for name in ("decoder", "encoder"):
        assert minitf("export", folder / name, "-o", folder / f"{name}-hf").exit_code == 0
    (folder / "texts.txt").write_text(f"{TEXTS[1]}\n  \n{TEXTS[3]}\n")
    return folder


def measured(*words: str | Path, stdin: str = "") -> dict[str, Any]:
    done = minitf("inspect", "surprisal", *words, "--json", stdin=stdin)
    assert done.exit_code == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


Expected = tuple[int, int, float, float]
"""The line, word, surprisal and entropy of a token."""


def word_at(text: str, first: int, last: int) -> int:
    """The number of the word of a token; white space alone is of the word behind it, if there is one."""
    is_space = not text[first:last].strip()
    return min(len(text[: first if is_space else last].split()) + is_space, len(text.split()))


def expected_of(folder: Path, architecture: str, distribution: Callable[..., torch.Tensor]) -> list[Expected]:
    """By transformers, with minicons' definitions.

    distribution: logits of a token from the model, the ids, its place, the later places of its word, and [MASK].
    """
    theirs = transformers()
    tokenizer = theirs.AutoTokenizer.from_pretrained(folder)
    model = getattr(theirs, architecture).from_pretrained(folder).eval()
    expected = []
    for line, text in TEXTS.items():
        encoded = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        words = [word_at(text, *span) for span in encoded["offset_mapping"]]
        for i, id in enumerate(ids):
            if not special[i]:
                later = [j for j in range(i + 1, len(ids)) if encoded.word_ids()[j] == encoded.word_ids()[i]]
                with torch.no_grad():
                    p = distribution(model, ids, i, later, tokenizer.mask_token_id).double().softmax(-1)
                expected.append((line, words[i], -math.log(p[id]), float(-(p * p.log()).sum())))
    return expected


def causal(model: Any, ids: list[int], i: int, later: list[int], mask: int) -> torch.Tensor:
    return model(torch.tensor([ids[:i]])).logits[0, -1]  # type: ignore[no-any-return]


def masked_alone(model: Any, ids: list[int], i: int, later: list[int], mask: int) -> torch.Tensor:
    return masked_with_word(model, ids, i, [], mask)


def masked_with_word(model: Any, ids: list[int], i: int, later: list[int], mask: int) -> torch.Tensor:
    masked = torch.tensor([[mask if j == i or j in later else id for j, id in enumerate(ids)]])
    return model(masked).logits[0, i]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("run", "architecture", "options", "distribution"),
    [
        ("decoder", "AutoModelForCausalLM", [], causal),
        ("encoder", "AutoModelForMaskedLM", [], masked_with_word),
        ("encoder", "AutoModelForMaskedLM", ["--score", "token"], masked_alone),
    ],
)
def test_surprisal_and_entropy_are_those_of_transformers(
    folder: Path, run: str, architecture: str, options: list[str], distribution: Callable[..., torch.Tensor]
) -> None:
    expected = expected_of(folder / f"{run}-hf", architecture, distribution)
    found = measured(folder / run, folder / "texts.txt", *options)
    tokens = [(one["text"], one["word_position"], one["surprisal"], one["entropy"]) for one in found["tokens"]]
    assert [one[:2] for one in tokens] == [one[:2] for one in expected]
    for ours, theirs in zip(tokens, expected, strict=True):
        assert ours[2:] == pytest.approx(theirs[2:], rel=1e-4, abs=1e-4)
    if run == "decoder":
        in_bits = [token["surprisal"] for token in measured(folder / run, folder / "texts.txt", "--bits")["tokens"]]
        assert in_bits == pytest.approx([surprisal / math.log(2) for _, _, surprisal, _ in tokens])
    words = found["words"]
    assert [word["word"] for word in words] == [word for text in TEXTS.values() for word in text.split()]
    for word in words:
        of_word = [one[2:] for one in expected if one[:2] == (word["text"], word["position"])]
        assert word["surprisal"] == pytest.approx(sum(surprisal for surprisal, _ in of_word), rel=1e-4)
        assert word["entropy"] == pytest.approx(of_word[0][1], rel=1e-4)


@pytest.mark.parametrize("words", [False, True])
def test_the_csv_file_has_a_row_per_token_or_word(folder: Path, words: bool, tmp_path: Path) -> None:
    file, option = tmp_path / "surprisal.csv", ["--words"] if words else []
    found = measured(folder / "encoder", folder / "texts.txt", "-o", file, *option)["words" if words else "tokens"]
    with file.open(newline="") as lines:
        rows = [*csv.DictReader(lines)]
    assert len(rows) == len(found)
    for row, record in zip(rows, found, strict=True):
        assert (float(row["surprisal_nats"]), float(row["entropy_nats"])) == (record["surprisal"], record["entropy"])
        assert (int(row["text"]), row["word"]) == (record["text"], record["word"])


def test_a_first_token_with_nothing_before_it_is_not_scored(folder: Path) -> None:
    found = measured(folder / "tail", stdin="a man\n")
    assert [one["surprisal"] is None for one in found["tokens"]] == [True, *[False] * 4]
    assert [one["surprisal"] is None for one in found["words"]] == [True, False]


@pytest.mark.parametrize("run", ["tail", "encoder"])
def test_a_token_of_a_long_text_has_half_of_the_context(folder: Path, run: str) -> None:
    """Windows of a decoder begin at half of the context; those of an encoder have their token in the middle."""
    text, context = "the old king said no. " * 6, 48
    scores = [one["surprisal"] for one in measured(folder / run, stdin=text)["tokens"]]
    assert len(scores) > context + 20
    if run == "tail":
        ends = [context + 1 + n * (context - context // 2) for n in range(3)]
        for end, before in zip(ends[1:], ends, strict=False):
            start = before - 1 - context // 2
            alone = [one["surprisal"] for one in measured(folder / run, stdin=text[start:end])["tokens"]]
            assert scores[before:end] == pytest.approx(alone[before - start :], abs=1e-4)
    else:
        _, spans = open_trained(folder / run, device="cpu").tokenizer.spans(text)
        first = text[: spans[context - 2][1]]  # with the separator as many tokens as the context
        alone = [one["surprisal"] for one in measured(folder / run, stdin=first)["tokens"]]
        n = context // 2
        assert scores[:n] == pytest.approx(alone[:n], abs=1e-4)
        assert scores[n] != pytest.approx(alone[n], abs=1e-4)
    done = minitf("inspect", "surprisal", folder / run, stdin=text)
    assert "1 of 1 texts is longer than the context of 48 tokens" in done.stderr


def test_a_text_of_one_character_is_its_word(folder: Path) -> None:
    assert [word["word"] for word in measured(folder / "tail", stdin="a\n")["words"]] == ["a"]


def test_white_space_belongs_to_the_word_behind_it() -> None:
    text = " a  bc d \n"
    assert word_positions(text, range(len(text))) == [1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


def test_other_models_and_files_are_refused(folder: Path, tmp_path: Path, classifier: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    refused(minitf("inspect", "surprisal", classifier, stdin="a"), "gives texts no probability", exit_code=2)
    refused(minitf("inspect", "surprisal", folder / "tail", "none.txt"), "none.txt: No such file", exit_code=4)
    refused(minitf("inspect", "surprisal", folder / "tail", tmp_path / "empty.txt"), "has no text", exit_code=4)
    refused(minitf("inspect", "surprisal", folder / "tail", "--score", "word", stdin="a"), "has causal", exit_code=2)
