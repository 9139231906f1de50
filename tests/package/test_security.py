"""What may not happen whatever is read: no code runs, no process starts, no connection opens, nothing is written
elsewhere.

One process trains, generates, evaluates and looks inside on hostile files under an audit hook (tests/audited.py); the
lint below it holds the source to the same, where an audit could miss what these inputs do not reach.
"""

import ast
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import DATA, EXACT, ROOT
from hostile import HOSTILE
from kind_questions import nodes_of, parsed
from test_architecture import FILES, PACKAGE, all_imports, calls_of

from mini_tf.system.cache import cache_folder, cache_path, redirect_library_caches

OURS_AND_DEPENDENCIES = {
    "mini_tf",
    *("torch", "functorch", "torchgen", "numpy", "sympy", "mpmath", "networkx", "filelock", "fsspec", "triton"),
    *(
        "safetensors",
        "tokenizers",
        "huggingface_hub",
        "yaml",
        "_yaml",
        "tqdm",
        "pydantic",
        "pydantic_core",
        "annotated_types",
    ),
    *(
        "typing_extensions",
        "typing_inspection",
        "typer",
        "click",
        "annotated_doc",
        "rich",
        "markdown_it",
        "mdurl",
        "pygments",
        "shellingham",
    ),
    *(
        "matplotlib",
        "mpl_toolkits",
        "PIL",
        "kiwisolver",
        "cycler",
        "pyparsing",
        "packaging",
        "dateutil",
        "six",
        "contourpy",
        "fontTools",
    ),
    *("jaxtyping", "wadler_lindig", "pyarrow", "pylab"),
    *("sacrebleu", "portalocker", "regex", "tabulate", "colorama", "lxml", "cython_runtime"),
    *("rouge_score", "nltk", "absl", "seqeval", "sklearn", "scipy", "joblib", "threadpoolctl", "psutil"),
    *("cloudpickle", "charset_normalizer", "narwhals", "defusedxml"),
    *(
        "Cython",
        "cython",
        "opt_einsum",
        "pandas",
        "pynvml",
        "dill",
        "wcwidth",
    ),  # which these import where they happen to be installed
}
PROBE = re.compile(rf"{re.escape(tempfile.gettempdir())}/[a-z0-9_]{{8}}")
"""With such a file, removed at once, Python asks whether the folder can be written to, for dill (see above)."""
EVIL = "evil_of_the_input"
"""Stands in every hostile file: no compiled text and no imported name may have it."""


class Audit(NamedTuple):
    """The folder in which the commands ran, and what tests/audited.py says of them."""

    folder: Path
    report: dict[str, Any]

    def strays(self) -> list[str]:
        """What was written or changed outside the run folders, the cache and the folder for -o."""
        allowed = [str(self.folder.resolve() / name) for name in ("runs", "cache", "made")]
        return [
            path
            for path in self.report["changed"]
            if path != os.devnull
            and not PROBE.fullmatch(path)
            and not any(path == place or path.startswith(place + os.sep) for place in allowed)
        ]


