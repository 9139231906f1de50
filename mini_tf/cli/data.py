"""`minitf data`: exactly what the model sees of a text or of pairs, and what there is in it."""

from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mini_tf.cli.console import Console, command
from mini_tf.cli.options import RECIPE

if TYPE_CHECKING:
    from mini_tf.evaluate import AnyRows
    from mini_tf.recipe.recipe import Recipe
    from mini_tf.text.batch import Batch, Rows
    from mini_tf.text.opening import AnyText
    from mini_tf.text.pair_store import PairText
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
    """The first rows of the first step, or of the held-out text: sources, inputs, targets, masked places, document borders."""
    from mini_tf.evaluate import pack

    recipe, text = _open(console, arguments)
    objective = recipe.objective.build(text.tokenizer.vocabulary, text.labels)
    packing = pack(recipe, text.train if split == "train" else text.val, text.tokenizer, objective)
    numbers, chosen, n_rows = _choose(recipe, packing, split, rows)
    batch = objective.prepare(chosen)
    shown = [_row(text.tokenizer, chosen, batch, row, number) for row, number in enumerate(numbers)]
    if chosen.source is not None:
        shown = [row | {"source": _source(text.source_tokenizer, chosen.source, n)} for n, row in enumerate(shown)]
    sees = _sees(recipe, split)
    result = {"split": split, "objective": recipe.objective.kind, "pack": packing.pack, "sees": sees, "n_rows": n_rows, "rows": shown}
    head = f"{split}, {recipe.objective.kind}, {'pairs' if recipe.data.pairs else f'pack {packing.pack}'}: {sees}"
    table = _pair_table if recipe.data.pairs else _table
    console.answer("\n\n".join([head, *(table(row, n_rows) for row in shown)]), result=result)


@app.command("stats")
@command
def stats(console: Console, arguments: RECIPE = None) -> None:
    """Documents, tokens, bytes, use of the vocabulary, the longest and shortest documents, what stands on both sides."""
    from mini_tf.text.pair_store import PairText

    recipe, text = _open(console, arguments)
    table, result = _pair_stats(text, recipe.train.context) if isinstance(text, PairText) else _stats(text)
    console.answer(table, result=result | {"notes": text.notes})


def _stats(text: "Text") -> tuple[str, dict[str, Any]]:
    """What there is in a text, as a table and as JSON says it."""
    sides = {side: _measure(store) for side, store in (("train", text.train), ("val", text.val))}
    shared, size = len(_documents(text.train) & _documents(text.val)), text.tokenizer.vocabulary.size
    lines = [*_columns(sides), f"vocabulary: {size:,} tokens", f"documents on both sides: {shared}"]
    return "\n".join(lines), {**sides, "vocabulary": size, "documents_on_both_sides": shared}


def _pair_stats(text: "PairText", context: int) -> tuple[str, dict[str, Any]]:
    """What there is in pairs, as a table and as JSON says it; a side is a text of its own, with its own vocabulary if it has one."""

    stores = {"train": text.train, "val": text.val}
    sides = {side: {role: _measure(getattr(store, role)) for role in ("source", "target")} for side, store in stores.items()}
    shared = len(_documents(text.train.source) & _documents(text.val.source))
    counts = {side: {"pairs": store.n_documents, "cut": Pairing(store, context).n_cut} for side, store in stores.items()}
    sizes = {"vocabulary": text.tokenizer.vocabulary.size, "source_vocabulary": text.source_tokenizer.vocabulary.size}
    one = text.tokenizer is text.source_tokenizer
    lines = [
        *_columns({f"{side} {role}": measured for side, roles in sides.items() for role, measured in roles.items()}),
        "pairs: " + ", ".join(f"{side} {counts[side]['pairs']:,}" for side in counts),
        f"pairs longer than train.context {context}: " + ", ".join(f"{side} {counts[side]['cut']:,}" for side in counts),
        f"vocabulary: {sizes['vocabulary']:,} tokens"
        + (" for both sides" if one else f" of the target, {sizes['source_vocabulary']:,} of the source"),
        f"sources on both sides: {shared}",
    ]
    return "\n".join(lines), {side: counts[side] | sides[side] for side in sides} | sizes | {"sources_on_both_sides": shared}


