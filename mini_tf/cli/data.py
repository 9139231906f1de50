"""`minitf data`: exactly what the model sees of a text, and what there is in it."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.console import Console, command
from mini_tf.cli.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.recipe.recipe import Recipe
    from mini_tf.text.batch import Batch, Rows
    from mini_tf.text.packing import Packing
    from mini_tf.text.token_store import Text, TokenStore
    from mini_tf.text.tokenizer import Tokenizer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at the text as the model sees it.")


@app.command("show")
@command
def show(
    console: Console,
    arguments: RECIPE = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many rows.")] = 1,
    split: Annotated[Literal["train", "val"], typer.Option("--split", help="Which side of the text.")] = "train",
) -> None:
    """The first rows of the first step, or of the held-out text: inputs, targets, masked places, document borders."""
    from mini_tf.evaluate import pack

    recipe, text = _open(console, arguments)
    objective = recipe.objective.build(text.tokenizer.vocabulary)
    packing = pack(recipe, text.train if split == "train" else text.val, text.tokenizer, objective)
    numbers, chosen, n_rows = _choose(recipe, packing, split, rows)
    batch = objective.prepare(chosen)
    shown = [_row(text.tokenizer, chosen, batch, row, number) for row, number in enumerate(numbers)]
    sees = _sees(recipe, split)
    result = {"split": split, "objective": recipe.objective.kind, "pack": recipe.data.pack, "sees": sees, "n_rows": n_rows, "rows": shown}
    head = f"{split}, {recipe.objective.kind}, pack {recipe.data.pack}: {sees}"
    console.answer("\n\n".join([head, *(_table(row, n_rows) for row in shown)]), result=result)


@app.command("stats")
@command
def stats(console: Console, arguments: RECIPE = None) -> None:
    """Documents, tokens, bytes, use of the vocabulary, the longest and shortest documents, what stands on both sides."""
    _, text = _open(console, arguments)
    sides = {side: _measure(store) for side, store in (("train", text.train), ("val", text.val))}
    shared = _documents(text.train) & _documents(text.val)
    result = {**sides, "vocabulary": text.tokenizer.vocabulary.size, "documents_on_both_sides": len(shared), "notes": text.notes}
    names = list(sides["train"])
    width = max(map(len, names))
    lines = [f"{'':{width}} {'train':>12} {'val':>12}"]
    lines += [f"{name:{width}} {_number(sides['train'][name]):>12} {_number(sides['val'][name]):>12}" for name in names]
    lines += [f"vocabulary: {text.tokenizer.vocabulary.size:,} tokens", f"documents on both sides: {len(shared)}"]
    console.answer("\n".join(lines), result=result)


def _open(console: Console, arguments: list[str] | None) -> "tuple[Recipe, Text]":
    from mini_tf.recipe.reading import read, split_arguments
    from mini_tf.text.opening import open_text

    recipe = read(*split_arguments(arguments or [])).recipe
    text = open_text(recipe.data, recipe.tokenizer, console.say, recipe.objective.TOKENS)
    for note in text.notes:
        console.say(note)
    return recipe, text


def _sees(recipe: "Recipe", split: str) -> str:
    """Who sees whom, in words: the direction, the borders, and what a mixer of the stack leaves out of that."""
    from mini_tf.recipe.recipe import SIDES

    mixers = getattr(recipe.model, "attention", ())
    near = {mixer.kind: f"at most {mixer.window} tokens away" for mixer in mixers if hasattr(mixer, "window")}
    border = "its row" if recipe.data.pack != "docs" else "its document within the row"
    before = ", and earlier rows of the stream" if recipe.train.stream and split == "train" else ""
    words = f"each token sees {SIDES[recipe.model.READS]} and itself, in {border}{before}"
    layers = [f"{mixer.kind}: {near.get(mixer.kind, 'all of these')}" for mixer in mixers]
    return f"{words} ({', then '.join(dict.fromkeys(layers))})" if near else words


def _choose(recipe: "Recipe", packing: "Packing", split: str, n: int) -> "tuple[list[int], Rows, int]":
    """The numbers (from 0) of the first `n` rows that are read, the rows, and how many there are of them."""
    from mini_tf.training.plan import plan_of

    if split == "val":
        found = next(iter(packing.eval_rows(n)))
        windows = -(-(len(packing.store) - packing.lookahead) // packing.context)
        return list(range(len(found))), found, packing.n_rows if packing.pack == "none" else windows
    step = plan_of(recipe.train, packing).rows(0)
    first = step.epochs == step.epochs[0]
    numbers = step.rows[first][:n]
    return [int(i) for i in numbers], packing.take(numbers, int(step.epochs[0]), step.keys[first][:n]), packing.n_rows


def _row(tokenizer: "Tokenizer", rows: "Rows", batch: "Batch", row: int, number: int) -> dict[str, Any]:
    """One row of a batch in words: for each place what is read, in which document, and what is asked there."""
    import numpy as np

    inputs = batch.inputs.ids.numpy()
    length = inputs.shape[1]
    asked = np.full(inputs.size, -1)
    asked[np.arange(inputs.size) if batch.at is None else batch.at.numpy()] = batch.labels.numpy()
    documents = np.ones(length, int) if rows.segments is None else rows.segments[row, :length]
    read, there, wanted = inputs[row], rows.ids[row, :length], asked.reshape(inputs.shape)[row]
    places = [
        {
            "place": place,
            "document": int(documents[place]),
            "id": int(read[place]),
            "reads": tokenizer.pieces(read[place : place + 1])[0],
            "target": tokenizer.pieces(wanted[place : place + 1])[0] if wanted[place] >= 0 else None,
            "replaced": tokenizer.pieces(there[place : place + 1])[0] if read[place] != there[place] else None,
        }
        for place in range(length)
        if documents[place]
    ]
    return {"row": number, "padding": length - len(places), "places": places}


def _table(row: dict[str, Any], n_rows: int) -> str:
    lines = [
        f"row {row['row']} of {n_rows} (counted from 0): {len(row['places'])} tokens"
        + (f" and {row['padding']} of padding" if row["padding"] else "")
    ]
    lines += [f"{'place':>7} {'document':>8}  {'reads':<20} {'is asked for':<20} {'original':<20}".rstrip()]
    for place in row["places"]:
        cells = ["" if place[name] is None else repr(place[name]) for name in ("reads", "target", "replaced")]
        lines.append(f"{place['place']:>7} {place['document']:>8}  {cells[0]:<20} {cells[1]:<20} {cells[2]:<20}".rstrip())
    return "\n".join(lines)


def _measure(store: "TokenStore") -> dict[str, float]:
    import numpy as np

    ends = np.append(store.starts[1:], len(store) - store.separated)
    lengths = ends - store.starts - store.separated
    used = np.bincount(store.ids, minlength=store.vocabulary.size) > 0
    unknown = 0 if store.vocabulary.unk is None else int((store.ids == store.vocabulary.unk).sum())
    return {
        "documents": store.n_documents,
        "tokens": len(store),
        "bytes": store.raw_bytes,
        "tokens_per_byte": len(store) / store.raw_bytes,
        "different_tokens": int(used.sum()),
        "unknown_tokens": unknown,
        "shortest_document": int(lengths.min()),
        "median_document": float(np.median(lengths)),
        "longest_document": int(lengths.max()),
    }


def _documents(store: "TokenStore") -> set[bytes]:
    """The documents of one side, each as a hash of its ids."""
    import hashlib

    return {hashlib.blake2b(store.document(n).tobytes(), digest_size=16).digest() for n in range(store.n_documents)}


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
