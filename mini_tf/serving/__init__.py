"""A trained model over HTTP on this machine: OpenAI's interface, `/predict`, and a page to try it (`minitf serve`).

Requests wait in a `batcher`, which computes them together; `openai_format` reads what a request asks and
writes the answers, `server` has the routes. Imports starlette and uvicorn, of the extra `serve`.
"""
