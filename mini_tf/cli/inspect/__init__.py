"""`minitf inspect`: views of a trained model, one file each."""

from mini_tf.cli.inspect import (
    align,
    answers,
    attention,
    coverage,
    crash,
    memory,
    model,
    positions,
    senses,
    simple,
    softmax,
    syntax,
    word,
)
from mini_tf.cli.inspect.texts import gates, latents, replaced, spans, tokens
from mini_tf.cli.terminal.help import add, group

app = group("Views of a trained model: attention, words, positions, parameters, ...")
add(app, "inspect attention", attention.attention)
add(app, "inspect align", align.align)
add(app, "inspect coverage", coverage.coverage)
add(app, "inspect word", word.word)
add(app, "inspect syntax", syntax.syntax)
add(app, "inspect senses", senses.senses)
add(app, "inspect answers", answers.answers)
add(app, "inspect memory", memory.memory)
add(app, "inspect model", model.model)
add(app, "inspect tokens", tokens.tokens)
add(app, "inspect positions", positions.positions)
add(app, "inspect softmax", softmax.softmax)
add(app, "inspect replaced", replaced.replaced)
add(app, "inspect gates", gates.gates)
add(app, "inspect spans", spans.spans)
add(app, "inspect latents", latents.latents)
add(app, "inspect simple", simple.simple)
add(app, "inspect crash", crash.crash)
