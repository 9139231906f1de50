"""`minitf inspect`: views of a trained model, one file each, here or in `cli/inspect` of a paper."""

from mini_tf.cli.examples import EXAMPLES
from mini_tf.cli.inspect import (
    align,
    answers,
    attention,
    coverage,
    crash,
    model,
    positions,
    senses,
    softmax,
    syntax,
    tokens,
    word,
)
from mini_tf.cli.terminal.help import add, group
from mini_tf.recipe.kinds import command_modules

app = group("Views of a trained model: attention, words, positions, parameters, ...")
add(app, "inspect attention", attention.attention)
add(app, "inspect align", align.align)
add(app, "inspect coverage", coverage.coverage)
add(app, "inspect word", word.word)
add(app, "inspect syntax", syntax.syntax)
add(app, "inspect senses", senses.senses)
add(app, "inspect answers", answers.answers)
add(app, "inspect model", model.model)
add(app, "inspect tokens", tokens.tokens)
add(app, "inspect positions", positions.positions)
add(app, "inspect softmax", softmax.softmax)
add(app, "inspect crash", crash.crash)
for view, module in command_modules("inspect").items():
    EXAMPLES[f"inspect {view}"] = module.EXAMPLES
    add(app, f"inspect {view}", getattr(module, view))
