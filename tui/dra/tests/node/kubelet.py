"""A kubelet's gRPC client: Google's own implementation, with the authority that Go makes of a socket's path.

Each line is SOCKET /SERVICE/FUNCTION HEX; the reply is ok HEX, or the code and the message."""

import sys
import urllib.parse

import grpc

channels = {}
for line in sys.stdin:
    socket, function, message = (line.split() + [""])[:3]
    if socket not in channels:
        options = [("grpc.default_authority", urllib.parse.quote(socket, safe=""))]
        channels[socket] = grpc.insecure_channel("unix:" + socket, options)
    call = channels[socket].unary_unary(function, lambda message: message, lambda message: message)
    # A stream may never have a message.
    patience = 1 if "Watch" in function else 45
    try:
        print("ok", call(bytes.fromhex(message), timeout=patience).hex(), flush=True)
    except grpc.RpcError as error:
        print(error.code().name, error.details(), flush=True)
