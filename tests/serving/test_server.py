"""`minitf serve` gives what the commands give, to OpenAI's client and to others, and refuses the rest in its form."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import numpy as np
import openai
import pytest
from commands import minitf, refused, results, tiny_model, trained
from hang import SECONDS, ending
from httpx import ASGITransport, AsyncClient
from processes import Command
from starlette.applications import Starlette
from starlette.testclient import TestClient

import mini_tf
from mini_tf.serving import server
from mini_tf.serving.batcher import ServedModel
from mini_tf.serving.host_guard import ServerLimits
from mini_tf.serving.listening import listen
from mini_tf.serving.server import build_app
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import open_trained

HOSTS = ["127.0.0.1", "localhost"]
PROMPTS = ["Once", "The fox and the", "x", "A dog", "There was a king", "One day", "In the wood", "y z"]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "decoder", "train.steps=20", "generate.max_new_tokens=12")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "encoder", "train.steps=5", tiny_model("encoder"))


def client(run: Path, **limits: Any) -> TestClient:
    """A client of a server that ends with it: `with client(run) as web`."""
    app = build_app(open_trained(run, device="cpu"), HOSTS, ServerLimits(**limits))
    return TestClient(app, base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="module")
def web(decoder: Path) -> Iterator[TestClient]:
    with client(decoder) as made:
        yield made


def texts_of(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [choice["text"] for choice in answer.json()["choices"]]


def test_completions_are_those_of_generate(decoder: Path, web: TestClient) -> None:
    greedy = results(minitf("generate", decoder, *PROMPTS, "--greedy", "--json").stdout)
    body = {"model": "decoder", "prompt": PROMPTS, "temperature": 0}
    assert texts_of(web.post("/v1/completions", json=body)) == [result["texts"][0] for result in greedy]
    options = "--seed 7 --num-samples 2 --top-k 20 --max-new-tokens 5 --logprobs 2 --json"
    [sampled] = results(minitf("generate", decoder, "Once", *options.split()).stdout)
    asked = {"prompt": "Once", "seed": 7, "n": 2, "top_k": 20, "max_tokens": 5, "logprobs": 2}
    answer = web.post("/v1/completions", json=asked).json()
    assert [choice["text"] for choice in answer["choices"]] == sampled["texts"]
    for choice, tokens in zip(answer["choices"], sampled["tokens"], strict=True):
        assert choice["logprobs"]["tokens"] == [token["token"] for token in tokens]
        assert choice["logprobs"]["token_logprobs"] == pytest.approx([token["logprob"] for token in tokens], abs=1e-5)
        assert choice["finish_reason"] == ("length" if len(tokens) == 5 else "stop")
    usage = answer["usage"]
    assert usage["completion_tokens"] == sum(map(len, sampled["tokens"]))
    for counts in (usage, web.post("/v1/completions", json=body).json()["usage"]):
        assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"]
    stop = greedy[0]["texts"][0][2]
    cut = web.post("/v1/completions", json={"prompt": "Once", "temperature": 0, "stop": stop}).json()["choices"][0]
    assert cut["text"] == greedy[0]["texts"][0].partition(stop)[0]
    assert cut["finish_reason"] == "stop"


def test_texts_without_a_seed_differ_also_in_one_batch(web: TestClient) -> None:
    asked = {"prompt": "Once", "temperature": 2, "top_k": 200}
    assert len({texts_of(web.post("/v1/completions", json=asked))[0] for _ in range(4)}) > 1


def test_a_stream_is_the_text_piece_by_piece(web: TestClient) -> None:
    asked = {"prompt": PROMPTS[:2], "temperature": 0}
    whole = texts_of(web.post("/v1/completions", json=asked))
    streamed = web.post("/v1/completions", json={**asked, "stream": True, "stream_options": {"include_usage": True}})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *events, done = [line.removeprefix("data: ") for line in streamed.text.split("\n\n") if line]
    assert done == "[DONE]"
    *chunks, last = map(json.loads, events)
    assert last["usage"]["completion_tokens"] > 0
    pieces = [[chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == n] for n in (0, 1)]
    assert ["".join(piece["text"] for piece in of_text) for of_text in pieces] == whole
    assert all(len(of_text) > 2 for of_text in pieces)
    assert [of_text[-1]["finish_reason"] in ("stop", "length") for of_text in pieces] == [True, True]


def test_80_requests_of_16_openai_clients_are_answered_as_by_generate(decoder: Path) -> None:
    expected = dict(zip(PROMPTS, mini_tf.load(decoder).generate(PROMPTS, greedy=True), strict=True))
    app = build_app(open_trained(decoder, device="cpu"), HOSTS)

    async def one_client(number: int) -> int:
        http: Any = AsyncClient(transport=ASGITransport(app))
        api = openai.AsyncOpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none", http_client=http, max_retries=0)
        for n in range(number, 80, 16):
            prompt = PROMPTS[n % len(PROMPTS)]
            if n % 3:
                answer = await api.completions.create(model="decoder", prompt=prompt, temperature=0)
                text = answer.choices[0].text
            else:
                stream = await api.completions.create(model="decoder", prompt=prompt, temperature=0, stream=True)
                text = "".join([chunk.choices[0].text async for chunk in stream])
            assert text == expected[prompt]
        await http.aclose()
        return len(range(number, 80, 16))

    async def all_clients() -> list[int]:
        async with app.router.lifespan_context(app):
            return await asyncio.gather(*map(one_client, range(16)))

    assert sum(asyncio.run(all_clients())) == 80


def test_a_chat_is_answered_as_by_generate(assistant: Path) -> None:
    messages = [{"role": "user", "content": "turn red blue"}]
    expected = mini_tf.load(assistant).generate({"messages": messages}, greedy=True)
    with client(assistant) as web:
        asked = {"messages": messages, "temperature": 0}
        choice = web.post("/v1/chat/completions", json=asked).json()["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": expected}
        parts = [{"role": "user", "content": [{"type": "text", "text": "turn red "}, {"type": "text", "text": "blue"}]}]
        asked = {"messages": parts, "temperature": 0, "logprobs": True, "top_logprobs": 2}
        choice = web.post("/v1/chat/completions", json=asked).json()["choices"][0]
        assert choice["message"]["content"] == expected
        assert len(choice["logprobs"]["content"][0]["top_logprobs"]) == 2
        assert web.get("/v1/models").json()["data"][0]["task"] == "chat"
        for bad, words in (([{"role": "nobody", "content": "x"}], "nobody"), (["x"], "must be a list"), ([], "a list")):
            answer = web.post("/v1/chat/completions", json={"messages": bad})
            assert (answer.status_code, words in answer.json()["error"]["message"]) == (400, True)
        text = "".join(
            json.loads(line[6:])["choices"][0]["delta"].get("content", "")
            for line in web.post(
                "/v1/chat/completions", json={"messages": messages, "temperature": 0, "stream": True}
            ).text.split("\n\n")[:-2]
        )
        assert text == expected


def test_embeddings_and_filled_masks_are_those_of_python(encoder: Path) -> None:
    run = mini_tf.load(encoder)
    app = build_app(open_trained(encoder, device="cpu"), HOSTS)

    async def ask() -> Any:
        async with app.router.lifespan_context(app), AsyncClient(transport=ASGITransport(app)) as http:
            given: Any = http
            api = openai.AsyncOpenAI(base_url="http://localhost/v1", api_key="none", http_client=given)
            as_base64 = await api.embeddings.create(model="encoder", input=PROMPTS)
            as_numbers = await api.embeddings.create(model="encoder", input="x", encoding_format="float")
            filled = await api.completions.create(model="encoder", prompt="Once [MASK] a time")
            return [one.embedding for one in as_base64.data], as_numbers.data[0].embedding, filled.choices[0].text

    vectors, of_x, filled = asyncio.run(ask())
    np.testing.assert_allclose(vectors, run.embed(PROMPTS, normalize=True), atol=1e-5)
    np.testing.assert_allclose(of_x, vectors[2], atol=1e-5)
    assert filled == run.generate("Once [MASK] a time")


def test_labels_are_those_of_predict(classifier: Path) -> None:
    texts = ["a nice soup", '{"a dull room'] * 3
    with client(classifier) as web:
        found = web.post("/predict", json={"texts": texts}).json()["predictions"]
        theirs = [prediction.to_json() for prediction in mini_tf.load(classifier).predict(texts)]
        assert [one["label"] for one in found] == [one["label"] for one in theirs]
        assert found[0]["scores"] == pytest.approx(theirs[0]["scores"], abs=1e-5)
        answer = web.post("/v1/completions", json={"prompt": "x"})
        assert answer.status_code == 404
        assert "which generates no text" in answer.json()["error"]["message"]


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("/v1/completions", {"prompt": 3}, 400, "prompt: must be a text or a list of texts"),
    ("/v1/completions", {"prompt": [1, 2]}, 400, "prompt: must be a text or a list of texts"),
    ("/v1/completions", {"prompt": ["x"] * 65}, 400, "prompt: at most 64 texts, got 65"),
    ("/v1/completions", {"prompt": ["x"] * 17, "n": 2}, 400, "at most 32 texts in one request, got 34"),
    (
        "/v1/completions",
        {"prompt": "x", "temprature": 1},
        400,
        "temprature: no such parameter; did you mean temperature",
    ),
    ("/v1/completions", {"prompt": "x", "temperature": "hot"}, 400, "temperature: must be a finite number, got 'hot'"),
    ("/v1/completions", {"prompt": "x", "temperature": -1}, 400, "temperature: must be at least 0"),
    ("/v1/completions", {"prompt": "x", "n": True}, 400, "num-samples: must be an integer"),
    ("/v1/completions", {"prompt": "x", "max_tokens": 9999}, 400, "max_tokens: must be at most 1024, got 9999"),
    ("/v1/completions", {"prompt": "x", "echo": True}, 400, "echo: is not supported"),
    ("/v1/completions", {"prompt": "x", "frequency_penalty": 1}, 400, "frequency_penalty: is not supported"),
    ("/v1/completions", {"prompt": "x", "num_beams": 2}, 400, "num-beams: beam search needs an encoder-decoder"),
    ("/v1/completions", {"prompt": "x", "stop": [3]}, 400, "stop"),
    ("/v1/completions", {"prompt": "x", "stream": "yes"}, 400, "stream: must be true or false"),
    ("/v1/completions", {"prompt": "x", "stream": True, "stream_options": 5}, 400, "stream_options: must be an object"),
    ("/v1/completions", {"prompt": "\ud800"}, 400, "the prompt is not UTF-8"),
    ("/v1/completions", {"prompt": "x", "model": "gpt-4"}, 404, "no model 'gpt-4'; this server has 'decoder'"),
    ("/v1/chat/completions", {"messages": []}, 404, "decoder has no chats; use /v1/completions"),
    ("/predict", {"texts": ["x"]}, 404, "which predicts no labels"),
    ("/v1/embeddings", {"input": "x", "dimensions": 3}, 400, "dimensions: no such parameter"),
    ("/v1/files", {}, 404, "/v1/files: Not Found"),
]


def test_parameters_with_openais_defaults_change_nothing(web: TestClient) -> None:
    plain = {"prompt": "Once", "max_tokens": 4, "temperature": 0}
    defaults = {"presence_penalty": 0, "frequency_penalty": 0, "best_of": 1, "echo": False, "logit_bias": {}}
    answers = [web.post("/v1/completions", json=body) for body in (plain, plain | defaults | {"user": "me"})]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()["choices"] == answers[1].json()["choices"]


@pytest.mark.parametrize(("route", "body", "status", "words"), REFUSED)
def test_a_refusal_has_the_form_of_openais_errors(
    route: str, body: dict[str, Any], status: int, words: str, web: TestClient
) -> None:
    answer = web.post(route, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == {400: "invalid_request_error", 404: "not_found_error"}[status]
    assert words in error["message"]


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"host": "evil.example"}, "{}", 403),
        ({"host": "evil.example:8000"}, "{}", 403),
        ({"host": "127.0.0.1.evil.example"}, "{}", 403),
        ({"origin": "http://evil.example"}, "{}", 403),
        ({"origin": "null"}, "{}", 403),
        *(({"content-type": word}, "{}", 415) for word in ("text/plain", "application/csv", "")),
        ({}, '{"prompt": NaN}', 400),
        ({}, "[1]", 400),
        ({}, "{" + " " * (1 << 20), 413),
    ],
)
def test_a_request_of_another_site_or_form_is_refused(
    headers: dict[str, str], content: str, status: int, web: TestClient
) -> None:
    answer = web.post("/v1/completions", content=content, headers={"content-type": "application/json"} | headers)
    assert answer.status_code == status
    assert "message" in answer.json()["error"]


def test_the_page_and_the_models_are_there_for_this_host_alone(web: TestClient) -> None:
    page = web.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "http" not in page.text.replace("http-equiv", "")  # it loads nothing from elsewhere
    assert "default-src 'none'" in page.headers["content-security-policy"]
    entry = {"id": "decoder", "object": "model", "created": 0, "owned_by": "minitf", "task": "generate"}
    assert web.get("/v1/models").json()["data"] == [entry]
    assert web.get("/v1/models/decoder").json() == entry
    assert web.get("/v1/models/other").status_code == 404
    assert web.get("/v1/completions").status_code == 405
    assert web.get("/../../etc/passwd").status_code == 404
    assert web.get("/", headers={"host": "evil.example"}).status_code == 403


def test_a_request_whose_time_is_over_ends_with_504(decoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from when it came, which is long ago here."""
    monkeypatch.setattr(server, "monotonic", lambda: 0.0)
    with client(decoder, seconds=0.0) as web:
        for body in ({"prompt": "x"}, {"prompt": "x", "stream": True}):
            answer = web.post("/v1/completions", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    with client(decoder, seconds=1e9) as web:
        assert web.post("/v1/completions", json={"prompt": "x"}).status_code == 200


def test_a_bug_within_a_stream_ends_it_as_an_error_of_the_server(
    decoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(model: ServedModel, asked: Any, jobs: Any) -> Any:
        jobs[0].stream(0, "begun")
        raise ZeroDivisionError("no number")

    monkeypatch.setattr(ServedModel, "compute", fails)
    with client(decoder) as web:
        *_, piece, last = web.post("/v1/completions", json={"prompt": "x", "stream": True}).text.strip().split("\n\n")
    assert "begun" in piece
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["type"], error["message"]) == ("server_error", "a bug in minitf: ZeroDivisionError: no number")


def test_a_client_that_goes_away_is_waited_for_no_longer(decoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    compute = ServedModel.compute

    def waits(*given: Any) -> Any:
        begun.set()
        assert goes_on.wait(SECONDS)
        return compute(*given)

    monkeypatch.setattr(ServedModel, "compute", waits)
    app, sent = build_app(open_trained(decoder, device="cpu"), HOSTS, ServerLimits(seconds=1e6)), list[Any]()
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": headers}

    async def receive() -> Any:
        if not begun.is_set() and not sent:
            sent.append("body")
            return {"type": "http.request", "body": b'{"prompt": "x"}'}
        while not begun.is_set():  # where the server asks whether the client is gone, it waits for no answer
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        async with app.router.lifespan_context(app):
            try:
                await asyncio.wait_for(app(scope, receive, send), SECONDS)
            finally:
                goes_on.set()

    asyncio.run(ask())
    assert sent[1]["status"] == 499


def test_a_full_queue_is_429_with_the_time_to_come_again(decoder: Path) -> None:
    with client(decoder, waiting=0) as web:
        answer = web.post("/v1/completions", json={"prompt": "x"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert answer.json()["error"]["code"] == "queue_full"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_address_answers_and_stops_cleanly(number: signal.Signals, decoder: Path) -> None:
    expected = mini_tf.load(decoder).generate("Once", greedy=True)
    command = Command(["serve", str(decoder), "--port", "0"], os.environ, DEVNULL, PIPE, PIPE)
    try:
        with ending(120):
            while not (url := _printed(command)).endswith("\n"):
                assert command.poll() is None
                time.sleep(0.05)
        with openai.OpenAI(base_url=f"{url.strip()}/v1", api_key="none") as api:
            answer = api.completions.create(model="decoder", prompt="Once", temperature=0)
        assert answer.choices[0].text == expected
        command.send_signal(number)
    except BaseException:
        command.kill()
        raise
    assert command.communicate(120)[1] == "decoder: decoder, next_token; Ctrl-C stops\n"
    assert command.returncode == 128 + number


def _printed(command: Command) -> str:
    command.output[1].seek(0)
    return command.output[1].read()


def test_a_used_port_and_a_missing_package_are_one_line(decoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as used:
        done = minitf("serve", decoder, "--port", str(used.getsockname()[1]))
    refused(done, "cannot listen on 127.0.0.1, port", "Address already in use", "0 is a free one", exit_code=2)
    with pytest.raises(UsageFault) as elsewhere:
        listen(Starlette(), "192.0.2.1", 0, print)  # an address of no machine
    assert elsewhere.value.hint is None
    for name in [name for name in sys.modules if name.startswith("mini_tf.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.exceptions", None)
    refused(minitf("serve", decoder), "minitf serve needs the package", "pip install 'minitf[serve]'", exit_code=9)
