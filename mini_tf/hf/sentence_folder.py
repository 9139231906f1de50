"""The files of sentence-transformers beside a model: how the vector of a text is made of its hidden states.

modules.json lists the modules: the model, its pooling and, perhaps, the normalization to length 1. Source:
sentence-transformers 6.2; Reimers and Gurevych 2019, arXiv:1908.10084.
"""

from pathlib import Path
from typing import Any

from mini_tf.hf.config_json import Config
from mini_tf.hf.families import Family
from mini_tf.recipe.recipe import Recipe
from mini_tf.run.disk import Content
from mini_tf.system import strict_json
from mini_tf.system.errors import RunFault
from mini_tf.system.safe_files import read_small_file
from mini_tf.system.strict_json import show_json

MODULES, TEXTS, MODEL = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
POOLING, TOKENIZER = "1_Pooling/config.json", "tokenizer_config.json"
KINDS = ("Transformer", "Pooling", "Normalize")
"""Modules that minitf has, in their order."""
POOLS = {"mean": "mean", "cls": "first", "max": "max", "lasttoken": "last"}
"""Their pooling, and ours."""
MODES = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The keys of files of before 2026, one for each pooling."""


def name_base_model(folder: Path, config: Config, family: Family) -> None:
    """Vectors are made of hidden states, whatever head the files of a folder with modules have, too."""
    base = [head.architecture for head in family.HEADS if head.objective is None]
    if (folder / MODULES).is_file() and base:
        config.values = {**config.values, "architectures": base[:1]}


def sentence_sections(folder: Path, context: int) -> tuple[dict[str, Any], list[str]]:
    """`objective` and `train` of a recipe with the vectors of a folder, and notes; none of a folder without modules.

    context: of the model alone.

    RunFault, with all faults of a file, if minitf has no such module, pooling or setting.
    """
    if not (folder / MODULES).is_file():
        return {}, []
    modules = _modules(folder)
    texts, model = (_config(folder, name) for name in (TEXTS, MODEL))
    longest = _config(folder, TOKENIZER).get("model_max_length")  # where newer files have the length
    length = texts.integer("max_seq_length", longest if type(longest) is int and 0 < longest < context else context)
    texts.only("do_lower_case", False)
    texts.refuse_unread("transformer_task|modality_config|module_output_name|model_args|config_args|tokenizer_args")
    model.only("default_prompt_name", why=": minitf puts no prompt before a text")
    model.only("truncate_dim")
    model.refuse_unread("__version__|prompts|similarity_fn_name|model_type")
    pooling = _config(folder, f"{modules['Pooling']}/config.json", optional=False)
    pool = _pool(pooling)
    for config in (texts, model, pooling):
        config.check()
    prompts = model.get("prompts")
    has_prompts = isinstance(prompts, dict) and any(prompts.values())
    notes = [f"{model.where}: its prompts are not put before a text"] if has_prompts else []
    objective = {"kind": "contrastive", "pool": pool, "normalize": "Normalize" in modules}
    return {"objective": objective, "train": {"steps": 1, "context": min(length, context)}}, notes


def sentence_files(recipe: Recipe, d_model: int, context: int) -> dict[str, Content]:
    """The files for a model that makes vectors; the keys are those that older versions read, too."""
    objective = recipe.objective
    theirs = next(word for word, ours in POOLS.items() if ours == objective.pooling)
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    used = KINDS if objective.normalizes else KINDS[:2]
    modules = [
        {"idx": n, "name": str(n), "path": paths[kind], "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(used)
    ]
    files: dict[str, Any] = {
        MODULES: modules,
        TEXTS: {"max_seq_length": context, "do_lower_case": False},
        POOLING: {"word_embedding_dimension": d_model, **{key: mode == theirs for mode, key in MODES.items()}},
        MODEL: {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    }
    return {name: show_json(value).encode() for name, value in files.items()}


def _modules(folder: Path) -> dict[str, str]:
    """The path of each module, by its kind."""
    path = folder / MODULES
    try:
        listed = strict_json.read(read_small_file(path))
        if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
            raise ValueError("it must be a JSON array of objects")
        types = [(str(module["type"]), str(module["path"])) for module in listed]
    except KeyError as error:
        raise RunFault.located(str(path), f"a module has no key {error}") from error
    except (OSError, ValueError) as error:
        raise RunFault.located(str(path), f"not a list of modules: {error}") from error
    kinds = {name.rpartition(".")[2]: place for name, place in types if name.startswith("sentence_transformers.")}
    if (*kinds,) not in (KINDS, KINDS[:2]) or len(kinds) < len(types):
        names = ", ".join(name[:80] for name, _ in types) or "none"
        raise RunFault.located(str(path), f"minitf has {', '.join(KINDS)} in this order, and the modules are {names}")
    if kinds["Transformer"]:
        fault = f"its model is in {kinds['Transformer'][:80]}; minitf reads it beside {MODULES}"
        raise RunFault.located(str(path), fault)
    if not kinds["Pooling"].replace("_", "").isalnum():
        raise RunFault.located(str(path), f"{kinds['Pooling'][:80]!r} is no folder in this one")
    return kinds


def _config(folder: Path, name: str, optional: bool = True) -> Config:
    """A file of keys; none of an optional file that is not there."""
    path = folder / name
    return Config({}, str(path)) if optional and not path.exists() else Config.read(path, "a file of settings")


def _pool(config: Config) -> str:
    """Our word for the pooling of a file of either form."""
    on = [mode for mode, key in MODES.items() if config.flag(key, False)]
    pooling = config.get("pooling_mode")
    modes = on or ["mean"] if pooling is None else [pooling] if isinstance(pooling, str) else pooling
    if modes not in ([mode] for mode in POOLS):
        key = "pooling_mode" if pooling is not None else MODES[on[-1]]
        config.refuse(key, f"minitf has one pooling, of {', '.join(POOLS)}")
        return "mean"
    config.only("include_prompt", True)
    config.refuse_unread("word_embedding_dimension|embedding_dimension")
    return POOLS[modes[0]]
