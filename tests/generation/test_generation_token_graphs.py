"""Tokens of captured steps are those of steps without graphs: every mixer and position that can be decoded so, padded
and not, greedy and random, beyond capacity and context; what cannot be captured is generated without.

A tape stands for a CUDA graph (tape.py): it repeats operations on the same memory, and refuses waits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tape import Tapes
from test_generation_fast_decoder import SETTINGS, fast_positions
from test_generation_text_generator import PROMPTS, TOKENIZER, recipe_with, small, writer_of
from test_models import CONTEXT, V, model_of, usable
from toys import causal_mixers, tiny_mixer

from mini_tf.generation import decoding_loop
from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.decoding_loop import DecodingLoop, TokenGraphs
from mini_tf.generation.sampling import TokenChoice, UniformNumbers
from mini_tf.generation.text_generator import GeneratedText, TextGenerator
from mini_tf.nn.cuda_graphs import CUDAGraphs, NotCapturable, Recorder
from mini_tf.nn.model import Model
from mini_tf.recipe.sections import Generate

STEPS = 24
GREEDY: dict[str, Any] = {"temperature": 0.0}
RANDOM: dict[str, Any] = {"temperature": 1.2, "top_k": None}
CHOICES = {
    "greedy": GREEDY,
    "greedy with a penalty": {"temperature": 0.0, "repetition_penalty": 1.4},
    "random": RANDOM,
    "top-p": {"temperature": 1.2, "top_k": None, "top_p": 0.8},
    "everything": {"temperature": 0.9, "top_k": 10, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3},
}
FAST_MIXERS = [mixer for mixer in causal_mixers() if tiny_mixer(mixer).fast_decoding() is not None]


def prompts_of(*lengths: int) -> list[list[int]]:
    return [torch.randint(2, V, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in lengths]


@torch.inference_mode()
def decoded(
    model: Model, lengths: tuple[int, ...], settings: dict[str, Any], recorder: Recorder | None = None, **more: int
) -> torch.Tensor:
    """The ids (B, steps), and as many log-probabilities, after prompts of these lengths."""
    steps, device = more.get("steps", STEPS), next(model.parameters()).device
    choice = TokenChoice(Generate(**settings, max_new_tokens=steps), [0, 1], [1], device, top_logprobs=1)
    prompts = prompts_of(*lengths)
    uniform = None if choice.settings.greedy else UniformNumbers(3, prompts, device)
    graphs = None if recorder is None else TokenGraphs(recorder, choice, pytest.fail)
    loop = DecodingLoop(DecodingState(model, prompts, more.get("context", CONTEXT)), choice, uniform, graphs)
    chosen = [loop.step() for _ in range(steps)]
    logprobs = [step.logprobs.chosen for step in chosen if step.logprobs is not None]
    return torch.cat([torch.stack([step.ids for step in chosen]).double(), torch.stack(logprobs)])


def assert_same_tokens(model: Model, lengths: tuple[int, ...], settings: dict[str, Any], **more: int) -> Tapes:
    tapes = Tapes()
    captured, expected = decoded(model, lengths, settings, tapes, **more), decoded(model, lengths, settings, **more)
    torch.testing.assert_close(captured, expected, rtol=0, atol=1e-8)
    assert len(expected[:STEPS].unique()) > 2
    assert tapes.replayed >= more.get("steps", STEPS) // 2
    return tapes


@pytest.fixture
def lengths_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than on a CPU, the positions of tokens are not compared with the length of a table."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


@pytest.mark.parametrize(
    ("mixer", "positions"), [(mixer, word) for mixer in FAST_MIXERS for word in fast_positions() if usable(mixer, word)]
)
def test_every_mixer_and_position_has_the_same_tokens(mixer: str, positions: str) -> None:
    model = model_of("decoder", ("softmax", mixer), positions, n_layers=2)
    assert assert_same_tokens(model, (3, 9, 1), RANDOM, context=64).recorded == 1


def test_learned_positions_have_the_same_tokens(lengths_unread: None) -> None:
    assert_same_tokens(model_of("decoder", positions="learned", n_layers=1), (2, 1), RANDOM, steps=14)


@pytest.mark.parametrize(
    "name", ["qk_norm", "persistent", "embedding", "n-grams", "one key", "head", "norms without weights"]
)
def test_every_part_has_the_same_tokens(name: str) -> None:
    mixers = {} if "attention" in SETTINGS[name] else {"mixers": ("window", "softmax")}
    assert_same_tokens(model_of("decoder", positions="rotary", n_layers=2, **mixers, **SETTINGS[name]), (3, 9), GREEDY)


@pytest.mark.parametrize("settings", CHOICES.values(), ids=CHOICES)
def test_every_choice_of_tokens_is_captured(settings: dict[str, Any]) -> None:
    """Beyond the context of 16 in all rows, each at another step."""
    assert_same_tokens(model_of("decoder", positions="rotary", n_layers=1), (3, 20, 11), settings, steps=40)


@pytest.mark.parametrize("mixers", [("softmax",), ("window",), ("favor", "sru")])
def test_the_capacity_grows_and_begins_beyond_a_long_prompt(
    mixers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding_loop, "MIN_CAPACITY", 4)
    model = model_of("decoder", mixers, "none", n_layers=len(mixers))
    assert assert_same_tokens(model, (1, 2), RANDOM, context=50, steps=60).recorded == 5  # 4, 8, 16, 32, 50
    assert assert_same_tokens(model, (9,), RANDOM, context=60, steps=20).recorded == 2  # 16, 32


def test_a_context_of_one_token_needs_no_graph() -> None:
    tapes = Tapes()
    model = model_of("decoder")
    assert decoded(model, (1,), GREEDY, tapes, context=1).equal(decoded(model, (1,), GREEDY, context=1))
    assert tapes.recorded == 0


def written(writer: TextGenerator, prompts: list[str] = PROMPTS, **how: Any) -> list[list[GeneratedText]]:
    return [*writer.generate([writer.encode_prompt(prompt) for prompt in prompts], 5, **how)]


@pytest.mark.parametrize(
    "wish",
    [
        {"temperature": 0.0},
        {"temperature": 0.9, "top_k": 10, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3, "stop": ("e", "th")},
        {"temperature": 1.3, "max_new_tokens": 61},
    ],
    ids=("greedy", "stop strings", "random"),
)
@pytest.mark.parametrize("context", [None, 100])
def test_texts_end_where_they_end_without_graphs(wish: dict[str, Any], context: int | None) -> None:
    """With their log-probabilities; rows that are finished change nothing, and batches share their graphs."""
    writer, tapes = writer_of(context, 2, **wish), Tapes()
    expected = written(writer, samples=2, batch_size=5)
    writer.recorder, writer.sync_steps, writer.lookahead = tapes, 8, 1
    assert [[text.text for text in texts] for texts in written(writer, samples=2, batch_size=5)] == [
        [text.text for text in texts] for texts in expected
    ]
    assert tapes.replayed > 30
    recorded = tapes.recorded
    for texts, others in zip(written(writer, samples=2, batch_size=5), expected, strict=True):
        for text, other in zip(texts, others, strict=True):
            assert text.outgrew == other.outgrew
            assert [token.id for token in text.tokens] == [token.id for token in other.tokens]
    assert tapes.recorded == recorded


def test_text_is_streamed_piece_by_piece_from_a_graph() -> None:
    writer = writer_of(100, temperature=0.0)
    heard: dict[bool, list[str]] = {False: [], True: []}
    for captured in heard:
        writer.recorder = Tapes() if captured else None
        written(
            writer,
            ["the"],
            batch_size=1,
            follow=lambda n, piece, said=heard[captured]: bool(piece and said.append(piece)),
        )
    assert heard[True] == heard[False]
    assert len(heard[True]) > 2


class Failing(Tapes):
    """Refuses to record from the n-th time on, or finds a wait (n = 0)."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    @contextmanager
    def rehearsing(self) -> Iterator[None]:
        with super().rehearsing():
            yield
        if self.n == 0:
            raise NotCapturable("it waits")

    def record(self, function: Any) -> Any:
        if self.recorded + 1 == self.n:
            raise NotCapturable("it fails")
        return super().record(function)


