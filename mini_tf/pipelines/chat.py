"""Chat: a decoder answers a turn, or a conversation so far."""

from collections.abc import Iterable, Iterator, Sequence

from mini_tf.data.examples import ASSISTANT, Example
from mini_tf.data.formats import cells
from mini_tf.generation.text_generator import Prompt, TextGenerator
from mini_tf.pipelines import GenerateOptions, Output, Subject
from mini_tf.pipelines._continuing import Continuing
from mini_tf.pipelines._references import Writing, WritingSettings
from mini_tf.recipe.kind_settings import NO_BEAM_OPTIONS
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.system.seeds import seed_of

ROWS = 32
"""Conversations that are answered together."""


class Settings(WritingSettings):
    WITHOUT = NO_BEAM_OPTIONS
    DOES = "answers a message"

    def build(self, subject: Subject) -> "Chat":
        return Chat(subject)


class Chat(Writing):
    def write(self, examples: Sequence[Example]) -> Iterable[str]:
        """Always by the likeliest token, so that two evaluations agree."""
        greedy = self.recipe.generate.model_copy(update={"temperature": 0.0})
        recipe = self.recipe.model_copy(update={"generate": greedy})
        writer = TextGenerator(self.subject.model, self.subject.tokenizer, recipe, in_turns=True)
        prompts = [writer.conversation([text for _, text in before(one)]) for one in examples]
        # Those of like length are answered together, for a padded place costs what a token costs.
        order = sorted(range(len(prompts)), key=lambda number: len(prompts[number].ids))
        answers = writer.write([prompts[number] for number in order], seed_of("respond"), rows=ROWS)
        texts = {number: written.text for number, [written] in zip(order, answers, strict=True)}
        return [texts[number] for number in range(len(prompts))]

    def references(self, example: Example) -> Sequence[str]:
        return [example.texts[len(before(example))], *example.further]

    def prompt_of(self, example: Example) -> str:
        turns = [f"{who}: {said}" for who, said in before(example)]
        return "\n".join([*turns, f"expected: {self.references(example)[0]}", "model: "])

    def generation(self, options: GenerateOptions) -> "Responding":
        return Responding(self.subject, options, in_turns=True)


def before(example: Example) -> list[tuple[str, str]]:
    """Who says what up to the assistant's last turn."""
    turns = list(zip(example.labels, example.texts, strict=True))
    return turns[: max(number for number, (who, _) in enumerate(turns) if who == ASSISTANT)]


class Responding(Continuing):
    """The generation of a chat; a prompt that is JSON, {"messages": [{"role": ..., "content": ...}, ...]}, is a conversation so far."""

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        for number, prompt in enumerate(prompts):
            try:
                self.framed(prompt)
            except UsageFault as fault:
                if places:
                    yield from super().outputs(prompts[:number], places[:number])
                raise UsageFault(fault.message, hint=fault.hint, where=places[number : number + 1]) from fault
        yield from super().outputs(prompts, places)

    def framed(self, text: str) -> Prompt:
        return self.writer.conversation(self.turns(text))

    def turns(self, text: str) -> Sequence[str]:
        turns = _turns_of(text)
        return [text] if turns is None else turns


def _turns_of(prompt: str) -> list[str] | None:
    """What is said before the answer, in a prompt that is a conversation; None where it is any other text.

    Where the assistant speaks last, that is the answer, which a file of conversations to learn from has and the model is not shown.
    """
    try:
        read = strict_json.parse(prompt) if prompt.lstrip().startswith("{") else None
    except ValueError:
        return None
    if not isinstance(read, dict) or "messages" not in read:
        return None
    messages = read["messages"]
    answer = [{"role": ASSISTANT, "content": "what is asked for"}]
    try:
        turns = cells.messages_of(messages + answer if isinstance(messages, list) else messages, "the prompt", "messages")[:-1]
    except DataFault as fault:
        raise UsageFault(fault.message) from fault
    if turns and turns[-1][0] == ASSISTANT:
        turns.pop()
    return [text for _, text in turns]
