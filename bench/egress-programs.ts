/** The two programs of `egress-inside.ts`: what connects, the same everywhere, and what it connects to. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export const NAME = 'target.example.org';

/**
 * Serves on four ports of an address: bytes without end, bytes that are counted, an echo, and the bytes
 * without end by HTTPS. Prints the ports.
 */
export const TARGET = `
import socket, ssl, sys, threading
address, certificate = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
def serve(handle):
    listener = socket.create_server((address, 0), backlog=2048)
    def loop():
        while True:
            one, _ = listener.accept()
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=safe, args=(handle, one), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
    return listener.getsockname()[1]
def safe(handle, one):
    try: handle(one)
    except OSError: pass
    one.close()
piece = memoryview(bytes(1 << 20))
def flood(one):
    one.recv(8)
    while True: one.sendall(piece)
def sink(one):
    room = bytearray(1 << 20)
    while one.recv_into(room): pass
def echo(one):
    while True:
        got = one.recv(65536)
        if not got: return
        one.sendall(got)
def secure(one):
    if certificate is None: return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(certificate)
    one = context.wrap_socket(one, server_side=True)
    head = b''
    while b'\\r\\n\\r\\n' not in head: head += one.recv(65536)
    length = int(head.split(b'/', 1)[1].split(b' ', 1)[0])
    if head.startswith(b'POST'):
        left = length - len(head.split(b'\\r\\n\\r\\n', 1)[1]); room = bytearray(1 << 20)
        while left > 0: left -= one.recv_into(room)
        one.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
        one.unwrap()
        return
    one.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % length)
    for _ in range(length >> 20): one.sendall(piece)
    one.unwrap()
threading.stack_size(128 * 1024)
print(serve(flood), serve(sink), serve(echo), serve(secure), flush=True)
threading.Event().wait()
`;

/** Prints one line of JSON. */
export const CLIENT = `
import json, os, socket, ssl, subprocess, sys, time
name, flood, sink, echo, secure, http2, megabytes, together = sys.argv[1], *map(int, sys.argv[2:9])
phase = sys.argv[9]
def guest():
    fields = open('/proc/1/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
def to(port):
    one = socket.create_connection((name, port))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one
room = bytearray(1 << 20)
before = guest()
def take(one, left):
    while left > 0:
        got = one.recv_into(room)
        if got == 0: raise EOFError
        left -= got
    one.close()
def down():
    one = to(flood); one.sendall(b'\\0'); take(one, megabytes << 20)
def up():
    one = to(sink)
    for _ in range(megabytes): one.sendall(room)
    one.shutdown(socket.SHUT_WR); one.recv(1); one.close()
def secured(method):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    one = context.wrap_socket(to(secure), server_hostname='${NAME}')
    length = megabytes << 20
    body = b'Content-Length: %d\\r\\n' % length if method == b'POST' else b''
    one.sendall(b'%s /%d HTTP/1.1\\r\\nHost: ${NAME}:%d\\r\\n%s\\r\\n' % (method, length, secure, body))
    return one
def tlsdown():
    take(secured(b'GET'), megabytes << 20)
def tlsup():
    one = secured(b'POST')
    for _ in range(megabytes): one.sendall(room)
    if not one.recv(4096).startswith(b'HTTP/1.1 200'): raise EOFError
    one.close()
def curl(version, *words):
    how = ['curl', '-sS', '-k', version, '-o', '/dev/null', '-w', '%{http_code} %{http_version}', *words]
    child = subprocess.Popen(how, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if '-T' in words:
        for _ in range(megabytes): child.stdin.write(room)
    child.stdin.close()
    if child.stdout.read().decode() != '200 ' + version[-1].replace('1', '1.1'): raise EOFError
def fetch(version): curl(version, 'https://%s:%d/%d' % (name, http2, megabytes << 20))
def send(version): curl(version, '-T', '-', 'https://%s:%d/' % (name, http2))
phases = {
    'down': down, 'up': up, 'tlsdown': tlsdown, 'tlsup': tlsup,
    'h1down': lambda: fetch('--http1.1'), 'h1up': lambda: send('--http1.1'),
    'h2down': lambda: fetch('--http2'), 'h2up': lambda: send('--http2'),
}
if phase in phases:
    began = time.perf_counter()
    phases[phase]()
    seconds = time.perf_counter() - began
    print(json.dumps({'rate': megabytes * 1.048576 / seconds, 'guest': guest() - before}))
    sys.exit()
out = {}
one = to(echo); one.sendall(b'\\0'); one.recv(1); times = []
for _ in range(2000):
    began = time.perf_counter(); one.sendall(b'x'); one.recv(1); times.append(time.perf_counter() - began)
times.sort(); out['p50'] = times[1000] * 1000; out['p99'] = times[1980] * 1000; one.close()
began = time.perf_counter()
for _ in range(300):
    one = to(echo); one.sendall(b'\\0'); one.recv(1); one.close()
out['perSecond'] = 300 / (time.perf_counter() - began)
many = []
began = time.perf_counter()
for _ in range(together): many.append(to(echo))
for one in many: one.sendall(b'\\0')
for one in many: one.recv(1)
out['together'] = len(many); out['togetherMs'] = (time.perf_counter() - began) * 1000
print(json.dumps(out))
`;

export interface Bulk {
  /** MB/s. */
  rate: number;
  /** Seconds of the processor that PID 1 has used, whoever that is. */
  guest: number;
}

export interface Small {
  p50: number;
  p99: number;
  perSecond: number;
  together: number;
  togetherMs: number;
}

/** Runs the client against a target, and answers what it printed. */
export type Client = (phase: string, together: number) => Promise<unknown>;

export interface Target extends Disposable {
  readonly ports: readonly number[];
  /** Certificate and key of the name, in one file. */
  readonly certificate: string;
}

/** A process of its own, so that its processor time is not the server's. */
export async function startTarget(dir: string, address = '127.0.0.1'): Promise<Target> {
  const key = join(dir, 'key.pem');
  const certificate = join(dir, 'certificate.pem');
  const how = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  const names = ['-subj', `/CN=${NAME}`, '-addext', `subjectAltName=DNS:${NAME}`];
  execFileSync('openssl', ['req', '-x509', ...how, ...names, '-keyout', key, '-out', certificate], {
    stdio: 'ignore',
  });
  execFileSync('sh', ['-c', `cat ${key} >> ${certificate}`]);
  const children = [
    spawn('python3', ['-c', TARGET, address, certificate], { stdio: ['ignore', 'pipe', 'inherit'] }),
    spawn(process.execPath, [join(import.meta.dirname, 'http2-target.ts'), address, certificate], {
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  ];
  const lines = await Promise.all(
    children.map((child) => once(createInterface({ input: child.stdout }), 'line') as Promise<[string]>),
  );
  return {
    ports: lines.flatMap(([line]) => line.trim().split(' ').map(Number)),
    certificate: readFileSync(certificate, 'utf8'),
    [Symbol.dispose]: () => children.forEach((child) => void child.kill()),
  };
}

export const clientArguments = (
  host: string,
  ports: readonly number[],
  megabytes: number,
  phase: string,
  together: number,
) => [host, ...ports.map(String), String(megabytes), String(together), phase];
