"""
An application that answers every request with the bytes in DIRECTORY/answer, and keeps what it was sent.

`raw-application.py DIRECTORY PORT…`. The answer is JSON: {"pieces": [base64, …], "hangs": bool}. The heads and bodies of requests are kept
in DIRECTORY/seen, one line of base64 each.
"""
import base64, json, os, socket, sys, threading

directory = sys.argv[1]
lock = threading.Lock()
MOST_KEPT = 65536


def serve(connection):
    try:
        connection.settimeout(30)
        request = b""
        while b"\r\n\r\n" not in request:
            part = connection.recv(65536)
            if not part:
                return keep(request)
            request += part
        # What belongs to the same request comes at once, or is not waited for.
        connection.settimeout(0.02)
        try:
            while len(request) < MOST_KEPT and (part := connection.recv(65536)):
                request += part
        except TimeoutError:
            pass
        keep(request)
        with open(directory + "/answer") as file:
            answer = json.load(file)
        connection.settimeout(30)
        for piece in answer["pieces"]:
            connection.sendall(base64.b64decode(piece))
        if not answer["hangs"]:
            connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    except OSError:
        pass
    finally:
        connection.close()


def keep(request):
    with lock, open(directory + "/seen", "ab") as file:
        file.write(base64.b64encode(request[:MOST_KEPT]) + b"\n")


def listen(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(128)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


for port in map(int, sys.argv[2:]):
    threading.Thread(target=listen, args=(port,)).start()
open(directory + "/ready", "w").close()
