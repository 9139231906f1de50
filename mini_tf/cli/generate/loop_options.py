"""Options of the prompt loop: `/set` parses and checks them like the command line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mini_tf.cli.generate.prompting import PromptSession
from mini_tf.cli.generate.stop_strings import stops
from mini_tf.cli.terminal.options import CommandLineError
from mini_tf.system.errors import UsageFault

_SET = re.compile(r"-*([\w-]+)(?:=|\s+|$)(.*)", re.DOTALL)
RESET = "default"
"""The value that resets an option."""


class LoopOptions:
    """given: options that differ from the run's own, by name."""

    def __init__(self, session: PromptSession, given: Mapping[str, Any]) -> None:
        from mini_tf.recipe.kind_settings.pipelines import GENERATE_OPTIONS

        self.given, self._session = dict(given), session
        assert session.console.context is not None, "the command was called by the command line"
        self._context: Any = session.console.context
        self._parameters: dict[str, Any] = {
            option: one
            for one in self._context.command.params
            for option in (name.lstrip("-").replace("-", "_") for name in one.opts)
            if option in GENERATE_OPTIONS | {"context"}
        }

    def change(self, assignment: str) -> list[str]:
        """Apply "temperature 0.7"; returns lines with the new values. UsageFault changes nothing."""
        if not assignment:
            return [
                *self._lines(
                    name for name in self._parameters if name not in self._session.settings.UNSUPPORTED_OPTIONS
                )
            ]
        found = _SET.fullmatch(assignment)
        name = found[1].replace("-", "_") if found else assignment
        if found is None or name not in self._parameters:
            from mini_tf.recipe.values import show
            from mini_tf.system.errors import suggest

            hint = suggest(
                name, self._parameters, "/set alone shows all options", lambda meant: meant.replace("_", "-")
            )
            raise UsageFault(f"/set: no such option {show(assignment.split()[0])}", hint=hint)
        value = found[2].strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":  # as a shell takes it
            value = value[1:-1]
        if value or self._parameters[name].is_flag:
            self._replace(name, value)
        return [*self._lines([name])]

    def _replace(self, name: str, value: str) -> None:
        parameter, changed = self._parameters[name], {key: old for key, old in self.given.items() if key != name}
        if value != RESET:
            new = self._parse(parameter, name, value)
            changed |= {name: stops(new) if name == "stop" else new}
        try:
            self._session.open(changed)
        except UsageFault as fault:
            own = name in self._session.settings.UNSUPPORTED_OPTIONS
            hint = "/set shows the options of this model" if own else fault.hint or self._reset_hint(name)
            raise UsageFault(fault.message, hint=hint) from None
        self.given = changed

    def _reset_hint(self, name: str) -> str:
        others = [other.replace("_", "-") for other in self.given if other != name]
        return f"/set {others[0] if len(others) == 1 else 'OPTION'} {RESET} resets the other option"

    def _parse(self, parameter: Any, name: str, value: str) -> Any:
        """The value as the command line parses it."""
        option = f"--{name.replace('_', '-')}"
        arguments = [f"{option}={value}"]
        if parameter.is_flag:
            if value not in ("", "on", "off"):
                raise UsageFault(f"/set {option[2:]}: must be on, off or {RESET}, got {value}")
            if value == "off":
                return False
            arguments = [option]
        try:
            command, info = self._context.command, self._context.info_name
            parsed = command.make_context(info, ["RUN", *arguments], parent=self._context.parent).params
        except CommandLineError as error:
            raise UsageFault(f"/set: {error.format_message().rstrip('.')}") from None  # type: ignore[attr-defined]
        return parsed[parameter.name]

    def _lines(self, names: Iterable[str]) -> Iterator[str]:
        trained, width = self._session.trained, max(map(len, self._parameters))
        own = {"context": trained.generation_context, "num_samples": 1, "greedy": False, "seed": "a new one per prompt"}
        own |= {"logprobs": "none", "n_best": "none", "stream": "at a terminal"}
        own |= {**trained.recipe.generate.model_dump(), **self._session.settings.DEFAULT_OPTIONS}
        for name in names:
            value = _format(self.given[name]) if name in self.given else f"{_format(own.get(name))} (default)"
            yield f"{name.replace('_', '-'):<{width}}  {value}"


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return " ".join(map(repr, value)) or "none"
    return "auto" if value is None else str(value)
