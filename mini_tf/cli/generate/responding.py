"""How `minitf generate` prints what a model of conversations answers: as what any decoder writes, but a prompt is a turn, or several."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mini_tf.cli.generate.continuing import Continue
from mini_tf.system.errors import DataFault, UsageFault

if TYPE_CHECKING:
    from mini_tf.generation.writing import Prompt


class Respond(Continue):
    """Answers prompts; one that is JSON, {"messages": [{"role": ..., "content": ...}, ...]}, is a conversation so far."""

    def __call__(self, prompts: Sequence[str], places: Sequence[str] = ()) -> None:
        """As of Continue. UsageFault at messages that are no conversation; what stands before them is answered if they are lines."""
        for number, prompt in enumerate(prompts):
            try:
                self.framed(prompt)
            except UsageFault as fault:
                if places:
                    super().__call__(prompts[:number], places[:number])
                raise UsageFault(fault.message, hint=fault.hint, where=places[number : number + 1]) from fault
        super().__call__(prompts, places)

    def framed(self, text: str) -> "Prompt":
        """A prompt as the model reads it."""
        turns = _turns_of(text)
        return self.writer.prompt(text) if turns is None else self.writer.conversation(turns)


def _turns_of(prompt: str) -> list[str] | None:
    """What is said before the answer, in a prompt that is a conversation; None where it is any other text.

    Where the assistant speaks last, that is the answer, which a file of conversations to learn from has and the model is not shown.
    """
    from mini_tf.data.examples import ASSISTANT
    from mini_tf.data.formats import cells
    from mini_tf.system import strict_json

    try:
        read = strict_json.parse(prompt) if prompt.lstrip().startswith("{") else None
    except ValueError:
        return None
    if not isinstance(read, dict) or "messages" not in read:
        return None
    messages = read["messages"]
    answer = [{"role": ASSISTANT, "content": "what is asked for"}]
    try:
        turns = cells.turns_of(messages + answer if isinstance(messages, list) else messages, "the prompt", "messages")[:-1]
    except DataFault as fault:
        raise UsageFault(fault.message) from fault
    if turns and turns[-1][0] == ASSISTANT:
        turns.pop()
    return [text for _, text in turns]
