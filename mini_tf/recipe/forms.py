"""What an objective's form of data asks of the section `data`: which columns there may be, and what can hold such rows."""

from mini_tf.recipe.data import BUILT_IN_PAIRS, COLUMNS, Form, TwoFiles
from mini_tf.recipe.kind_settings import ObjectiveSettings
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Data

_SAID: dict[Form, str] = {
    "text": "a language model reads one column: {text: COLUMN}",
    "pairs": "pairs read two columns: {source: COLUMN, target: COLUMN}",
    "classes": "a text and its class are read: {text: COLUMN, label: COLUMN}, and text_pair where there are two texts",
    "numbers": "a text and its number are read: {text: COLUMN, label: COLUMN}, and text_pair where there are two texts",
    "tags": "words and their tags are read: {text: COLUMN, label: COLUMN}",
    "turns": "a conversation is read: {prompt: COLUMN, response: COLUMN} or {messages: COLUMN}",
}
_TOGETHER: dict[Form, tuple[str, ...]] = {"pairs": ("source", "target"), "turns": ("prompt", "response")}
"""Columns of which none is named without the other."""


def form_rules(data: Data, objective: ObjectiveSettings, own_source_tokenizer: bool) -> Rules:
    """Where the data cannot be read as the objective reads them; all of it depends on which objective that is."""
    for rule in (Rule(*rule) for rule in _rules(data, objective, own_source_tokenizer)):
        yield rule._replace(depends=("objective", *rule.depends))


def _rules(data: Data, objective: ObjectiveSettings, own_source_tokenizer: bool) -> Rules:
    form, kind = objective.FORM, objective.kind
    if own_source_tokenizer and form != "pairs":
        yield "tokenizer.source", "only pairs have a source side; leave it out"
    if form == "pairs" and not data.pairs:
        what = f"{kind} reads pairs; give {{source: FILE, target: FILE}}, or a table and data.fields {{source: COLUMN, target: COLUMN}}"
        yield Rule("data.train", what, ("data.fields",))
        return
    if form == "text" and data.pairs:
        what = f"{kind} reads texts, not pairs of a source and a target; use objective seq2seq"
        yield Rule("data.train", what, ("data.fields",))
        return
    yield from _columns(data, form)
    if form == "text":
        return
    if (isinstance(data.train, TwoFiles) and form != "pairs") or (data.built_in_pairs and form not in ("pairs", "turns")):
        yield "data.train", f"{kind} reads the rows of a table, not pairs; {_SAID[form]}"
    what = "pairs" if form == "pairs" else "examples"
    if data.pack != "concat":
        yield "data.pack", f"{what} stand one a row, whatever pack says; leave {data.pack} out"
    if data.split.tail:
        yield "data.split", f"{data.split} cuts a stream of characters; of {what} give a share such as 5%"
    if form == "pairs":
        yield from _files(data)


def _columns(data: Data, form: Form) -> Rules:
    for name in sorted(set(data.fields) - set(COLUMNS[form])):
        yield "data.fields", f"no such role {name!r}; {_SAID[form]}"
    together = _TOGETHER.get(form, ())
    if named := [name for name in together if name in data.fields]:
        if len(named) < len(together):
            yield "data.fields", f"only {', '.join(named)} is named; {_SAID[form]}"
        elif "messages" in data.fields:
            yield "data.fields", f"messages and {named[0]} are two ways to say the same; {_SAID[form]}"


def _files(data: Data) -> Rules:
    """What two files of lines cannot be."""
    if data.val is not None and isinstance(data.train, TwoFiles) != isinstance(data.val, TwoFiles) and data.val not in BUILT_IN_PAIRS:
        what = "must be given as data.train is: two files {source: F, target: G}, or a table with data.fields"
        yield Rule("data.val", what, ("data.train",))
    if isinstance(data.train, TwoFiles) and data.fields:
        yield Rule("data.fields", "two files of lines have no columns; leave it out", ("data.train",))
