"""The schema: what fits, what is refused and in which words, and kinds chosen by their file's name."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field, ValidationError

from mini_tf.optimizers import adamw
from mini_tf.recipe.data import Data, Split
from mini_tf.recipe.kind_settings import ModelSettings
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.kinds import Kind, KindOf, OneOrMore, Section, default_kind, listing, settings_of
from mini_tf.recipe.parsing.schema_faults import faults_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Tokenizer, Train
from mini_tf.recipe.values import Scalar
from mini_tf.schedules import cosine, wsd


class ToyModel(ModelSettings):
    DIRECTIONS: ClassVar[Any] = frozenset({"causal"})
    OBJECTIVE: ClassVar[str] = "next_token"
    size: int = Field(4, ge=1)


class ToyObjective(ObjectiveSettings):
    SUPPORTS: ClassVar[Any] = frozenset({"causal"})


class Pair(Section):
    mixers: Annotated[tuple[Annotated[Kind, KindOf("attention")], ...], OneOrMore()] = Field(
        default_factory=lambda: (settings_of("attention", "softmax")(),)
    )
    place: Annotated[Kind, KindOf("positions")] = Field(default_factory=default_kind("positions", "rotary"))


def told(make: type[Section], **given: object) -> dict[str, str]:
    """The faults by their dotted key."""
    with pytest.raises(ValidationError) as refused:
        make(**given)
    return {".".join(map(str, fault.path)): fault.message for fault in faults_of(refused.value)}


def test_defaults_make_a_whole_recipe_of_a_model_and_a_horizon() -> None:
    recipe = Recipe(model=ToyModel(), objective=ToyObjective(), train=Train(steps=5))
    assert (recipe.train.steps, recipe.optimizer.lr, recipe.data.train) == (5, 1e-3, "python-docs")


@pytest.mark.parametrize(
    ("section", "given", "key", "message"),
    [
        (adamw.Settings, {"lr": Scalar("-1")}, "lr", "must be greater than 0, got -1.0"),
        (adamw.Settings, {"lr": True}, "lr", "must be a finite number, got true"),
        (adamw.Settings, {"lr": float("nan")}, "lr", "must be a finite number, got nan"),
        (
            adamw.Settings,
            {"betas": [Scalar("0.9")]},
            "betas",
            "must be a list of 2 shares such as 0.05 or 5%, got a list",
        ),
        (adamw.Settings, {"betas": [Scalar("0.9"), Scalar("2")]}, "betas", "must be less than 1, got 2.0"),
        (adamw.Settings, {"learningrate": Scalar("1")}, "learningrate", "no such key"),
        (Train, {"steps": 1.5}, "steps", "must be a whole number, got 1.5"),
        (Train, {"steps": True}, "steps", "must be a whole number, got true"),
        (Train, {"steps": Scalar("0")}, "steps", "must be at least 1, got 0"),
        (Train, {"steps": Scalar("1e18")}, "steps", "must be at most 1000000000000, got 1000000000000000000"),
        (
            Train,
            {"steps": 5, "micro_batch_size": Scalar("all")},
            "micro_batch_size",
            "must be a whole number or auto, got 'all'",
        ),
        (
            Train,
            {"steps": 5, "seed": 2**63 - 2, "seeds": 3},
            "seeds",
            "the last of 3 seeds from 92233720",
        ),
        (
            Train,
            {"steps": 5, "time": 3.0},
            "time",
            "steps and time are given; keep exactly one of steps, tokens, epochs, time",
        ),
        (Recipe, {"optimizer": {"kind": "adamw", "momentum": 0.5}}, "optimizer.momentum", "no such key"),
        (cosine.Settings, {"warmup": Scalar("100%")}, "warmup", "must be less than 1, got 1.0"),
        (wsd.Settings, {"warmup": 0.5, "decay": 0.6}, "decay", "exceed the run"),
        (
            Data,
            {"split": Scalar("tail 10")},
            "split",
            "must be a share such as 5%, tail 10%, or {folds: 5}, got 'tail 10'",
        ),
        (Data, {"split": Scalar("100%")}, "split", "must be a share such as 5%"),
        (Data, {"train": 3}, "train", "must be text, a list of texts, a mapping or a list of mappings, got 3"),
        (Data, {"train": {"source": ["a", []], "target": "b"}}, "train.source", "got a list as entry 2"),
        (Data, {"header": Scalar("yes")}, "header", "must be auto, true or false, got 'yes'"),
        (Data, {"train": "-", "val": "-"}, "val", "data.train already reads stdin"),
        (Tokenizer, {"vocab_size": 100}, "vocab_size", "cannot hold 256 bytes"),
    ],
)
def test_a_fault_says_what_is_and_what_must_be(
    section: type[Section], given: dict[str, object], key: str, message: str
) -> None:
    assert message in told(section, **given)[key]


def test_a_warmup_ends_before_the_run() -> None:
    parts = {"model": ToyModel(), "objective": ToyObjective(), "schedule": cosine.Settings(warmup=10)}
    assert "schedule.warmup" in told(Recipe, train=Train(steps=10), **parts)
    assert "schedule.warmup" in told(Recipe, train=Train(tokens=320, batch_size=4, context=8), **parts)
    Recipe(train=Train(steps=11), **parts)


def test_an_objective_needs_a_model_that_reads_as_it_does() -> None:
    message = told(Recipe, model=settings_of("models", "decoder")(), objective="masked", train=Train(steps=5))[
        "objective"
    ]
    problem, _, ways = message.partition("; use ")
    assert problem == "masked needs bidirectional attention, but decoder has causal attention"
    assert {"objective next_token", "objective prefix", "model encoder"} <= {*ways.split(" or ")}


@pytest.mark.parametrize(("model", "objective"), [("decoder", "next_token"), ("encoder", "masked")])
def test_an_objective_that_is_not_named_fits_the_model(model: str, objective: str) -> None:
    for given in ({}, {"objective": {}}):
        assert Recipe(model=model, train=Train(steps=5), **given).objective.kind == objective


def test_a_stream_needs_mixers_whose_memory_stays_bounded() -> None:
    mixers = {"kind": "decoder", "attention": ["window", "softmax"]}
    message = told(Recipe, model=mixers, train=Train(steps=5, stream=True))["train.stream"]
    assert "attention softmax cannot carry its state" in message
    Recipe(model={"kind": "decoder", "attention": "window"}, train=Train(steps=5, stream=True))


def test_a_stream_needs_a_model_that_reads_what_came_before() -> None:
    encoder = {"kind": "encoder", "attention": "window"}
    message = told(Recipe, model=encoder, train=Train(steps=5, stream=True))["train.stream"]
    assert message == "a stream needs causal attention, but encoder is bidirectional; use model decoder"


def test_a_stream_needs_one_text_without_borders_and_positions_that_run_on() -> None:
    model = {"kind": "decoder", "attention": "window", "positions": "learned"}
    message = told(Recipe, model=model, train=Train(steps=5, stream=True))["train.stream"]
    assert message == "a stream exceeds the length of learned positions; use rotary, alibi or sinusoidal"
    message = told(
        Recipe, model=model | {"positions": "rotary"}, train=Train(steps=5, stream=True), data=Data(pack="docs")
    )["train.stream"]
    assert "use data.pack concat, not docs" in message


def test_learned_positions_reach_as_far_as_a_row() -> None:
    def model(length: object) -> dict[str, object]:
        return {"kind": "decoder", "positions": {"kind": "learned", "length": length}}

    found = told(Recipe, model=model(15), train=Train(steps=5, context=16))
    assert found == {
        "model.positions.length": "15 positions are fewer than the 16 tokens of train.context; use at least 16"
    }
    for length in (16, "auto"):
        Recipe(model=model(length), train=Train(steps=5, context=16))
    for kind in ("learned", "fourier"):
        wrong = {"kind": "decoder", "positions": {"kind": kind, "length": Scalar("0")}}
        assert told(Recipe, model=wrong, train=Train(steps=5)) == {
            "model.positions.length": "must be at least 1, got 0"
        }


def test_a_split_is_written_as_it_is_read() -> None:
    for text in ("5%", "tail 10%", "0.1%", "12.5%"):
        assert Data(split=text).model_dump(mode="json")["split"] == text
    assert Data(split="tail 10%").split == Split(share=0.1, tail=True)
    assert Data(split=Scalar("0.2")).split == Split(share=0.2)


def test_a_kind_is_a_word_a_mapping_or_settings() -> None:
    window = settings_of("attention", "window")
    for given in ("window", {"kind": "window"}, window()):
        assert Pair(mixers=given).mixers == (window(),)
    assert Pair(mixers=["window", {"kind": "window", "window": Scalar("7")}]).mixers == (window(), window(window=7))
    assert Pair(place={"base": Scalar("10k")}).place.kind == "rotary"


def test_one_kind_is_written_back_as_one_and_several_as_a_list() -> None:
    one, two = (Pair(mixers=given).model_dump(mode="json")["mixers"] for given in ("window", ["window", "softmax"]))
    assert (one["kind"], [mixer["kind"] for mixer in two]) == ("window", ["window", "softmax"])


def test_faults_inside_a_kind_keep_their_place() -> None:
    found = told(
        Pair, mixers=[{"kind": "window", "window": Scalar("0")}, {"kind": "windw"}], place={"kind": "rotary", "bse": 1}
    )
    assert found["mixers.0.window"] == "must be at least 1, got 0"
    assert found["mixers.1"] == "no such kind 'windw'; did you mean 'window'?"
    assert found["place.bse"] == "no such key"


@pytest.mark.parametrize("word", ["os", "../attention/window", "__init__", "mini_tf.attention.window", "", "Window"])
def test_only_words_of_the_listing_are_imported(word: str) -> None:
    assert word not in listing("attention")
    assert "mixers.0" in told(Pair, mixers=word)


def test_rules_and_validators_say_which_key_they_are_about() -> None:
    class Ruled(Section):
        a: int = 1
        b: int = 2

        def rules(self) -> Iterator[tuple[str, str]]:
            if self.a > self.b:
                yield "a", "is more than b"
            if self.b > 9:
                yield "", "is too much"

    class Outer(Section):
        part: Ruled = Ruled()

    assert told(Outer, part={"a": 20, "b": 10}) == {"part.a": "is more than b", "part": "is too much"}


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        adamw.Settings().lr = 2.0  # type: ignore[misc]
