"""The nearest way out for a key that does not exist: other tools' names, the right section, a near word, another kind."""

from collections.abc import Iterator, Sequence

from mini_tf.recipe.kinds import Section, listing, settings_of
from mini_tf.recipe.parsing.layers import package_of, part_of
from mini_tf.recipe.parsing.yaml_tree import Node
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.values import near

# Names of nanoGPT and Hugging Face. They are known here and nowhere else.
_ACCUMULATION = "train.micro_batch_size (accumulation is batch_size / micro_batch_size)"
FOREIGN = {
    "n_embd": "model.d_model",
    "hidden_size": "model.d_model",
    "embed_dim": "model.d_model",
    "dim": "model.d_model",
    "n_layer": "model.n_layers",
    "num_layers": "model.n_layers",
    "num_hidden_layers": "model.n_layers",
    "depth": "model.n_layers",
    "n_head": "model.n_heads",
    "num_heads": "model.n_heads",
    "num_attention_heads": "model.n_heads",
    "num_key_value_heads": "model.n_kv_heads",
    "intermediate_size": "model.d_ff",
    "n_inner": "model.d_ff",
    "dropout": "model.dropout_rate",
    "hidden_dropout_prob": "model.dropout_rate",
    "resid_pdrop": "model.dropout_rate",
    "hidden_act": "model.activation",
    "activation_function": "model.activation",
    "layer_norm_eps": "model.norm_eps",
    "position_embedding_type": "model.positions.kind",
    "model_type": "model.kind",
    "block_size": "train.context",
    "max_seq_length": "train.context",
    "max_seq_len": "train.context",
    "max_length": "train.context",
    "seq_len": "train.context",
    "sequence_length": "train.context",
    "n_positions": "train.context",
    "max_position_embeddings": "train.context",
    "max_iters": "train.steps",
    "max_steps": "train.steps",
    "num_train_epochs": "train.epochs",
    "num_epochs": "train.epochs",
    "max_tokens": "train.tokens",
    "per_device_train_batch_size": "train.batch_size",
    "train_batch_size": "train.batch_size",
    "global_batch_size": "train.batch_size",
    "gradient_accumulation_steps": _ACCUMULATION,
    "learning_rate": "optimizer.lr",
    "adam_epsilon": "optimizer.eps",
    "beta1": "optimizer.betas",
    "beta2": "optimizer.betas",
    "adam_beta1": "optimizer.betas",
    "adam_beta2": "optimizer.betas",
    "grad_clip": "optimizer.clip",
    "max_grad_norm": "optimizer.clip",
    "optim": "optimizer.kind",
    "lr_scheduler_type": "schedule.kind",
    "warmup_steps": "schedule.warmup",
    "warmup_iters": "schedule.warmup",
    "warmup_ratio": "schedule.warmup",
    "min_lr": "schedule.floor (a share of lr)",
    "mlm_probability": "objective.mask_rate",
    "masking_ratio": "objective.mask_rate",
    "dataset": "data.train",
    "train_file": "data.train",
    "dataset_name": "data.train",
    "validation_file": "data.val",
    "text_column_name": "data.fields",
    "validation_split_percentage": "data.split",
    "packing": "data.pack",
    "tokenizer_name": "tokenizer.path",
    "eval_interval": "eval.every_steps",
    "eval_steps": "eval.every_steps",
    "early_stopping_patience": "eval.patience",
    "save_steps": "checkpoint.every_steps",
    "save_total_limit": "checkpoint.keep_last",
    "log_interval": "log.every_steps",
    "logging_steps": "log.every_steps",
    "bf16": "runtime.precision",
    "fp16": "runtime.precision",
    "dtype": "runtime.precision",
    "torch_compile": "runtime.compile",
    "num_threads": "runtime.threads",
}


def all_keys(section: type[Section], node: Node | None, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Dotted names of every key there is, with the kinds that `node` chooses."""
    for name, field in section.model_fields.items():
        child = node.value.get(name) if node is not None and isinstance(node.value, dict) else None
        yield ".".join((*path, name))
        if package_of(field):
            yield ".".join((*path, name, "kind"))
        if part := part_of(field, child):
            yield from all_keys(part, child, (*path, name))


def section_at(path: Sequence[str | int], tree: Node) -> type[Section] | None:
    """The section that stands at a path of the tree; an index into a list of kinds is part of a path."""
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
    """What to say of an unknown key."""
    *parents, key = (str(step) for step in path if isinstance(step, str))
    section = section_at(path[:-1], tree)
    own = [name for name in (section.model_fields if section else ()) if name != "kind"]
    known = list(all_keys(Recipe, tree))
    meant = FOREIGN.get(key)
    meant = next((name for name in own if meant and meant.rpartition(".")[2] == name), meant)
    meant = meant or next((name for name in known if name.rpartition(".")[2] == key), None)
    meant = meant or near(key, own) or _near_elsewhere(key, known) or FOREIGN.get(near(key, list(FOREIGN), cutoff=0.8) or "")
    if meant:
        return f"no such key; did you mean {meant.removeprefix('.'.join(parents) + '.')}?"
    if others := _other_kinds(path, key, tree):
        return f"no such key of this kind; it belongs to {' and '.join(others)}"
    if not own:
        return "no such key; this kind has no settings"
    return f"no such key; use one of {', '.join(own)}" if len(own) <= 12 else f"no such key; see `minitf recipe keys {'.'.join(parents)}`"


def _near_elsewhere(key: str, known: Sequence[str]) -> str | None:
    names = {name.rpartition(".")[2]: name for name in reversed(known)}
    meant = near(key, list(names), cutoff=0.8)
    return names[meant] if meant else None


def _other_kinds(path: Sequence[str | int], key: str, tree: Node) -> list[str]:
    """The kinds of the same package that do have the key."""
    parents = [step for step in path[:-1] if isinstance(step, str)]
    above = section_at(parents[:-1], tree)
    package = package_of(above.model_fields.get(parents[-1])) if above and parents else None
    return [word for word in listing(package) if key in settings_of(package, word).model_fields] if package else []
