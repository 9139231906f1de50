"""A row in words: for each place what is read there, and what is asked."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from mini_tf.data.batch import Batch, Rows
    from mini_tf.data.labels import Labels
    from mini_tf.data.tokenization.tokenizer import Tokenizer


def asked_of(tokenizer: "Tokenizer", rows: "Rows", batch: "Batch", row: int, number: int) -> dict[str, Any]:
    """One row of a batch in words: for each place what is read, in which document, and what is asked there."""
    import numpy as np

    inputs = batch.inputs.ids.numpy()
    length = inputs.shape[1]
    asked = np.full(inputs.size, -1)
    asked[np.arange(inputs.size) if batch.at is None else batch.at.numpy()] = batch.labels.numpy()
    if rows.segments is None:
        documents = np.ones(length, int)
    else:  # of pairs and conversations the closing separator is asked for, but not read
        closes = rows.source is not None or rows.labels is not None
        documents = rows.segments[row, 1:] if closes else rows.segments[row, :length]
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


def read_of(tokenizer: "Tokenizer", rows: "Rows", row: int) -> dict[str, Any]:
    """What is read of one source: its tokens, in its own vocabulary."""
    read = rows.ids[row] if rows.segments is None else rows.ids[row][rows.segments[row] != 0]
    places = [{"place": place, "id": int(id), "reads": tokenizer.pieces(read[place : place + 1])[0]} for place, id in enumerate(read)]
    return {"padding": rows.ids.shape[1] - len(places), "places": places}


def labelled(tokenizer: "Tokenizer", labels: "Labels", rows: "Rows", read: "np.ndarray", row: int) -> dict[str, Any]:
    """One row of an example: `target` is the class, the number or the tag, where it is asked for. read: its ids as training reads them."""
    import numpy as np

    assert rows.labels is not None
    there = rows.ids[row] if rows.segments is None else rows.ids[row][rows.segments[row] != 0]
    places = [
        {
            "place": place,
            "id": int(read[place]),
            "reads": tokenizer.pieces(read[place : place + 1])[0],
            "target": None if np.isnan(asked) else _label(float(asked), labels),
            "replaced": tokenizer.pieces(there[place : place + 1])[0] if read[place] != there[place] else None,
        }
        for place, asked in enumerate(rows.labels[row, : len(there)])
    ]
    return {"padding": rows.ids.shape[1] - len(places), "places": places}


def _label(stored: float, labels: "Labels") -> str | float:
    """A class by its name; a number in its own unit, as far as its single precision goes."""
    return labels.names[int(stored)] if labels.names else float(f"{stored * labels.scale + labels.mean:.6g}")
