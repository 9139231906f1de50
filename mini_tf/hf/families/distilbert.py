"""DistilBERT: BERT without token types, under other names.

Source: Sanh et al. 2019, arXiv:1910.01108, and transformers' DistilBertForMaskedLM.
"""

from mini_tf.hf.families._architectures import GELUS, UNUSED_HEAD, EncoderFamily, encoder_heads, encoder_keys
from mini_tf.hf.layouts import GgufArchitecture


class Settings(EncoderFamily):
    PREFIX = "distilbert."
    HEADS = encoder_heads("DistilBert", "relu")
    KEYS = encoder_keys("dim", "n_layers", "n_heads", "hidden_dim", "activation", None)
    FIXED = {**EncoderFamily.FIXED, "norm_eps": 1e-12}
    TYPES = False
    LAYER = {
        "self_attn.part.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "self_attn.part.out": "attention.out_lin",
        "self_attn.norm": "sa_layer_norm",
        "feed_forward.part.up": "ffn.lin1",
        "feed_forward.part.down": "ffn.lin2",
        "feed_forward.norm": "output_layer_norm",
    }
    LAYERS = ".transformer.layer"
    PREDICTIONS = ("vocab_transform", "vocab_layer_norm", "vocab_projector")
    CLASSES = ("pre_classifier", "classifier")
    GGUF = (GgufArchitecture("bert", None, GELUS, causal=False),)
    TIED = {"vocab_projector.weight": ".embeddings.word_embeddings.weight"}
    COMPUTED = r"\.?embeddings\.position_ids"
    NO_EFFECT = "sinusoidal_pos_embds|tie_weights_"
    KEY_ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    DROPPED = {r"vocab_.*": UNUSED_HEAD}
