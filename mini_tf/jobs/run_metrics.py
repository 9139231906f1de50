"""The metrics of a trained model on data, with those of generated texts and of baselines: `minitf evaluate`."""

from mini_tf.data.store import Store
from mini_tf.jobs import baselines
from mini_tf.jobs.messages import Reporter
from mini_tf.parallel.group import ProcessGroup
from mini_tf.pipelines import PredictOptions, TextsWithReferences, pipeline_of
from mini_tf.recipe.metrics import metrics_of
from mini_tf.scores import can_measure, missing_warning, packages_of
from mini_tf.system.numbers import counted
from mini_tf.system.progress import show_progress
from mini_tf.trained.evaluating import decision_notes, evaluation_data
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import pack


class RunMetrics:
    """Measures a trained model. notes: what is to be known about the metrics, which the reporter is told, too.

    metrics: those of the model, with signatures, by name. accumulator: of the pipeline, with all predictions.
    """

    def __init__(self, trained: Trained, reporter: Reporter, options: PredictOptions = PredictOptions()) -> None:
        self.trained, self.reporter = trained, reporter
        self.pipeline = pipeline_of(trained).with_options(options)
        self.accumulator = self.pipeline.metric_accumulator()
        self.metrics: dict[str, float | str] = {}
        self.notes: list[str] = []
        self.split = "val"

    def measure(self, data: str | None, split: str | None, fields: str | None, group: ProcessGroup) -> None:
        """The metrics on `data`, in the syntax of data.train, else on a split of the run's own data; collective.

        fields: column names of `data` in the syntax of data.fields.
        """
        self._say_missing()
        self.split, self._of_training = "data" if data is not None else split or "val", split == "train"
        self.store = self._data(data, split or "val", fields, group)
        scores = self.pipeline.evaluate(self.trained, self.store, self.accumulator, group)
        written, signatures = self._written(group)
        self._scores = scores | written
        self.metrics = {**self._scores, "split": self.split, **signatures}

    def with_baselines(self) -> dict[str, float | str]:
        """`metrics` with those of the baselines and the name of the best one, which is said beside the model's.

        There are none on training data.
        """
        if self._of_training:
            return self.metrics
        measured = baselines.baselines_of_trained(self.trained, self.store, self.reporter.detail)
        for line in measured.lines(self._scores):
            self.reporter.say(line)
        name = measured.name(self._scores)
        return {**self.metrics, **measured.metrics(self._scores), **({baselines.NAME: name} if name else {})}

    def _say_missing(self) -> None:
        """Say which packages are missing for some of the metrics."""
        objective = self.trained.recipe.objective
        if note := missing_warning(*packages_of(objective.pipeline(), metrics_of(objective))):
            self.reporter.say(note)

    def _note(self, note: str) -> None:
        self.reporter.say(note)
        self.notes.append(note)

    def _data(self, data: str | None, split: str, fields: str | None, group: ProcessGroup) -> Store:
        notes: list[str] = []
        with group.local_rank_0_first():
            store = evaluation_data(self.trained, data, split, self.reporter.detail, fields, notes.append)
        stream = "train.stream: a row begins with the state of the row before, so each process evaluates all rows"
        if self.trained.recipe.train.stream and group.several(stream):
            self.reporter.say(stream)
        for note in [*notes, *self._cut(store), *decision_notes(self.trained, data is None and not self._of_training)]:
            self._note(note)
        return store

    def _cut(self, store: Store) -> list[str]:
        """A note on examples that are longer than the context."""
        recipe, context = self.trained.recipe, self.trained.model.context
        dataset = recipe.objective.dataset()
        if not dataset.TRUNCATES:
            return []
        n_cut = pack(recipe, store, self.trained.tokenizer, self.trained.objective, context).n_too_long
        note = f"of {store.n_documents:,} {dataset.UNIT} are longer than the model's context of {context} tokens"
        return [f"{n_cut:,} {note} and are truncated"] if n_cut else []

    def _written(self, group: ProcessGroup) -> tuple[dict[str, float], dict[str, str]]:
        """Metrics of generated texts and their signatures; {} where the task generates none with references."""
        settings = self.trained.recipe.objective.pipeline()
        if settings is None or not can_measure(settings.GENERATION_METRICS):
            return {}, {}
        with show_progress(f"generating {counted(self.store.n_documents, 'text')} to score"):
            texts = [*self.pipeline.generate_with_references(self.store, group=group)]

            def each() -> TextsWithReferences:
                return iter(texts)

            def measured() -> tuple[list[str], dict[str, float], dict[str, str]]:
                pipeline = self.pipeline
                return [*pipeline.zero_notes(each())], pipeline.scores(each()), pipeline.signatures(each())

            zero_notes, scores, signatures = group.on_rank_0(measured)
        for note in zero_notes:
            self._note(note)
        return scores, signatures
