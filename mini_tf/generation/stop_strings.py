"""Stop strings: generated text ends before the first of them, also while it is streamed."""

from collections.abc import Sequence


class StopStringFilter:
    """Passes on streamed text up to the first complete stop string; if several end at one position, the longest counts.

    The result does not depend on how the text is split into pieces. A possible beginning of a stop string is held back.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if "" in stops:
            raise ValueError("an empty stop string would end every text at once")
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that is final after `text` was appended; "" once `stopped`."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        n_held = next((n for n in range(min(len(text), self._longest - 1), 0, -1) if self._may_begin(text[-n:])), 0)
        self._held = text[len(text) - n_held :]
        return text[: len(text) - n_held]

    def end(self) -> str:
        """The text that was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stops)
