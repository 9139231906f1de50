"""From sources to translations: against full forwards without state, in any company, of any length, up to every
limit.
"""

import itertools
from typing import Any

import pytest
import torch
from test_data_encoding import pieces_of_play
from tokenizers import normalizers
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.translation import SourceIds, Translator
from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import RunFault

LETTERS = "abcd"
TOKENIZER = Tokenizer.train(sections.Tokenizer(kind="char"), [LETTERS])
OF_SOURCES = Tokenizer.train(sections.Tokenizer(kind="char"), ["0123456789 "])
END = TOKENIZER.vocabulary.separator
CONTEXT = 12
SOURCES = ["31415", "2", "", "9265358", "27", "  ", "1828", "1", "0 1 2 3 4", "31415"]
EXACT = 1e-10


def model_of(seed: int = 0, positions: str = "sinusoidal", init_std: float = 0.6, **settings: Any) -> Model:
    torch.manual_seed(seed)
    given = {
        "d_model": 12,
        "n_layers": 2,
        "n_heads": 2,
        "init_std": init_std,
        "positions": settings_of("positions", positions)(),
    }
    built = settings_of("models", "encoder_decoder")(**given | settings)
    model = built.build(TOKENIZER.vocabulary.size, CONTEXT, OF_SOURCES.vocabulary.size)
    assert isinstance(model, Model)
    return model.double().eval()


def translator_of(model: Model, context: int | None = None, **wish: Any) -> Translator:
    return Translator(
        model, TOKENIZER, OF_SOURCES, Generate(**{"num_beams": 4, "max_new_tokens": 10} | wish), context=context
    )


def test_a_source_that_normalizes_to_nothing_is_the_unknown_token() -> None:
    """As in training; a blank source is empty."""
    sources = pieces_of_play(normalizers.BertNormalizer())
    model = settings_of("models", "encoder_decoder")(d_model=12, n_layers=1, n_heads=2).build(
        TOKENIZER.vocabulary.size, CONTEXT, 9
    )
    translator = Translator(model, TOKENIZER, sources, Generate())
    unknown, separator = sources.vocabulary.unk, sources.vocabulary.separator
    assert [one.ids for one in translator.encode_sources(["\u200b", " ", "cat"])] == [
        [unknown, separator],
        [separator],
        [6, separator],
    ]


def endless(model: Model) -> Model:
    """The model, but it never ends a text by itself."""
    scored = model.logits
    model.logits = lambda hidden, words=None, copies=None: scored(hidden, words, copies).index_fill(
        -1, torch.tensor([END]), -50.0
    )  # type: ignore[method-assign]
    return model


def logprobs_of(model: Model, source: str, target: Tensor) -> Tensor:
    """Of every token after each place of targets (R, n) that a separator begins: (R, n, V), by one pass without
    state.
    """
    read = torch.tensor([[*OF_SOURCES.encode(source).tolist(), OF_SOURCES.vocabulary.separator]]).expand(
        len(target), -1
    )
    with torch.no_grad():
        return model.logits(model(Tokens(target), Tokens(read)).y).log_softmax(dim=-1)


def all_texts(model: Model, source: str, limit: int, penalty: float) -> list[tuple[float, str, float]]:
    """Every text of the letters that ends within the limit, or comes to it: (score, text, log-probability), the best
    first.
    """
    ids = TOKENIZER.encode(LETTERS).tolist()
    found = {}
    full = list(itertools.product(ids, repeat=limit))
    logprobs = logprobs_of(model, source, torch.tensor([[END, *text] for text in full]))
    for row, text in enumerate(full):
        total = 0.0
        for n, id in enumerate([*text, None]):
            if n < limit:
                ended = total + float(logprobs[row, n, END])
                found[text[:n]] = (ended / ((5 + n + 1) / 6) ** penalty, TOKENIZER.decode(text[:n]), ended)
                total += float(logprobs[row, n, id])
        found[text] = (total / ((5 + limit) / 6) ** penalty, TOKENIZER.decode(text), total)
    return sorted(found.values(), reverse=True)


