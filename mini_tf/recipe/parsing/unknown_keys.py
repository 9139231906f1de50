"""Suggestions for unknown keys: names of other tools, another section, similar names, another kind."""

from collections.abc import Iterator, Sequence

from mini_tf.recipe.kinds import Section
from mini_tf.recipe.parsing.merging import kinds_at, part_of
from mini_tf.recipe.parsing.yaml_tree import Node
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import near

_OTHER_NAMES = {
    "model.d_model": "n_embd hidden_size embed_dim dim",
    "model.n_layers": "n_layer num_layers num_hidden_layers depth",
    "model.n_heads": "n_head num_heads num_attention_heads",
    "model.n_kv_heads": "num_key_value_heads",
    "model.d_ff": "intermediate_size n_inner",
    "model.dropout_rate": "dropout hidden_dropout_prob resid_pdrop",
    "model.activation": "hidden_act activation_function",
    "model.norm_eps": "layer_norm_eps",
    "model.positions.kind": "position_embedding_type",
    "model.kind": "model_type",
    "train.context": "block_size max_seq_length max_seq_len max_length seq_len sequence_length n_positions max_position_embeddings",
    "train.steps": "max_iters max_steps",
    "train.epochs": "num_train_epochs num_epochs",
    "train.tokens": "max_tokens",
    "train.batch_size": "per_device_train_batch_size train_batch_size global_batch_size",
    "train.micro_batch_size (accumulation is batch_size / micro_batch_size)": "gradient_accumulation_steps",
    "optimizer.lr": "learning_rate",
    "optimizer.eps": "adam_epsilon",
    "optimizer.betas": "beta1 beta2 adam_beta1 adam_beta2",
    "optimizer.clip": "grad_clip max_grad_norm",
    "optimizer.kind": "optim",
    "schedule.kind": "lr_scheduler_type",
    "schedule.warmup": "warmup_steps warmup_iters warmup_ratio",
    "schedule.floor (a share of lr)": "min_lr",
    "objective.mask_rate": "mlm_probability masking_ratio",
    "data.train": "dataset train_file dataset_name",
    "data.val": "validation_file",
    "data.fields": "text_column_name",
    "data.max_train_samples": "max_samples max_examples max_rows rows",
    "data.split": "validation_split_percentage",
    "data.pack": "packing",
    "tokenizer.path": "tokenizer_name",
    "eval.every_steps": "eval_interval eval_steps",
    "eval.best": "metric_for_best_model",
    "eval.patience": "early_stopping_patience",
    "checkpoint.every_steps": "save_steps",
    "checkpoint.keep_last": "save_total_limit",
    "log.every_steps": "log_interval logging_steps",
    "runtime.precision": "bf16 fp16 dtype",
    "runtime.compile": "torch_compile",
    "runtime.threads": "num_threads",
}
"""Names of keys in nanoGPT and Hugging Face, for suggestions only."""
OTHER_NAMES = {name: key for key, names in _OTHER_NAMES.items() for name in names.split()}


def all_keys(section: type[Section], node: Node | None, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted names of all keys, with the kinds chosen in `node`."""
    for name, field in section.model_fields.items():
        child = node.value.get(name) if node is not None and isinstance(node.value, dict) else None
        yield ".".join((*path, name))
        if kinds_at(field):
            yield ".".join((*path, name, "kind"))
        if part := part_of(field, child):
            yield from all_keys(part, child, (*path, name))


def section_at(path: Sequence[str | int], tree: Node) -> type[Section] | None:
    """The section class at a path of the tree, which may contain indices into lists of kinds."""
    section: type[Section] | None = Recipe
    node: Node | None = tree
    field = None
    for step in path:
        if isinstance(step, int):
            several = node is not None and isinstance(node.value, list)
            node = node.value[step] if node is not None and several else node
        else:
            field = section.model_fields.get(step) if section else None
            node = node.value.get(step) if node is not None and isinstance(node.value, dict) else None
        section = part_of(field, node)
    return section


def no_such_key(path: Sequence[str | int], tree: Node) -> str:
    """The message for an unknown key."""
    *parents, key = (str(step) for step in path if isinstance(step, str))
    section = section_at(path[:-1], tree)
    own = [name for name in (section.model_fields if section else ()) if name != "kind"]
    known = list(all_keys(Recipe, tree))
    found = OTHER_NAMES.get(key)
    found = next((name for name in own if found and found.rpartition(".")[2] == name), found)
    found = found or next((name for name in known if name.rpartition(".")[2] == key), None)
    if not found and (others := _other_kinds(path, key, tree)):
        return f"no such key of this kind; it belongs to {' and '.join(others)}"
    found = found or near(key, own) or _near_elsewhere(key, known) or OTHER_NAMES.get(near(key, list(OTHER_NAMES), cutoff=0.8) or "")
    if found:
        return f"no such key; did you mean {found.removeprefix('.'.join(parents) + '.')}?"
    if not own:
        return "no such key; this kind has no settings"
    return (
        f"no such key; use one of {', '.join(own)}"
        if len(own) <= 12
        else f"no such key; see `{' '.join(['minitf recipe keys', *filter(None, ['.'.join(parents)])])}`"
    )


def _near_elsewhere(key: str, known: Sequence[str]) -> str | None:
    names = {name.rpartition(".")[2]: name for name in reversed(known)}
    found = near(key, list(names), cutoff=0.8)
    return names[found] if found else None


def _other_kinds(path: Sequence[str | int], key: str, tree: Node) -> list[str]:
    """The other kinds of the package that have the key."""
    parents = [step for step in path[:-1] if isinstance(step, str)]
    above = section_at(parents[:-1], tree)
    kinds = kinds_at(above.model_fields.get(parents[-1])) if above and parents else None
    return [word for word, kind in kinds.kinds().items() if key in kind.model_fields] if kinds else []
