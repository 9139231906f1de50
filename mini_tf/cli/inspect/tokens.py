"""`minitf inspect tokens`: a text as the tokenizer cuts it. Needs no torch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mini_tf.cli.inspect.texts import INPUT, TEXTS, given_texts
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.sources import SOURCE, open_tokenizer

if TYPE_CHECKING:
    from mini_tf.inspection.tokens import Token


@command
def tokens(console: Console, source: SOURCE, texts: TEXTS = None, input: INPUT = None) -> None:
    """Each token of a text: its id, how it reads, its bytes, and the characters it stands for (from 0, the last not included)."""
    from mini_tf.inspection.tokens import tokens_of

    read = given_texts(texts, input)
    tokenizer = open_tokenizer(console, source)
    results: list[dict[str, Any]] = []
    for text in read:
        found = tokens_of(tokenizer, text)
        if results and not console.json:
            console.print_product("")
        _draw(console, text, found)
        results.append({"text": text, "n_tokens": len(found), "n_bytes": len(text.encode()), "tokens": [_record(one) for one in found]})
    console.answer(result={"texts": results, "notes": tokenizer.notes})


def _record(token: "Token") -> dict[str, Any]:
    return {"id": token.id, "piece": token.piece, "bytes": token.bytes.hex(" "), "span": list(token.span), "unknown": token.unknown}


def _draw(console: Console, text: str, found: "Sequence[Token]") -> None:
    from mini_tf.drawing.labels import label
    from mini_tf.drawing.terminal import sentence, table

    rows = [
        [str(place), str(one.id), label(one.piece), one.bytes.hex(" "), "{}-{}".format(*one.span), "unknown" if one.unknown else ""]
        for place, one in enumerate(found)
    ]
    if found:
        console.picture(table(["index", "id", "piece", "bytes", "characters", ""], rows, colored=console.colored, width=console.width))
    n_bytes, unknown = len(text.encode()), sum(one.unknown for one in found)
    said = f"{len(found)} tokens, {len(text)} characters, {n_bytes} bytes"
    if found:
        said += f": {n_bytes / len(found):.2f} bytes a token"
    if unknown:
        said += f"; {unknown} unknown: the tokenizer has no token for that text"
    console.picture(sentence(said, console.width))
