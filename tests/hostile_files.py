"""Hypothesis strategies for files as somebody would write them who wants a program to fall: well-formed first, then
broken somewhere.
"""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from commands import ROOT
from hostile import HOSTILE, STEERING
from hypothesis import strategies as st

from mini_tf.data.tokenization.guard import CHILDREN, SUPPORTED
from mini_tf.recipe.keys import keys


def one_in(draw: st.DrawFn, n: int) -> bool:
    """True once in n; hypothesis itself favours the ends of a range."""
    return draw(st.integers(0, n - 1)) == n // 2


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], n: int) -> st.SearchStrategy[Any]:
    """The odd once in n; one_of would give both the same chance, and take no strategy twice."""
    return st.integers(0, n - 1).flatmap(lambda number: odd if number == n // 2 else usual)


BYTES_OF_ARGV = "".join(map(chr, range(0xDC80, 0xDD00)))
"""How Python hands on bytes of an argument that are not UTF-8."""
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.text(st.sampled_from([one for one in STEERING if not "\ud800" <= one <= "\udfff"] + [*"ab \n"]), max_size=20),
    st.sampled_from([text for text in HOSTILE if "\ud800" not in text]),
    st.text(st.sampled_from("aé漢🙂 [MASK]</s>"), max_size=60),
)
"""Any text that is UTF-8."""
ARGUMENTS = st.one_of(TEXTS, st.text(st.sampled_from("ab" + BYTES_OF_ARGV), max_size=6)).map(
    lambda text: text.replace("\0", "")
)
"""Any text that a command line can hand over."""


# Recipes
# ------------------------------------------------------------------------------------------

_NUMBERS = (
    "0 1 -1 3 8 16 1.5 -0.0 +1 1e3 1E-3 1e 1e999 -1e400 1_000 1__0 0x10 0o17 017 0b11 .5 5. . .inf -.inf .nan NaN"
    " Infinity 1:30 10k 2M 2kM 5% 150% -5% 30m 2h 1d 1e3k ١٢ １２ ½ Ⅷ 1,5 1e-400 0.1.2 2026-11-21 12e03"
    " 99999999999999999999 1e18 9223372036854775808"
)
_WORDS = (
    "true false yes no on off null ~ Null auto adamw muon encoder decoder softmax window rotary alibi byte bpe char"
    " masked cosine cpu cuda cuda:1 mps docs concat none strict tail python-docs grammar hf:imdb /dev/zero /dev/tty"
    " ~root last - . .. ../.. *.txt **/* a=b next_token [ os.system('x') ${HOME} $(id) {{x}}"
)
NUMBERS = [*_NUMBERS.split(), "9" * 400, "0." + "3" * 500, "1" + "0" * 5000]
WORDS = [*_WORDS.split(), "tail 10%", "tail  5 %", "a b", "/" + "a" * 300, "hf_" + "a" * 34]
# fmt: off
YAMLS = [
    "", "''", '""', "[]", "{}", "[[]]", "[1, 2]", "[a, b, a]", "{a: 1}", "{kind: x}", "{kind: }", "{kind: [softmax]}",
    "[softmax, window]",
    "&a 1", "*a", "&a [*a]", "<<", "!!int 3", "!!binary aGk=", "!!python/object/apply:os.system ['id']", "!x y", "? a",
    "- b", "@x",
    "`x`",
    "|\n    x\n    y", ">-\n  x", "'it''s'", '"\\e[31m"', '"\\x9b\\u202e"', '"\\ud800"', '"\\0"', '"\\N\\L\\P"',
    '"\\q"', '"open',
    "'open",
    "\x1b[31m", "\x07", "\x00", "\x9b", "\u202e", "\u2028", "\ufeff", "\xa0", "\u200b", "🙂", "\ud800", "\x85", "\t",
    "a\tb", "#",
    "a # b",
    "a: b: c", "[", "]", "{", "}", "[1, ", "{a", "%YAML 1.1", "---", "...", "--- !x", ",", "[,]", "{,}", "? ", ": ",
    "- - - x",
    "{a: 1, a: 2}",
    "[" * 12 + "]" * 12, "[" * 400 + "]" * 400, "{a: " * 40 + "1" + "}" * 40, "[" * 9000, "a" * 5000,
    "[" + "x, " * 3000 + "]",
]
# fmt: on
MILD = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(WORDS), TEXTS.map(json.dumps))
SCALARS = mostly(MILD, st.one_of(st.sampled_from(YAMLS), TEXTS), 2)
"""What may stand behind a colon; of the mild ones a recipe stays YAML."""
NAMES = sorted({key.name for key in keys()} | {"extends", "expect", "expect.val.loss", "data.fields.text"})
# fmt: off
STRANGE = [
    "learning_rate", "n_embd", "block_size", "modle", "Model", "model ", "data.train", "extends", "class_path",
    "_target_", "__class__",
    "<<", "1", "null", "'\x1b'", '"\\e"', "\u202e", "é", "a" * 250, "api_key", "kind", "yes", "__proto__",
    "model_fields", "-", "a b",
]
# fmt: on
UNREADABLE = ["", "[a]", "{a: b}", "? a", "*a", "&a b", "!!str c", "kind kind", "data\ttrain", "#", "- a", "\x1b"]


