"""Llama: a decoder with rotary positions, RMSNorm, SwiGLU and grouped queries, without biases.

Source: Touvron et al. 2023, arXiv:2302.13971, and transformers' LlamaForCausalLM.
"""

from mini_tf.hf.families._architectures import DecoderFamily, decoder_heads
from mini_tf.hf.families._llama_layers import LlamaLayers, as_heads, llama_keys
from mini_tf.hf.layouts import GgufArchitecture


class Settings(DecoderFamily, LlamaLayers):
    HEADS = decoder_heads("Llama", "ForCausalLM")
    KEYS = llama_keys(1e-6, as_heads)
    ONLY = {"rope_interleaved": False}
    GGUF = (GgufArchitecture("llama", True, ("silu",)), GgufArchitecture("arcee", True, ("relu",), gate=False))
    OUTPUT = "lm_head"
    SEPARATOR = "bos_token"
    NO_EFFECT = "pretraining_tp|is_llama_config"
