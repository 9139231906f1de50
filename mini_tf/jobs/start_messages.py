"""What a person wants to know before a run begins."""

from mini_tf.jobs.closing_messages import times
from mini_tf.jobs.parts import Parts
from mini_tf.jobs.session import Reporter
from mini_tf.recipe.recipe import Recipe
from mini_tf.scores import left_out, packages_of
from mini_tf.trained.initial import listed
from mini_tf.training.schedule import factor


def report_start(parts: Parts, reporter: Reporter) -> None:
    """Say what a person wants to know before a run: machine, model, text and the arithmetic of a batch."""
    train, text, horizon, micro = parts.recipe.train, parts.data, parts.schedule.horizon, parts.setup.micro_batch_size
    reporter.say(parts.setup.describe())
    parameters = sum(p.numel() for p in parts.model.parameters())
    reporter.say(f"model: {parts.recipe.model.kind}, {parameters:,} parameters, vocabulary {text.tokenizer.vocabulary.size:,}")
    if own := sum(p.numel() for p in parts.trainable.parameters()) - parameters:
        reporter.say(f"objective: {parts.recipe.objective.kind}, {own:,} parameters of its own, which are not part of the model")
    if parts.taken is not None:
        reporter.say(parts.taken.describe())
        for line in parts.taken.lists():
            reporter.detail(line)
        if parts.taken.reads:
            reporter.warn(parts.taken.reads)
    learning = sum(p.numel() for p in parts.model.parameters() if p.requires_grad)
    if learning < parameters:
        reporter.say(f"learning: {learning:,} of the parameters, the others stay as they are")
    if parts.whole is not None:
        whole = [name for name, parameter in parts.model.named_parameters() if name in parts.whole and parameter.requires_grad]
        reporter.say(f"as a whole, beside the adapter: {listed(whole)}" if whole else "nothing but the adapter learns")
    dataset = parts.recipe.objective.dataset()
    for line in dataset.summary(text):
        reporter.say(line)
    pipeline = parts.recipe.objective.pipeline()
    if pipeline is not None and (lacking := left_out(*packages_of(pipeline, pipeline.FIGURES))):
        reporter.say(lacking)
    most = parts.plan.batch_size
    passes = f"{-(-most // micro)} x {micro}" if micro < most else f"{most}"
    rows = f"at most {passes} rows of like length" if train.batch_tokens else f"{passes} rows of {train.context}"
    if horizon.steps is None:
        how_long = f"{horizon.seconds:g} seconds"
    else:
        how_long = f"{horizon.steps:,} steps, {times(horizon.steps / parts.plan.epoch_steps)} epochs"
    reporter.say(f"training: {how_long}, {train.step_tokens:,} tokens a step ({rows})")
    reporter.say(_evaluations(parts))
    if dataset.CUTS and (cut := parts.train.n_longer):
        reporter.warn(
            f"{cut:,} of {text.train.n_documents:,} {dataset.UNIT} are longer than train.context {train.context} and are cut there"
        )
    if parts.train.n_rows < most:
        reporter.warn(f"the text fills {parts.train.n_rows} rows, fewer than the {most} of one step; rows repeat within a step")
    if told := _vocabulary(parts):
        reporter.warn(told)


RISES = 0.5
"""Of the top rate, what a schedule ended under if running it once more is to be warned of."""


def report_extension(recipe: Recipe, reporter: Reporter) -> None:
    """Say what further steps will do to the loss where the learning rate had fallen, and rises again with them."""
    end = factor(recipe.schedule, 999, 1000)
    if end < RISES:
        reporter.warn(
            f"--extend runs the schedule ({recipe.schedule.kind}) once more: the learning rate rises from {end:.0%} of optimizer.lr to all "
            "of it, and the loss with it, before both fall again; with schedule.kind=constant, from the start, a run goes on as it was"
        )


def _evaluations(parts: Parts) -> str:
    """When the run is evaluated, and on how much of the held-out text."""
    horizon, count = parts.schedule.horizon, parts.evaluations.count(parts.schedule.horizon)
    all_of, few = f"all {parts.held_out_tokens:,} validation tokens", parts.sample_size
    if count == 1:
        return f"evaluation: at the end, on {all_of}"
    when = f"{count} times" if horizon.steps is None else f"every {parts.evaluations.every(horizon.steps):,} steps"
    if parts.sample_tokens is None:
        return f"evaluation: {when}, on {all_of}"
    return f"evaluation: {when}, on a fixed sample of {few:,} of {parts.held_out_tokens:,} validation tokens; at the end, on all of them"


RARE = 20
"""Tokens of text for each entry of the vocabulary, below which most of them are seen too rarely to be learnt."""


def _vocabulary(parts: Parts) -> str | None:
    """What is to be said where a tokenizer was trained here with more tokens than the text bears."""
    settings, size, tokens = parts.recipe.tokenizer, parts.data.tokenizer.vocabulary.size, len(parts.data.train)
    if settings.path is not None or not settings.uses_vocab_size or tokens >= RARE * size:
        return None
    fitting = max(300, round(tokens // RARE, -2))
    if fitting >= size:
        return None
    asked = "" if size >= settings.vocab_size else f" (tokenizer.vocab_size is {settings.vocab_size:,}, but the text yields no more)"
    return f"a vocabulary of {size:,}{asked} is large for {tokens:,} training tokens: most are rare; try tokenizer.vocab_size={fitting}"
