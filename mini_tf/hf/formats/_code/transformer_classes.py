"""The classes for transformers: what `AutoModel...from_pretrained(FOLDER, trust_remote_code=True)` makes.

`generate` gives them the state of earlier tokens, a KV cache or what the layers keep in its place, as `state`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mini_tf.hf.formats._code.text_models import build, loss_of, next_logits, positions_of, text_outputs
from mini_tf.nn.state import State, reorder
from mini_tf.nn.tokens import Tokens

try:
    from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.utils.generic import ModelOutput
except ImportError:  # the classes for transformers have no use then
    GenerationMixin = PretrainedConfig = object  # type: ignore[misc, assignment]
    PreTrainedModel, ModelOutput = nn.Module, dict  # type: ignore[misc, assignment]


class MiniTFConfig(PretrainedConfig):
    model_type = "minitf"


@dataclass
class TextOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None
    state: Any = None


@dataclass
class EncodedSource(ModelOutput):
    """memory: what the decoder needs of the sources; one serves all hypotheses of its text."""

    ids: Tensor | None = None
    memory: Any = None


class _Transformers(PreTrainedModel):
    config_class = MiniTFConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        with torch.device("cpu"):  # transformers builds models on the meta device, where buffers have no content
            self.model = build(config.to_dict())
        self.facts = config.minitf
        first: dict[int, str] = {}
        names = self.named_parameters(remove_duplicate=False)
        ties = {name: first.setdefault(id(parameter), name) for name, parameter in names}
        self._tied_weights_keys = {name: other for name, other in ties.items() if name != other}
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """`build` has drawn them."""


class _WholeText(_Transformers):
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> TextOutput:
        outputs = text_outputs(self.model, self.facts, input_ids, attention_mask, token_type_ids)
        loss = None if labels is None else loss_of(outputs, labels, self.config.problem_type)
        return TextOutput(loss=loss, logits=outputs)


class MiniTFForMaskedLM(_WholeText):
    """Logits over the vocabulary at each token."""


class MiniTFForPreTraining(_WholeText):
    """One logit at each token: whether it was replaced."""


class MiniTFForSequenceClassification(_WholeText):
    """Outputs of a text: logits of classes, or a number."""


class MiniTFForTokenClassification(_WholeText):
    """Logits of classes at each token."""


class _Continuing(_Transformers, GenerationMixin):
    """The part of models that `generate` calls."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _update_model_kwargs_for_generation(self, outputs: Any, model_kwargs: Any, *args: Any, **kwargs: Any) -> Any:
        updated = super()._update_model_kwargs_for_generation(outputs, model_kwargs, *args, **kwargs)
        return {**updated, "state": outputs.state}

    def _reorder_cache(self, state: State, beam_idx: Tensor) -> State | None:
        return reorder(state, beam_idx)


class MiniTFForCausalLM(_Continuing):
    """Logits over the vocabulary of the next token."""

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        state: Any = None,
        attention_mask: Tensor | None = None,
        use_cache: Any = None,
        **_: Any,
    ) -> dict[str, Any]:
        shared = {"attention_mask": attention_mask, "state": state, "use_cache": use_cache, "is_prompt": state is None}
        return {"input_ids": input_ids if state is None else input_ids[:, -1:], **shared}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        is_prompt: bool = False,
        **_: Any,
    ) -> TextOutput:
        state = self.model.start(len(input_ids)) if use_cache and state is None else state
        logits, state = next_logits(self.model, input_ids, attention_mask, None, state, is_prompt)
        loss = None if labels is None else loss_of(logits[:, :-1], labels[:, 1:], None)
        return TextOutput(loss=loss, logits=logits, state=state)


class EncoderOfSources(nn.Module):
    """The encoder, which is called once for each source. The model is not a part of it, but of `owner`."""

    main_input_name = "input_ids"

    def __init__(self, owner: Any) -> None:
        super().__init__()
        self._owner = (owner,)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any) -> EncodedSource:
        memory = self._owner[0].model.encode(Tokens(input_ids, positions_of(attention_mask)))
        return EncodedSource(ids=input_ids, memory=memory)


class MiniTFForSeq2SeqLM(_Continuing):
    """Logits over the vocabulary of the next token of the target."""

    def get_encoder(self, *_: Any, **__: Any) -> EncoderOfSources:
        return EncoderOfSources(self)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        state: Any = None,
        encoder_outputs: Any = None,
        attention_mask: Tensor | None = None,
        use_cache: bool | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """The mask of the sources is part of `encoder_outputs`."""
        ids = input_ids if state is None else input_ids[:, -1:]
        return {"decoder_input_ids": ids, "state": state, "encoder_outputs": encoder_outputs, "use_cache": use_cache}

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        *,
        state: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        **_: Any,
    ) -> TextOutput:
        if decoder_input_ids is None and labels is not None:
            start = labels.new_full((len(labels), 1), self.config.decoder_start_token_id)
            decoder_input_ids = torch.cat([start, labels[:, :-1].clamp(min=0)], dim=1)
        encoded = self.get_encoder()(input_ids, attention_mask) if encoder_outputs is None else encoder_outputs
        assert decoder_input_ids is not None, "a target or labels must be given"
        state = self.model.start(len(decoder_input_ids)) if use_cache and state is None else state
        logits, state = next_logits(self.model, decoder_input_ids, decoder_attention_mask, encoded["memory"], state)
        loss = None if labels is None else loss_of(logits, labels, None)
        return TextOutput(loss=loss, logits=logits, state=state)
