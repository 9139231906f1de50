"""Messages at the start of a run: machine, model, data, batch sizes, evaluations, warnings."""

from collections.abc import Iterator

from mini_tf.jobs.closing_messages import times
from mini_tf.jobs.initial import shorten
from mini_tf.jobs.parts import Parts
from mini_tf.jobs.session import Reporter
from mini_tf.recipe.recipe import Recipe
from mini_tf.scores import missing_warning, packages_of
from mini_tf.training.schedule import lr_factor


def report_start(parts: Parts, reporter: Reporter) -> None:
    """Print machine, model, data, batch sizes and evaluations of a run, and warn of likely mistakes."""
    train, data, horizon, micro = parts.recipe.train, parts.data, parts.schedule.horizon, parts.setup.micro_batch_size
    reporter.say(parts.setup.describe())
    for line in parts.sharding.describe(parts.recipe.runtime.reduce):
        reporter.say(line)
    parameters = sum(p.numel() for p in parts.model.parameters())
    reporter.say(
        f"model: {parts.recipe.model.kind}, {parameters:,} parameters, vocabulary {data.tokenizer.vocabulary.size:,}"
    )
    if additional := sum(p.numel() for p in parts.trainable.parameters()) - parameters:
        reporter.say(
            f"objective: {parts.recipe.objective.kind}, {additional:,} additional parameters, which are not part of the"
            " model"
        )
    if parts.loaded is not None:
        reporter.say(parts.loaded.describe())
        for line in parts.loaded.list_names():
            reporter.detail(line)
        if parts.loaded.warning:
            reporter.warn(parts.loaded.warning)
    trainable = sum(p.numel() for p in parts.model.parameters() if p.requires_grad)
    if trainable < parameters:
        reporter.say(f"trainable parameters: {trainable:,} of {parameters:,} ({100 * trainable / parameters:.1f} %)")
    if parts.fully_trainable is not None:
        names = [
            name for name, p in parts.model.named_parameters() if name in parts.fully_trainable and p.requires_grad
        ]
        only = "only adapter parameters are trainable"
        reporter.say(f"fully trainable beside the adapter: {shorten(names)}" if names else only)
    dataset = parts.recipe.objective.dataset()
    for line in dataset.summary(data):
        reporter.say(line)
    pipeline = parts.recipe.objective.pipeline()
    if pipeline is not None and (missing := missing_warning(*packages_of(pipeline, pipeline.METRICS))):
        reporter.say(missing)
    batch_size = parts.plan.batch_size
    size = f"{-(-batch_size // micro)} x {micro}" if micro < batch_size else f"{batch_size}"
    rows = f"at most {size} rows of similar length" if train.batch_tokens else f"{size} rows of {train.context}"
    if horizon.steps is None:
        length = f"{horizon.seconds:g} seconds"
    else:
        length = f"{horizon.steps:,} steps, {times(horizon.steps / parts.plan.epoch_steps)} epochs"
    reporter.say(f"training: {length}, {train.step_tokens:,} tokens per step ({rows})")
    for line in _words(parts):
        reporter.say(line)
    reporter.say(_evaluations(parts))
    if dataset.TRUNCATES and (cut := parts.train.n_too_long):
        reporter.warn(
            f"{cut:,} of {data.train.n_documents:,} {dataset.UNIT} are longer than train.context {train.context} and"
            " are truncated"
        )
    if parts.train.n_rows < batch_size:
        reporter.warn(
            f"the training data fill {parts.train.n_rows} row{'s' * (parts.train.n_rows != 1)}, fewer than the"
            f" {batch_size} of a batch; rows repeat within a batch"
        )
    if horizon.steps is not None and (epochs := horizon.steps / parts.plan.epoch_steps) > MANY_EPOCHS:
        reporter.warn(f"{times(epochs)} epochs: the model will memorize the training data; more data would help")
    if warning := _split_warning(parts) or _vocabulary_warning(parts):
        reporter.warn(warning)


