"""A trained model over HTTP on this machine: OpenAI's interface, `/predict`, and a page to try it (`minitf serve`).

`served_model` computes batches of requests, which wait in a `batcher`; `parameters` reads what a request asks,
`replies` writes the answers, `server` has the routes. Imports starlette and uvicorn, of the extra `serve`.
"""
