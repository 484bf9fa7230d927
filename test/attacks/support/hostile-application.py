"""
An application that answers whatever its visitor's address says: the parameter "plan" is base64url of JSON, a list of steps.
{"send": base64}, {"again": base64, "times": n}, {"sleep": ms}, {"reset": true}, {"hang": true}. At the end it hangs up.
"""
import base64, json, re, socket, struct, sys, threading, time


def serve(connection):
    try:
        connection.settimeout(30)
        head = b""
        while b"\r\n\r\n" not in head:
            part = connection.recv(65536)
            if not part:
                return
            head += part
        found = re.search(rb"[?&]plan=([A-Za-z0-9_-]*)", head)
        plan = json.loads(base64.urlsafe_b64decode(found.group(1) + b"==")) if found else []
        for step in plan:
            if "send" in step:
                connection.sendall(base64.b64decode(step["send"]))
            elif "again" in step:
                part = base64.b64decode(step["again"])
                for _ in range(step["times"]):
                    connection.sendall(part)
            elif "sleep" in step:
                time.sleep(step["sleep"] / 1000)
            elif "reset" in step:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            elif "hang" in step:
                while connection.recv(65536):
                    pass
    except OSError:
        pass
    finally:
        connection.close()


def listen(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(128)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


for port in map(int, sys.argv[1:]):
    threading.Thread(target=listen, args=(port,)).start()
print("ready", flush=True)
