"""The contract of tokenizers over every kind, and against kinds that break it."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tokenizers import Tokenizer, models, normalizers

from mini_tf.data.tokenization.pieces import BYTE_OF
from mini_tf.data.tokenization.tokenizer import Tokenizer as OurTokenizer
from mini_tf.data.tokenizers import SPECIALS, byte, char, wordpiece
from mini_tf.recipe import sections
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import cases_of, run_all
from mini_tf.testing import tokenizers as contract
from mini_tf.testing.kinds import kinds_in

SETTINGS: dict[str, Any] = {kind: settings_of("data.tokenizers", kind)() for kind in listing("data.tokenizers")}


ALONE = [holds for holds in contract.CONTRACT if holds is not contract.training_does_not_depend_on_hashes]
"""What is checked kind by kind; two processes check the rest for all kinds at once."""


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_tokenizer(kind: str) -> None:
    run_all(cases_of(ALONE, SETTINGS[kind]))


def test_the_same_text_gives_the_same_file_with_any_hash_seed() -> None:
    """All kinds in two processes, whose seeds also order what the library counts."""
    assert {type(one).__module__.rpartition(".")[2] for one in SETTINGS.values()} == {*SETTINGS}
    contract.training_does_not_depend_on_hashes(*SETTINGS.values())


MORPH = """
from mini_tf.data.tokenizers import unigram

class Settings(unigram.Settings):
    def matches(self, content):
        return content["model"]["type"] == "Unigram"
"""


def test_one_of_a_file_that_takes_files_of_others_or_depends_on_a_set_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "others" / "data" / "tokenizers"
    folder.mkdir(parents=True)
    (folder / "morph.py").write_text(MORPH)
    (folder / "unsorted.py").write_text(Path(char.__file__).read_text().replace("sorted(characters)", "characters"))
    with kinds_in(tmp_path / "others"):
        morph: Any = settings_of("data.tokenizers", "morph")()
        assert contract.trained(morph).kind == "morph"
        with pytest.raises(AssertionError, match=r"matches must be false of a tokenizer\.json of the kind unigram"):
            contract.is_recognized_by_its_file(morph)
        with pytest.raises(AssertionError, match=r"it does for \['unsorted'\]"):
            contract.training_does_not_depend_on_hashes(morph, settings_of("data.tokenizers", "unsorted")())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_tokenizer_can_lowercase(kind: str, tmp_path: Path) -> None:
    settings = sections.SingleTokenizer(kind=kind, vocab_size=300, lowercase=True)  # type: ignore[arg-type]
    OurTokenizer.train(settings, [contract.SAMPLE]).save(tmp_path / "tokenizer.json")
    tokenizer = OurTokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.kind == kind
    assert tokenizer.encode("The CAT sat").tolist() == tokenizer.encode("the cat SAT").tolist()
    assert tokenizer.decode(tokenizer.encode("The CAT sat")) == "the cat sat"
    assert not any(
        piece.isascii() and piece.isupper() for piece in tokenizer.pieces(tokenizer.encode(contract.SAMPLE.upper()))
    )


class Bytes(byte.Settings):
    """As byte; the ones below differ from it in one thing."""

    @property
    def kind(self) -> str:
        return "byte"


class Repairs(Bytes):
    """Changes text in a way that nothing of `losses` tries."""

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        inner = super().train(vocab_size, texts)
        inner.normalizer = normalizers.Replace("don't", "do not")
        return inner


class NamesThemLast(Bytes):
    """Has the special tokens behind all others."""

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        inner = super().train(vocab_size, texts)
        inner.model = models.BPE({token: id for id, token in enumerate([*BYTE_OF, *SPECIALS.values()])}, [])
        return inner


class Overflows(wordpiece.Settings):
    """Takes in more than it is given."""

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        return super().train(2 * vocab_size, texts)


class Counts(Bytes):
    """Goes by how often it was trained."""

    times: ClassVar[list[int]] = []

    def train(self, vocab_size: int, texts: Iterable[str]) -> Tokenizer:
        self.times.append(vocab_size)
        inner = super().train(vocab_size, texts)
        inner.add_tokens([f"{len(self.times)}!"])
        return inner


class TakenForAnother(Bytes):
    @property
    def kind(self) -> str:
        return "mine"


BROKEN: dict[str, tuple[type[Any], str]] = {
    "round_trips_text_except_declared_losses": (Repairs, "do not"),
    "has_the_special_tokens_first": (NamesThemLast, "wrong ids: Vocabulary"),
    "respects_vocab_size": (
        Overflows,
        r"a vocabulary of at most 108 has \d+ tokens; MIN_VOCAB_SIZE must be what it can hold",
    ),
    "training_is_deterministic": (Counts, "the same text must give the same tokenizer.json"),
    "is_recognized_by_its_file": (TakenForAnother, "its tokenizer.json is recognized as byte"),
}


@pytest.mark.parametrize("holds", ALONE, ids=lambda holds: holds.__name__)
def test_one_that_breaks_the_contract_is_told_and_the_same_without_the_fault_is_not(
    holds: Callable[[TokenizerSettings], None],
) -> None:
    fault, told = BROKEN[holds.__name__]
    holds(Bytes())
    with pytest.raises(AssertionError, match=told):
        holds(fault())
