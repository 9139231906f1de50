"""Models of Hugging Face's hub by name, through its own client: its cache, its offline mode and its tokens apply."""

import re
from pathlib import Path

from mini_tf.system.errors import Unavailable, UsageFault

PREFIX = "hf:"
"""What a name begins with: hf:org/name."""
DATASETS = {
    "ag_news": "fancyzhx/ag_news",
    "alpaca": "tatsu-lab/alpaca",
    "c4": "allenai/c4/en",
    "cnn_dailymail": "abisee/cnn_dailymail/3.0.0",
    "dolly": "databricks/databricks-dolly-15k",
    "fineweb": "HuggingFaceFW/fineweb/sample-10BT",
    "fineweb_edu": "HuggingFaceFW/fineweb-edu/sample-10BT",
    "imdb": "stanfordnlp/imdb",
    "openwebtext": "Skylion007/openwebtext",
    "sst2": "nyu-mll/glue/sst2",
    "tinystories": "roneneldan/TinyStories",
    "wikitext": "Salesforce/wikitext/wikitext-103-raw-v1",
    "wikitext_103": "Salesforce/wikitext/wikitext-103-raw-v1",
    "wikitext_2": "Salesforce/wikitext/wikitext-2-raw-v1",
}
"""Data sets of the hub that people call by another name, for suggestions only."""
_REPOSITORY = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", re.ASCII)
_FAMILIES = "gpt|bert|t5|bart|pythia|opt|llama|qwen|gemma|mistral|smollm|phi|bloom|mpnet|minilm"
_MODEL = re.compile(
    r"(?!outputs/)(\w[\w.-]*/)?((distil)?gpt2(-(medium|large|xl))?"
    rf"|[\w.-]*({_FAMILIES})[\w.-]*-(base|small|large|tiny|mini|medium|\d+(\.\d+)?[mb])([-_.]\S*)?)",
    re.IGNORECASE,
)
"""Names of well-known models, such as bert-base-uncased."""
FILES = ("*.json", "*.safetensors", "vocab.txt", "merges.txt", "*.model", "*.spm")
"""The files that are downloaded: neither pickle files nor code."""


def is_model(name: str) -> bool:
    """Whether a name is meant as a model of the hub."""
    if name.startswith(PREFIX):
        return _REPOSITORY.fullmatch(name.removeprefix(PREFIX)) is not None
    return _MODEL.fullmatch(name) is not None


def local_folder(name: str) -> Path:
    """The folder of hf:org/name in the client's cache, downloaded if it is not there; any other name as a path.

    Raises Unavailable without the client, or if it cannot get the model, and UsageFault for an invalid name.
    """
    if not name.startswith(PREFIX):
        return Path(name)
    repository = name.removeprefix(PREFIX)
    if not _REPOSITORY.fullmatch(repository):
        raise UsageFault(f"{name[:80]!r} is not a model of the hub", hint="write hf:ORGANIZATION/NAME")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise Unavailable(f"{name} needs the package huggingface-hub", hint="pip install 'minitf[hf]'") from None
    try:
        return Path(snapshot_download(repository, allow_patterns=list(FILES)))
    except Exception as error:  # of the network, of the hub, of its client
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        hint = "download it on another machine, copy the folder, and give its path"
        fault = f"{name} is not available: {type(error).__name__}: {reason}"
        raise Unavailable(fault, hint=hint, where=[name]) from error