@st.composite
def recipes(draw: st.DrawFn) -> bytes:
    """A recipe of its real keys with values of every kind, and of keys that are none; most stand on a preset."""
    harsh = one_in(draw, 4)
    names = mostly(st.sampled_from(NAMES), st.sampled_from(STRANGE + UNREADABLE if harsh else STRANGE), 8)
    sections: dict[str, dict[str, str]] = {
        "extends": {"": draw(st.sampled_from(["quickstart", "bert-nano", "gpt-nano", "gpt-char"]))}
    }
    if one_in(draw, 6):
        del sections["extends"]
    for name in draw(st.lists(names, max_size=5)):
        section, _, key = name.partition(".")
        sections.setdefault(section, {})[key.replace(".", "_") if draw(st.booleans()) else key] = draw(
            SCALARS if harsh else MILD
        )
    lines: list[str] = []
    for section, values in sections.items():
        if "" in values:
            lines.append(f"{section}: {values['']}")
        else:
            lines += [f"{section}:", *(f"  {_nested(key)}: {value}" for key, value in values.items())]
    if one_in(draw, 8):
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(lines or ["a: 1"])))
    return _encoded(draw, "\n".join(lines)) if harsh else "\n".join(lines).encode("utf-8", "surrogatepass")


def _nested(key: str) -> str:
    """attention.kind as a mapping in a mapping, whose value stands behind the last colon."""
    *outer, last = key.split(".")
    return "".join(f"{name}:\n{'  ' * (depth + 2)}" for depth, name in enumerate(outer)) + last


@st.composite
def changed_recipes(draw: st.DrawFn) -> bytes:
    """A shipped recipe with lines left out, put in or doubled, or one value changed."""
    shipped = [*(ROOT / "recipes").glob("*.yaml"), *(ROOT / "mini_tf" / "papers").glob("*/recipes/*.yaml")]
    files = sorted([*shipped, ROOT / "tests" / "data" / "tiny.yaml"])
    lines = draw(st.sampled_from(files)).read_text().split("\n")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        change = draw(st.sampled_from(["value"] * 8 + ["drop", "double", "put", "indent", "letter"]))
        line = lines[at] if lines else ""
        if change == "drop":
            del lines[at : at + 1]
        elif change == "double":
            lines.insert(at, line)
        elif change == "put":
            lines.insert(at, draw(st.sampled_from(NAMES)).rpartition(".")[2] + ": " + draw(SCALARS))
        elif change == "value" and ": " in line:
            key, _, rest = line.partition(": ")
            inner, brace, after = rest.partition(": ")
            end = next((n for n, letter in enumerate(after) if letter in ",}"), len(after))
            lines[at] = f"{key}: {inner}: {draw(SCALARS)}{after[end:]}" if brace else f"{key}: {draw(SCALARS)}"
        elif change == "indent":
            lines[at : at + 1] = [draw(st.sampled_from([" ", "  ", "\t", "- ", "? "])) + line]
        elif line:
            place = draw(st.integers(0, len(line) - 1))
            lines[at] = (
                line[:place] + draw(st.sampled_from([*":{}[],'\"&*!|>%@\\\x1b\u202e\x00é "])) + line[place + 1 :]
            )
    return _encoded(draw, "\n".join(lines))


