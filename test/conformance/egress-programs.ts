/** Programs in Python that run in a sandbox, and print what they saw. */

/** Questions as bytes, over UDP and TCP. Prints the answers. */
export const DNS = String.raw`
import json, socket, struct, time
SERVER = ("127.0.0.53", 53)
slowest = 0
def question(name, kind, id=7):
    wire = b"".join(bytes([len(l)]) + l.encode() for l in name.split(".") if l) + b"\0"
    return struct.pack(">HHHHHH", id, 0x0100, 1, 0, 0, 0) + wire + struct.pack(">HH", kind, 1)
def ask(message):
    global slowest
    at = time.time()
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(5)
    u.sendto(message, SERVER)
    answer = u.recv(2000)
    slowest = max(slowest, time.time() - at)
    return answer
def told(answer):
    return {"code": answer[3] & 15, "answers": struct.unpack(">H", answer[6:8])[0]}
def over_tcp(message):
    t = socket.create_connection(SERVER, 5)
    t.sendall(struct.pack(">H", len(message)) + message)
    length = struct.unpack(">H", t.recv(2))[0]
    return t.recv(length)
address = ask(question("web.test", 1))
out = {
    "a": told(address),
    "aaaa": told(ask(question("web.test", 28))),
    "https": told(ask(question("web.test", 65))),
    "absent": told(ask(question("absent.test", 1))),
    "tcp": told(over_tcp(question("web.test", 1))),
    "malformed": ask(question("web.test", 1)[:20])[3] & 15,
    "localhost": socket.inet_ntoa(ask(question("localhost", 1))[-4:]),
    "reverse": socket.gethostbyaddr(socket.inet_ntoa(address[-4:]))[0],
}
out["slowestMs"] = slowest * 1000
print(json.dumps(out))
`;

/** What must not hang. Prints the error and the time of each. */
export const FAILS_AT_ONCE = String.raw`
import errno, json, socket, time
out = {}
def attempt(what, family, kind, address, name=None):
    at = time.time()
    s = socket.socket(family, kind)
    s.settimeout(10)
    try:
        if name: address = (socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0], address[1])
        s.connect(address)
        s.send(b"x")
        received = s.recv(1)
        out[what] = {"error": "none", "ms": 0}
    except OSError as error:
        out[what] = {"error": errno.errorcode.get(error.errno, str(error)), "ms": (time.time() - at) * 1000}
V4, V6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
attempt("address", V4, TCP, ("198.51.100.9", 443))
attempt("port", V4, TCP, ("", 81), "web.test")
attempt("dead", V4, TCP, ("", 1), "dead.test")
attempt("udp", V4, UDP, ("198.51.100.9", 443))
attempt("udpName", V4, UDP, ("", 443), "web.test")
attempt("v6", V6, TCP, ("2001:db8::9", 443))
print(json.dumps(out))
`;

/** Listens on a port of every address, reaches itself there, and a name outside on the same port. */
export const OWN_SERVER = String.raw`
import http.client, os, socket, sys, threading
port, name = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
if name: socket.getaddrinfo(name, port)
own = socket.create_server(("0.0.0.0", port))
def serve():
    while True:
        s, _ = own.accept()
        s.sendall(b"own %d" % port)
        s.close()
threading.Thread(target=serve, daemon=True).start()
said = [socket.create_connection(("127.0.0.1", port), 5).recv(100).decode()]
if name:
    c = http.client.HTTPConnection(name, port, timeout=5)
    c.request("GET", "/", headers={"Host": "%s:%d" % (name, port)})
    said.append("outside " + c.getresponse().read().decode())
print(" ".join(said), flush=True)
# A thread that still runs while the interpreter ends may abort it.
os._exit(0)
`;

/** Asks for megabytes, and prints the checksum of what came. */
export const DOWNLOAD = String.raw`
import hashlib, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(sys.argv[3].encode())
h = hashlib.sha256()
while True:
    b = s.recv(1 << 18)
    if not b: break
    h.update(b)
print(h.hexdigest())
`;

/** Sends megabytes, ends its side, and compares the checksum that comes back. */
export const UPLOAD = String.raw`
import hashlib, os, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
h = hashlib.sha256()
piece = os.urandom(1 << 20)
for _ in range(int(sys.argv[3])):
    s.sendall(piece)
    h.update(piece)
s.shutdown(socket.SHUT_WR)
said = b""
while True:
    b = s.recv(100)
    if not b: break
    said += b
print("same" if said.decode() == h.hexdigest() else "different")
`;

/** Opens so many connections at once, so many times, and prints how many echoed. */
export const CONNECT_MANY = String.raw`
import asyncio, resource, sys
name, port, count, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
async def one(address, all_open):
    reader, writer = await asyncio.open_connection(address, port)
    all_open[0] += 1
    while all_open[0] % count: await asyncio.sleep(0.01)
    writer.write(b"hello")
    writer.write_eof()
    good = await reader.read() == b"hello"
    writer.close()
    return good
async def main():
    import socket
    total = 0
    for _ in range(times):
        address = socket.gethostbyname(name)
        all_open = [0]
        total += sum(await asyncio.gather(*(one(address, all_open) for _ in range(count))))
    print(total)
asyncio.run(main())
`;
