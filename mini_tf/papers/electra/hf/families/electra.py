"""ELECTRA: the discriminator, and the generator, which is a BERT with narrower embeddings.

Source: Clark et al. 2020, arXiv:2003.10555, and transformers' ElectraForPreTraining and ElectraForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Head, Layout, Names
from mini_tf.hf.families._architectures import IDS, EncoderFamily, encoder_heads
from mini_tf.hf.layouts import Zero

DISCRIMINATOR = Head("ElectraForPreTraining", {"kind": "replaced_token", "proposal": "uniform"})
"""Without a generator of its own: that is another model, with its own folder."""
DETECTION = {
    "head.dense": "discriminator_predictions.dense",
    "head.linear": "discriminator_predictions.dense_prediction",
}


class Settings(EncoderFamily):
    PREFIX = "electra."
    HEADS = (DISCRIMINATOR, *encoder_heads("Electra", "gelu"))
    ONLY = {"position_embedding_type": "absolute"}
    PREDICTIONS = ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head")
    TIED = {"generator_lm_head.weight": ".embeddings.word_embeddings.weight"}
    COMPUTED = IDS
    NO_EFFECT = "summary_.*"
    DROPPED = {r"(generator|discriminator)_.*": "the head of pretraining, which this architecture does not use"}

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        if head.objective is not None:
            config.only("hidden_act", "gelu", why=", the activation of its heads")
        width = config.integer("embedding_size", 128)
        settings = super().settings(config, head)
        return settings | ({} if width == settings["d_model"] else {"d_embedding": width})

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return super().config(model, facts) | {"embedding_size": model.d_embedding or model.d_model}

    def names(self, model: Any, head: Head) -> Names:
        names = {**super().names(model, head), "embedding.project": Layout(".embeddings_project")}
        names["head.transform"] = Zero()  # of a model without a head, whose embeddings have no logits of their width
        return names | ({ours: Layout(theirs) for ours, theirs in DETECTION.items()} if head == DISCRIMINATOR else {})