def _encoded(draw: st.DrawFn, text: str) -> bytes:
    code = "utf-8" if not one_in(draw, 12) else draw(st.sampled_from(["utf-8-sig", "utf-16", "latin-1"]))
    try:
        return text.encode(code, "surrogatepass")
    except UnicodeError:
        return text.encode("utf-8", "surrogatepass")


OVERRIDES = st.builds(
    "{}={}".format,
    mostly(st.sampled_from(NAMES), st.one_of(st.sampled_from([*STRANGE, "model", "train", "data"]), TEXTS), 8),
    st.one_of(SCALARS, ARGUMENTS).map(
        lambda value: value.encode("utf-8", "replace").decode() if "\ud800" in value else value
    ),
).map(lambda argument: argument.replace("\0", ""))
"""KEY=VALUE as a command line can hand it over."""


# Texts and tables
# ------------------------------------------------------------------------------------------

GOOD_LINES = [json.dumps({"text": f"tale number {n}: once there was a cat"}) for n in range(30)]
# fmt: off
BAD_VALUES = [
    '"a\\ud800b"', '"\\udc00"', '"\\u0000"', '"\x01"', '"\\x"', '"open', "NaN", "-Infinity", "1e999", "9" * 5000, "-0",
    "1.", "01", "+1",
    "null", "true", "True", "None", "[]", "{}", '["a", "b"]', '{"text": "a"}', "'a'", '""', '"   "', '"\\n\\n"',
    '"' + "a" * 3000 + '"',
    "[" * 500 + "]" * 500, "[" * 100_000, '{"a": ' * 400 + "1" + "}" * 400, '"\u2028"', '"\u202e\\u001b[31m\x9b"',
    "undefined",
    "/* */ 1",
]
# fmt: on
LINES = st.one_of(
    st.builds(
        '{{"{}": {}}}'.format,
        st.sampled_from(["text", "text", "Text", "body", "", "te\\u0078t", "te\x1bxt"]),
        st.sampled_from(BAD_VALUES),
    ),
    st.builds(
        '{{"text": {}, "{}": {}}}'.format,
        TEXTS.map(json.dumps),
        st.sampled_from(["a", "text", "\u202e"]),
        st.sampled_from(BAD_VALUES),
    ),
    TEXTS.map(lambda text: json.dumps({"text": text}, ensure_ascii=False)),
    st.sampled_from(BAD_VALUES),
    st.sampled_from(
        [
            "",
            " ",
            "{",
            "}",
            "[]",
            '{"text": "a"} x',
            '{"text": "a"}{"text": "b"}',
            "{'text': 'a'}",
            "\ufeff{}",
            "\0",
            "null",
        ]
    ),
    st.sampled_from(
        [
            "text",
            "a,b",
            "text,a\n1,2,3",
            '"a',
            '"a""b"',
            'a"b',
            "a\tb\tc",
            ",,,",
            "=cmd()",
            "a;b",
            '"a\nb"',
            "text,text",
            "\r",
        ]
    ),
    TEXTS,
)
ENDS = st.sampled_from(["\n", "\r\n", "\r", "\u2028", "\x85", "\x0b", "\n\n", "", "\n\r", "\0\n"])
RAW = st.sampled_from(
    [b"\xff\xfe", b"\xef\xbb\xbf", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80", b"\0\0\0", b"PK\x03\x04"]
)


@st.composite
def data_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """(name, content) of a text or a table, whose lines are sound, nearly sound, or nothing of the kind."""
    suffix = draw(st.sampled_from(["jsonl", "jsonl", "csv", "tsv", "txt"]))
    plain = [json.loads(line)["text"] for line in GOOD_LINES]
    good = {
        "jsonl": GOOD_LINES,
        "csv": ["id,text", *(f'{n},"{text}"' for n, text in enumerate(plain))],
        "txt": [f"{one}\n" for one in plain],
    }
    lines = list(good.get(suffix, ["id\ttext", *(f"{n}\t{text}" for n, text in enumerate(plain))]))
    lines = lines[: draw(st.sampled_from([0, 1, 2, 12, 31]))]
    for line in draw(st.lists(LINES, max_size=3)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    end = draw(ENDS) if one_in(draw, 4) else "\n"
    content = end.join(lines).encode("utf-8", "surrogatepass") + draw(st.sampled_from([b"\n", b""]))
    if one_in(draw, 5):
        at = draw(st.sampled_from([0, len(content), *[draw(st.integers(0, len(content)))] * 4]))
        content = content[:at] + draw(RAW) + content[at:]
    return f"data.{suffix}", content


# JSON
# ------------------------------------------------------------------------------------------

# fmt: off
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**400, 1.5, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"),
    1e18, 10**4000,
    "", "a", "0", "\x1b[31m", "\x1b]0;x\x07", "\u202e", "\u2028", "\ud800", "\0", "x" * 5000, "../../x", "/dev/zero",
    "é\u0301", "<unk>",
    [], {}, [1, 2], [[]], ["a"], {"a": 1}, {"type": "Sequence"}, [None], [0, -1], {"": None}, [[0] * 3] * 3, "[" * 50,
]
# fmt: on


class Doubled(dict[str, Any]):
    """Scalar with each key twice, which JSON's grammar allows."""

    def items(self) -> Any:
        return [*super().items(), *super().items()]


def _deep(n: int) -> Any:
    tree: Any = []
    for _ in range(n):
        tree = [tree]
    return tree


@st.composite
def changed(draw: st.DrawFn, sound: Any, more: st.SearchStrategy[Any] | None = None, most: int = 3) -> Any:
    """A tree of JSON changed at one to `most` positions. more: further values to put there."""
    tree = json.loads(json.dumps(sound))
    values = mostly(st.sampled_from(ODD), TEXTS, 3) if more is None else st.one_of(st.sampled_from(ODD), more)
    for _ in range(draw(st.integers(1, most))):
        tree = _changed_once(draw, tree, values)
    return tree


def _changed_once(draw: st.DrawFn, tree: Any, values: st.SearchStrategy[Any]) -> Any:
    keys_of = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    if not keys_of or one_in(draw, 25):
        return draw(values) if not one_in(draw, 8) else _deep(draw(st.sampled_from([20, 300])))
    key = draw(st.sampled_from(keys_of[:12] + keys_of[-4:]))
    if isinstance(tree[key], dict | list) and tree[key] and not one_in(draw, 5):
        return _with(tree, key, _changed_once(draw, tree[key], values))
    change = draw(st.sampled_from([*["value"] * 8, *["drop", "rename", "swap", "add"] * 2, "twice"]))
    if change == "value":
        return _with(tree, key, draw(values))
    if change == "swap":
        return _with(tree, key, tree[draw(st.sampled_from(keys_of[:12]))])
    if isinstance(tree, list):
        return (
            [*tree[:key], *tree[key + 1 :]]
            if change == "drop"
            else [*tree, tree[key] if change == "twice" else draw(values)]
        )
    if change == "twice":
        return Doubled(tree)
    name = draw(st.one_of(TEXTS, st.sampled_from(["\x1b[2J", "\u202e", "", "a" * 3000, "__metadata__", "type"])))
    if change == "add":
        return {**tree, name: draw(values)}
    kept = {one: value for one, value in tree.items() if one != key}
    return {**kept, name: tree[key]} if change == "rename" else kept


def _with(tree: Any, key: Any, value: Any) -> Any:
    copy = type(tree)(tree)
    copy[key] = value
    return copy


def json_files(sound: Any, more: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[bytes]:
    """A JSON file changed as a tree, or as text: cut off, something put in, another encoding."""
    trees = changed(sound, more).map(json.dumps).map(str.encode)

    def broken(text: bytes, at: int, piece: bytes, cut: bool) -> bytes:
        at %= len(text) + 1
        return text[:at] + piece + (b"" if cut else text[at:])

    pieces = st.one_of(
        st.sampled_from([b"", b",", b"\0", b"\xff", b"}", b"{", b"NaN", b"9" * 5000, b"[" * 20_000, b"\xef\xbb\xbf"]),
        RAW,
    )
    texts = st.builds(broken, trees, st.integers(0, 1 << 20), pieces, st.booleans())
    return mostly(trees, texts, 8)


# Tokenizers
# ------------------------------------------------------------------------------------------

PATTERNS = [
    "a",
    "",
    " ",
    "[ab]",
    "(a+)+$",
    "a*",
    "(?=a)",
    "x{0,5000}",
    "(",
    "[",
    "\\",
    "(?<n>a)\\k<n>",
    "\\p{L}+",
    "^",
    "$",
    "\\b",
    "(?i)a",
    "é",
    "a{3}{4}{5}",
    ".",
]
TYPES = [kind for name in CHILDREN for kind in SUPPORTED[name].split()] + ["Python", "BPE"]
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "pattern": (
        st.sampled_from(["String", "Regex"]).flatmap(
            lambda kind: st.sampled_from(PATTERNS).map(lambda pattern: {kind: pattern})
        )
    ),
    "content": st.sampled_from(["", "a", "\x1b", "aaaaaaaaaa", "é"]),
    "prepend": st.sampled_from(["", "▁", "\x1b[31m", "a" * 20]),
    "replacement": st.sampled_from(["▁", "", "ab", "\x07"]),
    "behavior": st.sampled_from(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous", "Odd"]),
    "delimiter": st.sampled_from(["a", " ", "", "ab", "\0"]),
    "prefix": st.sampled_from(["##", "", "\x1b"]),
    "suffix": st.sampled_from(["</w>", "", "a"]),
    "pad_token": st.sampled_from(["<pad>", "", "a"]),
    "word_delimiter_token": st.sampled_from(["|", ""]),
    "precompiled_charsmap": st.sampled_from(["", "AAAAAA==", "BAAAAP////8=", "!"]),
    **dict.fromkeys(("start", "stop", "length"), st.sampled_from([0, 1, -1, 5, 2**40])),
    **dict.fromkeys(("left", "right"), st.sampled_from([0, 1, 5, True])),
    **dict.fromkeys(("sep", "cls"), st.sampled_from([["</s>", 1], ["a", 2**33], []])),
    **dict.fromkeys(
        ("invert", "cleanup", "trim_offsets", "add_prefix_space", "use_regex", "individual_digits"), st.booleans()
    ),
    **dict.fromkeys(
        ("clean_text", "handle_chinese_chars", "lowercase", "strip_accents", "split"),
        st.sampled_from([True, False, None]),
    ),
    "prepend_scheme": st.sampled_from(["always", "first", "never", "x"]),
    "strip_left": st.booleans(),
    "strip_right": st.booleans(),
}


@st.composite
def parts(draw: st.DrawFn, name: str | None = None, depth: int = 0) -> dict[str, Any]:
    """A normalizer, pre-tokenizer, decoder or post-processor, with all the fields that one may ask for; mostly such as
    `name` is.
    """
    fitting = SUPPORTED[name].split() if name is not None and not one_in(draw, 12) else TYPES
    kind = draw(st.sampled_from(fitting))
    fields = {name: draw(values) for name, values in FIELDS.items()}
    inner = (
        [draw(parts(name, depth + 1)) for _ in range(draw(st.integers(0, 3)))]
        if kind == "Sequence" and depth < 2
        else []
    )
    lists = dict.fromkeys(CHILDREN.values(), inner)
    return {"type": kind, **fields, **lists}


ADDED = st.builds(
    lambda id, content, special, others: {
        "id": id,
        "content": content,
        "special": special,
        **dict.fromkeys(("lstrip", "rstrip"), others),
        "single_word": others,
        "normalized": others,
    },
    st.sampled_from([0, 1, 3, 99, 300, 301, 5000, 2**31, 2**32 - 1, 2**40, -1]),
    st.one_of(st.sampled_from(["</s>", "", " ", "a", "the", "\x1b[31m", "[MASK]", "\u202e", "a" * 5000, "\n"]), TEXTS),
    st.booleans(),
    st.booleans(),
)


def tokenizer_files(sound: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """A tokenizer.json changed as JSON, or with other parts and further tokens, or both."""

    @st.composite
    def made(draw: st.DrawFn) -> bytes:
        tree = dict(sound)
        for name in CHILDREN:
            if one_in(draw, 4):
                tree[name] = draw(mostly(parts(name), st.none(), 4))
        if draw(st.booleans()):
            tree["added_tokens"] = [*tree["added_tokens"], *draw(st.lists(ADDED, max_size=3))]
        return json.dumps(draw(changed(tree, most=2)) if one_in(draw, 3) else tree).encode()

    return mostly(made(), json_files(sound, parts()), 3)


@st.composite
def vocabularies(draw: st.DrawFn) -> dict[str, bytes]:
    """The files of an older tokenizer: a vocab.txt of WordPiece, or a vocab.json with a merges.txt."""
    tokens = [
        "<unk>",
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdeot",
        "##a",
        "##t",
        "cat",
        "Ġa",
        "at",
        "Ġ",
        "<|endoftext|>",
    ]
    strange = st.one_of(
        st.sampled_from(["", " ", "##", "a", "\x1b[31m", "\u202e", "a b", "a b c", "#version", "\0", "a" * 5000, "\r"]),
        TEXTS,
    )
    lines, vocabulary = list(tokens), {token: id for id, token in enumerate(tokens)}
    merges = ["#version: 0.2", "a t", "Ġ a"]
    for changed_lines in (lines, merges):
        for line in draw(st.lists(strange, max_size=2)) if one_in(draw, 3) else ():
            changed_lines.insert(draw(st.integers(0, len(changed_lines))), line)
        if one_in(draw, 4):
            del changed_lines[draw(st.integers(0, len(changed_lines) - 1))]
    if draw(st.booleans()):
        return {"vocab.txt": _encoded(draw, (draw(ENDS) if one_in(draw, 6) else "\n").join(lines))}
    return {
        "vocab.json": draw(json_files(vocabulary) if one_in(draw, 3) else st.just(json.dumps(vocabulary).encode())),
        "merges.txt": _encoded(draw, "\n".join(merges)),
    }


# Run folders
# ------------------------------------------------------------------------------------------


def tensor_files(sound: bytes) -> st.SearchStrategy[bytes]:
    """A safetensors file with another header, another length of it, or other bytes behind it."""
    (length,) = struct.unpack("<Q", sound[:8])
    header, body = json.loads(sound[8 : 8 + length]), sound[8 + length :]
    values = st.one_of(
        st.sampled_from(["F32", "F64", "F16", "BF16", "I64", "F8_E5M2", "F4", "BOOL", "U64", "C64", "x"]),
        st.sampled_from([[], [0], [1], [2**63], [-1], [2**32, 2**32], [0, 2**62], [1.0], ["1"], [True], [1] * 70]),
        st.sampled_from(
            [[0, 0], [0, len(body)], [0, 2**64], [-4, 0], [4, 0], [0], [0, 4, 8], [0.0, 4.0], ["0", "4"], [None, 4]]
        ),
        st.just({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
    )

    def whole(text: bytes, claimed: int | None, body: bytes) -> bytes:
        return struct.pack("<Q", len(text) if claimed is None else claimed) + text + body

    lengths = st.sampled_from([None] * 8 + [0, 1, 8, length - 1, length + 1, 2**20, 2**31, 2**63, 2**64 - 1])
    bodies = st.sampled_from(
        [body] * 8
        + [b"", body[:-1], body + b"\0", body[: len(body) // 2], body * 2, b"\xff" * len(body), b"\x7f" * len(body)]
    )
    cuts = st.integers(0, len(sound)).map(lambda n: sound[:n])
    return mostly(
        st.builds(whole, json_files(header, values), lengths, bodies), st.one_of(cuts, st.binary(max_size=40)), 6
    )


def sealed(folder: Path, digest: Callable[[bytes], str]) -> None:
    """Write the hashes that a run folder keeps of its own files anew, as somebody does who knows of them; what is
    broken stays.
    """
    model, record = folder / "model.safetensors", folder / "run.json"
    try:
        tree = json.loads(record.read_bytes())
        tree["model"]["sha256"] = digest(model.read_bytes())
        record.write_text(json.dumps(tree))
    except (ValueError, TypeError, KeyError, OSError, RecursionError):
        pass
    for manifest in folder.glob("checkpoints/step-*/MANIFEST.json"):
        try:
            tree = json.loads(manifest.read_bytes())
            for name, entry in tree["files"].items():
                content = (manifest.parent / name).read_bytes()
                entry.update(sha256=digest(content), bytes=len(content))
            manifest.write_text(json.dumps(tree))
        except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
            continue