def greedily(model: Model, source: str, limit: int) -> tuple[str, float]:
    """The likeliest letter or the end at every step, by a whole pass each."""
    ids, total, may = [END], 0.0, [END, *TOKENIZER.encode(LETTERS).tolist()]
    while len(ids) <= limit:
        logprobs = logprobs_of(model, source, torch.tensor([ids]))[0, -1]
        id = max(may, key=lambda id: float(logprobs[id]))
        total += float(logprobs[id])
        if id == END:
            break
        ids.append(id)
    return TOKENIZER.decode(ids[1:]), total


def test_a_beam_of_all_texts_finds_the_best_of_all_where_greedy_often_does_not() -> None:
    differs, n_models, source, penalty = 0, 6, "2718", 0.6
    for seed in range(n_models):
        model = model_of(seed, init_std=0.5)
        expected = all_texts(model, source, 4, penalty)[:5]
        wide = translator_of(model, num_beams=1024, max_new_tokens=4, length_penalty=penalty)
        [ours] = wide.translate([source], n_best=5)
        assert [one.text for one in ours] == [text for _, text, _ in expected]
        assert [one.score for one in ours] == pytest.approx([score for score, _, _ in expected], abs=EXACT)
        assert [one.logprob for one in ours] == pytest.approx([logprob for _, _, logprob in expected], abs=EXACT)
        differs += greedily(model, source, 4)[0] != expected[0][1]
    assert differs >= 0.3 * n_models


def test_one_beam_writes_what_is_likeliest_at_every_step() -> None:
    lengths = set()
    for seed in (0, 1, 5):
        model = model_of(seed, init_std=0.3)
        for source, [ours] in zip(SOURCES, translator_of(model, num_beams=1).translate(SOURCES), strict=True):
            if source.strip():
                text, logprob = greedily(model, source, 10)
                assert (ours.text, ours.logprob) == (text, pytest.approx(logprob, abs=EXACT))
                lengths.add(len(text))
    assert len(lengths) > 3


@pytest.mark.parametrize(
    ("positions", "settings"),
    [
        *((kind, {}) for kind in listing("positions")),
        ("none", {"cross_attention": None}),
        ("rotary", {"encoder": {"d_model": 8, "n_layers": 1}}),
    ],
    ids=str,
)
def test_translations_do_not_depend_on_their_company_and_have_the_log_probability_of_one_pass(
    positions: str, settings: dict[str, Any]
) -> None:
    """Padded as alone, batched as one by one, with state as without it; sources of many lengths come back in their
    order.
    """
    model = model_of(3, positions, **settings)
    translator = translator_of(model, max_new_tokens=8, no_repeat_ngram=3)
    alone = [found for source in SOURCES for found in translator.translate([source], n_best=3)]
    together = list(translator.translate(SOURCES, 6, n_best=3))
    assert [[one.text for one in found] for found in together] == [[one.text for one in found] for found in alone]
    for ours, theirs in zip(itertools.chain(*together), itertools.chain(*alone), strict=True):
        assert (ours.logprob, ours.score) == pytest.approx((theirs.logprob, theirs.score), abs=EXACT)
    ended = [
        (source, one)
        for source, found in zip(SOURCES, alone, strict=True)
        for one in found
        if source.strip() and len(one.text) < 8
    ]
    assert len(ended) > 3
    for source, one in ended:
        ids = torch.tensor([[END, *TOKENIZER.encode(one.text).tolist(), END]])
        whole = logprobs_of(model, source, ids[:, :-1])[0].gather(1, ids[0, 1:, None]).sum()
        assert one.logprob == pytest.approx(float(whole), abs=EXACT)
        assert one.score == pytest.approx(one.logprob / ((5 + len(one.text) + 1) / 6) ** 0.6, abs=EXACT)


def test_a_blank_source_is_blank_whatever_the_model_thinks() -> None:
    model = model_of()
    with torch.no_grad():
        model.embedding.tokens.weight.fill_(torch.nan)  # type: ignore[union-attr, operator]
    translator = translator_of(model)
    assert list(translator.translate(["", " ", "\t\n"], n_best=2)) == [[("", 0.0, 0.0)] * 2] * 3
    assert list(translator.translate([])) == []
    with pytest.raises(RunFault, match="logits are not finite"):
        list(translator.translate(["", "1"]))