def audit(folder: Path, *commands: list[str]) -> Audit:
    """Run commands in `folder`, with an empty home and an empty cache."""
    for name in ("home", "runs", "made"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "commands.json").write_text(json.dumps(commands))
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    environment = {
        **kept,
        "HOME": str(folder / "home"),
        "MINITF_CACHE": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    line = [sys.executable, str(ROOT / "tests" / "audited.py"), "commands.json", "report.json"]
    done = subprocess.run(
        line, cwd=folder, env=environment | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    report = json.loads((folder / "report.json").read_text())
    report["stdout"], report["stderr"] = done.stdout.decode(), done.stderr.decode()
    return Audit(folder, report)


class _Sentinel:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def hostile_files(folder: Path) -> None:
    """Texts, tables, tokenizers, recipes and modules as somebody would lay them who wants his code to be run."""
    code = f"import os\nos.mkdir({str(folder / 'ran')!r})\n"
    for name in (EVIL, "antigravity", "sitecustomize", "modeling_x", "tokenization_x", "conftest", "window"):
        (folder / f"{name}.py").write_text(code)
    texts = [f"{text} {EVIL} {{{{ ''.__class__.__mro__ }}}} !!python/object:os.system" for text in HOSTILE]
    corpus = "\n\n".join(texts).replace("\0", "").encode(errors="replace") * 4
    (folder / "corpus.txt").write_bytes(corpus + (DATA / "tiny.txt").read_bytes()[:6000])
    rows = [
        {"text": text.encode(errors="replace").decode(), "__reduce__": EVIL, "__import__": "os"} for text in texts * 2
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [(f"{text} {EVIL}", f"{EVIL} {text[::-1]}") for text in HOSTILE if text.strip()]
    pairs = [tuple("".join(side.splitlines()).encode(errors="replace").decode() for side in pair) for pair in pairs]
    rows = [{"source": a, "target": b, "alignment": "0-0", "__reduce__": EVIL} for a, b in pairs]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for side in range(2):
        (folder / f"side{side}.txt").write_text("".join(f"{pair[side]}\n" for pair in pairs).replace("\0", ""))
    labels = (EVIL, f"../../{EVIL}\x1b]0;x\x07", "{{ ''.__class__ }} !!python/object:os.system")
    rows = [{"text": text, "label": label, "__reduce__": EVIL} for text, _ in pairs for label in labels]
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(
        json.dumps({"data": {"train": "labels.jsonl"}, "objective": "classify", "train": {"steps": 3}})
    )
    for name in ("model.pt", "pickled.txt", "tokenizer.pkl"):
        (folder / name).write_bytes(pickle.dumps(_Sentinel(), 2))
    foreign_tokenizer(folder / "foreign")
    words = {"antigravity": "model.attention.kind", f"../../{EVIL}": "model.kind", f"{EVIL}.Adam": "optimizer.kind"}
    for number, (word, key) in enumerate(words.items()):
        section, _, rest = key.partition(".")
        tree: Any = word
        for part in reversed(rest.split(".")):
            tree = {part: tree}
        (folder / f"word{number}.yaml").write_text(json.dumps({"data": {"train": "corpus.txt"}, section: tree}))
    (folder / "tag.yaml").write_text(f"data: !!python/object/apply:os.mkdir ['{folder / 'ran'}']\n")
    (folder / "class.yaml").write_text(f"model: {{_target_: {EVIL}.Model, trust_remote_code: true}}\n")


def foreign_tokenizer(folder: Path) -> None:
    """A working tokenizer.json, and beside it what some loaders would run."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({one: number for number, one in enumerate(alphabet)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(
        [AddedToken("</s>", special=True), AddedToken(f"{{{{ {EVIL} }}}}\x1b]0;x\x07", special=True)]
    )
    folder.mkdir()
    inner.save(str(folder / "tokenizer.json"))
    auto = {
        "auto_map": {"AutoTokenizer": ["tokenization_x.T", None], "AutoModel": f"{EVIL}.Model"},
        "trust_remote_code": True,
    }
    template = "{% for x in ''.__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}" + EVIL
    (folder / "tokenizer_config.json").write_text(json.dumps({**auto, "chat_template": template, "eos_token": "</s>"}))
    (folder / "config.json").write_text(json.dumps({**auto, "architectures": [EVIL]}))
    (folder / "tokenization_x.py").write_text("import os\nos.mkdir('ran')\n")


TINY_MODEL = ("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "train.batch_size=4", "train.context=32")
SHORT = ("train.batch_size=4", "train.context=32", "runtime.compile=false", *EXACT)
QUICK = (*TINY_MODEL, "train.steps=3", "log.samples=1", "generate.max_new_tokens=8", "runtime.compile=false", *EXACT)
TRANSLATION = (
    "model={kind: encoder_decoder, d_model: 16, n_layers: 1, n_heads: 2}",
    *(
        "train.batch_size=4",
        "train.context=32",
        "train.steps=3",
        "eval.every_steps=2",
        "eval.translations=2",
        "generate.max_new_tokens=8",
    ),
    *("runtime.compile=false", *EXACT),
)
WORKS: list[list[str]] = [
    ["pretrain", "data.train=corpus.txt", "tokenizer.kind=byte", *QUICK, "-d", "runs/text"],
    ["pretrain", "data.train=rows.jsonl", "tokenizer={path: foreign/tokenizer.json}", *QUICK, "-d", "runs/rows"],
    ["evaluate", "runs/text", "--data", "rows.jsonl"],
    ["generate", "runs/rows", f"{{{{ {EVIL} }}}}", "\x1b]0;x\x07", "--max-new-tokens", "4"],
    ["inspect", "attention", "runs/text", "a\x1b[31m b", "-o", "made/a.png", "-o", "made/a.json", "-o", "made/a.svg"],
    ["inspect", "word", "runs/text", "a", "a b", "b a", "-o", "made/w.png"],
    ["inspect", "tokens", "runs/rows", f"{EVIL} \u202e"],
    ["inspect", "model", "runs/text"],
    [
        "pretrain",
        "data={train: pairs.jsonl, fields: {source: source, target: target}}",
        "tokenizer.kind=byte",
        *TRANSLATION,
        "-d",
        "runs/pairs",
    ],
    ["evaluate", "runs/pairs"],
    ["evaluate", "runs/pairs", "--data", "{source: side0.txt, target: side1.txt}"],
    ["generate", "runs/pairs", f"{{{{ {EVIL} }}}}", "\x1b]0;x\x07", "--n-best", "2"],
    ["inspect", "attention", "runs/pairs", "a\x1b[31m b", "-o", "made/p.png"],
    ["finetune", "task.yaml", "model={kind: decoder, init_from: runs/text}", *SHORT, "-d", "runs/task"],
    ["evaluate", "runs/task", "--data", "labels.jsonl", "--confusion", "made/c.png", "--calibration", "made/c.svg"],
    ["predict", "runs/task", "-i", "labels.jsonl", "--assert", "accuracy>=0"],
    ["predict", "runs/task", f"a {{{{ {EVIL} }}}} \x1b]0;x\x07"],
    ["inspect", "align", "runs/pairs", "-o", "made/l.png", "-o", "made/l.json"],
    [
        "cost",
        "data.train={kind: world-translation, n_documents: 20}",
        "tokenizer.kind=byte",
        *TRANSLATION,
        *("--seconds", "0"),
    ],
    ["runs", "list", "runs"],
    ["runs", "show", "runs/rows"],
    ["data", "show", "data.train=rows.jsonl", "tokenizer={path: foreign/tokenizer.json}", "train.context=32"],
    ["data", "stats", "data.train=corpus.txt", "tokenizer.kind=byte", "train.context=32"],
    ["tokenizer", "encode", "foreign/tokenizer.json", EVIL],
    ["tokenizer", "train", "data.train=corpus.txt", "tokenizer={kind: bpe, vocab_size: 300}", "-o", "made/t.json"],
    ["doctor"],
]
REFUSED = {
    ("pretrain", "word0.yaml"): 3,
    ("pretrain", "word1.yaml"): 3,
    ("pretrain", "word2.yaml"): 3,
    ("pretrain", "tag.yaml"): 3,
    ("pretrain", "class.yaml"): 3,
    ("pretrain", "data.train=pickled.txt"): 4,
    ("pretrain", "data.train=model.pt"): 4,
    ("pretrain", "data.train=corpus.txt", "tokenizer={path: tokenizer.pkl}"): 4,
    ("generate", "model.pt", "x"): 5,
    ("generate", "foreign", "x"): 5,
    ("predict", "model.pt", "x"): 5,
    ("predict", "runs/task", f"{{{{ {EVIL} }}}}"): 4,
    ("predict", "runs/task", "-i", "model.pt"): 4,
    ("finetune", "task.yaml", "model={kind: decoder, init_from: model.pt}"): 3,
    ("finetune", "task.yaml", "data.train=pickled.txt", "model={kind: decoder, init_from: runs/text}"): 4,
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    folder = tmp_path_factory.mktemp("audit")
    hostile_files(folder)
    return audit(folder, *WORKS, *map(list, REFUSED))


def test_hostile_files_are_worked_on_or_refused_and_never_run(audited: Audit) -> None:
    outcome = dict(zip([*map(tuple, WORKS), *REFUSED], audited.report["codes"], strict=True))
    assert outcome == {**{tuple(line): 0 for line in WORKS}, **REFUSED}, audited.report["stderr"]
    assert not (audited.folder / "ran").exists()


def test_only_our_own_modules_and_those_of_our_dependencies_are_imported(audited: Audit) -> None:
    """What a library looks for and does not find here is no module; what an input names is not even looked for."""
    modules = audited.report["modules"]
    assert {"sacrebleu", "portalocker"} <= modules.keys()
    found = {name.partition(".")[0] for name in audited.report["imports"] if name in modules}
    made = ("_sysconfigdata", "_cython_")  # while Python, or Cython, was built
    strange = {name for name in found - OURS_AND_DEPENDENCIES - sys.stdlib_module_names if not name.startswith(made)}
    assert strange == set()
    assert [name for name, file in modules.items() if file.startswith(str(audited.folder))] == []
    named = (EVIL, "antigravity", "modeling_x", "tokenization_x", "conftest", "sitecustomize")
    assert [name for name in audited.report["imports"] if any(word in name for word in named)] == []


def test_no_process_is_started_and_no_connection_opened(audited: Audit) -> None:
    assert audited.report["processes"] == []
    assert audited.report["network"] == []


def test_nothing_is_written_outside_the_run_folders_the_cache_and_the_named_files(audited: Audit) -> None:
    assert audited.strays() == []
    assert {path.name for path in (audited.folder / "home").iterdir()} <= {
        ".nv"
    }  # which NVIDIA's driver makes where there is one
    assert {path.name for path in (audited.folder / "made").iterdir()} == {
        *("a.png", "a.json", "a.svg", "w.png", "t.json", "p.png", "l.png", "l.json", "c.png", "c.svg")
    }


def test_no_text_of_an_input_becomes_code(audited: Audit) -> None:
    """Libraries compile texts of their own when they are imported (dataclasses, for one); we compile none."""
    code = audited.report["code"]
    assert [one for one in code if one.startswith(("pickle.", "marshal."))] == []
    assert [one for one in code if f"by {PACKAGE}{os.sep}" in one or EVIL in one] == []
    # cloudpickle is imported by joblib, as scikit-learn imports that, and dill by torch where it is installed, which
    # datasets needs; above, nothing was unpickled.
    assert {"jinja2", "transformers", "datasets"} & set(audited.report["modules"]) == set()


def test_no_library_is_loaded_but_torchs_own_and_the_program_itself(audited: Audit) -> None:
    drivers = ("libnvidia", "libcuda", "libnv")  # of torch's builds for NVIDIA's GPUs
    loaded = [name for name in audited.report["loaded"] if name != "None" and "site-packages" not in name]
    assert [name for name in loaded if not name.startswith(drivers)] == []


@pytest.mark.slow
def test_with_compile_on_the_only_process_is_the_compiler_and_its_cache_is_ours(tmp_path: Path) -> None:
    """torch starts it, this Python to see whether what it compiled can be loaded, and openssl for a hash of its
    headers.
    """
    hostile_files(tmp_path)
    line = [
        "pretrain",
        "data.train=corpus.txt",
        "tokenizer.kind=byte",
        *QUICK,
        "runtime.compile=true",
        "-d",
        "runs/text",
    ]
    seen = audit(tmp_path, line)
    assert seen.report["codes"] == [0], seen.report["stderr"]
    programs = {Path(program).name for _, program, *_ in seen.report["processes"]}
    assert programs - {Path(sys.executable).name, "openssl"} == {"clang++" if sys.platform == "darwin" else "g++"}
    assert seen.strays() == []
    assert seen.report["network"] == []


def test_the_cache_of_libraries_lies_in_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "here"))
    names = ("MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")
    for name in names:
        monkeypatch.setenv(name, "/elsewhere")
    redirect_library_caches()
    assert [name for name in names if os.environ[name] == "/elsewhere"] == [
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
    ]
    for name in names[1:3]:
        monkeypatch.delenv(name)
    redirect_library_caches()
    places = [Path(os.environ[name]) for name in names]
    assert all(place.is_relative_to(cache_path()) for place in places)
    assert not (tmp_path / "here").exists()
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert tempfile.gettempdir() != str(tmp_path / "here")  # asked for too early
    assert cache_folder() == cache_path() == tmp_path / "here"
    assert tempfile.gettempdir() == str(tmp_path / "here")
    monkeypatch.delenv("MINITF_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == cache_path() == tmp_path / ".cache" / "minitf"


FORBIDDEN = {
    *("jinja2", "zipfile", "tarfile", "bz2", "lzma", "zlib", "zstandard", "py7zr", "rarfile"),
    *("urllib", "http", "ssl", "requests", "httpx", "fsspec", "ftplib", "smtplib", "xmlrpc"),
    *("pty", "runpy", "pkgutil", "imp", "joblib", "torch.hub", "torch.package", "torch.multiprocessing"),
}
ALONE = {
    "multiprocessing": {"jobs/forked_run.py"},  # forks, to which nothing is sent
    # imports by a word that stands in a listing, or in the table of commands; finds folders and reads metadata; looks
    # again at what is installed
    "importlib": {"recipe/kinds.py", "recipe/kind_folders.py", "testing/kinds.py", "cli/terminal/help.py"},
    "gzip": {"drawing/pages.py"},  # packs the numbers of a page, which a browser unpacks
    "ctypes": {"training/machine/malloc.py"},  # asks glibc to keep freed memory
    # whether rank 0, or torchrun, is there; `minitf serve`, on 127.0.0.1
    "socket": {"system/processes.py", "serving/listening.py"},
    # keeps matplotlib from starting any; --nproc starts this program; a contract for developers, who call it themselves
    # the code of a model, which was just written, runs where there is no minitf
    "subprocess": {
        *("drawing/plotting.py", "parallel/launching.py", "testing/kinds.py"),
        "hf/formats/code.py",
    },
    "huggingface_hub": {"system/hub.py"},  # models by the name hf:ORG/NAME, which a user wrote
    "datasets": {"data/formats/hub_datasets.py"},  # data by that name; from version 4 on it has no scripts
    "sentencepiece": {"data/tokenization/sentencepiece_models.py"},  # the form of its files, for protobuf to parse
    # the other side of a proof, if it is installed; what exported code has for it, which minitf itself never calls
    "transformers": {
        *("hf/proof.py", "hf/formats/_code/fresh_reader.py"),
        "hf/formats/_code/transformer_classes.py",
    },
}
"""Modules that one file may import, and for what."""
CALLS = {
    *(
        "os.system",
        "os.popen",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawnv",
        "os.spawnl",
        "os.execv",
        "os.execvp",
        "os.execl",
    ),
    *("subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.getoutput"),
    *(
        "yaml.load",
        "yaml.full_load",
        "yaml.unsafe_load",
        "yaml.load_all",
        "yaml.Loader",
        "yaml.FullLoader",
        "yaml.UnsafeLoader",
    ),
    *(
        "torch.load",
        "torch.save",
        "torch.hub",
        "torch.jit.load",
        "torch.export.load",
        "torch.package",
        "np.load",
        "numpy.load",
    ),
    *(
        "np.fromfile",
        "shutil.unpack_archive",
        "shutil.make_archive",
        "importlib.reload",
        "__import__",
        "eval",
        "exec",
        "compile",
    ),
}


def test_modules_that_open_archives_connections_or_processes_are_not_imported() -> None:
    def is_forbidden(module: str) -> bool:
        return any(module == name or module.startswith(name + ".") for name in FORBIDDEN)

    assert [str(one) for one in all_imports() if is_forbidden(one.module)] == []


@pytest.mark.parametrize("module", ALONE)
def test_some_modules_are_for_one_file_alone(module: str) -> None:
    where = {one.file.relative_to(PACKAGE).as_posix() for one in all_imports() if one.module.split(".")[0] == module}
    assert where == ALONE[module]


def test_importlib_imports_only_kinds_that_were_found_in_a_listing() -> None:
    tree = parsed(PACKAGE / "recipe" / "kinds.py")
    using = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "importlib.import_module" in ast.unparse(node)
    ]
    assert [function.name for function in using] == [
        "settings_of",
        "added_module",
    ]  # the second: of papers and packages, by its listing
    first = using[0].body[1]  # behind the docstring
    assert ast.unparse(first).startswith("if word not in listing(package):\n    raise ValueError")


PROOF = PACKAGE / "hf" / "proof.py"
LAUNCHER = PACKAGE / "parallel" / "launching.py"
KINDS = PACKAGE / "testing" / "kinds.py"
OWN_CODE = PACKAGE / "hf" / "formats" / "_code"
STARTS = {
    LAUNCHER: {"subprocess.Popen"},
    KINDS: {"subprocess.run"},
    OWN_CODE.parent / "code.py": {"subprocess.run"},
}
"""What may start processes, and how: only this program itself, or a Python that reads what it just wrote."""


def test_nothing_calls_what_runs_programs_or_loads_code() -> None:
    assert [call for file in FILES for call in calls_of(file, CALLS - STARTS.get(file, set()))] == []
    assert '[sys.executable, "-m", "mini_tf", *arguments]' in LAUNCHER.read_text()
    keywords = [
        f"{file.relative_to(ROOT)}:{node.value.lineno}: {node.arg}"
        for file in FILES
        for node in nodes_of(file)
        if isinstance(node, ast.keyword) and node.arg in {"shell", "allow_pickle", "trust_remote_code", "weights_only"}
    ]
    assert [word.rpartition(":")[2] for word in keywords if "_code/fresh_reader.py" in word] == [" trust_remote_code"]
    assert [word for word in keywords if "_code/fresh_reader.py" not in word] == []
    methods = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in FILES
        for node in nodes_of(file)
        if isinstance(node, ast.Attribute)
        and node.attr in {"extractall", "extract", "apply_chat_template", "from_pretrained"}
        # Hugging Face's own model in the proof of an import or export: by a name of our tables, from safetensors alone.
        and not (file == PROOF and ast.unparse(node) == "made.from_pretrained")
        and file != OWN_CODE / "fresh_reader.py"  # what was just written, in a process of its own
    ]
    assert methods == []
    assert "local_files_only=True, use_safetensors=True" in PROOF.read_text()


def test_matplotlib_is_met_at_its_one_door() -> None:
    where = {
        one.file.relative_to(PACKAGE).as_posix() for one in all_imports() if one.module.split(".")[0] == "matplotlib"
    }
    assert where == {"drawing/plotting.py"}