LOW_LR = 0.5
"""--extend prints a warning if the schedule ended below this share of the peak learning rate."""


def report_extension(recipe: Recipe, reporter: Reporter) -> None:
    """Warn if --extend raises the learning rate again, and with it the loss."""
    end = lr_factor(recipe.schedule, 999, 1000)
    if end < LOW_LR:
        reporter.warn(
            f"--extend restarts the schedule ({recipe.schedule.kind}): the learning rate rises from {end:.0%} to 100%"
            " of optimizer.lr, and the loss rises with it before both fall again; a run trained with"
            " schedule.kind=constant from the start avoids this"
        )


def _words(parts: Parts) -> Iterator[str]:
    """The words of the training text, and the steps of `checkpoint.at_words`."""
    recipe, horizon, words = parts.recipe, parts.schedule.horizon, parts.data.train.words
    if recipe.train.words is None and not parts.word_steps:
        return
    read = "" if horizon.steps is None else f", about {horizon.steps * parts.words_per_step:,.0f} read in the run"
    yield f"words: {words:,} in the training text{read}"
    reached = [
        f"{n:,} after step {step:,}"
        for step, n in parts.word_steps.items()
        if horizon.steps is None or step <= horizon.steps
    ]
    missed = [f"{n:,}" for step, n in parts.word_steps.items() if horizon.steps is not None and step > horizon.steps]
    yield from [f"checkpoints by words: {', '.join(reached)}"] if reached else []
    yield from [f"not read in the run, so no checkpoint: {', '.join(missed)} words"] if missed else []


def _evaluations(parts: Parts) -> str:
    """The line on how often the run is evaluated, and on how much of the validation data."""
    horizon, count = parts.schedule.horizon, parts.evaluations.count(parts.schedule.horizon)
    if count == 1:
        return f"evaluation: at the end, on {parts.all_validation_data}"
    when = f"{count} times" if horizon.steps is None else f"every {parts.evaluations.interval(horizon.steps):,} steps"
    if parts.sample_tokens is None:
        return f"evaluation: {when}, on {parts.all_validation_data}"
    return f"evaluation: {when}, on {parts.sampled_validation_data}; at the end, on all of them"


MANY_EPOCHS = 200
"""More epochs than a small corpus is worth."""


def _split_warning(parts: Parts) -> str | None:
    """A warning if more data were held out from data.train than are left of it."""
    train, val = (split.n_tokens for split in (parts.data.train, parts.data.val))
    data = parts.recipe.data
    if data.val is not None or val <= train or not parts.recipe.objective.dataset().STREAM or data.split.share > 0.5:
        return None
    return (
        f"{val:,} tokens are validation data, and only {train:,} training data: whole documents are held out, and these"
        " differ in length; give data.val, or data.split='tail 10%', which cuts running text"
    )


MIN_TOKENS_PER_ENTRY = 20
"""Training tokens per vocabulary entry, below which most entries are too rare to learn."""


def _vocabulary_warning(parts: Parts) -> str | None:
    """A warning if the vocabulary of a newly trained tokenizer is large for the training data."""
    settings, size, tokens = parts.recipe.tokenizer, parts.data.tokenizer.vocabulary.size, parts.data.train.n_tokens
    if settings.path is not None or not settings.uses_vocab_size or tokens >= MIN_TOKENS_PER_ENTRY * size:
        return None
    fitting = max(300, round(tokens // MIN_TOKENS_PER_ENTRY, -2))
    if fitting >= size:
        return None
    limit = (
        ""
        if size >= settings.vocab_size
        else f" (tokenizer.vocab_size is {settings.vocab_size:,}, but the data yield no more)"
    )
    problem = f"a vocabulary of {size:,}{limit} is large for {tokens:,} training tokens: most entries are rare"
    return f"{problem}; try tokenizer.vocab_size={fitting}"
