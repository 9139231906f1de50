"""TF-IDF features of texts by scikit-learn, and linear models on them.

The weight of a feature of a text is count * (log((1 + texts) / (1 + texts with it)) + 1), each text scaled to length 1.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from mini_tf.baselines import NoBaseline
from mini_tf.data.examples import Example

WORDS = r"\w+|[^\w\s]"
"""A word, or a single punctuation mark."""
MOST_WEIGHTS = 20_000_000
"""Features times classes of a linear model, at most: fitting keeps about 200 bytes for each weight."""


def words() -> Any:
    """Words and punctuation marks, and pairs of neighbours."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORDS)


def characters() -> Any:
    """2 to 5 characters within a word and its borders."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5))


def features(vectorizers: Sequence[Any], train: Sequence[Example], val: Sequence[Example]) -> tuple[Any, Any]:
    """Sparse features (N, F) of training and validation examples; each of two texts has features of its own.

    vectorizers: not fitted yet; a copy is fitted for each text. Raises NoBaseline if no text has a feature.
    """
    from scipy.sparse import hstack
    from sklearn.base import clone

    parts = []
    for n in range(len(train[0].texts)):
        texts = [[one.texts[n] for one in split] for split in (train, val)]
        for vectorizer in map(clone, vectorizers):
            try:
                parts.append((vectorizer.fit_transform(texts[0]), vectorizer.transform(texts[1])))
            except ValueError as error:  # an empty vocabulary
                raise NoBaseline(str(error)) from None
    fitted, measured = (hstack(split, format="csr") for split in zip(*parts, strict=True))
    return fitted, measured


def logistic(fitted: Any, classes: np.ndarray, measured: Any, n_classes: int, c: float) -> np.ndarray:
    """(N, C): probabilities of `measured` by multinomial logistic regression with an L2 penalty of 1 / (2 c).

    Raises NoBaseline for a single class, or more weights than MOST_WEIGHTS.
    """
    from sklearn.linear_model import LogisticRegression

    n_present, n_features = len(np.unique(classes)), fitted.shape[1]
    if n_present < 2:
        raise NoBaseline("all training labels are the same")
    if n_present * n_features > MOST_WEIGHTS:
        raise NoBaseline(f"{n_present:,} classes with {n_features:,} features are too many for a linear model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: the number of iterations bounds the time
        model = LogisticRegression(C=c, max_iter=100, tol=1e-3).fit(fitted, classes)
    probabilities = np.zeros((measured.shape[0], n_classes))
    probabilities[:, model.classes_] = model.predict_proba(measured)
    return probabilities
