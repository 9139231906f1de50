"""The contract of models: what they declare, targets by index, states, the fast decoder, captured attention, weights in a file."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.generation.decoding import CachedModel, padded
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.inspection.capture import capture, sorts_of
from mini_tf.nn.layers.dropout import Dropout
from mini_tf.nn.layers.task_head import TaskHead
from mini_tf.nn.model import Model, ModelSettings, ModelStack
from mini_tf.nn.stack import Stack
from mini_tf.nn.state import reorder
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.nn.weights.lora import adapt, merge
from mini_tf.recipe.sections import Adapter
from mini_tf.system.errors import DataFault
from mini_tf.testing import Case, cases_of
from mini_tf.testing.tiny_mixers import same
from mini_tf.testing.tiny_models import CONTEXT, VOCABULARY, B, L, M, built, drawn_tokens, scores_of, source_of
from mini_tf.training.layer_decay import depths


def cases(settings: ModelSettings) -> list[Case]:
    """Everything that a model of these settings must do, by what it declares."""
    checks = [
        stacks_are_where_it_says,
        its_direction_is_what_it_says,
        its_settings_name_the_same_stacks,
        targets_are_the_rows_of_all_tokens,
        content_of_padding_reaches_no_token,
        weights_make_another_model_the_same,
        the_loss_is_the_cross_entropy_of_its_scores,
        every_parameter_has_a_gradient_and_a_depth,
        another_head_answers,
        an_adapter_reaches_every_stack_and_merges,
        captured_attention_gives_the_same_scores,
        a_text_may_be_as_long_as_it_says,
    ]
    if settings.PACKS and all(mixer.PACKS for mixer in settings.mixers()):
        checks += [documents_that_share_a_row_are_as_alone]
    if settings.causal and all("prefix" in settings.DIRECTIONS & mixer.DIRECTIONS for mixer in settings.mixers()):
        checks += [a_prefix_is_seen_as_a_whole]
    if settings.causal:
        checks += [tokens_one_by_one_give_the_whole, reordered_rows_go_on_as_those_rows]
    if built(settings).fast_decoding() is not None:
        checks += [the_fast_decoder_gives_the_same_scores]
    return cases_of(checks, settings)


def stacks_are_where_it_says(settings: ModelSettings) -> None:
    model = built(settings)
    declared = model.stacks()
    assert declared, "a model has a stack at least"
    owned = {id(part) for one in declared for part in one.stack.modules()}
    strays = [name for name, part in model.named_modules() if part in model.mixers() and id(part) not in owned]
    assert not strays, f"mixers outside the declared stacks: {strays}"
    for one in declared:
        assert model.get_submodule(one.name) is one.stack, f"{one.name} is another module"
        there = {name for name, _ in (*model.named_modules(), *model.named_parameters())}
        assert one.embedding is None or one.embedding in there, f"there is no {one.embedding}"
    assert any(one.rows == "own" for one in declared), "no stack has rows for the model's own tokens"
    assert model.needs_source == ("source" in {one.rows for one in declared} | {one.memory for one in declared if _crosses(one.stack)})


def _crosses(stack: Stack) -> bool:
    return any(block.cross is not None for block in stack.blocks)


def its_direction_is_what_it_says(settings: ModelSettings) -> None:
    assert settings.DIRECTIONS in ({"bidirectional"}, {"causal"}, {"causal", "prefix"}), f"directions {sorted(settings.DIRECTIONS)}"
    model, ids = built(settings), drawn_tokens()
    changed = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % VOCABULARY], dim=1)
    before, after = scores_of(model, ids), scores_of(model, changed)
    assert settings.causal == torch.equal(before[:, :-1], after[:, :-1]), "what earlier tokens see is not what DIRECTIONS say"


def documents_that_share_a_row_are_as_alone(settings: ModelSettings) -> None:
    model, ids = built(settings), drawn_tokens(1)
    source = source_of(model, 1)
    if source is not None:  # a source is of one target
        return
    segments = torch.tensor([[1] * 4 + [2] * (L - 4)])
    together = scores_of(model, ids, TokenPositions.packed(segments))
    for part in (slice(0, 4), slice(4, L)):
        same(together[:, part], scores_of(model, ids[:, part]), "a document is another one beside others in its row", 1e-8)


def a_prefix_is_seen_as_a_whole(settings: ModelSettings) -> None:
    model, ids, n = built(settings), drawn_tokens(), 4
    token_positions = TokenPositions(L).with_prefix(torch.full((B,), n))
    whole = scores_of(model, ids, token_positions)
    for t, seen_from in ((n - 1, 0), (L - 1, L - 1)):
        changed = ids.clone()
        changed[:, t] = (changed[:, t] + 1) % VOCABULARY
        differs = (scores_of(model, changed, token_positions) != whole).any(-1).any(0)
        assert not differs[:seen_from].any(), f"token {t} changes an earlier one"
        assert differs[seen_from] or seen_from == t, f"token {t} of a prefix of {n} does not reach its first token"


def its_settings_name_the_same_stacks(settings: ModelSettings) -> None:
    declared = [one.name for one in built(settings).stacks()]
    assert set(settings.stacks()) == set(declared), f"settings name the stacks {sorted(settings.stacks())}, the model {sorted(declared)}"
    kinds = [kind for one in built(settings).stacks() for kind in _sorts(one)]
    assert len(set(kinds)) == len(kinds), f"two sorts of heads have one name: {kinds}"


def _sorts(one: ModelStack) -> list[str]:
    own = any(block.own is not None for block in one.stack.blocks)
    return [*([one.attention] if own else []), *([one.cross] if _crosses(one.stack) else [])]


def targets_are_the_rows_of_all_tokens(settings: ModelSettings) -> None:
    model, ids, at = built(settings), drawn_tokens(), torch.tensor([0, 4, L, 3 * L - 1])
    whole = model(Tokens(ids), source_of(model)).y
    assert whole.shape == (B, L, model.d_model), f"hidden vectors are {list(whole.shape)}"
    same(model(Tokens(ids), source_of(model), at).y, whole.flatten(0, 1)[at], "targets are not the rows of all tokens")
    words = torch.tensor([5, 1])
    same(model.logits(whole, words), model.logits(whole)[..., words], "scores of candidates are not those of all words")


def content_of_padding_reaches_no_token(settings: ModelSettings) -> None:
    model, ids = built(settings), drawn_tokens()
    segments = torch.tensor([[1] * L, [0] * 3 + [1] * (L - 3), [1] * (L - 2) + [0] * 2])
    token_positions, other = TokenPositions.packed(segments), torch.where(segments == 0, (ids + 1) % VOCABULARY, ids)
    before, after = scores_of(model, ids, token_positions), scores_of(model, other, token_positions)
    assert before.isfinite().all(), "scores at padding are not finite"
    assert torch.equal(before[segments != 0], after[segments != 0]), "the content of padding reaches tokens"
    alone = model.logits(model(Tokens(ids[1:2, 3:]), None if (source := source_of(model)) is None else Tokens(source.ids[1:2])).y)
    same(before[1, 3:], alone[0], "a padded text is another one")


def weights_make_another_model_the_same(settings: ModelSettings) -> None:
    model, other = built(settings), built(settings, seed=1)
    assert not torch.equal(scores_of(model, drawn_tokens()), scores_of(other, drawn_tokens())), "two seeds give one model"
    other.load_weights(model.weights())
    assert torch.equal(scores_of(model, drawn_tokens()), scores_of(other, drawn_tokens())), "the same weights give another model"
    assert len({tensor.data_ptr() for tensor in model.weights().values() if tensor.numel()}) == sum(
        tensor.numel() > 0 for tensor in model.weights().values()
    ), "a file would hold a tensor twice"


def the_loss_is_the_cross_entropy_of_its_scores(settings: ModelSettings) -> None:
    model = built(settings)
    hidden, labels = model(Tokens(drawn_tokens()), source_of(model)).y.flatten(0, 1), drawn_tokens(seed=4).flatten()
    for smoothing in (0.0, 0.1):
        expected = F.cross_entropy(model.logits(hidden), labels, reduction="sum", label_smoothing=smoothing)
        same(model.cross_entropy(hidden, labels, smoothing), expected, "the loss is not the cross-entropy of its scores", 1e-8)


def every_parameter_has_a_gradient_and_a_depth(settings: ModelSettings) -> None:
    model = built(settings).train()
    for part in model.modules():
        if isinstance(part, Dropout):
            part.rate = 0.0
    mixed = model(Tokens(drawn_tokens(), None, None), source_of(model))
    loss = model.cross_entropy(mixed.y.flatten(0, 1), drawn_tokens(seed=4).flatten())
    (loss if mixed.penalty is None else loss + mixed.penalty).backward()
    found = depths(model)
    deepest = 1 + max(one.n_above + one.stack.n_calls for one in model.stacks())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.any(), f"the gradient of {name} is 0"
        assert 0 <= found[name] <= deepest, f"{name} lies {found[name]} layers deep"


def another_head_answers(settings: ModelSettings) -> None:
    model = built(settings)
    model.replace_head(TaskHead(model.d_model, 3, 0.0).double())
    assert model.logits(model(Tokens(drawn_tokens()), source_of(model)).y).shape == (B, L, 3), "another head does not answer"


def an_adapter_reaches_every_stack_and_merges(settings: ModelSettings) -> None:
    model = built(settings)
    before, names = scores_of(model, drawn_tokens()), set(model.weights())
    adapted = adapt(model, Adapter(rank=2))
    for one in model.stacks():
        linear = any(isinstance(part, nn.Linear) for part in one.stack.modules())
        assert not linear or any(name.startswith(f"{one.name}.") for name in adapted), f"an adapter leaves out {one.name}"
    same(scores_of(model, drawn_tokens()), before, "a new adapter changes the model")
    merge(model)
    assert set(model.weights()) == names, "a merged model has other names"


def captured_attention_gives_the_same_scores(settings: ModelSettings) -> None:
    model = built(settings)
    source = source_of(model, 1)
    seen = capture(model, Tokens(drawn_tokens(1)), source)
    assert seen.difference < 1e-8, f"scores differ by {seen.difference:g} where mixers answer by `explicit`"
    assert {reading.kind for reading in seen.readings} == set(sorts_of(model)), "not every sort of mixers is heard"
    n = {"own": L, "source": M}
    for reading in seen.readings:
        rows, columns = reading.weights.shape[-2], reading.weights.shape[-1] - reading.lead
        assert n.get(reading.rows, rows) == rows, f"{reading.kind}: {rows} rows do not stand for {reading.rows} tokens"
        assert n.get(reading.columns, columns) == columns, f"{reading.kind}: {columns} columns do not stand for {reading.columns} tokens"


def a_text_may_be_as_long_as_it_says(settings: ModelSettings) -> None:
    model = built(settings)
    longest = model.max_length()
    if longest is None:
        model(Tokens(drawn_tokens(1, 2 * CONTEXT)), source_of(model, 1))
        return
    model(Tokens(drawn_tokens(1, longest)), source_of(model, 1))
    try:
        model(Tokens(drawn_tokens(1, longest + 1)), source_of(model, 1))
    except DataFault:
        return
    raise AssertionError(f"a text of more than max_length {longest} tokens is not refused by a DataFault")


def tokens_one_by_one_give_the_whole(settings: ModelSettings) -> None:
    model, ids = built(settings), drawn_tokens()
    whole, source, state, parts = scores_of(model, ids), source_of(model), model.start(B), []
    memory = None if source is None else model.encode(source)
    for t in range(L):
        mixed = model(Tokens(ids[:, t : t + 1]), memory, state=state)
        state = model.trim(mixed.state)
        parts.append(model.logits(mixed.y))
    same(torch.cat(parts, dim=1), whole, "tokens one by one give another text", 1e-8)


def reordered_rows_go_on_as_those_rows(settings: ModelSettings) -> None:
    model, ids, rows = built(settings), drawn_tokens(), torch.tensor([2, 0, 2])
    source = source_of(model)
    memory = None if source is None else model.encode(source)
    state = model(Tokens(ids[:, :5]), memory, state=model.start(B)).state
    follow = model(Tokens(ids[rows, 5:]), None if memory is None else memory.select(rows), state=reorder(state, rows)).y
    same(model.logits(follow), _scores_from(model, ids, source, 5)[rows], "reordered rows go on as others", 1e-8)


def _scores_from(model: Model, ids: Tensor, source: Tokens | None, first: int) -> Tensor:
    return model.logits(model(Tokens(ids), source).y[:, first:])


@torch.inference_mode()
def the_fast_decoder_gives_the_same_scores(settings: ModelSettings) -> None:
    model, ids = built(settings), drawn_tokens(2, 4, seed=6)
    assert FastDecoder.fits(model) or not _declares(model), "the fast decoder refuses what all parts declare"
    if not FastDecoder.fits(model):
        return
    texts = [drawn_tokens(1, length, seed=length)[0].tolist() for length in (3, 6)]
    fast, plain = (_decoder(model, texts, fast=which) for which in (True, False))
    for step in range(ids.shape[1]):
        same(fast.after(ids[:, step]), plain.after(ids[:, step]), f"step {step + 1} of the fast decoder", 1e-8)


def _declares(model: Model) -> bool:
    one = model.fast_decoding()
    parts = [] if one is None else [block.own.part for block in one.stack.blocks if block.own is not None]
    fast = all(part.fast_decoding() is not None for part in parts)  # type: ignore[operator]
    return one is not None and fast and one.embedding.position.distance_only and one.embedding.position.orthogonal


def _decoder(model: Model, texts: list[list[int]], fast: bool) -> FastDecoder | CachedModel:
    state = model(padded(texts, torch.device("cpu")), state=model.start(len(texts))).state
    return FastDecoder(model, state, [*map(len, texts)]) if fast else CachedModel(model, state)
