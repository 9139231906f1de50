"""The contract of noises: rate 0 changes nothing, pure, tokens are neither invented nor doubled, the rate is met."""

import numpy as np

from mini_tf.noises import NoiseSettings, NoisyText
from mini_tf.testing import Case, cases_of, checks_of

LENGTHS = (0, 1, 2, 3, 17, 200)
N_TEXTS = 20
MANY_TOKENS = 100_000
"""Tokens of the texts, of 10 to 60 tokens each, on which the rate is measured."""


def corrupted(noise: NoiseSettings, length: int, seed: int) -> NoisyText:
    """A text of this length with a sentence about every eighth token, after the noise."""
    starts = np.random.default_rng(seed).random(length) < 1 / 8
    return noise.apply(NoisyText.of(length, starts), np.random.default_rng([seed, length]))


def _texts(noise: NoiseSettings) -> list[tuple[int, NoisyText]]:
    return [(length, corrupted(noise, length, seed)) for length in LENGTHS for seed in range(N_TEXTS)]


def rate_0_changes_nothing(settings: NoiseSettings) -> None:
    noise = settings.model_copy(update={"rate": 0.0})
    for length, text in _texts(noise):
        assert np.array_equal(text.tokens, np.arange(length)), "at rate 0 the tokens must stay as they are"
        assert len(text) == length, f"at rate 0 a text of {length} tokens must have as many items, not {len(text)}"
        assert not text.marked.any(), "at rate 0 there must be no mark"


def apply_is_pure(settings: NoiseSettings) -> None:
    """The same text and generator give the same; neither the text nor a global generator changes."""
    before, text = repr(np.random.get_state()), NoisyText.of(50, np.arange(50) % 7 == 0)
    noised, other = (settings.apply(text, np.random.default_rng(3)) for _ in range(2))
    assert all(
        np.array_equal(getattr(noised, name), getattr(other, name)) for name in ("tokens", "lengths", "marked")
    ), "the same generator must give the same noise"
    assert repr(np.random.get_state()) == before, "apply must not use numpy's global generator"
    assert np.array_equal(text.tokens, np.arange(50)), "apply must not change the text that it is given"
    assert not text.marked.any(), "apply must not change the text that it is given"


def tokens_are_neither_invented_nor_doubled(settings: NoiseSettings) -> None:
    for length, text in _texts(settings):
        assert len(text.tokens) == text.lengths.sum(), "lengths must add up to the number of tokens"
        assert (text.lengths[~text.marked] == 1).all(), "an item that is no mark must be one token"
        assert len(np.unique(text.tokens)) == len(text.tokens), "no token may occur twice"
        kept = set(text.tokens.tolist())
        assert kept <= set(range(length)), "there must be no token that the text does not have"
        assert settings.DELETES or len(kept) == length, "DELETES must be declared if tokens are removed without a mark"
        assert settings.MARKS or not text.marked.any(), "MARKS must be declared if tokens are replaced by marks"
        assert len(text) <= length, f"a text of {length} tokens must not become longer: {len(text)} items"


def declarations_are_true(settings: NoiseSettings) -> None:
    """Each declared effect happens, and sentences are used only if declared."""
    texts = [text for _, text in _texts(settings)]
    assert not settings.MARKS or any(text.marked.any() for text in texts), "MARKS is declared, but nothing is marked"
    if not settings.NEEDS_SENTENCES:
        settings.apply(NoisyText.of(30), np.random.default_rng(0))  # without sentence starts


def noises_follow_each_other(settings: NoiseSettings) -> None:
    """A noise can be applied to a text with marks, and to one that it has changed itself."""
    text = NoisyText.of(60, np.arange(60) % 7 == 0).with_marks(np.array([3, 20, 57]), np.array([0, 5, 3]))
    for seed in range(N_TEXTS):
        noised = text
        for _ in range(2):
            noised = settings.apply(noised, np.random.default_rng(seed))
        assert len(noised.tokens) == noised.lengths.sum(), "lengths must add up to the number of tokens"
        message = "every token must be in a mark or in the text"
        assert settings.DELETES or sorted(noised.tokens.tolist()) == [*range(60)], message


def replaces_or_removes_the_share_of_the_tokens(settings: NoiseSettings) -> None:
    """MARKS or DELETES: `rate` is the share of the tokens that are lost, within four standard errors."""
    if not settings.MARKS and not settings.DELETES:
        return
    noise, rng = settings.model_copy(update={"rate": 0.3}), np.random.default_rng(1)
    lengths = rng.integers(10, 61, MANY_TOKENS // 35).tolist()
    kept = [int((~noise.apply(NoisyText.of(n, rng.random(n) < 1 / 8), rng).marked).sum()) for n in lengths]
    too_many = 0.7 * np.array(lengths) - kept
    mean, error = too_many.mean(), too_many.std() / len(lengths) ** 0.5
    assert abs(mean) <= 4 * error, f"at rate 0.3 a text must lose that share of its tokens, not {mean:+.3f} tokens more"


CONTRACT = checks_of(__name__)


def cases(settings: NoiseSettings) -> list[Case]:
    """All checks for a noise of these settings."""
    return cases_of(CONTRACT, settings)