@pytest.mark.parametrize(("n", "reason"), [(0, "it waits"), (1, "it fails"), (2, "it fails")])
def test_what_cannot_be_captured_is_generated_without_graphs(
    n: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first token, or later, where the capacity grows: nothing is lost, and it is said once."""
    monkeypatch.setattr(decoding_loop, "MIN_CAPACITY", 4)
    said: list[str] = []
    writer = writer_of(60, temperature=1.0, repetition_penalty=1.2, max_new_tokens=40, split="tail 10%")
    expected = written(writer, ["the", "a"])
    writer.recorder, writer._warn = Failing(n), said.append
    assert written(writer, ["the", "a"]) == expected == written(writer, ["the", "a"])
    assert said == [f"tokens are generated without CUDA graphs, which takes longer: {reason}"]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"mixers": ("softmax", "expire_span")}, "a layer of this model has no step of fixed size"),
        ({"positions": "learned"}, "the model has no positions for more than 16 tokens"),
    ],
)
def test_a_model_without_fixed_steps_is_decoded_without_graphs(model: dict[str, Any], reason: str) -> None:
    said, tapes = list[str](), Tapes()
    network = small(model_of("decoder", n_layers=2, **model))
    writer = TextGenerator(network, TOKENIZER, recipe_with(max_new_tokens=8), context=30, warn=said.append)
    expected = written(writer, ["the", "a"])
    writer.recorder = tapes
    assert written(writer, ["the", "a"]) == expected == written(writer, ["the", "a"])
    assert said == [f"tokens are generated without CUDA graphs, which takes longer: {reason}"]
    assert tapes.recorded == 0


def test_a_cpu_generates_without_graphs() -> None:
    assert writer_of(max_new_tokens=1000).recorder is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("lengths", [(5,), (3, 20, 11)])
@pytest.mark.parametrize("settings", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("mixer", FAST_MIXERS)
def test_a_gpu_repeats_steps_with_the_same_tokens(
    mixer: str, settings: dict[str, Any], lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, beyond the context and the first capacity; a graph was captured and did not fail."""
    monkeypatch.setattr(decoding_loop, "MIN_CAPACITY", 4)
    positions = next(word for word in ("rotary", "none") if usable(mixer, word))
    model = model_of("decoder", ("softmax", mixer), positions, n_layers=2).to("cuda")
    captured = decoded(model, lengths, settings, CUDAGraphs(torch.device("cuda")), steps=60, context=40)
    torch.testing.assert_close(captured, decoded(model, lengths, settings, steps=60, context=40), rtol=0, atol=1e-8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("wish", [{"temperature": 0.0}, {"temperature": 1.3, "stop": ("e", "th")}])
def test_a_gpu_generates_by_graphs_by_default(wish: dict[str, Any]) -> None:
    said = list[str]()
    network, recipe = small(model_of("decoder", n_layers=2).to("cuda")), recipe_with(**wish, max_new_tokens=100)
    writer = TextGenerator(network, TOKENIZER, recipe, context=50, warn=said.append)
    assert isinstance(writer.recorder, CUDAGraphs)
    captured = written(writer)
    writer.recorder, writer._graphs = None, None
    assert (captured, said) == (written(writer), [])
