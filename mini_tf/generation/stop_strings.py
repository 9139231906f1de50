"""Stop strings: a text ends before the first of them, also while it is still being written."""

from collections.abc import Sequence


class StopStringFilter:
    """Lets a text through piece by piece, up to the stop string that is complete first; of several that end there, the longest.

    However the text is cut into pieces, the same comes out. What may become a stop string is held back.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        if "" in stops:
            raise ValueError("an empty stop string would end every text before it begins")
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """What is certain now that `text` has come; nothing any more once `stopped`."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        kept = next((n for n in range(min(len(text), self._longest - 1), 0, -1) if self._may_begin(text[-n:])), 0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def end(self) -> str:
        """What was held back, where no more text comes."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self._stops)
