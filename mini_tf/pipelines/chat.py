"""Chat: a decoder generates the assistant's answer to chat messages."""

from collections.abc import Iterable, Iterator, Sequence

from mini_tf.data.examples import ASSISTANT, Example
from mini_tf.data.formats import columns
from mini_tf.generation.text_generator import Prompt, TextGenerator
from mini_tf.pipelines import GenerateOptions, ModelBundle, Output
from mini_tf.pipelines._generators import DecoderGenerator, outputs_before_fault
from mini_tf.pipelines._references import ReferencePipeline, ReferencePipelineSettings
from mini_tf.recipe.kind_settings.pipelines import UNSUPPORTED_BEAM_OPTIONS
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.system.seeds import seed_of

BATCH_SIZE = 32
"""Chats per batch of an evaluation."""


class Settings(ReferencePipelineSettings):
    UNSUPPORTED_OPTIONS = UNSUPPORTED_BEAM_OPTIONS
    ANSWERS_MESSAGES = True
    DESCRIPTION = "answers a message"

    def build(self, bundle: ModelBundle) -> "Chat":
        return Chat(bundle)


class Chat(ReferencePipeline):
    def generate(self, examples: Sequence[Example]) -> Iterable[str]:
        """Always greedy, so evaluations are reproducible."""
        greedy = self.recipe.generate.model_copy(update={"temperature": 0.0})
        recipe = self.recipe.model_copy(update={"generate": greedy})
        generator = TextGenerator(self.bundle.model, self.bundle.tokenizer, recipe)
        prompts = [generator.encode_chat([text for _, text in messages_before_answer(example)]) for example in examples]
        # Sorted by length, for less padding.
        order = sorted(range(len(prompts)), key=lambda number: len(prompts[number].ids))
        answers = generator.generate([prompts[number] for number in order], seed_of("respond"), batch_size=BATCH_SIZE)
        texts = {number: answer.text for number, [answer] in zip(order, answers, strict=True)}
        return [texts[number] for number in range(len(prompts))]

    def references(self, example: Example) -> Sequence[str]:
        return [example.texts[len(messages_before_answer(example))], *example.alternatives]

    def format_example(self, example: Example) -> str:
        messages = [f"{role}: {content}" for role, content in messages_before_answer(example)]
        return "\n".join([*messages, f"expected: {self.references(example)[0]}", "model: "])

    def generator(self, options: GenerateOptions) -> "ChatGenerator":
        return ChatGenerator(self.bundle, options)


def messages_before_answer(example: Example) -> list[tuple[str, str]]:
    """(role, content) of the messages before the assistant's last one."""
    messages = list(zip(example.labels, example.texts, strict=True))
    return messages[: max(number for number, (role, _) in enumerate(messages) if role == ASSISTANT)]


class ChatGenerator(DecoderGenerator):
    """Generates answers. A prompt is a user message, or JSON: {"messages": [{"role": ..., "content": ...}, ...]}."""

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        yield from outputs_before_fault(super().outputs, self.encode, prompts, places)

    def encode(self, text: str) -> Prompt:
        return self.text_generator.encode_chat(self.texts_of(text))

    def texts_of(self, prompt: str) -> Sequence[str]:
        messages = _parse_messages(prompt)
        return [prompt] if messages is None else messages


def _parse_messages(prompt: str) -> list[str] | None:
    """The messages before the answer if the prompt is JSON with `messages`; None for any other text.

    A last message of the assistant is dropped: it is the reference of a training example.
    """
    try:
        parsed = strict_json.parse(prompt) if prompt.lstrip().startswith("{") else None
    except ValueError:
        return None
    if not isinstance(parsed, dict) or "messages" not in parsed:
        return None
    messages = parsed["messages"]
    answer = [{"role": ASSISTANT, "content": "to be generated"}]
    try:
        checked = columns.messages_of(
            messages + answer if isinstance(messages, list) else messages, "the prompt", "messages"
        )[:-1]
    except DataFault as fault:
        raise UsageFault(fault.message) from fault
    if checked and checked[-1][0] == ASSISTANT:
        checked.pop()
    return [text for _, text in checked]