def test_a_source_longer_than_the_context_is_read_up_to_there() -> None:
    translator = translator_of(model_of(), context=5)
    [whole, cut] = translator.encode_sources(["1234", "1234567"])
    assert whole == SourceIds([*OF_SOURCES.encode("1234").tolist(), OF_SOURCES.vocabulary.separator], 4, 0, ["1234"])
    assert cut == whole._replace(length=7, cut=3, parts=["1234567"])
    assert list(translator.translate(["1234567"])) == list(translator.translate(["1234"]))
    assert translator_of(model_of()).context == CONTEXT
    assert translator_of(model_of(), context=40).context == 40


def test_positions_that_end_are_read_no_farther_on_either_side() -> None:
    translator = translator_of(endless(model_of(positions="learned")), context=40, max_new_tokens=100)
    assert translator.context == CONTEXT
    [[long], [short]] = translator.translate(["1234567890" * 3, "1"])
    assert len(long.text) == len(short.text) == CONTEXT


def test_a_translation_is_no_longer_than_its_source_and_fifty() -> None:
    for wish, longest in (({}, 53), ({"max_new_tokens": 20}, 20), ({"min_new_tokens": 60}, 60)):
        translator = translator_of(endless(model_of()), **{"max_new_tokens": 100, "num_beams": 2} | wish)
        [[one], [other], [cut]] = translator.translate(["123", "12345", "1" * 30])
        assert len(one.text) == longest
        assert len(other.text) == (55 if longest == 53 else longest)
        assert len(cut.text) == (20 if longest == 20 else CONTEXT - 1 + 50)  # what was read of it


def test_no_translation_is_shorter_than_asked_or_repeats_itself() -> None:
    least, n = 5, 2
    translator = translator_of(model_of(), min_new_tokens=least, no_repeat_ngram=n, max_new_tokens=30)
    for source, found in zip(SOURCES, translator.translate(SOURCES, n_best=4), strict=True):
        for one in found if source.strip() else ():
            assert len(one.text) >= least
            grams = [one.text[i : i + n] for i in range(len(one.text) - n + 1)]
            assert len(grams) == len(set(grams))


def test_a_source_is_read_once_and_all_of_its_beams_read_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a source share its keys and values, and leave when it is done."""
    model = endless(model_of())
    seen, forward, reads = [], model.forward, []

    def watched(inputs: Tokens, source: Any = None, at: Tensor | None = None, state: Any = None) -> Any:
        seen.append((tuple(inputs.ids.shape), len(next(iter(source.layers[0].values())))))
        return forward(inputs, source, at, state)

    read = model.encode  # type: ignore[operator]
    monkeypatch.setattr(model, "forward", watched)
    monkeypatch.setattr(model, "encode", lambda tokens: (reads.append(tuple(tokens.ids.shape)), read(tokens))[1])
    list(translator_of(model, max_new_tokens=55, num_beams=3).translate(["1", "12", "12345678"]))
    assert reads == [(3, 9)]
    assert [n_sources for _, n_sources in seen] == [3] * 51 + [2] + [1] * 3
    beams = [n_rows / n_sources for (n_rows, _), n_sources in seen]  # the greedy hypothesis may be a fourth one
    assert (beams[0], {*beams[1:]}) in [(1, {3}), (1, {3, 4})]


def test_no_special_token_is_ever_chosen() -> None:
    """The likeliest of all by far are those that stand for no text."""
    model = model_of()
    scored = model.logits
    specials = torch.tensor(sorted(TOKENIZER.vocabulary.special_ids - {END}))
    model.logits = lambda hidden, words=None, copies=None: scored(hidden, words, copies).index_fill(-1, specials, 9.0)  # type: ignore[method-assign]
    for [one] in translator_of(model, min_new_tokens=4).translate(["1", "27"]):
        assert len(one.text) >= 4
        assert set(one.text) <= set(LETTERS)
        assert one.logprob < -20
