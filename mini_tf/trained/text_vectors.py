"""Embeddings of texts: one vector each, from the last hidden states.

The hidden states are pooled as the run's objective does, by default to their mean over the tokens of the text, with the
special tokens around it: Reimers and Gurevych 2019, arXiv:1908.10084, section 3. Time: one forward pass.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.data.tokenization.vocabulary import first_tokens
from mini_tf.generation.decoding import check_finite, pad
from mini_tf.nn.layers.head import TOKEN_POOLS, TaskHead, pooled, token_index
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault
from mini_tf.trained.framing import prompt_tokenizer, text_affixes
from mini_tf.trained.opening import Trained

BATCH_SIZE = 32
"""Texts per forward pass."""


class Embedder:
    """Embeds texts with a trained model. unread: truncated tokens and unknown characters so far.

    Raises UsageFault for an encoder-decoder, whose encoder has no hidden states of its own to pool.
    """

    def __init__(self, trained: Trained) -> None:
        if trained.model.needs_source:
            message = f"{trained.folder.name} is of the kind {trained.recipe.model.kind}; embeddings need one stack"
            raise UsageFault(message, hint="use an encoder or a decoder")
        self.trained, self._tokenizer = trained, prompt_tokenizer(trained)
        self._around, self._pool = text_affixes(trained), trained.recipe.objective.pooling
        if self._pool == "text_end" and not self._around.behind:
            self._pool = "last"  # of what is read, which then ends with the text
        self.unread = InputWarnings(self._tokenizer, trained.model.context, "text", "last")

    def embed(self, texts: Sequence[str], normalize: bool = False) -> Float[Tensor, "N D"]:
        """Vectors on the CPU in float32, in order; of length 1 if `normalize`, or if those of the objective are.

        A text depends on no other. A text longer than the context loses its end. UsageFault for a text without tokens.
        """
        rows = [self._ids(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda number: len(rows[number]))  # for less padding
        vectors = torch.empty(len(rows), self.trained.model.d_model)
        for first in range(0, len(order), BATCH_SIZE):
            batch = order[first : first + BATCH_SIZE]
            tokens = pad([rows[number] for number in batch], self.trained.setup.device, left=False)
            vectors[batch] = self._pooled(tokens)
        normalize = normalize or self.trained.recipe.objective.normalizes
        return F.normalize(vectors) if normalize else vectors

    def _ids(self, text: str) -> list[int]:
        before, behind = self._around
        ids = self._tokenizer.encode(text)
        n = first_tokens(self._tokenizer.vocabulary, ids, self.trained.model.context - len(before) - len(behind))
        self.unread.add([text], len(ids), len(ids) - n)
        row = [*before, *np.asarray(ids[:n]).tolist(), *behind]
        if not row:
            raise UsageFault("a text has no tokens, and this model has no separator token to start with")
        return row

    @torch.inference_mode()
    def _pooled(self, tokens: Tokens) -> Float[Tensor, "B D"]:
        model, pool = self.trained.model, self._pool
        at = token_index(pool, tokens) if pool in TOKEN_POOLS else None
        with self.trained.setup.autocast():
            hidden = model(tokens, None, at).y
        query = model.head.query if pool == "attention" and isinstance(model.head, TaskHead) else None
        vectors = hidden if at is not None else pooled(pool, hidden, tokens, query)
        check_finite(vectors)
        return vectors.float().cpu()
