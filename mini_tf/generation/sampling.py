"""Text out of a decoder, token by token, through the state that it keeps: greedy, by temperature, among the top k."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mini_tf.nn.model import Model
from mini_tf.nn.tokens import Tokens


def pick(scores: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    """One id a row from scores (B, V): (B,). Temperature 0 = the best one; `top_k` keeps the k best, ties at the border included."""
    if temperature == 0:
        return scores.argmax(dim=-1)
    scores = scores.float()
    # Only differences count; a temperature as good as 0 must not make them inf - inf, nor 0 / 0 where it underflows.
    scores = (scores - scores.amax(dim=-1, keepdim=True)) / max(temperature, 1e-30)
    if top_k is not None and top_k < scores.shape[-1]:
        border = scores.topk(top_k, dim=-1).values[:, -1:]
        scores = scores.masked_fill(scores < border, -torch.inf)
    return torch.multinomial(scores.softmax(dim=-1), 1, generator=generator).squeeze(1)


@torch.inference_mode()
def continuations(
    model: Model,
    prompt: Tensor,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    generator: torch.Generator,
    banned: tuple[int, ...] = (),
) -> Iterator[Tensor]:
    """Yield the next ids (B,) of prompts of one length (B, L), which hold a token at least; never one of `banned`.

    Where the text outgrows the context that the model was trained on, the cache starts again from the context's last half.
    """
    model.eval()
    text, state, fresh = prompt, model.start(len(prompt)), prompt[:, -model.context :]
    seen = 0
    forbidden = torch.tensor(banned, dtype=torch.long, device=prompt.device)
    for _ in range(max_new_tokens):
        if seen + fresh.shape[1] > model.context:
            fresh = text[:, -max(1, model.context // 2) :]
            state, seen = model.start(len(prompt)), 0
        mixed = model(Tokens(fresh), state=state)
        assert mixed.state is not None
        state, seen = model.trim(mixed.state), seen + fresh.shape[1]
        scores = model.logits(mixed.y[:, -1])
        scores[:, forbidden] = -torch.inf
        ids = pick(scores, temperature, top_k, generator)
        yield ids
        fresh = ids[:, None]
        text = torch.cat([text, fresh], dim=1)
