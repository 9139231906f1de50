"""The options of `minitf generate` while somebody is at the prompt: `/set` reads them as the command line does, with the same checks."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mini_tf.cli.generate.prompting import PromptSession
from mini_tf.cli.generate.stop_strings import stops
from mini_tf.cli.terminal.options import CommandLineError
from mini_tf.system.errors import UsageFault

_SET = re.compile(r"-*([\w-]+)(?:=|\s+|$)(.*)", re.DOTALL)
BACK = "default"
"""The value that takes an option back."""


class LoopOptions:
    """given: the options in force by name, as far as they are not the run's own."""

    def __init__(self, session: PromptSession, given: Mapping[str, Any]) -> None:
        from mini_tf.recipe.kind_settings import GENERATE_OPTIONS

        self.given, self._answering = dict(given), session
        assert session.console.context is not None, "the command was called by the command line"
        self._context: Any = session.console.context
        self._parameters: dict[str, Any] = {
            option: one
            for one in self._context.command.params
            for option in (name.lstrip("-").replace("-", "_") for name in one.opts)
            if option in GENERATE_OPTIONS | {"context"}
        }

    def change(self, told: str) -> list[str]:
        """Take over "temperature 0.7"; the lines that show what is in force. UsageFault where it is unfit, and nothing is changed."""
        if not told:
            return [*self._shown(name for name in self._parameters if name not in self._answering.settings.WITHOUT)]
        found = _SET.fullmatch(told)
        name = found[1].replace("-", "_") if found else told
        if found is None or name not in self._parameters:
            from mini_tf.recipe.values import near, show

            meant = near(name, list(self._parameters))
            hint = f"did you mean {meant.replace('_', '-')}?" if meant else "/set alone shows all options"
            raise UsageFault(f"/set: no such option {show(told.split()[0])}", hint=hint)
        value = found[2].strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":  # as a shell takes it
            value = value[1:-1]
        if value or self._parameters[name].is_flag:
            self._replace(name, value)
        return [*self._shown([name])]

    def _replace(self, name: str, value: str) -> None:
        parameter, changed = self._parameters[name], {key: old for key, old in self.given.items() if key != name}
        if value != BACK:
            new = self._read(parameter, name, value)
            changed |= {name: stops(new) if name == "stop" else new}
        try:
            self._answering.open(changed)
        except UsageFault as fault:
            own = name in self._answering.settings.WITHOUT
            hint = "/set shows the options of this model" if own else fault.hint or self._way_back(name)
            raise UsageFault(fault.message, hint=hint) from None
        self.given = changed

    def _way_back(self, name: str) -> str:
        others = [other.replace("_", "-") for other in self.given if other != name]
        return f"/set {others[0] if len(others) == 1 else 'OPTION'} {BACK} takes the other back"

    def _read(self, parameter: Any, name: str, value: str) -> Any:
        """The value as the command line reads it."""
        option = f"--{name.replace('_', '-')}"
        arguments = [f"{option}={value}"]
        if parameter.is_flag:
            if value not in ("", "on", "off"):
                raise UsageFault(f"/set {option[2:]}: must be on, off or {BACK}, got {value}")
            if value == "off":
                return False
            arguments = [option]
        try:
            command, info = self._context.command, self._context.info_name
            read = command.make_context(info, ["RUN", *arguments], parent=self._context.parent).params
        except CommandLineError as error:
            raise UsageFault(f"/set: {error.format_message().rstrip('.')}") from None  # type: ignore[attr-defined]
        return read[parameter.name]

    def _shown(self, names: Iterable[str]) -> Iterator[str]:
        trained, width = self._answering.trained, max(map(len, self._parameters))
        own = {"context": trained.model.context, "num_samples": 1, "greedy": False, "seed": "a new one for each prompt"}
        own |= {"logprobs": "none", "n_best": "none", "stream": "at a terminal"}
        own |= trained.recipe.generate.model_dump() | self._answering.settings.DEFAULTS
        for name in names:
            told = _spoken(self.given[name]) if name in self.given else f"{_spoken(own.get(name))} (default)"
            yield f"{name.replace('_', '-'):<{width}}  {told}"


def _spoken(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(repr, value)) or "none"
    return "auto" if value is None else str(value)
