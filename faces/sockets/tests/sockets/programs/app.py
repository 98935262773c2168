# An application of WSGI and one of ASGI: a word, and as many bytes as the query says.
VERSION = "one"


def body(query):
    return VERSION.encode() + b" " + b"x" * int(query or 1)


def wsgi(environ, start):
    text = body(environ["QUERY_STRING"])
    start("200 OK", [("Content-Length", str(len(text)))])
    return [text[:100], text[100:]]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    text = body(scope["query_string"])
    head = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": text[:100], "more_body": True})
    await send({"type": "http.response.body", "body": text[100:]})
