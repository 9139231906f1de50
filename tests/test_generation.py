"""Text out of a trained decoder: what is drawn and how often, the cache, and `minitf generate`."""

import io
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from commands import minitf, tiny_model, trained
from test_models import model_of, usable
from torch import Tensor

from mini_tf.cli.app import main
from mini_tf.cli.console import safe_text
from mini_tf.generation.copying import copied_share
from mini_tf.generation.sampling import continuations, pick
from mini_tf.generation.writing import prompt_ids
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import listing
from mini_tf.text.tokenizer import Tokenizer

DRAWS = 20_000


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=40")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("top_k", [None, 1, 3, 8, 50])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_ids_are_drawn_as_often_as_the_softmax_of_the_best_k_says(temperature: float, top_k: int | None) -> None:
    """By Pearson's chi-square against the exact distribution: within five of its standard deviations."""
    scores = [1.5, -0.3, 0.7, 2.2, 0.0, -1.0, 1.1, 0.4]
    drawn = pick(torch.tensor([scores]).expand(DRAWS, -1), temperature, top_k, seeded())
    kept = sorted(scores)[-(top_k or len(scores)) :]
    weights = [math.exp(score / temperature) if score in kept else 0.0 for score in scores]
    expected = torch.tensor(weights) / sum(weights) * DRAWS
    counts = drawn.bincount(minlength=len(scores))
    assert counts[expected == 0].sum() == 0
    freedom = len(kept) - 1
    chi_square = ((counts - expected).square() / expected)[expected > 0].sum().item()
    assert chi_square <= freedom + 5 * math.sqrt(2 * freedom)


def test_temperature_0_takes_the_best_and_ties_at_the_border_of_the_top_k_stay() -> None:
    scores = torch.tensor([[0.0, 3.0, 1.0, 2.0], [5.0, 1.0, 1.0, 1.0]])
    assert pick(scores, 0, None, seeded()).tolist() == [1, 0]
    drawn = pick(scores[1:].expand(2000, -1), 100.0, 2, seeded())
    assert set(drawn.tolist()) == {0, 1, 2, 3}


def uncached(model: Model, prompt: Tensor, n: int, banned: tuple[int, ...] = ()) -> list[int]:
    """The likeliest continuation, all read anew for each token; where it outgrows the context, from the context's last half on."""
    text, begin = prompt[0].tolist(), max(0, prompt.shape[1] - model.context)
    for _ in range(n):
        if len(text) - begin > model.context:
            begin = len(text) - model.context // 2
        scores = model.logits(model(Tokens(torch.tensor([text[begin:]]))).y)[0, -1]
        scores[list(banned)] = -torch.inf
        text.append(int(scores.argmax()))
    return text[prompt.shape[1] :]


CASES = [(mixer, positions) for mixer in listing("attention") for positions in listing("positions") if usable(mixer, positions)]


@pytest.mark.parametrize(("mixer", "positions"), CASES)
@pytest.mark.parametrize("length", [1, 7, 16, 20])
def test_the_cache_writes_what_reading_everything_anew_writes(mixer: str, positions: str, length: int) -> None:
    """Beyond the context of 16 too, and from prompts that are longer than it."""
    model = model_of("decoder", (mixer,), positions)
    prompt, banned = torch.randint(40, (1, length), generator=seeded(3)), (0, 5)
    written = [int(ids[0]) for ids in continuations(model, prompt, 20, 0.0, None, seeded(), banned)]
    assert written == uncached(model, prompt, 20, banned)
    assert not set(written) & set(banned)


def test_prompts_of_a_batch_are_continued_as_each_alone() -> None:
    model, prompts = model_of("decoder", positions="rotary"), torch.randint(40, (3, 5), generator=seeded(3))
    together = torch.stack(list(continuations(model, prompts, 12, 0.0, None, seeded())), dim=1)
    assert together.tolist() == [uncached(model, prompt[None], 12) for prompt in prompts]


def test_special_tokens_in_a_prompt_are_plain_text() -> None:
    tokenizer = Tokenizer.train(sections.Tokenizer(kind="byte"), [])
    separator, mask = tokenizer.vocabulary.separator, tokenizer.vocabulary.mask
    ids = prompt_ids(tokenizer, "</s>[MASK]", separated=True)
    assert len(ids) == 1 + len("</s>[MASK]")
    assert ids[0] == separator
    assert not {separator, mask} & set(ids[1:])
    assert len(prompt_ids(tokenizer, "", separated=False)) == 1