def _columns(measured: dict[str, dict[str, float]]) -> list[str]:
    """A table with a column for each of these texts."""
    names = list(next(iter(measured.values())))
    width = max(map(len, names))
    lines = [f"{'':{width}}" + "".join(f" {head:>12}" for head in measured)]
    return lines + [f"{name:{width}}" + "".join(f" {_number(numbers[name]):>12}" for numbers in measured.values()) for name in names]


def _open(console: Console, arguments: list[str] | None) -> "tuple[Recipe, AnyText]":
    from mini_tf.recipe.reading import read, split_arguments
    from mini_tf.text.opening import open_text

    recipe = read(*split_arguments(arguments or [])).recipe
    text = open_text(recipe.data, recipe.tokenizer, recipe.objective, console.say)
    for note in text.notes:
        console.say(note)
    return recipe, text


def _sees(recipe: "Recipe", split: str) -> str:
    """Who sees whom, in words: the direction, the borders, and what a mixer of the stack leaves out of that."""
    from mini_tf.recipe.recipe import SIDES

    model: Any = recipe.model
    if model.READS == "pairs":
        source = ", and its whole source" if model.cross_attention is not None else ", and nothing of the source"
        target = f"each token of a target sees what stands before it and itself{_narrowed(model.attention)}{source}"
        return f"{target}; each token of a source sees both sides and itself{_narrowed(model.source_stack.attention)}"
    border = "its row" if recipe.data.pack != "docs" else "its document within the row"
    before = ", and earlier rows of the stream" if recipe.train.stream and split == "train" else ""
    return f"each token sees {SIDES[model.READS]} and itself, in {border}{before}{_narrowed(getattr(model, 'attention', ()))}"


def _narrowed(mixers: Any) -> str:
    """What each mixer of a stack leaves out; nothing where none does."""
    near = {mixer.kind: f"at most {mixer.window} tokens away" for mixer in mixers if hasattr(mixer, "window")}
    layers = [f"{mixer.kind}: {near.get(mixer.kind, 'all of these')}" for mixer in mixers]
    return f" ({', then '.join(dict.fromkeys(layers))})" if near else ""


def _choose(recipe: "Recipe", packing: "AnyRows", split: str, n: int) -> "tuple[list[int], Rows, int]":
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
    if rows.segments is None:
        documents = np.ones(length, int)
    else:  # of pairs a target's closing separator is asked for, but not read
        documents = rows.segments[row, :length] if rows.source is None else rows.segments[row, 1:]
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


def _source(tokenizer: "Tokenizer", rows: "Rows", row: int) -> dict[str, Any]:
    """What is read of one source: its tokens, in its own vocabulary."""
    read = rows.ids[row] if rows.segments is None else rows.ids[row][rows.segments[row] != 0]
    places = [{"place": place, "id": int(id), "reads": tokenizer.pieces(read[place : place + 1])[0]} for place, id in enumerate(read)]
    return {"padding": rows.ids.shape[1] - len(places), "places": places}


def _pair_table(row: dict[str, Any], n_rows: int) -> str:
    """The source beside the target; place n of the one has nothing to do with place n of the other."""
    sides = {"source": row["source"], "target": row}
    told = [
        f"{name} {len(side['places'])} tokens" + (f" and {side['padding']} of padding" if side["padding"] else "")
        for name, side in sides.items()
    ]
    lines = [f"row {row['row']} of {n_rows} (counted from 0): {', '.join(told)}"]
    lines += [f"{'place':>7}  {'source':<20} {'reads':<20} is asked for"]
    none: dict[str, Any] = {}
    for place, (source, target) in enumerate(zip_longest(row["source"]["places"], row["places"], fillvalue=none)):
        cells = [
            "" if (cell := side.get(name)) is None else repr(cell)
            for side, name in ((source, "reads"), (target, "reads"), (target, "target"))
        ]
        lines.append(f"{place:>7}  {cells[0]:<20} {cells[1]:<20} {cells[2]}".rstrip())
    return "\n".join(lines)


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
