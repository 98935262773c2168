"""A server that returns what comes, and a client that calls it so many times."""

import sys
from concurrent import futures

import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, _):
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


if sys.argv[1] == "serve":
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port(f"127.0.0.1:{sys.argv[2]}")
    server.start()
    server.wait_for_termination()
else:
    channel = grpc.insecure_channel(f"127.0.0.1:{sys.argv[2]}")
    call = channel.unary_unary("/test/echo")
    for at in range(int(sys.argv[3])):
        text = bytes([at % 256]) * (at * 37 % 20000)
        assert call(text, wait_for_ready=True, timeout=100) == text
    print("all came back")