def test_the_share_of_copied_words_counts_runs_of_eight() -> None:
    corpus = ["one two three four five six seven eight nine ten", "eleven twelve"]
    assert copied_share("Two three, four five six seven eight nine!", corpus) == 1.0
    assert copied_share("two three four five six seven eight TEN", corpus) == 0.0
    assert copied_share("new new two three four five six seven eight nine", corpus) == 0.8
    assert copied_share("", corpus) == 0.0


def test_generate_prints_the_continuation_alone_and_the_seed_decides_it(decoder: Path) -> None:
    command = ("generate", decoder, "Once", "--max-new-tokens", "30")
    first, again, other = (minitf(*command, "--seed", seed) for seed in ("1", "1", "2"))
    assert first.exit_code == 0
    assert first.stdout == again.stdout != other.stdout
    assert first.stderr == ""
    assert not first.stdout.startswith("Once")
    greedy = {
        minitf(*command, *way).stdout for way in (("--greedy",), ("--temperature", "0"), ("--greedy", "--seed", "7"), ("--top-k", "1"))
    }
    assert len(greedy) == 1
    assert minitf(*command, "--greedy", "--temperature", "1").exit_code == 2


def test_two_prompts_are_two_texts_and_a_pipe_is_not_touched(decoder: Path) -> None:
    alone = [minitf("generate", decoder, prompt, "--greedy", "--max-new-tokens", "12").stdout for prompt in ("Once", "The")]
    assert minitf("generate", decoder, "Once", "The", "--greedy", "--max-new-tokens", "12", stdin="never read").stdout == "".join(alone)


def test_a_line_of_a_pipe_gives_a_line_and_json_an_envelope_a_line(decoder: Path) -> None:
    prompts = "Once upon\n\nOne day the \\ cat\r\n</s>"
    command = ("generate", decoder, "--temperature", "3", "--max-new-tokens", "60")
    plain, enveloped = minitf(*command, stdin=prompts), minitf(*command, "--json", stdin=prompts)
    results = [json.loads(line) for line in enveloped.stdout.splitlines()]
    assert [one["result"]["prompt"] for one in results] == ["Once upon", "", "One day the \\ cat", "</s>"]
    assert all(one["ok"] and one["command"] == "generate" and one["run"] == str(decoder) for one in results)
    assert plain.stdout.count("\n") == 4
    assert any("\n" in one["result"]["texts"][0] for one in results)
    escaped = [one["result"]["texts"][0].replace("\\", "\\\\").replace("\n", "\\n") for one in results]
    assert plain.stdout == "".join(safe_text(text) + "\n" for text in escaped)


def test_a_pipe_is_answered_line_by_line(decoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The second line may come after the answer to the first: somebody talks with the model."""

    class Talk(io.StringIO):
        @property
        def buffer(self) -> Iterator[bytes]:  # type: ignore[override]
            yield b"Once\n"
            assert capsys.readouterr().out.count("\n") == 1
            yield b"The\n"

    monkeypatch.setattr(sys, "stdin", Talk())
    with pytest.raises(SystemExit) as leaving:
        main(["generate", str(decoder), "--max-new-tokens", "3"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_what_cannot_be_continued_is_refused(decoder: Path, tmp_path: Path) -> None:
    encoder = trained(tmp_path / "encoder", "train.steps=1", tiny_model("encoder"))
    refused = minitf("generate", encoder, "Once")
    assert (refused.exit_code, refused.stdout) == (5, "")
    assert "encoder is an encoder, which does not continue a text" in refused.stderr
    learned = trained(tmp_path / "learned", "train.steps=1", "model.positions.kind=learned", "generate.max_new_tokens=100")
    assert minitf("generate", learned, "Once " * 30).exit_code == 0  # longer than its 48 places: its end is read
    assert minitf("generate", tmp_path / "none", "Once").exit_code == 5
    assert minitf("generate", decoder, "Once", "--step", "7").exit_code == 5
    assert minitf("generate", decoder, "Once", "--top-k", "0").exit_code == 2
