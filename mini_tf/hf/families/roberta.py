"""RoBERTa: BERT with one token type, and positions that count from the row after that of padding.

Source: Liu et al. 2019, arXiv:1907.11692, and transformers' RobertaForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._encoders import encoder_config, encoder_names, encoder_settings, is_masked, task_heads
from mini_tf.hf.layouts import Shifted, Twice

PAD = 1
"""Id of the padding token; the position of the first token is the row after it."""
PREDICTIONS = {
    "head.transform.dense": "lm_head.dense",
    "head.transform.norm": "lm_head.layer_norm",
    "head.linear": "lm_head.decoder",
}


class Settings(Family):
    MODEL = "encoder"
    PREFIX = "roberta."
    HEADS = (
        Head("RobertaForMaskedLM", {"kind": "masked"}),
        *task_heads("Roberta", "tanh"),
        Head("RobertaModel", None, True, "last_hidden_state"),
    )
    BEGIN = "cls_token"
    TIED = {"lm_head.decoder.weight": ".embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"}
    COMPUTED = r"\.?embeddings\.(position|token_type)_ids"
    DROPPED = {
        r"\.?pooler\..*": "the pooler, which no output of this model uses",
        r"lm_head\..*": "the masked-LM head, which this architecture does not use",
    }

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("position_embedding_type", "absolute")
        if config.get("pad_token_id") != PAD:
            config.refuse("pad_token_id", f"positions are counted from the id of padding, which must be {PAD}")
        if is_masked(head):
            config.only("hidden_act", "gelu", why=", the activation of its masked-LM head")
        length = config.integer("max_position_embeddings", least=PAD + 2) - PAD - 1
        positions = {"positions": {"kind": "learned", "length": length}}
        return encoder_settings(config, head) | positions | {"n_types": config.integer("type_vocab_size", 2)}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        written = encoder_config(model, facts)
        length = written["max_position_embeddings"] + PAD + 1
        return written | {
            "type_vocab_size": model.n_types,
            "max_position_embeddings": length,
            "pad_token_id": facts.vocabulary.pad,
        }

    def names(self, model: Any, head: Head) -> Names:
        names = encoder_names(PREDICTIONS, head, "classifier.dense", "classifier.out_proj")
        names["embedding.position.table"] = Shifted(".embeddings.position_embeddings", PAD + 1)
        if is_masked(head):
            tied = Layout("lm_head.bias") if model.tied else Twice("lm_head.decoder.bias", "lm_head.bias")
            names["head.linear.bias"] = tied
        return names

    def context(self, config: Config) -> int:
        return config.integer("max_position_embeddings", least=PAD + 2) - PAD - 1
