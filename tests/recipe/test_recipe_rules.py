"""Rules that join keys, beside keys that are wrong themselves: told, unless what they look at is only a default."""

from collections.abc import Iterable

import pytest
from pydantic import ValidationError

from mini_tf.recipe.kinds import Rule, Rules, Section
from mini_tf.recipe.parsing.schema_faults import faults_of
from mini_tf.recipe.reading import read
from mini_tf.schedules import wsd
from mini_tf.system.errors import RecipeFault


def at_fault(*overrides: str) -> list[str]:
    """The keys at fault of the shipped recipe `quickstart` with these overrides, in their order."""
    with pytest.raises(RecipeFault) as refused:
        read("quickstart", overrides)
    told = [fault.removeprefix("command line: ") for fault in refused.value.faults]
    return [fault.partition(":")[0].partition("=")[0] for fault in told]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        pytest.param(("decay", "is too long"), ["schedule.decay"], id="looks-at-no-other-key"),
        pytest.param(("decay", "floor is never reached"), ["schedule.decay"], id="only-says-the-word"),
        pytest.param(Rule("decay", "is too long", ("warmup",)), ["schedule.decay"], id="looks-at-a-key-that-is-right"),
        pytest.param(Rule("decay", "is too long", ("warmup", "floor")), [], id="looks-at-the-wrong-key"),
    ],
)
def test_a_rule_is_silent_where_a_key_that_it_declares_is_wrong(
    rule: Rule | tuple[str, str], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wsd.Settings, "rules", lambda self: [rule])
    assert at_fault("schedule=wsd", "schedule.decay=0.2") == ["schedule.decay"]
    assert sorted(at_fault("schedule=wsd", "schedule.decay=0.2", "schedule.floor=x")) == [*told, "schedule.floor"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        pytest.param("train.batch_size=32", "train.batch_size=x", id="rows"),
        pytest.param("train.context=64", "train.context=x", id="tokens-of-a-row"),
    ],
)
def test_the_length_of_a_run_is_not_judged_by_the_default_of_a_wrong_key(right: str, wrong: str) -> None:
    others = ("train.tokens=40960", "schedule.warmup=100")
    assert at_fault(*others, right) == ["schedule.warmup"]
    assert at_fault(*others, wrong) == [wrong.partition("=")[0]]


@pytest.mark.parametrize(
    ("positions", "width", "heads", "words"),
    [
        ("rotary", 48, 5, "5 does not divide d_model 48; use 1, 2, 3, 4, 6, 8, 12 or 24, or give d_k"),
        ("rotary", 48, 16, "needs an even d_k, not 3; use n_heads 1, 2, 3, 4, 6, 8, 12 or 24"),
        ("rotary", 49, 7, "needs an even d_k, not 7"),
        ("learned", 48, 5, "use 1, 2, 3, 4, 6, 8, 12, 16, 24 or 48, or give d_k"),
        ("learned", 48, 16, None),
    ],
)
def test_numbers_of_heads_that_are_named_fit_the_positions_too(
    positions: str, width: int, heads: int, words: str | None
) -> None:
    model = f"model={{kind: decoder, d_model: {width}, n_heads: {heads}, positions: {positions}}}"
    if words is None:
        assert read("quickstart", [model]).recipe.model.n_heads == heads
        return
    with pytest.raises(RecipeFault) as refused:
        read("quickstart", [model])
    [fault] = refused.value.faults
    assert fault.endswith(words)


def test_patience_needs_more_evaluations_than_the_last() -> None:
    assert at_fault("eval.patience=2", "eval.every_steps=null") == ["eval.patience"]
    assert read("quickstart", ["eval.patience=2", "eval.every_steps=50"]).recipe.eval.patience == 2


def test_a_fault_that_has_the_word_of_a_wrong_key_in_its_message_is_told_beside_it() -> None:
    found = at_fault("model=encoder_decoder", "objective=masked", "data.train=tiny-pairs", "tokenizer.source=x")
    assert {"objective", "tokenizer.source"} <= set(found)  # "... reads a source and earlier target tokens"


def test_a_rule_about_which_kind_is_silent_where_that_is_wrong_and_not_where_a_setting_of_it_is() -> None:
    stream = ("data.pack=concat", "train.stream=true")
    assert at_fault(*stream, "model.attention=softmax") == ["train.stream"]
    assert at_fault(*stream, "model.attention=[window, sofmax]") == ["model.attention"]
    assert at_fault(*stream, "model.attention={kind: softmax, n: 1}") == ["model.attention", "train.stream"]


def test_what_the_encoder_takes_over_from_the_decoder_is_not_judged_where_it_is_wrong_there() -> None:
    pairs = ("model=encoder_decoder", "data.train={source: a, target: b}", "model.encoder.d_model=130")
    assert at_fault(*pairs, "model.n_heads=4") == ["model.encoder.d_model"]  # where the encoder is given
    assert at_fault(*pairs, "model.n_heads=x") == ["model.n_heads"]


def test_keys_of_a_rule_are_found_from_where_its_section_stands() -> None:
    class Leaf(Section):
        a: int = 1

        def rules(self) -> Rules:
            if self.a > 1:
                yield Rule("a", "is too much", ("b", "part.c"))

    class Whole(Section):
        leaves: tuple[Leaf, ...] = ()

        def rules(self) -> Iterable[Rule]:
            yield Rule("", "is wrong", ("leaves",))

    class Outer(Section):
        whole: Whole = Whole.model_construct()

    def depends(given: dict[str, object]) -> list[tuple[object, object]]:
        with pytest.raises(ValidationError) as refused:
            Outer.model_validate(given)
        return [(fault.path, fault.depends) for fault in faults_of(refused.value)]

    at = ("whole", "leaves", 1)
    assert depends({"whole": {"leaves": ({}, {"a": 2})}}) == [((*at, "a"), ((*at, "b"), (*at, "part", "c")))]
    assert depends({"whole": {}}) == [(("whole",), (("whole", "leaves"),))]


def test_a_step_may_be_one_row_of_the_context_and_no_less() -> None:
    assert read("quickstart", ["train.batch_tokens=64", "train.context=64"]).recipe.train.step_tokens == 64
    assert at_fault("train.batch_tokens=63", "train.context=64") == ["train.batch_tokens"]


@pytest.mark.parametrize(
    ("keys", "greedy"), [(["top_k=1"], True), (["temperature=0"], True), (["top_k=2", "temperature=0.1"], False)]
)
def test_decoding_is_greedy_at_temperature_zero_or_of_one_token(keys: list[str], greedy: bool) -> None:
    assert read("quickstart", [f"generate.{key}" for key in keys]).recipe.generate.greedy == greedy
