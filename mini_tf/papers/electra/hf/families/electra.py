"""ELECTRA: the discriminator, and the generator, which is a BERT with narrower embeddings.

Source: Clark et al. 2020, arXiv:2003.10555, and transformers' ElectraForPreTraining and ElectraForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._encoders import encoder_config, encoder_names, encoder_settings, task_heads
from mini_tf.hf.layouts import Zero

PREDICTIONS = {
    "head.transform.dense": "generator_predictions.dense",
    "head.transform.norm": "generator_predictions.LayerNorm",
    "head.linear": "generator_lm_head",
}
DETECTION = {
    "head.dense": "discriminator_predictions.dense",
    "head.linear": "discriminator_predictions.dense_prediction",
}


class Settings(Family):
    MODEL = "encoder"
    PREFIX = "electra."
    HEADS = (
        # Without a generator of its own: that is another model, with its own folder.
        Head("ElectraForPreTraining", {"kind": "replaced_token", "proposal": "uniform"}),
        Head("ElectraForMaskedLM", {"kind": "masked"}),
        *task_heads("Electra", "gelu"),
        Head("ElectraModel", None, True, "last_hidden_state"),
    )
    BEGIN = "cls_token"
    TIED = {"generator_lm_head.weight": ".embeddings.word_embeddings.weight"}
    COMPUTED = r"\.?embeddings\.(position|token_type)_ids"
    NO_EFFECT = "summary_.*"
    DROPPED = {r"(generator|discriminator)_.*": "the head of pretraining, which this architecture does not use"}

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("position_embedding_type", "absolute")
        if head.objective is not None:
            config.only("hidden_act", "gelu", why=", the activation of its heads")
        width = config.integer("embedding_size", 128)
        settings = encoder_settings(config, head) | {"n_types": config.integer("type_vocab_size", 2)}
        return settings | ({} if width == settings["d_model"] else {"d_embedding": width})

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        width = model.d_embedding or model.d_model
        return encoder_config(model, facts) | {"type_vocab_size": model.n_types, "embedding_size": width}

    def names(self, model: Any, head: Head) -> Names:
        names = encoder_names(PREDICTIONS, head, "classifier.dense", "classifier.out_proj") | {
            "embedding.project": Layout(".embeddings_project")
        }
        names["head.transform"] = Zero()  # of a model without a head, whose embeddings have no logits of their width
        return names | ({ours: Layout(theirs) for ours, theirs in DETECTION.items()} if head == self.HEADS[0] else {})
